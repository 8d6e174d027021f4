/* SPDX-License-Identifier: MIT */
/* The slots of a device, against a plain array of "used" bits. */
#include "test_swap_util.h"

#define SLOTS (24 * CLUSTER_SLOTS + 100)

struct run {
	uint32_t slot;
	unsigned int order;
};

static uint8_t used[SLOTS + 2048];
static struct run runs[SLOTS];
static uint32_t nr_runs, nr_used;

static void reset(void)
{
	memset(used, 0, sizeof(used));
	nr_runs = nr_used = 0;
}

static bool model_has_run(uint32_t size, unsigned int order)
{
	uint32_t n = 1u << order;

	for (uint32_t at = 0; at + n <= size; at += n) {
		uint32_t k = 0;

		while (k < n && at + k != 0 && !used[at + k])
			k++;
		if (k == n)
			return true;
	}
	return false;
}

static bool take_run(struct clusters *c, unsigned int order, uint32_t size)
{
	uint32_t slot = clusters_alloc(c, order), n = 1u << order;

	if (!slot) {
		assert_false(model_has_run(size, order));
		return false;
	}
	assert_int_equal(slot % n, 0);
	assert_true(slot + n <= size);
	for (uint32_t k = 0; k < n; k++) {
		assert_int_equal(used[slot + k], 0);
		used[slot + k] = 1;
	}
	nr_used += n;
	runs[nr_runs++] = (struct run){slot, order};
	return true;
}

static void give_run(struct clusters *c, uint32_t i)
{
	struct run r = runs[i];

	runs[i] = runs[--nr_runs];
	memset(used + r.slot, 0, 1u << r.order);
	nr_used -= 1u << r.order;
	clusters_free(c, r.slot, r.order);
}

static void check_used(struct clusters *c)
{
	uint32_t n, peak, usable;

	clusters_usage(c, &n, &peak, &usable);
	assert_int_equal(n, nr_used);
	assert_true(peak >= n);
	clusters_check(c);
}

static void random_rounds(struct clusters *c, struct rng *r, uint32_t size, unsigned int max_order,
			  unsigned int rounds, unsigned int fill_percent)
{
	for (unsigned int i = 0; i < rounds; i++) {
		if (nr_runs && rng_below(r, 100) >= fill_percent)
			give_run(c, (uint32_t)rng_below(r, nr_runs));
		else
			take_run(c, (unsigned int)rng_below(r, max_order + 1), size);
		if (i % 32 == 0)
			check_used(c);
	}
	check_used(c);
}

static void test_random_against_bitmap(void **state)
{
	struct clusters c;
	struct rng r;

	(void)state;
	rng_init(&r, 7);
	reset();
	assert_int_equal(clusters_init(&c, SLOTS), 0);
	clusters_set_size(&c, SLOTS);
	random_rounds(&c, &r, SLOTS, MAX_ORDER, 6000, 70);
	random_rounds(&c, &r, SLOTS, 4, 6000, 55);
	random_rounds(&c, &r, SLOTS, 0, 6000, 90);
	random_rounds(&c, &r, SLOTS, MAX_ORDER, 6000, 40);
	while (nr_runs)
		give_run(&c, nr_runs - 1);
	check_used(&c);
	clusters_deinit(&c);
}

static void test_every_slot_but_the_first_is_given_out(void **state)
{
	struct clusters c;

	(void)state;
	reset();
	assert_int_equal(clusters_init(&c, SLOTS), 0);
	clusters_set_size(&c, SLOTS);
	while (take_run(&c, 0, SLOTS))
		;
	assert_int_equal(nr_used, SLOTS - 1);
	check_used(&c);
	while (nr_runs)
		give_run(&c, 0);
	check_used(&c);
	/* What was taken apart by single slots serves the largest order again. */
	while (take_run(&c, MAX_ORDER, SLOTS))
		;
	assert_int_equal(nr_runs, 23);
	clusters_deinit(&c);
}

static void test_single_slots_fill_the_gaps_of_large_orders(void **state)
{
	struct clusters c;

	(void)state;
	reset();
	assert_int_equal(clusters_init(&c, 4 * CLUSTER_SLOTS), 0);
	clusters_set_size(&c, 4 * CLUSTER_SLOTS);
	for (int i = 0; i < 3; i++)
		assert_true(take_run(&c, 4, 4 * CLUSTER_SLOTS));
	while (take_run(&c, 0, 4 * CLUSTER_SLOTS))
		;
	assert_int_equal(nr_used, 4 * CLUSTER_SLOTS - 1);
	check_used(&c);
	clusters_deinit(&c);
}

static void test_one_freed_slot_completes_a_run(void **state)
{
	struct clusters c;
	uint32_t i, target;

	(void)state;
	reset();
	assert_int_equal(clusters_init(&c, 2 * CLUSTER_SLOTS), 0);
	clusters_set_size(&c, 2 * CLUSTER_SLOTS);
	while (take_run(&c, 0, 2 * CLUSTER_SLOTS))
		;
	assert_int_equal(clusters_alloc(&c, 2), 0);
	target = 600;
	for (uint32_t s = target; s < target + 4; s++) {
		assert_int_equal(clusters_alloc(&c, 2), 0);
		for (i = 0; runs[i].slot != s; i++)
			;
		give_run(&c, i);
	}
	assert_int_equal(clusters_alloc(&c, 2), target);
	clusters_deinit(&c);
}

static void test_growth_makes_the_last_cluster_whole(void **state)
{
	struct clusters c;
	struct rng r;
	uint32_t size = 2;

	(void)state;
	rng_init(&r, 3);
	reset();
	assert_int_equal(clusters_init(&c, SLOTS), 0);
	assert_int_equal(clusters_alloc(&c, 0), 0);
	clusters_check(&c);
	while (size < SLOTS) {
		clusters_set_size(&c, size);
		random_rounds(&c, &r, size, MAX_ORDER, 40, 75);
		size += 1 + (uint32_t)rng_below(&r, 700);
	}
	while (nr_runs)
		give_run(&c, 0);
	clusters_set_size(&c, SLOTS);
	check_used(&c);
	while (take_run(&c, MAX_ORDER, SLOTS))
		;
	assert_int_equal(nr_runs, 23);
	clusters_deinit(&c);
}

static void test_order_hint_says_no_only_without_whole_space(void **state)
{
	struct clusters c;

	(void)state;
	reset();
	assert_int_equal(clusters_init(&c, 3 * CLUSTER_SLOTS), 0);
	clusters_set_size(&c, 3 * CLUSTER_SLOTS);
	assert_true(clusters_order_ok(&c, MAX_ORDER));
	assert_true(take_run(&c, MAX_ORDER, 3 * CLUSTER_SLOTS));
	assert_true(clusters_order_ok(&c, MAX_ORDER));
	assert_true(take_run(&c, MAX_ORDER, 3 * CLUSTER_SLOTS));
	assert_false(clusters_order_ok(&c, MAX_ORDER));
	assert_true(clusters_order_ok(&c, 0));
	while (take_run(&c, 0, 3 * CLUSTER_SLOTS))
		;
	assert_false(clusters_order_ok(&c, 0));
	clusters_deinit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_against_bitmap),
		cmocka_unit_test(test_every_slot_but_the_first_is_given_out),
		cmocka_unit_test(test_single_slots_fill_the_gaps_of_large_orders),
		cmocka_unit_test(test_one_freed_slot_completes_a_run),
		cmocka_unit_test(test_growth_makes_the_last_cluster_whole),
		cmocka_unit_test(test_order_hint_says_no_only_without_whole_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
