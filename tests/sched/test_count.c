/* SPDX-License-Identifier: MIT */
/*
 * The number of schedules that the explorer finds is the number that there are: counted here from
 * the definition alone, by going through all sequences of steps of abstract threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "explorer.h"

#define MAX_THREADS 4

/*
 * Thread 0 starts the others and then joins them in order: one step each, which it can do only
 * when that thread has ended. A thread with n operations has n + 1 steps: up to the first one,
 * and each of them with what follows.
 */
struct abstract {
	int nr_threads, left[MAX_THREADS], joined;
};

static bool can(const struct abstract *a, int t)
{
	if (t)
		return a->left[t] > 0;
	return a->joined < a->nr_threads - 1 && a->left[a->joined + 1] == 0;
}

static bool ended(const struct abstract *a)
{
	return a->joined == a->nr_threads - 1;
}

/* Schedules from here on, the running thread being cur, with so many preemptions left. */
static uint64_t schedules(struct abstract a, int cur, int preemptions)
{
	uint64_t n = 0;

	if (ended(&a))
		return 1;
	for (int t = 0; t < a.nr_threads; t++) {
		struct abstract b = a;
		int left = preemptions - (t != cur && can(&a, cur));

		if (!can(&a, t) || left < 0)
			continue;
		if (t)
			b.left[t]--;
		else
			b.joined++;
		n += schedules(b, t, left);
	}
	return n;
}

static void check_count_of(const char *name, int preemptions, bool only_shared, struct abstract a)
{
	struct explore_options opt = {.how = EXPLORE_EXHAUSTIVE, .only_shared = only_shared,
				      .preemptions = (unsigned int)preemptions};
	struct explore_outcome *o = explore(scenario_find(name), &opt);

	assert_non_null(o);
	assert_int_equal(o->kind, SIM_OK);
	assert_true(o->complete);
	assert_int_equal(o->runs - o->discarded, schedules(a, 0, preemptions));
	if (only_shared)
		assert_true(o->discarded > 0);
	explore_free(o);
}

static void check_count(const char *name, int preemptions, struct abstract a)
{
	check_count_of(name, preemptions, false, a);
}

static void test_count_equals_the_definition(void **state)
{
	(void)state;
	for (int k = 0; k <= 8; k++) {
		check_count("self_count_1_1", k, (struct abstract){3, {0, 2, 2}, 0});
		check_count("self_count_1_2", k, (struct abstract){3, {0, 2, 3}, 0});
		check_count("self_count_3_3", k, (struct abstract){3, {0, 4, 4}, 0});
		check_count("self_count_1_1_1", k, (struct abstract){4, {0, 2, 2, 2}, 0});
	}
}

static void test_what_meets_nobody_is_no_place_to_switch_at(void **state)
{
	(void)state;
	for (int k = 0; k <= 3; k++) {
		/* Each word by itself: three times a load and an addition, and the one that meets. */
		check_count("self_count_alone", k, (struct abstract){3, {0, 8, 8}, 0});
		check_count_of("self_count_alone", k, true, (struct abstract){3, {0, 2, 2}, 0});
		check_count_of("self_count_3_3", k, true, (struct abstract){3, {0, 4, 4}, 0});
	}
}

static void test_all_interleavings_are_a_binomial(void **state)
{
	/*
	 * Without joins between, two threads of 4 steps have 8! / (4! 4!) = 70 orders. The join of
	 * the first can come anywhere after its end, which multiplies; counted for 1 step each by
	 * hand: A B j, A j B, B A j; then the second join.
	 */
	(void)state;
	assert_int_equal(schedules((struct abstract){3, {0, 1, 1}, 0}, 0, 99), 3);
	/* All preemptions allowed: as many as can happen. */
	check_count("self_count_3_3", 20, (struct abstract){3, {0, 4, 4}, 0});
}

static void test_a_seed_gives_the_same_schedule_again(void **state)
{
	struct explore_options opt = {.how = EXPLORE_RANDOM, .seed = 1, .runs = 200};
	const struct scenario *sc = scenario_find("self_lost_update");
	struct explore_outcome *a = explore(sc, &opt), *b, *c;

	(void)state;
	assert_non_null(a);
	assert_int_equal(a->kind, SIM_CHECK);
	/* The seed alone, without the runs before. */
	opt.seed = a->seed;
	opt.runs = 1;
	b = explore(sc, &opt);
	assert_non_null(b);
	assert_int_equal(b->kind, SIM_CHECK);
	assert_int_equal(a->nr_choices, b->nr_choices);
	assert_memory_equal(a->choices, b->choices, a->nr_choices * sizeof(a->choices[0]));
	/* And its choices. */
	opt = (struct explore_options){
		.how = EXPLORE_REPLAY, .replay = a->choices, .nr_replay = a->nr_choices};
	c = explore(sc, &opt);
	assert_non_null(c);
	assert_int_equal(c->kind, SIM_CHECK);
	assert_string_equal(a->steps_text, c->steps_text);
	explore_free(a);
	explore_free(b);
	explore_free(c);
}

/* What --only-shared finds is told in the numbers that a replay without it has. */
static void test_what_is_found_among_shared_is_found_again(void **state)
{
	struct explore_options opt = {.how = EXPLORE_EXHAUSTIVE, .only_shared = true,
				      .preemptions = 1};
	const struct scenario *sc = scenario_find("self_alone_lost_update");
	struct explore_outcome *a = explore(sc, &opt), *b;

	(void)state;
	assert_non_null(a);
	assert_int_equal(a->kind, SIM_CHECK);
	opt = (struct explore_options){
		.how = EXPLORE_REPLAY, .replay = a->choices, .nr_replay = a->nr_choices};
	b = explore(sc, &opt);
	assert_non_null(b);
	assert_int_equal(b->kind, SIM_CHECK);
	assert_string_equal(a->steps_text, b->steps_text);
	explore_free(a);
	explore_free(b);
}

static void test_shrink_leaves_what_is_needed(void **state)
{
	struct explore_options opt = {.how = EXPLORE_RANDOM, .seed = 1, .runs = 500};
	const struct scenario *sc = scenario_find("self_abba");
	struct explore_outcome *o = explore(sc, &opt);

	(void)state;
	assert_non_null(o);
	assert_int_equal(o->kind, SIM_DEADLOCK);
	o = explore_shrink(sc, o);
	assert_int_equal(o->kind, SIM_DEADLOCK);
	/* One preemption between the two takes is enough. */
	assert_int_equal(o->nr_choices, 1);
	explore_free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_count_equals_the_definition),
		cmocka_unit_test(test_what_meets_nobody_is_no_place_to_switch_at),
		cmocka_unit_test(test_all_interleavings_are_a_binomial),
		cmocka_unit_test(test_a_seed_gives_the_same_schedule_again),
		cmocka_unit_test(test_what_is_found_among_shared_is_found_again),
		cmocka_unit_test(test_shrink_leaves_what_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
