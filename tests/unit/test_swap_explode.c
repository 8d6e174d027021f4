/* SPDX-License-Identifier: MIT */
/* A folio on a device that is taken apart where it lies. */
#include "swap/move.h"
#include "test_swap_util.h"

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));
static char page[PAGE_SIZE] __attribute__((aligned(4096)));

#define WORDS (MAX_FOLIO_PAGES / 64)

static bool page_matches(struct swap *s, swp_t e, const char *folio, unsigned int i)
{
	assert_int_equal(test_load(s, e, page), 0);
	return memcmp(page, folio + (size_t)i * PAGE_SIZE, PAGE_SIZE) == 0;
}

static void take_apart(unsigned int order, unsigned int step, bool async)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *t = tdev_create(2048, 0, async);
	unsigned int nr = 1u << order, live = 0, same = 0;
	uint64_t want[WORDS] = {0};
	struct key k = test_key(order * 100 + step, order);
	swp_t e, out[MAX_FOLIO_PAGES];
	struct swap_usage u;

	test_swap_on(s, t, 5);
	test_store_written(s, &e, 1, order, k.seed);
	swap_get(s, e, nr - 1);
	assert_int_equal(test_load(s, e, buf), 0);
	wait_for_loads(s);
	for (unsigned int i = 0; i < nr; i += step, live++)
		want[i / 64] |= 1ull << (i % 64);
	assert_int_equal(swap_explode(s, e, nr, buf, want, out), 0);
	assert_int_equal(tdev_nr_present(t), live);
	swap_usage(s, &u);
	assert_int_equal(u.nr_entries, live);
	assert_int_equal(u.swapped_pages, live);
	swap_check(s);
	for (unsigned int i = 0; i < nr; i++) {
		assert_int_equal(out[i] != 0, i % step == 0);
		if (!out[i])
			continue;
		assert_int_equal(swap_order(s, out[i]), 0);
		assert_true(page_matches(s, out[i], buf, i));
	}
	/* They are found as equal content, and can be moved. */
	memcpy(page, buf, PAGE_SIZE);
	{
		enum swap_sealed how;
		swp_t n, f;
		void *mem;

		assert_int_equal(swap_new(s, 0, 0, &n, &mem), 0);
		memcpy(mem, page, PAGE_SIZE);
		how = swap_seal(s, n, &f);
		same = how == SWAP_SEALED_EQUAL && f == out[0];
		swap_put(s, f, 1);
	}
	assert_int_equal(same, 1);
	for (unsigned int i = 0; i < nr; i++)
		if (out[i])
			swap_put(s, out[i], 1);
	swap_check(s);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_destroy(s);
}

static void test_each_live_page_gets_an_entry(void **state)
{
	(void)state;
	for (unsigned int order = 1; order <= MAX_ORDER; order++) {
		take_apart(order, 1, false);
		take_apart(order, 2, order % 2);
		take_apart(order, 1u << order, false);
	}
}

