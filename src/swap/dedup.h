/* SPDX-License-Identifier: MIT */
/*
 * Index from content hash to entry, so that equal folios are stored once.
 *
 * Linear hashing: buckets are heads of chains through entry.chain, and their number follows the
 * number of indexed entries one bucket at a time, so that the array costs 4 bytes an entry at any
 * size and an insertion never pauses to rehash. It does not shrink.
 *
 * Holds no references. An entry in it may be dying (refs 0) until its owner removes it; lookups
 * skip such entries.
 * Locking: one lock, RANK_DEDUP. Context: never blocks, never allocates.
 */
#ifndef USWAP_SWAP_DEDUP_H
#define USWAP_SWAP_DEDUP_H

#include "swap/entry.h"

struct dedup {
	struct entry_table *table;
	uint32_t *buckets;
	uint32_t max_buckets; /* power of two */
	struct us_mutex lock;
	/* protected by lock */
	uint32_t nr_entries;
	uint32_t nr_buckets; /* level + split */
	uint32_t level;	     /* power of two: buckets before this round of splits */
};

int dedup_init(struct dedup *d, struct entry_table *t) __must_check;
void dedup_deinit(struct dedup *d);
uint64_t dedup_bytes(struct dedup *d);

/*
 * Returns a live entry with e's hash, order and class, with one reference taken for the caller; or
 * inserts e and returns e, without one. Both are one step: of two equal entries one is found.
 */
swp_t dedup_find_or_insert(struct dedup *d, swp_t e);
/* Harmless if e is not in the index. */
void dedup_remove(struct dedup *d, swp_t e);
/*
 * The same, but only if e has exactly so many references; false: it has others, nothing is changed.
 * Finders take theirs under the lock of the index: once it is out, none comes from here any more.
 */
bool dedup_remove_if(struct dedup *d, swp_t e, uint32_t refs);
void dedup_check(struct dedup *d);

#endif
