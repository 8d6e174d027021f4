/* SPDX-License-Identifier: MIT */
/* Every transition of a cluster (docs/cluster-states.md), the search order, owners, discard. */
#include "test_swap_util.h"

#include "swap/cluster_internal.h"

#define CL(i) ((uint32_t)(i)*CLUSTER_SLOTS)

/* ---- a host ---- */

struct host {
	struct clusters c;
	bool cached[4 * CLUSTER_SLOTS + 1], pinned[4 * CLUSTER_SLOTS + 1];
	unsigned int order_of[4 * CLUSTER_SLOTS + 1];
	unsigned int nr_asked, nr_reclaims, nr_discards, nr_slots_discarded;
	uint32_t discarded[16];
	int discard_result;
	/* Called from within, as another thread would. */
	void (*meanwhile)(struct host *h);
	uint32_t got;
};

static bool is_cached(void *p, uint32_t owner)
{
	struct host *h = p;

	h->nr_asked++;
	return h->cached[owner];
}

/* Owners of this host are the first of their slots. */
static bool reclaim(void *p, uint32_t slot, uint32_t owner)
{
	struct host *h = p;

	(void)slot;
	h->nr_reclaims++;
	if (h->meanwhile)
		h->meanwhile(h);
	if (!h->cached[owner] || h->pinned[owner])
		return false;
	h->cached[owner] = false;
	clusters_free(&h->c, owner, h->order_of[owner]);
	return true;
}

static int discard(void *p, uint32_t slot, uint32_t nr)
{
	struct host *h = p;

	assert_int_equal(nr, CLUSTER_SLOTS);
	h->discarded[h->nr_discards++ % 16] = slot;
	assert_int_equal(cluster_of(&h->c, slot)->state, CL_DISCARD);
	if (h->meanwhile)
		h->meanwhile(h);
	return h->discard_result;
}

static const struct clusters_ops ops = {is_cached, reclaim, discard};
static struct host h;

static void start_with(uint32_t slots, struct clusters_config cfg)
{
	memset(&h, 0, sizeof(h));
	cfg.host = &h;
	/* One place to go on, so that it does not matter which CPU this runs on. */
	cfg.rotational = true;
	assert_int_equal(clusters_init_with(&h.c, slots, &cfg), 0);
	clusters_set_size(&h.c, slots);
}

static void start(uint32_t slots)
{
	start_with(slots, (struct clusters_config){0});
}

static void start_hosted(uint32_t slots, bool with_discard)
{
	start_with(slots, (struct clusters_config){.ops = &ops, .discard = with_discard});
}

static void finish(void)
{
	clusters_check(&h.c);
	clusters_deinit(&h.c);
}

static uint32_t take(unsigned int order)
{
	uint32_t slot = clusters_alloc(&h.c, order);

	assert_int_not_equal(slot, 0);
	clusters_set_owner(&h.c, slot, order, slot);
	h.order_of[slot] = order;
	clusters_check(&h.c);
	return slot;
}

static void give(uint32_t slot, unsigned int order)
{
	clusters_free(&h.c, slot, order);
	clusters_check(&h.c);
}

static enum cluster_state state_of(uint32_t slot)
{
	return (enum cluster_state)cluster_of(&h.c, slot)->state;
}

static unsigned int order_of(uint32_t slot)
{
	return cluster_of(&h.c, slot)->order;
}

static bool is_tail(const struct cluster_list *l, uint32_t slot)
{
	return l->tail == slot / CLUSTER_SLOTS + 1;
}

/* The next allocation of that order searches. */
static void forget_place(unsigned int order)
{
	h.c.cpus[0].next[order] = 0;
}

static void fill_with(unsigned int order, uint32_t clusters)
{
	for (uint32_t i = 0; i < clusters * CLUSTER_SLOTS >> order; i++)
		take(order);
}

/* ---- transitions ---- */

static void test_first_allocation_fixes_the_order_and_goes_to_frag(void **state)
{
	uint32_t slot;

	(void)state;
	start(CL(4));
	slot = take(3);
	assert_int_equal(slot, CL(1)); /* the first one has slot 0 masked */
	assert_int_equal(state_of(slot), CL_FRAG);
	assert_int_equal(order_of(slot), 3);
	assert_true(is_tail(&h.c.frag[3], slot));
	/* Another order begins elsewhere; the same one goes on. */
	assert_int_equal(take(4), CL(2));
	assert_int_equal(take(3), CL(1) + 8);
	finish();
}

