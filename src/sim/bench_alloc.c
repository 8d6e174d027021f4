/* SPDX-License-Identifier: MIT */
/*
 * `uswap-sim bench alloc`: system time a page, lock by lock, of a load that swaps out, for one
 * policy of the queue or several; and over which costs of hand-overs and lines they compare as they
 * do.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/alloc_run.h"
#include "sim/bench_sim.h"

#define UNSET UINT64_MAX
#define SWEEP_RATIO 2.0 /* system time of plist-percpu, in those of plist-shared */

static const char *const default_arms[] = {"plist-shared", "plist-percpu", "queue"};

struct options {
	struct bench_options common;
	struct alloc_args args;
	const char *policy, *load, *sweep;
	uint64_t devices, full, operations, work_ns, outside_ns, batch, large, order, handoff_ns;
};

static struct alloc_result results[NR_POLICIES];

static int complain(const char *what, const char *about)
{
	fprintf(stderr, "uswap-sim: bench alloc: %s%s\n", what, about);
	return 2;
}

/* ---- what a sweep goes over ---- */

/* The first point is 0, the next ones double from `first` on, up to `last`. */
struct axis {
	const char *name, *unit, *key;
	uint64_t first, last;
	void (*set)(struct sim_costs *to, const struct sim_costs *preset, uint64_t value);
};

static void set_handoff(struct sim_costs *to, const struct sim_costs *preset, uint64_t ns)
{
	(void)preset;
	to->handoff_ns = ns;
}

/* All that is the way of a line: so a machine whose caches are as busy as its CPUs. */
static void set_lines(struct sim_costs *to, const struct sim_costs *preset, uint64_t percent)
{
	to->line_near_ns = preset->line_near_ns * percent / 100;
	to->line_far_ns = preset->line_far_ns * percent / 100;
	to->line_remote_ns = preset->line_remote_ns * percent / 100;
	to->handoff_ns = preset->handoff_ns * percent / 100;
}

static const struct axis axes[] = {
	{"handoff", "ns a hand-over", "handoff_ns", 64, 16384, set_handoff},
	{"lines", "percent of the preset's way of a line and hand-over", "percent", 25, 1600,
	 set_lines},
};

static const struct axis *axis_by_name(const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(axes); i++)
		if (!strcmp(name, axes[i].name))
			return &axes[i];
	return NULL;
}

/* ---- options ---- */

static int check(struct options *o)
{
	if (o->policy && strcmp(o->policy, "all") && strcmp(o->policy, "none") &&
	    policy_by_name(o->policy) == POLICY_DEFAULT)
		return complain("there is no policy ", o->policy);
	if (o->policy && !strcmp(o->policy, "none") && o->devices != 1)
		return complain("without a queue there is one device: --devices 1", "");
	if (o->sweep && !axis_by_name(o->sweep))
		return complain("the sweep is over: handoff, lines, not ", o->sweep);
	if (!o->devices || o->devices > QUEUE_MAX_DEVS)
		return complain("--devices takes 1 to 64", "");
	if (o->full >= o->devices)
		return complain("--full takes less than there are devices", "");
	if (!o->operations)
		return complain("--operations takes 1 or more", "");
	if (o->args.load.large_order > MAX_ORDER || o->args.load.large_permille > 1000)
		return complain("at most --large 1000, of --order 9", "");
	return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
	const struct bench_number own[] = {
		{"queue-policy", NULL, &o->policy},
		{"devices", &o->devices, NULL},
		{"full", &o->full, NULL},
		{"load", NULL, &o->load},
		{"work", &o->work_ns, NULL},
		{"outside", &o->outside_ns, NULL},
		{"batch", &o->batch, NULL},
		{"large", &o->large, NULL},
		{"order", &o->order, NULL},
		{"operations", &o->operations, NULL},
		{"handoff", &o->handoff_ns, NULL},
		{"sweep", NULL, &o->sweep},
		{NULL, NULL, NULL}};
	struct alloc_load *l = &o->args.load;
	char err[512];
	int r;

	*o = (struct options){.load = "kernel-build-2g", .devices = 8, .operations = 2000,
			      .work_ns = UNSET, .outside_ns = UNSET, .batch = UNSET,
			      .large = UNSET, .order = UNSET, .handoff_ns = UNSET};
	r = bench_parse(&o->common, own, argc, argv);
	if (r)
		return r;
	if (alloc_load_read(l, o->load, err, sizeof(err)) != 0)
		return complain(err, "");
	l->work_ns = o->work_ns != UNSET ? o->work_ns : l->work_ns;
	l->outside_ns = o->outside_ns != UNSET ? o->outside_ns : l->outside_ns;
	l->batch_folios = o->batch != UNSET ? o->batch : l->batch_folios;
	l->large_permille = o->large != UNSET ? o->large : l->large_permille;
	l->large_order = o->order != UNSET ? o->order : l->large_order;
	r = check(o);
	if (r)
		return r;
	o->args.costs = o->common.costs;
	if (o->handoff_ns != UNSET)
		o->args.costs.handoff_ns = o->handoff_ns;
	o->args.nr_cpus = o->common.nr_cpus;
	o->args.nr_devs = (unsigned int)o->devices;
	o->args.nr_full = (unsigned int)o->full;
	o->args.folios = o->operations;
	return 0;
}

