/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench`: measurements of parts of the engine: in this process, without a job, but for
 * bench_usemem(), whose matter is how its parts work together.
 *
 * bench.c finds the benchmark and has what several of them need; each has a file of its own, and is
 * called with argv[0] = "bench NAME". It returns the exit status. A benchmark measures: what must
 * hold of the figures is in tests/. It does fail when the engine is wrong, e.g. gives other content
 * back.
 *
 * Not its job: whole programs under a limit (bench/compare).
 */
#ifndef USWAP_CLI_BENCH_H
#define USWAP_CLI_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

int bench_thp(int argc, char **argv);
int bench_swapoff(int argc, char **argv);
int bench_alloc(int argc, char **argv);
int bench_usemem(int argc, char **argv);
/* What bench_alloc() is when words name policies of the queue, or devices. */
int bench_alloc_queue(int argc, char **argv);

/* Sorts values. n > 0. */
struct bench_spread {
	double median, low, high;
};
struct bench_spread bench_spread_of(double *values, unsigned int n);

/*
 * The value of an option that is a whole number. False: it is none, or out of bounds (printed).
 * bench is argv[0].
 */
bool bench_uint(const char *bench, const char *option, const char *text, uint64_t min,
		uint64_t max, uint64_t *value);
/* Prints doc and drops it. NULL stands for out of memory. Returns the exit status. */
int bench_print_json(const char *bench, json_t *doc);

#endif