static void test_allocation_of_the_last_room_goes_to_full(void **state)
{
	(void)state;
	start(CL(3));
	fill_with(4, 1);
	assert_int_equal(state_of(CL(1)), CL_FULL);
	assert_true(is_tail(&h.c.full, CL(1)));
	assert_int_equal(take(9), CL(2));
	assert_true(is_tail(&h.c.full, CL(2)));
	finish();
}

static void test_freed_slots_go_to_nonfull_from_full_and_from_frag(void **state)
{
	(void)state;
	start(CL(4));
	fill_with(4, 1);
	give(CL(1) + 16, 4);
	assert_int_equal(state_of(CL(1)), CL_NONFULL);
	assert_int_equal(take(4), CL(1) + 16);
	assert_int_equal(state_of(CL(1)), CL_FULL);
	take(5);
	take(5);
	assert_int_equal(state_of(CL(2)), CL_FRAG);
	give(CL(2), 5);
	assert_int_equal(state_of(CL(2)), CL_NONFULL);
	assert_true(is_tail(&h.c.nonfull[5], CL(2)));
	finish();
}

static void test_nonfull_in_which_a_scan_finds_nothing_goes_to_frag(void **state)
{
	(void)state;
	start(CL(3));
	fill_with(1, 1);
	fill_with(9, 1);
	/* Two halves of runs of order 1: room, but not for that order. */
	give(CL(1) + 2, 0);
	give(CL(1) + 9, 0);
	assert_int_equal(state_of(CL(1)), CL_NONFULL);
	forget_place(1);
	assert_int_equal(take(1), 2); /* of the first cluster, in the end */
	assert_int_equal(state_of(CL(1)), CL_FRAG);
	give(CL(1) + 3, 0);
	assert_int_equal(state_of(CL(1)), CL_NONFULL);
	assert_int_equal(take(1), CL(1) + 2);
	finish();
}

static void test_last_freed_slot_goes_to_free_and_forgets_order_and_table(void **state)
{
	uint64_t bytes;
	uint32_t a, b;

	(void)state;
	start(CL(3));
	a = take(6);
	b = take(6);
	bytes = clusters_bytes(&h.c);
	assert_non_null(cluster_of(&h.c, a)->owner);
	give(a, 6);
	assert_int_equal(order_of(b), 6);
	give(b, 6);
	assert_int_equal(state_of(b), CL_FREE);
	assert_int_equal(order_of(b), 0);
	assert_null(cluster_of(&h.c, a)->owner);
	/* Its table serves the next one. */
	assert_int_equal(take(0) / CLUSTER_SLOTS, 0);
	assert_int_equal(clusters_bytes(&h.c), bytes);
	finish();
}

static void test_empty_remembered_cluster_is_begun_anew(void **state)
{
	uint32_t a, b;

	(void)state;
	start(CL(3));
	a = take(2);
	b = take(2);
	give(a, 2);
	give(b, 2);
	assert_int_equal(take(2), CL(1));
	finish();
}

static void test_remembered_cluster_of_another_order_is_left_alone(void **state)
{
	uint32_t a;

	(void)state;
	start(CL(4));
	a = take(2);
	give(a, 2);
	assert_int_equal(take(5), a);
	assert_int_equal(take(2), CL(2));
	finish();
}

/* ---- the order of the search ---- */

static void test_nonfull_comes_before_a_free_cluster(void **state)
{
	(void)state;
	start(CL(4));
	fill_with(4, 1);
	assert_int_equal(take(4), CL(2));
	give(CL(1) + 32, 4);
	forget_place(4);
	assert_int_equal(take(4), CL(1) + 32);
	finish();
}

static void test_free_cluster_comes_before_nonfull_where_discard_is_on(void **state)
{
	(void)state;
	start_hosted(CL(4), true);
	fill_with(4, 1);
	assert_int_equal(take(4), CL(2));
	give(CL(1) + 32, 4);
	forget_place(4);
	assert_int_equal(take(4), CL(3));
	finish();
}