/* ---- arms ---- */

static int run_arm(struct options *o, const char *name, struct alloc_result *r)
{
	o->args.policy = policy_by_name(name);
	if (alloc_run(&o->args, r) == 0)
		return 0;
	fprintf(stderr, "uswap-sim: bench alloc: %s: %s\n", name, r->sim.error);
	return 1;
}

static void print_arm(const char *name, const struct alloc_result *r, const struct alloc_result *base)
{
	uint64_t acquired = 0, contended = 0, wait_ns = 0, stall = 0;
	double pages = (double)r->pages, folios = (double)r->folios;

	for (unsigned int i = 0; i < r->sim.nr_locks; i++) {
		acquired += r->sim.lock[i].acquired;
		contended += r->sim.lock[i].contended;
		wait_ns += r->sim.lock[i].wait_ns;
	}
	for (unsigned int i = 0; i < r->sim.nr_cpus; i++)
		stall += r->sim.cpu[i].stall_ns;
	printf("%-13s %9.0f %7.3f %8.0f %7.0f %7.1f %8.3f %8.4f %8.0f %7.3f %8.3f\n", name,
	       alloc_system_a_page(r), alloc_system_a_page(r) / alloc_system_a_page(base),
	       (double)r->alloc_ns / folios, (double)r->free_ns / folios, (double)stall / pages,
	       (double)acquired / folios, (double)contended / folios, (double)wait_ns / folios,
	       100 * alloc_wait_share(r), (double)r->most / (double)r->least);
}

static void print_locks(const char *name, const struct alloc_result *r)
{
	for (unsigned int i = 0; i < r->sim.nr_locks; i++)
		printf("  %-13s lock %-20s acquired %" PRIu64 "  contended %" PRIu64
		       "  wait_ns %" PRIu64 "\n", name, r->sim.lock[i].name,
		       r->sim.lock[i].acquired, r->sim.lock[i].contended, r->sim.lock[i].wait_ns);
}

static json_t *arm_json(const char *name, const struct alloc_result *r)
{
	json_t *given = json_array();

	for (unsigned int d = 0; d < QUEUE_MAX_DEVS && r->given[d]; d++)
		json_array_append_new(given, json_integer((json_int_t)r->given[d]));
	return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "policy", name,
			 "folios", (json_int_t)r->folios, "pages", (json_int_t)r->pages, "split",
			 (json_int_t)r->split, "system_ns_a_page", alloc_system_a_page(r),
			 "alloc_ns", (double)r->alloc_ns / (double)r->folios, "free_ns",
			 (double)r->free_ns / (double)r->folios, "wait_share", alloc_wait_share(r),
			 "most_to_least", (double)r->most / (double)r->least, "given", given,
			 "simulated", bench_result_json(&r->sim));
}

