/* SPDX-License-Identifier: MIT */
/* Of the explorer itself: wake-ups that are missed, wrongly trusted, or late. */
#include "scenario.h"

LOCK_CLASS(class, "box", RANK_LOG);

static struct us_mutex lock;
static struct us_cond filled;
static int items, taken;

static void init(void)
{
	us_mutex_init(&lock, &class);
	us_cond_init(&filled);
	items = taken = 0;
}

static void put_under_lock(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
	items++;
	us_cond_signal(&filled);
	us_mutex_unlock(&lock);
}

/* The lock is not held between the look and the wait of the other: the signal may fall in there. */
static void put_without_lock(void *arg)
{
	(void)arg;
	items++;
	us_cond_signal(&filled);
}

static void take(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
	while (!items)
		us_cond_wait(&filled, &lock);
	items--;
	taken++;
	us_mutex_unlock(&lock);
}

/* Whoever was signalled may find that a third was quicker. */
static void take_trusting(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
	if (!items)
		us_cond_wait(&filled, &lock);
	sim_check(items > 0);
	items--;
	us_mutex_unlock(&lock);
}

static void take_in_time(void *arg)
{
	(void)arg;
	us_mutex_lock(&lock);
	while (!items && us_cond_timedwait(&filled, &lock, NSEC_PER_SEC))
		;
	taken = items;
	us_mutex_unlock(&lock);
}

static void run_missed(void)
{
	init();
	RUN_PARTS(PART(take, NULL), PART(put_without_lock, NULL));
}

static void run_trusting(void)
{
	init();
	RUN_PARTS(PART(take_trusting, NULL), PART(take, NULL), PART(put_under_lock, NULL),
		  PART(put_under_lock, NULL));
}

static void run_spurious(void)
{
	init();
	RUN_PARTS(PART(take_trusting, NULL), PART(put_under_lock, NULL));
}

static void run_late(void)
{
	init();
	RUN_PARTS(PART(take_in_time, NULL), PART(put_under_lock, NULL));
	sim_check(taken == 1);
}

static void run_right(void)
{
	init();
	RUN_PARTS(PART(take, NULL), PART(take, NULL), PART(put_under_lock, NULL),
		  PART(put_under_lock, NULL));
	sim_check(taken == 2 && items == 0);
	us_cond_deinit(&filled);
	us_mutex_deinit(&lock);
}

SCENARIO(self_missed_wakeup, .what = "planted: a signal without the lock", .run = run_missed);
SCENARIO(self_if_not_while, .what = "planted: a woken thread does not look again",
	 .run = run_trusting);
SCENARIO(self_spurious, .what = "planted: the same with one taker, where waits end by themselves",
	 .run = run_spurious, .spurious = true);
SCENARIO(self_timeout, .what = "planted: a time-out taken for an item", .run = run_late);
SCENARIO(self_no_missed_wakeup, .what = "two takers, two puts", .run = run_right,
	 .spurious = true);
