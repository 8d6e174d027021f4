/* SPDX-License-Identifier: MIT */
/*
 * Large folios on devices that have room, but not in one piece. The test device aborts on a slot
 * that is read when it holds nothing, or written or freed while something is in flight there.
 */
#include "swap/relocate.h"
#include "swap/worker.h"
#include "test_swap_util.h"

#define SLOTS 2048u
#define SINGLES (SLOTS - 1)

/* The device full of single pages, of which every step-th is gone: no run is left. */
static void fill_with_holes(struct swap *s, swp_t *e, unsigned int step)
{
	for (unsigned int i = 0; i < SINGLES; i += 89)
		test_store_written(s, e + i, 89, 0, i);
	for (unsigned int i = 0; i < SINGLES; i += step) {
		swap_put(s, e[i], 1);
		e[i] = 0;
	}
}

static void check_and_drop_singles(struct swap *s, swp_t *e)
{
	for (unsigned int i = 0; i < SINGLES; i++) {
		struct key k = test_key(i, 0);

		if (!e[i])
			continue;
		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
}

static uint64_t fallbacks(unsigned int order)
{
	return atomic_load(&order_stats[order].swpout_fallback);
}

static void memory_makes_runs(unsigned int order, bool copy)
{
	struct swap *s = test_swap(MIB(16));
	struct tdev *t = tdev_create(SLOTS, DEV_IN_MEMORY, false);
	uint64_t fallback = fallbacks(order), moved = vmstat_get(VMSTAT_swap_relocated);
	unsigned int n = (SLOTS / 4) >> order;
	swp_t e[SINGLES], f[SLOTS];

	if (copy)
		tdev_can_copy(t);
	test_swap_on(s, t, 0);
	fill_with_holes(s, e, 3);
	assert_true(order == MAX_ORDER || swap_order_ok(s, order));
	for (unsigned int i = 0; i < n; i++)
		test_store_written(s, f + i, 1, order, 100000 + i);
	assert_int_equal(fallbacks(order), fallback);
	moved = vmstat_get(VMSTAT_swap_relocated) - moved;
	assert_true(moved > 0 && moved <= (uint64_t)n * 2 << order);
	assert_int_equal(t->nr_copies > 0, copy);
	swap_check(s);
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(100000 + i, order);

		assert_int_equal(test_kind(s, f[i]), ENTRY_DEVICE);
		assert_int_equal(test_load_matches(s, f[i], &k), 0);
		swap_put(s, f[i], 1);
	}
	check_and_drop_singles(s, e);
	swap_check(s);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_destroy(s);
}

static void test_in_memory_each_folio_finds_a_run(void **state)
{
	(void)state;
	for (unsigned int order = 1; order <= MAX_ORDER; order++) {
		memory_makes_runs(order, false);
		memory_makes_runs(order, true);
	}
}

static void test_on_a_disk_the_next_folios_find_runs(void **state)
{
	struct swap *s = test_swap(MIB(16));
	struct tdev *t = tdev_create(SLOTS, 0, true);
	uint64_t fallback = fallbacks(4), moved = vmstat_get(VMSTAT_swap_relocated);
	swp_t e[SINGLES], f[20];
	unsigned int whole = 0;

	(void)state;
	test_swap_on(s, t, 0);
	fill_with_holes(s, e, 3);
	for (unsigned int i = 0; i < 20; i++) {
		test_store_written(s, f + i, 1, 4, 100000 + i);
		worker_settle(s);
		whole += test_kind(s, f[i]) == ENTRY_DEVICE;
	}
	assert_int_equal(test_kind(s, f[0]), ENTRY_SPLIT);
	assert_int_equal(whole, 19);
	assert_int_equal(fallbacks(4), fallback + 1);
	/* A page moved for each that was written, at most, and some ahead. */
	moved = vmstat_get(VMSTAT_swap_relocated) - moved;
	assert_true(moved > 0 && moved <= 20 * 16);
	swap_check(s);
	for (unsigned int i = 0; i < 20; i++) {
		struct key k = test_key(100000 + i, 4);

		assert_int_equal(test_load_matches(s, f[i], &k), 0);
		swap_put(s, f[i], 1);
	}
	check_and_drop_singles(s, e);
	swap_check(s);
	swap_destroy(s);
}

