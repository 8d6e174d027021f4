/* SPDX-License-Identifier: MIT */
/*
 * The table of a space: from page address to page word. A radix tree of four levels, 9 bits each,
 * whose leaves hold 512 words (2 MiB of addresses) and a few hints.
 *
 * Not its job: what a state change means. It keeps the counts of a leaf and of the table right and
 * takes no references on entries.
 *
 * Locking: the space's lock (RANK_SPACE) for everything.
 * Context: memory comes from pools reserved at start; table_leaf(create) fails with NULL only when
 * the reservation (4 TiB of managed address space) is used up.
 */
#ifndef USWAP_MM_TABLE_H
#define USWAP_MM_TABLE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "base/util.h"
#include "swap/swap.h"

/*
 * State of one page (docs/fault-states.md):
 *   NONE      not known to us: never seen, or given up by the program
 *   RESIDENT  in the program's page table, put there by us or seen at registration; if entry is
 *             set, that entry holds an older copy, or held it, with a kept reference of ours
 *   ISOLATED  chosen for eviction; a MOVE is posted or done, entry is the folio being filled
 *   OUT       not in the page table; the content is page `sub` of entry
 *   POISONED  the content was lost; who touches the page gets SIGBUS
 */
enum pw_state { PW_NONE, PW_RESIDENT, PW_ISOLATED, PW_OUT, PW_POISONED };

/* state:3 sub:9 entry:32 gen:8 */
typedef uint64_t pw_t;

static inline pw_t pw_make(enum pw_state st, swp_t entry, unsigned int sub, uint8_t gen)
{
	return (uint64_t)st | (uint64_t)sub << 3 | (uint64_t)entry << 12 | (uint64_t)gen << 44;
}
static inline enum pw_state pw_state(pw_t w)
{
	return (enum pw_state)(w & 7);
}
static inline unsigned int pw_sub(pw_t w)
{
	return (unsigned int)(w >> 3) & (MAX_FOLIO_PAGES - 1);
}
static inline swp_t pw_entry(pw_t w)
{
	return (swp_t)(w >> 12);
}
static inline uint8_t pw_gen(pw_t w)
{
	return (uint8_t)(w >> 44);
}

#define ORDER_UNKNOWN 0xffu /* nothing has been learnt of this leaf */

#define LEAF_PAGES 512u
#define LEAF_BYTES (LEAF_PAGES * PAGE_SIZE)

struct leaf {
	pw_t w[LEAF_PAGES];
	uint16_t nr_resident, nr_swapped; /* words RESIDENT; words OUT or ISOLATED */
	uint8_t order;			  /* of the next folio made here (auto); ORDER_UNKNOWN */
	uint8_t mode;			  /* enum agent_mode that MOVE accepted last */
	uint8_t in_sequence;		  /* faults here in a row that continued a stream */
	uint8_t oldest_gen;		  /* no resident page here is of an older generation */
};

struct node {
	void *child[512];
};

struct table_pools {
	struct mem_pool nodes, leaves;
};

struct table {
	struct table_pools *pools;
	struct node *root;
	/* Sums of the leaves'. Written under the lock, read without it as a hint. */
	_Atomic uint64_t nr_resident, nr_swapped;
};

int table_pools_init(struct table_pools *p) __must_check;
void table_pools_deinit(struct table_pools *p);

void table_init(struct table *t, struct table_pools *pools);
/* Frees all nodes; the caller has dropped every word first. */
void table_deinit(struct table *t);

/* The leaf that covers va. NULL if absent (and, with create, out of memory). */
struct leaf *table_leaf(struct table *t, uint64_t va, bool create);
/* The first leaf that covers an address in [*va, end); *va becomes its base. NULL: none. */
struct leaf *table_next_leaf(struct table *t, uint64_t *va, uint64_t end);

static inline unsigned int leaf_index(uint64_t va)
{
	return (unsigned int)(va >> PAGE_SHIFT) & (LEAF_PAGES - 1);
}
static inline uint64_t leaf_base(uint64_t va)
{
	return align_down(va, LEAF_BYTES);
}

/* The word of va; NONE where there is no leaf. */
pw_t table_get(struct table *t, uint64_t va);
/* Is there a word other than NONE in [start, end)? */
bool table_any(struct table *t, uint64_t start, uint64_t end);
/* Replaces a word of l and keeps the counts. */
void table_set(struct table *t, struct leaf *l, unsigned int idx, pw_t w);

/* Walks every leaf; aborts if a count is wrong. */
void table_check(struct table *t);

#endif
