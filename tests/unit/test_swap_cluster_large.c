/* SPDX-License-Identifier: MIT */
/* Devices around 4 TiB (2^30 slots) and up to the largest number of slots, with little memory. */
#include <sys/resource.h>

#include "test_swap_util.h"

#include "swap/cluster_internal.h"

#define TIB_4 (1u << 30)

static struct clusters c;

static void start(uint32_t slots)
{
	assert_int_equal(
		clusters_init_with(&c, slots, &(struct clusters_config){.rotational = true}), 0);
	clusters_set_size(&c, slots);
}

static void check_usage(uint32_t expected, uint32_t slots)
{
	uint32_t used, peak, usable;

	clusters_usage(&c, &used, &peak, &usable);
	assert_int_equal(used, expected);
	assert_true(peak >= used);
	assert_int_equal(usable, slots - 1);
}

static void test_large_devices_cost_memory_as_they_are_used(void **state)
{
	static const uint32_t sizes[] = {TIB_4 - 1, TIB_4, TIB_4 + 1, UINT32_MAX};
	struct rusage before, after;

	(void)state;
	getrusage(RUSAGE_SELF, &before);
	for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
		start(sizes[i]);
		check_usage(0, sizes[i]);
		assert_int_equal(clusters_alloc(&c, 9), CLUSTER_SLOTS);
		assert_int_equal(clusters_alloc(&c, 0), 1);
		assert_true(clusters_order_ok(&c, 9));
		check_usage(CLUSTER_SLOTS + 1, sizes[i]);
		assert_true(clusters_bytes(&c) < 64 << 10);
		clusters_check(&c);
		clusters_deinit(&c);
	}
	getrusage(RUSAGE_SELF, &after);
	assert_true(after.ru_maxrss - before.ru_maxrss < 32 << 10);
}

/* The last clusters come into play first: as if all before them had been in use and full. */
static void start_at_the_end(uint32_t slots, uint32_t clusters)
{
	start(slots);
	atomic_store(&c.nr_touched, c.max_clusters - clusters);
}

static void finish_at_the_end(void)
{
	/* Their locks were never made. */
	uint32_t first = c.max_clusters;

	while (first && c.tab[first - 1].lock.cls)
		us_mutex_deinit(&c.tab[--first].lock);
	atomic_store(&c.nr_touched, 0);
	clusters_deinit(&c);
}

static void check_end_of_device(uint32_t slots)
{
	uint32_t cut = slots % CLUSTER_SLOTS, last = slots - 1, n = 0, slot, highest = 0;
	uint32_t first = c.max_clusters;

	start_at_the_end(slots, 3);
	first = (c.max_clusters - 3) * CLUSTER_SLOTS;
	assert_int_equal(clusters_alloc(&c, 9), first);
	clusters_free(&c, first, 9);
	while ((slot = clusters_alloc(&c, 0))) {
		assert_true(slot >= first && slot < slots);
		clusters_set_owner(&c, slot, 0, slot);
		highest = MAX(highest, slot);
		n++;
	}
	assert_int_equal(n, cut ? 2 * CLUSTER_SLOTS + cut : 3 * CLUSTER_SLOTS);
	assert_int_equal(highest, last);
	check_usage(n, slots);
	for (slot = first; slot < last; slot++)
		clusters_free(&c, slot, 0);
	clusters_free(&c, last, 0);
	check_usage(0, slots);
	assert_int_not_equal(clusters_alloc(&c, 9), 0);
	assert_int_not_equal(clusters_alloc(&c, 9), 0);
	finish_at_the_end();
}

static void test_last_slots_of_large_devices_are_usable(void **state)
{
	(void)state;
	check_end_of_device(TIB_4 - 1);
	check_end_of_device(TIB_4);
	check_end_of_device(TIB_4 + 1);
	check_end_of_device(UINT32_MAX);
}

static bool claim_all(void *host, uint32_t owner)
{
	(void)host;
	return owner;
}

static void test_collecting_ends_at_the_last_slot(void **state)
{
	uint32_t cursor = UINT32_MAX - 1000, out[4], slot;

	(void)state;
	start_at_the_end(UINT32_MAX, 2);
	slot = clusters_alloc(&c, 9);
	clusters_set_owner(&c, slot, 9, 5);
	while ((slot = clusters_alloc(&c, 0)))
		clusters_set_owner(&c, slot, 0, 6);
	assert_int_equal(clusters_collect(&c, &cursor, claim_all, NULL, out, 4), 2);
	assert_int_equal(out[0], 5);
	assert_int_equal(out[1], 6);
	assert_int_equal(cursor, UINT32_MAX);
	assert_int_equal(clusters_collect(&c, &cursor, claim_all, NULL, out, 4), 0);
	finish_at_the_end();
}

/* The count goes over 2^30 and back: it has no bit that means something else. */
static void test_usage_crosses_2_to_the_30(void **state)
{
	uint32_t a, b;

	(void)state;
	start(TIB_4 + CLUSTER_SLOTS);
	atomic_store(&c.usage, TIB_4 - CLUSTER_SLOTS - 1);
	a = clusters_alloc(&c, 9);
	check_usage(TIB_4 - 1, TIB_4 + CLUSTER_SLOTS);
	assert_true(clusters_order_ok(&c, 0));
	b = clusters_alloc(&c, 9);
	check_usage(TIB_4 - 1 + CLUSTER_SLOTS, TIB_4 + CLUSTER_SLOTS);
	/* usable is 2^30 + 511, less slot 0 */
	assert_false(clusters_order_ok(&c, 0));
	clusters_free(&c, a, 9);
	check_usage(TIB_4 - 1, TIB_4 + CLUSTER_SLOTS);
	assert_true(clusters_order_ok(&c, 0));
	clusters_free(&c, b, 9);
	check_usage(TIB_4 - CLUSTER_SLOTS - 1, TIB_4 + CLUSTER_SLOTS);
	atomic_store(&c.usage, 0);
	clusters_check(&c);
	clusters_deinit(&c);
}

static void test_bad_slot_at_the_end_touches_no_memory(void **state)
{
	(void)state;
	start(UINT32_MAX);
	assert_int_equal(clusters_mark_bad(&c, UINT32_MAX - 1), 0);
	assert_int_equal(clusters_mark_bad(&c, UINT32_MAX - 1), -EEXIST);
	assert_int_equal(clusters_mark_bad(&c, UINT32_MAX), -EINVAL);
	assert_int_equal(atomic_load(&c.nr_touched), 0);
	check_usage(0, UINT32_MAX - 1);
	clusters_deinit(&c);
	start(UINT32_MAX);
	assert_int_equal(clusters_mark_bad(&c, UINT32_MAX - 1), 0);
	atomic_store(&c.nr_touched, c.max_clusters - 1);
	for (uint32_t s = UINT32_MAX - 511; s < UINT32_MAX - 1; s++)
		assert_int_equal(clusters_alloc(&c, 0), s);
	assert_int_equal(clusters_alloc(&c, 0), 0);
	finish_at_the_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_devices_cost_memory_as_they_are_used),
		cmocka_unit_test(test_last_slots_of_large_devices_are_usable),
		cmocka_unit_test(test_collecting_ends_at_the_last_slot),
		cmocka_unit_test(test_usage_crosses_2_to_the_30),
		cmocka_unit_test(test_bad_slot_at_the_end_touches_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
