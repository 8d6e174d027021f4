/* SPDX-License-Identifier: MIT */
/*
 * A device is taken away while its content is in use. The test device aborts on a slot that is read
 * when it holds nothing or freed while something is in flight, and is freed itself when it is out:
 * a use of it afterwards shows in the builds with sanitizers.
 */
#include "swap/relocate.h"
#include "swap/swapoff.h"
#include "test_swap_util.h"

static char mem[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

static int off(struct swap *s, struct tdev *t, struct swap_off_result *res)
{
	struct swap_off_request req = {.name = t->d.name};
	struct dev *gone;
	int err = swap_off(s, &req, res, &gone);

	if (!err) {
		assert_ptr_equal(gone, &t->d);
		assert_int_equal(tdev_nr_present(t), 0);
		dev_destroy(gone);
	}
	return err;
}

static struct swap_dev_info info_of(struct swap *s, const char *name)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(s, devs);

	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(devs[i].name, name))
			return devs[i];
	return (struct swap_dev_info){0};
}

static void test_moves_all_and_hands_the_device_back(void **state)
{
	struct tdev *a = tdev_create(4096, 0, true), *b = tdev_create(4096, 0, true);
	struct swap *s = test_swap_on_two(MIB(16), a, b);
	struct swap_off_result res;
	swp_t small[300], large[20];

	(void)state;
	test_store_written(s, small, 300, 0, 0);
	test_store_written(s, large, 20, 4, 1000);
	assert_int_equal(tdev_nr_present(a), 300 + 20 * 16);
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.used_pages, 620);
	assert_int_equal(res.moved_pages, 620);
	assert_int_equal(res.left_pages, 0);
	assert_int_equal(res.lost_pages, 0);
	assert_int_equal(tdev_nr_present(b), 620);
	swap_check(s);
	test_check_and_put(s, small, 300, 0, 0);
	test_check_and_put(s, large, 20, 4, 1000);
	assert_int_equal(tdev_nr_present(b), 0);
	swap_destroy(s);
}

static void test_the_number_is_used_again(void **state)
{
	struct tdev *a = tdev_create(64, 0, false), *b = tdev_create(4096, 0, false), *c;
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct swap_off_result res;
	swp_t e[8], f[8];

	(void)state;
	for (int i = 0; i < 100; i++) {
		test_store_written(s, e, 8, 0, 0);
		assert_int_equal(off(s, a, &res), 0);
		a = tdev_create(64, 0, false);
		test_swap_on(s, a, 10);
		test_check_and_put(s, e, 8, 0, 0);
	}
	assert_int_equal(swap_nr_devs(s), 2);
	/* Of higher and of lower priority than what is there: the order is kept. */
	c = tdev_create(64, 0, false);
	test_swap_on(s, c, 20);
	test_store_written(s, f, 8, 0, 50);
	assert_int_equal(tdev_nr_present(c), 8);
	assert_int_equal(off(s, c, &res), 0);
	assert_int_equal(tdev_nr_present(a), 8);
	test_check_and_put(s, f, 8, 0, 50);
	swap_destroy(s);
}

static void test_all_numbers_in_use_is_refused_and_leaves_nothing(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t[SWAP_MAX_DEVS], *more = tdev_create(64, 0, false);
	const struct swap_on_config five = {.prio = 5};
	struct swap_off_result res;

	(void)state;
	for (int i = 0; i < SWAP_MAX_DEVS; i++) {
		t[i] = tdev_create(64, 0, false);
		test_swap_on(s, t[i], i);
	}
	assert_int_equal(swap_on(s, &more->d, &five), -ENOSPC);
	assert_int_equal(off(s, t[7], &res), 0);
	assert_int_equal(swap_on(s, &more->d, &five), 0);
	test_end(s);
}

static void test_is_refused_with_numbers_where_there_is_no_room(void **state)
{
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(101, 0, false);
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct swap_off_result res;
	uint64_t writes;
	swp_t e[120];

	(void)state;
	test_store_written(s, e, 120, 0, 0);
	writes = b->nr_writes;
	assert_int_equal(off(s, a, &res), -ENOSPC);
	assert_int_equal(res.used_pages, 120);
	assert_int_equal(res.room_pages, 100);
	assert_int_equal(res.moved_pages, 0);
	assert_int_equal(b->nr_writes, writes);
	assert_false(info_of(s, a->d.name).draining);
	assert_int_equal(info_of(s, a->d.name).used_bytes, 120 * PAGE_SIZE);
	/* It takes pages in as before. */
	test_check_and_put(s, e, 120, 0, 0);
	test_store_written(s, e, 10, 0, 500);
	assert_int_equal(tdev_nr_present(a), 10);
	test_check_and_put(s, e, 10, 0, 500);
	swap_destroy(s);
}

