/* SPDX-License-Identifier: MIT */
/* What the calls of swap.h promise, one by one. */
#include "test_swap_util.h"

#include <sys/mman.h>

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

static struct key random_key(uint64_t seed, unsigned int order)
{
	return (struct key){CONTENT_RANDOM, order, seed};
}

/* Stores n folios of that order, writes all of them out, and returns their entries. */
static void store_and_write(struct swap *s, swp_t *e, unsigned int n, unsigned int order,
			    uint64_t seed)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = random_key(seed + i, order);

		e[i] = test_store(s, &k, NULL);
	}
	assert_int_equal(swap_writeout(s, (uint64_t)n << order), (int64_t)n << order);
}

static void test_same_filled_folio_stores_nothing(void **state)
{
	struct swap *s = test_swap(MIB(4));
	enum swap_sealed how;
	struct swap_usage u;

	(void)state;
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct key zero = {CONTENT_ZERO, o, 0}, same = {CONTENT_SAME, o, 0x1234567890abcdefull};
		swp_t a = test_store(s, &zero, &how);
		swp_t b;

		assert_int_equal(how, SWAP_SEALED_FILLED);
		b = test_store(s, &same, &how);
		assert_int_equal(how, SWAP_SEALED_FILLED);
		assert_true(swap_load_is_fast(s, b));
		assert_false(swap_keep_copy(s, b));
		assert_int_equal(test_load_matches(s, a, &zero), 0);
		assert_int_equal(test_load_matches(s, b, &same), 0);
		swap_usage(s, &u);
		assert_int_equal(u.swapped_pages, 2u << o);
		swap_put(s, a, 1);
		swap_put(s, b, 1);
	}
	swap_check(s);
	swap_destroy(s);
}

static void test_one_odd_word_is_not_same_filled(void **state)
{
	struct swap *s = test_swap(MIB(4));
	const size_t at[] = {0, 8, 2048, 4080, 4088, 4095};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		swp_t e, out;
		char *mem;

		assert_int_equal(swap_new(s, 0, &e, (void **)&mem), 0);
		memset(mem, 7, PAGE_SIZE);
		mem[at[i]] = 8;
		assert_int_equal(swap_seal(s, e, &out), SWAP_SEALED_CACHED);
		assert_int_equal(test_load(s, out, buf), 0);
		for (size_t k = 0; k < PAGE_SIZE; k++)
			assert_int_equal(buf[k], k == at[i] ? 8 : 7);
		swap_put(s, out, 1);
	}
	swap_check(s);
	swap_destroy(s);
}

static void test_equal_folios_are_stored_once(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct key k = random_key(5, 3), other_order = random_key(5, 2);
	enum swap_sealed how;
	swp_t a, b, c;

	(void)state;
	test_swap_on(s, t, 0);
	a = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_CACHED);
	b = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	assert_int_equal(a, b);
	c = test_store(s, &other_order, &how);
	assert_int_equal(how, SWAP_SEALED_CACHED);
	assert_int_equal(swap_writeout(s, 100), 12);
	/* On the device it is still found: that is how an unchanged folio keeps its old copy. */
	assert_int_equal(test_store(s, &k, &how), a);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	swap_put(s, a, 2);
	assert_int_equal(test_load_matches(s, b, &k), 0);
	swap_put(s, b, 1);
	swap_put(s, c, 1);
	/* Gone now, so it is new content again. */
	a = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_CACHED);
	swap_put(s, a, 1);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_check(s);
	swap_destroy(s);
}

