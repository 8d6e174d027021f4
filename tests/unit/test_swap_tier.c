/* SPDX-License-Identifier: MIT */
/* Bands of priorities, their names and masks; and what the queue does with them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fake_queue_dev.h"

static struct tier_spec spec(const char *name, int min, int max, enum queue_policy policy)
{
	struct tier_spec s = {.prio_min = min, .prio_max = max, .policy = policy};

	assert_true(strlen(name) < TIER_NAME_BYTES);
	strcpy(s.name, name);
	return s;
}

static int add(struct tier_table *t, const char *name, int min, int max)
{
	struct tier_spec s = spec(name, min, max, POLICY_DEFAULT);

	return tier_add(t, &s);
}

static void test_wrong_tiers_are_refused(void **state)
{
	struct tier_table t;
	struct tier_spec s = spec("x", 0, 0, NR_POLICIES);

	(void)state;
	tier_table_init(&t);
	assert_int_equal(tier_add(&t, &s), -EINVAL);
	assert_int_equal(add(&t, "", 0, 0), -EINVAL);
	assert_int_equal(add(&t, "a b", 0, 0), -EINVAL);
	assert_int_equal(add(&t, "all", 0, 0), -EINVAL);
	assert_int_equal(add(&t, "default", 0, 0), -EINVAL);
	assert_int_equal(add(&t, "a", 5, 4), -ERANGE);
	assert_int_equal(add(&t, "a", -2, 4), -ERANGE);
	assert_int_equal(add(&t, "a", 0, 32768), -ERANGE);
	assert_int_equal(add(&t, "slow", -1, 9), 0);
	assert_int_equal(add(&t, "slow", 20, 30), -EEXIST);
	assert_int_equal(add(&t, "b", 9, 30), -EBUSY);
	assert_int_equal(add(&t, "b", -1, -1), -EBUSY);
	assert_int_equal(add(&t, "b", -1, 32767), -EBUSY);
	assert_int_equal(add(&t, "fast", 10, 32767), 0);
	assert_int_equal(t.nr_active, 2);
	assert_string_equal(t.active[0].spec.name, "fast");
	assert_string_equal(tier_of_prio(&t, -1)->spec.name, "slow");
	assert_string_equal(tier_of_prio(&t, 9)->spec.name, "slow");
	assert_string_equal(tier_of_prio(&t, 10)->spec.name, "fast");
	assert_int_equal(tier_remove(&t, "nothing"), -ENOENT);
	assert_int_equal(tier_remove(&t, "fast"), 0);
	assert_null(tier_of_prio(&t, 10));
	/* A name of the greatest length. */
	assert_int_equal(add(&t, "0123456789012345678901234567890", 10, 10), 0);
}

static void test_change_is_all_or_nothing(void **state)
{
	struct tier_table t;
	struct tier_spec s = spec("a", 20, 29, POLICY_FILL), wrong = spec("a", 0, 5, POLICY_QUEUE);
	struct tier_spec none = spec("c", 50, 60, POLICY_QUEUE);

	(void)state;
	tier_table_init(&t);
	assert_int_equal(add(&t, "a", 10, 19), 0);
	assert_int_equal(add(&t, "b", 0, 9), 0);
	assert_int_equal(tier_change(&t, &none), -ENOENT);
	assert_int_equal(tier_change(&t, &wrong), -EBUSY);
	wrong.prio_min = 6;
	assert_int_equal(tier_change(&t, &wrong), -ERANGE);
	assert_int_equal(tier_of_prio(&t, 15)->spec.policy, POLICY_DEFAULT);
	assert_int_equal(tier_of_prio(&t, 15)->id, tier_id(&t, "a"));
	assert_int_equal(t.nr_active, 2);
	assert_int_equal(tier_change(&t, &s), 0);
	assert_null(tier_of_prio(&t, 15));
	assert_int_equal(tier_of_prio(&t, 29)->id, tier_id(&t, "a"));
	assert_int_equal(tier_of_prio(&t, 29)->spec.policy, POLICY_FILL);
	/* It may take what it had itself. */
	s.prio_min = 10;
	assert_int_equal(tier_change(&t, &s), 0);
	assert_string_equal(tier_of_prio(&t, 9)->spec.name, "b");
}

static void test_name_keeps_its_number(void **state)
{
	struct tier_table t;
	const char *names[] = {"ssd", "later"};
	uint64_t mask, again;
	char name[16];

	(void)state;
	tier_table_init(&t);
	assert_int_equal(tier_id(&t, "default"), TIER_UNNAMED);
	assert_int_equal(add(&t, "ssd", 5, 9), 0);
	assert_int_equal(tier_mask(&t, names, 2, &mask), 0);
	assert_int_equal(tier_remove(&t, "ssd"), 0);
	assert_int_equal(add(&t, "other", 5, 9), 0);
	/* What has the same priorities is not what was meant. */
	assert_int_equal(mask & 1ull << tier_of_prio(&t, 5)->id, 0);
	assert_int_equal(tier_remove(&t, "other"), 0);
	assert_int_equal(add(&t, "ssd", 100, 200), 0);
	assert_int_equal(add(&t, "later", 1, 1), 0);
	assert_int_equal(mask, 1ull << tier_of_prio(&t, 150)->id | 1ull << tier_of_prio(&t, 1)->id);
	assert_int_equal(tier_mask(&t, (const char *[]){"all"}, 1, &again), 0);
	assert_int_equal(again, TIERS_ALL);
	assert_int_equal(tier_mask(&t, (const char *[]){"ssd", "no good"}, 2, &again), -EINVAL);
	assert_int_equal(again, TIERS_ALL);
	assert_int_equal(tier_mask_child(mask, TIERS_ALL), mask);
	for (int i = 0; t.nr_names < MAX_TIERS; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		assert_true(tier_id(&t, name) > 0);
	}
	assert_int_equal(tier_id(&t, "more"), -ENOSPC);
	assert_int_equal(add(&t, "more", 5000, 5000), -ENOSPC);
	assert_true(tier_id(&t, "ssd") > 0);
}