static uint64_t run_until_no_more(struct swap *s, uint32_t *held, unsigned int *n)
{
	uint64_t moved = vmstat_get(VMSTAT_swap_relocated);

	for (int i = 0; i < 300; i++) {
		relocate_ask(s, 0, 5);
		worker_settle(s);
		held[*n] = relocate_take_ready(&s->devs[0], 5);
		*n += held[*n] != 0;
	}
	return vmstat_get(VMSTAT_swap_relocated) - moved;
}

static void test_background_work_is_bounded_by_what_is_written(void **state)
{
	enum { MANY = 30000, AHEAD = 4096 };
	struct swap *s = test_swap(MIB(4));
	static swp_t e[MANY];
	static uint32_t held[1000];
	unsigned int n = 0;
	uint64_t moved;

	(void)state;
	test_swap_on(s, tdev_create(MANY + 1, 0, false), 0);
	for (unsigned int i = 0; i < MANY; i += 100)
		test_store_written(s, e + i, 100, 0, i);
	for (unsigned int i = 0; i < MANY; i += 3) {
		swap_put(s, e[i], 1);
		e[i] = 0;
	}
	/* Asked for again and again, while nothing is written. */
	moved = run_until_no_more(s, held, &n);
	assert_true(moved >= AHEAD && moved < AHEAD + 32);
	assert_int_equal(run_until_no_more(s, held, &n), 0);
	relocate_note_written(&s->devs[0], 300);
	moved = run_until_no_more(s, held, &n);
	assert_true(moved > 200 && moved < 300 + 32);
	(void)relocate_drop_ready(&s->devs[0]);
	while (n)
		clusters_free(&s->devs[0].clusters, held[--n], 5);
	for (unsigned int i = 0; i < MANY; i++)
		if (e[i])
			swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_nobody_asks_nothing_moves(void **state)
{
	struct swap *s = test_swap(MIB(4));
	uint64_t moved = vmstat_get(VMSTAT_swap_relocated);
	swp_t e[SINGLES];

	(void)state;
	test_swap_on(s, tdev_create(SLOTS, 0, false), 0);
	fill_with_holes(s, e, 3);
	worker_wake(s);
	worker_settle(s);
	assert_int_equal(vmstat_get(VMSTAT_swap_relocated), moved);
	check_and_drop_singles(s, e);
	swap_destroy(s);
}

/* What is held ready is given up before a single page finds the device full. */
static void test_ready_runs_are_no_lost_room(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *t = tdev_create(SLOTS, 0, false);
	swp_t e[SINGLES], f, g[SINGLES];
	unsigned int n = 0;

	(void)state;
	test_swap_on(s, t, 0);
	fill_with_holes(s, e, 3);
	test_store_written(s, &f, 1, 4, 100000);
	worker_settle(s);
	assert_true(relocate_ready_slots(&s->devs[0]) > 0);
	swap_check(s);
	n = (unsigned int)swap_free_pages(s);
	assert_int_equal(n, SINGLES / 3 + 1 - 16);
	for (unsigned int i = 0; i < n; i++)
		test_store_written(s, g + i, 1, 0, 200000 + i);
	assert_int_equal(tdev_nr_present(t), SINGLES);
	assert_int_equal(relocate_ready_slots(&s->devs[0]), 0);
	for (unsigned int i = 0; i < n; i++)
		swap_put(s, g[i], 1);
	swap_put(s, f, 1);
	check_and_drop_singles(s, e);
	swap_check(s);
	swap_destroy(s);
}

static void test_disabled_device_gives_no_runs(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct swap_dev *sd = &s->devs[0];
	uint32_t used, peak, usable;
	swp_t e[SINGLES], f;

	(void)state;
	test_swap_on(s, tdev_create(SLOTS, 0, false), 0);
	fill_with_holes(s, e, 3);
	test_store_written(s, &f, 1, 4, 100000);
	worker_settle(s);
	clusters_disable(&sd->clusters);
	assert_true(relocate_drop_ready(sd));
	relocate_ask(s, 0, 4);
	worker_settle(s);
	assert_int_equal(relocate_ready_slots(sd), 0);
	swap_put(s, f, 1);
	check_and_drop_singles(s, e);
	clusters_usage(&sd->clusters, &used, &peak, &usable);
	assert_int_equal(used, 0);
	clusters_enable(&sd->clusters);
	swap_check(s);
	swap_destroy(s);
}

/* With a folio's worth of free slots there is nowhere to move to: it is not tried each time. */
static void test_gives_up_quickly_where_it_is_full(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *t = tdev_create(SLOTS, DEV_IN_MEMORY, false);
	uint64_t failed = vmstat_get(VMSTAT_swap_relocate_fail), moved;
	swp_t e[SINGLES], f[8];

	(void)state;
	test_swap_on(s, t, 0);
	test_swap_on(s, tdev_create(4096, 0, false), -1);
	for (unsigned int i = 0; i < SINGLES; i += 89)
		test_store_written(s, e + i, 89, 0, i);
	for (unsigned int i = 0; i < 30; i += 2) {
		swap_put(s, e[i * 40], 1);
		e[i * 40] = 0;
	}
	moved = vmstat_get(VMSTAT_swap_relocated);
	test_store_written(s, f, 8, 4, 100000);
	assert_int_equal(vmstat_get(VMSTAT_swap_relocated), moved);
	assert_true(vmstat_get(VMSTAT_swap_relocate_fail) - failed <= 1);
	for (int i = 0; i < 8; i++)
		swap_put(s, f[i], 1);
	check_and_drop_singles(s, e);
	swap_check(s);
	swap_destroy(s);
}

/* Pieces move one by one and the folio stays what it is. */
static void pieces_move(bool copy)
{
	struct swap *s = test_swap(MIB(16));
	struct tdev *t = tdev_create(SLOTS, DEV_IN_MEMORY, false);
	struct swap_dev *sd = &s->devs[0];
	swp_t e[SINGLES], split[10], f[8];

	if (copy)
		tdev_can_copy(t);
	test_swap_on(s, t, 0);
	fill_with_holes(s, e, 2);
	for (unsigned int o = 0; o <= MAX_ORDER; o++)
		atomic_store(&sd->relocate.again_at[o], atomic_load(&sd->freed) + 100000);
	test_store_written(s, split, 10, 6, 300000);
	assert_int_equal(test_kind(s, split[3]), ENTRY_SPLIT);
	/* Only their pieces are left, at random places. */
	for (unsigned int i = 0; i < SINGLES; i++) {
		if (e[i])
			swap_put(s, e[i], 1);
		e[i] = 0;
	}
	for (unsigned int o = 0; o <= MAX_ORDER; o++)
		atomic_store(&sd->relocate.again_at[o], 0);
	{
		uint32_t used, peak, usable, slot, n = 0;

		clusters_usage(&sd->clusters, &used, &peak, &usable);
		assert_int_equal(used, 640);
		while (n < 8 && (slot = clusters_alloc(&sd->clusters, 7)))
			f[n++] = slot;
		while (n < 8 && (slot = relocate_now(s, 0, 7)))
			f[n++] = slot;
		assert_int_equal(n, 8);
		for (unsigned int i = 0; i < n; i++)
			clusters_free(&sd->clusters, f[i], 7);
	}
	swap_check(s);
	for (unsigned int i = 0; i < 10; i++) {
		struct key k = test_key(300000 + i, 6);

		assert_int_equal(test_kind(s, split[i]), ENTRY_SPLIT);
		assert_int_equal(test_load_matches(s, split[i], &k), 0);
		swap_put(s, split[i], 1);
	}
	swap_check(s);
	assert_int_equal(tdev_nr_present(t), 0);
	swap_destroy(s);
}

static void test_pieces_of_a_split_folio_move_alone(void **state)
{
	uint64_t moved = vmstat_get(VMSTAT_swap_relocated);

	(void)state;
	pieces_move(false);
	pieces_move(true);
	assert_true(vmstat_get(VMSTAT_swap_relocated) > moved);
}

static void test_what_cannot_be_moved_stays_where_it_is(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct swap *s = test_swap(MIB(16));
		struct tdev *t = tdev_create(SLOTS, DEV_IN_MEMORY, false);
		swp_t e[SINGLES], f[10];

		if (how < 2)
			tdev_can_copy(t);
		test_swap_on(s, t, 0);
		fill_with_holes(s, e, 3);
		t->write_enomem = how % 2 ? 0 : 500;
		t->write_eio = how == 1 ? 300 : 0;
		t->read_eio = how == 3 ? 300 : 0;
		for (unsigned int i = 0; i < 10; i++) {
			struct key k = test_key(100000 + i, 3);

			f[i] = test_store(s, &k, NULL);
			(void)swap_writeout(s, 8);
		}
		t->write_enomem = t->write_eio = t->read_eio = 0;
		swap_check(s);
		for (unsigned int i = 0; i < 10; i++) {
			struct key k = test_key(100000 + i, 3);

			assert_int_equal(test_load_matches(s, f[i], &k), 0);
			swap_put(s, f[i], 1);
		}
		check_and_drop_singles(s, e);
		swap_check(s);
		assert_int_equal(tdev_nr_present(t), 0);
		swap_destroy(s);
	}
}

