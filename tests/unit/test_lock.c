/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"

LOCK_CLASS(plain_class, "test_plain", 10);
LOCK_CLASS_INHERITS(urgent_class, "test_urgent", 20);

struct waiter {
	struct us_mutex *lock;
	atomic_bool refused, asking;
};

static void wait_urgently(void *arg)
{
	struct sched_param sp = {.sched_priority = 1};
	struct waiter *w = arg;

	w->refused = sched_setscheduler(0, SCHED_FIFO, &sp) != 0;
	w->asking = true;
	us_mutex_lock(w->lock);
	us_mutex_unlock(w->lock);
}

/* Of this thread, as the kernel runs it: -2 is the lowest of real time, 20 is nice 0. */
static int current_priority(void)
{
	char path[64], line[512], *at;
	int priority = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)syscall(SYS_gettid));
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	at = strrchr(line, ')');
	assert_non_null(at);
	assert_int_equal(
		sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %d", &priority),
		1);
	return priority;
}

/* Whether this thread, holding a lock of cls that a real-time one waits for, runs like that one. */
static bool is_raised(struct lock_class *cls)
{
	struct us_mutex lock;
	struct waiter w = {.lock = &lock};
	struct us_thread t;
	bool raised = false;

	us_mutex_init(&lock, cls);
	us_mutex_lock(&lock);
	assert_int_equal(us_thread_start(&t, "urgent", -1, wait_urgently, &w), 0);
	while (!w.asking)
		clock_sleep_ns(NSEC_PER_MSEC);
	for (int i = 0; i < 200 && !raised; i++) {
		clock_sleep_ns(NSEC_PER_MSEC);
		raised = current_priority() < 0;
	}
	us_mutex_unlock(&lock);
	us_thread_join(&t);
	us_mutex_deinit(&lock);
	if (w.refused)
		skip();
	return raised;
}

static void test_holder_inherits_the_priority_of_who_waits(void **state)
{
	(void)state;
	assert_true(is_raised(&urgent_class));
	assert_true(current_priority() > 0);
	assert_false(is_raised(&plain_class));
}

LOCK_CLASS(counted_class, "test_counted", 10);

#define COUNTERS (2 * LOCK_OWN_COUNTS)
#define TAKINGS 2000u

static void take_own_lock(void *arg)
{
	struct us_mutex l;

	us_mutex_init(&l, &counted_class);
	for (unsigned int i = 0; i < TAKINGS; i++) {
		us_mutex_lock(&l);
		us_mutex_unlock(&l);
	}
	us_mutex_deinit(&l);
	(void)arg;
}

/* Also of threads that share a count, and of those that come after others with the same number. */
static void test_every_taking_is_counted(void **state)
{
	struct us_thread t[COUNTERS];

	(void)state;
	for (unsigned int round = 1; round <= 2; round++) {
		for (unsigned int i = 0; i < COUNTERS; i++)
			assert_int_equal(us_thread_start(&t[i], "counter", -1, take_own_lock, NULL), 0);
		for (unsigned int i = 0; i < COUNTERS; i++)
			us_thread_join(&t[i]);
		assert_int_equal(lock_class_acquired(&counted_class), round * COUNTERS * TAKINGS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_taking_is_counted),
		cmocka_unit_test(test_holder_inherits_the_priority_of_who_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
