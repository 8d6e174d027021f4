/* SPDX-License-Identifier: MIT */
/*
 * The pool's tables, for zpool.c, which changes them, and zpool_check.c, which walks them.
 *
 * Not for: anything outside src/zpool. zpool.c explains the layout and the locks.
 * Locking: as said at each field; the functions here want the lock of the run's class.
 * Context: nothing here blocks or allocates.
 */
#ifndef USWAP_ZPOOL_ZPOOL_INTERNAL_H
#define USWAP_ZPOOL_ZPOOL_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "zpool/zpool.h"

#define RUN_PAGES 32u
#define RUN_BYTES (RUN_PAGES * PAGE_SIZE)
#define OBJ_BITS 7
#define MAX_OBJS (1u << OBJ_BITS)
#define MAX_RUNS ((1u << (32 - OBJ_BITS)) - 1)
#define TRAILER 2u

#define MIN_SIZE 32u
#define LINEAR_MAX 256u /* steps of 8 up to here, then 16 steps a doubling */
#define NR_LINEAR ((LINEAR_MAX - MIN_SIZE) / 8 + 1)
#define NR_CLASSES (NR_LINEAR + 8 * 16 + 1)

#define NR_BUCKETS 4
enum { LIST_NONE = NR_BUCKETS, LIST_FREE };

#define RUN_RELEASING 1u /* its empty pages are being discarded; on no list */

struct size_class {
	uint32_t size;
	uint16_t nr_objs;
	uint16_t nr_pages;
	struct us_mutex lock;
	/* protected by lock */
	uint32_t partial[NR_BUCKETS]; /* runs with a free place, by how full they are */
};

struct run {
	uint64_t live_map[MAX_OBJS / 64];
	uint32_t next, prev; /* 0 = none */
	uint32_t touched;    /* a bit a page */
	uint8_t cls, nr_live, list, flags;
};
_Static_assert(sizeof(struct run) == 32, "the run table is the pool's metadata");

struct zpool {
	char *base; /* of run 0, which has no memory behind it that is used */
	struct run *runs; /* a run's entry: protected by its class's lock, else runs_lock */
	uint32_t max_runs;
	_Atomic uint64_t touched_pages, stored_bytes;
	_Atomic uint64_t empty_pages; /* touched, but no live object overlaps them */
	/*
	 * A bit for each run that may have empty pages, and one for each 64 of these. Set under
	 * the class's lock; cleared, before it looks, by the holder of release_lock.
	 */
	_Atomic uint64_t *pending, *pending_words;
	struct us_mutex release_lock, runs_lock;
	/* protected by runs_lock */
	uint32_t free_runs;	  /* linked by next; their pages are untouched */
	_Atomic uint32_t nr_runs; /* ever used */
	struct size_class classes[NR_CLASSES];
};

/* Says what is wrong and aborts. */
void zpool_broken(const char *what, uint32_t value) __attribute__((noreturn));

static inline int popcount(uint32_t mask)
{
	return __builtin_popcount(mask);
}

static inline uint32_t page_mask(unsigned int first, unsigned int last)
{
	return (uint32_t)((2ull << last) - (1ull << first));
}

/* The pages that obj lies on. */
static inline uint32_t obj_pages(const struct size_class *c, unsigned int obj)
{
	return page_mask((obj * c->size) >> PAGE_SHIFT,
			 ((obj + 1) * c->size - 1) >> PAGE_SHIFT);
}

static inline bool obj_is_live(const struct run *r, unsigned int obj)
{
	return r->live_map[obj / 64] >> (obj % 64) & 1;
}

/* The pages that a live object lies on. */
static inline uint32_t live_pages(const struct run *r, const struct size_class *c)
{
	uint32_t mask = 0;

	if (!r->nr_live)
		return 0;
	for (unsigned int o = 0; o < c->nr_objs; o++)
		if (obj_is_live(r, o))
			mask |= obj_pages(c, o);
	return mask;
}

#endif
