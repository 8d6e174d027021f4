/* SPDX-License-Identifier: MIT */
/* Threads that allocate and free while others reclaim, discard, clear windows, disable. For TSan.
 */
#include "test_swap_util.h"

#include "swap/cluster_internal.h"

#define NR_THREADS 3
#define SLOTS (6 * CLUSTER_SLOTS - 40)
#define MAX_HELD 256
#define STEPS 4000

/*
 * What a run is: by its first slot, which is also its owner's number. Whoever changes it from a
 * value to 0 frees that run; the number makes each allocation another value.
 */
#define RUN_CACHED 1u
#define RUN_ORDER(v) ((v) >> 1 & 15)

struct worker {
	struct us_thread thread;
	struct rng rng;
	unsigned int nr, max_order, steps;
	uint32_t slot[MAX_HELD], run[MAX_HELD];
	uint32_t refused;
};

static struct clusters c;
static struct worker workers[NR_THREADS];
static _Atomic uint32_t runs[SLOTS], taken[SLOTS], next_run;
static atomic_bool stop;
/* Workers go on until this has been reached, or far beyond their steps. */
static _Atomic uint32_t *goal;
static uint32_t wanted;
static _Atomic uint32_t nr_reclaimed, nr_discarded, nr_windows, nr_toggles, discarding[6];

static void take_all(uint32_t slot, unsigned int order)
{
	if (slot % (1u << order) || slot + (1u << order) > SLOTS || !slot)
		abort();
	if (atomic_load(&discarding[slot / CLUSTER_SLOTS]))
		abort();
	for (uint32_t s = slot; s < slot + (1u << order); s++)
		if (atomic_exchange(&taken[s], 1))
			abort();
}

/* False: somebody else freed it. */
static bool free_run(uint32_t slot, uint32_t run)
{
	unsigned int order = RUN_ORDER(run);

	if (!atomic_compare_exchange_strong(&runs[slot], &run, 0))
		return false;
	for (uint32_t s = slot; s < slot + (1u << order); s++)
		if (!atomic_exchange(&taken[s], 0))
			abort();
	clusters_free(&c, slot, order);
	return true;
}

static bool is_cached(void *host, uint32_t owner)
{
	(void)host;
	return atomic_load(&runs[owner]) & RUN_CACHED;
}

static bool reclaim(void *host, uint32_t slot, uint32_t owner)
{
	uint32_t run = atomic_load(&runs[owner]);

	(void)host;
	(void)slot;
	if (!(run & RUN_CACHED) || !free_run(owner, run))
		return false;
	atomic_fetch_add(&nr_reclaimed, 1);
	return true;
}

static int discard(void *host, uint32_t slot, uint32_t nr)
{
	(void)host;
	atomic_store(&discarding[slot / CLUSTER_SLOTS], 1);
	for (uint32_t s = slot; s < slot + nr; s++)
		if (atomic_load(&taken[s]))
			abort();
	clock_sleep_ns(20 * NSEC_PER_USEC);
	for (uint32_t s = slot; s < slot + nr; s++)
		if (atomic_load(&taken[s]))
			abort();
	atomic_store(&discarding[slot / CLUSTER_SLOTS], 0);
	return atomic_fetch_add(&nr_discarded, 1) % 3 ? 0 : -EIO;
}

static const struct clusters_ops ops = {is_cached, reclaim, discard};

static void start(struct clusters_config cfg)
{
	memset(workers, 0, sizeof(workers));
	for (uint32_t i = 0; i < SLOTS; i++) {
		atomic_store(&runs[i], 0);
		atomic_store(&taken[i], 0);
	}
	atomic_store(&stop, false);
	goal = NULL;
	assert_int_equal(clusters_init_with(&c, SLOTS, &cfg), 0);
	clusters_set_size(&c, SLOTS);
}

static bool take_run(struct worker *w)
{
	unsigned int order = (unsigned int)rng_below(&w->rng, w->max_order + 1);
	uint32_t slot = clusters_alloc(&c, order);
	uint32_t run = atomic_fetch_add(&next_run, 1) << 5 | order << 1 |
		       (rng_below(&w->rng, 2) ? RUN_CACHED : 0);

	if (!slot)
		return false;
	take_all(slot, order);
	/* Named before anybody can free it: its number may be in somebody's hands from before. */
	run |= 1u << 31;
	clusters_set_owner(&c, slot, order, slot);
	atomic_store(&runs[slot], run);
	w->slot[w->nr] = slot;
	w->run[w->nr++] = run;
	return true;
}

