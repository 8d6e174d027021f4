/* SPDX-License-Identifier: MIT */
/* Folios that move between devices while others use them. The test device aborts on a slot that is
 * read when it holds nothing, or freed while it is being read. */
#include "swap/move.h"
#include "test_swap_util.h"

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

static struct mover *new_mover(struct swap *s)
{
	struct mover *m = malloc(sizeof(*m));

	assert_non_null(m);
	assert_int_equal(mover_init(m, s), 0);
	return m;
}

static void end_mover(struct mover *m)
{
	mover_deinit(m);
	free(m);
}

static void end(struct swap *s, struct mover *m)
{
	end_mover(m);
	test_end(s);
}

static struct move_result move(struct mover *m, unsigned int from, unsigned int to, bool lose,
			       const swp_t *e, unsigned int n)
{
	struct move_request req = {.from = from, .to = to, .lose_unreadable = lose, .pieces = true};
	struct move_result res = {0};

	for (unsigned int i = 0; i < n; i++)
		swap_get(m->swap, e[i], 1);
	mover_move(m, &req, e, n, &res);
	return res;
}

static void test_moves_to_another_device_with_content(void **state)
{
	struct tdev *a = tdev_create(4096, 0, false), *b = tdev_create(4096, 0, true);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct mover *m = new_mover(s);
	struct move_result r;
	swp_t e[64];

	(void)state;
	test_store_written(s, e, 60, 0, 0);
	test_store_written(s, e + 60, 4, 6, 1000);
	assert_int_equal(tdev_nr_present(a), 60 + 4 * 64);
	r = move(m, 0, MOVE_ANYWHERE, false, e, 64);
	assert_int_equal(r.moved, 64);
	assert_int_equal(r.moved_pages, 60 + 4 * 64);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(tdev_nr_present(b), 60 + 4 * 64);
	for (unsigned int i = 0; i < 64; i++) {
		struct key k = test_key(i < 60 ? i : 1000 + i - 60, i < 60 ? 0 : 6);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	end(s, m);
}

static void test_moves_within_a_device(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, false);
	struct mover *m = new_mover(s);
	struct move_result r;
	struct key k = test_key(7, 0);
	uint32_t before;
	swp_t e;

	(void)state;
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 10);
	test_store_written(s, &e, 1, 0, 7);
	before = entry_of(&s->table, e)->slot;
	r = move(m, entry_of(&s->table, e)->dev, entry_of(&s->table, e)->dev, false, &e, 1);
	assert_int_equal(r.moved, 1);
	assert_int_not_equal(entry_of(&s->table, e)->slot, before);
	assert_int_equal(test_load_matches(s, e, &k), 0);
	swap_put(s, e, 1);
	end(s, m);
}

