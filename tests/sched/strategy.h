/* SPDX-License-Identifier: MIT */
/*
 * Who goes on, in one run after the other.
 *
 *   exhaustive  depth first over all choices, those with more preemptions than allowed left out.
 *               (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007: most bugs need no
 *               more than two preemptions.)
 *   random      by seed, in turn: any thread at each step; mostly the same one; by priorities that
 *               change at a few random steps (Burckhardt et al., "A randomized scheduler with
 *               probabilistic guarantees of finding bugs", ASPLOS 2010)
 *   replay      as listed, the first one everywhere else
 */
#ifndef USWAP_TESTS_SCHED_STRATEGY_H
#define USWAP_TESTS_SCHED_STRATEGY_H

#include "base/rng.h"
#include "explorer.h"

struct branch {
	uint16_t alternative, nr; /* nr: how many are to be tried */
};

struct strategy {
	struct explore_options opt;
	uint64_t run; /* 0: takes the first everywhere, but when replaying */
	uint32_t point;
	/* what was chosen in this run */
	struct explore_choice *chosen;
	uint32_t nr_chosen, max_chosen;
	uint32_t at_replay;
	bool unstable; /* the scenario depends on more than the choices; nothing found counts */
	/* exhaustive */
	struct branch *path;
	uint32_t at, depth, max_depth; /* at: in the path; point counts those that were passed, too */
	unsigned int preemptions;
	/* random */
	struct rng rng;
	uint32_t usual_points; /* in run 0 */
	uint32_t change_at[3];
	int64_t priority[SIM_MAX_THREADS];
	int64_t lowest;
};

/* The arrays stay the caller's: path for the whole exploration. */
void strategy_init(struct strategy *s, const struct explore_options *opt, struct branch *path,
		   uint32_t max_depth, struct explore_choice *chosen, uint32_t max_chosen);
void strategy_begin_run(struct strategy *s);
unsigned int strategy_choose(struct strategy *s, const struct sim_choice *c);
/* A point at which nothing was to be chosen. */
void strategy_pass(struct strategy *s);
/* After a run that went well: is there another one? */
bool strategy_next_run(struct strategy *s);

#endif
