/* SPDX-License-Identifier: MIT */
/* Which device the queue asks, and when it stops asking one. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "fake_queue_dev.h"

/* ---- order ---- */

static void test_lower_priority_stays_empty_while_peers_above_have_room(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 4096, 10), fake_dev_on(q, 1, 4096, 10),
				 fake_dev_on(q, 2, 4096, 0)};

	(void)state;
	for (int i = 0; i < 2 * 4096; i++)
		assert_in_range(fake_alloc(q, 0), 0, 1);
	assert_int_equal(fake_used(d[2]), 0);
	assert_int_equal(d[2]->attempts, 0);
	assert_int_equal(fake_alloc(q, 0), 2);
	fake_free(q, d[1], 1);
	assert_int_equal(fake_alloc(q, 0), 1);
	assert_int_equal(fake_alloc(q, 0), 2);
	fake_end(q, d, 3);
}

static void test_devices_without_a_priority_share_one_ring(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[4];

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		d[i] = fake_dev_on(q, i, 1 << 20, SWAP_PRIO_MIN);
	for (int i = 0; i < 4 * 512; i++)
		assert_true(fake_alloc(q, 0) >= 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(fake_used(d[i]), 512);
	fake_end(q, d, 4);
}

static void test_turn_is_one_cluster(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		d[i] = fake_dev_on(q, i, 1 << 20, 5);
	for (int i = 0; i < 6 * 512; i++)
		assert_int_equal(fake_alloc(q, 0), i / 512 % 3);
	/* 8 folios of order 6 are a cluster; one of order 9 is, too. */
	for (int i = 0; i < 3 * 8; i++)
		assert_int_equal(fake_alloc(q, 6), i / 8 % 3);
	for (int i = 0; i < 6; i++)
		assert_int_equal(fake_alloc(q, 9), i % 3);
	/* What does not fit into the rest of a turn begins the next one. */
	assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 9), 1);
	fake_end(q, d, 3);
}

static void test_peaks_of_eight_equal_devices_differ_by_less_than_a_twentieth(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[8];
	uint32_t least = UINT32_MAX, most = 0;
	struct rng r;

	(void)state;
	rng_init(&r, 1);
	for (unsigned int i = 0; i < 8; i++)
		d[i] = fake_dev_on(q, i, 1 << 20, 0);
	for (int i = 0; i < 200 * 1000; i++) {
		struct fake_dev *from = d[rng_below(&r, 8)];

		assert_true(fake_alloc(q, rng_below(&r, 16) ? 0 : (unsigned int)rng_below(&r, 7)) >=
			    0);
		if (rng_below(&r, 3) == 0 && fake_used(from))
			fake_free(q, from, 1);
	}
	for (unsigned int i = 0; i < 8; i++) {
		least = MIN(least, d[i]->peak);
		most = MAX(most, d[i]->peak);
	}
	assert_true(most * 1000ull <= least * 1049ull);
	fake_end(q, d, 8);
}

static void pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

/* With few CPUs they draw tickets, with many each has its own start: both ways. */
static void cpus_begin_at_different_peers(unsigned int nr_cpus, int even, int odd)
{
	struct queue *q = fake_queue(POLICY_QUEUE, nr_cpus);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 1 << 20, 0), fake_dev_on(q, 1, 1 << 20, 0)};
	int first;

	pin_to(odd);
	first = fake_alloc(q, 0);
	assert_in_range(first, 0, 1);
	pin_to(even);
	assert_int_equal(fake_alloc(q, 0), !first);
	pin_to(odd);
	assert_int_equal(fake_alloc(q, 0), first);
	fake_end(q, d, 2);
}

