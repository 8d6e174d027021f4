/* SPDX-License-Identifier: MIT */
/* Kept references: what only resident pages still name can be given up, and nothing else can. */
#include "swap/move.h"
#include "test_swap_util.h"

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

static uint32_t kept_of(struct swap *s, swp_t e)
{
	return atomic_load(&entry_of(&s->table, e)->kept);
}

static void test_kept_only_on_a_disk_with_room(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *disk = tdev_create(1024, 0, false), *mem;
	swp_t e[600];

	(void)state;
	test_swap_on(s, disk, 5);
	test_store_written(s, e, 500, 0, 0);
	assert_true(swap_keep(s, e[0], 1));
	assert_int_equal(kept_of(s, e[0]), 1);
	swap_check(s);
	test_store_written(s, e + 500, 50, 0, 1000);
	assert_false(swap_keep(s, e[1], 1));
	assert_int_equal(kept_of(s, e[1]), 0);
	mem = tdev_create(1024, DEV_IN_MEMORY, false);
	test_swap_on(s, mem, 10);
	test_store_written(s, e + 550, 50, 0, 2000);
	assert_false(swap_keep(s, e[599], 1));
	swap_put_kept(s, e[0], 1);
	for (int i = 1; i < 600; i++)
		swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_count_never_passes_its_width(void **state)
{
	struct swap *s = test_swap(MIB(4));
	uint32_t nr = 0;
	swp_t e;

	(void)state;
	test_swap_on(s, tdev_create(4096, 0, false), 5);
	test_store_written(s, &e, 1, 0, 1);
	assert_true(swap_keep(s, e, 1));
	for (nr = 1; swap_get_kept(s, e, 512); nr += 512)
		assert_true(nr < UINT16_MAX);
	assert_int_equal(kept_of(s, e), nr);
	assert_true(nr + 512 > UINT16_MAX);
	swap_get(s, e, 512);
	assert_false(swap_keep(s, e, 512));
	assert_int_equal(kept_of(s, e), nr);
	swap_check(s);
	swap_put(s, e, 512);
	assert_true(swap_reclaim_kept(s, e, 0));
	swap_put_kept(s, e, nr);
	swap_check(s);
	swap_destroy(s);
}

static void test_reclaimed_slots_are_free_and_content_is_not_found(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(4096, 0, false);
	uint64_t counted = vmstat_get(VMSTAT_swap_slot_reclaimed);
	struct key k = test_key(3, 4);
	enum swap_sealed how;
	struct swap_usage u;
	swp_t e, f;

	(void)state;
	test_swap_on(s, t, 5);
	test_store_written(s, &e, 1, 4, 3);
	swap_get(s, e, 15);
	assert_true(swap_keep(s, e, 16));
	assert_true(swap_reclaim_kept(s, e, 0));
	assert_int_equal(test_kind(s, e), ENTRY_GONE);
	assert_int_equal(tdev_nr_present(t), 0);
	assert_int_equal(vmstat_get(VMSTAT_swap_slot_reclaimed), counted + 16);
	swap_usage(s, &u);
	assert_int_equal(u.swapped_pages, 0);
	swap_check(s);
	assert_false(swap_reclaim_kept(s, e, 0));
	assert_false(swap_get_kept(s, e, 1));
	f = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_CACHED);
	assert_int_not_equal(f, e);
	assert_int_equal(test_load_matches(s, f, &k), 0);
	swap_put_kept(s, e, 6);
	swap_check(s);
	swap_put_kept(s, e, 10);
	swap_put(s, f, 1);
	swap_usage(s, &u);
	assert_int_equal(u.nr_entries, 0);
	swap_check(s);
	swap_destroy(s);
}

static void test_who_has_a_plain_reference_keeps_the_content(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct key k = test_key(3, 2);
	enum swap_sealed how;
	swp_t e;

	(void)state;
	test_swap_on(s, tdev_create(4096, 0, false), 5);
	test_store_written(s, &e, 1, 2, 3);
	assert_false(swap_reclaim_kept(s, e, 0));
	swap_get(s, e, 4);
	assert_true(swap_keep(s, e, 4));
	assert_false(swap_reclaim_kept(s, e, 0));
	assert_true(swap_keep(s, e, 1));
	/* A page of the same content is evicted: it finds the copy. */
	assert_int_equal(test_store(s, &k, &how), e);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	assert_false(swap_reclaim_kept(s, e, 0));
	assert_int_equal(test_load_matches(s, e, &k), 0);
	/* Unless it is the caller's own. */
	assert_true(swap_reclaim_kept(s, e, 1));
	assert_int_equal(test_load(s, e, buf), -EIO);
	swap_put(s, e, 1);
	swap_put_kept(s, e, 5);
	swap_check(s);
	swap_destroy(s);
}

