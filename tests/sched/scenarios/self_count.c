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

static _Atomic int own[2];
static _Atomic int constant;

/* All but the last operation meet nobody: a word of its own, and one that nobody changes. */
static void operate_mostly_alone(void *arg)
{
	_Atomic int *mine = arg;

	for (int i = 0; i < 3; i++)
		atomic_fetch_add(mine, 1 + atomic_load(&constant));
	atomic_fetch_add(&x, 1);
}

static void run_alone(void)
{
	RUN_PARTS(PART(operate_mostly_alone, &own[0]), PART(operate_mostly_alone, &own[1]));
}

SCENARIO(self_count_alone, .what = "two threads, one of seven operations of each meets the other",
	 .run = run_alone);
SCENARIO(self_count_1_1, .what = "two threads, one operation each", .run = run_2x1);
SCENARIO(self_count_3_3, .what = "two threads, three operations each", .run = run_2x3);
SCENARIO(self_count_1_2, .what = "two threads, one and two operations", .run = run_1x2);
SCENARIO(self_count_1_1_1, .what = "three threads, one operation each", .run = run_3x1);