static void test_free_cluster_comes_before_frag(void **state)
{
	(void)state;
	start(CL(4));
	take(4);
	forget_place(4);
	assert_int_equal(take(4), CL(2));
	take(9);
	forget_place(4);
	assert_int_equal(take(4), CL(1) + 16); /* no free one is left */
	finish();
}

static void test_single_slots_are_stolen_from_frag_before_nonfull(void **state)
{
	uint32_t slot;

	(void)state;
	start(CL(3));
	for (uint32_t i = 1; i < CLUSTER_SLOTS; i++)
		take(0);
	fill_with(2, 1);
	give(CL(1), 2); /* nonfull[2] */
	take(5);	/* frag[5] */
	forget_place(0);
	slot = take(0);
	assert_int_equal(slot, CL(2) + 32);
	assert_int_equal(order_of(slot), 5);
	for (uint32_t i = 1; i < CLUSTER_SLOTS - 32; i++)
		take(0);
	assert_int_equal(state_of(CL(2)), CL_FULL);
	assert_int_equal(take(0), CL(1));
	assert_int_equal(order_of(CL(1)), 2);
	finish();
}

static void test_stolen_cluster_still_serves_its_order(void **state)
{
	(void)state;
	start(CL(2));
	take(4);
	for (uint32_t i = 1; i < CLUSTER_SLOTS; i++)
		take(0);
	assert_int_equal(take(0), CL(1) + 16);
	assert_int_equal(take(4), CL(1) + 32);
	finish();
}

static void test_larger_order_takes_a_run_from_a_cluster_of_singles(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t i = 1; i < CL(2); i++)
		take(0);
	assert_int_equal(clusters_alloc(&h.c, 3), 0);
	for (uint32_t i = 0; i < 8; i++)
		give(CL(1) + 80 + i, 0);
	assert_int_equal(take(3), CL(1) + 80);
	assert_int_equal(order_of(CL(1)), 0);
	finish();
}

static void test_refusal_is_remembered_until_a_run_comes_free(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t i = 1; i < CL(2); i++)
		take(0);
	assert_int_equal(clusters_alloc(&h.c, 2), 0);
	assert_true(clusters_is_refused(&h.c, 2));
	assert_true(clusters_is_refused(&h.c, 9));
	assert_false(clusters_is_refused(&h.c, 1));
	assert_false(clusters_order_ok(&h.c, 2));
	for (uint32_t i = 0; i < 3; i++)
		give(64 + i, 0);
	assert_true(clusters_is_refused(&h.c, 2));
	give(67, 0);
	assert_false(clusters_is_refused(&h.c, 2));
	assert_true(clusters_order_ok(&h.c, 2));
	assert_int_equal(take(2), 64);
	finish();
}

static void test_contended_list_does_not_make_an_allocation_fail(void **state)
{
	(void)state;
	start(CL(2));
	for (uint32_t i = 1; i < CL(2); i++)
		take(0);
	give(700, 0);
	forget_place(0);
	/* As if somebody had it isolated while he reclaims: on no list, but with room. */
	us_mutex_unlock(&cluster_isolate(&h.c, &h.c.nonfull[0])->lock);
	assert_int_equal(state_of(700), CL_NONE);
	assert_int_equal(take(0), 700);
	finish();
}

static void test_rotational_device_goes_on_at_one_place(void **state)
{
	struct clusters c;

	(void)state;
	start(CL(4));
	assert_int_equal(h.c.nr_cpus, 1);
	for (uint32_t i = 1; i < 1200; i++)
		assert_int_equal(take(0), i);
	/* The pass over full clusters works there, too. */
	assert_int_equal(clusters_reclaim_full(&h.c), 0);
	finish();
	assert_int_equal(clusters_init(&c, CL(1)), 0);
	assert_int_equal(c.nr_cpus, us_nr_cpus());
	clusters_deinit(&c);
}

/* ---- masked and bad slots ---- */

static void test_slot_0_and_the_tail_are_never_given_out(void **state)
{
	uint32_t used, peak, usable;

	(void)state;
	start(CL(1) + 100);
	for (uint32_t i = 1; i < CL(1) + 100; i++)
		assert_int_equal(take(0), i);
	assert_int_equal(clusters_alloc(&h.c, 0), 0);
	clusters_usage(&h.c, &used, &peak, &usable);
	assert_int_equal(used, usable);
	assert_int_equal(usable, CL(1) + 99);
	for (uint32_t i = 1; i < CL(1) + 100; i++)
		give(i, 0);
	assert_int_equal(state_of(0), CL_NONFULL);
	assert_int_equal(state_of(CL(1)), CL_NONFULL);
	assert_int_equal(clusters_alloc(&h.c, 9), 0);
	finish();
}