static void test_cpus_begin_at_different_peers(void **state)
{
	cpu_set_t all;
	int even = -1, odd = -1;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &all))
			*(c % 2 ? &odd : &even) = c;
	if (even < 0 || odd < 0)
		skip();
	cpus_begin_at_different_peers(2, even % 2, odd % 2);
	cpus_begin_at_different_peers(CPU_SETSIZE, even, odd);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void test_tickets_keep_few_cpus_apart(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 2);
	struct fake_dev *d[4];
	cpu_set_t all;
	int held[2] = {-1, -1};

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (unsigned int i = 0; i < 4; i++)
		d[i] = fake_dev_on(q, i, 1 << 24, 0);
	if (!CPU_ISSET(0, &all) || !CPU_ISSET(1, &all)) {
		fake_end(q, d, 4);
		skip();
	}
	/* The second is twice as fast. */
	for (int i = 0; i < 3 * 64; i++) {
		pin_to(i % 3 ? 1 : 0);
		for (int k = 0; k < 128; k++) {
			held[i % 3 != 0] = fake_alloc(q, 0);
			assert_int_not_equal(held[0], held[1]);
		}
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	fake_end(q, d, 4);
}

/* ---- full devices ---- */

static void test_refill_lands_on_the_peer_that_was_added(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 4096, 0), NULL};

	(void)state;
	for (int i = 0; i < 4096; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	d[1] = fake_dev_on(q, 1, 8192, 0);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(fake_alloc(q, 0), 1);
	assert_int_equal(d[0]->attempts, 4096 + 1);
	fake_end(q, d, 2);
}

static void test_full_device_is_asked_once_and_again_after_a_free(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[1] = {fake_dev_on(q, 0, 10, 0)};
	struct queue_stat st;

	(void)state;
	for (int i = 0; i < 10; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(fake_alloc(q, 0), -ENOENT);
	assert_int_equal(d[0]->attempts, 11);
	fake_free(q, d[0], 1);
	assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	queue_stat(q, &st);
	assert_int_equal(st.closed, 2);
	assert_int_equal(st.reopened, 1);
	assert_int_equal(st.refused, 2);
	fake_end(q, d, 1);
}

static void free_behind_its_back(struct fake_dev *d, bool full)
{
	if (!full)
		return;
	d->on_is_full = NULL;
	fake_free(d->arg, d, 1);
}

static void test_free_between_the_look_and_the_closing_is_not_lost(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[1] = {fake_dev_on(q, 0, 2, 0)};

	(void)state;
	assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), 0);
	d[0]->arg = q;
	d[0]->on_is_full = free_behind_its_back;
	(void)fake_alloc(q, 0);
	assert_int_equal(fake_used(d[0]), 1);
	assert_int_equal(fake_alloc(q, 0), 0);
	fake_end(q, d, 1);
}

static void test_refusal_with_room_left_does_not_close(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[1] = {fake_dev_on(q, 0, 100, 0)};

	(void)state;
	fake_set_runs(d[0], 0, 0);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	fake_set_runs(d[0], 0, AS_ROOM);
	assert_int_equal(fake_alloc(q, 0), 0);
	fake_end(q, d, 1);
}

static void test_full_devices_above_are_not_asked(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[64];
	struct queue_stat st;

	(void)state;
	/* 32 in one ring, 31 each in its own, above the free one. */
	for (unsigned int i = 0; i < 63; i++)
		d[i] = fake_dev_on(q, i, 1, i < 32 ? 100 : (int)i);
	d[63] = fake_dev_on(q, 63, 1 << 20, 0);
	for (int i = 0; i < 63; i++)
		assert_int_not_equal(fake_alloc(q, 0), 63);
	assert_int_equal(fake_alloc(q, 0), 63);
	queue_stat(q, &st);
	assert_int_equal(st.closed, 63);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fake_alloc(q, 0), 63);
	for (unsigned int i = 0; i < 63; i++)
		assert_int_equal(d[i]->attempts, 2);
	fake_end(q, d, 64);
}

/* ---- large folios ---- */

static void test_large_folio_goes_out_whole_on_the_peer_with_room(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 600, 5), fake_dev_on(q, 1, 1 << 20, 5),
				 fake_dev_on(q, 2, 1 << 20, 0)};
	struct queue_stat st;

	(void)state;
	for (int i = 0; i < 500; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	for (int i = 0; i < 50; i++)
		assert_int_equal(fake_alloc(q, 9), 1);
	queue_stat(q, &st);
	assert_int_equal(st.too_big, 0);
	assert_int_equal(fake_used(d[2]), 0);
	/* The small one is still there for what fits. */
	while (fake_used(d[0]) < 600)
		assert_in_range(fake_alloc(q, 0), 0, 1);
	fake_end(q, d, 3);
}

