/* SPDX-License-Identifier: MIT */
/* What the calls of swap.h promise, one by one. */
#include "test_swap_util.h"

#include <sys/mman.h>

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

static void test_same_filled_folio_stores_nothing(void **state)
{
	struct swap *s = test_swap(MIB(4));
	enum swap_sealed how;
	struct swap_usage u;

	(void)state;
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct key zero = {CONTENT_ZERO, o, 0};
		struct key same = {CONTENT_SAME, o, 0x1234567890abcdefull};
		swp_t a = test_store(s, &zero, &how);
		swp_t b;

		assert_int_equal(how, SWAP_SEALED_FILLED);
		b = test_store(s, &same, &how);
		assert_int_equal(how, SWAP_SEALED_FILLED);
		assert_true(swap_load_is_fast(s, b));
		assert_false(swap_keep(s, b, 1));
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

		assert_int_equal(swap_new(s, 0, 0, &e, (void **)&mem), 0);
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
	struct key k = test_key(5, 3), other_order = test_key(5, 2);
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
	struct key k = test_key(9, 1);
	swp_t first = test_store(s, &k, NULL), e, out;
	void *mem;

	(void)state;
	assert_int_equal(swap_new(s, 1, 0, &e, &mem), 0);
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
	assert_int_equal(swap_new(s, 2, 0, &e, &mem), 0);
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
		struct key k = test_key(n, 0);

		e[n] = test_store(s, &k, NULL);
	}
	assert_int_equal(swap_new(s, 0, 0, &x, &mem), -ENOBUFS);
	assert_int_equal(swap_writeout(s, 512), 512);
	swap_usage(s, &u);
	/* Half is left; of what came free at most a quarter of the cache stays warm. */
	assert_true(u.cached_bytes <= MIB(2) + MIB(1));
	/* Warm memory of one order makes room for another. */
	assert_int_equal(swap_new(s, MAX_ORDER, 0, &x, &mem), 0);
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
		struct key k = test_key(n, (unsigned int)rng_below(&r, 7));

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
		k[i] = test_key(i, 0);
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

static void test_lost_entry_keeps_its_references(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct swap_usage u;
	swp_t e;
	void *mem;

	(void)state;
	assert_int_equal(swap_new(s, 2, 0, &e, &mem), 0);
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
		k[i] = test_key(i, 1);
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
	swap_check(s); /* waits for the references of the loads */
	assert_int_equal(tdev_nr_present(t), 0);
	swap_destroy(s);
}

static void test_buffer_outlives_the_write_while_a_load_copies(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	struct key k = test_key(4, 2);
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
	struct key k = test_key(1, 3);
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
	test_store_written(s, &e, 1, 4, 1);
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
		cmocka_unit_test(test_lost_entry_keeps_its_references),
		cmocka_unit_test(test_folio_is_loadable_shared_and_freed_during_its_write),
		cmocka_unit_test(test_buffer_outlives_the_write_while_a_load_copies),
		cmocka_unit_test(test_slots_outlive_the_last_reference_during_a_load),
		cmocka_unit_test(test_text_names_kind_device_and_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