static void work(void *arg)
{
	struct worker *w = arg;

	for (unsigned int i = 0;
	     i < w->steps || (goal && i / 200 < w->steps && atomic_load(goal) < wanted); i++) {
		if (w->nr < MAX_HELD && rng_below(&w->rng, 100) < 55) {
			w->refused += !take_run(w);
		} else if (w->nr) {
			uint32_t k = (uint32_t)rng_below(&w->rng, w->nr);

			free_run(w->slot[k], w->run[k]);
			w->slot[k] = w->slot[--w->nr];
			w->run[k] = w->run[w->nr];
		}
	}
	while (w->nr) {
		w->nr--;
		free_run(w->slot[w->nr], w->run[w->nr]);
	}
}

static void run_workers(unsigned int max_order, unsigned int steps)
{
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		rng_init(&workers[i].rng, i + 1);
		workers[i].max_order = max_order;
		workers[i].steps = steps;
		assert_int_equal(
			us_thread_start(&workers[i].thread, "worker", -1, work, &workers[i]), 0);
	}
}

static void join_workers(void)
{
	for (unsigned int i = 0; i < NR_THREADS; i++)
		us_thread_join(&workers[i].thread);
}

/* Everything is free again, and nothing is lost: all of it can be had. */
static void finish(void)
{
	uint32_t used, peak, usable, n = 0;

	clusters_enable(&c);
	clusters_check(&c);
	clusters_usage(&c, &used, &peak, &usable);
	assert_int_equal(used, 0);
	assert_int_equal(atomic_load(&c.reserved), 0);
	while (clusters_discard_some(&c, 1))
		;
	while (clusters_alloc(&c, 9))
		n += CLUSTER_SLOTS;
	assert_int_equal(n, 4 * CLUSTER_SLOTS);
	while (clusters_alloc(&c, 0))
		n++;
	assert_int_equal(n, usable);
	clusters_check(&c);
	clusters_deinit(&c);
}

/* ---- the others ---- */

static void keep_house(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		clusters_discard_some(&c, 2);
		clusters_reclaim_full(&c);
		clusters_check(&c);
		clock_sleep_ns(50 * NSEC_PER_USEC);
	}
}

static void clear_windows(void *arg)
{
	static struct clusters_window w;
	unsigned int order = 0;

	(void)arg;
	while (!atomic_load(&stop)) {
		uint32_t slot;

		order = order % MAX_ORDER + 1;
		if (!clusters_window_open(&c, order, CLUSTER_SLOTS, &w)) {
			clock_sleep_ns(50 * NSEC_PER_USEC);
			continue;
		}
		for (unsigned int i = 0; i < w.nr; i++) {
			uint32_t run = atomic_load(&runs[w.owner[i]]);

			if (run)
				free_run(w.owner[i], run);
		}
		slot = clusters_window_close(&c, &w);
		if (!slot)
			continue;
		take_all(slot, order);
		atomic_store(&runs[slot], order << 1 | 1u << 31);
		free_run(slot, order << 1 | 1u << 31);
		atomic_fetch_add(&nr_windows, 1);
	}
}

static uint32_t used_now(void)
{
	uint32_t used, peak, usable;

	clusters_usage(&c, &used, &peak, &usable);
	return used;
}

static void toggle(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		uint32_t last, now;

		clusters_disable(&c);
		last = used_now();
		for (int i = 0; i < 200; i++, last = now) {
			now = used_now();
			if (now > last)
				abort();
		}
		clusters_enable(&c);
		atomic_fetch_add(&nr_toggles, 1);
		clock_sleep_ns(30 * NSEC_PER_USEC);
	}
}

static void run_beside(void (*fn)(void *), unsigned int max_order, unsigned int steps)
{
	struct us_thread t;

	run_workers(max_order, steps);
	assert_int_equal(us_thread_start(&t, "beside", -1, fn, NULL), 0);
	join_workers();
	atomic_store(&stop, true);
	us_thread_join(&t);
}

/* ---- tests ---- */

static void test_slots_are_given_to_one_thread_at_a_time(void **state)
{
	(void)state;
	start((struct clusters_config){0});
	run_workers(MAX_ORDER, STEPS);
	join_workers();
	finish();
}