static void test_the_last_device_goes_only_when_it_is_empty(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(512, 0, false);
	struct key k = test_key(3, 0);
	struct swap_off_result res;
	swp_t e;

	(void)state;
	test_swap_on(s, a, 10);
	test_store_written(s, &e, 1, 0, 3);
	assert_int_equal(off(s, a, &res), -ENOSPC);
	assert_int_equal(res.used_pages, 1);
	assert_int_equal(res.room_pages, 0);
	swap_put(s, e, 1);
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(swap_list_devs(s, (struct swap_dev_info[SWAP_MAX_DEVS]){0}), 0);
	e = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 1), -ENOSPC);
	assert_false(swap_first_in_memory(s));
	assert_int_equal(swap_free_pages(s), 0);
	test_swap_on(s, b, 0);
	assert_int_equal(swap_writeout(s, 1), 1);
	test_check_and_put(s, &e, 1, 0, 3);
	swap_destroy(s);
}

static void test_names_must_be_there_and_be_unique(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(64, 0, false), *b = tdev_create(64, 0, false);
	struct swap_off_request req = {.name = "nothing"};
	struct swap_off_result res;
	struct dev *gone;

	(void)state;
	test_swap_on(s, a, 0);
	test_swap_on(s, b, 0);
	assert_int_equal(swap_off(s, &req, &res, &gone), -ENOENT);
	req.name = "";
	assert_int_equal(swap_off(s, &req, &res, &gone), -ENOENT);
	memcpy(b->d.name, a->d.name, sizeof(b->d.name));
	assert_int_equal(off(s, a, &res), -ENOTUNIQ);
	swap_destroy(s);
}

/* ---- interrupted, or stopped by the others ---- */

struct script {
	struct tdev *release; /* held ios go on at the first report */
	unsigned int stop_at; /* report after which it is interrupted; 0: never */
	unsigned int reports;
	struct swap *s;
	const char *busy; /* is refused while it runs */
	struct swap_off_progress last;
	bool draining;
};

static bool on_progress(void *host, const struct swap_off_progress *p)
{
	struct script *sc = host;

	sc->last = *p;
	if (sc->busy) {
		struct swap_off_request req = {.name = sc->busy};
		struct swap_off_result res;
		struct dev *gone;

		assert_int_equal(swap_off(sc->s, &req, &res, &gone), -EBUSY);
		sc->draining = info_of(sc->s, sc->busy).draining;
	}
	if (sc->release)
		tdev_hold(sc->release, false);
	return ++sc->reports != sc->stop_at;
}

static void test_interrupted_the_device_stays_and_works(void **state)
{
	struct tdev *a = tdev_create(2048, 0, true), *b = tdev_create(2048, 0, false);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct script sc = {.release = a, .stop_at = 1, .s = s, .busy = a->d.name};
	struct swap_off_request req = {.name = a->d.name, .progress = on_progress, .host = &sc,
				       .threads = 1};
	struct swap_off_result res;
	struct dev *gone;
	swp_t e[500], f[10];

	(void)state;
	test_store_written(s, e, 500, 0, 0);
	tdev_hold(a, true);
	assert_int_equal(swap_off(s, &req, &res, &gone), -EINTR);
	assert_null(gone);
	assert_true(sc.draining);
	assert_int_equal(sc.last.done_pages + sc.last.left_pages, 500);
	/* The batch that was under way has ended, and one that began before the word to stop came. */
	assert_int_equal(res.moved_pages % 128, 0);
	assert_in_range(res.moved_pages, 128, 499);
	assert_int_equal(res.left_pages, 500 - res.moved_pages);
	assert_false(info_of(s, a->d.name).draining);
	swap_check(s);
	test_store_written(s, f, 10, 0, 1000);
	assert_int_equal(tdev_nr_present(a), 500 - res.moved_pages + 10);
	test_check_and_put(s, f, 10, 0, 1000);
	/* And a second attempt ends. */
	assert_int_equal(off(s, a, &res), 0);
	test_check_and_put(s, e, 500, 0, 0);
	swap_destroy(s);
}

