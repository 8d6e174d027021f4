/* SPDX-License-Identifier: MIT */
/* Of the explorer itself: locks used wrongly, aborts, broken memory. */
#include "scenario.h"

LOCK_CLASS(class, "only", RANK_LOG);

static struct us_mutex lock;
static _Atomic int turn;

static void unlock_twice(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
	us_mutex_unlock(&lock);
	us_mutex_unlock(&lock);
}

static void lock_only(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
}

/* Only in the one order: the second thread between the two accesses of the first. */
static void look_twice(void *arg)
{
	int before = atomic_load(&turn);

	(void)arg;
	if (before != atomic_load(&turn))
		abort();
}

static void read_through_null(void *arg)
{
	int before = atomic_load(&turn);
	volatile int *volatile nowhere = NULL;

	(void)arg;
	if (before != atomic_load(&turn))
		*nowhere = 0;
}

static void change(void *arg)
{
	(void)arg;
	atomic_fetch_add(&turn, 1);
}

static void run_twice(void)
{
	us_mutex_init(&lock, &class);
	RUN_PARTS(PART(unlock_twice, NULL));
}

static void run_held(void)
{
	us_mutex_init(&lock, &class);
	RUN_PARTS(PART(lock_only, NULL));
}

static void run_abort(void)
{
	atomic_init(&turn, 0);
	RUN_PARTS(PART(look_twice, NULL), PART(change, NULL));
}

static void run_null(void)
{
	atomic_init(&turn, 0);
	RUN_PARTS(PART(read_through_null, NULL), PART(change, NULL));
}

SCENARIO(self_double_unlock, .what = "planted: a lock released twice", .run = run_twice);
SCENARIO(self_ends_with_lock, .what = "planted: a thread ends with a lock held",
	 .run = run_held);
SCENARIO(self_abort, .what = "planted: abort() in one schedule of several", .run = run_abort);
SCENARIO(self_fault, .what = "planted: a bad address in one schedule of several",
	 .run = run_null);
