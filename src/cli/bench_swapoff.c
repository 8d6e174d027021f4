/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench swapoff`: how fast is a device emptied onto another one?
 *
 * A device is filled with folios; a second one of the same kind is added, the first is taken away,
 * and the time of that is the figure: from the call until the device can be closed. Then the second
 * one is the full one, and so on, so that a round begins as the one before ended. After each the one
 * device that is left must hold all of it, and at the end every page is read and checked: what a
 * round did wrong stays wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "cli/bench.h"
#include "cli/bench_device.h"
#include "cli/bench_region.h"
#include "cli/cli.h"
#include "cli/size.h"
#include "swap/swapoff.h"

#define MAX_ROUNDS 99u
#define MAX_BYTES GIB(16)
#define CACHE_BYTES MIB(8)
/* The devices have some more: a folio needs an aligned run, and slot 0 is nobody's. */
#define MORE_PAGES ((uint64_t)2 << MAX_ORDER)

static const char usage[] =
	"usage: uswap bench swapoff [OPTION]...\n"
	"Moves all that is on a full device to an empty one, as swapoff does. Prints MiB a second.\n"
	"\n"
	"  --devices KIND  file (the default), ram (plain memory), zram\n"
	"  --dir DIR       where files are made, and removed; default /var/tmp\n"
	"  --order N       in folios of 2^N pages, 0 to 9; default 0\n"
	"  --size SIZE     what is on the device; default 256M\n"
	"  --rounds N      default 5\n"
	"  --threads N     that move, 1 to 8; default 2, as in a job\n"
	"  --json          one JSON document\n";

struct off_bench {
	const char *name; /* for messages */
	const char *kind, *dir;
	uint64_t order, bytes, rounds, threads;
	bool json, plant;

	struct bench_engine engine;
	struct bench_region region;
	char device[256]; /* name of the one that is full */
	unsigned int serial;
	double rate[MAX_ROUNDS]; /* MiB a second */
	uint64_t wrong_pages;
};

/* ---- options ---- */

enum { OPT_DEVICES = 1, OPT_DIR, OPT_ORDER, OPT_SIZE, OPT_ROUNDS, OPT_THREADS, OPT_JSON, OPT_PLANT };

static bool take_kind(struct off_bench *b, const char *text)
{
	static const char *const kinds[] = {"file", "ram", "zram"};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(text, kinds[i])) {
			b->kind = kinds[i];
			return true;
		}
	cli_fail("%s: --devices '%s': use file, ram or zram", b->name, text);
	return false;
}

static bool take_size(struct off_bench *b, const char *text)
{
	struct parse_error err;

	if (size_parse(text, strlen(text), 1, 0, &b->bytes, &err)) {
		cli_fail("%s: --size '%s': %s", b->name, text, err.text);
		return false;
	}
	if (b->bytes < MIB(2) || b->bytes > MAX_BYTES || b->bytes % (PAGE_SIZE << MAX_ORDER)) {
		cli_fail("%s: --size '%s': use 2M to 16G, a multiple of 2M", b->name, text);
		return false;
	}
	return true;
}

static bool take_option(void *host, const char *bench, int id, const char *arg)
{
	struct off_bench *b = host;

	switch (id) {
	case OPT_DEVICES:
		return take_kind(b, arg);
	case OPT_DIR:
		b->dir = arg;
		return true;
	case OPT_ORDER:
		return bench_uint(bench, "order", arg, 0, MAX_ORDER, &b->order);
	case OPT_SIZE:
		return take_size(b, arg);
	case OPT_ROUNDS:
		return bench_uint(bench, "rounds", arg, 1, MAX_ROUNDS, &b->rounds);
	case OPT_THREADS:
		return bench_uint(bench, "threads", arg, 1, SWAP_OFF_MAX_THREADS, &b->threads);
	case OPT_JSON:
		b->json = true;
		return true;
	default: /* OPT_PLANT, for tests: one page goes out with a bit flipped */
		b->plant = true;
		return true;
	}
}

static const struct cli_grammar grammar = {
	.usage = usage,
	.opts = (const struct cli_opt[]){CLI_HELP,
					 {"devices", 0, true, OPT_DEVICES},
					 {"dir", 0, true, OPT_DIR},
					 {"order", 0, true, OPT_ORDER},
					 {"size", 0, true, OPT_SIZE},
					 {"rounds", 0, true, OPT_ROUNDS},
					 {"threads", 0, true, OPT_THREADS},
					 {"json", 0, false, OPT_JSON},
					 {"plant", 0, false, OPT_PLANT},
					 {NULL, 0, false, 0}},
	.option = take_option,
};

/* ---- devices ---- */

/* A colon or a comma in the directory's name is a part of it. */
static void file_spec(struct off_bench *b, char *text, size_t len)
{
	size_t n = (size_t)snprintf(text, len, "file:");

	for (const char *p = b->dir; *p && n + 2 < len; p++) {
		if (strchr("\\,:", *p))
			text[n++] = '\\';
		text[n++] = *p;
	}
	text[n] = 0;
	snprintf(text + n, len - n, "/uswap-bench-%d-%u", (int)getpid(), b->serial++);
}

/* Becomes the one that pages go to, and its name b->device. Status to exit with, or 0. */
static int add_device(struct off_bench *b)
{
	uint64_t bytes = b->bytes + (MORE_PAGES << PAGE_SHIFT);
	char text[4200];
	struct dev *d;
	int rc = 0, err;

	if (strcmp(b->kind, "file"))
		snprintf(text, sizeof(text), "%s", b->kind);
	else
		file_spec(b, text, sizeof(text));
	d = bench_device_create(b->name, text, bytes, &rc);
	if (!d)
		return rc;
	b->engine.in_memory = dev_in_memory(d);
	/* A number: two of one kind may be called the same. */
	snprintf(d->name, sizeof(d->name), "%s%u", b->kind, b->serial++);
	err = swap_on(b->engine.swap, d, &(struct swap_on_config){0});
	if (err) {
		dev_destroy(d);
		return cli_fail("%s: %s", b->name, strerror(-err));
	}
	snprintf(b->device, sizeof(b->device), "%s", d->name);
	return 0;
}

/* ---- the work ---- */

static int check_use(struct off_bench *b)
{
	struct swap_dev_info info[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(b->engine.swap, info);

	if (n != 1 || info[0].used_bytes != b->bytes)
		return cli_fail("%s: the device does not hold all of it", b->name);
	return 0;
}

static int check_content(struct off_bench *b)
{
	int64_t wrong = region_check(&b->region);

	if (wrong < 0)
		return cli_fail("%s: reading back: %s", b->name, strerror((int)-wrong));
	b->wrong_pages += (uint64_t)wrong;
	if (wrong)
		return cli_fail("%s: %" PRId64 " pages have wrong content", b->name, wrong);
	return 0;
}

static int one_round(struct off_bench *b, unsigned int round)
{
	char full[sizeof(b->device)];
	struct swap_off_request req = {.name = full, .threads = (unsigned int)b->threads};
	struct swap_off_result res;
	struct dev *gone;
	int rc, err;

	memcpy(full, b->device, sizeof(full));
	rc = add_device(b);
	if (rc)
		return rc;
	err = swap_off(b->engine.swap, &req, &res, &gone);
	if (err)
		return cli_fail("%s: %s", b->name, strerror(-err));
	dev_destroy(gone);
	b->rate[round] = (double)(res.moved_pages << PAGE_SHIFT) / (double)MIB(1) /
			 ((double)res.elapsed_ns / 1e9);
	return check_use(b);
}

static int set_up(struct off_bench *b)
{
	uint32_t pages = (uint32_t)(b->bytes >> PAGE_SHIFT);
	int err = hash_init(), rc;

	if (!err)
		b->engine.swap = swap_create(
			&(struct swap_config){.cache_bytes = CACHE_BYTES}, &err);
	if (!err)
		err = region_init(&b->region, &b->engine, pages, (unsigned int)b->order, 1);
	if (err)
		return cli_fail("%s: %s", b->name, strerror(-err));
	rc = add_device(b);
	if (rc)
		return rc;
	for (uint32_t p = 0; p < pages; p += 1u << b->order)
		region_rewrite(&b->region, p);
	b->engine.plant = b->plant;
	err = region_page_out(&b->region);
	return err ? cli_fail("%s: filling the device: %s", b->name, strerror(-err)) : check_use(b);
}

static int print(const struct off_bench *b, bool ok)
{
	double rate[MAX_ROUNDS];
	struct bench_spread s = {0};

	memcpy(rate, b->rate, sizeof(rate));
	if (ok)
		s = bench_spread_of(rate, (unsigned int)b->rounds);
	if (b->json)
		return bench_print_json(
			b->name,
			json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:I, s:b}",
				  "version", 1, "bench", "swapoff", "devices", b->kind, "order",
				  (json_int_t)b->order, "bytes", (json_int_t)b->bytes, "rounds",
				  (json_int_t)b->rounds, "threads", (json_int_t)b->threads, "mib_per_s",
				  "median", s.median, "low", s.low, "high", s.high, "wrong_pages",
				  (json_int_t)b->wrong_pages, "ok", (int)ok));
	if (!ok)
		return 0;
	printf("%s, order %" PRIu64 ", %" PRIu64 " MiB: median (lowest to highest) of %" PRIu64
	       " rounds, MiB/s\n%.0f (%.0f to %.0f)\ncontent: every page right at the end\n",
	       b->kind, b->order, b->bytes >> 20, b->rounds, s.median, s.low, s.high);
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

int bench_swapoff(int argc, char **argv)
{
	struct off_bench b = {.name = argv[0],
			      .kind = "file",
			      .dir = "/var/tmp",
			      .bytes = MIB(256),
			      .rounds = 5,
			      .threads = SWAP_OFF_THREADS};
	int rc = cli_parse(argc, argv, &grammar, &b), printed;

	if (rc >= 0)
		return rc;
	rc = set_up(&b);
	for (unsigned int i = 0; !rc && i < b.rounds; i++)
		rc = one_round(&b, i);
	if (!rc)
		rc = check_content(&b);
	printed = print(&b, !rc);
	if (b.region.engine)
		region_deinit(&b.region);
	swap_destroy(b.engine.swap);
	return rc ? rc : printed;
}
