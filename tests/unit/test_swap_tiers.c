/* SPDX-License-Identifier: MIT */
/* The queue of devices as folios see it that are written out: peers, tiers, classes, policies. */
#include "swap/swapoff.h"
#include "swap/worker.h"
#include "test_swap_util.h"

static int off(struct swap *s, struct tdev *t)
{
	struct swap_off_request req = {.name = t->d.name};
	struct swap_off_result res;
	struct dev *gone;
	int err = swap_off(s, &req, &res, &gone);

	if (!err)
		dev_destroy(gone);
	return err;
}

static struct tdev *named(const char *name, uint32_t nr_slots)
{
	struct tdev *t = tdev_create(nr_slots, 0, false);

	snprintf(t->d.name, sizeof(t->d.name), "%s", name);
	return t;
}

/* n folios of a class, written out, or as many as find room. Returns the pages that did. */
static int64_t store_as(struct swap *s, unsigned int class, swp_t *e, unsigned int n,
			unsigned int order, uint64_t seed)
{
	int64_t all = 0, r;

	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(seed + i, order);
		swp_t out;
		void *mem;

		assert_int_equal(swap_new(s, order, class, &e[i], &mem), 0);
		key_fill(&k, mem);
		assert_int_equal(swap_seal(s, e[i], &out), SWAP_SEALED_CACHED);
		/* 1 or 2 MiB at a time: the cache is small. */
		if (!((i + 1) % MAX(256u >> order, 1u)) || i == n - 1)
			while ((r = swap_writeout(s, MAX(256ull, 1ull << order))) > 0)
				all += r;
	}
	return all;
}

static void put_all(struct swap *s, swp_t *e, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		swap_put(s, e[i], 1);
}

static void end(struct swap *s)
{
	swap_check(s);
	swap_destroy(s);
}

static void test_lower_priority_stays_empty(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(8192, 0, false), *b = tdev_create(8192, 0, false),
		    *c = tdev_create(8192, 0, false);
	static swp_t e[8000];

	(void)state;
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 10);
	test_swap_on(s, c, 0);
	assert_int_equal(store_as(s, 0, e, 8000, 0, 0), 8000);
	assert_int_equal(tdev_nr_present(c), 0);
	assert_in_range(tdev_nr_present(a), 4000 - 512, 4000 + 512);
	put_all(s, e, 8000);
	end(s);
}

static void test_eight_peers_are_used_alike(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t[8];
	static swp_t e[2000];
	uint64_t least = UINT64_MAX, most = 0;

	(void)state;
	for (int i = 0; i < 8; i++) {
		t[i] = tdev_create(16384, 0, false);
		test_swap_on(s, t[i], -1);
	}
	/* 78 turns each: each CPU may have one under way. */
	for (unsigned int round = 0; round < 10; round++) {
		assert_int_equal(store_as(s, 0, e, 2000, 4, round * 2000), 32000);
		put_all(s, e, 2000);
	}
	for (int i = 0; i < 8; i++) {
		least = MIN(least, t[i]->nr_writes);
		most = MAX(most, t[i]->nr_writes);
	}
	assert_true(most * 1000 <= least * 1049);
	end(s);
}

static void test_peer_that_is_added_takes_what_the_full_one_cannot(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = tdev_create(4097, 0, false), *b = tdev_create(8192, 0, false);
	static swp_t e[4096], f[2000];

	(void)state;
	test_swap_on(s, a, 5);
	assert_int_equal(store_as(s, 0, e, 4096, 0, 0), 4096);
	assert_int_equal(tdev_nr_present(a), 4096);
	test_swap_on(s, b, 5);
	assert_int_equal(store_as(s, 0, f, 2000, 0, 10000), 2000);
	assert_int_equal(tdev_nr_present(b), 2000);
	/* And back: what is freed on the first is used again. */
	put_all(s, e, 4096);
	put_all(s, f, 2000);
	assert_int_equal(store_as(s, 0, e, 2048, 0, 20000), 2048);
	assert_true(tdev_nr_present(a) >= 1024 - 512);
	put_all(s, e, 2048);
	end(s);
}