static void test_room_that_turns_out_not_to_be_there(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *a = tdev_create(2048, 0, false);
	/* It says that it may grow to 2048 slots, and stops at 257. */
	struct tdev *b = tdev_create_growing(8, 2048, 16);
	struct swap_off_result res;
	swp_t e[500];

	(void)state;
	b->grow_limit = 257;
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 0);
	test_store_written(s, e, 500, 0, 0);
	assert_int_equal(off(s, a, &res), -ENOSPC);
	assert_int_equal(res.used_pages, 500);
	assert_true(res.room_pages > 500);
	assert_int_equal(res.moved_pages, 256);
	assert_int_equal(res.left_pages, 500 - 256);
	assert_false(info_of(s, a->d.name).draining);
	swap_check(s);
	test_check_and_put(s, e, 500, 0, 0);
	swap_destroy(s);
}

static void test_target_that_fails_now_and_then(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, true);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct swap_off_result res;
	swp_t e[200];

	(void)state;
	test_store_written(s, e, 200, 0, 0);
	b->write_enomem = 300;
	assert_int_equal(off(s, a, &res), 0);
	test_check_and_put(s, e, 200, 0, 0);
	swap_destroy(s);
}

static void test_target_that_fails_for_good(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, true);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct swap_off_result res;
	swp_t e[200];

	(void)state;
	test_store_written(s, e, 200, 0, 0);
	b->write_eio = 1000;
	assert_int_equal(off(s, a, &res), -ENOSPC);
	assert_int_equal(res.left_pages, 200);
	assert_int_equal(tdev_nr_present(a), 200);
	test_check_and_put(s, e, 200, 0, 0);
	swap_destroy(s);
}

/* ---- what cannot be read ---- */

static uint32_t slot_of(struct swap *s, swp_t e)
{
	return entry_of(&s->table, e)->slot;
}

static void test_unreadable_folio_is_lost_alone(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, false);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct swap_off_result res;
	swp_t e[100], f[4];

	(void)state;
	test_store_written(s, e, 100, 0, 0);
	test_store_written(s, f, 4, 3, 1000);
	a->bad_slot = slot_of(s, f[1]) + 5;
	a->bad_reads = UINT32_MAX;
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.lost_pages, 8);
	assert_int_equal(res.moved_pages, 100 + 3 * 8);
	assert_int_equal(test_kind(s, f[1]), ENTRY_LOST);
	assert_int_equal(test_load(s, f[1], mem), -EIO);
	swap_put(s, f[1], 1);
	test_check_and_put(s, e, 100, 0, 0);
	test_check_and_put(s, &f[0], 1, 3, 1000);
	test_check_and_put(s, &f[2], 2, 3, 1002);
	swap_destroy(s);
}

static void test_what_can_be_read_at_a_later_try_is_not_lost(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, false);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct swap_off_result res;
	swp_t e[10];

	(void)state;
	test_store_written(s, e, 10, 0, 0);
	a->bad_slot = slot_of(s, e[4]);
	a->bad_reads = 2;
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.lost_pages, 0);
	test_check_and_put(s, e, 10, 0, 0);
	swap_destroy(s);
}

/* Interrupted, or without room: nothing is given up that could perhaps be read later. */
static void test_nothing_is_lost_before_all_others_have_moved(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(1024, 0, false);
	struct swap *s = test_swap_on_two(MIB(8), a, b);
	struct swap_off_result res;
	swp_t e[50];

	(void)state;
	test_store_written(s, e, 50, 0, 0);
	a->bad_slot = slot_of(s, e[4]);
	a->bad_reads = UINT32_MAX;
	b->write_eio = 1000;
	assert_int_equal(off(s, a, &res), -ENOSPC);
	assert_int_equal(res.lost_pages, 0);
	a->bad_reads = 0;
	test_check_and_put(s, e, 50, 0, 0);
	swap_destroy(s);
}

/* ---- kinds of folios and of devices ---- */

/* Every other slot of b is free, so that a folio of several pages finds no run there. */
static void make_holes(struct swap *s, swp_t *e, unsigned int n)
{
	for (unsigned int i = 0; i < n; i += 2) {
		swap_put(s, e[i], 1);
		e[i] = 0;
	}
}

static void put_holes(struct swap *s, const swp_t *e, unsigned int n)
{
	for (unsigned int i = 1; i < n; i += 2)
		swap_put(s, e[i], 1);
}

struct pieces {
	struct swap *s;
	struct tdev *a, *b;
	swp_t ea[63], eb[511], f;
	struct key k;
};