static void test_without_room_stays(void **state)
{
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(9, 0, false);
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct mover *m = new_mover(s);
	struct move_result r;
	swp_t e[20];

	(void)state;
	test_store_written(s, e, 20, 0, 0);
	r = move(m, 0, MOVE_ANYWHERE, false, e, 20);
	assert_int_equal(r.moved, 8);
	assert_int_equal(r.no_room, 12);
	for (unsigned int i = 0; i < 20; i++) {
		struct key k = test_key(i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	end(s, m);
}

/* The target has room for single pages only; then a larger run of it comes free. */
static void test_folio_moves_into_pieces_and_back_into_one(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(512, 0, false);
	struct mover *m = new_mover(s);
	struct key k = test_key(500, 4);
	struct move_result r;
	swp_t e[511], f;

	(void)state;
	test_swap_on(s, b, 10);
	test_store_written(s, e, 511, 0, 0);
	for (unsigned int i = 0; i < 511; i += 2) {
		swap_put(s, e[i], 1);
		e[i] = 0;
	}
	test_swap_on(s, a, 20);
	test_store_written(s, &f, 1, 4, 500);
	assert_int_equal(test_kind(s, f), ENTRY_DEVICE);
	r = move(m, 1, MOVE_ANYWHERE, false, &f, 1);
	assert_int_equal(r.moved, 1);
	assert_int_equal(test_kind(s, f), ENTRY_SPLIT);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(test_load_matches(s, f, &k), 0);
	swap_check(s);
	r = move(m, 0, MOVE_ANYWHERE, false, &f, 1);
	assert_int_equal(r.moved, 1);
	assert_int_equal(test_kind(s, f), ENTRY_DEVICE);
	assert_int_equal(test_load_matches(s, f, &k), 0);
	swap_put(s, f, 1);
	for (unsigned int i = 0; i < 511; i++)
		if (e[i])
			swap_put(s, e[i], 1);
	end(s, m);
}

static void test_unreadable_is_lost_alone_or_stays(void **state)
{
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(512, 0, false);
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct mover *m = new_mover(s);
	struct move_result r;
	swp_t e[2];

	(void)state;
	test_store_written(s, e, 2, 0, 0);
	a->read_eio = 1000;
	r = move(m, 0, MOVE_ANYWHERE, false, e, 2);
	assert_int_equal(r.unreadable, 2);
	assert_int_equal(test_kind(s, e[0]), ENTRY_DEVICE);
	r = move(m, 0, MOVE_ANYWHERE, true, e, 1);
	assert_int_equal(r.unreadable, 1);
	assert_int_equal(test_kind(s, e[0]), ENTRY_LOST);
	assert_int_equal(test_load(s, e[0], buf), -EIO);
	a->read_eio = 0;
	r = move(m, 0, MOVE_ANYWHERE, true, e, 2);
	assert_int_equal(r.moved, 1);
	assert_int_equal(r.gone, 1);
	assert_int_equal(tdev_nr_present(a), 0);
	swap_put(s, e[0], 1);
	swap_put(s, e[1], 1);
	end(s, m);
}

/* ---- threads ---- */

#define RACE_FOLIOS 96

struct race {
	struct swap *s;
	_Atomic swp_t e[RACE_FOLIOS]; /* index is the seed */
	unsigned int order[RACE_FOLIOS];
	atomic_bool stop;
	_Atomic unsigned int nr_loads, nr_moved;
};

static void loader(void *arg)
{
	struct race *r = arg;
	char *mem = aligned_alloc(4096, MAX_FOLIO_BYTES);
	struct rng rng;

	rng_init(&rng, 3);
	while (!atomic_load(&r->stop)) {
		uint32_t i = (uint32_t)rng_below(&rng, RACE_FOLIOS);
		struct key k = test_key(i, r->order[i]);

		assert_int_equal(test_load(r->s, atomic_load(&r->e[i]), mem), 0);
		assert_true(key_matches(&k, mem));
		atomic_fetch_add(&r->nr_loads, 1);
	}
	free(mem);
}

static void moving(void *arg)
{
	struct race *r = arg;
	struct mover *m = new_mover(r->s);
	struct rng rng;

	rng_init(&rng, (uint64_t)(uintptr_t)m);
	while (!atomic_load(&r->stop)) {
		unsigned int from = (unsigned int)rng_below(&rng, 3);
		unsigned int to = (unsigned int)rng_below(&rng, 4);
		swp_t some[8];

		for (int i = 0; i < 8; i++)
			some[i] = atomic_load(&r->e[rng_below(&rng, RACE_FOLIOS)]);
		atomic_fetch_add(&r->nr_moved,
				 move(m, from, to < 3 ? to : MOVE_ANYWHERE, false, some, 8).moved);
	}
	end_mover(m);
}

static void test_loads_and_two_movers_race(void **state)
{
	static struct race r;
	struct us_thread t[4] = {0};

	(void)state;
	r.s = test_swap(MIB(16));
	test_swap_on(r.s, tdev_create(2048, 0, true), 10);
	test_swap_on(r.s, tdev_create(1500, 0, false), 10);
	test_swap_on(r.s, tdev_create(1200, DEV_IN_MEMORY, false), 10);
	for (unsigned int i = 0; i < RACE_FOLIOS; i++) {
		swp_t e;

		r.order[i] = i % 3 ? 0 : 4;
		test_store_written(r.s, &e, 1, r.order[i], i);
		atomic_store(&r.e[i], e);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(us_thread_start(&t[i], "race", -1, i < 2 ? loader : moving, &r),
				 0);
	clock_sleep_ns(700 * 1000 * NSEC_PER_USEC);
	atomic_store(&r.stop, true);
	for (int i = 0; i < 4; i++)
		us_thread_join(&t[i]);
	assert_true(atomic_load(&r.nr_loads) > 20);
	assert_true(atomic_load(&r.nr_moved) > 20);
	for (unsigned int i = 0; i < RACE_FOLIOS; i++)
		swap_put(r.s, atomic_load(&r.e[i]), 1);
	swap_check(r.s);
	swap_destroy(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves_to_another_device_with_content),
		cmocka_unit_test(test_moves_within_a_device),
		cmocka_unit_test(test_without_room_stays),
		cmocka_unit_test(test_folio_moves_into_pieces_and_back_into_one),
		cmocka_unit_test(test_unreadable_is_lost_alone_or_stays),
		cmocka_unit_test(test_loads_and_two_movers_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
