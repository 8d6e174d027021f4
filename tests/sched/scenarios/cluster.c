/* SPDX-License-Identifier: MIT */
/*
 * The allocator of a device's slots: no two runs overlap; what is free is found, whoever holds a
 * lock at that moment; nothing is given out once a device is disabled.
 */
#include "scenario.h"
#include "swap/cluster.h"

static struct clusters c;
static uint32_t slots[MAX_PARTS];
static uint32_t used_when_disabled;

/* Two CPUs' places to go on. */
static void begin(uint32_t nr_slots)
{
	sim_check(clusters_init(&c, nr_slots) == 0);
	clusters_set_size(&c, nr_slots);
	memset(slots, 0, sizeof(slots));
}

static uint32_t used(void)
{
	uint32_t n, peak, usable;

	clusters_usage(&c, &n, &peak, &usable);
	return n;
}

static bool overlap(uint32_t a, uint32_t na, uint32_t b, uint32_t nb)
{
	return a && b && a < b + nb && b < a + na;
}

/* orders[i]: of slots[i]. All of it goes back, and then it is whole again. */
static void end(const unsigned int *orders, unsigned int n)
{
	clusters_check(&c);
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int k = 0; k < i; k++)
			sim_check(!overlap(slots[i], 1u << orders[i], slots[k], 1u << orders[k]));
	for (unsigned int i = 0; i < n; i++)
		if (slots[i])
			clusters_free(&c, slots[i], orders[i]);
	clusters_check(&c);
	sim_check(used() == 0);
	clusters_deinit(&c);
}

static void alloc_0(void *arg)
{
	slots[(uintptr_t)arg] = clusters_alloc(&c, 0);
}

static void alloc_8(void *arg)
{
	slots[(uintptr_t)arg] = clusters_alloc(&c, 8);
}

static void free_0th(void *arg)
{
	(void)arg;
	clusters_free(&c, slots[0], 8);
	slots[0] = 0;
}

static void disable(void *arg)
{
	(void)arg;
	clusters_disable(&c);
	used_when_disabled = used();
}

/* Three runs of 256 for three threads: slot 0 spoils the first half of the first cluster. */
static void run_enough_for_all(void)
{
	const unsigned int orders[] = {8, 8, 8};

	begin(1024);
	RUN_PARTS(PART(alloc_8, (void *)0), PART(alloc_8, (void *)1), PART(alloc_8, (void *)2));
	sim_check(slots[0] && slots[1] && slots[2]);
	sim_check(!clusters_alloc(&c, 8));
	end(orders, 3);
}

/* One is taken by a page, which may take from the clusters of the other order. */
static void run_orders(void)
{
	const unsigned int orders[] = {0, 8};

	begin(1024);
	RUN_PARTS(PART(alloc_0, (void *)0), PART(alloc_8, (void *)1));
	sim_check(slots[0] && slots[1]);
	end(orders, 2);
}

/*
 * The only run is freed while somebody looks for one. A search in vain is remembered: not if the
 * run came free behind it.
 */
static void run_last_run(void)
{
	const unsigned int orders[] = {8, 8};

	begin(512);
	slots[0] = clusters_alloc(&c, 8);
	sim_check(slots[0]);
	RUN_PARTS(PART(free_0th, NULL), PART(alloc_8, (void *)1));
	if (!slots[1])
		slots[1] = clusters_alloc(&c, 8);
	sim_check(slots[1]);
	end(orders, 2);
}

static void run_disable(void)
{
	const unsigned int orders[] = {8, 0};

	begin(1024);
	RUN_PARTS(PART(alloc_8, (void *)0), PART(disable, NULL));
	sim_check(used() == used_when_disabled);
	sim_check(!clusters_alloc(&c, 0));
	clusters_enable(&c);
	sim_check((slots[1] = clusters_alloc(&c, 0)) != 0);
	end(orders, 2);
}

SCENARIO(cluster_enough_for_all, .what = "three runs for three threads",
	 .run = run_enough_for_all, .nr_cpus = 2);
SCENARIO(cluster_orders, .what = "a page and a large run", .run = run_orders, .nr_cpus = 2);
SCENARIO(cluster_last_run, .what = "the only run is freed while one is looked for",
	 .run = run_last_run, .nr_cpus = 2);
SCENARIO(cluster_disable, .what = "a device is disabled while slots are taken",
	 .run = run_disable, .nr_cpus = 2);