static void test_large_folio_goes_whole_to_a_peer_with_room(void **state)
{
	struct swap *s = test_swap(MIB(8));
	struct tdev *small = tdev_create(1024, 0, false), *peer = tdev_create(4096, 0, false),
		    *low = tdev_create(4096, 0, false);
	swp_t e[900], f[3];

	(void)state;
	test_swap_on(s, small, 5);
	assert_int_equal(store_as(s, 0, e, 900, 0, 0), 900);
	test_swap_on(s, peer, 5);
	test_swap_on(s, low, 0);
	assert_int_equal(store_as(s, 0, f, 3, 9, 10000), 3 * 512);
	assert_int_equal(peer->max_order, 9);
	assert_int_equal(tdev_nr_present(peer), 3 * 512);
	assert_int_equal(tdev_nr_present(low), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(test_kind(s, f[i]), ENTRY_DEVICE);
	put_all(s, e, 900);
	put_all(s, f, 3);
	end(s);
}

static void test_large_folio_is_split_rather_than_sent_down(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *high = tdev_create(2048, 0, false), *low = tdev_create(4096, 0, false);
	swp_t e[2040], f;

	(void)state;
	test_swap_on(s, high, 5);
	assert_int_equal(store_as(s, 0, e, 2040, 0, 0), 2040);
	test_swap_on(s, low, 0);
	/* Every other slot: room enough, but not in a row. */
	for (int i = 0; i < 2040; i += 2)
		swap_put(s, e[i], 1);
	assert_int_equal(store_as(s, 0, &f, 1, 6, 10000), 64);
	assert_int_equal(test_kind(s, f), ENTRY_SPLIT);
	/* The worker makes a run for the next one: what it moves is there twice for a while. */
	worker_settle(s);
	assert_int_equal(tdev_nr_present(high), 1020 + 64);
	assert_int_equal(tdev_nr_present(low), 0);
	swap_put(s, f, 1);
	for (int i = 1; i < 2040; i += 2)
		swap_put(s, e[i], 1);
	end(s);
}

static const struct tier_spec fast = {.name = "fast", .prio_min = 10, .prio_max = 19};
static const struct tier_spec slow = {.name = "slow", .prio_min = 0, .prio_max = 9};

static int class_of(struct swap *s, const char *name)
{
	int class = swap_class(s, &name, 1, POLICY_DEFAULT);

	assert_in_range(class, 1, SWAP_MAX_CLASSES - 1);
	return class;
}

static void test_denied_tier_gets_nothing(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = named("a", 1024), *b = named("b", 65);
	unsigned int class;
	swp_t e[100], f[10], g;
	struct key k = test_key(1, 0);

	(void)state;
	assert_int_equal(swap_tier_add(s, &fast), 0);
	assert_int_equal(swap_tier_add(s, &slow), 0);
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 5);
	class = (unsigned int)class_of(s, "slow");
	/* 64 have room; the others stay in the cache rather than going where they may not. */
	assert_int_equal(store_as(s, class, e, 100, 0, 0), 64);
	assert_int_equal(tdev_nr_present(a), 0);
	assert_int_equal(tdev_nr_present(b), 64);
	assert_int_equal(store_as(s, 0, f, 10, 0, 1000), 10);
	assert_int_equal(tdev_nr_present(a), 10);
	/* Content that another class has is not shared. */
	g = test_store(s, &k, NULL);
	for (int i = 0; i < 100; i++)
		assert_int_not_equal(g, e[i]);
	swap_put(s, g, 1);
	/* It cannot leave its tier either, however much room there is elsewhere. */
	assert_int_equal(off(s, b), -ENOSPC);
	assert_int_equal(tdev_nr_present(b), 64);
	assert_int_equal(tdev_nr_present(a), 10);
	/* Nor what it is split into. */
	put_all(s, e + 40, 60);
	assert_int_equal(store_as(s, class, e + 40, 1, 4, 2000), 16);
	assert_int_equal(tdev_nr_present(a), 10);
	put_all(s, e, 41);
	put_all(s, f, 10);
	assert_int_equal(off(s, b), 0);
	end(s);
}