static void note_done(struct swap_load *l)
{
	atomic_store((atomic_int *)l->priv, 1);
}

static void test_load_in_flight_keeps_the_content(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(4096, 0, true);
	atomic_int done = 0;
	struct key k = test_key(3, 0);
	struct swap_load l = {.buf = buf, .done = note_done, .priv = &done};
	swp_t e;

	(void)state;
	test_swap_on(s, t, 5);
	test_store_written(s, &e, 1, 0, 3);
	l.entry = e;
	tdev_hold(t, true);
	swap_load(s, &l);
	/* Another fill made the page resident meanwhile. */
	assert_true(swap_keep(s, e, 1));
	assert_false(swap_reclaim_kept(s, e, 0));
	assert_int_equal(atomic_load(&done), 0);
	tdev_hold(t, false);
	wait_for_loads(s);
	assert_int_equal(l.result, 0);
	assert_true(key_matches(&k, buf));
	assert_true(swap_reclaim_kept(s, e, 0));
	swap_put_kept(s, e, 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_reclaim_by_slot_leaves_other_entries_alone(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct entry *p;
	swp_t e[2];

	(void)state;
	test_swap_on(s, tdev_create(4096, 0, false), 5);
	test_store_written(s, e, 2, 1, 3);
	p = entry_of(&s->table, e[0]);
	swap_get(s, e[0], 1);
	assert_true(swap_keep(s, e[0], 2));
	assert_false(entry_reclaim_kept(s, e[0], 0, p->dev, p->slot + 2));
	assert_false(entry_reclaim_kept(s, e[0], 0, p->dev + 1u, p->slot));
	assert_true(entry_maybe_cached(s, e[0]));
	assert_false(entry_maybe_cached(s, e[1]));
	assert_false(entry_reclaim_kept(s, e[1], 0, p->dev, entry_of(&s->table, e[1])->slot));
	assert_true(entry_reclaim_kept(s, e[0], 0, p->dev, p->slot + 1));
	swap_put_kept(s, e[0], 2);
	swap_put(s, e[1], 1);
	/* Of a number that is free. */
	assert_false(entry_reclaim_kept(s, e[0], 0, 0, 2));
	swap_check(s);
	swap_destroy(s);
}

/* It was kept while it was whole; then it was moved to where only single pages are free. */
static void test_folio_in_pieces_is_given_up_whole(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(512, 0, false);
	struct move_request req = {.from = 1, .to = MOVE_ANYWHERE, .pieces = true};
	struct mover *m = malloc(sizeof(*m));
	struct move_result res = {0};
	swp_t e[511], f;

	(void)state;
	assert_int_equal(mover_init(m, s), 0);
	test_swap_on(s, b, 10);
	test_store_written(s, e, 511, 0, 0);
	for (unsigned int i = 0; i < 511; i += 2) {
		swap_put(s, e[i], 1);
		e[i] = 0;
	}
	test_swap_on(s, a, 20);
	test_store_written(s, &f, 1, 4, 7000);
	swap_get(s, f, 15);
	assert_true(swap_keep(s, f, 16));
	swap_get(s, f, 1);
	mover_move(m, &req, &f, 1, &res);
	assert_int_equal(test_kind(s, f), ENTRY_SPLIT);
	assert_int_equal(kept_of(s, f), 16);
	assert_true(swap_reclaim_kept(s, f, 0));
	assert_int_equal(test_kind(s, f), ENTRY_GONE);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(tdev_nr_present(b), 255);
	swap_put_kept(s, f, 16);
	for (unsigned int i = 0; i < 511; i++)
		if (e[i])
			swap_put(s, e[i], 1);
	swap_check(s);
	mover_deinit(m);
	free(m);
	swap_destroy(s);
}

/* ---- threads ---- */

#define PAGES 64

/*
 * Each thread plays the pages of a program: out (plain reference), back (load, compare, keep),
 * forgotten, forked, evicted again; another one reclaims whatever it can.
 */
struct race {
	struct swap *s;
	atomic_bool stop;
	_Atomic swp_t seen[PAGES]; /* numbers to try, perhaps stale */
	_Atomic unsigned int reclaimed, equal, loads;
};

static void program(void *arg)
{
	struct race *r = arg;
	char *mem = aligned_alloc(4096, PAGE_SIZE);
	struct rng rng;
	struct {
		swp_t e;
		uint32_t plain, kept;
	} page[PAGES] = {0};

	rng_init(&rng, (uint64_t)(uintptr_t)mem);
	while (!atomic_load(&r->stop)) {
		uint32_t i = (uint32_t)rng_below(&rng, PAGES);
		struct key k = test_key(i, 0);

		switch (rng_below(&rng, 6)) {
		case 0: /* evicted: stored, or found */
			if (!page[i].e) {
				enum swap_sealed how;

				page[i].e = test_store(r->s, &k, &how);
				page[i].plain = 1;
				atomic_store(&r->seen[i], page[i].e);
			} else if (!page[i].plain) {
				enum swap_sealed how;
				swp_t out = test_store(r->s, &k, &how);

				atomic_fetch_add(&r->equal, out == page[i].e);
				swap_put_kept(r->s, page[i].e, page[i].kept);
				page[i].e = out;
				page[i].kept = 0;
				page[i].plain = 1;
				atomic_store(&r->seen[i], page[i].e);
			}
			break;
		case 1:
		case 2: /* comes back */
			if (!page[i].plain)
				break;
			assert_int_equal(test_load(r->s, page[i].e, mem), 0);
			assert_true(key_matches(&k, mem));
			atomic_fetch_add(&r->loads, 1);
			if (swap_keep(r->s, page[i].e, page[i].plain)) {
				page[i].kept += page[i].plain;
				page[i].plain = 0;
			}
			break;
		case 3: /* fork */
			if (page[i].kept && page[i].kept < 100 &&
			    swap_get_kept(r->s, page[i].e, 3))
				page[i].kept += 3;
			break;
		case 4: /* the child ends */
			if (page[i].kept > 1) {
				swap_put_kept(r->s, page[i].e, page[i].kept - 1);
				page[i].kept = 1;
			}
			break;
		default:
			if (rng_below(&rng, 4) || !page[i].e)
				break;
			if (page[i].plain)
				swap_put(r->s, page[i].e, page[i].plain);
			if (page[i].kept)
				swap_put_kept(r->s, page[i].e, page[i].kept);
			page[i].e = page[i].plain = page[i].kept = 0;
		}
	}
	for (unsigned int i = 0; i < PAGES; i++) {
		if (page[i].plain)
			swap_put(r->s, page[i].e, page[i].plain);
		if (page[i].kept)
			swap_put_kept(r->s, page[i].e, page[i].kept);
	}
	free(mem);
}

static void reclaimer(void *arg)
{
	struct race *r = arg;
	struct rng rng;

	rng_init(&rng, 5);
	while (!atomic_load(&r->stop)) {
		swp_t e = atomic_load(&r->seen[rng_below(&rng, PAGES)]);

		if (e && entry_maybe_cached(r->s, e))
			atomic_fetch_add(&r->reclaimed,
					 entry_reclaim_kept(r->s, e, 0, 0, 0));
		if (rng_below(&rng, 8) == 0)
			(void)swap_writeout(r->s, 64);
	}
}

static void test_reclaim_races_with_programs(void **state)
{
	static struct race r;
	struct us_thread t[4] = {0};
	struct tdev *d = tdev_create(2048, 0, false);

	(void)state;
	r.s = test_swap(MIB(4));
	test_swap_on(r.s, d, 10);
	for (int i = 0; i < 4; i++)
		assert_int_equal(us_thread_start(&t[i], "race", -1, i < 2 ? program : reclaimer,
						 &r),
				 0);
	clock_sleep_ns(700 * 1000 * NSEC_PER_USEC);
	atomic_store(&r.stop, true);
	for (int i = 0; i < 4; i++)
		us_thread_join(&t[i]);
	assert_true(atomic_load(&r.reclaimed) > 20);
	assert_true(atomic_load(&r.equal) > 20);
	assert_true(atomic_load(&r.loads) > 20);
	swap_check(r.s);
	assert_int_equal(tdev_nr_present(d), 0);
	swap_destroy(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_only_on_a_disk_with_room),
		cmocka_unit_test(test_count_never_passes_its_width),
		cmocka_unit_test(test_reclaimed_slots_are_free_and_content_is_not_found),
		cmocka_unit_test(test_who_has_a_plain_reference_keeps_the_content),
		cmocka_unit_test(test_load_in_flight_keeps_the_content),
		cmocka_unit_test(test_reclaim_by_slot_leaves_other_entries_alone),
		cmocka_unit_test(test_folio_in_pieces_is_given_up_whole),
		cmocka_unit_test(test_reclaim_races_with_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