static void queue_add_tier(struct queue *q, const char *name, int min, int max,
			   enum queue_policy policy)
{
	struct tier_spec s = spec(name, min, max, policy);

	assert_int_equal(queue_tier_add(q, &s), 0);
}

static void test_priority_does_not_count_inside_a_tier_but_between(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[4] = {fake_dev_on(q, 0, 2048, 30), fake_dev_on(q, 1, 2048, 20),
				 fake_dev_on(q, 2, 2048, 10), fake_dev_on(q, 3, 2048, 5)};

	(void)state;
	queue_add_tier(q, "fast", 20, 40, POLICY_DEFAULT);
	queue_add_tier(q, "slow", 0, 19, POLICY_FILL);
	for (int i = 0; i < 2 * 1024; i++)
		assert_in_range(fake_alloc(q, 0), 0, 1);
	assert_int_equal(fake_used(d[0]), 1024);
	assert_int_equal(fake_used(d[1]), 1024);
	for (int i = 0; i < 2 * 1024; i++)
		assert_in_range(fake_alloc(q, 0), 0, 1);
	for (int i = 0; i < 2048; i++)
		assert_int_equal(fake_alloc(q, 0), 2);
	assert_int_equal(fake_alloc(q, 0), 3);
	/* Without the tiers it is priority that counts. */
	assert_int_equal(queue_tier_remove(q, "fast"), 0);
	assert_int_equal(queue_tier_remove(q, "fast"), -ENOENT);
	fake_free(q, d[0], 1024);
	fake_free(q, d[1], 1024);
	for (int i = 0; i < 1024; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	assert_int_equal(fake_alloc(q, 0), 1);
	fake_end(q, d, 4);
}

static void test_priority_policy_is_strict_inside_a_tier(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 1024, 30), fake_dev_on(q, 1, 1024, 20),
				 fake_dev_on(q, 2, 1024, 20)};

	(void)state;
	queue_add_tier(q, "fast", 20, 40, POLICY_PRIORITY);
	for (int i = 0; i < 1024; i++)
		assert_int_equal(fake_alloc(q, 0), 0);
	for (int i = 0; i < 1024; i++)
		assert_int_equal(fake_alloc(q, 0), 1 + i / 512);
	fake_end(q, d, 3);
}

static void test_large_folio_may_take_any_device_of_its_tier(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 9999, 30), fake_dev_on(q, 1, 9999, 20),
				 fake_dev_on(q, 2, 9999, 10)};

	(void)state;
	fake_set_runs(d[0], 9, 0);
	assert_int_equal(fake_alloc(q, 9), -E2BIG);
	queue_add_tier(q, "fast", 20, 40, POLICY_DEFAULT);
	assert_int_equal(fake_alloc(q, 9), 1);
	fake_set_runs(d[1], 9, 0);
	assert_int_equal(fake_alloc(q, 9), -E2BIG);
	assert_int_equal(d[2]->attempts, 0);
	fake_end(q, d, 3);
}

static void test_mask_keeps_its_meaning_when_tiers_come_and_go(void **state)
{
	struct queue *q = fake_queue(POLICY_QUEUE, 1);
	struct fake_dev *d[3] = {fake_dev_on(q, 0, 9999, 30), fake_dev_on(q, 1, 9999, 20),
				 fake_dev_on(q, 2, 9999, 10)};
	struct queue_req req = {0};
	struct tier tiers[2];
	uint64_t allowed;

	(void)state;
	queue_add_tier(q, "ram", 30, 30, POLICY_DEFAULT);
	queue_add_tier(q, "ssd", 20, 20, POLICY_DEFAULT);
	assert_int_equal(queue_tiers(q, tiers, 2), 2);
	assert_string_equal(tiers[1].spec.name, "ssd");
	assert_string_equal(queue_tier_name(q, tiers[1].id), "ssd");
	assert_string_equal(queue_tier_name(q, TIER_UNNAMED), "default");
	assert_null(queue_tier_name(q, MAX_TIERS - 1));
	assert_int_equal(queue_tier_mask(q, (const char *[]){"ssd"}, 1, &allowed), 0);
	req.denied = ~allowed;
	assert_int_equal(fake_alloc_req(q, &req), 1);
	assert_int_equal(queue_first(q, &req), 1);
	assert_int_equal(queue_open(q, &req), 1ull << 1);
	assert_int_equal(fake_alloc(q, 0), 0);
	/* While there is no such tier there is nothing that it may use. */
	assert_int_equal(queue_tier_remove(q, "ssd"), 0);
	assert_int_equal(fake_alloc_req(q, &req), -ENOENT);
	queue_add_tier(q, "ssd", 5, 15, POLICY_FILL);
	assert_int_equal(fake_alloc_req(q, &req), 2);
	assert_int_equal(queue_tier_mask(q, (const char *[]){"default"}, 1, &allowed), 0);
	req.denied = ~allowed;
	assert_int_equal(fake_alloc_req(q, &req), 1);
	fake_end(q, d, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_tiers_are_refused),
		cmocka_unit_test(test_change_is_all_or_nothing),
		cmocka_unit_test(test_name_keeps_its_number),
		cmocka_unit_test(test_priority_does_not_count_inside_a_tier_but_between),
		cmocka_unit_test(test_priority_policy_is_strict_inside_a_tier),
		cmocka_unit_test(test_large_folio_may_take_any_device_of_its_tier),
		cmocka_unit_test(test_mask_keeps_its_meaning_when_tiers_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