static void test_entry_shared_while_filling_keeps_its_content(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct key k = random_key(9, 1);
	swp_t first = test_store(s, &k, NULL), e, out;
	void *mem;

	(void)state;
	assert_int_equal(swap_new(s, 1, &e, &mem), 0);
	swap_get(s, e, 2);
	assert_int_equal(test_load(s, e, buf), -EAGAIN);
	key_fill(&k, mem);
	assert_int_equal(swap_seal(s, e, &out), SWAP_SEALED_EQUAL);
	assert_int_equal(out, first);
	assert_int_equal(test_load_matches(s, e, &k), 0);
	swap_put(s, out, 2);
	assert_int_equal(test_load_matches(s, e, &k), 0);
	swap_check(s);
	swap_put(s, e, 2);
	swap_check(s);
	swap_destroy(s);
}

static void test_abandoned_entry_gives_an_error_to_others(void **state)
{
	struct swap *s = test_swap(MIB(4));
	swp_t e;
	void *mem;

	(void)state;
	assert_int_equal(swap_new(s, 2, &e, &mem), 0);
	swap_get(s, e, 1);
	swap_abandon(s, e);
	assert_int_equal(test_load(s, e, buf), -EIO);
	swap_check(s);
	swap_put(s, e, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_full_cache_says_so_and_its_memory_is_bounded(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1 << 14, 0, false);
	struct swap_usage u;
	swp_t e[1024], x;
	unsigned int n = 0;
	void *mem;

	(void)state;
	test_swap_on(s, t, 0);
	for (; n < 1024; n++) {
		struct key k = random_key(n, 0);

		e[n] = test_store(s, &k, NULL);
	}
	assert_int_equal(swap_new(s, 0, &x, &mem), -ENOBUFS);
	assert_int_equal(swap_writeout(s, 512), 512);
	swap_usage(s, &u);
	/* Half is left; of what came free at most a quarter of the cache stays warm. */
	assert_true(u.cached_bytes <= MIB(2) + MIB(1));
	/* Warm memory of one order makes room for another. */
	assert_int_equal(swap_new(s, MAX_ORDER, &x, &mem), 0);
	swap_abandon(s, x);
	assert_int_equal(swap_writeout(s, UINT32_MAX), 512);
	swap_usage(s, &u);
	assert_true(u.cached_bytes <= MIB(1));
	while (n--)
		swap_put(s, e[n], 1);
	swap_check(s);
	swap_destroy(s);
}

/* Memory that the kernel really has behind the buffers. */
static uint64_t resident_bytes(struct swap *s)
{
	static unsigned char vec[1024];
	uint64_t pages = 0;

	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct buf_region *r = &s->cache.regions[o];
		size_t bytes = (size_t)r->nr * (PAGE_SIZE << o);

		assert_int_equal(mincore(r->mem, bytes, vec), 0);
		for (size_t i = 0; i < bytes / PAGE_SIZE; i++)
			pages += vec[i] & 1;
	}
	return pages * PAGE_SIZE;
}

static void test_figure_of_the_cache_covers_the_memory_behind_it(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1 << 14, 0, false);
	struct swap_usage u;
	struct rng r;
	swp_t e[2000];
	unsigned int n = 0;

	(void)state;
	test_swap_on(s, t, 0);
	rng_init(&r, 11);
	for (int i = 0; i < 600; i++) {
		struct key k = random_key(n, (unsigned int)rng_below(&r, 7));

		swap_usage(s, &u);
		if (u.cached_bytes > MIB(3))
			assert_true(swap_writeout(s, rng_below(&r, 700)) >= 0);
		e[n] = test_store(s, &k, NULL);
		n++;
		if (i % 3 == 0)
			swap_put(s, e[--n], 1);
		swap_usage(s, &u);
		assert_true(resident_bytes(s) <= u.cached_bytes);
	}
	while (n--)
		swap_put(s, e[n], 1);
	assert_true(resident_bytes(s) <= MIB(1));
	swap_check(s);
	swap_destroy(s);
}

