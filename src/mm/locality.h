/* SPDX-License-Identifier: MIT */
/*
 * What the order of faults says about the next ones: how large folios should be where, and how far
 * first touches should be answered ahead.
 *
 * A large folio costs a quarter as much for each of its pages as single pages do, when all of it
 * is used; when one page of it is, it is dead weight. So the order follows the faults: it rises
 * where they come in sequence, and falls to single pages within a few faults where they do not.
 *
 * Not its job: reading or changing page words.
 * Locking: the space's lock.
 */
#ifndef USWAP_MM_LOCALITY_H
#define USWAP_MM_LOCALITY_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/table.h"

#define NR_STREAMS 4u

/* A run of addresses that faults have gone through lately, in either direction. */
struct stream {
	uint64_t start, end;
	uint16_t ahead; /* pages answered with the last first touch */
	bool upwards;	/* the last fault was behind the one before */
};

struct streams {
	struct stream at[NR_STREAMS];
	unsigned int next; /* to be given up */
};

struct locality {
	struct streams back;  /* faults that brought pages back */
	struct streams touch; /* first touches */
	uint16_t sequential;  /* share of late faults that continued a stream, 0 to 256 */
};

void locality_init(struct locality *lo);

/*
 * Notes a fault that brings back [start, end), a part of what l covers, and adapts the order of l.
 * Returns whether it continued a stream.
 */
bool locality_back(struct locality *lo, struct leaf *l, uint64_t start, uint64_t end);

/*
 * The stream that goes upwards through va and whose end is less than `bytes` behind it; NULL:
 * none. The caller may move `end` on, over what it brings back before it is asked for.
 */
struct stream *locality_upwards(struct locality *lo, uint64_t va, uint64_t bytes);

/* The order of the next folio made in l: what was learnt there, else in the whole space. */
unsigned int locality_order(const struct locality *lo, const struct leaf *l);

/*
 * Notes the first touch of the page at va. Returns for how many pages from va on it should be
 * answered: 1, or up to max where touches go upwards one by one. What was filled is told with
 * locality_touched(), so that the next touch behind it is recognised.
 */
unsigned int locality_ahead(struct locality *lo, uint64_t va, unsigned int max);
void locality_touched(struct locality *lo, uint64_t va, unsigned int nr);

#endif
