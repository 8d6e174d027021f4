/* SPDX-License-Identifier: MIT */
/*
 * Prints its pid and where its pages are, then checks and rewrites them for as many milliseconds as
 * are asked for; the cases do things to it meanwhile. "hold": does nothing but wait, its pages out.
 */
#include "behave.h"

#define NR 512

int main(int argc, char **argv)
{
	uint64_t until = clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 10) : 0) * 1000000;
	bool hold = argc > 2 && !strcmp(argv[2], "hold");
	char *p = map_pages(NR);
	int seed = 1;

	fill_pages(p, NR, seed);
	await_eviction(p, NR);
	printf("%d %lx %d\n", getpid(), (unsigned long)p, NR);
	fflush(stdout);
	while (hold && clock_ns() < until)
		usleep(10000);
	do {
		check_pages(p, NR, seed, "again");
		fill_pages(p, NR, ++seed);
		await_eviction(p, NR / 16);
	} while (clock_ns() < until);
	check_pages(p, NR, seed, "at the end");
	puts("right");
	return 0;
}
