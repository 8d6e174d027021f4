/* SPDX-License-Identifier: MIT */
/*
 * Of the explorer itself: an ABBA deadlock. Ranks would refuse it, so the locks here are words and
 * conditions made of the rest.
 */
#include "scenario.h"

LOCK_CLASS(gate_class, "gate", RANK_LOG);

struct gate {
	struct us_mutex lock;
	struct us_cond freed;
	bool taken;
};

static struct gate a, b;

static void gate_init(struct gate *g)
{
	us_mutex_init(&g->lock, &gate_class);
	us_cond_init(&g->freed);
	g->taken = false;
}

static void gate_take(struct gate *g)
{
	us_mutex_lock(&g->lock);
	while (g->taken)
		us_cond_wait(&g->freed, &g->lock);
	g->taken = true;
	us_mutex_unlock(&g->lock);
}

static void gate_give(struct gate *g)
{
	us_mutex_lock(&g->lock);
	g->taken = false;
	us_cond_signal(&g->freed);
	us_mutex_unlock(&g->lock);
}

static void take_both(struct gate *first, struct gate *second)
{
	gate_take(first);
	gate_take(second);
	gate_give(second);
	gate_give(first);
}

static void a_then_b(void *arg)
{
	(void)arg;
	take_both(&a, &b);
}

static void b_then_a(void *arg)
{
	(void)arg;
	take_both(&b, &a);
}

static void run_wrong(void)
{
	gate_init(&a);
	gate_init(&b);
	RUN_PARTS(PART(a_then_b, NULL), PART(b_then_a, NULL));
}

static void run_right(void)
{
	gate_init(&a);
	gate_init(&b);
	RUN_PARTS(PART(a_then_b, NULL), PART(a_then_b, NULL));
}

SCENARIO(self_abba, .what = "planted: two things taken in two orders", .run = run_wrong);
SCENARIO(self_no_abba, .what = "the same in one order", .run = run_right);
