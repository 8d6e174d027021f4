/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench alloc`: what an allocation of slots costs, by how full the device is.
 *
 * For each order and degree of fullness there is an allocator of its own, filled to the last run and
 * then emptied at random down to that degree, so that what is free is scattered. Then a run drawn at
 * random is freed and one is allocated, again and again; the time stamp counter is read around each
 * of the two calls, and what reading it costs is taken off. The degrees take turns, a round each, so
 * that what slows the machine for a while slows all of them. Calls of more than 20 us, in which the
 * thread lost its CPU, are left out and counted: a share that grows with the fullness would be the
 * allocator's own.
 *
 * No device is behind the allocator: what is measured is finding a place.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "swap/cluster.h"

#define NR_SLOTS ((uint32_t)(GIB(4) >> PAGE_SHIFT))
#define MAX_LEVELS 5u
#define MAX_CPUS 64u
#define MAX_ROUNDS 99u
/* Pairs of calls in a round, all threads together. */
#define DEFAULT_PAIRS 20000u
#define LONGEST_NS 20000u
/* With several threads all free runs may be gone for a moment, one of which is about to come back. */
#define MAX_TRIES 1000000u

static const char usage[] =
	"usage: uswap bench alloc [OPTION]...\n"
	"Cost of an allocation of slots, in nanoseconds a slot, by how full a device of 4 GiB is.\n"
	"With --queue-policy: through the queue of devices; 'uswap bench alloc --queue-policy queue\n"
	"--help' tells more.\n"
	"\n"
	"  --full PERCENT   only so full; default: 10, 50, 90, 99 and 99.9\n"
	"  --order N        only runs of 2^N slots, 0 to 9; default: each order\n"
	"  --cpus N         threads, each on a CPU of its own; default 1\n"
	"  --rounds N       of each degree of fullness; default 9\n"
	"  --pairs N        allocations in a round; default 20000\n"
	"  --json           one JSON document\n";

struct alloc_options {
	unsigned int permille[MAX_LEVELS], nr_levels;
	unsigned int first_order, last_order;
	uint64_t cpus, rounds, pairs;
	bool json;
};

/* One degree of fullness. */
struct level {
	struct clusters clusters;
	bool made;
	unsigned int order, permille;
	uint32_t *runs; /* first slots */
	uint32_t nr_runs;
	double alloc_ns[MAX_ROUNDS], free_ns[MAX_ROUNDS]; /* a slot */
	uint64_t left_out; /* pairs */
};

struct churner {
	struct us_thread thread;
	struct level *level;
	uint32_t first, nr; /* its part of level->runs */
	uint64_t pairs, seed;
	_Atomic unsigned int *waiting; /* threads that have not begun */
	uint64_t longest; /* in ticks */
	uint64_t alloc_ticks, free_ticks, counted;
	int err;
};

/* ---- options ---- */

/* A percentage with at most one decimal. */
static bool parse_full(const char *bench, const char *text, unsigned int *permille)
{
	size_t whole = strcspn(text, ".");
	uint64_t percent, tenth = 0;

	if (cli_parse_uint(text, whole, 100, &percent) &&
	    (!text[whole] || cli_parse_uint(text + whole + 1, strlen(text + whole + 1), 9, &tenth))) {
		*permille = (unsigned int)(percent * 10 + tenth);
		if (*permille && *permille < 1000)
			return true;
	}
	cli_fail("%s: --full '%s': use a percentage from 0.1 to 99.9", bench, text);
	return false;
}

enum { OPT_FULL = 1, OPT_ORDER, OPT_CPUS, OPT_ROUNDS, OPT_PAIRS, OPT_JSON };

static bool take_option(void *host, const char *bench, int id, const char *arg)
{
	struct alloc_options *o = host;
	uint64_t v;

	switch (id) {
	case OPT_FULL:
		o->nr_levels = 1;
		return parse_full(bench, arg, &o->permille[0]);
	case OPT_ORDER:
		if (!bench_uint(bench, "order", arg, 0, MAX_ORDER, &v))
			return false;
		o->first_order = o->last_order = (unsigned int)v;
		return true;
	case OPT_CPUS: {
		long online = sysconf(_SC_NPROCESSORS_ONLN);

		return bench_uint(bench, "cpus", arg, 1,
				  (uint64_t)CLAMP(online, 1l, (long)MAX_CPUS), &o->cpus);
	}
	case OPT_ROUNDS:
		return bench_uint(bench, "rounds", arg, 1, MAX_ROUNDS, &o->rounds);
	case OPT_PAIRS:
		return bench_uint(bench, "pairs", arg, 1, 100000000, &o->pairs);
	default: /* OPT_JSON */
		o->json = true;
		return true;
	}
}

static const struct cli_grammar grammar = {
	.usage = usage,
	.opts = (const struct cli_opt[]){CLI_HELP,
					 {"full", 0, true, OPT_FULL},
					 {"order", 0, true, OPT_ORDER},
					 {"cpus", 0, true, OPT_CPUS},
					 {"rounds", 0, true, OPT_ROUNDS},
					 {"pairs", 0, true, OPT_PAIRS},
					 {"json", 0, false, OPT_JSON},
					 {NULL, 0, false, 0}},
	.option = take_option,
};

/* ---- an allocator of some fullness ---- */

static void level_deinit(struct level *l)
{
	if (l->made)
		clusters_deinit(&l->clusters);
	free(l->runs);
	l->runs = NULL;
	l->made = false;
}

static int level_init(struct level *l, unsigned int order, unsigned int permille)
{
	uint32_t max = NR_SLOTS >> order, keep, slot;
	struct rng rng;
	int err;

	*l = (struct level){.order = order, .permille = permille};
	l->runs = malloc(max * sizeof(*l->runs));
	if (!l->runs)
		return -ENOMEM;
	err = clusters_init(&l->clusters, NR_SLOTS);
	if (err)
		return err;
	l->made = true;
	clusters_set_size(&l->clusters, NR_SLOTS);
	while (l->nr_runs < max && (slot = clusters_alloc(&l->clusters, order)))
		l->runs[l->nr_runs++] = slot;
	keep = (uint32_t)((uint64_t)l->nr_runs * permille / 1000);
	rng_init(&rng, order * 1000 + permille);
	while (l->nr_runs > keep) {
		uint32_t k = (uint32_t)rng_below(&rng, l->nr_runs);

		clusters_free(&l->clusters, l->runs[k], order);
		l->runs[k] = l->runs[--l->nr_runs];
	}
	/* Where the order is large and the device full enough, nothing would be free. */
	if (keep && keep == NR_SLOTS >> order)
		clusters_free(&l->clusters, l->runs[--l->nr_runs], order);
	return 0;
}

/* What was given out is what is used, and all of it can be given back. */
static bool level_is_right(struct level *l)
{
	uint32_t used, peak, usable;

	clusters_usage(&l->clusters, &used, &peak, &usable);
	if (used != l->nr_runs << l->order)
		return false;
	clusters_check(&l->clusters);
	for (uint32_t i = 0; i < l->nr_runs; i++)
		clusters_free(&l->clusters, l->runs[i], l->order);
	clusters_usage(&l->clusters, &used, &peak, &usable);
	return !used;
}

/* ---- the churn ---- */

/*
 * When all that comes before is over. A free writes to lines that are in no cache; the first lock of
 * the allocation after it would wait for them, and what the free costs would be taken for its own.
 */
static uint64_t ticks(void)
{
	uint64_t t;

	__builtin_ia32_mfence();
	__builtin_ia32_lfence();
	t = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return t;
}

struct counter {
	uint64_t cost;	  /* of reading it, in ticks */
	double ns_a_tick;
};

static struct counter calibrate(void)
{
	struct counter c = {.cost = UINT64_MAX};
	uint64_t start_ns = clock_now_ns(), start = ticks();

	for (int i = 0; i < 10000; i++) {
		uint64_t a = ticks(), b = ticks();

		c.cost = MIN(c.cost, b - a);
	}
	while (clock_now_ns() - start_ns < 10 * NSEC_PER_MSEC)
		;
	c.ns_a_tick = (double)(clock_now_ns() - start_ns) / (double)(ticks() - start);
	return c;
}

static void churn(void *arg)
{
	struct churner *ch = arg;
	struct level *l = ch->level;
	struct rng rng;

	rng_init(&rng, ch->seed);
	atomic_fetch_sub(ch->waiting, 1);
	while (atomic_load(ch->waiting))
		cpu_relax();
	for (uint64_t i = 0; i < ch->pairs; i++) {
		uint32_t *run = &l->runs[ch->first + rng_below(&rng, ch->nr)];
		uint64_t t0 = ticks(), t1, t2;
		unsigned int tries = 0;

		clusters_free(&l->clusters, *run, l->order);
		t1 = ticks();
		do
			*run = clusters_alloc(&l->clusters, l->order);
		while (!*run && ++tries < MAX_TRIES);
		t2 = ticks();
		if (!*run) {
			ch->err = -ENOSPC;
			break;
		}
		if (t2 - t0 > ch->longest)
			continue;
		ch->free_ticks += t1 - t0;
		ch->alloc_ticks += t2 - t1;
		ch->counted++;
	}
}

/* Nanoseconds a slot, of nr calls that took so many ticks. */
static double ns_a_slot(const struct counter *c, uint64_t sum, uint64_t nr, unsigned int order)
{
	sum -= MIN(sum, nr * c->cost);
	return (double)sum * c->ns_a_tick / (double)MAX(nr, 1ull) / (double)(1u << order);
}

static int start_threads(struct churner *ch, uint64_t nr)
{
	int err = 0;

	/* The others wait at the start for all: those that cannot be started are taken off. */
	for (uint64_t i = 1; i < nr; i++) {
		err = us_thread_start(&ch[i].thread, "bench", (int)i, churn, &ch[i]);
		if (err) {
			atomic_fetch_sub(ch[i].waiting, (unsigned int)(nr - i));
			break;
		}
	}
	churn(&ch[0]);
	for (uint64_t i = 1; i < nr; i++)
		us_thread_join(&ch[i].thread);
	return err;
}

static int run_round(const struct alloc_options *o, struct level *l, unsigned int round,
		     const struct counter *c)
{
	struct churner ch[MAX_CPUS] = {0};
	uint64_t nr = MIN(o->cpus, (uint64_t)l->nr_runs);
	uint64_t alloc = 0, freed = 0, counted = 0, pairs = MAX(o->pairs / nr, 1ull);
	_Atomic unsigned int waiting = (unsigned int)nr;
	int err;

	for (uint64_t i = 0; i < nr; i++) {
		uint32_t first = (uint32_t)(l->nr_runs * i / nr);

		ch[i] = (struct churner){.level = l,
					 .first = first,
					 .nr = (uint32_t)(l->nr_runs * (i + 1) / nr) - first,
					 .pairs = pairs,
					 .seed = round * MAX_CPUS + i + 1,
					 .longest = (uint64_t)(LONGEST_NS / c->ns_a_tick),
					 .waiting = &waiting};
	}
	err = start_threads(ch, nr);
	for (uint64_t i = 0; i < nr && !err; i++) {
		err = ch[i].err;
		alloc += ch[i].alloc_ticks;
		freed += ch[i].free_ticks;
		counted += ch[i].counted;
	}
	l->alloc_ns[round] = ns_a_slot(c, alloc, counted, l->order);
	l->free_ns[round] = ns_a_slot(c, freed, counted, l->order);
	l->left_out += pairs * nr - counted;
	return err;
}

/* ---- what is printed ---- */

static json_t *spread_json(struct bench_spread s)
{
	return json_pack("{s:f, s:f, s:f}", "median", s.median, "low", s.low, "high", s.high);
}

static void print_head(const struct alloc_options *o)
{
	printf("allocation, ns a slot: median (lowest to highest) of %" PRIu64 " rounds, %" PRIu64
	       " thread%s\n%5s", o->rounds, o->cpus, o->cpus == 1 ? "" : "s", "order");
	for (unsigned int i = 0; i < o->nr_levels; i++)
		printf("  %17u.%u %% full", o->permille[i] / 10, o->permille[i] % 10);
	printf("%s\n", o->nr_levels == MAX_LEVELS ? "   99 % / 10 %" : "");
}

static int report(const struct alloc_options *o, struct level *levels, unsigned int order,
		  json_t *results)
{
	struct bench_spread alloc[MAX_LEVELS];
	uint64_t left_out = 0;

	for (unsigned int i = 0; i < o->nr_levels; i++) {
		struct level *l = &levels[i];

		alloc[i] = bench_spread_of(l->alloc_ns, (unsigned int)o->rounds);
		json_array_append_new(
			results,
			json_pack("{s:i, s:f, s:I, s:o, s:o}", "order", (int)order, "full",
				  l->permille / 10.0, "left_out", (json_int_t)l->left_out,
				  "alloc_ns_a_slot", spread_json(alloc[i]),
				  "free_ns_a_slot",
				  spread_json(bench_spread_of(l->free_ns,
							      (unsigned int)o->rounds))));
	}
	if (o->json)
		return 0;
	printf("%5u", order);
	for (unsigned int i = 0; i < o->nr_levels; i++)
		printf("  %8.2f (%.2f to %.2f)", alloc[i].median, alloc[i].low, alloc[i].high);
	if (o->nr_levels == MAX_LEVELS)
		printf("  %.2f", alloc[3].median / alloc[0].median);
	for (unsigned int i = 0; i < o->nr_levels; i++)
		left_out = MAX(left_out, levels[i].left_out);
	if (left_out * 1000 > o->pairs * o->rounds)
		printf("  (up to %.1f %% left out)",
		       100.0 * (double)left_out / (double)(o->pairs * o->rounds));
	printf("\n");
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

static int measure_order(const char *bench, const struct alloc_options *o, unsigned int order,
			 json_t *results)
{
	struct level *levels = calloc(o->nr_levels, sizeof(*levels));
	struct counter counter = calibrate();
	int err = levels ? 0 : -ENOMEM, rc = 0;

	for (unsigned int i = 0; i < o->nr_levels && !err; i++)
		err = level_init(&levels[i], order, o->permille[i]);
	for (unsigned int round = 0; round < o->rounds && !err; round++)
		for (unsigned int i = 0; i < o->nr_levels && !err; i++)
			err = run_round(o, &levels[i], round, &counter);
	if (err)
		rc = cli_fail("%s: order %u: %s", bench, order, strerror(-err));
	else
		rc = report(o, levels, order, results);
	for (unsigned int i = 0; levels && i < o->nr_levels; i++) {
		if (!rc && !level_is_right(&levels[i]))
			rc = cli_fail("%s: order %u: the allocator lost count", bench, order);
		level_deinit(&levels[i]);
	}
	free(levels);
	return rc;
}

static bool names_queue(int argc, char **argv)
{
	static const char *const options[] = {"--queue-policy", "--devices"};

	for (int i = 1; i < argc; i++)
		for (unsigned int o = 0; o < ARRAY_SIZE(options); o++) {
			size_t len = strlen(options[o]);

			if (!strncmp(argv[i], options[o], len) &&
			    (!argv[i][len] || argv[i][len] == '='))
				return true;
		}
	return false;
}

int bench_alloc(int argc, char **argv)
{
	struct alloc_options o = {.permille = {100, 500, 900, 990, 999},
				  .nr_levels = MAX_LEVELS,
				  .last_order = MAX_ORDER,
				  .cpus = 1,
				  .rounds = 9,
				  .pairs = DEFAULT_PAIRS};
	json_t *results;
	int rc;

	if (names_queue(argc, argv))
		return bench_alloc_queue(argc, argv);
	rc = cli_parse(argc, argv, &grammar, &o);
	if (rc >= 0)
		return rc;
	rc = 0;
	results = json_array();
	if (!o.json)
		print_head(&o);
	for (unsigned int order = o.first_order; order <= o.last_order && !rc; order++)
		rc = measure_order(argv[0], &o, order, results);
	if (rc || !o.json) {
		json_decref(results);
		return rc;
	}
	return bench_print_json(argv[0],
				json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:o}", "version", 1, "bench",
					  "alloc", "slots", (json_int_t)NR_SLOTS, "cpus",
					  (json_int_t)o.cpus, "rounds", (json_int_t)o.rounds, "pairs",
					  (json_int_t)o.pairs, "results", results));
}