/* f is in single pages, 32 on a and 32 on b; there is room for it whole on a third device. */
static void make_pieces(struct pieces *p)
{
	p->s = test_swap(MIB(16));
	p->a = tdev_create(64, 0, false);
	p->b = tdev_create(512, 0, false);
	p->k = test_key(5000, 6);
	test_swap_on(p->s, p->a, 10);
	test_store_written(p->s, p->ea, 63, 0, 0);
	make_holes(p->s, p->ea, 63);
	test_swap_on(p->s, p->b, 0);
	test_store_written(p->s, p->eb, 511 - 32, 0, 1000); /* 32 on a */
	for (unsigned int i = 0; i < 32; i++)
		swap_put(p->s, p->eb[i], 1);
	test_store_written(p->s, p->eb, 32, 0, 3000); /* on a again */
	test_store_written(p->s, p->eb + 479, 32, 0, 4000); /* now b is full */
	for (unsigned int i = 0; i < 511; i++)
		if (entry_of(&p->s->table, p->eb[i])->slot % 2) {
			swap_put(p->s, p->eb[i], 1);
			p->eb[i] = 0;
		}
	p->f = test_store(p->s, &p->k, NULL);
	assert_int_equal(swap_writeout(p->s, 64), 64);
	assert_int_equal(test_kind(p->s, p->f), ENTRY_SPLIT);
	test_swap_on(p->s, tdev_create(4096, 0, false), -1);
}

/* A piece of f that is on t. */
static swp_t piece_on(struct pieces *p, struct tdev *t)
{
	swp_t e = slot_of(p->s, p->f);

	while (e && p->s->devs[entry_of(&p->s->table, e)->dev].dev != &t->d)
		e = entry_of(&p->s->table, e)->chain;
	assert_true(e);
	return e;
}

static void end_pieces(struct pieces *p)
{
	swap_put(p->s, p->f, 1);
	put_holes(p->s, p->ea, 63);
	for (unsigned int i = 0; i < 511; i++)
		if (p->eb[i])
			swap_put(p->s, p->eb[i], 1);
	swap_check(p->s);
	swap_destroy(p->s);
}

static void test_folio_in_pieces_on_two_devices(void **state)
{
	static struct pieces p;
	struct swap_off_result res;

	(void)state;
	make_pieces(&p);
	(void)piece_on(&p, p.a);
	(void)piece_on(&p, p.b);
	/* b, the best that is left, has room, but no run: it goes no lower, and stays in pieces. */
	assert_int_equal(off(p.s, p.a, &res), 0);
	assert_int_equal(test_kind(p.s, p.f), ENTRY_SPLIT);
	assert_int_equal(test_load_matches(p.s, p.f, &p.k), 0);
	assert_int_equal(off(p.s, p.b, &res), 0);
	assert_int_equal(test_kind(p.s, p.f), ENTRY_DEVICE);
	assert_int_equal(test_load_matches(p.s, p.f, &p.k), 0);
	end_pieces(&p);
}

static void test_unreadable_piece_loses_its_folio_alone(void **state)
{
	static struct pieces p;
	struct swap_off_result res;

	(void)state;
	make_pieces(&p);
	p.a->bad_slot = slot_of(p.s, piece_on(&p, p.a));
	p.a->bad_reads = UINT32_MAX;
	assert_int_equal(off(p.s, p.a, &res), 0);
	assert_int_equal(res.lost_pages, 64);
	assert_int_equal(test_kind(p.s, p.f), ENTRY_LOST);
	assert_int_equal(test_load(p.s, p.f, mem), -EIO);
	swap_check(p.s);
	assert_int_equal(off(p.s, p.b, &res), 0);
	end_pieces(&p);
}

static void test_memory_goes_to_a_file_and_back(void **state)
{
	struct swap *s = test_swap(MIB(16));
	struct tdev *z = tdev_create(2048, DEV_IN_MEMORY, false), *f = tdev_create(2048, 0, true);
	struct swap_off_result res;
	swp_t e[300];

	(void)state;
	test_swap_on(s, z, 100);
	test_store_written(s, e, 300, 0, 0);
	test_swap_on(s, f, 10);
	assert_true(swap_first_in_memory(s));
	assert_int_equal(off(s, z, &res), 0);
	assert_false(swap_first_in_memory(s));
	assert_int_equal(tdev_nr_present(f), 300);
	/* Now to memory that refuses what compresses poorly, until nobody else is left. */
	z = tdev_create(2048, DEV_IN_MEMORY, false);
	z->write_e2big = 1000;
	test_swap_on(s, z, 100);
	assert_int_equal(off(s, f, &res), 0);
	assert_int_equal(z->nr_last, 300);
	test_check_and_put(s, e, 300, 0, 0);
	swap_destroy(s);
}

