/* SPDX-License-Identifier: MIT */
/* Writes that are left in flight: that all devices of a ring have some, and that nothing is lost. */
#include "swap/swapoff.h"
#include "test_swap_util.h"

#define NR_DEVS 4
#define NR_PAGES 512

static struct swap *s;
static struct tdev *dev[NR_DEVS];
static swp_t e[NR_PAGES];

static void set_up(bool async, unsigned int nr_devs)
{
	s = test_swap(MIB(8));
	for (unsigned int i = 0; i < nr_devs; i++) {
		dev[i] = tdev_create(2048, 0, async);
		test_swap_on(s, dev[i], SWAP_PRIO_MIN);
	}
}

static void store(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(i, 0);

		e[i] = test_store(s, &k, NULL);
	}
}

/* They are right; and nothing is left behind them. */
static void check_and_end(unsigned int n, unsigned int nr_devs)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
	}
	assert_int_equal(s->writeout.nr_flying, 0);
	swap_check(s);
	for (unsigned int i = 0; i < n; i++)
		swap_put(s, e[i], 1);
	for (unsigned int i = 0; i < nr_devs; i++)
		assert_int_equal(tdev_nr_present(dev[i]), 0);
	swap_check(s);
	swap_destroy(s);
}

static unsigned int count_kind(unsigned int n, enum entry_kind kind)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < n; i++)
		count += test_kind(s, e[i]) == kind;
	return count;
}

/* ---- parallel devices ---- */

struct call {
	uint64_t nr_pages, ahead;
	int64_t left;
};

static void call_writeout(void *arg)
{
	struct call *c = arg;

	c->left = swap_writeout_ahead(s, c->nr_pages, c->ahead);
}

static bool is_waiting(struct tdev *t)
{
	bool waits;

	us_mutex_lock(&t->lock);
	waits = !list_empty(&t->queue);
	us_mutex_unlock(&t->lock);
	return waits;
}

/* What one call has in flight reaches every peer, though it is less than a cluster. */
static void test_all_peers_have_work_at_one_time(void **state)
{
	struct call c = {.nr_pages = 64, .ahead = 256};
	struct us_thread t = {0};
	unsigned int busy = 0;

	(void)state;
	set_up(true, NR_DEVS);
	for (unsigned int i = 0; i < NR_DEVS; i++)
		tdev_hold(dev[i], true);
	store(NR_PAGES);
	assert_int_equal(us_thread_start(&t, "writer", -1, call_writeout, &c), 0);
	for (int tries = 0; tries < 5000 && busy < NR_DEVS; tries++) {
		clock_sleep_ns(NSEC_PER_MSEC);
		busy = 0;
		for (unsigned int i = 0; i < NR_DEVS; i++)
			busy += is_waiting(dev[i]);
	}
	assert_int_equal(busy, NR_DEVS);
	for (unsigned int i = 0; i < NR_DEVS; i++)
		tdev_hold(dev[i], false);
	us_thread_join(&t);
	assert_true(c.left >= 64);
	assert_true(s->writeout.flying_pages <= 256);
	(void)swap_writeout_settle(s);
	check_and_end(NR_PAGES, NR_DEVS);
}

/* Turns of memory stay those of a cluster; those of disks are short, and as fair. */
static void test_turns_of_disks_are_short(void **state)
{
	unsigned int disks[NR_DEVS] = {0};

	(void)state;
	set_up(false, NR_DEVS);
	store(NR_PAGES);
	assert_int_equal(swap_writeout(s, NR_PAGES), NR_PAGES);
	for (unsigned int i = 0; i < NR_DEVS; i++)
		disks[i] = tdev_nr_present(dev[i]);
	for (unsigned int i = 0; i < NR_DEVS; i++)
		assert_int_equal(disks[i], NR_PAGES / NR_DEVS);
	check_and_end(NR_PAGES, NR_DEVS);

	s = test_swap(MIB(8));
	for (unsigned int i = 0; i < 2; i++) {
		dev[i] = tdev_create(2048, DEV_IN_MEMORY, false);
		test_swap_on(s, dev[i], SWAP_PRIO_MIN);
	}
	store(400);
	assert_int_equal(swap_writeout(s, 400), 400);
	assert_int_equal(MAX(tdev_nr_present(dev[0]), tdev_nr_present(dev[1])), 400);
	check_and_end(400, 2);
}

static unsigned int odd_is_node_3(void *host, unsigned int cpu)
{
	(void)host;
	return cpu % 2 ? 3 : 0;
}

