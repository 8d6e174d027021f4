/* SPDX-License-Identifier: MIT */
/*
 * How the policies of the queue compare on many CPUs. The simulation is deterministic: what is
 * asserted are orderings that docs/simulation.md reports, on shorter runs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "sim/alloc_run.h"

/* From where on plist-percpu is twice plist-shared lies between these, with both loads. */
#define CHEAP_HANDOFF_NS 64
#define DEAR_HANDOFF_NS 1500

static struct alloc_result shared, percpu, queue, other;

static struct alloc_args args_of(unsigned int cpus, const char *preset, const char *load)
{
	struct alloc_args a = {.nr_cpus = cpus, .nr_devs = 8, .folios = 700};
	char err[512];

	assert_int_equal(sim_costs_load(&a.costs, preset, err, sizeof(err)), 0);
	assert_int_equal(alloc_load_read(&a.load, load, err, sizeof(err)), 0);
	return a;
}

static void run(struct alloc_args *a, enum queue_policy policy, struct alloc_result *r)
{
	a->policy = policy;
	if (alloc_run(a, r))
		fail_msg("%s", r->sim.error);
}

static double to(const struct alloc_result *r, const struct alloc_result *base)
{
	return alloc_system_a_page(r) / alloc_system_a_page(base);
}

static uint64_t acquired(const struct alloc_result *r, const char *name)
{
	for (unsigned int i = 0; i < r->sim.nr_locks; i++)
		if (!strcmp(r->sim.lock[i].name, name))
			return r->sim.lock[i].acquired;
	return 0;
}

static void three(struct alloc_args *a)
{
	run(a, POLICY_PLIST_SHARED, &shared);
	run(a, POLICY_PLIST_PERCPU, &percpu);
	run(a, POLICY_QUEUE, &queue);
}

/* ---- the load of the kernel builds ---- */

static void test_list_rotated_each_time_costs_twice_where_hand_overs_are_dear(void **state)
{
	static const char *const loads[] = {"kernel-build-2g", "kernel-build-3g"};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(loads); i++) {
		struct alloc_args a = args_of(96, "xeon-2s", loads[i]);

		a.costs.handoff_ns = DEAR_HANDOFF_NS;
		three(&a);
		assert_true(to(&percpu, &shared) >= 2.0);
		assert_true(to(&queue, &shared) <= 1.0005);
		a.costs.handoff_ns = CHEAP_HANDOFF_NS;
		three(&a);
		assert_true(to(&percpu, &shared) < 1.1);
		assert_true(to(&percpu, &shared) > 1.0);
		assert_true(to(&queue, &shared) <= 1.0005);
	}
}

static void test_list_rotated_each_time_costs_twice_where_work_is_little(void **state)
{
	struct alloc_args a = args_of(96, "xeon-2s", "kernel-build-2g");

	(void)state;
	/* What lzo-rle and reclaim alone take, about; the preset's hand-over, plus a doubling. */
	a.load.work_ns = 10000;
	a.load.outside_ns = 0;
	a.costs.handoff_ns *= 2;
	three(&a);
	assert_true(to(&percpu, &shared) >= 2.0);
	assert_true(to(&queue, &shared) <= 1.0015);
}

static void test_policies_take_the_list_as_often_as_they_say(void **state)
{
	struct alloc_args a = args_of(96, "xeon-2s", "kernel-build-2g");

	(void)state;
	three(&a);
	assert_int_equal(acquired(&queue, "swap_queue_list"), 0);
	assert_int_equal(acquired(&percpu, "swap_queue_list"), percpu.folios);
	/* One for each 512 pages of a CPU, the last turn begun. */
	assert_in_range(acquired(&shared, "swap_queue_list"), shared.pages / 512,
			shared.pages / 512 + 2 * 96);
}

static double stall_a_folio(const struct alloc_result *r)
{
	uint64_t ns = 0;

	for (unsigned int i = 0; i < r->sim.nr_cpus; i++)
		ns += r->sim.cpu[i].stall_ns;
	return (double)ns / (double)r->folios;
}

/* What rotating a list of so many devices adds to what the allocator stalls anyhow, in ns a folio. */
static double list_stall(struct alloc_args *a, unsigned int nr_devs)
{
	a->nr_devs = nr_devs;
	run(a, POLICY_PLIST_PERCPU, &percpu);
	run(a, POLICY_QUEUE, &queue);
	return stall_a_folio(&percpu) - stall_a_folio(&queue);
}

static void test_rotating_the_list_goes_past_every_peer(void **state)
{
	struct alloc_args a = args_of(48, "xeon-2s", "kernel-build-2g");
	double line = (double)a.costs.line_near_ns; /* all 48 CPUs are in one socket */
	double of_eight = list_stall(&a, 8), of_two = list_stall(&a, 2);

	(void)state;
	/* The head and eight devices. */
	assert_true(of_eight >= 9 * line);
	/* Some of the six more hide the stores that two have to wait for. */
	assert_true(of_eight - of_two >= 4 * line);
}

