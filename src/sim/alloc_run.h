/* SPDX-License-Identifier: MIT */
/*
 * One simulated run of allocations: the real queue over the real cluster allocators, on n virtual
 * CPUs, each of which swaps out folios in batches, as a task does that reclaims for itself. It pays
 *
 *   allocation  of each folio: queue_alloc() and later clusters_free(), queue_freed(), operation by
 *               operation
 *   in batch    for each page, after its allocation: what unmapping and compression take
 *   work        after the batch, for all of its pages: the rest of the system's time
 *   outside     then, too: user time and idle time, which is no system time
 *
 * The last three are drawn evenly from half to one and a half of their mean, so that CPUs do not
 * march in step; from a fixed seed, so the same input gives the same result. Each CPU keeps its last
 * ALLOC_KEPT_PAGES pages and frees the oldest, so that devices stay as full as they are.
 *
 * Not its job: tables, arms, presets of costs.
 * Locking: one run at a time, outside a sim_run(). Context: allocates.
 */
#ifndef USWAP_SIM_ALLOC_RUN_H
#define USWAP_SIM_ALLOC_RUN_H

#include "sim/sim.h"
#include "swap/policy.h"
#include "swap/queue.h"

#define ALLOC_KEPT_PAGES 1024u

/* What a page costs besides its slot; src/sim/presets/NAME.load says where each figure is from. */
struct alloc_load {
	uint64_t work_ns;	 /* of system time, a page */
	uint64_t outside_ns;	 /* of other time, a page */
	uint64_t batch_folios;	 /* that are swapped out one straight after the other; 0 is 1 */
	uint64_t in_batch_ns;	 /* of work_ns, what lies between the allocations of a batch; at most all */
	uint64_t large_permille; /* of folios */
	uint64_t large_order;	 /* of these; the others are single pages */
};

struct alloc_args {
	enum queue_policy policy; /* POLICY_DEFAULT: no queue, the one device is called */
	unsigned int nr_cpus;
	unsigned int nr_devs; /* at most QUEUE_MAX_DEVS, the full ones among them */
	unsigned int nr_full; /* of a higher priority than the others, with no free slot */
	uint64_t folios;      /* of each CPU */
	struct alloc_load load;
	struct sim_costs costs;
};

struct alloc_result {
	struct sim_result sim;
	uint64_t folios, pages, split; /* split: large ones that found no run */
	uint64_t alloc_ns;	       /* in the allocation of slots, all CPUs */
	uint64_t free_ns;
	uint64_t outside_ns;
	uint64_t given[QUEUE_MAX_DEVS]; /* pages, by device */
	uint64_t least, most;		/* of the devices that were not full */
};

/* 0; or -errno with a sentence in r->sim.error. */
int alloc_run(const struct alloc_args *a, struct alloc_result *r) __must_check;

/* All time of the CPUs but the outside one: work, stalls and waits. */
uint64_t alloc_system_ns(const struct alloc_result *r);
/* The same for a page. */
double alloc_system_a_page(const struct alloc_result *r);
/* Part of the CPUs' whole time that they waited for locks, 0 to 1. */
double alloc_wait_share(const struct alloc_result *r);

/* As sim_costs_load(), but NAME.load. */
int alloc_load_read(struct alloc_load *l, const char *name, char *err, size_t errlen) __must_check;

#endif