/* Memory for content, of which each page takes a whole one. */
static uint64_t memory_left(struct dev *d)
{
	uint64_t limit = 1500 * PAGE_SIZE, used = atomic_load(&d->stored_bytes);

	return limit - MIN(limit, used);
}

/* Whether it fits can be told only by trying: it ends soon, not when memory is full. */
static void test_memory_that_would_not_do_is_not_filled(void **state)
{
	struct swap *s = test_swap(MIB(32));
	struct tdev *f = tdev_create(4096, 0, false), *z = tdev_create(8192, DEV_IN_MEMORY, false);
	struct swap_off_result res;
	static swp_t e[2500];

	(void)state;
	test_swap_on(s, f, 100);
	test_store_written(s, e, 2500, 0, 0);
	z->ops.memory_room = memory_left;
	test_swap_on(s, z, 10);
	assert_int_equal(off(s, f, &res), -ENOSPC);
	assert_in_range(res.moved_pages, 1024, 1024 + 3 * 128);
	assert_int_equal(tdev_nr_present(z), res.moved_pages);
	/* Now that is known before anything is touched. */
	assert_int_equal(off(s, f, &res), -ENOSPC);
	assert_int_equal(res.moved_pages, 0);
	assert_true(res.used_pages > res.room_pages);
	test_check_and_put(s, e, 2500, 0, 0);
	swap_destroy(s);
}

static void test_grows_the_target(void **state)
{
	struct swap *s = test_swap(MIB(16));
	struct tdev *a = tdev_create(2048, 0, false), *b = tdev_create_growing(8, 2048, 64);
	struct swap_off_result res;
	swp_t e[300];

	(void)state;
	test_swap_on(s, a, 100);
	test_store_written(s, e, 300, 0, 0);
	test_swap_on(s, b, 10);
	assert_int_equal(off(s, a, &res), 0);
	test_check_and_put(s, e, 300, 0, 0);
	swap_destroy(s);
}

/* The device is somebody else's from then on: what the job had there is not his. */
static void test_what_was_on_it_is_discarded_where_that_is_asked_for(void **state)
{
	static const uint32_t bad[] = {1, 77, 700};
	struct swap_off_request req = {0};
	struct swap_off_result res;
	struct dev *gone;
	swp_t e[600];

	(void)state;
	for (int result = 0; result >= -EIO; result -= EIO) {
		struct tdev *a = tdev_create(2000, 0, false), *b = tdev_create(2000, 0, false);
		struct swap *s = test_swap(MIB(8));

		tdev_discards(a, result);
		a->d.bad_slots = bad;
		a->d.nr_bad_slots = ARRAY_SIZE(bad);
		test_swap_on(s, a, 10);
		test_swap_on(s, b, 0);
		test_store_written(s, e, 600, 0, 0);
		/* Of a cluster in which other slots stay in use. */
		for (int i = 0; i < 100; i++)
			swap_put(s, e[i], 1);
		assert_int_equal(tdev_nr_dirty(a), 600);
		req.name = a->d.name;
		assert_int_equal(swap_off(s, &req, &res, &gone), 0);
		/* That it cannot be discarded is no reason to keep the device. */
		assert_int_equal(tdev_nr_dirty(a) > 0, result != 0);
		assert_int_equal(tdev_nr_dirty(b), 500);
		dev_destroy(gone);
		test_check_and_put(s, e + 100, 500, 0, 100);
		swap_destroy(s);
	}
}

static void test_shared_entry_moves_once(void **state)
{
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(512, 0, false);
	struct swap *s = test_swap_on_two(MIB(16), a, b);
	struct key k = test_key(9, 2);
	struct swap_off_result res;
	enum swap_sealed how;
	swp_t e, same;

	(void)state;
	test_store_written(s, &e, 1, 2, 9);
	same = test_store(s, &k, &how);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	swap_get(s, e, 5);
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.moved_pages, 4);
	assert_int_equal(test_load_matches(s, same, &k), 0);
	/* Content that comes again is still recognised. */
	assert_int_equal(test_store(s, &k, &how), e);
	assert_int_equal(how, SWAP_SEALED_EQUAL);
	swap_put(s, e, 8);
	test_end(s);
}

