/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of `uswap bench usemem` share: the benchmark, which starts jobs, and the load,
 * which is the program in them and tells its figures through a pipe.
 */
#ifndef USWAP_CLI_BENCH_USEMEM_H
#define USWAP_CLI_BENCH_USEMEM_H

#include "base/util.h"

#define USEMEM_MAX_PROCESSES 64u

struct usemem_load {
	unsigned int processes;
	uint64_t bytes; /* of each; whole pages */
	bool plant;	/* for tests: one page is written with a bit flipped */
};

/* Of one process. */
struct usemem_result {
	uint64_t write_ns, read_ns, free_ns;
	uint64_t wrong_pages;
};

/*
 * The load, and its end: writes all, waits for the others, reads and checks all, waits, frees, each
 * process on a CPU of its own or in turn. Prints a line for each process: the numbers of its
 * result. Returns the exit status.
 */
int usemem_run_load(const char *bench, const struct usemem_load *l);

#endif