static void test_cached_slots_make_room_before_a_write_fails(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *t = tdev_create(1024, 0, false);
	uint64_t counted = vmstat_get(VMSTAT_swap_slot_reclaimed);
	swp_t e[500], f[1023];

	(void)state;
	test_swap_on(s, t, 0);
	test_store_written(s, e, 500, 0, 0);
	for (int i = 0; i < 500; i++)
		assert_true(swap_keep(s, e[i], 1));
	for (unsigned int i = 0; i < 1023; i++)
		test_store_written(s, f + i, 1, 0, 10000 + i);
	assert_int_equal(vmstat_get(VMSTAT_swap_slot_reclaimed), counted + 500);
	assert_int_equal(tdev_nr_present(t), 1023);
	swap_check(s);
	for (int i = 0; i < 500; i++)
		swap_put_kept(s, e[i], 1);
	for (unsigned int i = 0; i < 1023; i++) {
		struct key k = test_key(10000 + i, 0);

		assert_int_equal(test_load_matches(s, f[i], &k), 0);
		swap_put(s, f[i], 1);
	}
	swap_check(s);
	swap_destroy(s);
}

/* ---- discard and bad slots, as the device says ---- */

static _Atomic unsigned int nr_discards, nr_discarded;
static atomic_bool discard_fails;

