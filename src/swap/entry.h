/* SPDX-License-Identifier: MIT */
/*
 * The table of entries: 32 bytes each, in one reservation, touched as entries get used.
 *
 * Who may read or write what of a live entry:
 *   refs             atomic. 0 means dying: only the one who made it 0 may touch the entry, and
 *                    entry_try_get() fails for all others.
 *   order, class     constant from entry_alloc() on, but for a piece that is not stored yet
 *   kind, dev, slot  written under the shard lock, or by the only holder of a reference. While an
 *                    entry is on a device a mover may change dev and slot (move.c): who reads from
 *                    there passes the device's gate
 *   kept             written under the shard lock; read without it as a hint
 *   hash             written before the entry goes into the index, constant afterwards
 *   chain            under the lock of the index (RANK_DEDUP); of pieces: constant once stored
 *
 * Not its job: what a kind means for buffers and slots (swap.c, writeout.c).
 * Context: never blocks, never allocates; the free list has a lock of its own, taken alone.
 */
#ifndef USWAP_SWAP_ENTRY_H
#define USWAP_SWAP_ENTRY_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/lock.h"
#include "swap/swap.h"

enum entry_kind {
	ENTRY_FREE,
	ENTRY_FILLING, /* slot: buffer; content is not complete */
	ENTRY_CACHED,  /* slot: buffer */
	ENTRY_FILLED,  /* fill_value */
	ENTRY_DEVICE,  /* dev, slot */
	ENTRY_SPLIT,   /* slot: first of the pieces that hold it */
	ENTRY_LOST,
	ENTRY_GONE,    /* given up on purpose: see kept.c */
	NR_ENTRY_KINDS
};

struct entry {
	_Atomic uint32_t refs;
	uint32_t slot;
	uint32_t chain; /* next in the bucket and ENTRY_INDEXED; next free; next piece */
	uint8_t kind : 3;
	uint8_t dev : 5;
	uint8_t : 0; /* what follows is constant, and read while the two above are written */
	uint8_t order : 4;
	uint8_t class : 4; /* swap_class() */
	_Atomic uint16_t kept; /* of the references: resident pages whose older copy this is */
	union {
		struct hash128 hash;
		uint64_t fill_value; /* ENTRY_FILLED: no hash is needed then */
	};
};
_Static_assert(sizeof(struct entry) == 32, "an entry is the largest part of the metadata");

#define ENTRY_INDEXED (1u << 31)

#define ENTRY_SHARDS 64

struct entry_shard {
	struct us_mutex lock;
} __attribute__((aligned(64)));

struct entry_table {
	struct entry *entries; /* [0] is never used */
	uint32_t max_entries;
	_Atomic uint32_t nr_live;
	struct entry_shard shards[ENTRY_SHARDS];
	struct us_mutex free_lock;
	/* protected by free_lock */
	uint32_t free_head;
	_Atomic uint32_t next_unused; /* high-water mark; written under free_lock */
};

/* 0 or -ENOMEM. */
int entry_table_init(struct entry_table *t, uint32_t max_entries) __must_check;
void entry_table_deinit(struct entry_table *t);
uint64_t entry_table_bytes(const struct entry_table *t);

/* An entry with one reference; its other fields are the caller's to set. 0: none left. */
swp_t entry_alloc(struct entry_table *t, enum entry_kind kind, unsigned int order,
		  unsigned int class);
/* refs must be 0, and nothing may lead to e any more. */
void entry_free(struct entry_table *t, swp_t e);

/* One more reference, unless e is dying. Safe only where e cannot be reused meanwhile. */
bool entry_try_get(struct entry *p);
/* The same for clusters_collect(): the owner is not freed while it is called. host: the table. */
bool entry_claim(void *host, uint32_t owner);

/* Aborts with a message when e cannot be a live entry. */
void entry_assert_live(const struct entry_table *t, swp_t e);
void swap_bug(const char *fmt, ...) __printf(1, 2) __attribute__((noreturn));

/* In the index of equal content? Under RANK_DEDUP, or with nothing in flight. */
static inline bool entry_is_indexed(const struct entry *p)
{
	return p->chain & ENTRY_INDEXED;
}

static inline struct entry *entry_of(const struct entry_table *t, swp_t e)
{
	return &t->entries[e];
}

static inline struct us_mutex *entry_lock_of(struct entry_table *t, swp_t e)
{
	return &t->shards[e % ENTRY_SHARDS].lock;
}

static inline void entry_lock(struct entry_table *t, swp_t e)
{
	us_mutex_lock(entry_lock_of(t, e));
}

static inline void entry_unlock(struct entry_table *t, swp_t e)
{
	us_mutex_unlock(entry_lock_of(t, e));
}

#endif
