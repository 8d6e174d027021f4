/* SPDX-License-Identifier: MIT */
/*
 * Which slots of a device are free: clusters of 512 slots.
 *
 * A run of 2^order slots is naturally aligned and never spans clusters. The first allocation in
 * an empty cluster fixes the cluster's order; order 0 may take from any cluster once its own are
 * used up; and before a run is refused, every cluster with room is searched. So an allocation
 * fails only if no free aligned run exists.
 *
 * Slot 0 is never given out: 0 means "no slot". Slots at and above the size are masked.
 *
 * Metadata: 76 bytes a cluster (0.15 a slot), touched with the first allocation in the cluster.
 * Locking: one lock a device, RANK_CLUSTER. Context: never blocks, never allocates.
 */
#ifndef USWAP_SWAP_CLUSTER_H
#define USWAP_SWAP_CLUSTER_H

#include "base/lock.h"
#include "base/util.h"

#define CLUSTER_SLOTS 512u

struct cluster;

struct cluster_list {
	uint32_t head, tail; /* cluster number + 1; 0: empty */
};

struct clusters {
	struct cluster *tab;
	uint32_t *owners; /* by slot; 0: free, or not owned yet */
	uint32_t max_clusters;
	struct us_mutex lock;
	/* protected by lock */
	uint32_t nr_slots; /* usable now, slot 0 included */
	uint32_t nr_touched; /* clusters from here on were never used */
	uint32_t used_slots, peak_slots;
	struct cluster_list free;
	struct cluster_list partial[MAX_ORDER + 1]; /* something was freed since a scan failed */
	struct cluster_list frag[MAX_ORDER + 1];    /* a scan for this order failed; has room */
	/* Bit o: a search of all clusters for order o failed and no such run was freed since. */
	uint32_t search_failed;
};

/* 0 or -ENOMEM. The size starts at 0. */
int clusters_init(struct clusters *c, uint32_t max_slots) __must_check;
void clusters_deinit(struct clusters *c);
/* Makes the slots below nr_slots usable. Never shrinks. */
void clusters_set_size(struct clusters *c, uint32_t nr_slots);

/* First slot of a run of 2^order, or 0. */
uint32_t clusters_alloc(struct clusters *c, unsigned int order) __must_check;
void clusters_free(struct clusters *c, uint32_t slot, unsigned int order);

/*
 * Says whose the run is: the owner of a run can be asked to move elsewhere. A run that was just
 * allocated has none (0). clusters_free() forgets it.
 */
void clusters_set_owner(struct clusters *c, uint32_t slot, unsigned int order, uint32_t owner);
/*
 * From *cursor on, the owners for which claim() says true, each named once in a row of slots that
 * it has; at most max. claim() is called under the lock, so its owner is not freed meanwhile: it
 * should take a reference. Moves *cursor on; 0 with *cursor at the end: no more.
 */
unsigned int clusters_collect(struct clusters *c, uint32_t *cursor,
			      bool (*claim)(void *host, uint32_t owner), void *host,
			      uint32_t *out, unsigned int max);

/* False when the next allocation of that order is known, or likely, to fail. */
bool clusters_order_ok(struct clusters *c, unsigned int order);
void clusters_usage(struct clusters *c, uint32_t *used, uint32_t *peak, uint32_t *usable);
uint64_t clusters_bytes(struct clusters *c);
void clusters_check(struct clusters *c);

#endif