static int note_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct tdev *t = container_of(d, struct tdev, d);

	us_mutex_lock(&t->lock);
	for (uint32_t i = slot; i < slot + nr && i < d->nr_slots; i++)
		assert_true(!t->present[i] && !t->reading[i] && !t->writing[i]);
	us_mutex_unlock(&t->lock);
	atomic_fetch_add(&nr_discards, 1);
	atomic_fetch_add(&nr_discarded, nr);
	return atomic_load(&discard_fails) ? -EIO : 0;
}

static void test_emptied_clusters_are_discarded_in_the_background(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *t = tdev_create(4096, 0, false);
	uint64_t done = vmstat_get(VMSTAT_swap_discard), failed;
	swp_t e[1500];

	(void)state;
	t->ops.discard = note_discard;
	t->d.discard_pages = true;
	test_swap_on(s, t, 0);
	for (int round = 0; round < 2; round++) {
		failed = vmstat_get(VMSTAT_swap_discard_fail);
		atomic_store(&discard_fails, round == 1);
		for (unsigned int i = 0; i < 1500; i += 100)
			test_store_written(s, e + i, 100, 0, i);
		for (int i = 0; i < 1500; i++)
			swap_put(s, e[i], 1);
		worker_settle(s);
		assert_int_equal(atomic_load(&s->devs[0].clusters.nr_discard), 0);
		if (round == 0)
			assert_true(vmstat_get(VMSTAT_swap_discard) >= done + 1024);
		else
			assert_true(vmstat_get(VMSTAT_swap_discard_fail) >= failed + 2);
		swap_check(s);
	}
	assert_int_equal(swap_free_pages(s), 4095);
	swap_destroy(s);
}