static void test_threads_beside_discard_and_reclaim(void **state)
{
	(void)state;
	atomic_store(&nr_reclaimed, 0);
	atomic_store(&nr_discarded, 0);
	start((struct clusters_config){.ops = &ops, .discard = true});
	goal = &nr_discarded;
	wanted = 20;
	run_beside(keep_house, 6, STEPS);
	assert_true(atomic_load(&nr_reclaimed) > 0);
	assert_true(atomic_load(&nr_discarded) > 0);
	finish();
}

static void test_threads_beside_windows(void **state)
{
	(void)state;
	atomic_store(&nr_windows, 0);
	start((struct clusters_config){0});
	goal = &nr_windows;
	wanted = 20;
	run_beside(clear_windows, 4, STEPS);
	assert_true(atomic_load(&nr_windows) > 0);
	finish();
}

static void test_nothing_is_allocated_after_disable_returned(void **state)
{
	(void)state;
	atomic_store(&nr_toggles, 0);
	start((struct clusters_config){.ops = &ops, .discard = true});
	goal = &nr_toggles;
	wanted = 20;
	run_beside(toggle, 3, STEPS);
	assert_true(atomic_load(&nr_toggles) >= 20);
	finish();
}

static void test_too_few_tables_of_owners(void **state)
{
	(void)state;
	start((struct clusters_config){.max_tables = 2});
	run_workers(MAX_ORDER, STEPS);
	join_workers();
	assert_true(workers[0].refused > 0);
	clusters_check(&c);
	assert_int_equal(used_now(), 0);
	assert_int_not_equal(clusters_alloc(&c, 9), 0);
	clusters_check(&c);
	clusters_deinit(&c);
}

static void test_one_place_for_all_threads(void **state)
{
	(void)state;
	start((struct clusters_config){.rotational = true, .ops = &ops});
	run_beside(keep_house, 4, STEPS / 2);
	finish();
}

/* The last slots of a full device: who frees one can have one again. */
static void take_last(void *arg)
{
	struct worker *w = arg;

	for (unsigned int i = 0; i < STEPS; i++) {
		uint32_t slot = clusters_alloc(&c, 0);

		if (!slot) {
			w->refused++;
			continue;
		}
		take_all(slot, 0);
		atomic_store(&taken[slot], 0);
		clusters_free(&c, slot, 0);
	}
}

static void test_last_slots_are_not_refused_while_each_thread_has_one(void **state)
{
	uint32_t slot;

	(void)state;
	start((struct clusters_config){0});
	for (uint32_t i = 0; i < SLOTS - 1; i++)
		assert_int_not_equal(clusters_alloc(&c, 0), 0);
	assert_int_equal(clusters_alloc(&c, 0), 0);
	for (uint32_t i = 1; i <= NR_THREADS; i++)
		clusters_free(&c, i * 600, 0);
	for (unsigned int i = 0; i < NR_THREADS; i++)
		assert_int_equal(
			us_thread_start(&workers[i].thread, "last", -1, take_last, &workers[i]), 0);
	join_workers();
	for (unsigned int i = 0; i < NR_THREADS; i++)
		assert_int_equal(workers[i].refused, 0);
	for (uint32_t i = 1; i < SLOTS; i++)
		if (i % 600 || i / 600 > NR_THREADS)
			clusters_free(&c, i, 0);
	slot = clusters_alloc(&c, 0);
	clusters_free(&c, slot, 0);
	finish();
}

static void grow(void *arg)
{
	(void)arg;
	for (uint32_t size = 100; size < SLOTS; size += 37) {
		clusters_set_size(&c, size);
		clusters_check(&c);
	}
	clusters_set_size(&c, SLOTS);
	while (!atomic_load(&stop))
		clock_sleep_ns(NSEC_PER_MSEC);
}

static void test_threads_beside_growth(void **state)
{
	(void)state;
	start((struct clusters_config){0});
	clusters_deinit(&c);
	assert_int_equal(clusters_init(&c, SLOTS), 0);
	run_beside(grow, 5, STEPS);
	finish();
}

#define T(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(slots_are_given_to_one_thread_at_a_time),
		T(threads_beside_discard_and_reclaim),
		T(threads_beside_windows),
		T(nothing_is_allocated_after_disable_returned),
		T(too_few_tables_of_owners),
		T(one_place_for_all_threads),
		T(last_slots_are_not_refused_while_each_thread_has_one),
		T(threads_beside_growth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
