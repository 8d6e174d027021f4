/* SPDX-License-Identifier: MIT */
/* Which device takes a folio, and what happens when devices are full, fail or lie. */
#include "test_swap_util.h"

static char buf[MAX_FOLIO_BYTES] __attribute__((aligned(4096)));

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
		test_store_written(s, e + n, 1000, 0, n);
		in_a = tdev_nr_present(a);
		in_b = tdev_nr_present(b);
		assert_int_equal(in_a + in_b, n + 1000);
		assert_true(in_a <= in_b + 512 && in_b <= in_a + 512);
		assert_int_equal(tdev_nr_present(c), 0);
	}
	test_store_written(s, e + n, 1000, 0, n);
	n += 1000;
	assert_int_equal(tdev_nr_present(c), 0);
	test_store_written(s, e + n, 1000, 0, n);
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
	test_store_written(s, e, 99, 0, 0);
	assert_int_equal(tdev_nr_present(f), 99);
	assert_int_equal(tdev_nr_present(z), 0);
	/* When the other one is full it is stored poorly compressed rather than not at all. */
	test_store_written(s, e + 99, 50, 0, 1000);
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
	test_store_written(s, e, 10, 0, 0);
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
	struct key k = test_key(77, 0);
	swp_t e[10], x;

	(void)state;
	test_swap_on(s, t, 0);
	test_store_written(s, e, 10, 0, 0);
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
	struct key k = test_key(3, 0);
	swp_t x, e[20];

	(void)state;
	test_swap_on(s, t, 5);
	test_swap_on(s, spare, 1);
	x = test_store(s, &k, NULL);
	assert_int_equal(swap_writeout(s, 1), 1);
	t->write_eio = 1000;
	for (unsigned int i = 0; i < 20; i++)
		test_store_written(s, e + i, 1, 0, 100 + i);
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
	struct key k = test_key(3, 2);
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
	test_store_written(s, e, 64, 0, 1);
	assert_int_equal(a->nr_writes, 64 / JOIN_PAGES);
	assert_int_equal(vmstat_get(VMSTAT_pswpout), out + 64);
	for (unsigned int i = 0; i < 64; i++) {
		struct key k = test_key(1 + i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	/* One io that fails is one error, and all its folios go to the next device. */
	a->write_eio = 1000;
	test_store_written(s, e, 64, 0, 100);
	assert_int_equal(a->nr_writes, 2 * 64 / JOIN_PAGES);
	assert_int_equal(s->devs[0].write_errors, 64 / JOIN_PAGES);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(tdev_nr_present(b), 64);
	for (unsigned int i = 0; i < 64; i++) {
		struct key k = test_key(100 + i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	swap_check(s);
	assert_int_equal(tdev_nr_present(b), 0);
	swap_destroy(s);
}

static void test_neighbours_by_number_on_two_disks_are_not_joined(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *low = tdev_create(1024, 0, false), *high = tdev_create(17, 0, false);
	swp_t e[46];

	(void)state;
	test_swap_on(s, low, 1);
	test_store_written(s, e, 16, 0, 1);
	test_swap_on(s, high, 5);
	/* Slots 1..16 of the one, then 17.. of the other. */
	test_store_written(s, e + 16, 30, 0, 17);
	assert_int_equal(tdev_nr_present(high), 16);
	for (unsigned int i = 0; i < 46; i++) {
		struct key k = test_key(1 + i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	swap_check(s);
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
	test_store_written(s, e, 1000, 0, 0);
	swap_dev_info(s, 0, &info);
	assert_true(info.size_bytes >= 1000 * PAGE_SIZE && info.size_bytes < 1200 * PAGE_SIZE);
	assert_int_equal(info.used_bytes, 1000 * PAGE_SIZE);
	test_store_written(s, e + 1000, 2, MAX_ORDER, 5000);
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
	struct key big = test_key(9000, MAX_ORDER), mid = test_key(9001, 3);
	uint64_t fallback = atomic_load(&order_stats[MAX_ORDER].swpout_fallback);
	struct swap_usage u;
	swp_t e[2047], x, y;
	enum swap_sealed how;

	test_swap_on(s, t, 0);
	for (unsigned int i = 0; i < 2047; i += 89)
		test_store_written(s, e + i, 89, 0, i);
	assert_false(swap_order_ok(s, 0));
	for (unsigned int i = 0; i < 2047; i += 3)
		swap_put(s, e[i], 1);
	assert_true(swap_order_ok(s, 1)); /* by moving some */
	x = test_store(s, &big, NULL);
	y = test_store(s, &mid, NULL);
	assert_int_equal(swap_writeout(s, 520), 520);
	assert_int_equal(test_kind(s, x), ENTRY_SPLIT);
	assert_int_equal(atomic_load(&order_stats[MAX_ORDER].swpout_fallback), fallback + 1);
	swap_check(s);
	swap_usage(s, &u);
	assert_int_equal(u.nr_entries, 2047 - 683 + 2);
	assert_int_equal(u.swapped_pages, 2047 - 683 + 520);
	assert_false(swap_keep(s, x, 1));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_higher_priority_fills_first_and_equals_take_turns),
		cmocka_unit_test(test_incompressible_goes_to_the_next_device),
		cmocka_unit_test(test_only_device_is_asked_once_for_incompressible),
		cmocka_unit_test(test_full_device_is_used_again_when_something_is_freed),
		cmocka_unit_test(test_device_that_fails_writes_is_given_up_but_still_read),
		cmocka_unit_test(test_wrong_content_is_an_error_and_never_shared_again),
		cmocka_unit_test(test_neighbours_on_a_disk_are_written_at_once),
		cmocka_unit_test(test_neighbours_by_number_on_two_disks_are_not_joined),
		cmocka_unit_test(test_device_grows_when_it_runs_out_of_slots),
		cmocka_unit_test(test_folio_without_a_run_is_stored_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
