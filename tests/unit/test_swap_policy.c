/* SPDX-License-Identifier: MIT */
/* Each policy: what it does alone, and what all of them must do on the same script. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "fake_queue_dev.h"

#define FIRST_POLICY POLICY_QUEUE

static uint64_t list_locks(void)
{
	for (struct lock_class *c = lock_class_first(); c; c = c->next)
		if (!strcmp(c->name, "swap_queue_list"))
			return lock_class_acquired(c);
	return 0;
}

static void test_names(void **state)
{
	static const char *const names[] = {"queue", "plist-shared", "plist-percpu", "node",
					    "fill", "weighted", "priority"};

	(void)state;
	for (unsigned int p = FIRST_POLICY; p < NR_POLICIES; p++) {
		assert_string_equal(policy_name((enum queue_policy)p), names[p - FIRST_POLICY]);
		assert_int_equal(policy_by_name(names[p - FIRST_POLICY]), p);
	}
	assert_int_equal(policy_by_name("default"), POLICY_DEFAULT);
	assert_int_equal(policy_by_name("quick"), POLICY_DEFAULT);
	assert_string_equal(policy_name(POLICY_DEFAULT), "default");
}

/* ---- all on one script ---- */

static void script(enum queue_policy policy)
{
	struct queue *q = fake_queue(policy, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 4096, 10), fake_dev_on(q, 1, 4096, 10),
				 fake_dev_on(q, 2, 4096, 0)};

	/* Priority 0 stays empty as long as there is room above. */
	for (int i = 0; i < 2 * 4096; i++)
		assert_in_range(fake_alloc(q, 0), 0, 1);
	assert_int_equal(fake_used(d[2]), 0);
	assert_int_equal(fake_alloc(q, 9), 2);
	/* All full; a free in each is found. */
	for (int i = 0; i < 4096 - 512; i++)
		assert_int_equal(fake_alloc(q, 0), 2);
	assert_int_equal(fake_alloc(q, 0), -ENOENT);
	assert_int_equal(fake_alloc(q, 5), -ENOENT);
	for (unsigned int i = 0; i < 3; i++) {
		fake_free(q, d[i], 1);
		assert_int_equal(fake_alloc(q, 0), i);
		assert_int_equal(fake_alloc(q, 0), -ENOENT);
	}
	/* Fragmented above, whole below: split. */
	fake_free(q, d[1], 600);
	fake_set_runs(d[1], 9, 0);
	fake_free(q, d[2], 4096);
	assert_int_equal(fake_alloc(q, 9), -E2BIG);
	assert_int_equal(fake_used(d[2]), 0);
	/* A peer with a run is found. */
	fake_free(q, d[0], 512);
	assert_int_equal(fake_alloc(q, 9), 0);
	fake_end(q, d, 3);
}

static void test_every_policy_plays_the_same_script(void **state)
{
	(void)state;
	for (unsigned int p = FIRST_POLICY; p < NR_POLICIES; p++)
		script((enum queue_policy)p);
}

/* ---- a model: who may be asked, whatever the policy ---- */

#define MODEL_DEVS 7

struct model {
	struct queue *q;
	struct rng r;
	struct fake_dev *d[MODEL_DEVS];
	int prio[MODEL_DEVS];
	bool off[MODEL_DEVS];
	enum queue_policy policy;
	bool tiers;
};

/* With tiers: 0..9 is "low", 10..19 is "high"; 20 and more in none. Higher is faster. */
static int band(const struct model *m, int prio)
{
	if (m->policy == POLICY_PRIORITY || m->policy == POLICY_PLIST_PERCPU ||
	    m->policy == POLICY_PLIST_SHARED || !m->tiers || prio >= 20)
		return prio + 100;
	return prio >= 10 ? 1 : 0;
}

static bool has_run(const struct model *m, unsigned int i, unsigned int order)
{
	const struct fake_dev *d = m->d[i];

	return d && !m->off[i] && d->runs[order] && d->size - d->used >= 1u << order;
}

static int best_band(const struct model *m, bool (*is)(const struct model *, unsigned int,
						       unsigned int), unsigned int order)
{
	int best = -1;

	for (unsigned int i = 0; i < MODEL_DEVS; i++)
		if (is(m, i, order))
			best = MAX(best, band(m, m->prio[i]));
	return best;
}

