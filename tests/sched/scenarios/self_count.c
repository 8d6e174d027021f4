/* SPDX-License-Identifier: MIT */
/*
 * Of the explorer itself: threads that do nothing but a known number of operations. How many
 * schedules there are is counted by tests/sched/test_count.c without it.
 */
#include "scenario.h"

static _Atomic int x;

static void operate(void *arg)
{
	for (uintptr_t i = 0; i < (uintptr_t)arg; i++)
		atomic_fetch_add(&x, 1);
}

static void run_2x1(void)
{
	RUN_PARTS(PART(operate, (void *)1), PART(operate, (void *)1));
}

static void run_2x3(void)
{
	RUN_PARTS(PART(operate, (void *)3), PART(operate, (void *)3));
}

static void run_3x1(void)
{
	RUN_PARTS(PART(operate, (void *)1), PART(operate, (void *)1), PART(operate, (void *)1));
}

static void run_1x2(void)
{
	RUN_PARTS(PART(operate, (void *)1), PART(operate, (void *)2));
}

SCENARIO(self_count_1_1, .what = "two threads, one operation each", .run = run_2x1);
SCENARIO(self_count_3_3, .what = "two threads, three operations each", .run = run_2x3);
SCENARIO(self_count_1_2, .what = "two threads, one and two operations", .run = run_1x2);
SCENARIO(self_count_1_1_1, .what = "three threads, one operation each", .run = run_3x1);