static void test_tier_keeps_its_meaning_when_it_is_made_again(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *a = named("a", 1024), *b = named("b", 1024);
	struct tier_spec other = slow;
	unsigned int class;
	struct swap_dev_info info[SWAP_MAX_DEVS];
	swp_t e[30];

	(void)state;
	assert_int_equal(swap_tier_add(s, &fast), 0);
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 5);
	class = (unsigned int)class_of(s, "fast");
	assert_int_equal(class_of(s, "fast"), class);
	assert_int_equal(store_as(s, class, e, 10, 0, 0), 10);
	assert_int_equal(tdev_nr_present(a), 10);
	assert_int_equal(swap_tier_remove(s, "fast"), 0);
	assert_int_equal(store_as(s, class, e + 10, 10, 0, 100), 0);
	snprintf(other.name, sizeof(other.name), "fast");
	assert_int_equal(swap_tier_add(s, &other), 0);
	assert_int_equal(store_as(s, class, e + 20, 10, 0, 200), 20);
	assert_int_equal(tdev_nr_present(a), 10);
	assert_int_equal(tdev_nr_present(b), 20);
	assert_int_equal(swap_list_devs(s, info), 2);
	assert_string_equal(info[0].tier, "default");
	assert_string_equal(info[1].tier, "fast");
	put_all(s, e, 30);
	end(s);
}

static void test_classes_are_few_and_checked(void **state)
{
	struct swap *s = test_swap(MIB(4));
	const char *bad = "no tier", *names[SWAP_MAX_CLASSES];
	static char text[SWAP_MAX_CLASSES][8];
	void *mem;
	swp_t e;

	(void)state;
	assert_int_equal(swap_class(s, NULL, 0, POLICY_DEFAULT), 0);
	assert_int_equal(swap_class(s, &bad, 1, POLICY_DEFAULT), -EINVAL);
	assert_int_equal(swap_class(s, NULL, 0, NR_POLICIES), -EINVAL);
	assert_int_equal(swap_new(s, 0, 1, &e, &mem), -EINVAL);
	for (unsigned int i = 0; i < SWAP_MAX_CLASSES; i++) {
		snprintf(text[i], sizeof(text[i]), "t%u", i);
		names[i] = text[i];
		assert_int_equal(swap_class(s, &names[i], 1, POLICY_DEFAULT),
				 i + 1 < SWAP_MAX_CLASSES ? (int)i + 1 : -ENOSPC);
	}
	assert_int_equal(swap_class(s, names, 1, POLICY_DEFAULT), 1);
	end(s);
}

