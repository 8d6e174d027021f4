/* SPDX-License-Identifier: MIT */
/*
 * `uswap-sim bench lock`: every CPU takes a lock again and again, the same one for all ("shared"),
 * or one of its own ("percpu"). The first arm is bounded by the hand-over, the second by nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/thread.h"
#include "sim/bench_sim.h"

LOCK_CLASS(shared_class, "shared", RANK_CLUSTER);
LOCK_CLASS(percpu_class, "percpu", RANK_CLUSTER);

struct own_lock {
	struct us_mutex lock;
} __attribute__((aligned(128)));

static struct {
	uint64_t operations, hold_ns, between_ns;
	struct us_mutex shared;
	struct own_lock percpu[SIM_MAX_CPUS];
} b;

static void hammer(struct us_mutex *l)
{
	for (uint64_t i = 0; i < b.operations; i++) {
		us_mutex_lock(l);
		sim_work(b.hold_ns);
		us_mutex_unlock(l);
		sim_work(b.between_ns);
	}
}

static void on_shared(unsigned int cpu, void *arg)
{
	hammer(&b.shared);
}

static void on_percpu(unsigned int cpu, void *arg)
{
	hammer(&b.percpu[us_this_cpu()].lock);
}

static int run(int argc, char **argv)
{
	const struct bench_number own[] = {{"operations", &b.operations, NULL},
					   {"hold", &b.hold_ns, NULL},
					   {"between", &b.between_ns, NULL},
					   {NULL, NULL, NULL}};
	static struct sim_result shared, percpu;
	struct bench_options o;
	uint64_t total;
	int r;

	b.operations = 10000;
	b.hold_ns = 100;
	b.between_ns = 100;
	r = bench_parse(&o, own, argc, argv);
	if (r)
		return r;
	us_mutex_init(&b.shared, &shared_class);
	for (unsigned int i = 0; i < o.nr_cpus; i++)
		us_mutex_init(&b.percpu[i].lock, &percpu_class);
	if (sim_run(o.nr_cpus, &o.costs, on_shared, NULL, &shared) != 0 ||
	    sim_run(o.nr_cpus, &o.costs, on_percpu, NULL, &percpu) != 0) {
		fprintf(stderr, "uswap-sim: bench lock: %s%s\n", shared.error, percpu.error);
		return 1;
	}
	total = b.operations * o.nr_cpus;
	if (o.json)
		return bench_print_json(json_pack(
			"{s:i, s:s, s:I, s:I, s:I, s:o, s:o}", "version", 1, "preset", o.preset,
			"operations", (json_int_t)b.operations, "hold_ns", (json_int_t)b.hold_ns,
			"between_ns", (json_int_t)b.between_ns, "shared", bench_result_json(&shared),
			"percpu", bench_result_json(&percpu)));
	printf("simulated: %u CPUs, preset %s, held %llu ns, %llu ns between\n", o.nr_cpus, o.preset,
	       (unsigned long long)b.hold_ns, (unsigned long long)b.between_ns);
	bench_result_print("shared", total, &shared);
	bench_result_print("percpu", total, &percpu);
	return 0;
}

const struct sim_bench bench_lock = {
	.name = "lock", .what = "one lock for all CPUs, and one for each", .run = run};
