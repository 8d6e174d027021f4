/* SPDX-License-Identifier: MIT */
/*
 * The schedule explorer: runs a scenario again and again, each time with other choices of who goes
 * on, until one of them breaks it or there are no others.
 *
 * A scenario is a function that builds something, starts threads on it, joins them and checks what
 * is left. It has to do the same whenever the same choices are made: no real time, no addresses in
 * decisions, no state that an earlier run has left.
 *
 * Context: explore() forks; the runs happen in the child, whose first failure ends it.
 */
#ifndef USWAP_TESTS_SCHED_EXPLORER_H
#define USWAP_TESTS_SCHED_EXPLORER_H

#include "sim/sim.h"

struct scenario {
	const char *name, *what;
	void (*run)(void);
	unsigned int nr_cpus;	/* threads are dealt out to them; 0: 8 */
	bool spurious;		/* waits may end without a signal */
	bool after_unlock;	/* what follows an unlock is a step of its own */
	uint64_t max_steps;	/* 0: 20000 */
};

/* Registers a scenario; the file has only to be listed in meson.build. */
#define SCENARIO(id, ...)                                                                          \
	static const struct scenario scenario_##id = {.name = #id, __VA_ARGS__};                   \
	static const struct scenario *const scenario_pointer_##id                                  \
		__attribute__((used, section("scenarios"))) = &scenario_##id

/* NULL where there is none of that name, or not so many. */
const struct scenario *scenario_find(const char *name);
const struct scenario *scenario_nth(unsigned int i);

enum explore_how { EXPLORE_RANDOM, EXPLORE_EXHAUSTIVE, EXPLORE_REPLAY };

/* At the point'th place where several can go on it is not the first, but this one. */
struct explore_choice {
	uint32_t point, alternative;
};
#define EXPLORE_MAX_CHOICES 65536u

struct explore_options {
	enum explore_how how;
	/* random: run i draws from seed + i; the run before the first one draws nothing */
	uint64_t seed, runs;
	/* exhaustive: all schedules with at most so many preemptions */
	unsigned int preemptions;
	bool only_shared; /* without switches before operations that meet no other thread's */
	const struct explore_choice *replay;
	uint32_t nr_replay;
};

#define EXPLORE_TEXT_BYTES (512u << 10)

struct explore_outcome {
	enum sim_failure kind;
	char message[512];
	uint64_t runs, steps; /* all that were done; steps of all of them */
	uint64_t discarded;   /* of these: only_shared, before it knew what is shared */
	uint64_t seed;	      /* random: of the run that failed */
	bool complete;	      /* exhaustive: there are no others */
	uint32_t nr_choices;
	struct explore_choice choices[EXPLORE_MAX_CHOICES]; /* of the run that failed */
	char said[4096];      /* what the child wrote to standard error */
	char steps_text[EXPLORE_TEXT_BYTES];
};

/* NULL: no memory. The caller frees it with explore_free(). */
struct explore_outcome *explore(const struct scenario *sc, const struct explore_options *opt);
/* Leaves out choices as long as the same kind of failure appears. Takes its outcome over. */
struct explore_outcome *explore_shrink(const struct scenario *sc, struct explore_outcome *found);
void explore_free(struct explore_outcome *o);

#endif