static void test_bad_slots_are_counted_once_and_never_given_out(void **state)
{
	static const uint32_t bad[] = {600, 5, CL(3) - 1, 601, CL(1)};
	uint32_t used, peak, usable, n = 0, slot;

	(void)state;
	start(CL(3));
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(clusters_mark_bad(&h.c, bad[i]), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(clusters_mark_bad(&h.c, bad[i]), -EEXIST);
	assert_int_equal(clusters_mark_bad(&h.c, 0), -EINVAL);
	assert_int_equal(clusters_mark_bad(&h.c, CL(3)), -EINVAL);
	clusters_usage(&h.c, &used, &peak, &usable);
	assert_int_equal(used, 0);
	assert_int_equal(usable, CL(3) - 1 - ARRAY_SIZE(bad));
	assert_int_equal(clusters_alloc(&h.c, 9), 0);
	while ((slot = clusters_alloc(&h.c, 0))) {
		for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++)
			assert_int_not_equal(slot, bad[i]);
		n++;
	}
	assert_int_equal(n, usable);
	finish();
}

static void test_cluster_with_bad_slots_starts_on_nonfull_0(void **state)
{
	(void)state;
	start(CL(3));
	assert_int_equal(clusters_mark_bad(&h.c, CL(1) + 3), 0);
	while (cluster_touch(&h.c))
		;
	assert_int_equal(state_of(CL(1)), CL_NONFULL);
	assert_int_equal(order_of(CL(1)), 0);
	assert_int_equal(state_of(CL(2)), CL_FREE);
	/* Known after it was touched. */
	assert_int_equal(clusters_mark_bad(&h.c, CL(2) + 3), 0);
	assert_int_equal(clusters_mark_bad(&h.c, CL(2) + 3), -EEXIST);
	assert_int_equal(state_of(CL(2)), CL_NONFULL);
	assert_int_equal(take(0), 1);
	assert_int_equal(clusters_mark_bad(&h.c, 1), -EBUSY);
	finish();
}

static void test_cluster_of_bad_slots_only_is_full(void **state)
{
	(void)state;
	start(CL(3));
	for (uint32_t s = CL(1); s < CL(2); s++)
		assert_int_equal(clusters_mark_bad(&h.c, s), 0);
	while (cluster_touch(&h.c))
		;
	assert_int_equal(state_of(CL(1)), CL_FULL);
	for (uint32_t s = CL(2); s < CL(3); s++)
		assert_int_equal(clusters_mark_bad(&h.c, s), 0);
	assert_int_equal(state_of(CL(2)), CL_FULL);
	for (uint32_t s = 1; s < CL(1); s++)
		take(0);
	assert_int_equal(clusters_alloc(&h.c, 0), 0);
	finish();
}

/* ---- owners ---- */

static void test_no_memory_for_owners_rolls_back(void **state)
{
	uint32_t a, used, peak, usable;

	(void)state;
	start_with(CL(4), (struct clusters_config){.max_tables = 1});
	a = take(2);
	assert_int_equal(clusters_alloc(&h.c, 9), 0);
	assert_int_equal(state_of(CL(2)), CL_FREE);
	assert_int_equal(order_of(CL(2)), 0);
	clusters_usage(&h.c, &used, &peak, &usable);
	assert_int_equal(used, 4);
	/* What has a table serves; a failure for want of one is not taken for a lack of runs. */
	assert_int_equal(clusters_alloc(&h.c, 0) / CLUSTER_SLOTS, 1);
	assert_false(clusters_is_refused(&h.c, 9));
	give(a, 2);
	give(a + 4, 0);
	assert_int_not_equal(clusters_alloc(&h.c, 9), 0);
	finish();
}

static uint32_t claimed[64];
static unsigned int nr_claimed;

static bool claim_even(void *host, uint32_t owner)
{
	(void)host;
	claimed[nr_claimed++] = owner;
	return owner % 2 == 0;
}

