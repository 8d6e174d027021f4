/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "result.h"

void result_phase(struct result *r, const char *name, double seconds, bool measured)
{
	if (r->nr_phases < RESULT_PHASES) {
		r->phases[r->nr_phases].name = name;
		r->phases[r->nr_phases++].seconds = seconds;
	}
	if (measured)
		r->measured_s += seconds;
}

void result_merge(struct hist *to, const struct hist *from)
{
	for (unsigned int b = 0; b < HIST_BUCKETS; b++)
		to->bucket[b] += from->bucket[b];
	to->count += from->count;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
}

static void print(const struct result *r, FILE *f)
{
	fprintf(f, "{\"measured_s\": %.6f, \"phases\": {", r->measured_s);
	for (unsigned int i = 0; i < r->nr_phases; i++)
		fprintf(f, "%s\"%s\": %.6f", i ? ", " : "", r->phases[i].name,
			r->phases[i].seconds);
	fprintf(f, "}, ");
	if (r->touch)
		fprintf(f, "\"touch\": {\"count\": %llu, \"p50_ns\": %llu, \"p99_ns\": %llu, "
			   "\"max_ns\": %llu}, ",
			(unsigned long long)r->touch->count,
			(unsigned long long)hist_percentile(r->touch, 0.5),
			(unsigned long long)hist_percentile(r->touch, 0.99),
			(unsigned long long)r->touch->max_ns);
	fprintf(f, "\"checked\": %llu, \"wrong\": %llu}\n", (unsigned long long)r->checked,
		(unsigned long long)r->wrong);
}

int result_write(const struct result *r, const char *program)
{
	const char *path = getenv("USWAP_BENCH_RESULT");
	FILE *f = path ? fopen(path, "w") : stdout;
	int err = 0;

	if (f) {
		print(r, f);
		if (ferror(f) || fflush(f))
			err = -errno;
		if (path && fclose(f) && !err)
			err = -errno;
	} else {
		err = -errno;
	}
	if (err)
		fprintf(stderr, "%s: result %s: %s\n", program, path ? path : "on standard output",
			strerror(-err));
	return err;
}