static void test_refused_without_change(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct key k = test_key(1, 4), small = test_key(2, 0);
	uint64_t want[WORDS] = {0xffff};
	swp_t e, f, out[MAX_FOLIO_PAGES];

	(void)state;
	test_swap_on(s, tdev_create(2048, 0, false), 5);
	e = test_store(s, &k, NULL);
	key_fill(&k, buf);
	assert_int_equal(swap_explode(s, e, 1, buf, want, out), -EBUSY); /* in the cache */
	assert_int_equal(swap_writeout(s, 16), 16);
	swap_get(s, e, 15);
	assert_int_equal(swap_explode(s, e, 15, buf, want, out), -EBUSY); /* shared */
	assert_int_equal(test_store(s, &k, NULL), e);
	assert_int_equal(swap_explode(s, e, 16, buf, want, out), -EBUSY);
	swap_put(s, e, 1);
	assert_true(swap_keep(s, e, 1));
	assert_int_equal(swap_explode(s, e, 16, buf, want, out), -EBUSY); /* kept by a page */
	swap_put_kept(s, e, 1);
	test_store_written(s, &f, 1, 0, 2);
	assert_int_equal(swap_explode(s, f, 1, buf, want, out), -EINVAL);
	swap_check(s);
	assert_int_equal(test_load_matches(s, e, &k), 0);
	assert_int_equal(test_load_matches(s, f, &small), 0);
	assert_int_equal(test_store(s, &k, NULL), e);
	assert_int_equal(swap_explode(s, e, 16, buf, want, out), 0);
	for (int i = 0; i < 16; i++)
		swap_put(s, out[i], 1);
	swap_put(s, f, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_without_entries_left_nothing_changes(void **state)
{
	struct swap_config cfg = {.cache_bytes = MIB(4), .max_entries = 10};
	struct key k = test_key(1, 3);
	uint64_t want[WORDS] = {0xff};
	swp_t e, out[MAX_FOLIO_PAGES];
	struct swap *s;
	int err;

	(void)state;
	assert_int_equal(hash_init(), 0);
	s = swap_create(&cfg, &err);
	assert_non_null(s);
	test_swap_on(s, tdev_create(2048, 0, false), 5);
	test_store_written(s, &e, 1, 3, 1);
	key_fill(&k, buf);
	/* 9 in all, one taken: eight fit, nine do not. */
	{
		struct key other = test_key(2, 0);
		swp_t f = test_store(s, &other, NULL);

		assert_int_equal(swap_explode(s, e, 1, buf, want, out), -ENOMEM);
		swap_check(s);
		assert_int_equal(test_load_matches(s, e, &k), 0);
		swap_put(s, f, 1);
	}
	assert_int_equal(swap_explode(s, e, 1, buf, want, out), 0);
	for (int i = 0; i < 8; i++) {
		assert_true(page_matches(s, out[i], buf, (unsigned int)i));
		swap_put(s, out[i], 1);
	}
	swap_check(s);
	swap_destroy(s);
}

static void test_equal_pages_become_one_entry(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(2048, 0, false);
	uint64_t want[WORDS] = {0xf};
	swp_t e, out[MAX_FOLIO_PAGES], o;
	void *mem;

	(void)state;
	test_swap_on(s, t, 5);
	assert_int_equal(swap_new(s, 2, 0, &e, &mem), 0);
	for (int i = 0; i < 4; i++) {
		struct key k = test_key(i == 3 ? 1 : (uint64_t)i, 0);

		key_fill(&k, (char *)mem + i * (int)PAGE_SIZE);
	}
	memcpy(buf, mem, 4 * PAGE_SIZE);
	assert_int_equal(swap_seal(s, e, &o), SWAP_SEALED_CACHED);
	assert_int_equal(swap_writeout(s, 4), 4);
	assert_int_equal(swap_explode(s, e, 1, buf, want, out), 0);
	assert_int_equal(out[1], out[3]);
	assert_int_equal(tdev_nr_present(t), 3);
	swap_check(s);
	for (unsigned int i = 0; i < 4; i++)
		assert_true(page_matches(s, out[i], buf, i));
	for (int i = 0; i < 4; i++)
		swap_put(s, out[i], 1);
	swap_check(s);
	swap_destroy(s);
}

/* ---- threads ---- */

#define FOLIOS 24
#define ORDER 3u

struct race {
	struct swap *s;
	atomic_bool stop;
	_Atomic unsigned int apart, busy, moved;
};

static bool claim(void *host, uint32_t owner)
{
	struct race *r = host;

	return entry_try_get(entry_of(&r->s->table, owner));
}

/* Whatever has slots on device 0 is moved to other slots of it. */
static void moving(void *arg)
{
	struct race *r = arg;
	struct move_request req = {.from = 0, .to = 0, .pieces = true};
	struct mover *m = malloc(sizeof(*m));
	struct move_result res = {0};
	uint32_t cursor = 0;
	swp_t e[8];

	assert_int_equal(mover_init(m, r->s), 0);
	while (!atomic_load(&r->stop)) {
		unsigned int n = clusters_collect(&r->s->devs[0].clusters, &cursor, claim, r, e, 8);

		if (n)
			mover_move(m, &req, e, n, &res);
		else
			cursor = 0;
	}
	atomic_store(&r->moved, res.moved);
	mover_deinit(m);
	free(m);
}

static void taking_apart(void *arg)
{
	struct race *r = arg;
	char *mem = aligned_alloc(4096, PAGE_SIZE << ORDER), *one = aligned_alloc(4096, PAGE_SIZE);
	uint64_t round = (uint64_t)(uintptr_t)arg, want[WORDS] = {0x6d};
	swp_t out[MAX_FOLIO_PAGES];

	for (round = 1; !atomic_load(&r->stop); round++) {
		struct key k = test_key(round << 8, ORDER);
		swp_t e = test_store(r->s, &k, NULL);
		int err;

		(void)swap_writeout(r->s, 64);
		assert_int_equal(test_load(r->s, e, mem), 0);
		do {
			wait_for_loads(r->s);
			err = swap_explode(r->s, e, 1, mem, want, out);
			atomic_fetch_add(&r->busy, err == -EBUSY);
		} while (err == -EBUSY && !atomic_load(&r->stop));
		if (err) {
			swap_put(r->s, e, 1);
			break;
		}
		atomic_fetch_add(&r->apart, 1);
		for (unsigned int i = 0; i < 1u << ORDER; i++) {
			if (!out[i])
				continue;
			assert_int_equal(test_load(r->s, out[i], one), 0);
			assert_memory_equal(one, mem + i * PAGE_SIZE, PAGE_SIZE);
			swap_put(r->s, out[i], 1);
		}
	}
	free(mem);
	free(one);
}

static void test_taking_apart_races_with_a_mover(void **state)
{
	static struct race r;
	struct tdev *d = tdev_create(1024, 0, false);
	struct us_thread t[2] = {0};
	swp_t e[FOLIOS];

	(void)state;
	r.s = test_swap(MIB(4));
	test_swap_on(r.s, d, 10);
	test_store_written(r.s, e, FOLIOS, 2, 1ull << 40);
	assert_int_equal(us_thread_start(&t[0], "apart", -1, taking_apart, &r), 0);
	assert_int_equal(us_thread_start(&t[1], "move", -1, moving, &r), 0);
	clock_sleep_ns(500 * 1000 * NSEC_PER_USEC);
	atomic_store(&r.stop, true);
	us_thread_join(&t[0]);
	us_thread_join(&t[1]);
	assert_true(atomic_load(&r.apart) > 10);
	assert_true(atomic_load(&r.moved) > 10);
	for (int i = 0; i < FOLIOS; i++) {
		struct key k = test_key((1ull << 40) + (uint64_t)i, 2);

		assert_int_equal(test_load_matches(r.s, e[i], &k), 0);
		swap_put(r.s, e[i], 1);
	}
	swap_check(r.s);
	assert_int_equal(tdev_nr_present(d), 0);
	swap_destroy(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_live_page_gets_an_entry),
		cmocka_unit_test(test_refused_without_change),
		cmocka_unit_test(test_without_entries_left_nothing_changes),
		cmocka_unit_test(test_equal_pages_become_one_entry),
		cmocka_unit_test(test_taking_apart_races_with_a_mover),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