/* cpu -1: its program was not seen yet. */
static void store_at_home(unsigned int i, int cpu)
{
	struct key k = test_key(i, 0);
	void *buf;
	swp_t new;

	assert_int_equal(swap_new(s, 0, 0, &new, &buf), 0);
	key_fill(&k, buf);
	swap_set_home(s, new, cpu);
	assert_int_equal(swap_seal(s, new, &e[i]), SWAP_SEALED_CACHED);
}

/* Whichever CPU writes it; only one without a home goes to the writer's node. */
static void test_folio_goes_to_the_node_of_its_program(void **state)
{
	const struct swap_config cfg = {
		.cache_bytes = MIB(8), .no_worker = true, .node_of_cpu = odd_is_node_3};
	const int node[3] = {0, -1, 3};
	struct call c = {.nr_pages = 1};
	struct us_thread t = {0};
	int err;

	(void)state;
	if (us_nr_cpus() < 2)
		skip();
	s = swap_create(&cfg, &err);
	assert_non_null(s);
	assert_int_equal(swap_set_policy(s, POLICY_NODE), 0);
	for (unsigned int i = 0; i < 3; i++) {
		dev[i] = tdev_create(64, 0, false);
		assert_int_equal(swap_on(s, &dev[i]->d,
					 &(struct swap_on_config){.prio = 1, .node = node[i]}), 0);
	}
	for (unsigned int i = 0; i < 40; i++) {
		store_at_home(i, i < 20 ? 0 : 1);
		assert_int_equal(swap_writeout(s, 1), 1);
		assert_int_equal(tdev_nr_present(dev[i < 20 ? 0 : 2]), i % 20 + 1);
	}
	/* In the buffer that the last one had. */
	store_at_home(40, -1);
	assert_int_equal(us_thread_start(&t, "writer", 0, call_writeout, &c), 0);
	us_thread_join(&t);
	assert_int_equal(tdev_nr_present(dev[0]), 21);
	assert_int_equal(tdev_nr_present(dev[1]), 0);
	check_and_end(41, 3);
}

/* ---- in flight at the return ---- */

/* A device below that takes its time, so that what is submitted last is in flight at the return. */
static struct dev *slow_dev(void)
{
	const struct delay_config cfg = {.write_ns = 100 * NSEC_PER_MSEC};
	int err;
	struct dev *ram = dev_ram_create(2048, &err), *d;

	assert_non_null(ram);
	d = dev_delay_create(ram, &cfg, &err);
	assert_non_null(d);
	return d;
}

/* Leaves 64 pages in flight behind 128 that are written. */
static void leave_some_in_flight(void)
{
	s = test_swap(MIB(8));
	assert_int_equal(swap_on(s, slow_dev(), &(struct swap_on_config){.prio = 1}), 0);
	store(256);
	assert_int_equal(swap_writeout_ahead(s, 64, 128), 128);
	assert_int_equal(s->writeout.flying_pages, 64);
}

static void test_leaves_no_more_than_ahead_in_flight(void **state)
{
	(void)state;
	leave_some_in_flight();
	assert_int_equal(count_kind(256, ENTRY_DEVICE), 128);
	/* In flight they still are where loads find them at once. */
	assert_int_equal(count_kind(256, ENTRY_CACHED), 128);
	for (unsigned int i = 128; i < 192; i++)
		assert_true(swap_load_is_fast(s, e[i]));
	assert_int_equal(swap_writeout_settle(s), 64);
	assert_int_equal(swap_writeout_settle(s), 0);
	assert_int_equal(count_kind(256, ENTRY_DEVICE), 192);
	check_and_end(256, 0);
}

/* A plain call waits for all, and counts what an earlier one has left. */
static void test_plain_call_ends_what_is_in_flight(void **state)
{
	(void)state;
	leave_some_in_flight();
	assert_int_equal(swap_writeout(s, 1), 64);
	assert_int_equal(s->writeout.flying_pages, 0);
	check_and_end(256, 0);
}

static void test_folio_that_dies_in_flight_frees_its_slot(void **state)
{
	struct swap_dev_info info;

	(void)state;
	leave_some_in_flight();
	for (unsigned int i = 128; i < 192; i++)
		swap_put(s, e[i], 1);
	assert_int_equal(swap_writeout_settle(s), 64);
	assert_true(swap_dev_info(s, 0, &info));
	assert_int_equal(info.used_bytes, 128 * PAGE_SIZE);
	for (unsigned int i = 0; i < 64; i++)
		e[128 + i] = e[192 + i];
	swap_check(s);
	for (unsigned int i = 0; i < 192; i++)
		swap_put(s, e[i], 1);
	swap_check(s);
	swap_destroy(s);
}

