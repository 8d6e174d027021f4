/* SPDX-License-Identifier: MIT */
/* What most scenarios need: a few threads that all end. */
#ifndef USWAP_TESTS_SCHED_SCENARIO_H
#define USWAP_TESTS_SCHED_SCENARIO_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/util.h"
#include "explorer.h"

#define MAX_PARTS 8

/* Runs each function in a thread of its own, named after it, and waits for all. */
#define RUN_PARTS(...)                                                                             \
	run_parts((const struct part[]){__VA_ARGS__},                                              \
		  sizeof((const struct part[]){__VA_ARGS__}) / sizeof(struct part))
#define PART(fn, arg) {#fn, fn, arg}

struct part {
	const char *name;
	void (*fn)(void *arg);
	void *arg;
};

static inline void run_parts(const struct part *parts, unsigned int n)
{
	struct us_thread t[MAX_PARTS];

	sim_check(n <= MAX_PARTS);
	for (unsigned int i = 0; i < n; i++)
		sim_check(us_thread_start(&t[i], parts[i].name, -1, parts[i].fn, parts[i].arg) == 0);
	for (unsigned int i = 0; i < n; i++)
		us_thread_join(&t[i]);
}

#endif