static void test_collect_names_each_owner_once_and_skips_what_has_none(void **state)
{
	uint32_t out[2], cursor = 0, a, b, c, d;

	(void)state;
	start(CL(4));
	nr_claimed = 0;
	a = clusters_alloc(&h.c, 4);
	b = clusters_alloc(&h.c, 4);
	c = clusters_alloc(&h.c, 0);
	d = clusters_alloc(&h.c, 9);
	assert_true(a && b && c && d);
	clusters_set_owner(&h.c, a, 4, 10);
	clusters_set_owner(&h.c, c, 0, 7);
	clusters_set_owner(&h.c, d, 9, 12);
	assert_int_equal(clusters_collect(&h.c, &cursor, claim_even, NULL, out, 1), 1);
	assert_int_equal(out[0], 10);
	assert_true(cursor > a && cursor < CL(3));
	assert_int_equal(clusters_collect(&h.c, &cursor, claim_even, NULL, out, 1), 1);
	assert_int_equal(out[0], 12);
	assert_int_equal(clusters_collect(&h.c, &cursor, claim_even, NULL, out, 2), 0);
	assert_int_equal(cursor, CL(4));
	assert_int_equal(nr_claimed, 3);
	/* Freed: nobody's. */
	give(a, 4);
	cursor = 0;
	assert_int_equal(clusters_collect(&h.c, &cursor, claim_even, NULL, out, 2), 1);
	assert_int_equal(out[0], 12);
	finish();
}

/* ---- cached slots ---- */

static void fill_cached(uint32_t slots, bool pinned)
{
	for (uint32_t i = 1; i < slots; i++) {
		uint32_t slot = take(0);

		h.cached[slot] = true;
		h.pinned[slot] = pinned;
	}
}

static void test_cached_slots_are_reclaimed_when_nothing_else_is_left(void **state)
{
	(void)state;
	start_hosted(CL(2), false);
	fill_cached(CL(2), false);
	assert_int_equal(h.nr_reclaims, 0);
	assert_int_not_equal(take(0), 0);
	/* One full cluster, all of it. */
	assert_true(h.nr_reclaims >= CLUSTER_SLOTS - 1 && h.nr_reclaims <= CLUSTER_SLOTS);
	finish();
}

static void test_scan_reclaims_a_run_of_which_all_is_cached(void **state)
{
	(void)state;
	start_hosted(CL(2), false);
	for (uint32_t i = 1; i < CLUSTER_SLOTS; i++)
		take(0);
	fill_with(0, 1);
	give(CL(1) + 40, 0);
	/* 40 to 43: one free, two cached, one not; 44 to 47: all cached. */
	for (uint32_t s = CL(1) + 41; s < CL(1) + 48; s++)
		h.cached[s] = s != CL(1) + 43;
	forget_place(2);
	/* Its own order, so that the lists of order 2 have it. */
	us_mutex_lock(&cluster_of(&h.c, CL(1))->lock);
	cluster_set_order(&h.c, cluster_of(&h.c, CL(1)), 2);
	us_mutex_unlock(&cluster_of(&h.c, CL(1))->lock);
	assert_int_equal(take(2), CL(1) + 44);
	assert_int_equal(h.nr_reclaims, 4);
	finish();
}

static void test_nothing_is_reclaimed_while_the_device_is_half_empty(void **state)
{
	(void)state;
	start_hosted(CL(4), false);
	fill_cached(CL(1), false);
	assert_int_equal(take(9), CL(1));
	assert_int_equal(clusters_reclaim_full(&h.c), 0);
	assert_int_equal(h.nr_asked, 0);
	assert_int_equal(h.nr_reclaims, 0);
	finish();
}

static void test_pass_over_pinned_full_clusters_ends_and_rotates(void **state)
{
	uint32_t head;

	(void)state;
	start_hosted(CL(4), false);
	fill_cached(CL(4), true);
	head = h.c.full.head;
	assert_int_equal(clusters_reclaim_full(&h.c), 0);
	/* 2047 used slots: three clusters. */
	assert_true(h.nr_reclaims >= 3 * CLUSTER_SLOTS - 1 && h.nr_reclaims <= 3 * CLUSTER_SLOTS);
	assert_int_not_equal(h.c.full.head, head);
	assert_int_equal(state_of(CL(1)), CL_FULL);
	assert_int_equal(clusters_alloc(&h.c, 0), 0);
	assert_int_equal(clusters_alloc(&h.c, 3), 0);
	finish();
}

