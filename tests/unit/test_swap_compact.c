/* SPDX-License-Identifier: MIT */
/* Memory of zram comes free again when what is stored in it has become sparse. */
#include "test_swap_util.h"

#define FOLIOS 16384u
#define BATCH 512u

static swp_t e[FOLIOS];

/* Noise of 800 to 2400 bytes, then nothing: so sizes differ. */
static void content(uint32_t i, char *page)
{
	struct rng rng;
	uint32_t words;

	rng_init(&rng, i + 1);
	words = 100 + (uint32_t)rng_below(&rng, 200);
	memset(page, 0, PAGE_SIZE);
	for (uint32_t w = 0; w < words; w++)
		((uint64_t *)page)[w] = rng_next(&rng);
}

static bool is_right(struct swap *s, uint32_t i)
{
	static __thread char got[PAGE_SIZE] __attribute__((aligned(4096)));
	static __thread char want[PAGE_SIZE] __attribute__((aligned(4096)));

	content(i, want);
	return test_load(s, e[i], got) == 0 && memcmp(got, want, PAGE_SIZE) == 0;
}

static struct swap *swap_on_zram(struct dev **d)
{
	struct zram_config zc = {.bytes = MIB(256), .codec = CODEC_LZ4};
	struct swap *s = test_swap(MIB(8));
	int err;

	*d = dev_zram_create(&zc, &err);
	assert_non_null(*d);
	assert_int_equal(swap_on(s, *d, &(struct swap_on_config){.prio = 0}), 0);
	return s;
}

static void store(struct swap *s, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		void *mem;

		assert_int_equal(swap_new(s, 0, 0, &e[i], &mem), 0);
		content(i, mem);
		assert_int_equal(swap_seal(s, e[i], &e[i]), SWAP_SEALED_CACHED);
		if ((i + 1) % BATCH == 0 || i + 1 == first + n)
			while (cache_nr_queued(&s->cache))
				assert_true(swap_writeout(s, BATCH) > 0);
	}
}

static bool goes(uint32_t i)
{
	return i * 2654435761u >> 30; /* three of four, scattered */
}

static void thin_out(struct swap *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (goes(i)) {
			swap_put(s, e[i], 1);
			e[i] = 0;
		}
}

static void expect_content(struct swap *s)
{
	for (uint32_t i = 0; i < FOLIOS; i++)
		assert_true(!e[i] || is_right(s, i));
}

static void end(struct swap *s)
{
	for (uint32_t i = 0; i < FOLIOS; i++)
		if (e[i])
			swap_put(s, e[i], 1);
	memset(e, 0, sizeof(e));
	swap_check(s);
	swap_destroy(s);
}

static uint64_t waste(struct dev *d)
{
	uint64_t held = d->ops->memory_bytes(d), stored = atomic_load(&d->stored_bytes);

	return held - MIN(held, stored);
}

static void test_holes_are_given_back_while_pages_are_written(void **state)
{
	uint64_t before, moved;
	struct dev *d;
	struct swap *s = swap_on_zram(&d);

	(void)state;
	store(s, 0, FOLIOS - 4096);
	thin_out(s, FOLIOS - 4096);
	before = waste(d);
	moved = vmstat_get(VMSTAT_swap_compacted);
	assert_true(before > MIB(4));
	store(s, FOLIOS - 4096, 4096);
	assert_true(vmstat_get(VMSTAT_swap_compacted) > moved + 500);
	assert_true(waste(d) < before / 2);
	expect_content(s);
	end(s);
}

/* Nothing to be gained: nothing is moved, though pages are written and freed all the time. */
static void test_what_is_packed_stays_where_it_is(void **state)
{
	uint64_t moved;
	struct dev *d;
	struct swap *s = swap_on_zram(&d);

	(void)state;
	moved = vmstat_get(VMSTAT_swap_compacted);
	store(s, 0, 8192);
	assert_int_equal(vmstat_get(VMSTAT_swap_compacted), moved);
	end(s);
}

static atomic_bool stop;
static _Atomic unsigned int nr_loads;

static void loader(void *arg)
{
	struct swap *s = arg;
	struct rng rng;

	rng_init(&rng, 5);
	while (!atomic_load(&stop)) {
		uint32_t i = (uint32_t)rng_below(&rng, FOLIOS - 4096);

		if (goes(i))
			continue;
		assert_true(is_right(s, i));
		atomic_fetch_add(&nr_loads, 1);
	}
}

static void test_loads_meanwhile_are_right(void **state)
{
	struct us_thread t = {0};
	struct dev *d;
	struct swap *s = swap_on_zram(&d);
	uint64_t moved = vmstat_get(VMSTAT_swap_compacted);

	(void)state;
	store(s, 0, FOLIOS - 4096);
	thin_out(s, FOLIOS - 4096);
	assert_int_equal(us_thread_start(&t, "loads", -1, loader, s), 0);
	store(s, FOLIOS - 4096, 4096);
	atomic_store(&stop, true);
	us_thread_join(&t);
	assert_true(atomic_load(&nr_loads) > 100);
	assert_true(vmstat_get(VMSTAT_swap_compacted) > moved + 500);
	expect_content(s);
	end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holes_are_given_back_while_pages_are_written),
		cmocka_unit_test(test_what_is_packed_stays_where_it_is),
		cmocka_unit_test(test_loads_meanwhile_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