static void test_batches_wait_more_than_folios_one_by_one(void **state)
{
	struct alloc_args a = args_of(96, "xeon-2s", "kernel-build-2g");
	uint64_t in_batches;

	(void)state;
	run(&a, POLICY_PLIST_PERCPU, &percpu);
	in_batches = percpu.alloc_ns;
	a.load.batch_folios = 1;
	run(&a, POLICY_PLIST_PERCPU, &percpu);
	assert_true(in_batches > percpu.alloc_ns + percpu.alloc_ns / 10);
}

/* ---- 256 CPUs ---- */

static void test_queue_waits_for_no_lock_on_256_cpus(void **state)
{
	struct alloc_args a = args_of(256, "epyc-2s", "kernel-build-2g");

	(void)state;
	run(&a, POLICY_QUEUE, &queue);
	assert_true(alloc_wait_share(&queue) <= 0.01);
	/* Also with nothing but allocations. */
	a.load.work_ns = a.load.outside_ns = 0;
	a.folios = 300;
	run(&a, POLICY_QUEUE, &queue);
	assert_true(alloc_wait_share(&queue) <= 0.05);
}

/* ns an allocation with no work around it, where a cost of the queue shows most. */
static double bare(unsigned int cpus, enum queue_policy policy, unsigned int devs,
		   unsigned int full)
{
	struct alloc_args a = args_of(cpus, "epyc-2s", "kernel-build-2g");

	a.load.work_ns = a.load.outside_ns = 0;
	a.nr_devs = devs;
	a.nr_full = full;
	run(&a, policy, &other);
	return (double)other.alloc_ns / (double)other.folios;
}

static void test_ring_of_one_device_is_as_the_device(void **state)
{
	static const unsigned int cpus[] = {1, 256};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(cpus); i++)
		assert_true(bare(cpus[i], POLICY_QUEUE, 1, 0) <=
			    1.02 * bare(cpus[i], POLICY_DEFAULT, 1, 0));
}

static void test_full_devices_cost_nothing(void **state)
{
	static const unsigned int cpus[] = {1, 256};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(cpus); i++)
		assert_true(bare(cpus[i], POLICY_QUEUE, 64, 63) <=
			    1.1 * bare(cpus[i], POLICY_QUEUE, 1, 0));
}

/* ---- the run itself ---- */

static void test_same_input_gives_the_same_result(void **state)
{
	struct alloc_args a = args_of(16, "xeon-2s", "kernel-build-3g");

	(void)state;
	run(&a, POLICY_QUEUE, &queue);
	run(&a, POLICY_QUEUE, &other);
	assert_memory_equal(queue.given, other.given, sizeof(queue.given));
	assert_int_equal(queue.folios, other.folios);
}

static void test_devices_are_used_alike(void **state)
{
	struct alloc_args a = args_of(96, "xeon-2s", "kernel-build-2g");

	(void)state;
	a.folios = 2000;
	run(&a, POLICY_QUEUE, &queue);
	assert_true((double)queue.most / (double)queue.least <= 1.049);
	run(&a, POLICY_FILL, &other);
	assert_int_equal(other.least, 0);
}

static void test_time_is_accounted_for(void **state)
{
	struct alloc_args a = args_of(4, "xeon-2s", "kernel-build-2g");
	double each;

	(void)state;
	a.load = (struct alloc_load){.work_ns = 5000, .outside_ns = 7000};
	run(&a, POLICY_QUEUE, &queue);
	assert_int_equal(queue.pages, 4 * 700);
	each = 5000 + (double)(queue.alloc_ns + queue.free_ns) / (double)queue.pages;
	/* The draws have their mean to within a few hundredths. */
	assert_true(alloc_system_a_page(&queue) > 0.96 * each);
	assert_true(alloc_system_a_page(&queue) < 1.04 * each);
}

static void test_what_cannot_be_run_is_refused(void **state)
{
	struct alloc_args a = args_of(2, "xeon-2s", "kernel-build-2g");
	char err[512];

	(void)state;
	a.policy = POLICY_QUEUE;
	a.nr_full = 8;
	assert_int_equal(alloc_run(&a, &other), -EINVAL);
	a.nr_full = 0;
	a.nr_devs = 65;
	assert_int_equal(alloc_run(&a, &other), -EINVAL);
	assert_int_equal(alloc_load_read(&a.load, "nothing", err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "nothing.load"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list_rotated_each_time_costs_twice_where_hand_overs_are_dear),
		cmocka_unit_test(test_list_rotated_each_time_costs_twice_where_work_is_little),
		cmocka_unit_test(test_policies_take_the_list_as_often_as_they_say),
		cmocka_unit_test(test_rotating_the_list_goes_past_every_peer),
		cmocka_unit_test(test_batches_wait_more_than_folios_one_by_one),
		cmocka_unit_test(test_queue_waits_for_no_lock_on_256_cpus),
		cmocka_unit_test(test_ring_of_one_device_is_as_the_device),
		cmocka_unit_test(test_full_devices_cost_nothing),
		cmocka_unit_test(test_same_input_gives_the_same_result),
		cmocka_unit_test(test_devices_are_used_alike),
		cmocka_unit_test(test_time_is_accounted_for),
		cmocka_unit_test(test_what_cannot_be_run_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