static void test_oldest_leaves_first_but_a_loaded_one_gets_a_second_chance(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct key k[3];
	swp_t e[3];

	(void)state;
	test_swap_on(s, t, 0);
	for (unsigned int i = 0; i < 3; i++) {
		k[i] = random_key(i, 0);
		e[i] = test_store(s, &k[i], NULL);
	}
	assert_int_equal(test_load_matches(s, e[0], &k[0]), 0);
	assert_int_equal(swap_writeout(s, 1), 1);
	assert_int_equal(test_kind(s, e[0]), ENTRY_CACHED);
	assert_int_equal(test_kind(s, e[1]), ENTRY_DEVICE);
	assert_int_equal(swap_writeout(s, 2), 2);
	assert_int_equal(test_kind(s, e[0]), ENTRY_DEVICE);
	/* Where all were loaded, one must still leave. */
	for (unsigned int i = 0; i < 3; i++) {
		swap_put(s, e[i], 1);
		e[i] = test_store(s, &k[i], NULL);
		assert_int_equal(test_load_matches(s, e[i], &k[i]), 0);
	}
	assert_int_equal(swap_writeout(s, 1), 1);
	for (unsigned int i = 0; i < 3; i++)
		swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_higher_priority_fills_first_and_equals_take_turns(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *c = tdev_create(4096, 0, false), *a = tdev_create(2048, 0, false),
		    *b = tdev_create(2048, 0, false);
	swp_t e[5000];
	uint32_t n = 0, in_a, in_b;

	(void)state;
	test_swap_on(s, c, 0);
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 10);
	for (int i = 0; i < 3; i++, n += 1000) {
		store_and_write(s, e + n, 1000, 0, n);
		in_a = tdev_nr_present(a);
		in_b = tdev_nr_present(b);
		assert_int_equal(in_a + in_b, n + 1000);
		assert_true(in_a <= in_b + 512 && in_b <= in_a + 512);
		assert_int_equal(tdev_nr_present(c), 0);
	}
	store_and_write(s, e + n, 1000, 0, n);
	n += 1000;
	assert_int_equal(tdev_nr_present(c), 0);
	store_and_write(s, e + n, 1000, 0, n);
	n += 1000;
	assert_int_equal(tdev_nr_present(a) + tdev_nr_present(b), 2 * 2047);
	assert_int_equal(tdev_nr_present(c), 5000 - 2 * 2047);
	while (n--)
		swap_put(s, e[n], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_incompressible_goes_to_the_next_device(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *z = tdev_create(1024, DEV_IN_MEMORY, false), *f = tdev_create(100, 0, false);
	swp_t e[200];

	(void)state;
	z->write_e2big = 1000;
	test_swap_on(s, z, 100);
	test_swap_on(s, f, 10);
	store_and_write(s, e, 99, 0, 0);
	assert_int_equal(tdev_nr_present(f), 99);
	assert_int_equal(tdev_nr_present(z), 0);
	/* When the other one is full it is stored poorly compressed rather than not at all. */
	store_and_write(s, e + 99, 50, 0, 1000);
	assert_int_equal(tdev_nr_present(z), 50);
	assert_int_equal(z->nr_last, 50);
	for (int i = 0; i < 149; i++)
		swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_only_device_is_asked_once_for_incompressible(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *z = tdev_create(1024, DEV_IN_MEMORY, false);
	swp_t e[10];

	(void)state;
	z->write_e2big = 1000;
	test_swap_on(s, z, 100);
	store_and_write(s, e, 10, 0, 0);
	assert_int_equal(z->nr_writes, 10);
	for (int i = 0; i < 10; i++)
		swap_put(s, e[i], 1);
	swap_destroy(s);
}

static void test_full_device_is_used_again_when_something_is_freed(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct swap_dev_info info;
	struct key k = random_key(77, 0);
	swp_t e[10], x;

	(void)state;
	test_swap_on(s, t, 0);
	store_and_write(s, e, 10, 0, 0);
	t->write_enospc = 1000;
	x = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 1), -ENOSPC);
	assert_int_equal(test_kind(s, x), ENTRY_CACHED);
	swap_dev_info(s, 0, &info);
	assert_true(info.full);
	assert_int_equal(swap_free_pages(s), 0);
	t->write_enospc = 0;
	assert_int_equal(swap_writeout(s, 1), -ENOSPC);
	swap_put(s, e[0], 1);
	assert_int_equal(swap_writeout(s, 1), 1);
	assert_int_equal(test_load_matches(s, x, &k), 0);
	for (int i = 1; i < 10; i++)
		swap_put(s, e[i], 1);
	swap_put(s, x, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_device_that_fails_writes_is_given_up_but_still_read(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false), *spare = tdev_create(1024, 0, false);
	struct key k = random_key(3, 0);
	swp_t x, e[20];

	(void)state;
	test_swap_on(s, t, 5);
	test_swap_on(s, spare, 1);
	x = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 1), 1);
	t->write_eio = 1000;
	for (unsigned int i = 0; i < 20; i++)
		store_and_write(s, e + i, 1, 0, 100 + i);
	assert_int_equal(t->nr_writes, 1 + MAX_WRITE_ERRORS);
	assert_int_equal(tdev_nr_present(spare), 20);
	assert_int_equal(tdev_nr_present(t), 1);
	assert_int_equal(test_load_matches(s, x, &k), 0);
	for (int i = 0; i < 20; i++)
		swap_put(s, e[i], 1);
	swap_put(s, x, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_wrong_content_is_an_error_and_never_shared_again(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct key k = random_key(3, 2);
	enum swap_sealed how;
	uint64_t corrupt = vmstat_get(VMSTAT_swap_corrupt);
	swp_t e, f;

	(void)state;
	test_swap_on(s, t, 0);
	t->corrupt = 1000;
	e = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 4), 4);
	assert_int_equal(test_load(s, e, buf), -EBADMSG);
	assert_int_equal(test_load(s, e, buf), -EBADMSG);
	assert_int_equal(vmstat_get(VMSTAT_swap_corrupt), corrupt + 2);
	f = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_CACHED);
	assert_int_not_equal(e, f);
	assert_int_equal(test_load_matches(s, f, &k), 0);
	t->corrupt = 0;
	assert_int_equal(swap_writeout(s, 4), 4);
	t->read_eio = 1000;
	assert_int_equal(test_load(s, f, buf), -EIO);
	t->read_eio = 0;
	assert_int_equal(test_load_matches(s, f, &k), 0);
	swap_put(s, e, 1);
	swap_put(s, f, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_neighbours_on_a_disk_are_written_at_once(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(1024, 0, true), *b = tdev_create(1024, 0, true);
	uint64_t out = vmstat_get(VMSTAT_pswpout);
	swp_t e[64];

	(void)state;
	test_swap_on(s, a, 5);
	test_swap_on(s, b, 1);
	store_and_write(s, e, 64, 0, 1);
	assert_int_equal(a->nr_writes, 1);
	assert_int_equal(vmstat_get(VMSTAT_pswpout), out + 64);
	for (unsigned int i = 0; i < 64; i++) {
		struct key k = random_key(1 + i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	/* One that fails goes to the next device as a whole, and is one error. */
	a->write_eio = 1000;
	store_and_write(s, e, 64, 0, 100);
	assert_int_equal(a->nr_writes, 2);
	assert_int_equal(s->devs[0].write_errors, 1);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(tdev_nr_present(b), 64);
	for (unsigned int i = 0; i < 64; i++) {
		struct key k = random_key(100 + i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	swap_check(s);
	assert_int_equal(tdev_nr_present(b), 0);
	swap_destroy(s);
}

static void test_kept_copy_only_on_a_disk_with_room(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *disk = tdev_create(1024, 0, false);
	swp_t e[600];

	(void)state;
	test_swap_on(s, disk, 5);
	store_and_write(s, e, 500, 0, 0);
	assert_true(swap_keep_copy(s, e[0]));
	store_and_write(s, e + 500, 100, 0, 1000);
	assert_false(swap_keep_copy(s, e[0]));
	for (int i = 0; i < 600; i++)
		swap_put(s, e[i], 1);
	swap_destroy(s);
}

static void test_device_grows_when_it_runs_out_of_slots(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create_growing(1, 4096, 64);
	struct swap_dev_info info;
	swp_t e[1100];

	(void)state;
	test_swap_on(s, t, 0);
	assert_int_equal(swap_free_pages(s), 4095);
	assert_true(swap_order_ok(s, MAX_ORDER));
	store_and_write(s, e, 1000, 0, 0);
	swap_dev_info(s, 0, &info);
	assert_true(info.size_bytes >= 1000 * PAGE_SIZE && info.size_bytes < 1200 * PAGE_SIZE);
	assert_int_equal(info.used_bytes, 1000 * PAGE_SIZE);
	store_and_write(s, e + 1000, 2, MAX_ORDER, 5000);
	swap_check(s);
	for (int i = 0; i < 1002; i++)
		swap_put(s, e[i], 1);
	swap_dev_info(s, 0, &info);
	assert_int_equal(info.used_bytes, 0);
	assert_true(info.peak_bytes == 2024 * PAGE_SIZE);
	swap_check(s);
	swap_destroy(s);
}

struct loader {
	struct us_thread thread;
	struct swap *s;
	swp_t e;
	const struct key *key;
	int result;
};

static void load_in_thread(void *arg)
{
	struct loader *l = arg;

	l->result = test_load_matches(l->s, l->e, l->key);
}

/* On the small stack that threads of the supervisor have. */
static int load_on_small_stack(struct swap *s, swp_t e, const struct key *k)
{
	struct loader l = {.s = s, .e = e, .key = k};

	assert_int_equal(us_thread_start(&l.thread, "loader", -1, load_in_thread, &l), 0);
	us_thread_join(&l.thread);
	return l.result;
}

static void check_split_on_crowded_device(bool async)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(2048, 0, async);
	struct key big = random_key(9000, MAX_ORDER), mid = random_key(9001, 3);
	uint64_t fallback = atomic_load(&order_stats[MAX_ORDER].swpout_fallback);
	struct swap_usage u;
	swp_t e[2047], x, y;
	enum swap_sealed how;

	test_swap_on(s, t, 0);
	for (unsigned int i = 0; i < 2047; i += 89)
		store_and_write(s, e + i, 89, 0, i);
	assert_false(swap_order_ok(s, 0));
	for (unsigned int i = 0; i < 2047; i += 3)
		swap_put(s, e[i], 1);
	assert_false(swap_order_ok(s, 1));
	x = test_store(s, &big, NULL);
	y = test_store(s, &mid, NULL);
	assert_int_equal(swap_writeout(s, 520), 520);
	assert_int_equal(test_kind(s, x), ENTRY_SPLIT);
	assert_int_equal(atomic_load(&order_stats[MAX_ORDER].swpout_fallback), fallback + 1);
	swap_check(s);
	swap_usage(s, &u);
	assert_int_equal(u.nr_entries, 2047 - 683 + 2);
	assert_int_equal(u.swapped_pages, 2047 - 683 + 520);
	assert_false(swap_keep_copy(s, x));
	assert_int_equal(load_on_small_stack(s, x, &big), 0);
	assert_int_equal(test_load_matches(s, y, &mid), 0);
	assert_int_equal(test_store(s, &big, &how), x);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	t->read_eio = 20;
	assert_int_equal(test_load(s, x, buf), -EIO);
	t->read_eio = 0;
	swap_put(s, x, 2);
	swap_put(s, y, 1);
	swap_check(s);
	assert_int_equal(tdev_nr_present(t), 2047 - 683);
	/* Where even single pages do not fit, it stays in the cache, whole. */
	x = test_store(s, &big, NULL);
	assert_int_equal(swap_writeout(s, 512), 512);
	big.seed++;
	y = test_store(s, &big, NULL);
	assert_int_equal(swap_writeout(s, 512), -ENOSPC);
	assert_int_equal(test_kind(s, y), ENTRY_CACHED);
	assert_int_equal(test_load_matches(s, y, &big), 0);
	swap_check(s);
	swap_put(s, x, 1);
	swap_put(s, y, 1);
	for (unsigned int i = 0; i < 2047; i++)
		if (i % 3)
			swap_put(s, e[i], 1);
	swap_check(s);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_destroy(s);
}

static void test_folio_without_a_run_is_stored_in_pieces(void **state)
{
	(void)state;
	check_split_on_crowded_device(false);
	check_split_on_crowded_device(true);
}

static void test_lost_entry_keeps_its_references(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct swap_usage u;
	swp_t e;
	void *mem;

	(void)state;
	assert_int_equal(swap_new(s, 2, &e, &mem), 0);
	swap_mark_lost(s, e);
	swap_get(s, e, 4);
	swap_put(s, e, 1);
	assert_int_equal(test_load(s, e, buf), -EIO);
	swap_check(s);
	swap_put(s, e, 4);
	swap_usage(s, &u);
	assert_int_equal(u.nr_entries, 0);
	swap_check(s);
	swap_destroy(s);
}

/* ---- in flight ---- */

struct writer {
	struct us_thread thread;
	struct swap *s;
	int64_t left;
};

static void write_all(void *arg)
{
	struct writer *w = arg;

	w->left = swap_writeout(w->s, 1000);
}

static void wait_until_busy(struct tdev *t)
{
	bool empty = true;

	while (empty) {
		us_mutex_lock(&t->lock);
		empty = list_empty(&t->queue);
		us_mutex_unlock(&t->lock);
		clock_sleep_ns(100 * NSEC_PER_USEC);
	}
}

static void test_folio_is_loadable_shared_and_freed_during_its_write(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, true);
	struct key k[3];
	struct writer w = {.s = s};
	enum swap_sealed how;
	swp_t e[3];

	(void)state;
	test_swap_on(s, t, 0);
	for (unsigned int i = 0; i < 3; i++) {
		k[i] = random_key(i, 1);
		e[i] = test_store(s, &k[i], NULL);
	}
	tdev_hold(t, true);
	assert_int_equal(us_thread_start(&w.thread, "writer", -1, write_all, &w), 0);
	wait_until_busy(t);
	assert_int_equal(test_load_matches(s, e[0], &k[0]), 0);
	assert_int_equal(test_store(s, &k[1], &how), e[1]);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	swap_put(s, e[1], 1);
	swap_put(s, e[2], 1); /* its last one: the write goes on, then everything is freed */
	tdev_hold(t, false);
	us_thread_join(&w.thread);
	assert_int_equal(w.left, 6);
	assert_int_equal(tdev_nr_present(t), 4);
	swap_check(s);
	assert_int_equal(test_load_matches(s, e[0], &k[0]), 0);
	assert_int_equal(test_load_matches(s, e[1], &k[1]), 0);
	swap_put(s, e[0], 1);
	swap_put(s, e[1], 1);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_check(s);
	swap_destroy(s);
}

static void test_buffer_outlives_the_write_while_a_load_copies(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct key k = random_key(4, 2);
	swp_t e = test_store(s, &k, NULL);
	uint32_t id = entry_of(&s->table, e)->slot;
	struct buf *b = &s->cache.bufs[id];

	(void)state;
	test_swap_on(s, t, 0);
	/* As swap_load() does before it copies. */
	entry_lock(&s->table, e);
	b->pins++;
	entry_unlock(&s->table, e);
	assert_int_equal(swap_writeout(s, 4), 4);
	assert_int_equal(test_kind(s, e), ENTRY_DEVICE);
	assert_int_equal(b->state, BUF_BUSY);
	assert_int_equal(b->flags & BUF_ORPHAN, BUF_ORPHAN);
	assert_true(key_matches(&k, cache_mem(&s->cache, id, 2)));
	b->pins = 0;
	cache_free(&s->cache, id, 2);
	swap_put(s, e, 1);
	swap_check(s);
	swap_destroy(s);
}

static void load_done(struct swap_load *l)
{
	atomic_store((atomic_int *)l->priv, 1);
}

static void test_slots_outlive_the_last_reference_during_a_load(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, true);
	struct key k = random_key(1, 3);
	atomic_int done = 0;
	struct swap_load l = {.buf = buf, .done = load_done, .priv = &done};

	(void)state;
	test_swap_on(s, t, 0);
	l.entry = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 8), 8);
	assert_false(swap_load_is_fast(s, l.entry));
	tdev_hold(t, true);
	swap_load(s, &l);
	swap_put(s, l.entry, 1);
	assert_int_equal(tdev_nr_present(t), 8);
	tdev_hold(t, false);
	while (!atomic_load(&done))
		clock_sleep_ns(10 * NSEC_PER_USEC);
	assert_int_equal(l.result, 0);
	assert_true(key_matches(&k, buf));
	while (tdev_nr_present(t))
		clock_sleep_ns(10 * NSEC_PER_USEC);
	swap_destroy(s);
}

