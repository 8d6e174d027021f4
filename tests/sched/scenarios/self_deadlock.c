/* SPDX-License-Identifier: MIT */
/* Of the explorer itself: two locks taken in two orders. */
#include "scenario.h"

/* Of one rank the order of locks would be refused before there is a deadlock: so by try-lock. */
LOCK_CLASS(outer_class, "outer", RANK_JOB);
LOCK_CLASS(inner_class, "inner", RANK_LOG);

static struct us_mutex a, b;

/* Holds b, and a as if it were the inner one: what ranks forbid, and try-locks get around. */
static void b_then_a(void *arg)
{
	(void)arg;
	us_mutex_lock(&b);
	while (!us_mutex_trylock(&a))
		cpu_relax();
	us_mutex_unlock(&a);
	us_mutex_unlock(&b);
}

static void a_then_b(void *arg)
{
	(void)arg;
	us_mutex_lock(&a);
	us_mutex_lock(&b);
	us_mutex_unlock(&b);
	us_mutex_unlock(&a);
}

static void join_holding_a(void *arg)
{
	struct us_thread t;

	(void)arg;
	us_mutex_lock(&a);
	sim_check(us_thread_start(&t, "a_then_b", -1, a_then_b, NULL) == 0);
	us_thread_join(&t);
	us_mutex_unlock(&a);
}

static void b_under_a(void *arg)
{
	(void)arg;
	us_mutex_lock(&b);
	us_mutex_lock(&a);
}

static void init(void)
{
	us_mutex_init(&a, &outer_class);
	us_mutex_init(&b, &inner_class);
}

static void run_spinning(void)
{
	init();
	RUN_PARTS(PART(a_then_b, NULL), PART(b_then_a, NULL));
}

static void run_waiting(void)
{
	init();
	RUN_PARTS(PART(join_holding_a, NULL));
}

static void run_order(void)
{
	init();
	RUN_PARTS(PART(b_under_a, NULL));
}

static void run_right(void)
{
	init();
	RUN_PARTS(PART(a_then_b, NULL), PART(a_then_b, NULL));
	us_mutex_deinit(&a);
	us_mutex_deinit(&b);
}

SCENARIO(self_livelock, .what = "planted: a try-lock that spins for what waits for it",
	 .run = run_spinning, .max_steps = 500);
SCENARIO(self_join_deadlock, .what = "planted: waits for a thread that wants its lock",
	 .run = run_waiting);
SCENARIO(self_rank, .what = "planted: the order of ranks", .run = run_order);
SCENARIO(self_no_deadlock, .what = "two locks in one order", .run = run_right);
