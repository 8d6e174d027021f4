/* SPDX-License-Identifier: MIT */
/* Sections of readers, and who waits for them; numbers of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/readers.h"
#include "base/thread.h"

#include <stdatomic.h>

#define NR_READERS 3

struct thing {
	uint32_t a, b; /* equal as long as it lives */
};

static _Atomic(struct thing *) current;
static atomic_bool stop, inside, go_on;

static void read_things(void *arg)
{
	uint64_t n = 0;

	while (!atomic_load(&stop)) {
		struct us_reader *r = us_read_begin();
		struct thing *t = atomic_load(&current);
		uint32_t a = t->a;

		if (++n % 64 == 0)
			clock_sleep_ns(NSEC_PER_USEC);
		if (a != t->b || !a)
			abort();
		us_read_end(r);
	}
}

static void test_what_is_read_is_not_freed(void **state)
{
	struct us_thread t[NR_READERS];
	struct thing *old, *new;

	(void)state;
	old = malloc(sizeof(*old));
	*old = (struct thing){1, 1};
	atomic_store(&current, old);
	atomic_store(&stop, false);
	for (int i = 0; i < NR_READERS; i++)
		assert_int_equal(us_thread_start(&t[i], "reader", -1, read_things, NULL), 0);
	for (uint32_t n = 2; n < 500; n++) {
		new = malloc(sizeof(*new));
		*new = (struct thing){n, n};
		old = atomic_exchange(&current, new);
		us_read_wait();
		*old = (struct thing){n, 0};
		free(old);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < NR_READERS; i++)
		us_thread_join(&t[i]);
	free(atomic_load(&current));
}

static void sit_inside(void *arg)
{
	struct us_reader *r = us_read_begin();

	atomic_store(&inside, true);
	while (!atomic_load(&go_on))
		clock_sleep_ns(NSEC_PER_USEC);
	us_read_end(r);
}

static void wait_for_it(void *arg)
{
	us_read_wait();
	if (!atomic_load(&go_on))
		abort();
	atomic_store((atomic_bool *)arg, true);
}

static void test_wait_is_for_those_from_before_only(void **state)
{
	struct us_thread sitting, waiting;
	atomic_bool returned = false;

	(void)state;
	assert_int_equal(us_thread_start(&sitting, "sit", -1, sit_inside, NULL), 0);
	while (!atomic_load(&inside))
		clock_sleep_ns(NSEC_PER_USEC);
	assert_int_equal(us_thread_start(&waiting, "wait", -1, wait_for_it, &returned), 0);
	/* Sections that come and go meanwhile neither wait nor are waited for. */
	for (int i = 0; i < 1000; i++)
		us_read_end(us_read_begin());
	clock_sleep_ns(2 * NSEC_PER_MSEC);
	assert_false(atomic_load(&returned));
	atomic_store(&go_on, true);
	us_thread_join(&waiting);
	us_thread_join(&sitting);
	assert_true(atomic_load(&returned));
	us_read_wait();
}

static void test_what_is_read_is_not_freed_without_the_kernels_barrier(void **state)
{
	us_read_without_kernel();
	atomic_store(&inside, false);
	atomic_store(&go_on, false);
	test_what_is_read_is_not_freed(state);
	test_wait_is_for_those_from_before_only(state);
}

/* ---- numbers ---- */

static _Atomic uint32_t holders[US_MAX_THREADS + 1];

LOCK_CLASS(meeting_class, "test_meeting", 10);
static struct us_mutex meeting;
static struct us_cond all_there;
static unsigned int missing; /* protected by meeting */

static void arrive(unsigned int nr)
{
	us_mutex_lock(&meeting);
	missing -= nr;
	if (!missing)
		us_cond_broadcast(&all_there);
	while (missing)
		us_cond_wait(&all_there, &meeting);
	us_mutex_unlock(&meeting);
}

static void hold_a_number(void *arg)
{
	unsigned int n = us_this_thread();

	if (atomic_fetch_add(&holders[n], 1) && n < US_MAX_THREADS)
		abort();
	arrive(1);
	if (us_this_thread() != n && n < US_MAX_THREADS)
		abort();
	us_read_end(us_read_begin());
	atomic_fetch_sub(&holders[n], 1);
}

static unsigned int in_parallel(unsigned int nr)
{
	struct us_thread *t = calloc(nr, sizeof(*t));
	unsigned int started = 0;

	assert_non_null(t);
	missing = nr + 1;
	us_mutex_init(&meeting, &meeting_class);
	us_cond_init(&all_there);
	while (started < nr && us_thread_start(&t[started], "number", -1, hold_a_number, NULL) == 0)
		started++;
	/* And those that there are no threads for. */
	arrive(nr - started + 1);
	for (unsigned int i = 0; i < started; i++)
		us_thread_join(&t[i]);
	us_cond_deinit(&all_there);
	us_mutex_deinit(&meeting);
	free(t);
	return started;
}

static void test_numbers_differ_and_come_back(void **state)
{
	unsigned int own = us_this_thread();

	(void)state;
	assert_int_equal(us_this_thread(), own);
	/* More threads than numbers, one after the other. */
	for (unsigned int n = 0; n < US_MAX_THREADS / 8 + 10; n++)
		assert_int_equal(in_parallel(8), 8);
	for (unsigned int i = 0; i <= US_MAX_THREADS; i++)
		assert_int_equal(atomic_load(&holders[i]), 0);
	assert_int_equal(us_this_thread(), own);
}

static void test_threads_without_a_number_can_read(void **state)
{
	(void)state;
	if (in_parallel(US_MAX_THREADS + 8) < US_MAX_THREADS + 8)
		skip();
	us_read_wait();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_read_is_not_freed),
		cmocka_unit_test(test_wait_is_for_those_from_before_only),
		cmocka_unit_test(test_numbers_differ_and_come_back),
		cmocka_unit_test(test_threads_without_a_number_can_read),
		/* The last, since it stays so. */
		cmocka_unit_test(test_what_is_read_is_not_freed_without_the_kernels_barrier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
