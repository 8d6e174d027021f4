/* SPDX-License-Identifier: MIT */
/*
 * What the files of the cluster allocator share: one cluster, its lists, its bitmap.
 *
 *   cluster.c          set-up, size, lists and transitions, free
 *   cluster_map.c      the bitmap of one cluster
 *   cluster_alloc.c    the search for a run
 *   cluster_reclaim.c  slots whose content is cached too
 *   cluster_discard.c  emptied clusters of devices that are told
 *   cluster_owner.c    who owns a slot; disabling a device
 *   cluster_window.c   runs that are being cleared by relocation
 *   cluster_check.c    figures, invariants
 *
 * Locks, outermost first: cluster_cpu.lock, cluster.lock, clusters.lock (lists). Whoever goes from
 * a list to a cluster has the list's lock already, so he only tries the cluster's and passes over
 * one that is taken. At most one cluster's lock is held at a time.
 */
#ifndef USWAP_SWAP_CLUSTER_INTERNAL_H
#define USWAP_SWAP_CLUSTER_INTERNAL_H

#include "swap/cluster.h"

#define CLUSTER_WORDS (CLUSTER_SLOTS / 64)
#define ORDER_BITS ((1u << (MAX_ORDER + 1)) - 1)
#define SEARCH_CHANGE (1ull << 16)

/* Which list a cluster is on. */
enum cluster_state {
	CL_NONE, /* on none: isolated by a scan */
	CL_FREE,
	CL_NONFULL,
	CL_FRAG,
	CL_FULL,
	CL_DISCARD, /* also while it is off its list, being discarded */
};

struct cluster {
	struct us_mutex lock;
	/* protected by lock */
	uint32_t *owner; /* by slot; there while a slot is used or kept */
	uint16_t used;	 /* given out */
	uint16_t masked; /* slot 0, beyond the size, bad */
	uint16_t kept;	 /* by the window: free, but for nobody */
	/* written with lock and the lock of the lists, so either is enough for reading */
	uint8_t order;
	uint8_t state;
	/* protected by lock, in a cache line of its own */
	uint64_t map[CLUSTER_WORDS]; /* 1: used, masked, bad, or kept by the window */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct cluster) == 128, "two cache lines");

/* Neighbours on the list; protected by the lock of the lists. */
struct cluster_link {
	uint32_t next, prev; /* as cluster_list.head */
};

/* Where the threads of a CPU go on. */
struct cluster_cpu {
	struct us_mutex lock;
	/* protected by lock */
	uint32_t next[MAX_ORDER + 1]; /* a slot; 0: nowhere */
} __attribute__((aligned(64)));

static inline uint32_t cluster_number(const struct clusters *c, const struct cluster *cl)
{
	return (uint32_t)(cl - c->tab);
}

static inline uint32_t cluster_first(const struct clusters *c, const struct cluster *cl)
{
	return cluster_number(c, cl) * CLUSTER_SLOTS;
}

static inline struct cluster *cluster_of(struct clusters *c, uint32_t slot)
{
	return &c->tab[slot / CLUSTER_SLOTS];
}

static inline bool cluster_is_empty(const struct cluster *cl)
{
	return !cl->used && !cl->masked && !cl->kept;
}

static inline uint32_t clusters_used(struct clusters *c)
{
	/* Sequentially consistent: see queue_ops.is_full. */
	return (uint32_t)atomic_load(&c->usage);
}

static inline uint32_t clusters_usable(struct clusters *c)
{
	uint32_t n = atomic_load(&c->nr_slots);

	return n ? n - 1 - atomic_load(&c->nr_bad) : 0;
}

/* A sweep of all clusters found no run of that order, or of a smaller one, and none came free. */
static inline bool clusters_is_refused(struct clusters *c, unsigned int order)
{
	return atomic_load(&c->search) & ((2ull << order) - 1);
}

/* Whether an allocation may take from a cluster that it has not isolated. Under its lock. */
static inline bool cluster_is_usable(const struct cluster *cl, unsigned int order)
{
	if (cl->state == CL_FULL || cl->state == CL_DISCARD)
		return false;
	return order == 0 || cluster_is_empty(cl) || cl->order == order;
}

/* More than half: slots that only hold what is cached too are worth having. */
static inline bool clusters_half_full(struct clusters *c)
{
	return clusters_used(c) > clusters_usable(c) / 2;
}

/* ---- cluster.c ---- */

/* Counts slots as given out. Under the lock of their cluster. */
void cluster_count_used(struct clusters *c, struct cluster *cl, uint32_t nr);
/* The first cluster of a list that can be locked, locked and off the list; NULL: none. */
struct cluster *cluster_isolate(struct clusters *c, struct cluster_list *l);
/*
 * Puts cl on the list that its content calls for: after slots were taken from it or a scan found
 * nothing. Under its lock.
 */