/* While the first of them is reclaimed all of the cluster goes, and another order takes it. */
static void take_the_cluster_away(struct host *host)
{
	host->meanwhile = NULL;
	for (uint32_t s = CL(1); s < CL(2); s++) {
		if (!cluster_bit(cluster_of(&host->c, s)->map, s % CLUSTER_SLOTS))
			continue;
		host->cached[s] = false;
		clusters_free(&host->c, s, 0);
	}
	host->got = clusters_alloc(&host->c, 9);
}

static void check_taken_away(bool full)
{
	start_hosted(CL(2), false);
	fill_with(2, 1);
	for (uint32_t i = 1; i < CLUSTER_SLOTS; i++)
		take(0);
	for (uint32_t s = CL(1); s < CL(2); s += 4)
		h.cached[s] = true;
	/* Not full: a scan of its order finds it, with no run. */
	if (!full)
		give(CL(1) + 1, 0);
	h.meanwhile = take_the_cluster_away;
	assert_int_equal(clusters_alloc(&h.c, 2), 0);
	assert_int_equal(h.got, CL(1));
	assert_int_equal(order_of(CL(1)), 9);
	assert_int_equal(state_of(CL(1)), CL_FULL);
	finish();
}

static void test_cluster_taken_by_another_order_while_reclaiming_is_left_alone(void **state)
{
	(void)state;
	check_taken_away(true);
	check_taken_away(false);
}

static void free_the_rest(struct host *host)
{
	host->meanwhile = NULL;
	for (uint32_t s = CL(1); s < CL(2); s++)
		if (cluster_bit(cluster_of(&host->c, s)->map, s % CLUSTER_SLOTS))
			clusters_free(&host->c, s, 0);
	memset(host->cached, 0, sizeof(host->cached));
}

static void test_cluster_emptied_while_reclaiming_is_discarded_first(void **state)
{
	(void)state;
	start_hosted(CL(2), true);
	fill_with(2, 1);
	for (uint32_t i = 1; i < CLUSTER_SLOTS; i++)
		take(0);
	for (uint32_t s = CL(1); s < CL(2); s += 4)
		h.cached[s] = true;
	give(CL(1) + 1, 0);
	h.meanwhile = free_the_rest;
	assert_int_equal(take(2) / CLUSTER_SLOTS, 1);
	assert_int_equal(h.nr_discards, 1);
	finish();
}

static void disable_meanwhile(struct host *host)
{
	clusters_disable(&host->c);
}

static void test_device_disabled_while_reclaiming_gives_nothing(void **state)
{
	(void)state;
	start_hosted(CL(2), false);
	fill_cached(CL(2), false);
	h.meanwhile = disable_meanwhile;
	assert_int_equal(clusters_alloc(&h.c, 0), 0);
	assert_true(h.nr_reclaims > 0);
	finish();
}

/* ---- discard ---- */

static void test_emptied_cluster_is_discarded_before_it_is_free(void **state)
{
	uint32_t a;

	(void)state;
	start_hosted(CL(3), true);
	a = take(9);
	give(a, 9);
	assert_int_equal(state_of(a), CL_DISCARD);
	assert_int_equal(clusters_discard_some(&h.c, 5), 1);
	assert_int_equal(h.discarded[0], a);
	assert_int_equal(state_of(a), CL_FREE);
	assert_int_equal(clusters_discard_some(&h.c, 5), 0);
	finish();
}

static void test_allocation_discards_at_most_one_cluster(void **state)
{
	uint32_t a, b, c;

	(void)state;
	start_hosted(CL(4), true);
	a = take(9);
	b = take(9);
	c = take(9);
	give(b, 9);
	give(a, 9);
	give(c, 9);
	assert_int_equal(h.nr_discards, 0);
	assert_int_equal(take(9), b);
	assert_int_equal(h.nr_discards, 1);
	assert_int_equal(state_of(a), CL_DISCARD);
	finish();
}

