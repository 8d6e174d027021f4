/* SPDX-License-Identifier: MIT */
/*
 * Buffers of the swap cache, and the queue of folios that wait to be written.
 *
 * Each order has a region of address space of its own that could hold the whole cache, so that
 * address space never fragments; what is limited is the memory behind all of them. A buffer is
 *   cold      no memory behind it
 *   warm      free, with memory: used again first, last in first out; at most a quarter of the
 *             cache, or 2 MiB. More than that is given back to the kernel in batches.
 *   busy      belongs to an entry; queued (may be written) or not
 *   dropping  being given back
 * All but cold ones count in cache_held_bytes().
 *
 * Metadata: 17 bytes a buffer, touched with its first use.
 * Locking: RANK_CACHE; pins and flags are under the lock of the entry's shard.
 * Context: never blocks on I/O, never allocates; may call madvise(2), without the lock.
 */
#ifndef USWAP_SWAP_CACHE_H
#define USWAP_SWAP_CACHE_H

#include "base/lock.h"
#include "swap/entry.h"

enum buf_state { BUF_COLD, BUF_WARM, BUF_BUSY, BUF_QUEUED, BUF_DROPPING };

struct buf {
	/* protected by the lock of the cache */
	uint32_t entry;
	uint32_t next, prev; /* on the queue or a warm list */
	uint8_t state;
	/* protected by the lock of the entry's shard */
	uint8_t flags;
	uint16_t pins; /* loads that copy out of it now: never more than threads */
};
#define BUF_REFERENCED 1u /* loaded since it was queued: second chance */
#define BUF_ORPHAN 2u	  /* the entry went to a device; the last pin frees the buffer */
_Static_assert(sizeof(struct buf) == 16, "metadata of a buffer");

struct buf_list {
	uint32_t head, tail;
};

struct buf_region {
	char *mem;
	uint32_t first_id, nr;
	uint64_t *cold;	    /* bitmap: 1 = not cold */
	uint32_t cold_hint; /* words before this one are full */
	struct buf_list warm;
	uint64_t warm_bytes;
};

struct cache {
	struct buf *bufs; /* by id; [0] is never used */
	size_t bufs_bytes;
	/* By id: queue_req.home of the folio. Its filler's until it is queued, then its writer's. */
	uint8_t *home;
	uint64_t *cold_bits;
	size_t cold_bits_bytes;
	uint64_t cap_bytes, warm_cap_bytes;
	struct us_mutex lock;
	/* protected by lock */
	struct buf_region regions[MAX_ORDER + 1];
	struct buf_list queue;
	uint64_t nr_queued;
	uint64_t held_bytes, warm_bytes;
	uint32_t touched_ids[MAX_ORDER + 1]; /* high-water mark in each region */
};

int cache_init(struct cache *c, uint64_t cap_bytes) __must_check;
void cache_deinit(struct cache *c);

/* A busy buffer of 2^order pages, or 0 when the cache is full. */
uint32_t cache_alloc(struct cache *c, unsigned int order) __must_check;
/* Frees a busy or queued buffer. */
void cache_free(struct cache *c, uint32_t id, unsigned int order);
void *cache_mem(struct cache *c, uint32_t id, unsigned int order);

/* Queues a busy buffer at the tail for entry e. */
void cache_queue(struct cache *c, uint32_t id, swp_t e);
/*
 * Takes up to max folios, of at most max_pages together (one is always taken), off the head of
 * the queue, each with a reference to its entry; they are busy then. Skips those whose entry is
 * dying, and turns those that were referenced back to the tail, looking at no more than *scan
 * folios, which it counts down.
 */
unsigned int cache_take_oldest(struct cache *c, struct entry_table *t, swp_t *out,
			       unsigned int max, uint64_t max_pages, uint64_t *scan);
uint64_t cache_nr_queued(struct cache *c);

uint64_t cache_held_bytes(struct cache *c);
uint64_t cache_metadata_bytes(struct cache *c);
/* busy_bytes: what the buffers of live entries take. Aborts on an error; nothing in flight. */
void cache_check(struct cache *c, struct entry_table *t, uint64_t busy_bytes);

#endif