static bool has_room(const struct model *m, unsigned int i, unsigned int order)
{
	return m->d[i] && !m->off[i] && m->d[i]->used < m->d[i]->size;
}

static void model_alloc(struct model *m)
{
	unsigned int order = rng_below(&m->r, 3) ? 0 : (unsigned int)rng_below(&m->r, 10);
	int room = best_band(m, has_room, order), run = best_band(m, has_run, order);
	int got = fake_alloc(m->q, order);

	if (got < 0) {
		assert_int_equal(got, order && room >= 0 ? -E2BIG : -ENOENT);
		/* A shared list may go on at a lower priority, never give up too early. */
		assert_true(order ? run < room || run < 0 : run < 0);
		return;
	}
	assert_false(m->off[got]);
	if (m->policy == POLICY_PLIST_SHARED)
		return; /* strict only when it takes a new device */
	assert_int_equal(band(m, m->prio[got]), run);
	if (order)
		assert_int_equal(run, room);
}

static void model_switch(struct model *m, unsigned int i)
{
	static const int prios[] = {-1, 0, 5, 9, 10, 15, 15, 19, 20, 30};

	if (!m->d[i]) {
		m->prio[i] = prios[rng_below(&m->r, ARRAY_SIZE(prios))];
		m->off[i] = false;
		m->d[i] = fake_dev_on(m->q, i, 1 + (uint32_t)rng_below(&m->r, 1500), m->prio[i]);
	} else if (rng_below(&m->r, 2)) {
		m->off[i] = !m->off[i];
		assert_int_equal(m->off[i] ? queue_off(m->q, i) : queue_on(m->q, i), 0);
	} else {
		fake_dev_off(m->q, m->d[i]);
		m->d[i] = NULL;
	}
}

static void model_tiers(struct model *m)
{
	struct tier_spec low = {.name = "low", .prio_min = -1, .prio_max = 9},
			 high = {.name = "high", .prio_min = 10, .prio_max = 19};

	m->tiers = !m->tiers;
	if (m->tiers) {
		assert_int_equal(queue_tier_add(m->q, &low), 0);
		assert_int_equal(queue_tier_add(m->q, &high), 0);
	} else {
		assert_int_equal(queue_tier_remove(m->q, "high"), 0);
		assert_int_equal(queue_tier_remove(m->q, "low"), 0);
	}
}

static void model_step(struct model *m)
{
	unsigned int i = (unsigned int)rng_below(&m->r, MODEL_DEVS);
	uint64_t what = rng_below(&m->r, 200);

	if (what < 120) {
		model_alloc(m);
	} else if (what < 180) {
		if (m->d[i])
			fake_free(m->q, m->d[i],
				  (uint32_t)rng_below(&m->r, fake_used(m->d[i]) + 1));
	} else if (what < 190) {
		if (m->d[i])
			fake_set_runs(m->d[i], 1 + (unsigned int)rng_below(&m->r, 9),
				      rng_below(&m->r, 2) ? AS_ROOM : (uint32_t)rng_below(&m->r, 3));
	} else if (what < 198) {
		model_switch(m, i);
	} else if (what < 199) {
		model_tiers(m);
	} else {
		m->policy = FIRST_POLICY + (enum queue_policy)rng_below(&m->r, NR_POLICIES - 1);
		assert_int_equal(queue_set_policy(m->q, m->policy), 0);
	}
}

static void test_random_histories_agree_with_a_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct model m = {.policy = POLICY_QUEUE};

		rng_init(&m.r, seed);
		m.q = fake_queue(POLICY_QUEUE, 1);
		for (int step = 0; step < 2000; step++) {
			model_step(&m);
			if (step % 16 == 0)
				queue_check(m.q);
		}
		fake_end(m.q, m.d, MODEL_DEVS);
	}
}

/* ---- each by itself ---- */