static void test_one_discard_is_enough_where_it_does_not_help(void **state)
{
	uint32_t a, b;

	(void)state;
	start_with(CL(5), (struct clusters_config){.ops = &ops, .discard = true, .max_tables = 2});
	a = take(9);
	b = take(9);
	give(a, 9);
	give(b, 9);
	take(0);
	assert_int_equal(take(2), CL(3));
	/* There is a free cluster, but no table of owners for it. */
	assert_int_equal(take(5) / CLUSTER_SLOTS, 0);
	assert_int_equal(h.nr_discards, 1);
	assert_int_equal(state_of(b), CL_DISCARD);
	finish();
}

static void test_failed_discard_loses_no_capacity(void **state)
{
	uint32_t a;

	(void)state;
	start_hosted(CL(2), true);
	h.discard_result = -EIO;
	a = take(9);
	give(a, 9);
	assert_int_equal(take(9), a);
	assert_int_equal(atomic_load(&h.c.discard_errors), 1);
	finish();
}

static void use_remembered_place(struct host *host)
{
	host->meanwhile = NULL;
	/* It is the place to go on for order 9, and the only cluster with room for it. */
	host->c.cpus[0].next[9] = CL(1);
	host->got = cluster_of(&host->c, CL(1))->state == CL_DISCARD;
	assert_int_equal(host->c.links[1].prev, 0);
	assert_int_equal(clusters_discard_some(&host->c, 1), 0);
}

static void test_cluster_being_discarded_is_off_its_list_and_not_usable(void **state)
{
	uint32_t a;

	(void)state;
	start_hosted(CL(2), true);
	a = take(9);
	give(a, 9);
	h.meanwhile = use_remembered_place;
	assert_int_equal(take(9), a);
	assert_true(h.got);
	finish();
}

static void test_disabled_device_does_not_discard(void **state)
{
	uint32_t a;

	(void)state;
	start_hosted(CL(2), true);
	a = take(9);
	clusters_disable(&h.c);
	assert_int_equal(clusters_alloc(&h.c, 0), 0);
	give(a, 9);
	assert_int_equal(state_of(a), CL_FREE);
	assert_int_equal(clusters_discard_some(&h.c, 1), 0);
	assert_int_equal(clusters_alloc(&h.c, 9), 0);
	assert_false(clusters_order_ok(&h.c, 0));
	clusters_enable(&h.c);
	assert_int_equal(take(9), a);
	finish();
}

static int discard_any(void *p, uint32_t slot, uint32_t nr)
{
	struct host *h = p;

	h->nr_discards++;
	h->nr_slots_discarded += nr;
	return h->discard_result;
}

