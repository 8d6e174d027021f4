/* SPDX-License-Identifier: MIT */
/*
 * What a workload says of its run: one JSON object in the file that USWAP_BENCH_RESULT names,
 * and on standard output when it names none.
 * Filled in by one thread. Nothing is allocated but by stdio.
 */
#ifndef USWAP_BENCH_RESULT_H
#define USWAP_BENCH_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/vmstat.h"

#define RESULT_PHASES 8

struct result {
	double measured_s;
	unsigned int nr_phases;
	struct {
		const char *name;
		double seconds;
	} phases[RESULT_PHASES];
	struct hist *touch; /* NULL: not known */
	uint64_t checked, wrong;
};

/* measured: this is the phase that the workload is named after. */
void result_phase(struct result *r, const char *name, double seconds, bool measured);

/* 0, or -errno: said on standard error. */
int result_write(const struct result *r, const char *program);

/* Adds the samples of one histogram to another. */
void result_merge(struct hist *to, const struct hist *from);

#endif