/* Copies of pages that are resident: of no use, so they neither move nor need room. */
static void test_cached_slots_are_given_up(void **state)
{
	struct tdev *a = tdev_create(1024, 0, false), *b = tdev_create(101, 0, false);
	struct swap *s = test_swap_on_two(MIB(16), a, b);
	struct swap_off_result res;
	swp_t e[300];

	(void)state;
	test_store_written(s, e, 300, 0, 0);
	for (int i = 0; i < 250; i++)
		assert_true(swap_keep(s, e[i], 1));
	/* One of them is wanted by somebody else too. */
	swap_get(s, e[0], 1);
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.moved_pages, 51);
	for (int i = 0; i < 250; i++) {
		assert_int_equal(test_kind(s, e[i]), i ? ENTRY_GONE : ENTRY_DEVICE);
		swap_put_kept(s, e[i], 1);
	}
	test_check_and_put(s, &e[0], 1, 0, 0);
	test_check_and_put(s, &e[250], 50, 0, 250);
	swap_destroy(s);
}

/* Relocation holds runs ready, and a worker is at it: neither is in the way. */
static void test_relocation_gives_way(void **state)
{
	struct tdev *a = tdev_create(4096, 0, false), *b = tdev_create(8192, 0, false);
	struct swap *s = test_swap_on_two(MIB(32), a, b);
	struct swap_off_result res;
	static swp_t e[4095];

	(void)state;
	test_store_written(s, e, 4095, 0, 0);
	for (int i = 0; i < 4095; i++)
		if (i % 2) {
			swap_put(s, e[i], 1);
			e[i] = 0;
		}
	for (int i = 0; i < 8; i++)
		relocate_ask(s, 0, 4);
	for (int i = 0; i < 500 && !relocate_ready_slots(&s->devs[0]); i++)
		clock_sleep_ns(NSEC_PER_MSEC);
	assert_true(relocate_ready_slots(&s->devs[0]) > 0);
	relocate_ask(s, 0, 5);
	assert_int_equal(off(s, a, &res), 0);
	assert_int_equal(res.moved_pages, 2048);
	for (unsigned int i = 0; i < 4095; i += 2) {
		struct key k = test_key(i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	test_end(s);
}

/* ---- things in flight ---- */

struct writing {
	struct swap *s;
	int64_t left;
};

static void write_one(void *arg)
{
	struct writing *w = arg;

	w->left = swap_writeout(w->s, 1);
}

/* The write has slots and no owner yet when the device is to go. */
static void test_waits_for_a_write_in_flight(void **state)
{
	struct tdev *a = tdev_create(512, 0, true), *b = tdev_create(512, 0, false);
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct script sc = {.release = a};
	struct swap_off_request req = {.name = a->d.name, .progress = on_progress, .host = &sc};
	struct writing w = {.s = s};
	struct us_thread t = {0};
	struct swap_off_result res;
	struct key k = test_key(1, 0);
	struct dev *gone;
	swp_t e;

	(void)state;
	tdev_hold(a, true);
	e = test_store(s, &k, NULL);
	assert_int_equal(us_thread_start(&t, "writer", -1, write_one, &w), 0);
	while (!info_of(s, a->d.name).used_bytes)
		clock_sleep_ns(NSEC_PER_MSEC);
	assert_int_equal(swap_off(s, &req, &res, &gone), 0);
	assert_true(sc.reports >= 1);
	us_thread_join(&t);
	assert_int_equal(w.left, 1);
	dev_destroy(gone);
	assert_int_equal(tdev_nr_present(b), 1);
	test_check_and_put(s, &e, 1, 0, 1);
	swap_destroy(s);
}

struct loading {
	struct swap *s;
	swp_t e;
	struct key k;
	int result;
};

static void load_one(void *arg)
{
	struct loading *l = arg;

	l->result = test_load_matches(l->s, l->e, &l->k);
}

static void test_waits_for_a_load_in_flight(void **state)
{
	struct tdev *a = tdev_create(512, 0, true), *b = tdev_create(512, 0, false);
	struct swap *s = test_swap_on_two(MIB(4), a, b);
	struct script sc = {.release = a};
	struct swap_off_request req = {.name = a->d.name, .progress = on_progress, .host = &sc};
	struct loading l = {.s = s, .k = test_key(1, 0)};
	struct us_thread t = {0};
	struct swap_off_result res;
	struct dev *gone;
	bool reading = false;

	(void)state;
	test_store_written(s, &l.e, 1, 0, 1);
	tdev_hold(a, true);
	assert_int_equal(us_thread_start(&t, "loader", -1, load_one, &l), 0);
	while (!reading) {
		us_mutex_lock(&a->lock);
		reading = !list_empty(&a->queue);
		us_mutex_unlock(&a->lock);
	}
	assert_int_equal(swap_off(s, &req, &res, &gone), 0);
	us_thread_join(&t);
	assert_int_equal(l.result, 0);
	dev_destroy(gone);
	test_check_and_put(s, &l.e, 1, 0, 1);
	swap_destroy(s);
}

/* ---- storms ---- */

#define STORM_FOLIOS 160

struct storm {
	struct swap *s;
	struct us_mutex lock[STORM_FOLIOS];
	swp_t e[STORM_FOLIOS];		/* under its lock; 0: none */
	struct key key[STORM_FOLIOS];	/* under its lock */
	atomic_bool stop;
	_Atomic uint64_t seed;
	_Atomic unsigned int nr_loads, nr_stores, nr_off, nr_refused;
};

LOCK_CLASS(storm_class, "storm", 1);

/* Takes a reference as a fork does, and looks at it later, when others may have let go. */
static void storm_reader(void *arg)
{
	struct storm *st = arg;
	struct rng rng;

	rng_init(&rng, (uint64_t)(uintptr_t)&rng);
	while (!atomic_load(&st->stop)) {
		unsigned int i = (unsigned int)rng_below(&rng, STORM_FOLIOS);
		struct key k;
		swp_t e;

		us_mutex_lock(&st->lock[i]);
		e = st->e[i];
		k = st->key[i];
		if (e)
			swap_get(st->s, e, 2);
		us_mutex_unlock(&st->lock[i]);
		if (!e)
			continue;
		assert_int_equal(test_load_matches(st->s, e, &k), 0);
		(void)swap_load_is_fast(st->s, e);
		swap_put(st->s, e, 1);
		assert_int_equal(test_load_matches(st->s, e, &k), 0);
		swap_put(st->s, e, 1);
		atomic_fetch_add(&st->nr_loads, 1);
	}
}

static void storm_writer(void *arg)
{
	struct storm *st = arg;
	struct rng rng;

	rng_init(&rng, 17);
	while (!atomic_load(&st->stop)) {
		unsigned int i = (unsigned int)rng_below(&rng, STORM_FOLIOS);
		struct key k = test_key(atomic_fetch_add(&st->seed, 1),
					rng_below(&rng, 4) ? 0 : (unsigned int)rng_below(&rng, 5));
		swp_t e, old;
		void *buf;

		if (swap_new(st->s, k.order, 0, &e, &buf) != 0) {
			(void)swap_writeout(st->s, 64);
			continue;
		}
		key_fill(&k, buf);
		(void)swap_seal(st->s, e, &e);
		us_mutex_lock(&st->lock[i]);
		old = st->e[i];
		st->e[i] = e;
		st->key[i] = k;
		us_mutex_unlock(&st->lock[i]);
		if (old)
			swap_put(st->s, old, 1);
		if (rng_below(&rng, 8) == 0)
			(void)swap_writeout(st->s, 32);
		atomic_fetch_add(&st->nr_stores, 1);
	}
}

static void storm_lister(void *arg)
{
	struct storm *st = arg;
	struct swap_usage u;

	while (!atomic_load(&st->stop)) {
		swap_usage(st->s, &u);
		(void)swap_free_pages(st->s);
		(void)swap_order_ok(st->s, 4);
		(void)swap_first_in_memory(st->s);
		clock_sleep_ns(50 * NSEC_PER_USEC);
	}
}

static void test_storm_of_swapoff_and_swapon(void **state)
{
	static struct storm st;
	struct us_thread t[5] = {0};
	void (*fn[5])(void *) = {storm_reader, storm_reader, storm_writer, storm_writer,
				 storm_lister};
	uint64_t end;
	int round = 0;

	(void)state;
	st.s = test_swap(MIB(4));
	for (int i = 0; i < STORM_FOLIOS; i++)
		us_mutex_init(&st.lock[i], &storm_class);
	test_swap_on(st.s, tdev_create(4096, 0, true), 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(us_thread_start(&t[i], "storm", -1, fn[i], &st), 0);
	end = clock_now_ns() + 1500 * NSEC_PER_MSEC;
	while (clock_now_ns() < end) {
		struct tdev *d = tdev_create(1024, round % 3 ? 0 : DEV_IN_MEMORY, round % 2);
		struct swap_off_result res;

		test_swap_on(st.s, d, round++ % 2 ? 10 : 5);
		clock_sleep_ns((uint64_t)(round % 4) * NSEC_PER_MSEC);
		assert_int_equal(off(st.s, d, &res), 0);
		assert_int_equal(res.lost_pages, 0);
		atomic_fetch_add(&st.nr_off, 1);
	}
	atomic_store(&st.stop, true);
	for (int i = 0; i < 5; i++)
		us_thread_join(&t[i]);
	assert_true(atomic_load(&st.nr_loads) > 100);
	assert_true(atomic_load(&st.nr_stores) > 100);
	assert_true(atomic_load(&st.nr_off) > 3);
	for (int i = 0; i < STORM_FOLIOS; i++) {
		if (st.e[i]) {
			assert_int_equal(test_load_matches(st.s, st.e[i], &st.key[i]), 0);
			swap_put(st.s, st.e[i], 1);
		}
		us_mutex_deinit(&st.lock[i]);
	}
	swap_check(st.s);
	swap_destroy(st.s);
}

struct cycles {
	struct swap *s;
	const char *stays[2];
	atomic_bool stop;
};

static void cycle(void *arg)
{
	struct cycles *c = arg;
	struct swap_off_result res;

	for (int i = 0; i < 200; i++) {
		struct tdev *d = tdev_create(64, 0, false);

		test_swap_on(c->s, d, 1 + i % 30);
		assert_int_equal(off(c->s, d, &res), 0);
	}
	atomic_store(&c->stop, true);
}

static void check_list(struct cycles *c)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(c->s, devs), stays = 0;

	assert_in_range(n, 2, 3);
	for (unsigned int i = 0; i < n; i++) {
		for (unsigned int k = 0; k < i; k++)
			assert_string_not_equal(devs[i].name, devs[k].name);
		for (int k = 0; k < 2; k++)
			if (!strcmp(devs[i].name, c->stays[k])) {
				assert_int_equal(devs[i].prio, 100 + k);
				assert_int_equal(devs[i].size_bytes, (511ull + (uint64_t)k) << 12);
				stays++;
			}
		assert_memory_equal(devs[i].name, "test", 4);
		assert_string_equal(devs[i].type, "test");
		assert_true(devs[i].used_bytes <= devs[i].size_bytes);
	}
	assert_int_equal(stays, 2);
}

static void test_lists_are_whole_while_devices_come_and_go(void **state)
{
	static struct cycles c;
	struct tdev *a = tdev_create(512, 0, false), *b = tdev_create(513, 0, false);
	struct us_thread t = {0};
	unsigned int reads = 0;

	(void)state;
	c.s = test_swap(MIB(4));
	test_swap_on(c.s, a, 100);
	test_swap_on(c.s, b, 101);
	c.stays[0] = a->d.name;
	c.stays[1] = b->d.name;
	assert_int_equal(us_thread_start(&t, "cycle", -1, cycle, &c), 0);
	while (reads < 2000 || !atomic_load(&c.stop)) {
		check_list(&c);
		reads++;
	}
	us_thread_join(&t);
	swap_check(c.s);
	swap_destroy(c.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves_all_and_hands_the_device_back),
		cmocka_unit_test(test_the_number_is_used_again),
		cmocka_unit_test(test_all_numbers_in_use_is_refused_and_leaves_nothing),
		cmocka_unit_test(test_is_refused_with_numbers_where_there_is_no_room),
		cmocka_unit_test(test_the_last_device_goes_only_when_it_is_empty),
		cmocka_unit_test(test_names_must_be_there_and_be_unique),
		cmocka_unit_test(test_interrupted_the_device_stays_and_works),
		cmocka_unit_test(test_room_that_turns_out_not_to_be_there),
		cmocka_unit_test(test_target_that_fails_now_and_then),
		cmocka_unit_test(test_target_that_fails_for_good),
		cmocka_unit_test(test_unreadable_folio_is_lost_alone),
		cmocka_unit_test(test_what_can_be_read_at_a_later_try_is_not_lost),
		cmocka_unit_test(test_nothing_is_lost_before_all_others_have_moved),
		cmocka_unit_test(test_folio_in_pieces_on_two_devices),
		cmocka_unit_test(test_unreadable_piece_loses_its_folio_alone),
		cmocka_unit_test(test_memory_goes_to_a_file_and_back),
		cmocka_unit_test(test_memory_that_would_not_do_is_not_filled),
		cmocka_unit_test(test_grows_the_target),
		cmocka_unit_test(test_what_was_on_it_is_discarded_where_that_is_asked_for),
		cmocka_unit_test(test_shared_entry_moves_once),
		cmocka_unit_test(test_cached_slots_are_given_up),
		cmocka_unit_test(test_relocation_gives_way),
		cmocka_unit_test(test_waits_for_a_write_in_flight),
		cmocka_unit_test(test_waits_for_a_load_in_flight),
		cmocka_unit_test(test_storm_of_swapoff_and_swapon),
		cmocka_unit_test(test_lists_are_whole_while_devices_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
