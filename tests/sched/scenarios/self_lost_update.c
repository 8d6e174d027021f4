/* SPDX-License-Identifier: MIT */
/* Of the explorer itself: two threads add one each; a load and a store are not one addition. */
#include "scenario.h"

static _Atomic int n;

static void add_in_two_steps(void *arg)
{
	(void)arg;
	atomic_store(&n, atomic_load(&n) + 1);
}

static void add_in_one_step(void *arg)
{
	(void)arg;
	atomic_fetch_add(&n, 1);
}

static void add_if_unchanged(void *arg)
{
	int seen = atomic_load(&n);

	(void)arg;
	while (!atomic_compare_exchange_weak(&n, &seen, seen + 1))
		;
}

static void run_wrong(void)
{
	atomic_init(&n, 0);
	RUN_PARTS(PART(add_in_two_steps, NULL), PART(add_in_two_steps, NULL));
	sim_check(atomic_load(&n) == 2);
}

static _Atomic int own[2];

static void add_after_others(void *arg)
{
	for (int i = 0; i < 3; i++)
		atomic_fetch_add((_Atomic int *)arg, 1);
	add_in_two_steps(NULL);
}

static void run_wrong_after_others(void)
{
	atomic_init(&n, 0);
	RUN_PARTS(PART(add_after_others, &own[0]), PART(add_after_others, &own[1]));
	sim_check(atomic_load(&n) == 2);
}

static void run_right(void)
{
	atomic_init(&n, 0);
	RUN_PARTS(PART(add_in_one_step, NULL), PART(add_if_unchanged, NULL),
		  PART(add_if_unchanged, NULL));
	sim_check(atomic_load(&n) == 3);
}

SCENARIO(self_lost_update, .what = "planted: an addition in two steps", .run = run_wrong);
SCENARIO(self_alone_lost_update, .what = "planted: the same after operations that meet nobody",
	 .run = run_wrong_after_others);
SCENARIO(self_no_lost_update, .what = "additions in one step", .run = run_right);