static void test_large_folio_is_split_rather_than_sent_to_a_lower_priority(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[4];
	struct queue_stat st;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		d[i] = fake_dev_on(q, i, 10000, 5);
		fake_set_runs(d[i], 9, 0);
	}
	d[3] = fake_dev_on(q, 3, 1 << 20, 0);
	assert_int_equal(fake_alloc(q, 9), -E2BIG);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(d[i]->attempts, 1);
	assert_int_equal(d[3]->attempts, 0);
	queue_stat(q, &st);
	assert_int_equal(st.too_big, 1);
	assert_in_range(fake_alloc(q, 8), 0, 2);
	fake_end(q, d, 4);
}

static void test_large_folio_passes_a_ring_that_is_full(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 512, 5), fake_dev_on(q, 1, 1 << 20, 0)};

	(void)state;
	assert_int_equal(fake_alloc(q, 9), 0);
	/* This one finds out that it is full, the next one knows. */
	assert_int_equal(fake_alloc(q, 9), 1);
	assert_int_equal(fake_alloc(q, 9), 1);
	assert_int_equal(d[0]->attempts, 2);
	/* One page is room enough to bind it to that ring. */
	fake_free(q, d[0], 1);
	assert_int_equal(fake_alloc(q, 9), -E2BIG);
	fake_end(q, d, 2);
}

static void test_device_that_was_skipped_does_not_bind_a_large_folio(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 1 << 20, 5), fake_dev_on(q, 1, 1 << 20, 0)};
	struct queue_req req = {.order = 9, .skip = 1ull << 0 | 1ull << 40};

	(void)state;
	assert_int_equal(fake_alloc_req(q, &req), 1);
	assert_int_equal(d[0]->attempts, 0);
	req.skip |= 1ull << 1;
	assert_int_equal(fake_alloc_req(q, &req), -ENOENT);
	fake_end(q, d, 2);
}

/* ---- closing, removing ---- */

static void test_what_closed_a_device_decides_what_opens_it(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[1] = {fake_dev_on(q, 0, 100, 0)};
	struct queue_req any = {0};

	(void)state;
	assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), 0);
	queue_close(q, 0, QUEUE_NOSPC);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	queue_retry(q, 0);
	assert_int_equal(fake_alloc(q, 0), 0);
	queue_close(q, 0, QUEUE_NOSPC);
	fake_free(q, d[0], 1);
	assert_int_equal(fake_alloc(q, 0), 0);

	queue_close(q, 0, QUEUE_NOSPC);
	assert_int_equal(queue_off(q, 0), 0);
	fake_free(q, d[0], 1);
	queue_retry(q, 0);
	assert_int_equal(queue_open(q, &any), 0);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	assert_int_equal(queue_on(q, 0), 0);
	assert_int_equal(queue_open(q, &any), 1);
	assert_int_equal(fake_alloc(q, 0), 0);

	queue_close(q, 0, QUEUE_FAILED);
	fake_free(q, d[0], 1);
	queue_retry(q, 0);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	fake_end(q, d, 1);
}

static void test_removal_has_its_order(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[1] = {fake_dev_on(q, 7, 100, 0)};
	struct queue_dev_config cfg = {.dev = d[0], .prio = 0, .node = -1};

	(void)state;
	assert_int_equal(queue_add(q, 7, &cfg), -EEXIST);
	assert_int_equal(queue_remove(q, 7), -EBUSY);
	assert_int_equal(queue_remove(q, 8), -ENOENT);
	assert_int_equal(queue_off(q, 8), -ENOENT);
	assert_int_equal(queue_on(q, QUEUE_MAX_DEVS), -ENOENT);
	assert_int_equal(queue_off(q, 7), 0);
	assert_int_equal(queue_remove(q, 7), 0);
	assert_int_equal(queue_remove(q, 7), -ENOENT);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	cfg.prio = SWAP_PRIO_MAX + 1;
	assert_int_equal(queue_add(q, 7, &cfg), -EINVAL);
	cfg.prio = SWAP_PRIO_MIN - 1;
	assert_int_equal(queue_add(q, 7, &cfg), -EINVAL);
	cfg.prio = SWAP_PRIO_MAX;
	assert_int_equal(queue_add(q, QUEUE_MAX_DEVS, &cfg), -EINVAL);
	assert_int_equal(queue_add(q, 7, &cfg), 0);
	assert_int_equal(fake_alloc(q, 0), 7);
	fake_end(q, d, 1);
}

