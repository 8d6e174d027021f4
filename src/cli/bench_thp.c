/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench thp`: do large folios find room on a device that is nearly full?
 *
 * The load is that of thp_swap_allocator_test of the kernel (tools/mm), which the cluster allocator
 * was judged by: a device of 64 MiB, 60 MiB of memory in folios of 64 KiB, all of it out. In each
 * iteration 16 MiB come back at random, 16 MiB in random blocks are dropped and written anew, and
 * everything goes out again. Pages that come back alone leave holes of their size, so aligned runs
 * vanish although a sixteenth of the device is free; with --small not a single slot is.
 *
 * It cannot be passed by storing nothing, or the wrong thing: every page is checked after each
 * iteration, and the slots in use are counted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_device.h"
#include "cli/bench_region.h"
#include "cli/cli.h"
#include "trace/vmstat.h"

#define FOLIO_ORDER 4u
#define FOLIO_PAGES (1u << FOLIO_ORDER)
#define LARGE_PAGES ((uint32_t)(MIB(60) >> PAGE_SHIFT))
#define SMALL_PAGES ((uint32_t)(MIB(4) >> PAGE_SHIFT))
#define IN_PAGES ((uint32_t)(MIB(16) >> PAGE_SHIFT))
#define ANEW_PAGES ((uint32_t)(MIB(16) >> PAGE_SHIFT))
#define SMALL_IN_PAGES ((uint32_t)(MIB(1) >> PAGE_SHIFT))
#define USABLE_PAGES ((uint32_t)(MIB(64) >> PAGE_SHIFT)) /* and slot 0 */
#define CACHE_BYTES MIB(8)

static const char usage[] =
	"usage: uswap bench thp [OPTION]...\n"
	"60 MiB in folios of 64 KiB on a device of 64 MiB: page in, write anew, page out. Prints in\n"
	"each iteration how many folios went out whole, and how many found no room whole.\n"
	"\n"
	"  --aligned          page in whole folios; default: single pages\n"
	"  --small            also 4 MiB of single pages, which fill the device to the last slot\n"
	"  --iterations N     default 100\n"
	"  --seed N           of what is paged in and written; default 1\n"
	"  --device DEVICE    zram (the default), ram, file:PATH (a new file; with ,force one\n"
	"                     that is there, whose content is lost)\n"
	"  --json             one JSON document\n";

struct thp_options {
	bool aligned, small, json, plant;
	uint64_t iterations, seed;
	const char *device;
};

struct iteration {
	uint64_t swpout, fallback;
	uint64_t written, relocated; /* pages */
	uint64_t used_bytes;
	uint64_t page_out_ns;
};

struct thp {
	const char *name; /* for messages */
	struct thp_options o;
	struct bench_engine engine;
	struct bench_region large, small;
	struct rng rng;
	struct iteration *iterations;
	uint64_t nr_done, wrong_pages;
	uint64_t least_used_bytes;
};

/* ---- options ---- */

enum { OPT_ALIGNED = 1, OPT_SMALL, OPT_ITERATIONS, OPT_SEED, OPT_DEVICE, OPT_JSON, OPT_PLANT };

static bool take_option(void *host, const char *bench, int id, const char *arg)
{
	struct thp_options *o = host;

	switch (id) {
	case OPT_ALIGNED:
		o->aligned = true;
		return true;
	case OPT_SMALL:
		o->small = true;
		return true;
	case OPT_ITERATIONS:
		return bench_uint(bench, "iterations", arg, 1, 1000000, &o->iterations);
	case OPT_SEED:
		return bench_uint(bench, "seed", arg, 0, UINT64_MAX, &o->seed);
	case OPT_DEVICE:
		o->device = arg;
		return true;
	case OPT_JSON:
		o->json = true;
		return true;
	default: /* OPT_PLANT, for tests: one page goes out with a bit flipped */
		o->plant = true;
		return true;
	}
}

static const struct cli_grammar grammar = {
	.usage = usage,
	.opts = (const struct cli_opt[]){CLI_HELP,
					 {"aligned", 0, false, OPT_ALIGNED},
					 {"small", 0, false, OPT_SMALL},
					 {"iterations", 0, true, OPT_ITERATIONS},
					 {"seed", 0, true, OPT_SEED},
					 {"device", 0, true, OPT_DEVICE},
					 {"json", 0, false, OPT_JSON},
					 {"plant", 0, false, OPT_PLANT},
					 {NULL, 0, false, 0}},
	.option = take_option,
};

/* ---- set-up ---- */

static int create_engine(struct thp *t)
{
	uint64_t bytes = ((uint64_t)USABLE_PAGES + 1) << PAGE_SHIFT;
	int err, rc = 0;
	struct dev *d = bench_device_create(t->name, t->o.device, bytes, &rc);

	if (!d)
		return rc;
	t->engine.in_memory = dev_in_memory(d);
	err = hash_init();
	if (!err)
		t->engine.swap = swap_create(
			&(struct swap_config){.cache_bytes = CACHE_BYTES}, &err);
	if (!err)
		err = swap_on(t->engine.swap, d, &(struct swap_on_config){0});
	if (err) {
		dev_destroy(d);
		return cli_fail("%s: %s", t->name, strerror(-err));
	}
	return 0;
}

static int set_up(struct thp *t)
{
	int err, rc = create_engine(t);

	if (rc)
		return rc;
	t->iterations = calloc(t->o.iterations, sizeof(*t->iterations));
	err = t->iterations ? 0 : -ENOMEM;
	if (!err)
		err = region_init(&t->large, &t->engine, LARGE_PAGES, FOLIO_ORDER, 2 * t->o.seed);
	if (!err && t->o.small)
		err = region_init(&t->small, &t->engine, SMALL_PAGES, 0, 2 * t->o.seed + 1);
	return err ? cli_fail("%s: %s", t->name, strerror(-err)) : 0;
}

static void tear_down(struct thp *t)
{
	if (t->large.engine)
		region_deinit(&t->large);
	if (t->small.engine)
		region_deinit(&t->small);
	swap_destroy(t->engine.swap);
	free(t->iterations);
}

/* ---- the load ---- */

static uint64_t used_bytes(const struct thp *t)
{
	struct swap_dev_info info;

	swap_dev_info(t->engine.swap, 0, &info);
	return info.used_bytes;
}

static uint64_t swpout(void)
{
	struct order_stat *st = &order_stats[FOLIO_ORDER];

	return atomic_load(&st->swpout) + atomic_load(&st->zswpout);
}

static uint64_t fallback(void)
{
	return atomic_load(&order_stats[FOLIO_ORDER].swpout_fallback);
}

static uint64_t written_pages(void)
{
	return vmstat_get(VMSTAT_pswpout) + vmstat_get(VMSTAT_zswpout);
}

static int fail_at(const struct thp *t, const char *what, int err)
{
	return cli_fail("%s: iteration %" PRIu64 ": %s: %s", t->name, t->nr_done, what,
			err == -ENOSPC ? "a page found no room on the device" : strerror(-err));
}

static int page_in(struct thp *t)
{
	int err = 0;

	if (t->o.aligned) {
		for (uint32_t i = 0; i < IN_PAGES / FOLIO_PAGES && !err; i++)
			err = region_touch_folio(&t->large,
						 (uint32_t)rng_below(&t->rng, LARGE_PAGES));
	} else {
		for (uint32_t i = 0; i < IN_PAGES && !err; i++)
			err = region_touch(&t->large, (uint32_t)rng_below(&t->rng, LARGE_PAGES));
	}
	return err ? fail_at(t, "paging in", err) : 0;
}

static int change_memory(struct thp *t)
{
	int rc = page_in(t), err = 0;

	if (rc)
		return rc;
	for (uint32_t i = 0; i < ANEW_PAGES / FOLIO_PAGES; i++)
		region_rewrite(&t->large, (uint32_t)rng_below(&t->rng, LARGE_PAGES));
	for (uint32_t i = 0; t->o.small && i < SMALL_IN_PAGES && !err; i++)
		err = region_touch(&t->small, (uint32_t)rng_below(&t->rng, SMALL_PAGES));
	return err ? fail_at(t, "paging in small pages", err) : 0;
}

/* Everything goes out, and is there, unharmed. */
static int page_out(struct thp *t)
{
	int64_t wrong, wrong_small = 0;
	uint64_t used;
	int err = region_page_out(&t->large);

	if (!err && t->o.small)
		err = region_page_out(&t->small);
	if (err)
		return fail_at(t, "paging out", err);
	used = used_bytes(t);
	t->least_used_bytes = MIN(t->least_used_bytes, used);
	if (used < (uint64_t)LARGE_PAGES << PAGE_SHIFT)
		return cli_fail("%s: iteration %" PRIu64 ": the device holds only %" PRIu64
				" bytes of 60 MiB", t->name, t->nr_done, used);
	wrong = region_check(&t->large);
	if (wrong >= 0 && t->o.small)
		wrong_small = region_check(&t->small);
	if (wrong < 0 || wrong_small < 0)
		return fail_at(t, "reading back", (int)MIN(wrong, wrong_small));
	t->wrong_pages += (uint64_t)(wrong + wrong_small);
	if (wrong + wrong_small)
		return cli_fail("%s: iteration %" PRIu64 ": %" PRId64 " pages have wrong content",
				t->name, t->nr_done, wrong + wrong_small);
	return 0;
}

static double percent(uint64_t part, uint64_t rest)
{
	return part ? 100.0 * (double)part / (double)(part + rest) : 0;
}

static int one_iteration(struct thp *t)
{
	struct iteration *it = &t->iterations[t->nr_done++];
	struct iteration before;
	int rc = change_memory(t);

	if (rc)
		return rc;
	before = (struct iteration){.swpout = swpout(),
				    .fallback = fallback(),
				    .written = written_pages(),
				    .relocated = vmstat_get(VMSTAT_swap_relocated),
				    .page_out_ns = clock_now_ns()};
	if (t->o.plant)
		t->engine.plant = true;
	rc = page_out(t);
	*it = (struct iteration){.swpout = swpout() - before.swpout,
				 .fallback = fallback() - before.fallback,
				 .written = written_pages() - before.written,
				 .relocated = vmstat_get(VMSTAT_swap_relocated) - before.relocated,
				 .used_bytes = used_bytes(t),
				 .page_out_ns = clock_now_ns() - before.page_out_ns};
	if (!t->o.json && !rc) {
		printf("Iteration %" PRIu64 ": swpout inc: %" PRIu64 ", swpout fallback inc: %" PRIu64
		       ", Fallback percentage: %.2f%%\n",
		       t->nr_done, it->swpout, it->fallback, percent(it->fallback, it->swpout));
		if (fflush(stdout))
			return cli_fail("standard output cannot be written");
	}
	return rc;
}

static int run(struct thp *t)
{
	int rc;

	rng_init(&t->rng, t->o.seed + 1);
	t->least_used_bytes = UINT64_MAX;
	for (uint32_t p = 0; p < LARGE_PAGES; p += FOLIO_PAGES)
		region_rewrite(&t->large, p);
	for (uint32_t p = 0; t->o.small && p < SMALL_PAGES; p++)
		region_rewrite(&t->small, p);
	rc = page_out(t);
	while (!rc && t->nr_done < t->o.iterations)
		rc = one_iteration(t);
	return rc;
}

/* ---- what is printed ---- */

struct totals {
	uint64_t swpout, fallback, written, relocated;
	double worst_percent;
};

static struct totals sum(const struct thp *t)
{
	struct totals s = {0};

	for (uint64_t i = 0; i < t->nr_done; i++) {
		const struct iteration *it = &t->iterations[i];

		s.swpout += it->swpout;
		s.fallback += it->fallback;
		s.written += it->written;
		s.relocated += it->relocated;
		s.worst_percent = MAX(s.worst_percent, percent(it->fallback, it->swpout));
	}
	return s;
}

static int print_summary(const struct thp *t)
{
	struct totals s = sum(t);

	printf("all: swpout %" PRIu64 ", fallback %" PRIu64 " (%.2f%%), worst iteration %.2f%%\n",
	       s.swpout, s.fallback, percent(s.fallback, s.swpout), s.worst_percent);
	printf("device in use after each page-out: at least %.2f of 64 MiB\n",
	       (double)t->least_used_bytes / (double)MIB(1));
	printf("pages written %" PRIu64 ", moved to make room %" PRIu64 " (%.1f%% more copies)\n",
	       s.written, s.relocated,
	       s.written ? 100.0 * (double)s.relocated / (double)s.written : 0);
	printf("content: every page right after each iteration\n");
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

static json_t *iterations_json(const struct thp *t)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < t->nr_done; i++) {
		const struct iteration *it = &t->iterations[i];

		json_array_append_new(
			list,
			json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:f}", "swpout",
				  (json_int_t)it->swpout, "swpout_fallback", (json_int_t)it->fallback,
				  "percent", percent(it->fallback, it->swpout), "used",
				  (json_int_t)it->used_bytes, "written_pages",
				  (json_int_t)it->written, "relocated_pages",
				  (json_int_t)it->relocated, "page_out_s",
				  (double)it->page_out_ns / (double)NSEC_PER_SEC));
	}
	return list;
}

static int print_json(const struct thp *t, bool ok)
{
	struct totals s = sum(t);

	return bench_print_json(
		t->name,
		json_pack("{s:i, s:s, s:s, s:b, s:b, s:I, s:o, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I,"
			  " s:I, s:b}",
			  "version", 1, "bench", "thp", "device", t->o.device, "aligned",
			  (int)t->o.aligned, "small", (int)t->o.small, "seed",
			  (json_int_t)t->o.seed, "iterations", iterations_json(t), "swpout",
			  (json_int_t)s.swpout, "swpout_fallback", (json_int_t)s.fallback,
			  "worst_percent", s.worst_percent, "used_min",
			  (json_int_t)t->least_used_bytes, "written_pages", (json_int_t)s.written,
			  "relocated_pages", (json_int_t)s.relocated, "exploded_folios",
			  (json_int_t)t->large.exploded, "whole_loads",
			  (json_int_t)t->large.whole_loads, "wrong_pages",
			  (json_int_t)t->wrong_pages, "ok", (int)ok));
}

int bench_thp(int argc, char **argv)
{
	struct thp t = {.name = argv[0],
			.o = {.iterations = 100, .seed = 1, .device = "zram"}};
	int rc = cli_parse(argc, argv, &grammar, &t.o), printed = 0;

	if (rc >= 0)
		return rc;
	rc = set_up(&t);
	if (!rc) {
		rc = run(&t);
		if (t.o.json)
			printed = print_json(&t, !rc);
		else if (!rc)
			printed = print_summary(&t);
	}
	tear_down(&t);
	return rc ? rc : printed;
}
