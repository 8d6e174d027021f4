/* SPDX-License-Identifier: MIT */
/* kswapd on a host that is only numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "base/clock.h"
#include "reclaim/reclaim.h"

struct host {
	_Atomic uint64_t used;
	_Atomic uint64_t freeable; /* what shrink() can still free */
	atomic_int shrinks, resumes, ooms, waiting, settles;
	atomic_bool under_way; /* since the last settle() */
	atomic_bool enospc, oom_frees;
	_Atomic uint64_t max_batch, min_free_at_resume;
	_Atomic uint64_t limit;
};

static uint64_t host_used(void *p)
{
	struct host *h = p;

	return atomic_load(&h->used);
}

static int64_t host_shrink(void *p, uint64_t nr_pages)
{
	struct host *h = p;
	uint64_t n = MIN(nr_pages * PAGE_SIZE, atomic_load(&h->freeable));

	atomic_fetch_add(&h->shrinks, 1);
	atomic_store(&h->under_way, true);
	if (nr_pages > atomic_load(&h->max_batch))
		atomic_store(&h->max_batch, nr_pages);
	if (!n)
		return atomic_load(&h->enospc) ? -ENOSPC : 0;
	atomic_fetch_sub(&h->freeable, n);
	atomic_fetch_sub(&h->used, n);
	return (int64_t)n;
}

static void host_resume(void *p)
{
	struct host *h = p;
	uint64_t free_bytes = h->limit - atomic_load(&h->used);

	if (free_bytes < atomic_load(&h->min_free_at_resume))
		atomic_store(&h->min_free_at_resume, free_bytes);
	atomic_fetch_add(&h->resumes, 1);
	atomic_store(&h->waiting, 0);
}

static bool host_oom(void *p)
{
	struct host *h = p;

	atomic_fetch_add(&h->ooms, 1);
	if (atomic_load(&h->oom_frees))
		atomic_store(&h->used, 0);
	return atomic_load(&h->oom_frees);
}

static void host_settle(void *p)
{
	struct host *h = p;

	atomic_fetch_add(&h->settles, 1);
	atomic_store(&h->under_way, false);
}

static const struct reclaim_ops ops = {host_used, host_shrink, host_resume, host_oom, host_settle};

static void start(struct reclaim *r, struct host *h, uint64_t limit, uint64_t used,
		  uint64_t freeable)
{
	memset(h, 0, sizeof(*h));
	h->limit = limit;
	h->used = used;
	h->freeable = freeable;
	h->min_free_at_resume = UINT64_MAX;
	assert_int_equal(reclaim_start(r, &ops, h, limit), 0);
}

/* Waits up to 5 s for a condition. */
#define wait_for(cond)                                                                             \
	do {                                                                                       \
		for (int tries = 0; tries < 50000 && !(cond); tries++)                             \
			clock_sleep_ns(100 * NSEC_PER_USEC);                                       \
		assert_true(cond);                                                                 \
	} while (0)

static void test_watermarks_follow_the_limit(void **state)
{
	struct watermarks small = watermarks_of(MIB(16)), mid = watermarks_of(MIB(512)),
			  big = watermarks_of(GIB(64));

	(void)state;
	assert_int_equal(small.high, MIB(2));
	assert_int_equal(mid.high, MIB(8));
	assert_int_equal(mid.low, MIB(6));
	assert_int_equal(mid.min, MIB(3));
	assert_int_equal(big.high, MIB(64));
}

static void test_rests_above_low_and_runs_to_high(void **state)
{
	struct watermarks wm;
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), MIB(512) - MIB(7), MIB(100));
	assert_int_equal(reclaim_limit(&r, &wm), MIB(512));
	reclaim_poke(&r, h.used); /* between low and high: not yet */
	clock_sleep_ns(150 * NSEC_PER_MSEC);
	assert_int_equal(h.shrinks, 0);
	atomic_store(&h.used, MIB(512) - MIB(5));
	reclaim_poke(&r, h.used);
	wait_for(h.used <= MIB(512) - wm.high);
	clock_sleep_ns(20 * NSEC_PER_MSEC);
	/* It does not take more than a batch too much. */
	assert_true(h.used > MIB(512) - wm.high - MIB(1));
	assert_true(h.max_batch <= 1024);
	reclaim_stop(&r);
}