static unsigned int arms_of(const struct options *o, const char **names)
{
	unsigned int n = 0;

	if (o->policy && strcmp(o->policy, "all")) {
		names[n++] = o->policy;
		return n;
	}
	for (; n < ARRAY_SIZE(default_arms); n++)
		names[n] = default_arms[n];
	for (unsigned int p = POLICY_QUEUE; o->policy && p < NR_POLICIES; p++)
		if (p != POLICY_QUEUE && p != POLICY_PLIST_SHARED && p != POLICY_PLIST_PERCPU)
			names[n++] = policy_name((enum queue_policy)p);
	return n;
}

static void print_head(const struct options *o)
{
	const struct alloc_args *a = &o->args;

	printf("simulated: %u CPUs, preset %s, hand-over %" PRIu64 " ns, %u devices (%u full), load %s:\n"
	       "%" PRIu64 " ns of work a page, %" PRIu64 " ns outside, batches of %" PRIu64 " with %" PRIu64
	       " ns between,\n%" PRIu64 " of 1000 folios of order %" PRIu64 "\n",
	       a->nr_cpus, o->common.preset, a->costs.handoff_ns, a->nr_devs, a->nr_full, o->load,
	       a->load.work_ns, a->load.outside_ns, a->load.batch_folios, a->load.in_batch_ns,
	       a->load.large_permille, a->load.large_order);
}

static int run_arms(struct options *o)
{
	const char *names[NR_POLICIES];
	unsigned int n = arms_of(o, names);
	json_t *arms = json_array();

	for (unsigned int i = 0; i < n; i++) {
		if (run_arm(o, names[i], &results[i])) {
			json_decref(arms);
			return 1;
		}
		json_array_append_new(arms, arm_json(names[i], &results[i]));
	}
	if (o->common.json)
		return bench_print_json(json_pack(
			"{s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			"version", 1, "bench", "alloc", "preset", o->common.preset, "load", o->load,
			"cpus", (int)o->args.nr_cpus, "devices", (int)o->args.nr_devs, "full",
			(int)o->args.nr_full, "handoff_ns", (json_int_t)o->args.costs.handoff_ns,
			"work_ns", (json_int_t)o->args.load.work_ns, "outside_ns",
			(json_int_t)o->args.load.outside_ns, "batch_folios",
			(json_int_t)o->args.load.batch_folios, "in_batch_ns",
			(json_int_t)o->args.load.in_batch_ns, "large_permille",
			(json_int_t)o->args.load.large_permille, "large_order",
			(json_int_t)o->args.load.large_order, "arms", arms));
	json_decref(arms);
	print_head(o);
	printf("%-13s %9s %7s %8s %7s %7s %8s %8s %8s %7s %8s\n", "policy", "system ns", "ratio",
	       "alloc ns", "free ns", "stalls", "locks", "contend", "wait ns", "wait %", "max/min");
	for (unsigned int i = 0; i < n; i++)
		print_arm(names[i], &results[i], &results[0]);
	for (unsigned int i = 0; i < n; i++)
		print_locks(names[i], &results[i]);
	return 0;
}

/* ---- the sweep ---- */

/* percpu and queue, in the system time of shared, at that point. */
static int ratios(struct options *o, const struct axis *x, uint64_t value, double *b, double *c)
{
	x->set(&o->args.costs, &o->common.costs, value);
	for (unsigned int i = 0; i < ARRAY_SIZE(default_arms); i++)
		if (run_arm(o, default_arms[i], &results[i]))
			return 1;
	*b = alloc_system_a_page(&results[1]) / alloc_system_a_page(&results[0]);
	*c = alloc_system_a_page(&results[2]) / alloc_system_a_page(&results[0]);
	return 0;
}

