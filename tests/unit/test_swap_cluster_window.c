/* SPDX-License-Identifier: MIT */
/* Windows: runs that are being cleared, so that a large folio finds room. */
#include "test_swap_util.h"

#include "swap/cluster_internal.h"

#define CL(i) ((uint32_t)(i)*CLUSTER_SLOTS)

static struct clusters c;
static struct clusters_window w, second;

static void start(uint32_t slots)
{
	assert_int_equal(
		clusters_init_with(&c, slots, &(struct clusters_config){.rotational = true}), 0);
	clusters_set_size(&c, slots);
}

static void finish(void)
{
	clusters_check(&c);
	clusters_deinit(&c);
}

static uint32_t take(unsigned int order)
{
	uint32_t slot = clusters_alloc(&c, order);

	assert_int_not_equal(slot, 0);
	clusters_set_owner(&c, slot, order, slot);
	return slot;
}

static void give(uint32_t slot, unsigned int order)
{
	clusters_free(&c, slot, order);
	clusters_check(&c);
}

static uint32_t used_slots(void)
{
	uint32_t used, peak, usable;

	clusters_usage(&c, &used, &peak, &usable);
	return used;
}

/* All slots used one by one; then holes so that no run of order 3 is free. */
static void start_fragmented(void)
{
	start(CL(3));
	for (uint32_t s = 1; s < CL(3); s++)
		take(0);
	for (uint32_t s = 1; s < CL(3); s += 2)
		clusters_free(&c, s, 0);
	/* Cheapest: one slot used in 704..711. */
	clusters_free(&c, 704, 0);
	clusters_free(&c, 706, 0);
	clusters_free(&c, 708, 0);
	clusters_check(&c);
	assert_int_equal(clusters_alloc(&c, 3), 0);
}

static void test_cheapest_window_is_cleared_and_given_as_a_run(void **state)
{
	uint32_t used, slot;

	(void)state;
	start_fragmented();
	used = used_slots();
	assert_true(clusters_window_open(&c, 3, 8, &w));
	assert_int_equal(w.slot, 704);
	assert_int_equal(w.nr, 1);
	assert_int_equal(w.owner[0], 710);
	assert_int_equal(used_slots(), used);
	assert_int_equal(atomic_load(&c.reserved), 7);
	clusters_check(&c);
	/* The copy elsewhere, then the old place goes. */
	slot = take(0);
	assert_true(slot < 704 || slot >= 712);
	give(710, 0);
	assert_int_equal(used_slots(), used);
	assert_int_equal(atomic_load(&c.reserved), 8);
	assert_int_equal(clusters_window_close(&c, &w), 704);
	assert_int_equal(used_slots(), used + 8);
	assert_int_equal(atomic_load(&c.reserved), 0);
	clusters_check(&c);
	give(704, 3);
	assert_int_equal(take(3), 704);
	finish();
}

static void test_slots_of_an_open_window_are_given_to_nobody(void **state)
{
	uint32_t slot, n = 0, free;

	(void)state;
	start_fragmented();
	assert_true(clusters_window_open(&c, 3, 8, &w));
	give(710, 0);
	free = CL(3) - 1 - used_slots() - 8;
	while ((slot = clusters_alloc(&c, 0))) {
		assert_true(slot < 704 || slot >= 712);
		n++;
	}
	assert_int_equal(n, free);
	assert_false(clusters_order_ok(&c, 0));
	assert_int_equal(clusters_window_close(&c, &w), 704);
	finish();
}

static void test_window_that_is_not_cleared_gives_its_free_slots_back(void **state)
{
	uint32_t used, n = 0, slot;

	(void)state;
	start_fragmented();
	used = used_slots();
	assert_true(clusters_window_open(&c, 3, 8, &w));
	assert_int_equal(clusters_window_close(&c, &w), 0);
	assert_int_equal(used_slots(), used);
	assert_int_equal(atomic_load(&c.reserved), 0);
	clusters_check(&c);
	while ((slot = clusters_alloc(&c, 0)))
		n++;
	assert_int_equal(n, CL(3) - 1 - used);
	finish();
}

