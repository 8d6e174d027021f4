/* SPDX-License-Identifier: MIT */
/*
 * `uswap stat`: the JSON of the supervisor as it is, or the same for people.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "cli/size.h"

static const char usage[] =
	"usage: uswap stat [--job ID] [--json] [INTERVAL [COUNT]]\n"
	"Shows what a running job has in RAM, compressed and on disk.\n"
	"\n"
	"  --job ID   the job, if there are several\n"
	"  --json     one JSON document (its schema is in uswap-stat(1))\n"
	"  INTERVAL   repeat every INTERVAL seconds, COUNT times or until the job ends\n";

struct stat_options {
	const char *job;
	bool json;
	uint64_t interval_ns; /* 0: once */
	uint64_t count;	      /* 0: until the job ends */
};

/* ---- reading the document: a member that is missing is 0 or "" ---- */

static uint64_t number(const json_t *o, const char *key)
{
	double v = json_number_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static const char *bytes_text(const json_t *o, const char *key, char buf[SIZE_TEXT_BYTES])
{
	return size_to_text(number(o, key), buf);
}

/* ---- the summary ---- */

static void print_head(const json_t *doc)
{
	const json_t *command = json_object_get(doc, "command");
	const json_t *word;
	size_t i;

	printf("job %s, %.1f s:", string(doc, "job"),
	       json_number_value(json_object_get(doc, "elapsed")));
	json_array_foreach(command, i, word) {
		putchar(' ');
		cli_put_plain(json_string_value(word) ? json_string_value(word) : "?");
	}
	printf("\n");
}

static void print_memory(const json_t *doc)
{
	static const char *const keys[] = {"limit", "resident", "staged", "pool", "metadata", "peak"};
	const json_t *ram = json_object_get(doc, "ram");
	char buf[SIZE_TEXT_BYTES];

	printf("memory  ");
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		printf("%s%s %s", i ? ", " : "", keys[i], bytes_text(ram, keys[i], buf));
	printf("\n");
}

static uint64_t pages_out(const json_t *vmstat)
{
	return number(vmstat, "pswpout") + number(vmstat, "zswpout");
}

static uint64_t pages_in(const json_t *vmstat)
{
	return number(vmstat, "pswpin") + number(vmstat, "zswpin");
}

static void print_paging(const json_t *doc)
{
	const json_t *vmstat = json_object_get(doc, "vmstat");
	const json_t *faults = json_object_get(doc, "faults");
	char b[4][SIZE_TEXT_BYTES];

	printf("paging  to disk %s, back %s; to compressed memory %s, back %s\n",
	       size_to_text(number(vmstat, "pswpout") * PAGE_SIZE, b[0]),
	       size_to_text(number(vmstat, "pswpin") * PAGE_SIZE, b[1]),
	       size_to_text(number(vmstat, "zswpout") * PAGE_SIZE, b[2]),
	       size_to_text(number(vmstat, "zswpin") * PAGE_SIZE, b[3]));
	printf("faults  %" PRIu64, number(faults, "count"));
	if (number(faults, "count"))
		printf(", half within %.0f us, 99%% within %.0f us, longest %.1f ms",
		       (double)number(faults, "p50_ns") / 1e3, (double)number(faults, "p99_ns") / 1e3,
		       (double)number(faults, "max_ns") / 1e6);
	printf("\n");
}

static bool has_tiers(const json_t *doc)
{
	return json_array_size(json_object_get(doc, "tiers"));
}

static bool has_weights(const json_t *doc)
{
	const json_t *d;
	size_t i;

	json_array_foreach(json_object_get(doc, "devices"), i, d)
		if (number(d, "weight"))
			return true;
	return false;
}

static void print_tiers(const json_t *doc)
{
	const json_t *t;
	char size[SIZE_TEXT_BYTES], used[SIZE_TEXT_BYTES], prio[32];
	size_t i;

	if (!has_tiers(doc))
		return;
	printf("\n%11s %8s %8s %7s  %-12s %s\n", "PRIO", "SIZE", "USED", "DEVICES", "POLICY", "TIER");
	json_array_foreach(json_object_get(doc, "tiers"), i, t) {
		long long min = json_integer_value(json_object_get(t, "prio_min"));
		long long max = json_integer_value(json_object_get(t, "prio_max"));

		snprintf(prio, sizeof(prio), min == max ? "%lld" : "%lld-%lld", min, max);
		printf("%11s %8s %8s %7" PRIu64 "  %-12s %s\n", prio, bytes_text(t, "size", size),
		       bytes_text(t, "used", used), number(t, "devices"), string(t, "policy"),
		       string(t, "name"));
	}
}

static void print_policy(const json_t *doc)
{
	const char *policy = string(doc, "queue_policy");

	if (*policy && strcmp(policy, "queue"))
		printf("policy  %s\n", policy);
}

static void print_devices(const json_t *doc)
{
	const json_t *devices = json_object_get(doc, "devices");
	char size[SIZE_TEXT_BYTES], used[SIZE_TEXT_BYTES], peak[SIZE_TEXT_BYTES];
	char stored[SIZE_TEXT_BYTES], compressed[SIZE_TEXT_BYTES];
	bool tiers = has_tiers(doc), weights = has_weights(doc);
	const json_t *d;
	size_t i;

	if (!json_array_size(devices))
		return;
	printf("\n%5s %8s %8s %8s %8s %8s %6s  %-8s %-5s ", "PRIO", "SIZE", "USED", "PEAK", "STORED",
	       "AS", "ERRORS", "STATE", "TYPE");
	if (weights)
		printf("%6s ", "WEIGHT");
	if (tiers)
		printf("%-12s ", "TIER");
	printf("DEVICE\n");
	json_array_foreach(devices, i, d) {
		printf("%5lld %8s %8s %8s %8s %8s %6" PRIu64 "  %-8s %-5s ",
		       (long long)json_integer_value(json_object_get(d, "prio")),
		       bytes_text(d, "size", size), bytes_text(d, "used", used),
		       bytes_text(d, "peak", peak), bytes_text(d, "stored", stored),
		       bytes_text(d, "compressed", compressed), number(d, "errors"),
		       string(d, "state"), string(d, "type"));
		if (weights)
			printf("%6" PRIu64 " ", number(d, "weight"));
		if (tiers)
			printf("%-12s ", string(d, "tier"));
		cli_put_plain(string(d, "name"));
		printf("\n");
	}
}

static void print_orders(const json_t *doc)
{
	const json_t *orders = json_object_get(doc, "orders"), *o;
	size_t i;

	if (!json_array_size(orders))
		return;
	printf("\n%5s %10s %10s %10s\n", "ORDER", "OUT", "FALLBACK", "IN");
	json_array_foreach(orders, i, o)
		if (number(o, "swpout") || number(o, "swpout_fallback") || number(o, "swpin"))
			printf("%5" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
			       number(o, "order"), number(o, "swpout"),
			       number(o, "swpout_fallback"), number(o, "swpin"));
}

static void print_processes(const json_t *doc)
{
	const json_t *all = json_object_get(doc, "processes"), *p;
	size_t i, managed = 0, unmanaged = 0, ended = 0;

	json_array_foreach(all, i, p) {
		if (json_is_true(json_object_get(p, "ended")))
			ended++;
		else if (json_is_true(json_object_get(p, "managed")))
			managed++;
		else
			unmanaged++;
	}
	printf("\nprocesses: %zu managed, %zu not managed, %zu ended (uswap ps)\n", managed, unmanaged,
	       ended);
}

static void print_summary(const json_t *doc)
{
	print_head(doc);
	print_memory(doc);
	print_paging(doc);
	print_policy(doc);
	print_devices(doc);
	print_tiers(doc);
	print_orders(doc);
	print_processes(doc);
}

/* ---- one line an interval ---- */

static uint64_t used_on(const json_t *doc, bool in_memory)
{
	const json_t *d;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(doc, "devices"), i, d)
		if (!strcmp(string(d, "type"), "zram") == in_memory)
			sum += number(d, "used");
	return sum;
}

