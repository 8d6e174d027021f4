/* SPDX-License-Identifier: MIT */
/*
 * What the first bytes of a block device say about its being a swap area: the header that
 * mkswap(8) writes, and the marks of a hibernation image, which take the place of its signature.
 *
 * The header is page 0: 1024 bytes for boot loaders, then 32-bit words: version (1), last page,
 * number of bad pages; the UUID and the label, 16 bytes each; 117 unused words; the bad pages, up to
 * 637. The page ends with ten bytes, "SWAPSPACE2". It is written in the byte order of the machine
 * that made it, so either is understood here. Pages are those of that machine too: where they are
 * larger the signature stands further behind.
 *
 * Not its job: signatures of anything else (libblkid knows them), reading and writing devices.
 * Locking: none. Context: no allocation, no I/O; every value comes from a disk and is distrusted.
 */
#ifndef USWAP_DEV_SWAP_HEADER_H
#define USWAP_DEV_SWAP_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define SWAP_HEADER_MAX_BAD 637u
/* As much as there is of the device up to this: a signature of any page size lies within. */
#define SWAP_HEADER_BYTES KIB(64)
#define SWAP_SIGNATURE_BYTES 10

enum swap_header_kind {
	SWAP_HEADER_NONE,	   /* no swap area */
	SWAP_HEADER_GOOD,	   /* version 1, pages of 4 KiB, all values make sense */
	SWAP_HEADER_BAD,	   /* a swap area, but one that cannot be used as it is */
	SWAP_HEADER_HIBERNATION, /* an image that a boot may resume from */
};

struct swap_header {
	enum swap_header_kind kind;
	uint32_t signature_at; /* any but NONE: offset of the signature */
	uint32_t last_page;    /* GOOD: the last usable page */
	uint32_t nr_bad;
	uint32_t bad[SWAP_HEADER_MAX_BAD]; /* GOOD: ascending */
	char why[128];			   /* BAD: what is wrong. HIBERNATION: its signature */
};

/*
 * bytes is how much buf holds of the device's beginning, device_pages how many whole pages of
 * 4 KiB it has.
 */
void swap_header_parse(struct swap_header *h, const void *buf, size_t bytes, uint64_t device_pages);

#endif