static void test_text_names_kind_device_and_slot(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	char text[100], want[400];
	swp_t e;

	(void)state;
	test_swap_on(s, t, 0);
	store_and_write(s, &e, 1, 4, 1);
	snprintf(want, sizeof(want), "entry %u: DEVICE %s slot 512 order 4 refs 1", e, t->d.name);
	assert_string_equal(swap_entry_to_text(s, e, text, sizeof(text)), want);
	swap_put(s, e, 1);
	assert_string_equal(swap_entry_to_text(s, 0, text, sizeof(text)), "entry 0: none");
	swap_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_filled_folio_stores_nothing),
		cmocka_unit_test(test_one_odd_word_is_not_same_filled),
		cmocka_unit_test(test_equal_folios_are_stored_once),
		cmocka_unit_test(test_entry_shared_while_filling_keeps_its_content),
		cmocka_unit_test(test_abandoned_entry_gives_an_error_to_others),
		cmocka_unit_test(test_full_cache_says_so_and_its_memory_is_bounded),
		cmocka_unit_test(test_figure_of_the_cache_covers_the_memory_behind_it),
		cmocka_unit_test(test_oldest_leaves_first_but_a_loaded_one_gets_a_second_chance),
		cmocka_unit_test(test_higher_priority_fills_first_and_equals_take_turns),
		cmocka_unit_test(test_incompressible_goes_to_the_next_device),
		cmocka_unit_test(test_only_device_is_asked_once_for_incompressible),
		cmocka_unit_test(test_full_device_is_used_again_when_something_is_freed),
		cmocka_unit_test(test_device_that_fails_writes_is_given_up_but_still_read),
		cmocka_unit_test(test_wrong_content_is_an_error_and_never_shared_again),
		cmocka_unit_test(test_neighbours_on_a_disk_are_written_at_once),
		cmocka_unit_test(test_kept_copy_only_on_a_disk_with_room),
		cmocka_unit_test(test_device_grows_when_it_runs_out_of_slots),
		cmocka_unit_test(test_folio_without_a_run_is_stored_in_pieces),
		cmocka_unit_test(test_lost_entry_keeps_its_references),
		cmocka_unit_test(test_folio_is_loadable_shared_and_freed_during_its_write),
		cmocka_unit_test(test_buffer_outlives_the_write_while_a_load_copies),
		cmocka_unit_test(test_slots_outlive_the_last_reference_during_a_load),
		cmocka_unit_test(test_text_names_kind_device_and_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