static void test_bad_slots_are_never_written(void **state)
{
	static const uint32_t bad[] = {1, 77, 600, 5000};
	struct swap *s = test_swap(MIB(4));
	struct tdev *t = tdev_create(1024, 0, false);
	swp_t e[1020];

	(void)state;
	t->d.bad_slots = bad;
	t->d.nr_bad_slots = 4;
	test_swap_on(s, t, 0);
	for (unsigned int i = 0; i < 1020; i += 60)
		test_store_written(s, e + i, 60, 0, i);
	for (int i = 0; i < 3; i++)
		assert_false(t->present[bad[i]]);
	assert_int_equal(tdev_nr_present(t), 1020);
	for (int i = 0; i < 1020; i++)
		swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

/* ---- threads ---- */

#define RACE_FOLIOS 200
#define RACE_BUSY 1u

struct race {
	struct swap *s;
	_Atomic uint32_t e[RACE_FOLIOS]; /* a reference is the table's; 0: none */
	_Atomic uint8_t version[RACE_FOLIOS];
	struct us_mutex lock[RACE_FOLIOS];
	atomic_bool stop;
	_Atomic unsigned int nr_loads, nr_stored, nr_kept;
};

LOCK_CLASS(race_class, "test_race", RANK_SPACE);

static unsigned int race_order(uint32_t i)
{
	static const unsigned int orders[] = {0, 0, 0, 1, 0, 2, 0, 4};

	return orders[i % 8];
}

static struct key race_key(uint32_t i, unsigned int version)
{
	return test_key((uint64_t)version << 32 | i << 8, race_order(i));
}

/* Loads without the lock, with a reference of its own; replaces and drops under it. */
static void using(void *arg)
{
	struct race *r = arg;
	char *mem = aligned_alloc(4096, PAGE_SIZE << 4);
	struct rng rng;

	rng_init(&rng, (uint64_t)(uintptr_t)mem);
	while (!atomic_load(&r->stop)) {
		uint32_t i = (uint32_t)rng_below(&rng, RACE_FOLIOS);
		struct key k;
		void *fill;
		swp_t e, o;

		us_mutex_lock(&r->lock[i]);
		e = atomic_load(&r->e[i]);
		if (!e && swap_new(r->s, race_order(i), 0, &e, &fill) == 0) {
			uint8_t v = (uint8_t)(atomic_load(&r->version[i]) + 1);

			atomic_store(&r->version[i], v);
			k = race_key(i, v);
			key_fill(&k, fill);
			(void)swap_seal(r->s, e, &o);
			atomic_store(&r->e[i], o);
			atomic_fetch_add(&r->nr_stored, 1);
			us_mutex_unlock(&r->lock[i]);
			continue;
		}
		if (!e || rng_below(&rng, 4) == 0) {
			if (e)
				swap_put(r->s, e, 1);
			atomic_store(&r->e[i], 0);
			us_mutex_unlock(&r->lock[i]);
			continue;
		}
		k = race_key(i, atomic_load(&r->version[i]));
		swap_get(r->s, e, 1);
		us_mutex_unlock(&r->lock[i]);
		assert_int_equal(test_load(r->s, e, mem), 0);
		assert_true(key_matches(&k, mem));
		atomic_fetch_add(&r->nr_loads, 1);
		if (rng_below(&rng, 2) && swap_keep(r->s, e, 1)) {
			atomic_fetch_add(&r->nr_kept, 1);
			swap_put_kept(r->s, e, 1);
		} else {
			swap_put(r->s, e, 1);
		}
	}
	free(mem);
}

static void writing(void *arg)
{
	struct race *r = arg;

	while (!atomic_load(&r->stop))
		if (swap_writeout(r->s, 256) <= 0)
			clock_sleep_ns(50 * NSEC_PER_USEC);
}

static bool claim(void *host, uint32_t owner)
{
	struct race *r = host;

	return entry_try_get(entry_of(&r->s->table, owner));
}

/* As swapoff does, but the device stays on: what is on one of them goes to another. */
static void draining(void *arg)
{
	struct race *r = arg;
	struct mover *m = malloc(sizeof(*m));
	struct move_result res = {0};
	uint32_t cursor = 0;
	swp_t e[16];

	assert_int_equal(mover_init(m, r->s), 0);
	for (unsigned int from = 0; !atomic_load(&r->stop);) {
		struct move_request req = {.from = from, .to = MOVE_ANYWHERE, .pieces = true};
		unsigned int n = clusters_collect(&r->s->devs[from].clusters, &cursor, claim, r, e,
						  16);

		if (n)
			mover_move(m, &req, e, n, &res);
		else
			cursor = 0, from ^= 1;
		clock_sleep_ns(200 * NSEC_PER_USEC);
	}
	mover_deinit(m);
	free(m);
}

static void race(unsigned int flags, bool async, bool copy)
{
	static struct race r;
	uint64_t moved = vmstat_get(VMSTAT_swap_relocated);
	struct tdev *a = tdev_create(260, flags, async), *b = tdev_create(230, flags, false);
	struct us_thread t[4] = {0};

	memset(&r, 0, sizeof(r));
	r.s = test_swap(MIB(4));
	if (copy) {
		tdev_can_copy(a);
		tdev_can_copy(b);
		a->write_enomem = 20;
	}
	test_swap_on(r.s, a, 10);
	test_swap_on(r.s, b, 10);
	for (int i = 0; i < RACE_FOLIOS; i++)
		us_mutex_init(&r.lock[i], &race_class);
	for (int i = 0; i < 4; i++)
		assert_int_equal(us_thread_start(&t[i], "race", -1,
						 i < 2 ? using : i < 3 ? writing : draining, &r),
				 0);
	clock_sleep_ns(800 * 1000 * NSEC_PER_USEC);
	atomic_store(&r.stop, true);
	for (int i = 0; i < 4; i++)
		us_thread_join(&t[i]);
	assert_true(atomic_load(&r.nr_loads) > 50);
	assert_true(atomic_load(&r.nr_stored) > 50);
	assert_true(vmstat_get(VMSTAT_swap_relocated) > moved);
	for (uint32_t i = 0; i < RACE_FOLIOS; i++) {
		struct key k = race_key(i, atomic_load(&r.version[i]));
		swp_t e = atomic_load(&r.e[i]);

		us_mutex_deinit(&r.lock[i]);
		if (!e)
			continue;
		assert_int_equal(test_load_matches(r.s, e, &k), 0);
		swap_put(r.s, e, 1);
	}
	swap_check(r.s);
	assert_int_equal(tdev_nr_present(a) + tdev_nr_present(b), 0);
	swap_destroy(r.s);
}

static void test_relocation_races_with_users_and_a_drain(void **state)
{
	(void)state;
	race(DEV_IN_MEMORY, false, false);
	race(DEV_IN_MEMORY, false, true);
	race(0, true, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_memory_each_folio_finds_a_run),
		cmocka_unit_test(test_on_a_disk_the_next_folios_find_runs),
		cmocka_unit_test(test_background_work_is_bounded_by_what_is_written),
		cmocka_unit_test(test_nobody_asks_nothing_moves),
		cmocka_unit_test(test_ready_runs_are_no_lost_room),
		cmocka_unit_test(test_disabled_device_gives_no_runs),
		cmocka_unit_test(test_gives_up_quickly_where_it_is_full),
		cmocka_unit_test(test_pieces_of_a_split_folio_move_alone),
		cmocka_unit_test(test_what_cannot_be_moved_stays_where_it_is),
		cmocka_unit_test(test_cached_slots_make_room_before_a_write_fails),
		cmocka_unit_test(test_emptied_clusters_are_discarded_in_the_background),
		cmocka_unit_test(test_bad_slots_are_never_written),
		cmocka_unit_test(test_relocation_races_with_users_and_a_drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
