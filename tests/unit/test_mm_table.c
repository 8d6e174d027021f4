/* SPDX-License-Identifier: MIT */
#include "fake_space.h"

#define MODEL_WORDS 3000

static struct table_pools pools;

static int set_up(void **state)
{
	(void)state;
	return table_pools_init(&pools);
}

static int tear_down(void **state)
{
	(void)state;
	table_pools_deinit(&pools);
	return 0;
}

static void put(struct table *t, uint64_t va, pw_t w)
{
	struct leaf *l = table_leaf(t, va, true);

	assert_non_null(l);
	table_set(t, l, leaf_index(va), w);
}

static void test_word_keeps_all_its_fields(void **state)
{
	(void)state;
	for (unsigned int sub = 0; sub < MAX_FOLIO_PAGES; sub += 73) {
		pw_t w = pw_make(PW_OUT, 0xfedcba98u - sub, sub, (uint8_t)(sub * 7));

		assert_int_equal(pw_state(w), PW_OUT);
		assert_int_equal(pw_entry(w), 0xfedcba98u - sub);
		assert_int_equal(pw_sub(w), sub);
		assert_int_equal(pw_gen(w), (uint8_t)(sub * 7));
	}
}

static void test_absent_leaf_reads_as_none(void **state)
{
	struct table t;
	uint64_t va = 0;

	(void)state;
	table_init(&t, &pools);
	assert_int_equal(table_get(&t, 0x7fffffffe000ull), 0);
	assert_null(table_leaf(&t, 0x1000, false));
	assert_null(table_next_leaf(&t, &va, 1ull << 47));
	assert_null(table_leaf(&t, 1ull << 47, true));
	table_check(&t);
	table_deinit(&t);
}

/* One leaf at each distance that a level of the tree covers, and at both ends. */
static void test_next_leaf_finds_each_in_order(void **state)
{
	static const uint64_t at[] = {0, LEAF_BYTES, LEAF_BYTES * 511, GIB(1), GIB(1) + LEAF_BYTES,
				      GIB(511), GIB(512), GIB(512) * 255,
				      (1ull << 47) - LEAF_BYTES};
	struct table t;
	unsigned int n = 0;

	(void)state;
	table_init(&t, &pools);
	for (unsigned int i = ARRAY_SIZE(at); i-- > 0;)
		put(&t, at[i] + 5 * PAGE_SIZE, pw_make(PW_RESIDENT, 0, 0, 0));
	for (uint64_t va = 0; table_next_leaf(&t, &va, 1ull << 47); va += LEAF_BYTES)
		assert_int_equal(va, at[n++]);
	assert_int_equal(n, ARRAY_SIZE(at));
	for (unsigned int i = 0; i + 1 < ARRAY_SIZE(at); i++) {
		uint64_t va = at[i] + LEAF_BYTES, inside = at[i] + 7 * PAGE_SIZE;

		/* An address inside gives the base; the end is not part of the range. */
		assert_non_null(table_next_leaf(&t, &inside, inside + 1));
		assert_int_equal(inside, at[i]);
		if (at[i + 1] > va) {
			assert_null(table_next_leaf(&t, &va, at[i + 1]));
			va = at[i] + LEAF_BYTES;
		}
		assert_non_null(table_next_leaf(&t, &va, at[i + 1] + 1));
		assert_int_equal(va, at[i + 1]);
	}
	assert_int_equal(t.nr_resident, ARRAY_SIZE(at));
	table_deinit(&t);
}

struct model_word {
	uint64_t va;
	pw_t w;
};

static uint64_t sparse_address(struct rng *r)
{
	uint64_t va = rng_next(r) >> 17;

	/* Half of them close together, the others anywhere in 47 bits. */
	if (rng_next(r) & 1)
		va = 0x7f0000000000ull + rng_below(r, 4 * LEAF_PAGES) * PAGE_SIZE;
	return va & PAGE_MASK;
}

static void test_random_words_against_a_list(void **state)
{
	static struct model_word m[MODEL_WORDS];
	uint64_t resident = 0, swapped = 0;
	unsigned int nr = 0;
	struct table t;
	struct rng r;

	(void)state;
	rng_init(&r, 11);
	table_init(&t, &pools);
	for (unsigned int i = 0; i < 20000; i++) {
		pw_t w = pw_make((enum pw_state)rng_below(&r, 5), (swp_t)rng_below(&r, 1u << 30),
				 (unsigned int)rng_below(&r, 512), (uint8_t)rng_below(&r, 256));
		unsigned int k = (unsigned int)rng_below(&r, nr + 1);

		if (k == nr && nr < MODEL_WORDS) {
			uint64_t va = sparse_address(&r);

			for (k = 0; k < nr && m[k].va != va; k++)
				;
			nr = MAX(nr, k + 1);
			m[k].va = va;
		}
		k = MIN(k, nr - 1);
		m[k].w = w;
		put(&t, m[k].va, w);
		assert_int_equal(table_get(&t, m[k].va), w);
	}
	for (unsigned int k = 0; k < nr; k++) {
		enum pw_state st = pw_state(m[k].w);

		assert_int_equal(table_get(&t, m[k].va), m[k].w);
		resident += st == PW_RESIDENT;
		swapped += st == PW_OUT || st == PW_ISOLATED;
	}
	assert_int_equal(t.nr_resident, resident);
	assert_int_equal(t.nr_swapped, swapped);
	table_check(&t);
	table_deinit(&t);
	assert_int_equal(pools.leaves.used, 0);
	assert_int_equal(pools.nodes.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word_keeps_all_its_fields),
		cmocka_unit_test(test_absent_leaf_reads_as_none),
		cmocka_unit_test(test_next_leaf_finds_each_in_order),
		cmocka_unit_test(test_random_words_against_a_list),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
