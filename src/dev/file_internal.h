/* SPDX-License-Identifier: MIT */
/*
 * The parts of the file device and the block device: opening (file_open.c; block_open.c with
 * block_probe.c), two engines that transfer (file_uring.c, file_threads.c), discarding
 * (file_discard.c), and the devices themselves (file.c, block.c), which the engines call back. They
 * differ in how they are opened, grow and discard, and in nothing else.
 *
 * Locking: grow_lock and an engine's lock are RANK_DEV and never nest.
 * Context: an engine's submit() neither allocates nor waits for the disk.
 */
#ifndef USWAP_DEV_FILE_INTERNAL_H
#define USWAP_DEV_FILE_INTERNAL_H

#include <sys/types.h>

#include "base/lock.h"
#include "dev/dev_internal.h"

struct file_dev;
struct file_engine;

struct file_engine_ops {
	const char *name;
	/* 0 or -errno. */
	int (*start)(struct file_dev *f);
	/* Transfers what file_io_rest() says; then file_io_step() decides. */
	void (*submit)(struct file_dev *f, struct dev_io *io);
	/* Joins the threads. No io is in flight. */
	void (*stop)(struct file_dev *f);
};

extern const struct file_engine_ops file_uring_ops, file_threads_ops;

struct file_dev {
	struct dev d;
	int fd;
	bool direct, created; /* created: by us, so ours to remove */
	bool block;	      /* a block device; rdev is its number */
	dev_t rdev;
	enum dev_discard discard;
	uint32_t *bad_slots; /* what d.bad_slots shows */
	const struct file_engine_ops *engine;
	void *engine_data;
	struct dev_slot_map map;
	struct us_mutex grow_lock;
	bool full; /* protected by grow_lock: the file system refused a reservation */
};

/* The part of an io that is still to be transferred. */
struct file_rest {
	char *buf;
	unsigned int bytes;
	uint64_t offset;
};

struct file_rest file_io_rest(const struct dev_io *io);
/*
 * Takes the result of one transfer (bytes, or -errno). True: the io has ended and is gone. False:
 * transfer what file_io_rest() now says.
 */
bool file_io_step(struct file_dev *f, struct dev_io *io, int64_t result);

/* What both devices have in their ops. */
void file_submit(struct dev *d, struct dev_io *io);
void file_free_slots(struct dev *d, uint32_t slot, uint32_t nr);
uint64_t file_metadata_bytes(struct dev *d);
int file_discard(struct dev *d, uint32_t slot, uint32_t nr);
void file_destroy(struct dev *d);

/* An empty one, nothing open; file_destroy() takes it at any stage. NULL: no memory. */
struct file_dev *file_new(const struct dev_ops *ops, const char *path);
/* Behind the opening: the map of slots, the engine. 0 or -errno. */
int file_start(struct file_dev *f, bool no_io_uring) __must_check;
/*
 * Does what cfg's discard= asks for at the start and sets d.discard_pages. What cannot be done is
 * logged: only if space that was reserved is lost by it, -errno.
 */
int file_discard_start(struct file_dev *f) __must_check;

/*
 * Opens and claims as dev_block_create() promises; sets fd, direct, max_slots, nr_slots,
 * bad_slots. 0 or -errno with a sentence in errbuf.
 */
int block_open(struct file_dev *f, const struct block_config *cfg, char *errbuf, size_t errlen)
	__must_check;
/*
 * What content the device bears that a probe finds (file systems, partition tables, volumes of
 * LVM or RAID, encryption), swap apart: 1 and its name, 0, or -errno. Reads at several places.
 */
int block_probe(int fd, char *what, size_t len) __must_check;

/*
 * Opens and reserves as dev_file_create() promises; sets fd, direct, created, max_slots, nr_slots.
 * 0 or -errno with a sentence in errbuf. To be followed by file_open_end() in either case.
 */
int file_open(struct file_dev *f, const struct file_config *cfg, char *errbuf, size_t errlen)
	__must_check;
/* Unlinks what success (unless cfg->keep) or failure (if we created it) must not leave behind. */
void file_open_end(struct file_dev *f, const struct file_config *cfg, bool success);
/* Makes the file system promise the bytes [from, to). 0 or -errno; gives back a part on failure. */
int file_reserve(int fd, uint64_t from, uint64_t to) __must_check;

/* A file without SIZE grows in steps of this. */
#define FILE_GROW_BYTES MIB(64)

#endif