static void test_search_that_failed_is_void_when_a_window_gives_up(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t s = 1; s < CL(2); s++)
		take(0);
	for (uint32_t s = 0; s < 4; s++)
		give(600 + s, 0);
	/* Nothing has to be moved; then somebody searches. */
	assert_true(clusters_window_open(&c, 2, 4, &w));
	assert_int_equal(w.nr, 0);
	assert_int_equal(w.slot, 600);
	assert_int_equal(clusters_alloc(&c, 0), 0);
	assert_int_equal(clusters_alloc(&c, 2), 0);
	clusters_disable(&c);
	assert_int_equal(clusters_window_close(&c, &w), 0);
	clusters_enable(&c);
	assert_int_equal(take(2), 600);
	finish();
}

static void test_only_one_window_is_open(void **state)
{
	(void)state;
	start_fragmented();
	assert_true(clusters_window_open(&c, 3, 8, &w));
	assert_false(clusters_window_open(&c, 3, 8, &second));
	assert_int_equal(clusters_window_close(&c, &w), 0);
	assert_true(clusters_window_open(&c, 3, 8, &second));
	assert_int_equal(clusters_window_close(&c, &second), 0);
	finish();
}

static void test_window_avoids_masked_bad_and_unowned_slots(void **state)
{
	(void)state;
	start(CL(1) + 64);
	assert_int_equal(clusters_mark_bad(&c, 100), 0);
	assert_int_equal(clusters_mark_bad(&c, 300), 0);
	for (uint32_t s = 1; s < CL(1) + 64; s++)
		if (s != 100 && s != 300)
			assert_int_not_equal(clusters_alloc(&c, 0), 0);
	for (uint32_t s = 400; s < 480; s++)
		give(s, 0);
	/* Nobody owns the rest: only what is free can be a window. */
	assert_true(clusters_window_open(&c, 5, 32, &w));
	assert_true(w.slot >= 400 && w.slot + 32 <= 480);
	assert_int_equal(clusters_window_close(&c, &w), w.slot);
	clusters_free(&c, w.slot, 5);
	for (uint32_t s = 1; s < CL(1) + 64; s++)
		if (s != 100 && s != 300 && (s < 400 || s >= 480) && (s < 128 || s >= 192))
			clusters_set_owner(&c, s, 0, s);
	/* 128 to 255 has unowned slots, the others bad, masked ones; 384 to 511 remains. */
	assert_true(clusters_window_open(&c, 7, 128, &w) == false);
	for (uint32_t s = 1; s < 70; s++)
		give(s, 0);
	assert_true(clusters_window_open(&c, 7, 128, &w));
	assert_int_equal(w.slot, 384);
	assert_int_equal(w.nr, 48);
	assert_int_equal(clusters_window_close(&c, &w), 0);
	assert_false(clusters_window_open(&c, 7, 47, &w));
	finish();
}

static void test_window_never_cuts_a_larger_run(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t s = 1; s < CL(1); s++)
		take(0);
	for (uint32_t i = 0; i < 16; i++)
		take(5);
	for (uint32_t s = 1; s < CL(1); s += 4)
		give(s, 0);
	/* In the second cluster a window of order 3 would have one owner only. */
	assert_true(clusters_window_open(&c, 3, 8, &w));
	assert_true(w.slot < CL(1));
	assert_int_equal(clusters_window_close(&c, &w), 0);
	finish();
}

static void test_no_window_without_room_for_its_owners(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t s = 1; s < CL(2); s++)
		take(0);
	for (uint32_t s = 520; s < 520 + 14; s += 2)
		give(s, 0);
	/* Seven are free, a window of eight with some used needs eight. */
	assert_false(clusters_window_open(&c, 3, 8, &w));
	give(800, 0);
	assert_true(clusters_window_open(&c, 3, 8, &w));
	assert_int_equal(clusters_window_close(&c, &w), 0);
	finish();
}

