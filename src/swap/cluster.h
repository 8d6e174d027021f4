/* SPDX-License-Identifier: MIT */
/*
 * Which slots of a device are free, and who owns the others: clusters of 512 slots.
 *
 * A run of 2^order slots is naturally aligned and never spans clusters. The first allocation in
 * an empty cluster fixes the cluster's order; order 0 may take from any cluster once its own are
 * used up; and before a run is refused, every cluster with room is searched. So an allocation
 * fails only if no free aligned run exists (or the device is disabled, or there is no memory for
 * a table of owners). docs/cluster-states.md has the states of a cluster and the search order.
 *
 * Slot 0 is never given out: 0 means "no slot". Slots at and above the size are masked, and so
 * are bad ones.
 *
 * Not its job: what is in a slot, and moving it; when discards and the full pass run.
 *
 * Metadata: 136 bytes a cluster (0.27 a slot), touched with the first allocation in the cluster,
 * and 4 bytes a slot in clusters that have used slots.
 *
 * Locking: one lock a cluster (RANK_CLUSTER), one a CPU around its place to go on (RANK_CL_CPU),
 * one a device for the lists (RANK_CL_LIST). Everything here may be called from several threads at
 * once, but for clusters_init*() and clusters_deinit().
 * Context: nothing allocates but clusters_init*() and clusters_mark_bad(); nothing blocks, except
 * that clusters_alloc() may call ops->reclaim and ops->discard (with no lock of this file held),
 * and waits at most a second for the discards of others where nothing else is free.
 */
#ifndef USWAP_SWAP_CLUSTER_H
#define USWAP_SWAP_CLUSTER_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/mem.h"
#include "base/util.h"

#define CLUSTER_SLOTS 512u
#define CLUSTERS_APART 64 /* bytes that keep two fields in different cache lines */

struct cluster;
struct cluster_link;
struct cluster_cpu;

struct clusters_ops {
	/*
	 * Whether the owner's slots could be freed, since its content is elsewhere too. A hint:
	 * called under a cluster's lock, so it may take no lock of RANK_CLUSTER or lower, and owner
	 * may have no meaning any more when it is used.
	 */
	bool (*is_cached)(void *host, uint32_t owner);
	/*
	 * Frees the slots of owner, one of which was `slot`, through clusters_free(), if it can at
	 * once; true if it did. Called with no lock of this file held: the slot may have been freed
	 * and given to another owner meanwhile, so the host looks whether owner still has that
	 * slot.
	 */
	bool (*reclaim)(void *host, uint32_t slot, uint32_t owner);
	/* Tells the device that it may forget the slots. Blocks. 0 or -errno. No lock is held. */
	int (*discard)(void *host, uint32_t slot, uint32_t nr);
};

struct clusters_config {
	bool rotational; /* one place to go on for all CPUs: allocations in time are neighbours */
	bool discard;	 /* each emptied cluster is discarded before it is used again */
	const struct clusters_ops *ops; /* NULL: neither cached slots nor discard */
	void *host;
	uint32_t max_tables; /* bound on tables of owners; 0: one for every cluster */
};

struct cluster_list {
	uint32_t head, tail; /* cluster number + 1; 0: empty */
};

struct clusters {
	/* constant */
	struct clusters_config cfg;
	uint32_t max_clusters;
	struct cluster *tab;
	struct cluster_link *links;
	struct cluster_cpu *cpus;
	unsigned int nr_cpus;
	struct mem_pool tables;

	/* What a search may look at without a lock; see cluster_alloc.c. */
	_Atomic uint64_t *room;	 /* a byte a cluster: largest order that may be free there, + 1 */
	_Atomic uint64_t search; /* bits 0 to 9: orders with no run anywhere; from 16 on: changes */
	_Atomic uint32_t searchers;
	_Atomic uint32_t reserved; /* slots that the window keeps free */
	_Atomic uint32_t discard_errors;
	atomic_bool writeok;

	/*
	 * A cache line apart from what is around it: every allocation and free changes this and
	 * reads those, and would have to fetch them from whoever changed this last. Padding, not
	 * alignment, so that the struct can lie in any memory.
	 *
	 * Low half: slots that were given out and not freed. High half: number of changes, so that
	 * a reader can tell that nothing happened in between. Changed under the lock of the
	 * cluster.
	 */
	char before_usage[CLUSTERS_APART];
	_Atomic uint64_t usage;
	_Atomic uint32_t peak_slots;
	_Atomic uint32_t hand; /* word of room[] where the last search succeeded */
	char before_lock[CLUSTERS_APART];

	struct us_mutex lock; /* RANK_CL_LIST */
	/* protected by lock; atomic ones are read without it */
	_Atomic uint32_t nr_slots;   /* usable now, slot 0 included */
	_Atomic uint32_t nr_touched; /* clusters from here on were never used */
	uint32_t *bad;		     /* sorted */
	_Atomic uint32_t nr_bad;
	uint32_t max_bad;
	struct cluster_list free;
	struct cluster_list nonfull[MAX_ORDER + 1]; /* something was freed since the last scan */
	struct cluster_list frag[MAX_ORDER + 1];    /* scanned since; has room */
	struct cluster_list full;
	struct cluster_list discard;
	_Atomic uint32_t nr_discard;	/* on that list */
	_Atomic uint32_t nr_discarding; /* off it, while the device discards */
	struct us_cond discarded;
	char before_window[CLUSTERS_APART];

