/* SPDX-License-Identifier: MIT */
/*
 * Prints its pid and where its pages are, then checks and rewrites them for as many milliseconds as
 * are asked for; the cases do things to it meanwhile. "hold N": it and N children do nothing but
 * wait, their pages out, and check them at the end.
 */
#include "behave.h"

#define NR 512
#define MAX_CHILDREN 32

int main(int argc, char **argv)
{
	uint64_t until = clock_ns() + (argc > 1 ? strtoull(argv[1], NULL, 10) : 0) * 1000000;
	bool hold = argc > 3 && !strcmp(argv[2], "hold");
	int seed = 1, nr = hold ? atoi(argv[3]) : 0;
	pid_t pid[MAX_CHILDREN];
	char *p = map_pages(NR);

	fill_pages(p, NR, seed);
	await_eviction(p, NR);
	for (int i = 0; i < nr && i < MAX_CHILDREN; i++) {
		pid[i] = fork();
		must(pid[i] >= 0);
		if (pid[i] == 0) {
			while (clock_ns() < until)
				usleep(20000);
			check_pages(p, NR, seed, "a child");
			_exit(0);
		}
	}
	printf("%d %lx %d\n", getpid(), (unsigned long)p, NR);
	fflush(stdout);
	while (clock_ns() < until) {
		if (hold) {
			usleep(20000);
			continue;
		}
		check_pages(p, NR, seed, "again");
		fill_pages(p, NR, ++seed);
		await_eviction(p, NR / 16);
	}
	check_pages(p, NR, seed, "at the end");
	for (int i = 0; i < nr && i < MAX_CHILDREN; i++)
		must(reap(pid[i]) == 0);
	puts("right");
	return 0;
}