static int one_point(struct options *o, const struct axis *x, uint64_t value, json_t *points,
		     double *b, double *worst)
{
	double c;

	if (ratios(o, x, value, b, &c))
		return 1;
	*worst = MAX(*worst, c);
	json_array_append_new(points, json_pack("{s:I, s:f, s:f}", x->key, (json_int_t)value,
						"plist_percpu", *b, "queue", c));
	if (!o->common.json)
		printf("%10" PRIu64 " %13.3f %8.4f\n", value, *b, c);
	return 0;
}

/* low is too little, high is enough: to the unit, but no closer than a hundredth. */
static int bisect(struct options *o, const struct axis *x, uint64_t low, uint64_t *high)
{
	double b, c;

	while (*high - low > MAX(*high / 100, (uint64_t)1)) {
		uint64_t mid = (low + *high) / 2;

		if (ratios(o, x, mid, &b, &c))
			return 1;
		if (b >= SWEEP_RATIO)
			*high = mid;
		else
			low = mid;
	}
	return 0;
}

/* Where plist-percpu reaches SWEEP_RATIO, UNSET if nowhere; and whether it stays there. */
struct reached {
	uint64_t from;
	bool holds_on;
	double queue_worst;
};

static int print_sweep(const struct options *o, const struct axis *x, json_t *points,
		       const struct reached *at)
{
	char from[64];

	if (o->common.json) {
		snprintf(from, sizeof(from), "from_%s", x->key);
		return bench_print_json(json_pack(
			"{s:i, s:s, s:s, s:s, s:i, s:s, s:o, s:o, s:b, s:f}", "version", 1, "bench",
			"alloc", "preset", o->common.preset, "load", o->load, "cpus",
			(int)o->args.nr_cpus, "sweep", x->name, "points", points, from,
			at->from == UNSET ? json_null() : json_integer((json_int_t)at->from),
			"holds_on", (int)at->holds_on, "queue_worst", at->queue_worst));
	}
	json_decref(points);
	if (at->from == UNSET)
		printf("plist-percpu is nowhere %.1f times plist-shared\n", SWEEP_RATIO);
	else
		printf("plist-percpu is %.1f times plist-shared or more from %" PRIu64 " %s on%s\n",
		       SWEEP_RATIO, at->from, x->unit,
		       at->holds_on ? "" : ", but not everywhere above");
	printf("queue is at most %.4f times plist-shared\n", at->queue_worst);
	return 0;
}

static int sweep(struct options *o)
{
	const struct axis *x = axis_by_name(o->sweep);
	struct reached at = {.from = UNSET, .holds_on = true};
	json_t *points = json_array();
	uint64_t low = 0;
	double b = 0;
	int r = 0;

	if (!o->common.json) {
		print_head(o);
		printf("system time a page, in that of plist-shared\n%10s %13s %8s\n", x->key,
		       "plist-percpu", "queue");
	}
	for (uint64_t n = 0; !r && n <= x->last; n = n ? 2 * n : x->first) {
		r = one_point(o, x, n, points, &b, &at.queue_worst);
		if (b < SWEEP_RATIO) {
			at.holds_on &= at.from == UNSET;
			low = n;
		} else if (at.from == UNSET) {
			at.from = n;
		}
	}
	if (!r && at.from != UNSET && at.from)
		r = bisect(o, x, MIN(low, at.from), &at.from);
	if (!r)
		return print_sweep(o, x, points, &at);
	json_decref(points);
	return r;
}

static int run(int argc, char **argv)
{
	struct options o;
	int r = parse(argc, argv, &o);

	if (r)
		return r;
	return o.sweep ? sweep(&o) : run_arms(&o);
}

const struct sim_bench bench_alloc = {
	.name = "alloc", .what = "policies of the queue, with the work of a load around them",
	.run = run};
