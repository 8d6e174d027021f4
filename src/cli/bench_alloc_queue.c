/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench alloc --queue-policy P`: what an allocation costs through the queue of devices, on
 * real threads that do nothing else. Several policies take turns, a round each; each figure is the
 * median of the rounds, and the ratio that of a round to the first policy's same round, so that what
 * slows the machine for a while cancels out.
 *
 * `uswap-sim bench alloc` has the same words for more CPUs than there are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/queue_bench.h"
#include "swap/queue.h"

#define MAX_ROUNDS 99u

static const char usage[] =
	"usage: uswap bench alloc --queue-policy P[,P]... [OPTION]...\n"
	"Cost of an allocation of slots through the queue of devices, threads doing nothing else.\n"
	"\n"
	"  --queue-policy P   plist-shared, plist-percpu, queue, node, fill, weighted, priority;\n"
	"                     all; none: no queue, the one device is called. Several take turns\n"
	"  --devices N        1 to 64; default 8\n"
	"  --full M           so many of them are full, and of a higher priority than the others\n"
	"  --cpus N           threads, each on a CPU of its own; default 1\n"
	"  --order N          of each folio, 0 to 9; default 0\n"
	"  --rounds N         of each policy; default 9\n"
	"  --pairs N          allocations of a thread in a round; default 100000\n"
	"  --json             one JSON document\n";

struct arm {
	const char *name;
	struct queue_bench_args args;
	struct queue_bench_result res[MAX_ROUNDS];
};

struct queue_options {
	struct arm arms[NR_POLICIES];
	unsigned int nr;
	uint64_t devices, full, cpus, order, rounds, allocs;
	bool json;
};

/* ---- options ---- */

static bool add_arm(const char *bench, struct queue_options *o, const char *name, size_t len)
{
	char word[32];

	snprintf(word, sizeof(word), "%.*s", (int)MIN(len, sizeof(word) - 1), name);
	for (unsigned int p = 0; p < NR_POLICIES; p++) {
		const char *known = p ? policy_name((enum queue_policy)p) : "none";

		if (strcmp(word, known))
			continue;
		if (o->nr == ARRAY_SIZE(o->arms))
			break;
		o->arms[o->nr].name = known;
		o->arms[o->nr++].args.policy = (enum queue_policy)p;
		return true;
	}
	cli_fail("%s: --queue-policy '%s': not a policy, or too many", bench, word);
	return false;
}

static bool take_policies(const char *bench, struct queue_options *o, const char *text)
{
	if (!strcmp(text, "all"))
		text = "plist-shared,plist-percpu,queue,node,fill,weighted,priority";
	for (;;) {
		size_t len = strcspn(text, ",");

		if (!add_arm(bench, o, text, len))
			return false;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

enum { OPT_POLICY = 1, OPT_DEVICES, OPT_FULL, OPT_CPUS, OPT_ORDER, OPT_ROUNDS, OPT_PAIRS, OPT_JSON };

static bool take_option(void *host, const char *bench, int id, const char *arg)
{
	struct queue_options *o = host;
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	switch (id) {
	case OPT_POLICY:
		return take_policies(bench, o, arg);
	case OPT_DEVICES:
		return bench_uint(bench, "devices", arg, 1, QUEUE_MAX_DEVS, &o->devices);
	case OPT_FULL:
		return bench_uint(bench, "full", arg, 0, QUEUE_MAX_DEVS - 1, &o->full);
	case OPT_CPUS:
		return bench_uint(bench, "cpus", arg, 1,
				  (uint64_t)CLAMP(online, 1l, (long)BENCH_MAX_THREADS), &o->cpus);
	case OPT_ORDER:
		return bench_uint(bench, "order", arg, 0, MAX_ORDER, &o->order);
	case OPT_ROUNDS:
		return bench_uint(bench, "rounds", arg, 1, MAX_ROUNDS, &o->rounds);
	case OPT_PAIRS:
		return bench_uint(bench, "pairs", arg, 1, 1000000, &o->allocs);
	default: /* OPT_JSON */
		o->json = true;
		return true;
	}
}

static int check(const char *bench, struct queue_options *o)
{
	if (!o->nr)
		return cli_fail("%s: --devices goes with --queue-policy", bench);
	if (o->full >= o->devices)
		return cli_fail("%s: --full %" PRIu64 ": use less than the %" PRIu64 " devices", bench,
				o->full, o->devices);
	for (unsigned int i = 0; i < o->nr; i++) {
		struct queue_bench_args *a = &o->arms[i].args;

		if (a->policy == POLICY_DEFAULT && o->devices != 1)
			return cli_fail("%s: --queue-policy 'none': without a queue there is one "
					"device, so --devices 1", bench);
		*a = (struct queue_bench_args){.policy = a->policy,
					       .nr_devs = (unsigned int)(o->devices - o->full),
					       .full = o->full ? BENCH_FULL_ABOVE : BENCH_FULL_NONE,
					       .nr_full = (unsigned int)o->full,
					       .nr_threads = (unsigned int)o->cpus,
					       .order = (unsigned int)o->order,
					       .nr_allocs = (uint32_t)o->allocs};
	}
	return -1;
}

static const struct cli_grammar grammar = {
	.usage = usage,
	.opts = (const struct cli_opt[]){CLI_HELP,
					 {"queue-policy", 0, true, OPT_POLICY},
					 {"devices", 0, true, OPT_DEVICES},
					 {"full", 0, true, OPT_FULL},
					 {"cpus", 0, true, OPT_CPUS},
					 {"order", 0, true, OPT_ORDER},
					 {"rounds", 0, true, OPT_ROUNDS},
					 {"pairs", 0, true, OPT_PAIRS},
					 {"json", 0, false, OPT_JSON},
					 {NULL, 0, false, 0}},
	.option = take_option,
};

/* ---- what is printed ---- */

enum figure { CPU_NS, WALL_NS, RATIO, FAIR, LOCKS, CONTENDED, WAIT_NS, NR_FIGURES };
static const char *const figure_names[NR_FIGURES] = {
	"cpu_ns", "wall_ns", "ratio", "most_to_least", "acquired", "contended", "wait_ns"};

/* An allocation; of one round. */
static double figure(const struct arm *a, const struct arm *base, unsigned int round, enum figure f)
{
	const struct queue_bench_result *r = &a->res[round];
	double allocs = (double)a->args.nr_allocs * a->args.nr_threads;

	switch (f) {
	case CPU_NS:
		return r->cpu_ns;
	case WALL_NS:
		return r->wall_ns;
	case RATIO:
		return r->cpu_ns / base->res[round].cpu_ns;
	case FAIR:
		return (double)r->most / (double)MAX(r->least, (uint64_t)1);
	case LOCKS:
		return (double)(r->list_acquired + r->device_acquired) / allocs;
	case CONTENDED:
		return (double)(r->list_contended + r->device_contended) / allocs;
	default:
		return (double)(r->list_wait_ns + r->device_wait_ns) / allocs;
	}
}

static struct bench_spread spread(const struct queue_options *o, const struct arm *a, enum figure f)
{
	double v[MAX_ROUNDS];

	for (unsigned int i = 0; i < o->rounds; i++)
		v[i] = figure(a, &o->arms[0], i, f);
	return bench_spread_of(v, (unsigned int)o->rounds);
}

static json_t *arm_json(const struct queue_options *o, const struct arm *a)
{
	json_t *j = json_pack("{s:s}", "policy", a->name);

	for (unsigned int f = 0; f < NR_FIGURES; f++) {
		struct bench_spread s = spread(o, a, (enum figure)f);

		json_object_set_new(j, figure_names[f],
				    json_pack("{s:f, s:f, s:f}", "median", s.median, "low", s.low,
					      "high", s.high));
	}
	return j;
}

static int print_table(const struct queue_options *o)
{
	printf("%" PRIu64 " devices (%" PRIu64 " full), %" PRIu64 " thread%s, order %" PRIu64 ": median "
	       "(lowest to highest) of %" PRIu64 " rounds, for each allocation\n"
	       "%-13s %26s %24s %9s %8s %8s %9s %8s\n", o->devices, o->full, o->cpus,
	       o->cpus == 1 ? "" : "s", o->order, o->rounds, "policy", "cpu ns", "ratio", "wall ns",
	       "locks", "contend", "wait ns", "max/min");
	for (unsigned int i = 0; i < o->nr; i++) {
		const struct arm *a = &o->arms[i];
		struct bench_spread cpu = spread(o, a, CPU_NS), ratio = spread(o, a, RATIO);

		printf("%-13s %9.1f (%.1f to %.1f) %7.3f (%.3f to %.3f) %9.1f %8.4f %8.4f %9.2f "
		       "%8.3f\n", a->name, cpu.median, cpu.low, cpu.high, ratio.median, ratio.low,
		       ratio.high, spread(o, a, WALL_NS).median, spread(o, a, LOCKS).median,
		       spread(o, a, CONTENDED).median, spread(o, a, WAIT_NS).median,
		       spread(o, a, FAIR).median);
	}
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

static int print_json(const char *bench, const struct queue_options *o)
{
	json_t *arms = json_array();

	for (unsigned int i = 0; i < o->nr; i++)
		json_array_append_new(arms, arm_json(o, &o->arms[i]));
	return bench_print_json(
		bench, json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "version", 1, "bench",
				 "alloc", "devices", (json_int_t)o->devices, "full",
				 (json_int_t)o->full, "cpus", (json_int_t)o->cpus, "order",
				 (json_int_t)o->order, "rounds", (json_int_t)o->rounds, "pairs",
				 (json_int_t)o->allocs, "arms", arms));
}

static int run_arms(const char *bench, struct queue_options *o)
{
	for (unsigned int round = 0; round < o->rounds; round++)
		for (unsigned int i = 0; i < o->nr; i++) {
			struct arm *a = &o->arms[i];
			int err = queue_bench(&a->args, &a->res[round]);

			if (err)
				return cli_fail("%s: %s: %s", bench, a->name, strerror(-err));
		}
	return o->json ? print_json(bench, o) : print_table(o);
}

int bench_alloc_queue(int argc, char **argv)
{
	struct queue_options *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return cli_fail("%s: out of memory", argv[0]);
	o->devices = 8;
	o->cpus = 1;
	o->rounds = 9;
	o->allocs = 100000;
	rc = cli_parse(argc, argv, &grammar, o);
	if (rc < 0)
		rc = check(argv[0], o);
	if (rc < 0)
		rc = run_arms(argv[0], o);
	free(o);
	return rc;
}
