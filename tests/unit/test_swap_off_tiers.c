/* SPDX-License-Identifier: MIT */
/*
 * A device is taken away on which folios lie that may go to some of the others only: what is refused
 * before anything is touched, and that what fits ends, though who is less bound would take the room.
 */
#include "swap/swapoff.h"
#include "test_swap_util.h"

#define NR_TIERS 3u

/*
 * Tier 0 has priorities 30 to 39, 1 has 20 to 29, 2 has 10 to 19. The device that is to leave is in
 * one of its own, which every class may use.
 */
struct world {
	struct swap *s;
	struct tdev *leaving;
	struct tdev *dev[NR_TIERS];
};

static void start(struct world *w)
{
	struct tier_spec spec = {.name = "leaving", .prio_max = 9};

	*w = (struct world){.s = test_swap(MIB(8)), .leaving = tdev_create(4096, 0, false)};
	assert_int_equal(swap_tier_add(w->s, &spec), 0);
	for (unsigned int i = 0; i < NR_TIERS; i++) {
		spec = (struct tier_spec){.prio_min = 30 - 10 * (int)i, .prio_max = 39 - 10 * (int)i};
		snprintf(spec.name, sizeof(spec.name), "t%u", i);
		assert_int_equal(swap_tier_add(w->s, &spec), 0);
	}
	test_swap_on(w->s, w->leaving, 5);
}

/* A device of the tier, with room for nr_pages. */
static void add_device(struct world *w, unsigned int tier, uint32_t nr_pages)
{
	w->dev[tier] = tdev_create(nr_pages + 1, 0, false);
	test_swap_on(w->s, w->dev[tier], 30 - 10 * (int)tier);
}

/* For folios that may go to these tiers; bit t: tier t. */
static unsigned int class_of_tiers(struct world *w, unsigned int tiers)
{
	const char *names[NR_TIERS + 1] = {"leaving"};
	static const char *const all[NR_TIERS] = {"t0", "t1", "t2"};
	unsigned int n = 1;
	int class;

	for (unsigned int i = 0; i < NR_TIERS; i++)
		if (tiers & 1u << i)
			names[n++] = all[i];
	class = swap_class(w->s, names, n, POLICY_DEFAULT);
	assert_true(class > 0);
	return (unsigned int)class;
}

static void store(struct world *w, unsigned int class, swp_t *e, unsigned int n, unsigned int order,
		  uint64_t seed)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(seed + i, order);
		swp_t out;
		void *mem;

		assert_int_equal(swap_new(w->s, order, class, &e[i], &mem), 0);
		key_fill(&k, mem);
		assert_int_equal(swap_seal(w->s, e[i], &out), SWAP_SEALED_CACHED);
	}
	while (swap_writeout(w->s, (uint64_t)n << order) > 0)
		;
}

static int off(struct world *w, struct swap_off_result *res)
{
	struct swap_off_request req = {.name = w->leaving->d.name};
	struct dev *gone;
	int err = swap_off(w->s, &req, res, &gone);

	if (!err) {
		assert_int_equal(tdev_nr_present(w->leaving), 0);
		dev_destroy(gone);
	}
	return err;
}

static uint64_t writes(const struct world *w)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < NR_TIERS; i++)
		n += w->dev[i] ? w->dev[i]->nr_writes : 0;
	return n;
}

static void test_is_refused_untouched_where_a_tier_has_no_room(void **state)
{
	struct swap_off_result res;
	swp_t bound[50], any[50], here[5];
	unsigned int slow;
	struct world w;

	(void)state;
	start(&w);
	slow = class_of_tiers(&w, 1u << 1);
	store(&w, slow, bound, 50, 0, 0);
	store(&w, 0, any, 50, 0, 1000);
	add_device(&w, 0, 1000);
	add_device(&w, 1, 30);
	assert_int_equal(off(&w, &res), -ENOSPC);
	assert_int_equal(res.used_pages, 100);
	assert_int_equal(res.room_pages, 1030);
	assert_int_equal(res.bound_pages, 50);
	assert_int_equal(res.bound_room_pages, 30);
	assert_int_equal(res.moved_pages, 0);
	assert_int_equal(writes(&w), 0);
	assert_int_equal(tdev_nr_present(w.leaving), 100);
	/* It is on, and takes in what may go nowhere else. */
	store(&w, class_of_tiers(&w, 0), here, 5, 0, 2000);
	assert_int_equal(tdev_nr_present(w.leaving), 105);
	test_check_and_put(w.s, here, 5, 0, 2000);
	/* With a second device of the tier it ends. */
	test_swap_on(w.s, tdev_create(21, 0, false), 25);
	assert_int_equal(off(&w, &res), 0);
	assert_int_equal(res.moved_pages, 100);
	assert_int_equal(res.bound_pages, 0);
	test_check_and_put(w.s, bound, 50, 0, 0);
	test_check_and_put(w.s, any, 50, 0, 1000);
	test_end(w.s);
}