static void test_whole_cluster_becomes_a_window(void **state)
{
	(void)state;
	start(CL(3));
	for (uint32_t s = 1; s < CL(1); s++)
		take(0);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t k = 0; k < 32; k++)
			take(4);
	for (uint32_t s = 1; s < CL(1); s++)
		give(s, 0);
	for (uint32_t s = CL(1); s < CL(2); s += 32)
		give(s, 4);
	give(CL(2), 4);
	assert_int_equal(clusters_alloc(&c, 9), 0);
	assert_true(clusters_window_open(&c, 9, 512, &w));
	assert_int_equal(w.slot, CL(1));
	assert_int_equal(w.nr, 16);
	for (unsigned int i = 0; i < w.nr; i++) {
		uint32_t slot = take(4);

		assert_true(slot < CL(1) || slot >= CL(2));
		give(w.owner[i], 4);
	}
	assert_int_equal(cluster_of(&c, CL(1))->state, CL_FULL);
	assert_int_equal(clusters_window_close(&c, &w), CL(1));
	assert_int_equal(cluster_of(&c, CL(1))->order, 9);
	give(CL(1), 9);
	assert_int_equal(cluster_of(&c, CL(1))->state, CL_FREE);
	finish();
}

static void test_run_around_an_open_window_is_freed_in_parts(void **state)
{
	(void)state;
	start(CL(2));
	/* The owners of the halves differ, but the host frees both with one call. */
	assert_int_equal(take(4), CL(1));
	clusters_set_owner(&c, CL(1) + 8, 3, 77);
	for (uint32_t s = 1; s < CL(1); s++)
		take(0);
	for (uint32_t s = CL(1) + 16; s < CL(2); s++)
		take(0);
	clusters_free(&c, CL(1) + 15, 0);
	clusters_free(&c, CL(1) + 14, 0);
	for (uint32_t s = 2; s < 60; s += 2)
		clusters_free(&c, s, 0);
	assert_true(clusters_window_open(&c, 3, 1, &w));
	assert_int_equal(w.slot, CL(1) + 8);
	give(CL(1) + 8, 2);
	give(CL(1) + 12, 1);
	give(CL(1), 3);
	assert_int_equal(clusters_window_close(&c, &w), CL(1) + 8);
	give(CL(1) + 8, 3);
	assert_int_equal(take(4), CL(1));
	finish();
}

static void test_disabled_device_opens_no_window_and_gives_no_run(void **state)
{
	(void)state;
	start_fragmented();
	clusters_disable(&c);
	assert_false(clusters_window_open(&c, 3, 8, &w));
	clusters_enable(&c);
	assert_true(clusters_window_open(&c, 3, 8, &w));
	give(710, 0);
	clusters_disable(&c);
	assert_int_equal(clusters_window_close(&c, &w), 0);
	clusters_enable(&c);
	assert_int_equal(take(3), 704);
	finish();
}

static void test_search_for_a_window_moves_on_over_the_device(void **state)
{
	uint32_t clusters = 200, seen = 0;

	(void)state;
	start(CL(clusters));
	/* Half of each window is used, so none is better than another. */
	for (uint32_t s = 1; s < CL(clusters); s++)
		take(0);
	for (uint32_t s = 1; s < CL(clusters); s += 2)
		clusters_free(&c, s, 0);
	for (int i = 0; i < 4; i++) {
		assert_true(clusters_window_open(&c, 4, 16, &w));
		assert_true(w.slot >= seen || i == 3);
		seen = w.slot + 1;
		assert_int_equal(clusters_window_close(&c, &w), 0);
	}
	finish();
}

#define T(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(cheapest_window_is_cleared_and_given_as_a_run),
		T(slots_of_an_open_window_are_given_to_nobody),
		T(window_that_is_not_cleared_gives_its_free_slots_back),
		T(search_that_failed_is_void_when_a_window_gives_up),
		T(only_one_window_is_open),
		T(window_avoids_masked_bad_and_unowned_slots),
		T(window_never_cuts_a_larger_run),
		T(no_window_without_room_for_its_owners),
		T(whole_cluster_becomes_a_window),
		T(run_around_an_open_window_is_freed_in_parts),
		T(disabled_device_opens_no_window_and_gives_no_run),
		T(search_for_a_window_moves_on_over_the_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
