/* SPDX-License-Identifier: MIT */
/* After a fork of evicted memory each side sees what was there at the fork, and its own writes. */
#include "behave.h"

#define NR 256

static void one_round(bool child_first, int depth)
{
	char *p = map_pages(NR);
	int ready[2];
	char byte;
	pid_t pid;

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(pipe(ready) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		close(ready[1]);
		if (!child_first)
			must(read(ready[0], &byte, 1) == 0);
		check_pages(p, NR, 1, "child, before it writes");
		fill_pages(p, NR, 2);
		if (depth)
			one_round(child_first, depth - 1);
		await_eviction(p, NR);
		check_pages(p, NR, 2, "child, after it wrote");
		_exit(0);
	}
	close(ready[0]);
	if (child_first)
		usleep(20000);
	check_pages(p, NR, 1, "parent, before it writes");
	fill_pages(p, NR, 3);
	await_eviction(p, NR);
	close(ready[1]);
	must(reap(pid) == 0);
	check_pages(p, NR, 3, "parent, after it wrote");
	munmap(p, NR * PAGE_BYTES);
}

int main(void)
{
	one_round(true, 1);
	one_round(false, 1);
	return 0;
}
