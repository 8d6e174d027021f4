/* SPDX-License-Identifier: MIT */
/* Of the explorer itself: a scenario that does something else each time is refused. */
#include "scenario.h"

static _Atomic int x;
static int runs;

static void operate(void *arg)
{
	for (int i = 0; i < 1 + runs % 3; i++)
		atomic_fetch_add(&x, 1);
	(void)arg;
}

static void run(void)
{
	runs++;
	RUN_PARTS(PART(operate, NULL), PART(operate, NULL));
}

SCENARIO(self_unstable, .what = "planted: a run that depends on the one before", .run = run);