void cluster_settle(struct clusters *c, struct cluster *cl);
/* The same after slots were freed in it. */
void cluster_settle_freed(struct clusters *c, struct cluster *cl);
/* Fixes the order of a cluster in which nothing is used. Under its lock. */
void cluster_set_order(struct clusters *c, struct cluster *cl, unsigned int order);
/* Brings the next never used cluster into play; false: there is none. */
bool cluster_touch(struct clusters *c);

/*
 * room[]: an upper bound of what is free, so a search can pass over a cluster without its lock.
 * Written under the lock of the cluster.
 */
unsigned int cluster_room(struct clusters *c, uint32_t number);
void cluster_set_room(struct clusters *c, const struct cluster *cl, unsigned int room);
/* A run of that order around slot `at` of cl has come free: searches that failed are void. */
void cluster_run_freed(struct clusters *c, struct cluster *cl, unsigned int at, unsigned int order);
/* The same for something that a search cannot have seen at all. */
void clusters_search_again(struct clusters *c, unsigned int order);

/* Under the list lock. */
void cluster_list_add(struct clusters *c, struct cluster_list *l, struct cluster *cl);
void cluster_list_del(struct clusters *c, struct cluster_list *l, struct cluster *cl);

/* ---- cluster_map.c ---- */

/* First free aligned run at or after `from`, else from the beginning on; -1: none. */
int cluster_find_run(const uint64_t *map, unsigned int order, unsigned int from);
/* Order of the largest free aligned run around the free run of 2^order at `at`. */
unsigned int cluster_free_order(const uint64_t *map, unsigned int at, unsigned int order);
unsigned int cluster_count(const uint64_t *map);
/* How many of n slots from at on are set. */
unsigned int cluster_count_range(const uint64_t *map, unsigned int at, unsigned int n);
/* 1 + the order of the largest free aligned run; 0: all set. */
unsigned int cluster_largest(const uint64_t *map);
/* Sets or clears n slots, each of which must be the other way. */
void cluster_set_range(uint64_t *map, unsigned int at, unsigned int n, bool on);

static inline bool cluster_bit(const uint64_t *map, unsigned int at)
{
	return map[at / 64] >> (at % 64) & 1;
}

static inline bool cluster_has_room(const struct cluster *cl)
{
	return (unsigned int)cl->used + cl->masked + cl->kept < CLUSTER_SLOTS;
}

/* ---- cluster_alloc.c ---- */

/*
 * The high bit of each byte of a word of room[] whose cluster may have a run of the order; exact:
 * and none of a larger one.
 */
uint64_t cluster_rooms(uint64_t word, unsigned int order, bool exact);

/* One call of clusters_alloc(). */
struct scan {
	unsigned int order;
	struct cluster_cpu *cpu; /* its lock is held, but while the host is called */
	bool disabled;		 /* met a device that is disabled: give up */
	bool no_table;		 /* there was a run, but no memory for owners */
	bool discarded;		 /* has discarded a cluster */
	bool waited;		 /* has waited for the discards of others */
	bool reclaimed_full;	 /* has visited a full cluster */
	uint8_t reclaim_tries;	 /* runs that may still be tried to be reclaimed */
};

/* Takes a run out of cl if there is one, at or after `from` if possible. Under its lock. */
uint32_t cluster_take(struct clusters *c, struct scan *s, struct cluster *cl, unsigned int from);

/* ---- cluster_reclaim.c ---- */

/*
 * Lets the host free a run in cl of which every used slot is cached, and takes it. Called and
 * returns with the locks of cl and s->cpu, but drops them in between, so anything may have
 * happened to cl.
 */
uint32_t cluster_reclaim_run(struct clusters *c, struct scan *s, struct cluster *cl);
/* Visits at most max full clusters. No lock is held. */
unsigned int cluster_reclaim_full(struct clusters *c, uint32_t max);

/* ---- cluster_discard.c ---- */

/* Discards one cluster; false: there was none. No lock is held. */
bool cluster_discard_one(struct clusters *c);
/* Waits until a discard in flight has ended; false: none was, or it took too long. No lock. */
bool cluster_discard_wait(struct clusters *c);

/* ---- cluster_window.c ---- */

#define NO_WINDOW UINT32_MAX /* no cluster has that number */

/* Whether the open window is in cl. Under its lock, with which that changes. */
static inline bool cluster_has_window(struct clusters *c, const struct cluster *cl)
{
	return atomic_load_explicit(&c->window.cluster, memory_order_relaxed) ==
	       cluster_number(c, cl);
}

/*
 * Which of the slots that are being freed in cl the window keeps: at once out of `used` and still
 * set in the map. Returns how many. Under the lock of cl.
 */
unsigned int cluster_window_keep(struct clusters *c, struct cluster *cl, unsigned int at,
				 unsigned int n);

#endif
