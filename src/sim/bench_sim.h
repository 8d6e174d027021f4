/* SPDX-License-Identifier: MIT */
/*
 * What the verbs of `uswap-sim bench` share: options, and how results are printed. A verb is a file
 * bench_NAME.c with a struct sim_bench that main.c lists.
 */
#ifndef USWAP_SIM_BENCH_SIM_H
#define USWAP_SIM_BENCH_SIM_H

#include <jansson.h>

#include "sim/sim.h"

struct sim_bench {
	const char *name, *what;
	/* argv[0] is the verb. Returns the exit status. */
	int (*run)(int argc, char **argv);
};

extern const struct sim_bench bench_alloc, bench_lock;

struct bench_options {
	unsigned int nr_cpus;	  /* --cpus N */
	const char *preset;	  /* --preset NAME */
	struct sim_costs costs;
	bool json;		  /* --json */
};

/* An option of the verb's own, a number or a word; unset ones keep their value. */
struct bench_number {
	const char *name; /* without the dashes */
	uint64_t *value;
	const char **word; /* in place of value */
};

/* 0, or an exit status after a message. own ends with a NULL name; may be NULL. */
int bench_parse(struct bench_options *o, const struct bench_number *own, int argc, char **argv)
	__must_check;

/* A new reference: times, locks, the CPUs' sums. */
json_t *bench_result_json(const struct sim_result *r);
/* The same as text, one line for the run and one for each lock class. */
void bench_result_print(const char *arm, uint64_t acquisitions, const struct sim_result *r);
/* Prints and frees j. Returns the exit status. */
int bench_print_json(json_t *j);

#endif
