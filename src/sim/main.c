/* SPDX-License-Identifier: MIT */
/*
 * uswap-sim: the engine on up to 256 virtual CPUs, in virtual time. Its figures are computed from
 * the costs of a preset, never measured. Each bench is a file; the table is here.
 */
#include <stdio.h>
#include <string.h>

#include "sim/bench_sim.h"

static const struct sim_bench *const benches[] = {
	&bench_alloc,
	&bench_lock,
};

static int usage(FILE *f)
{
	fputs("usage: uswap-sim bench NAME [--cpus N] [--preset NAME|PATH] [--json] [OPTION...]\n",
	      f);
	for (unsigned int i = 0; i < ARRAY_SIZE(benches); i++)
		fprintf(f, "  %-8s %s\n", benches[i]->name, benches[i]->what);
	return f == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return usage(stdout);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("uswap-sim %s\n", USWAP_VERSION);
		return 0;
	}
	if (argc < 3 || strcmp(argv[1], "bench") != 0)
		return usage(stderr);
	for (unsigned int i = 0; i < ARRAY_SIZE(benches); i++)
		if (strcmp(argv[2], benches[i]->name) == 0)
			return benches[i]->run(argc - 2, argv + 2);
	fprintf(stderr, "uswap-sim: there is no bench %s\n", argv[2]);
	return usage(stderr);
}
