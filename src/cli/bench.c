/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench NAME`: finds the benchmark and calls it.
 */
#include "cli/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct bench {
	const char *name;
	const char *full_name; /* for messages */
	int (*call)(int argc, char **argv);
	const char *purpose;
} benches[] = {
	{"thp", "bench thp", bench_thp, "do large folios find room on a nearly full device"},
	{"usemem", "bench usemem", bench_usemem,
	 "throughput over several devices, by policy; runs jobs"},
	{"alloc", "bench alloc", bench_alloc, "cost of an allocation, by how full the device is"},
	{"swapoff", "bench swapoff", bench_swapoff, "how fast a device is emptied onto another one"},
};

static int print_usage(void)
{
	char text[1024];
	size_t len;

	len = (size_t)snprintf(text, sizeof(text),
			       "usage: uswap bench NAME [OPTION]...\n"
			       "Measures a part of uswap, in this process, without a job; but usemem\n"
			       "runs jobs.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(benches) && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "  %-8s %s\n",
					benches[i].name, benches[i].purpose);
	if (len < sizeof(text))
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"\n'uswap bench NAME --help' tells more.\n");
	return cli_print(text, MIN(len, sizeof(text) - 1));
}

int verb_bench(int argc, char **argv)
{
	static const char *const known = "see 'uswap bench --help'";

	if (argc < 2)
		return cli_fail("bench: which one? %s", known);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return print_usage();
	if (argv[1][0] == '-')
		return cli_fail("bench: '%s' before the name of a benchmark; %s", argv[1], known);
	for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
		if (strcmp(argv[1], benches[i].name))
			continue;
		argv[1] = (char *)benches[i].full_name;
		return benches[i].call(argc - 1, argv + 1);
	}
	return cli_fail("bench: there is no benchmark '%s'; %s", argv[1], known);
}

/* ---- for the benchmarks ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(double *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), compare);
	return (struct bench_spread){
		.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
		.low = values[0],
		.high = values[n - 1],
	};
}

bool bench_uint(const char *bench, const char *option, const char *text, uint64_t min,
		uint64_t max, uint64_t *value)
{
	if (cli_parse_uint(text, strlen(text), max, value) && *value >= min)
		return true;
	cli_fail("%s: --%s '%s': use a whole number from %" PRIu64 " to %" PRIu64, bench, option,
		 text, min, max);
	return false;
}

int bench_print_json(const char *bench, json_t *doc)
{
	char *text = doc ? json_dumps(doc, JSON_INDENT(1)) : NULL;
	int rc;

	json_decref(doc);
	if (!text)
		return cli_fail("%s: out of memory", bench);
	rc = cli_print(text, strlen(text));
	free(text);
	return rc;
}