static void test_settles_what_is_under_way_before_it_rests(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), MIB(512) + MIB(20), MIB(100));
	reclaim_poke(&r, h.used);
	wait_for(h.settles);
	assert_true(h.shrinks > 1);
	assert_int_equal(h.settles, 1); /* not after each */
	assert_false(h.under_way);
	/* Also when it is stopped in the middle. */
	atomic_store(&h.freeable, 0);
	atomic_store(&h.used, MIB(600));
	reclaim_need(&r);
	wait_for(h.under_way);
	reclaim_stop(&r);
	assert_false(h.under_way);
}

static void test_notices_without_a_poke(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), 0, MIB(512));
	atomic_store(&h.used, MIB(556));
	wait_for(h.used <= MIB(512) - MIB(8));
	reclaim_stop(&r);
}

static void test_waiting_faults_go_on_above_min_only(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), MIB(512) + MIB(14), MIB(512) + MIB(14));
	reclaim_need(&r);
	wait_for(h.resumes > 0);
	assert_true(h.min_free_at_resume >= MIB(3));
	wait_for(h.used <= MIB(512) - MIB(8));
	assert_int_equal(h.ooms, 0);
	reclaim_stop(&r);
}

static void test_no_wake_up_is_lost(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), 0, 0);
	for (int i = 0; i < 5000; i++) {
		uint64_t begin = clock_now_ns();

		atomic_store(&h.waiting, 1);
		reclaim_need(&r);
		while (atomic_load(&h.waiting))
			if (clock_now_ns() - begin > 5 * NSEC_PER_SEC)
				fail_msg("fault %d was never told to go on", i);
	}
	reclaim_stop(&r);
}

static void test_out_of_memory_only_if_faults_wait_and_nothing_was_freed(void **state)
{
	struct reclaim r;
	struct host h;
	uint64_t begin;

	(void)state;
	start(&r, &h, MIB(512), MIB(512) + MIB(4), 0);
	atomic_store(&h.enospc, true);
	reclaim_poke(&r, h.used);
	clock_sleep_ns(OOM_WAIT_NS + 300 * NSEC_PER_MSEC);
	assert_int_equal(h.ooms, 0);
	/* It backs off instead of spinning. */
	assert_true(h.shrinks < 100);

	begin = clock_now_ns();
	atomic_store(&h.oom_frees, true);
	reclaim_need(&r);
	wait_for(h.ooms > 0);
	assert_true(clock_now_ns() - begin >= OOM_WAIT_NS);
	wait_for(h.resumes > 0);
	assert_int_equal(h.ooms, 1);
	reclaim_stop(&r);
}

static void test_progress_puts_off_the_end_of_a_process(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), MIB(556), 0);
	reclaim_need(&r);
	for (int i = 0; i < 25; i++) {
		atomic_store(&h.freeable, PAGE_SIZE);
		clock_sleep_ns(OOM_WAIT_NS / 20);
	}
	assert_int_equal(h.ooms, 0);
	reclaim_stop(&r);
}

static void test_new_limit_takes_effect_at_once(void **state)
{
	struct reclaim r;
	struct host h;

	(void)state;
	start(&r, &h, MIB(512), MIB(200), MIB(200));
	reclaim_set_limit(&r, MIB(128));
	wait_for(h.used <= MIB(128) - MIB(2));
	/* And while it backs off with nothing to free. */
	atomic_store(&h.freeable, 0);
	reclaim_set_limit(&r, MIB(64));
	reclaim_need(&r);
	clock_sleep_ns(200 * NSEC_PER_MSEC);
	assert_int_equal(h.resumes, 0);
	atomic_store(&h.limit, MIB(512));
	reclaim_set_limit(&r, MIB(512));
	wait_for(h.resumes > 0);
	reclaim_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_watermarks_follow_the_limit),
		cmocka_unit_test(test_rests_above_low_and_runs_to_high),
		cmocka_unit_test(test_settles_what_is_under_way_before_it_rests),
		cmocka_unit_test(test_notices_without_a_poke),
		cmocka_unit_test(test_waiting_faults_go_on_above_min_only),
		cmocka_unit_test(test_no_wake_up_is_lost),
		cmocka_unit_test(test_out_of_memory_only_if_faults_wait_and_nothing_was_freed),
		cmocka_unit_test(test_progress_puts_off_the_end_of_a_process),
		cmocka_unit_test(test_new_limit_takes_effect_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