	/* The window for relocation; protected by the lock of its cluster, see cluster_window.c. */
	struct {
		atomic_bool busy; /* who set it may open */
		_Atomic uint32_t cluster;
		uint32_t at, nr;
		uint64_t kept[CLUSTER_SLOTS /
			      64]; /* its slots that are free, by slot in the cluster */
	} window;
	_Atomic uint32_t window_hand;
};

/* 0 or -ENOMEM. The size starts at 0; the device is enabled. */
int clusters_init(struct clusters *c, uint32_t max_slots) __must_check;
int clusters_init_with(struct clusters *c, uint32_t max_slots,
		       const struct clusters_config *cfg) __must_check;
/* No call may be running, but for the last steps of a clusters_free(). */
void clusters_deinit(struct clusters *c);
/* Makes the slots below nr_slots usable. Never shrinks. */
void clusters_set_size(struct clusters *c, uint32_t nr_slots);
/*
 * Takes a slot out of use for good. -EINVAL: slot 0, or outside of the size; -EEXIST: is bad
 * already; -EBUSY: slots near it are in use; -ENOMEM. For before the first allocation.
 */
int clusters_mark_bad(struct clusters *c, uint32_t slot) __must_check;

/* First slot of a run of 2^order, or 0. */
uint32_t clusters_alloc(struct clusters *c, unsigned int order) __must_check;
/* Any aligned part of a run that was given out. Any thread; also on a disabled device. */
void clusters_free(struct clusters *c, uint32_t slot, unsigned int order);

/*
 * After clusters_disable() returns no allocation succeeds: slots that were given out are counted as
 * used by then, and no more are until clusters_enable(). A window is closed without a result.
 */
void clusters_disable(struct clusters *c);
void clusters_enable(struct clusters *c);

/* ---- owners ---- */

/*
 * Names the owner of used slots; 0: none (yet), so they cannot be moved or reclaimed. Forgotten
 * when they are freed.
 */
void clusters_set_owner(struct clusters *c, uint32_t slot, unsigned int order, uint32_t owner);
/*
 * From *cursor on, the owners for which claim() says true, each once for each row of slots that it
 * has there, at most max. claim() is called under a cluster's lock (see is_cached), where the slots
 * cannot be freed: an owner that frees its slots before it goes is alive there, and claim() can
 * take a reference unless it is dying. Moves the cursor. 0: the end was reached.
 */
unsigned int clusters_collect(struct clusters *c, uint32_t *cursor,
			      bool (*claim)(void *host, uint32_t owner), void *host, uint32_t *out,
			      unsigned int max);
/* Calls see() for each row of slots that one owner has, under the lock of its cluster, as claim(). */
void clusters_each_owner(struct clusters *c, void (*see)(void *host, uint32_t owner, uint32_t nr),
			 void *host);

/* ---- background work ---- */

/*
 * Goes over full clusters, at most one for each 512 used slots, and lets the host free what is
 * cached. Only while more than half of the device is used. Returns how often it did.
 */
unsigned int clusters_reclaim_full(struct clusters *c);
/* Discards at most max emptied clusters. Returns how many. */
unsigned int clusters_discard_some(struct clusters *c, unsigned int max);
/*
 * Discards all that was ever in use but bad slots, of a disabled device on which nothing is and that
 * nobody else is at, if it is one that is told. 0; -ETIME: it was not over at that time; or the first
 * error. What has not been discarded then is not tried.
 */
int clusters_discard_all(struct clusters *c, uint64_t end_ns);

/* ---- relocation ---- */

struct clusters_window {
	uint32_t slot;
	unsigned int order;
	unsigned int nr; /* owners */
	uint32_t owner[CLUSTER_SLOTS];
};

/*
 * Chooses an aligned run of 2^order slots that is cheap to clear, keeps its free slots from being
 * given out, and lists those who own the others, at most max_owners. At most one window a device
 * is open. Looks at a bounded number of clusters (cluster_window.c) from where the last call
 * ended. False: one is open, none was found, too few slots are free elsewhere, or disabled.
 */
bool clusters_window_open(struct clusters *c, unsigned int order, unsigned int max_owners,
			  struct clusters_window *w) __must_check;
/*
 * If all of w has been freed: its first slot, as from clusters_alloc(). Else 0, and what was freed
 * is free for all.
 */
uint32_t clusters_window_close(struct clusters *c, struct clusters_window *w) __must_check;

/* ---- figures ---- */

/* False when the next allocation of that order is known, or likely, to fail. */
bool clusters_order_ok(struct clusters *c, unsigned int order);
/*
 * used: slots given out and not freed; what a window keeps free does not count, although nobody
 * gets it. usable: neither masked nor bad.
 */
void clusters_usage(struct clusters *c, uint32_t *used, uint32_t *peak, uint32_t *usable);
uint64_t clusters_bytes(struct clusters *c);
/* Walks every invariant. Right at any time; what sums up is compared if nothing happens meanwhile.
 */
void clusters_check(struct clusters *c);

#endif
