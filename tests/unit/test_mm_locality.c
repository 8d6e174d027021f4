/* SPDX-License-Identifier: MIT */
#include "fake_space.h"

#include "mm/locality.h"

#define AT(page) (GIB(1) + (uint64_t)(page) * PAGE_SIZE)

static struct locality lo;
static struct leaf leaf;

static int set_up(void **state)
{
	(void)state;
	locality_init(&lo);
	memset(&leaf, 0, sizeof(leaf));
	leaf.order = ORDER_UNKNOWN;
	return 0;
}

static void test_order_rises_with_a_sequence(void **state)
{
	uint64_t page = 0;

	(void)state;
	assert_int_equal(locality_order(&lo, &leaf), 4);
	leaf.order = 0;
	assert_false(locality_back(&lo, &leaf, AT(0), AT(1)));
	for (int i = 0; i < 30; i++, page += 3)
		(void)locality_back(&lo, &leaf, AT(page), AT(page + 3));
	assert_int_equal(locality_order(&lo, &leaf), 6);
}

static void test_order_falls_within_a_few_scattered_faults(void **state)
{
	(void)state;
	for (uint64_t page = 0; page < 4000; page += 1000)
		assert_false(locality_back(&lo, &leaf, AT(page), AT(page + 1)));
	assert_int_equal(locality_order(&lo, &leaf), 0);
}

static void test_unknown_memory_is_like_the_rest(void **state)
{
	struct leaf other = {.order = ORDER_UNKNOWN};

	(void)state;
	for (uint64_t i = 0; i < 100; i++)
		(void)locality_back(&lo, &leaf, AT(i * 7919), AT(i * 7919 + 1));
	assert_int_equal(locality_order(&lo, &other), 0);
	for (uint64_t i = 0; i < 200; i++)
		(void)locality_back(&lo, &leaf, AT(i), AT(i + 1));
	assert_int_equal(locality_order(&lo, &other), 4);
}

static void test_several_streams_in_both_directions(void **state)
{
	uint64_t place[NR_STREAMS] = {1000, 2000, 30000, 40000};

	(void)state;
	for (int round = 0; round < 10; round++)
		for (unsigned int i = 0; i < NR_STREAMS; i++) {
			uint64_t at = i & 1 ? place[i] - 1 : place[i];

			assert_int_equal(locality_back(&lo, &leaf, AT(at), AT(at + 1)), round > 0);
			place[i] += i & 1 ? -1ull : 1;
		}
}

static void test_only_what_goes_upwards_is_read_ahead(void **state)
{
	struct stream *st;

	(void)state;
	(void)locality_back(&lo, &leaf, AT(10), AT(12));
	assert_null(locality_upwards(&lo, AT(11), MIB(1)));
	(void)locality_back(&lo, &leaf, AT(12), AT(14));
	st = locality_upwards(&lo, AT(12), MIB(1));
	assert_non_null(st);
	assert_true(st->end == AT(14));
	st->end = AT(30); /* on its way */
	assert_ptr_equal(locality_upwards(&lo, AT(29), MIB(1)), st);
	assert_null(locality_upwards(&lo, AT(12), 18 * PAGE_SIZE)); /* far enough ahead */
	assert_null(locality_upwards(&lo, AT(30), MIB(1)));
	assert_true(locality_back(&lo, &leaf, AT(30), AT(31)));
	(void)locality_back(&lo, &leaf, AT(28), AT(30));
	assert_null(locality_upwards(&lo, AT(28), MIB(1)));
}

static void test_touches_are_answered_ahead_in_growing_steps(void **state)
{
	uint64_t page = 0;
	unsigned int want[] = {1, 2, 4, 8, 16, 32, 32};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(want); i++) {
		unsigned int nr = locality_ahead(&lo, AT(page), 32);

		assert_int_equal(nr, want[i]);
		locality_touched(&lo, AT(page), nr);
		page += nr;
	}
	/* Fewer were filled than wanted: the next step starts from that. */
	locality_touched(&lo, AT(page), 3);
	assert_int_equal(locality_ahead(&lo, AT(page + 3), 32), 6);
	/* Downwards, or anywhere else, one at a time. */
	assert_int_equal(locality_ahead(&lo, AT(page - 1), 32), 1);
	assert_int_equal(locality_ahead(&lo, AT(page + 500), 32), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_order_rises_with_a_sequence, set_up),
		cmocka_unit_test_setup(test_order_falls_within_a_few_scattered_faults, set_up),
		cmocka_unit_test_setup(test_unknown_memory_is_like_the_rest, set_up),
		cmocka_unit_test_setup(test_several_streams_in_both_directions, set_up),
		cmocka_unit_test_setup(test_only_what_goes_upwards_is_read_ahead, set_up),
		cmocka_unit_test_setup(test_touches_are_answered_ahead_in_growing_steps, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