static void test_policies_change_while_folios_are_there(void **state)
{
	struct swap *s = test_swap(MIB(4));
	struct tdev *t[3];
	static swp_t e[NR_POLICIES * 1600];
	unsigned int n = 0;
	int class;

	(void)state;
	for (int i = 0; i < 3; i++) {
		t[i] = tdev_create(65536, 0, false);
		test_swap_on(s, t[i], 7);
	}
	assert_int_equal(swap_set_policy(s, POLICY_FILL), 0);
	assert_int_equal(store_as(s, 0, e, 1600, 0, 0), 1600);
	assert_int_equal(tdev_nr_present(t[0]), 1600);
	n = 1600;
	/* A class of its own policy, beside the job's. */
	class = swap_class(s, NULL, 0, POLICY_QUEUE);
	assert_true(class > 0);
	assert_int_equal(store_as(s, (unsigned int)class, e + n, 1600, 0, n), 1600);
	n += 1600;
	assert_true(tdev_nr_present(t[1]) && tdev_nr_present(t[2]));
	for (unsigned int p = POLICY_QUEUE; p < NR_POLICIES; p++) {
		if (p == POLICY_FILL || p == POLICY_QUEUE)
			continue;
		assert_int_equal(swap_set_policy(s, (enum queue_policy)p), 0);
		assert_int_equal(store_as(s, 0, e + n, 1600, 0, n), 1600);
		n += 1600;
		swap_check(s);
	}
	assert_int_equal(swap_set_policy(s, POLICY_DEFAULT), -EINVAL);
	for (unsigned int i = 0; i < n; i += 97) {
		struct key k = test_key(i, 0);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
	}
	put_all(s, e, n);
	end(s);
}

/* ---- several at once ---- */

struct race {
	struct swap *s;
	struct tdev *t[4];
	atomic_bool stop;
	_Atomic unsigned int rounds;
};

static void change_things(void *arg)
{
	struct race *r = arg;
	struct tier_spec spec = fast;
	struct swap_dev_info info[SWAP_MAX_DEVS];

	for (unsigned int i = 0; !atomic_load(&r->stop); i++) {
		enum queue_policy p = POLICY_QUEUE + i % (NR_POLICIES - 1);
		struct tdev *extra = named("extra", 512);

		assert_int_equal(swap_set_policy(r->s, p), 0);
		assert_int_equal(swap_tier_add(r->s, &spec), 0);
		test_swap_on(r->s, extra, 12);
		assert_int_equal(swap_list_devs(r->s, info), 5);
		spec.prio_min = spec.prio_min == 10 ? 11 : 10;
		assert_int_equal(swap_tier_change(r->s, &spec), 0);
		assert_int_equal(off(r->s, extra), 0);
		assert_int_equal(swap_tier_remove(r->s, spec.name), 0);
		r->rounds++;
	}
}

static void test_nothing_is_lost_while_policies_tiers_and_devices_change(void **state)
{
	struct race r = {.s = test_swap(MIB(4))};
	struct us_thread th;
	uint64_t end_ns = clock_now_ns() + NSEC_PER_SEC;
	static swp_t e[1000];

	(void)state;
	for (int i = 0; i < 4; i++) {
		r.t[i] = tdev_create(2048, 0, false);
		test_swap_on(r.s, r.t[i], 10 + i / 2);
	}
	assert_int_equal(us_thread_start(&th, "change", -1, change_things, &r), 0);
	for (uint64_t seed = 0; clock_now_ns() < end_ns || r.rounds < 3; seed += 1000) {
		assert_int_equal(store_as(r.s, 0, e, 1000, 0, seed), 1000);
		for (unsigned int i = 0; i < 1000; i++) {
			struct key k = test_key(seed + i, 0);

			assert_int_equal(test_load_matches(r.s, e[i], &k), 0);
		}
		put_all(r.s, e, 1000);
	}
	atomic_store(&r.stop, true);
	us_thread_join(&th);
	end(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lower_priority_stays_empty),
		cmocka_unit_test(test_eight_peers_are_used_alike),
		cmocka_unit_test(test_peer_that_is_added_takes_what_the_full_one_cannot),
		cmocka_unit_test(test_large_folio_goes_whole_to_a_peer_with_room),
		cmocka_unit_test(test_large_folio_is_split_rather_than_sent_down),
		cmocka_unit_test(test_denied_tier_gets_nothing),
		cmocka_unit_test(test_tier_keeps_its_meaning_when_it_is_made_again),
		cmocka_unit_test(test_classes_are_few_and_checked),
		cmocka_unit_test(test_policies_change_while_folios_are_there),
		cmocka_unit_test(test_nothing_is_lost_while_policies_tiers_and_devices_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
