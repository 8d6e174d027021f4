/* SPDX-License-Identifier: MIT */
/* Sets of addresses against a bitmap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mm/ranges.h"

#define SPAN 64u

static void check_against(const struct ranges *s, const bool *in)
{
	for (unsigned int a = 0; a < SPAN; a++) {
		bool any = false;

		for (unsigned int b = a + 1; b <= SPAN; b++) {
			any |= in[b - 1];
			assert_int_equal(ranges_overlap(s, a, b), any);
		}
	}
	for (unsigned int i = 0; i < s->nr; i++) {
		assert_true(s->r[i].start < s->r[i].end);
		if (i)
			assert_true(s->r[i - 1].end < s->r[i].start);
	}
}

static void test_random_histories(void **state)
{
	uint64_t rng = 12345;

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct ranges s = {0};
		bool in[SPAN] = {false};

		for (int step = 0; step < 30; step++) {
			unsigned int a, b;
			bool add;

			rng = rng * 6364136223846793005ull + 1442695040888963407ull;
			a = (unsigned int)(rng >> 33) % SPAN;
			b = a + 1 + (unsigned int)(rng >> 45) % MIN(12u, SPAN - a);
			add = rng >> 60 & 1;
			if (add)
				ranges_add(&s, a, b);
			else
				ranges_remove(&s, a, b);
			for (unsigned int i = a; i < b; i++)
				in[i] = add;
			check_against(&s, in);
		}
		ranges_deinit(&s);
	}
}

static void test_full_forgets_but_invents_nothing(void **state)
{
	struct ranges s = {0};

	(void)state;
	for (uint64_t i = 0; i < MAX_RANGES; i++)
		ranges_add(&s, 4 * i, 4 * i + 2);
	assert_int_equal(s.nr, MAX_RANGES);
	assert_true(ranges_overlap(&s, 4, 5));
	/* One more than there is room for, by a new range and by a split. */
	ranges_add(&s, 4ull * MAX_RANGES, 4ull * MAX_RANGES + 1);
	for (uint64_t i = 0; i < MAX_RANGES; i++)
		assert_false(ranges_overlap(&s, 4 * i + 2, 4 * i + 4));
	for (uint64_t i = 0; i < MAX_RANGES; i++)
		ranges_add(&s, 4 * i, 4 * i + 3);
	ranges_remove(&s, 5, 6);
	assert_false(ranges_overlap(&s, 5, 6));
	ranges_deinit(&s);
}

static void test_nothing_is_in_an_empty_set(void **state)
{
	struct ranges s = {0};

	(void)state;
	assert_false(ranges_overlap(&s, 0, UINT64_MAX));
	ranges_remove(&s, 0, UINT64_MAX);
	ranges_deinit(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_histories),
		cmocka_unit_test(test_full_forgets_but_invents_nothing),
		cmocka_unit_test(test_nothing_is_in_an_empty_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