static void test_fill_uses_one_device_up_before_the_next(void **state)
{
	struct queue *q = fake_queue(POLICY_FILL, 1);
	struct fake_dev *d[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		d[i] = fake_dev_on(q, 2 - i, 1000, SWAP_PRIO_MIN);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(fake_alloc(q, 0), 2 - i / 1000);
	fake_end(q, d, 3);
}

static unsigned int second_node(void *host, unsigned int cpu)
{
	(void)host;
	return 1;
}

static void test_node_uses_its_own_device_up_first(void **state)
{
	struct queue_config cfg = {.ops = &fake_queue_ops, .policy = POLICY_NODE, .nr_cpus = 1,
				   .node_of_cpu = second_node};
	struct fake_dev *d[4];
	struct queue_dev_config dev = {.prio = SWAP_PRIO_MIN};
	struct queue *q;
	int err;

	(void)state;
	q = queue_create(&cfg, &err);
	assert_non_null(q);
	for (unsigned int i = 0; i < 4; i++) {
		d[i] = fake_dev_create(i, 1000);
		dev.dev = d[i];
		dev.node = i == 3 ? -1 : (int)i;
		assert_int_equal(queue_add(q, i, &dev), 0);
	}
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fake_alloc(q, 0), 1);
	assert_int_equal(fake_alloc(q, 0), 0);
	fake_free(q, d[1], 1);
	assert_int_equal(fake_alloc(q, 0), 1);
	for (int i = 1; i < 1000; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), 2);
	fake_end(q, d, 4);
}

static unsigned int node_by_cpu(void *host, unsigned int cpu)
{
	return ((const unsigned int *)host)[cpu];
}

static void test_node_is_that_of_the_folio_where_it_has_one(void **state)
{
	const unsigned int nodes[3] = {0, 2, 63};
	struct queue_config cfg = {.ops = &fake_queue_ops, .policy = POLICY_NODE, .nr_cpus = 3,
				   .node_of_cpu = node_by_cpu, .host = (void *)nodes};
	const int node_of_dev[4] = {2, 0, -1, 2}, order[4] = {0, 3, 1, 2};
	struct fake_dev *d[4];
	struct queue_req req = {0};
	struct queue *q;
	int err;

	(void)state;
	q = queue_create(&cfg, &err);
	assert_non_null(q);
	for (unsigned int c = 0; c < 3; c++)
		assert_int_equal(queue_node_of_cpu(q, c), nodes[c]);
	assert_int_equal(queue_node_of_cpu(q, 3), 0);
	for (unsigned int i = 0; i < 4; i++) {
		struct queue_dev_config dev = {.prio = SWAP_PRIO_MIN, .node = node_of_dev[i]};

		d[i] = fake_dev_create(i, 100);
		dev.dev = d[i];
		assert_int_equal(queue_add(q, i, &dev), 0);
	}
	/* Its own ones in the order of swapon, then all others; whichever CPU asks. */
	req.home = 1 + 2;
	for (int i = 0; i < 400; i++)
		assert_int_equal(fake_alloc_req(q, &req), order[i / 100]);
	for (unsigned int i = 0; i < 4; i++)
		fake_free(q, d[i], 100);
	req.home = 1 + 0;
	for (int i = 0; i < 200; i++)
		assert_int_equal(fake_alloc_req(q, &req), i < 100 ? 1 : 0);
	/* A node without devices: as fill. */
	req.home = 1 + 63;
	assert_int_equal(fake_alloc_req(q, &req), 2);
	fake_end(q, d, 4);
}

static void test_turns_are_as_long_as_devices_say(void **state)
{
	static const uint32_t turn[3] = {64, 0, 32}, weight[3] = {2, 4, 1}; /* 0: a cluster */
	struct queue_dev_config cfg = {.prio = 0, .node = -1};
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		d[i] = fake_dev_create(i, 1 << 20);
		cfg.dev = d[i];
		cfg.turn_pages = turn[i];
		assert_int_equal(queue_add(q, i, &cfg), 0);
	}
	for (int round = 0; round < 3; round++)
		for (unsigned int i = 0; i < 3; i++)
			for (uint32_t n = 0; n < (turn[i] ? turn[i] : 512); n++)
				assert_int_equal(fake_alloc(q, 0), i);
	/* A folio that is larger than a turn is one. */
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(fake_alloc(q, 9), i);
	assert_int_equal(fake_alloc(q, 7), 0);
	/* Weights are of the shortest turn. */
	assert_int_equal(queue_set_policy(q, POLICY_WEIGHTED), 0);
	assert_int_equal(queue_set_weight(q, 0, 2), 0);
	assert_int_equal(queue_set_weight(q, 1, 4), 0);
	for (unsigned int i = 0; i < 3; i++)
		for (uint32_t n = 0; n < 32 * weight[i]; n++)
			assert_int_equal(fake_alloc(q, 0), i);
	cfg.turn_pages = QUEUE_QUOTA_PAGES + 1;
	assert_int_equal(queue_add(q, 3, &cfg), -EINVAL);
	fake_end(q, d, 3);
}

