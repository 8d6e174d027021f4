/* SPDX-License-Identifier: MIT */
/*
 * What the pages of a workload hold: words that depend on the page's number, its version and a
 * seed, and that lz4 stores in a given part of their size.
 *
 * A layout of 512 words, random ones and copies of earlier ones in the page, is made once for the
 * wanted ratio; word i of a page is its tag XOR layout[i]. So matches are found within a page and
 * nowhere else: a compressor gains the same from one page as from a folio of many, and no page
 * equals another. Filling and checking a page cost about what it costs to read it.
 *
 * Not for secrets. No locks: a layout is written by content_init only. Nothing allocates.
 */
#ifndef USWAP_BENCH_CONTENT_H
#define USWAP_BENCH_CONTENT_H

#include "../../tests/stress/pages.h"

#define CONTENT_STORED_MIN 0.05 /* below it a page would nearly be one word repeated */

struct content {
	uint64_t seed;
	size_t piece_bytes; /* of a page that are used, one after the other: PAGE_BYTES, or less */
	double stored; /* by lz4, as a part of the plain size; measured on pages of this content */
	uint64_t layout[PAGE_WORDS];
};

/*
 * stored: the wanted ratio, CONTENT_STORED_MIN to 1; c->stored is what came out of it.
 * piece_bytes: at most PAGE_BYTES; the ratio is that of memory filled with pieces of this size.
 */
void content_init(struct content *c, uint64_t seed, double stored, size_t piece_bytes);

/* By lz4, over a sample of pages, in units of unit_pages (at most 16); at most 1. */
double content_measure(const struct content *c, size_t unit_pages);

void content_fill(const struct content *c, void *page, uint64_t index, uint8_t version);

/* Looks at every word. */
bool content_is(const struct content *c, const void *page, uint64_t index, uint8_t version);

/* What a page is that is not what it should be, for the message. */
const char *content_judge(const struct content *c, const void *page, uint64_t index,
			  uint8_t version);

#endif