struct sample {
	double elapsed;
	uint64_t out, in, faults;
};

static void print_line(const json_t *doc, struct sample *last, uint64_t nr)
{
	const json_t *ram = json_object_get(doc, "ram"), *vmstat = json_object_get(doc, "vmstat");
	struct sample now = {
		.elapsed = json_number_value(json_object_get(doc, "elapsed")),
		.out = pages_out(vmstat),
		.in = pages_in(vmstat),
		.faults = number(json_object_get(doc, "faults"), "count"),
	};
	/* The first line is the average since the job's start, as vmstat(8) does it. */
	double s = now.elapsed > last->elapsed ? now.elapsed - last->elapsed : 1;
	char b[7][SIZE_TEXT_BYTES];

	if (nr % 20 == 0)
		printf("%8s %8s %8s %8s %8s %8s %9s %9s %9s\n", "TIME", "RESIDENT", "STAGED", "POOL",
		       "IN-ZRAM", "ON-DISK", "OUT/s", "IN/s", "FAULTS/s");
	printf("%8.1f %8s %8s %8s %8s %8s %9s %9s %9.0f\n", now.elapsed,
	       bytes_text(ram, "resident", b[0]), bytes_text(ram, "staged", b[1]),
	       bytes_text(ram, "pool", b[2]), size_to_text(used_on(doc, true), b[3]),
	       size_to_text(used_on(doc, false), b[4]),
	       size_to_text((uint64_t)((double)(now.out - last->out) * PAGE_SIZE / s), b[5]),
	       size_to_text((uint64_t)((double)(now.in - last->in) * PAGE_SIZE / s), b[6]),
	       (double)(now.faults - last->faults) / s);
	*last = now;
}