/* Which part of 12 clusters, in orders that are mixed, each of three devices gets, in clusters. */
static void shares_of_turns(struct queue *q, struct fake_dev **d, unsigned int order,
			    uint32_t clusters, const uint32_t *expected)
{
	uint32_t before[3];

	for (int i = 0; i < 3; i++)
		before[i] = fake_used(d[i]);
	for (uint32_t n = 0; n < clusters * 512; n += 1u << order)
		assert_true(fake_alloc(q, order) >= 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fake_used(d[i]) - before[i], expected[i] * 512);
}

static void test_weighted_shares_by_weight(void **state)
{
	struct queue *q = fake_queue(POLICY_WEIGHTED, 1);
	struct fake_dev *d[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		d[i] = fake_dev_on(q, i, 1 << 24, 0);
	shares_of_turns(q, d, 0, 6, (uint32_t[]){2, 2, 2});
	assert_int_equal(queue_set_weight(q, 1, 3), 0);
	assert_int_equal(queue_set_weight(q, 2, 2), 0);
	assert_int_equal(queue_set_weight(q, 2, QUEUE_MAX_WEIGHT + 1), -EINVAL);
	assert_int_equal(queue_set_weight(q, 3, 1), -ENOENT);
	shares_of_turns(q, d, 0, 12, (uint32_t[]){2, 6, 4});
	shares_of_turns(q, d, 4, 12, (uint32_t[]){2, 6, 4});
	shares_of_turns(q, d, 9, 12, (uint32_t[]){2, 6, 4});
	/* Nobody is starved, however small its weight. */
	assert_int_equal(queue_set_weight(q, 1, 1000), 0);
	shares_of_turns(q, d, 0, 19, (uint32_t[]){1, 16, 2});
	fake_end(q, d, 3);
}

static void test_weighted_shares_by_measured_speed(void **state)
{
	struct queue *q = fake_queue(POLICY_WEIGHTED, 1);
	struct fake_dev *d[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		d[i] = fake_dev_on(q, i, 1 << 24, 0);
	for (int i = 0; i < 200; i++) {
		queue_note_speed(q, 0, 64, 64 * 10 * NSEC_PER_USEC);
		queue_note_speed(q, 1, 64, 64 * 20 * NSEC_PER_USEC);
		queue_note_speed(q, 2, 64, 64 * 40 * NSEC_PER_USEC);
	}
	shares_of_turns(q, d, 0, 14, (uint32_t[]){8, 4, 2});
	/* The first one becomes slow; soon it has the least. */
	for (int i = 0; i < 200; i++)
		queue_note_speed(q, 0, 64, 64 * 80 * NSEC_PER_USEC);
	for (int i = 0; i < 4 * 512; i++)
		assert_true(fake_alloc(q, 0) >= 0);
	assert_true(fake_used(d[0]) < 10 * 512);
	fake_end(q, d, 3);
}

static void test_plist_percpu_rotates_with_every_allocation(void **state)
{
	struct queue *q = fake_queue(POLICY_PLIST_PERCPU, 1);
	struct fake_dev *d[3];
	uint64_t locks;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		d[i] = fake_dev_on(q, i, 1 << 20, i == 2 ? 0 : 5);
	locks = list_locks();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fake_alloc(q, 0), i % 2);
	assert_int_equal(list_locks() - locks, 1000);
	fake_end(q, d, 3);
}

static void test_plist_shared_takes_the_lock_once_a_cluster(void **state)
{
	struct queue *q = fake_queue(POLICY_PLIST_SHARED, 1);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 1 << 20, 5), fake_dev_on(q, 1, 1 << 20, 5)};
	uint64_t locks;

	(void)state;
	locks = list_locks();
	for (int i = 0; i < 8 * 512; i++)
		assert_int_equal(fake_alloc(q, 0), i / 512 % 2);
	assert_int_equal(list_locks() - locks, 8);
	fake_end(q, d, 2);
}