static void test_what_is_refused_in_flight_goes_elsewhere(void **state)
{
	(void)state;
	set_up(false, 2);
	dev[0]->write_eio = 300;
	store(400);
	for (unsigned int left = 400; left;) {
		int64_t n = swap_writeout_ahead(s, 32, 128);

		assert_true(n > 0);
		left -= (unsigned int)n;
	}
	assert_int_equal(swap_writeout_settle(s), 0);
	assert_int_equal(count_kind(400, ENTRY_DEVICE), 400);
	check_and_end(400, 0);

	/* At once, by the call that comes to know of it. */
	set_up(false, 2);
	dev[0]->write_enomem = 1000;
	store(200);
	assert_int_equal(swap_writeout_ahead(s, 200, 128), 200);
	assert_int_equal(tdev_nr_present(dev[1]), 200);
	check_and_end(200, 2);
}

static void test_nothing_is_in_flight_when_nobody_takes_it(void **state)
{
	(void)state;
	set_up(true, 2);
	dev[0]->write_enospc = dev[1]->write_enospc = 1000;
	store(300);
	assert_int_equal(swap_writeout_ahead(s, 32, 256), -ENOSPC);
	assert_int_equal(s->writeout.nr_flying, 0);
	assert_int_equal(swap_writeout_ahead(s, 32, 256), -ENOSPC);
	assert_int_equal(count_kind(300, ENTRY_CACHED), 300);
	check_and_end(300, 2);
}

/* ---- beside a swapoff ---- */

static void settle_late(void *arg)
{
	(void)arg;
	clock_sleep_ns(30 * NSEC_PER_MSEC);
	(void)swap_writeout_settle(s);
}

/* Slots of what is in flight have no owner yet: the device stays until they have one and moved. */
static void test_swapoff_waits_for_what_is_in_flight(void **state)
{
	struct swap_off_request req = {0};
	struct swap_off_result res;
	struct us_thread t = {0};
	char name[256];
	struct dev *gone;

	(void)state;
	leave_some_in_flight();
	snprintf(name, sizeof(name), "%s", s->devs[0].dev->name);
	req.name = name;
	dev[0] = tdev_create(2048, 0, false);
	test_swap_on(s, dev[0], SWAP_PRIO_MIN);
	assert_int_equal(us_thread_start(&t, "settler", -1, settle_late, NULL), 0);
	assert_int_equal(swap_off(s, &req, &res, &gone), 0);
	us_thread_join(&t);
	dev_destroy(gone);
	assert_int_equal(tdev_nr_present(dev[0]), 192);
	check_and_end(256, 1);
}

/* ---- at random ---- */

static void test_random_calls_lose_nothing(void **state)
{
	struct rng r;

	(void)state;
	rng_init(&r, 7);
	set_up(true, NR_DEVS);
	dev[1]->write_enomem = 50;
	dev[2]->write_e2big = 200;
	for (int round = 0; round < 12; round++) {
		for (unsigned int i = 0; i < NR_PAGES; i++) {
			struct key k = test_key(i, 0);

			while (s->cache.held_bytes + MIB(1) > s->cfg.cache_bytes)
				assert_true(swap_writeout_ahead(s, 1 + rng_below(&r, 64),
								rng_below(&r, 512)) > 0);
			if (e[i] && round)
				swap_put(s, e[i], 1);
			e[i] = test_store(s, &k, NULL);
			if (!rng_below(&r, 100))
				(void)swap_writeout_ahead(s, 1 + rng_below(&r, 64),
							  rng_below(&r, 512));
		}
		for (unsigned int i = 0; i < NR_PAGES; i += 7) {
			struct key k = test_key(i, 0);

			assert_int_equal(test_load_matches(s, e[i], &k), 0);
		}
		if (!rng_below(&r, 3)) {
			(void)swap_writeout_settle(s);
			swap_check(s);
		}
	}
	(void)swap_writeout_settle(s);
	check_and_end(NR_PAGES, NR_DEVS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_peers_have_work_at_one_time),
		cmocka_unit_test(test_turns_of_disks_are_short),
		cmocka_unit_test(test_folio_goes_to_the_node_of_its_program),
		cmocka_unit_test(test_leaves_no_more_than_ahead_in_flight),
		cmocka_unit_test(test_plain_call_ends_what_is_in_flight),
		cmocka_unit_test(test_folio_that_dies_in_flight_frees_its_slot),
		cmocka_unit_test(test_what_is_refused_in_flight_goes_elsewhere),
		cmocka_unit_test(test_nothing_is_in_flight_when_nobody_takes_it),
		cmocka_unit_test(test_swapoff_waits_for_what_is_in_flight),
		cmocka_unit_test(test_random_calls_lose_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