static int show(const struct stat_options *o, const struct ctl_answer *a, struct sample *last,
		uint64_t nr)
{
	json_error_t err;
	json_t *doc;

	if (o->json)
		return cli_print(a->text, a->len);
	doc = json_loadb(a->text, a->len, 0, &err);
	if (!doc)
		return cli_fail("stat: the job's answer is not JSON: %s at line %d", err.text, err.line);
	if (o->interval_ns)
		print_line(doc, last, nr);
	else
		print_summary(doc);
	json_decref(doc);
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

static bool parse_operand(void *host, const char *verb, const char *word)
{
	struct stat_options *o = host;
	bool ok;

	if (!o->interval_ns) {
		ok = cli_parse_seconds(word, &o->interval_ns);
		if (!ok)
			cli_fail("%s: INTERVAL '%s': use seconds from 0.01", verb, word);
		return ok;
	}
	if (o->count) {
		cli_fail("%s: unexpected word '%s'; see 'uswap %s --help'", verb, word, verb);
		return false;
	}
	ok = cli_parse_uint(word, strlen(word), UINT64_MAX, &o->count) && o->count;
	if (!ok)
		cli_fail("%s: COUNT '%s': use a number from 1", verb, word);
	return ok;
}

enum { OPT_JOB = 1, OPT_JSON };

static bool take_option(void *host, const char *verb, int id, const char *arg)
{
	struct stat_options *o = host;

	if (id == OPT_JOB)
		o->job = arg;
	else
		o->json = true;
	return true;
}

static const struct cli_grammar grammar = {
	.usage = usage,
	.opts = (const struct cli_opt[]){CLI_HELP,
					 {"job", 0, true, OPT_JOB},
					 {"json", 0, false, OPT_JSON},
					 {NULL, 0, false, 0}},
	.option = take_option,
	.operand = parse_operand,
};

int verb_stat(int argc, char **argv)
{
	struct stat_options o = {0};
	struct sample last = {0};
	struct ctl_answer a;
	pid_t job;
	int rc;

	rc = cli_parse(argc, argv, &grammar, &o);
	if (rc >= 0)
		return rc;
	rc = ctl_choose_job(o.job, &job);
	if (!rc)
		rc = ctl_ask(job, CTL_STAT, NULL, &a);
	for (uint64_t nr = 0; !rc; nr++) {
		rc = show(&o, &a, &last, nr);
		ctl_answer_deinit(&a);
		if (rc || !o.interval_ns || (o.count && nr + 1 >= o.count))
			break;
		clock_sleep_ns(o.interval_ns);
		rc = ctl_call(job, CTL_STAT, NULL, &a);
		if (ctl_job_is_gone(rc))
			return 0; /* the job has ended, which ends a series of samples too */
		if (rc)
			return cli_fail("job %d: %s", (int)job, strerror(-rc));
	}
	return rc;
}