/* Slot 0 and bad ones are left alone; the time and errors are bounds. */
static void test_all_of_a_device_that_is_left_is_discarded(void **state)
{
	static const struct clusters_ops some = {.discard = discard_any};
	uint64_t later = clock_now_ns() + NSEC_PER_SEC;
	uint32_t a[3]; /* one in each cluster, as no two find room in the first and the second */

	(void)state;
	start_with(CL(3) - 5, (struct clusters_config){.ops = &some, .discard = true});
	assert_int_equal(clusters_mark_bad(&h.c, 600), 0);
	assert_int_equal(clusters_discard_all(&h.c, later), 0);
	assert_int_equal(h.nr_discards, 0); /* nothing was ever in use */
	for (uint32_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = take(8);
	for (uint32_t i = 0; i < ARRAY_SIZE(a); i++)
		give(a[i], 8);
	clusters_disable(&h.c);
	h.nr_discards = 0;
	assert_int_equal(clusters_discard_all(&h.c, later), 0);
	assert_int_equal(h.nr_discards, 2);
	assert_int_equal(h.nr_slots_discarded, CL(3) - 5 - 1 - 1);
	h.nr_discards = 0;
	assert_int_equal(clusters_discard_all(&h.c, 1), -ETIME);
	assert_int_equal(h.nr_discards, 0);
	h.discard_result = -EIO;
	assert_int_equal(clusters_discard_all(&h.c, later), -EIO);
	assert_int_equal(h.nr_discards, 1);
	clusters_deinit(&h.c);
}

static atomic_bool is_disabled;

static void disable_in_thread(void *arg)
{
	(void)arg;
	clusters_disable(&h.c);
	atomic_store(&is_disabled, true);
}

static void test_disable_waits_for_an_allocation_in_the_middle(void **state)
{
	struct us_thread thread;
	struct cluster *cl;

	(void)state;
	start(CL(3));
	cl = cluster_of(&h.c, take(3));
	atomic_store(&is_disabled, false);
	/* Somebody has looked at the flag under this lock, and takes slots now. */
	us_mutex_lock(&cl->lock);
	assert_int_equal(us_thread_start(&thread, "disable", -1, disable_in_thread, NULL), 0);
	clock_sleep_ns(20 * NSEC_PER_MSEC);
	assert_false(atomic_load(&is_disabled));
	us_mutex_unlock(&cl->lock);
	us_thread_join(&thread);
	assert_true(atomic_load(&is_disabled));
	assert_int_equal(clusters_alloc(&h.c, 3), 0);
	finish();
}

struct slow {
	struct us_thread thread;
	atomic_bool started, go;
};

static struct slow slow;

static void wait_in_discard(struct host *host)
{
	host->meanwhile = NULL;
	atomic_store(&slow.started, true);
	while (!atomic_load(&slow.go))
		clock_sleep_ns(100 * NSEC_PER_USEC);
	clock_sleep_ns(20 * NSEC_PER_MSEC);
}

static void discard_in_thread(void *arg)
{
	(void)arg;
	assert_int_equal(clusters_discard_some(&h.c, 1), 1);
}

static void test_allocation_waits_for_the_discard_of_the_last_room(void **state)
{
	uint32_t a;

	(void)state;
	start_hosted(CL(2), true);
	memset(&slow, 0, sizeof(slow));
	a = take(9);
	give(a, 9);
	h.meanwhile = wait_in_discard;
	assert_int_equal(us_thread_start(&slow.thread, "discard", -1, discard_in_thread, NULL), 0);
	while (!atomic_load(&slow.started))
		clock_sleep_ns(100 * NSEC_PER_USEC);
	atomic_store(&slow.go, true);
	/* The only cluster for it is with the device: not full, only busy. */
	assert_int_equal(take(9), a);
	us_thread_join(&slow.thread);
	finish();
}

#define T(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(first_allocation_fixes_the_order_and_goes_to_frag),
		T(allocation_of_the_last_room_goes_to_full),
		T(freed_slots_go_to_nonfull_from_full_and_from_frag),
		T(nonfull_in_which_a_scan_finds_nothing_goes_to_frag),
		T(last_freed_slot_goes_to_free_and_forgets_order_and_table),
		T(empty_remembered_cluster_is_begun_anew),
		T(remembered_cluster_of_another_order_is_left_alone),
		T(nonfull_comes_before_a_free_cluster),
		T(free_cluster_comes_before_nonfull_where_discard_is_on),
		T(free_cluster_comes_before_frag),
		T(single_slots_are_stolen_from_frag_before_nonfull),
		T(stolen_cluster_still_serves_its_order),
		T(larger_order_takes_a_run_from_a_cluster_of_singles),
		T(refusal_is_remembered_until_a_run_comes_free),
		T(contended_list_does_not_make_an_allocation_fail),
		T(rotational_device_goes_on_at_one_place),
		T(slot_0_and_the_tail_are_never_given_out),
		T(bad_slots_are_counted_once_and_never_given_out),
		T(cluster_with_bad_slots_starts_on_nonfull_0),
		T(cluster_of_bad_slots_only_is_full),
		T(no_memory_for_owners_rolls_back),
		T(collect_names_each_owner_once_and_skips_what_has_none),
		T(cached_slots_are_reclaimed_when_nothing_else_is_left),
		T(scan_reclaims_a_run_of_which_all_is_cached),
		T(nothing_is_reclaimed_while_the_device_is_half_empty),
		T(pass_over_pinned_full_clusters_ends_and_rotates),
		T(cluster_taken_by_another_order_while_reclaiming_is_left_alone),
		T(cluster_emptied_while_reclaiming_is_discarded_first),
		T(device_disabled_while_reclaiming_gives_nothing),
		T(all_of_a_device_that_is_left_is_discarded),
		T(emptied_cluster_is_discarded_before_it_is_free),
		T(allocation_discards_at_most_one_cluster),
		T(one_discard_is_enough_where_it_does_not_help),
		T(disable_waits_for_an_allocation_in_the_middle),
		T(failed_discard_loses_no_capacity),
		T(cluster_being_discarded_is_off_its_list_and_not_usable),
		T(disabled_device_does_not_discard),
		T(allocation_waits_for_the_discard_of_the_last_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