/* What the queue was made to end: a cluster above the choice of devices. */
static void test_plist_shared_inverts_priorities_and_the_queue_does_not(void **state)
{
	struct queue *q = fake_queue(POLICY_PLIST_SHARED, 1);
	struct fake_dev *d[2] = {fake_dev_on(q, 0, 1000, 5), fake_dev_on(q, 1, 1000, 0)};
	struct queue_req only_low = {.skip = 1ull << 0};

	(void)state;
	assert_int_equal(fake_alloc_req(q, &only_low), 1);
	assert_int_equal(fake_alloc(q, 0), 1);
	assert_int_equal(queue_set_policy(q, POLICY_QUEUE), 0);
	assert_int_equal(fake_alloc_req(q, &only_low), 1);
	assert_int_equal(fake_alloc(q, 0), 0);
	fake_end(q, d, 2);
}

static void test_ring_policies_take_no_lock(void **state)
{
	static const enum queue_policy free_of_locks[] = {POLICY_QUEUE, POLICY_PRIORITY,
							  POLICY_WEIGHTED, POLICY_NODE,
							  POLICY_FILL};
	struct lock_class *c;
	uint64_t before = 0, after = 0;

	(void)state;
	for (unsigned int k = 0; k < ARRAY_SIZE(free_of_locks); k++) {
		struct queue *q = fake_queue(free_of_locks[k], 1);
		struct fake_dev *d[2] = {fake_dev_on(q, 0, 1 << 20, 5),
					 fake_dev_on(q, 1, 1 << 20, 5)};

		for (c = lock_class_first(); c; c = c->next)
			if (!strncmp(c->name, "swap_queue", 10))
				before += lock_class_acquired(c);
		for (int i = 0; i < 4000; i++)
			assert_in_range(fake_alloc(q, 0), 0, 1);
		for (c = lock_class_first(); c; c = c->next)
			if (!strncmp(c->name, "swap_queue", 10))
				after += lock_class_acquired(c);
		assert_int_equal(before, after);
		fake_end(q, d, 2);
	}
}

static void test_process_may_have_a_policy_of_its_own(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 4096, 5), fake_dev_on(q, 1, 4096, 5),
				 fake_dev_on(q, 2, 4096, 0)};
	struct queue_req fill = {.policy = POLICY_FILL};
	struct tier_spec tier = {.name = "t", .prio_min = 5, .prio_max = 5,
				 .policy = POLICY_PLIST_PERCPU};

	(void)state;
	/* Before it is made ready the job's holds. */
	for (int i = 0; i < 1024; i++)
		assert_int_equal(fake_alloc_req(q, &fill), i / 512);
	assert_int_equal(queue_use_policy(q, POLICY_FILL), 0);
	assert_int_equal(queue_use_policy(q, POLICY_DEFAULT), -EINVAL);
	for (int i = 0; i < 1024; i++) {
		assert_int_equal(fake_alloc_req(q, &fill), 0);
		assert_int_equal(fake_alloc(q, 0), i / 512);
	}
	/* Where a tier names one that one holds. */
	assert_int_equal(queue_tier_add(q, &tier), 0);
	for (int i = 0; i < 1024; i++)
		assert_int_equal(fake_alloc_req(q, &fill), i % 2);
	fake_end(q, d, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_every_policy_plays_the_same_script),
		cmocka_unit_test(test_random_histories_agree_with_a_model),
		cmocka_unit_test(test_fill_uses_one_device_up_before_the_next),
		cmocka_unit_test(test_node_is_that_of_the_folio_where_it_has_one),
		cmocka_unit_test(test_turns_are_as_long_as_devices_say),
		cmocka_unit_test(test_node_uses_its_own_device_up_first),
		cmocka_unit_test(test_weighted_shares_by_weight),
		cmocka_unit_test(test_weighted_shares_by_measured_speed),
		cmocka_unit_test(test_plist_percpu_rotates_with_every_allocation),
		cmocka_unit_test(test_plist_shared_takes_the_lock_once_a_cluster),
		cmocka_unit_test(test_plist_shared_inverts_priorities_and_the_queue_does_not),
		cmocka_unit_test(test_ring_policies_take_no_lock),
		cmocka_unit_test(test_process_may_have_a_policy_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