static void test_turns_survive_that_a_peer_comes_and_goes(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 1 << 20, 5), fake_dev_on(q, 1, 1 << 20, 5)};

	(void)state;
	for (int i = 0; i < 512 + 100; i++)
		assert_int_equal(fake_alloc(q, 0), i / 512);
	d[2] = fake_dev_on(q, 2, 1 << 20, 5);
	for (int i = 0; i < 412; i++)
		assert_int_equal(fake_alloc(q, 0), 1);
	assert_int_equal(fake_alloc(q, 0), 2);
	fake_dev_off(q, d[2]);
	assert_int_equal(fake_alloc(q, 0), 0);
	fake_end(q, d, 2);
}

/* ---- rows ---- */

struct rows {
	struct queue_row row[QUEUE_MAX_DEVS];
	unsigned int n;
};

static void collect(void *arg, const struct queue_row *row)
{
	struct rows *rows = arg;

	rows->row[rows->n++] = *row;
}

static void test_rows_are_sorted_and_tell_the_state(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 5, 1, SWAP_PRIO_MIN), fake_dev_on(q, 3, 9, 7),
				 fake_dev_on(q, 2, 9, 7)};
	struct rows rows = {0};
	char text[100];

	(void)state;
	assert_int_equal(queue_first(q, &(struct queue_req){0}), 3);
	queue_close(q, 2, QUEUE_FAILED);
	assert_int_equal(queue_off(q, 3), 0);
	assert_int_equal(fake_alloc(q, 0), 5);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	assert_int_equal(queue_first(q, &(struct queue_req){0}), -1);
	queue_each(q, collect, &rows);
	assert_int_equal(rows.n, 3);
	assert_int_equal(rows.row[0].dev, 3);
	assert_int_equal(rows.row[0].closed, QUEUE_OFF);
	assert_int_equal(rows.row[1].dev, 2);
	assert_int_equal(rows.row[1].closed, QUEUE_FAILED);
	assert_int_equal(rows.row[2].dev, 5);
	assert_int_equal(rows.row[2].prio, -1);
	assert_int_equal(rows.row[2].closed, QUEUE_FULL);
	assert_ptr_equal(rows.row[2].owner, d[0]);
	assert_string_equal(queue_row_to_text(&rows.row[2], text, sizeof(text)),
			    "5 prio -1 tier 0 full weight 0 speed 0");
	assert_true(queue_bytes(q) > 0);
	fake_end(q, d, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lower_priority_stays_empty_while_peers_above_have_room),
		cmocka_unit_test(test_devices_without_a_priority_share_one_ring),
		cmocka_unit_test(test_turn_is_one_cluster),
		cmocka_unit_test(test_peaks_of_eight_equal_devices_differ_by_less_than_a_twentieth),
		cmocka_unit_test(test_cpus_begin_at_different_peers),
		cmocka_unit_test(test_tickets_keep_few_cpus_apart),
		cmocka_unit_test(test_refill_lands_on_the_peer_that_was_added),
		cmocka_unit_test(test_full_device_is_asked_once_and_again_after_a_free),
		cmocka_unit_test(test_free_between_the_look_and_the_closing_is_not_lost),
		cmocka_unit_test(test_refusal_with_room_left_does_not_close),
		cmocka_unit_test(test_full_devices_above_are_not_asked),
		cmocka_unit_test(test_large_folio_goes_out_whole_on_the_peer_with_room),
		cmocka_unit_test(test_large_folio_is_split_rather_than_sent_to_a_lower_priority),
		cmocka_unit_test(test_large_folio_passes_a_ring_that_is_full),
		cmocka_unit_test(test_device_that_was_skipped_does_not_bind_a_large_folio),
		cmocka_unit_test(test_what_closed_a_device_decides_what_opens_it),
		cmocka_unit_test(test_removal_has_its_order),
		cmocka_unit_test(test_turns_survive_that_a_peer_comes_and_goes),
		cmocka_unit_test(test_rows_are_sorted_and_tell_the_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