static void test_is_refused_where_none_of_the_others_is_allowed(void **state)
{
	struct swap_off_result res;
	struct world w;
	swp_t e[3];

	(void)state;
	start(&w);
	store(&w, class_of_tiers(&w, 0), e, 3, 0, 0);
	add_device(&w, 0, 1000);
	assert_int_equal(off(&w, &res), -ENOSPC);
	assert_int_equal(res.bound_pages, 3);
	assert_int_equal(res.bound_room_pages, 0);
	assert_int_equal(writes(&w), 0);
	test_check_and_put(w.s, e, 3, 0, 0);
	assert_int_equal(off(&w, &res), 0);
	test_end(w.s);
}

/* Those that may go everywhere come first, and would fill the tier that the others need. */
static void test_room_is_left_to_those_who_have_no_other(void **state)
{
	struct swap_off_result res;
	swp_t any[600], bound[300], large[10];
	struct world w;

	(void)state;
	start(&w);
	store(&w, 0, any, 600, 0, 0);
	store(&w, class_of_tiers(&w, 1u << 0), bound, 300, 0, 1000);
	store(&w, class_of_tiers(&w, 1u << 0), large, 10, 4, 2000);
	add_device(&w, 0, 300 + 10 * 16 + 20);
	add_device(&w, 2, 580);
	assert_int_equal(off(&w, &res), 0);
	assert_int_equal(tdev_nr_present(w.dev[0]), 480);
	assert_int_equal(tdev_nr_present(w.dev[2]), 580);
	swap_check(w.s);
	test_check_and_put(w.s, any, 600, 0, 0);
	test_check_and_put(w.s, bound, 300, 0, 1000);
	test_check_and_put(w.s, large, 10, 4, 2000);
	test_end(w.s);
}

/* Copies of resident pages are of no use, whatever their class. */
static void test_cached_slots_of_a_bound_class_need_no_room(void **state)
{
	struct swap_off_result res;
	struct world w;
	swp_t e[40];

	(void)state;
	start(&w);
	store(&w, class_of_tiers(&w, 1u << 2), e, 40, 0, 0);
	for (int i = 0; i < 35; i++)
		assert_true(swap_keep(w.s, e[i], 1));
	add_device(&w, 0, 1000);
	add_device(&w, 2, 5);
	assert_int_equal(off(&w, &res), 0);
	assert_int_equal(res.moved_pages, 5);
	for (int i = 0; i < 35; i++)
		swap_put_kept(w.s, e[i], 1);
	test_check_and_put(w.s, e + 35, 5, 0, 35);
	test_end(w.s);
}

/* ---- against a naive answer ---- */

/* Each set of tiers has room for what may go nowhere else. */
static bool can_fit(const unsigned int pages[1u << NR_TIERS], const unsigned int room[NR_TIERS])
{
	for (unsigned int set = 0; set < 1u << NR_TIERS; set++) {
		unsigned int needed = 0, there = 0;

		for (unsigned int c = 0; c < 1u << NR_TIERS; c++)
			needed += c & ~set ? 0 : pages[c];
		for (unsigned int t = 0; t < NR_TIERS; t++)
			there += set & 1u << t ? room[t] : 0;
		if (needed > there)
			return false;
	}
	return true;
}

/* What fits, ends; what does not, is refused at once. */
static bool try_one(struct rng *rng)
{
	unsigned int pages[1u << NR_TIERS] = {0}, room[NR_TIERS], class[1u << NR_TIERS];
	unsigned int n = 1 + (unsigned int)rng_below(rng, 200);
	struct swap_off_result res;
	struct world w;
	swp_t e[200];
	bool fits;

	start(&w);
	for (unsigned int c = 0; c < 1u << NR_TIERS; c++)
		class[c] = class_of_tiers(&w, c);
	for (unsigned int i = 0; i < n; i++) {
		unsigned int c = 1 + (unsigned int)rng_below(rng, (1u << NR_TIERS) - 1);

		store(&w, class[c], &e[i], 1, 0, i);
		pages[c]++;
	}
	for (unsigned int t = 0; t < NR_TIERS; t++) {
		room[t] = n / 4 + (unsigned int)rng_below(rng, n / 4 + 2);
		if (room[t])
			add_device(&w, t, room[t]);
	}
	fits = can_fit(pages, room);
	assert_int_equal(off(&w, &res), fits ? 0 : -ENOSPC);
	assert_int_equal(res.moved_pages, fits ? n : 0);
	if (!fits)
		assert_int_equal(writes(&w), 0);
	test_check_and_put(w.s, e, n, 0, 0);
	test_end(w.s);
	return fits;
}

static void test_ends_where_it_fits_and_only_there(void **state)
{
	unsigned int fitted = 0, rounds = 60;
	struct rng rng;

	(void)state;
	rng_init(&rng, 6);
	for (unsigned int i = 0; i < rounds; i++)
		fitted += try_one(&rng);
	assert_in_range(fitted, 10, rounds - 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_refused_untouched_where_a_tier_has_no_room),
		cmocka_unit_test(test_is_refused_where_none_of_the_others_is_allowed),
		cmocka_unit_test(test_room_is_left_to_those_who_have_no_other),
		cmocka_unit_test(test_cached_slots_of_a_bound_class_need_no_room),
		cmocka_unit_test(test_ends_where_it_fits_and_only_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
