/* SPDX-License-Identifier: MIT */
/*
 * A small src/swap for scenarios, on devices that watch their caller: a read takes several steps,
 * and fails the run if its slots hold nothing or are freed or written meanwhile. Contents are
 * functions of a seed, so that a page of somebody else is noticed.
 *
 * What a run finds is only what happens in its schedule; each scenario keeps to a few calls.
 */
#ifndef USWAP_TESTS_SCHED_SWAP_WORLD_H
#define USWAP_TESTS_SCHED_SWAP_WORLD_H

#include "scenario.h"
#include "swap/internal.h"

struct watched_dev {
	struct dev d;
	struct dev_ops ops;
	char *mem;
	uint8_t *present, *reading, *writing; /* by slot */
	_Atomic uint32_t steps; /* touched between the steps of an io: a point to switch at */
};

struct world {
	struct swap *swap;
	unsigned int nr_devs;
	struct watched_dev *devs[2];
};

/* nr_slots of each device, slot 0 included; 0: there is none. The first one is preferred. */
void world_create(struct world *w, uint32_t nr_slots_0, uint32_t nr_slots_1);
/* All references must be dropped: checks that nothing is left, and destroys it. */
void world_end(struct world *w);

/* A page with that content, sealed; the reference is the caller's. */
swp_t world_store(struct world *w, uint64_t seed);
/* The same, and written out. */
swp_t world_store_written(struct world *w, uint64_t seed);
/* Loads, waits, and checks the content. */
void world_load(struct world *w, swp_t e, uint64_t seed);
uint32_t world_nr_present(struct world *w);

#endif
