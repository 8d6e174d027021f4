/* SPDX-License-Identifier: MIT */
/*
 * What an allocation costs on its way through the queue of devices. Arms of a group are run in turn,
 * so that whatever else the machine does hits all of them; each line is the median of the rounds,
 * with the least and the most, and its ratio to the group's first arm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/readers.h"
#include "cli/queue_bench.h"

#define MAX_ARMS 8
#define MAX_ROUNDS 1000

struct arm {
	const char *name;
	struct queue_bench_args args;
	struct queue_bench_result res[MAX_ROUNDS];
};

static unsigned int rounds = 15;
static uint32_t allocs = 100000;

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

enum figure { WALL, CPU, LEAST_RATIO };

static double figure_of(const struct queue_bench_result *r, enum figure f)
{
	if (f == WALL)
		return r->wall_ns;
	if (f == CPU)
		return r->cpu_ns;
	return r->least ? (double)r->most / (double)r->least : 0;
}

/* Sorted in v; returns the median. */
static double sorted(const struct arm *a, enum figure f, double *v)
{
	for (unsigned int i = 0; i < rounds; i++)
		v[i] = figure_of(&a->res[i], f);
	qsort(v, rounds, sizeof(*v), compare);
	return v[rounds / 2];
}

/* The median of the ratios of the rounds: what drifts over rounds cancels out. */
static double ratio_to(const struct arm *a, const struct arm *base)
{
	double v[MAX_ROUNDS];

	for (unsigned int i = 0; i < rounds; i++)
		v[i] = a->res[i].cpu_ns / base->res[i].cpu_ns;
	qsort(v, rounds, sizeof(*v), compare);
	return v[rounds / 2];
}

static void print_arm(const struct arm *a, const struct arm *base)
{
	const struct queue_bench_result *r = &a->res[rounds - 1];
	double cpu[MAX_ROUNDS], wall[MAX_ROUNDS], fair[MAX_ROUNDS];
	double allocated = (double)a->args.nr_allocs * a->args.nr_threads;

	sorted(a, CPU, cpu);
	sorted(a, WALL, wall);
	sorted(a, LEAST_RATIO, fair);
	printf("%-26s %7.1f [%6.1f %7.1f] %7.3f  %7.1f  %8.4f %8.4f %8.2f  %8.3f\n", a->name,
	       cpu[rounds / 2], cpu[0], cpu[rounds - 1], ratio_to(a, base), wall[rounds / 2],
	       (double)r->list_acquired / allocated, (double)r->list_contended / allocated,
	       (double)r->list_wait_ns / allocated, fair[rounds / 2]);
}

static int run_group(const char *title, struct arm *arms, unsigned int n)
{
	for (unsigned int r = 0; r < rounds; r++) {
		for (unsigned int i = 0; i < n; i++) {
			int err = queue_bench(&arms[i].args, &arms[i].res[r]);

			if (err) {
				fprintf(stderr, "%s: %s\n", arms[i].name, strerror(-err));
				return 1;
			}
		}
	}
	printf("\n%s\n%-26s %7s [%6s %7s] %7s  %7s  %8s %8s %8s  %8s\n", title, "arm", "cpu ns",
	       "least", "most", "ratio", "wall ns", "locks", "contend", "wait ns", "max/min");
	for (unsigned int i = 0; i < n; i++)
		print_arm(&arms[i], &arms[0]);
	fflush(stdout);
	return 0;
}

static struct arm arms[MAX_ARMS];

static struct arm *set_arm(unsigned int i, const char *name, enum queue_policy policy,
			   unsigned int nr_devs, unsigned int threads, enum bench_device device)
{
	memset(&arms[i], 0, sizeof(arms[i]));
	arms[i].name = name;
	arms[i].args = (struct queue_bench_args){.policy = policy,
						 .device = device,
						 .nr_devs = nr_devs,
						 .nr_threads = threads,
						 .nr_allocs = allocs};
	return &arms[i];
}

static int group_policies(unsigned int threads, enum bench_device device)
{
	char title[100];
	unsigned int n = 0;

	set_arm(n++, "plist-shared (A)", POLICY_PLIST_SHARED, 8, threads, device);
	set_arm(n++, "plist-percpu (B)", POLICY_PLIST_PERCPU, 8, threads, device);
	set_arm(n++, "queue (C)", POLICY_QUEUE, 8, threads, device);
	set_arm(n++, "weighted", POLICY_WEIGHTED, 8, threads, device);
	set_arm(n++, "node", POLICY_NODE, 8, threads, device);
	set_arm(n++, "fill", POLICY_FILL, 8, threads, device);
	snprintf(title, sizeof(title), "8 devices (%s), %u thread%s",
		 device == BENCH_BARE ? "bare" : "clusters", threads, threads > 1 ? "s" : "");
	return run_group(title, arms, n);
}

static int group_one_device(unsigned int threads, enum bench_device device)
{
	char title[100];

	set_arm(0, "the device itself", POLICY_DEFAULT, 1, threads, device);
	set_arm(1, "ring of one device", POLICY_QUEUE, 1, threads, device);
	set_arm(2, "ring of two devices", POLICY_QUEUE, 2, threads, device);
	snprintf(title, sizeof(title), "one device (%s), %u thread%s",
		 device == BENCH_BARE ? "bare" : "clusters", threads, threads > 1 ? "s" : "");
	return run_group(title, arms, 3);
}

static int group_full(enum bench_device device)
{
	static const char *const names[] = {"free one alone", "63 full peers",
					    "63 full above, one ring", "63 full above, each own"};
	char title[100];

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		struct arm *a = set_arm(i, names[i], POLICY_QUEUE, 1, 1, device);

		a->args.full = (enum bench_full)i;
		a->args.nr_full = i ? 63 : 0;
	}
	snprintf(title, sizeof(title), "full devices (%s), 1 thread",
		 device == BENCH_BARE ? "bare" : "clusters");
	return run_group(title, arms, ARRAY_SIZE(names));
}

int main(int argc, char **argv)
{
	int wrong = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			rounds = (unsigned int)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--allocs") && i + 1 < argc)
			allocs = (uint32_t)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--no-membarrier"))
			us_read_without_kernel();
		else
			wrong = 1;
	}
	if (wrong || !rounds || rounds > MAX_ROUNDS || !allocs) {
		fprintf(stderr, "usage: bench-queue [--rounds 1..%d] [--allocs N] "
				"[--no-membarrier]\n", MAX_ROUNDS);
		return 125;
	}
	printf("%u rounds of %u allocations a thread, arms in turn; locks, contend, wait: an "
	       "allocation\n", rounds, allocs);
	for (int d = BENCH_CLUSTERS; d <= BENCH_BARE; d++) {
		wrong |= group_one_device(1, (enum bench_device)d);
		wrong |= group_full((enum bench_device)d);
		wrong |= group_policies(1, (enum bench_device)d);
		wrong |= group_policies(2, (enum bench_device)d);
	}
	return wrong;
}
