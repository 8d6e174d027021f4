/* SPDX-License-Identifier: MIT */
/* A program that gives up root in the middle: what was out comes back, and goes out again. */
#include "behave.h"

#include <grp.h>

#define NR 256

int main(void)
{
	char *p = map_pages(NR), *q;
	pid_t pid;

	if (getuid() != 0)
		skip("needs root");
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(setgroups(0, NULL) == 0);
	must(setresgid(65534, 65534, 65534) == 0);
	must(setresuid(65534, 65534, 65534) == 0);
	must(setuid(0) == -1);
	check_pages(p, NR, 1, "after setuid");
	q = map_pages(NR);
	for (int i = 2; i < 4; i++) {
		fill_pages(q, NR, i);
		fill_pages(p, NR, 10 + i);
		if (await_eviction(p, NR) + await_eviction(q, NR) != 2 * NR && under_uswap())
			fail("nothing goes out any more");
		check_pages(q, NR, i, "new memory");
		check_pages(p, NR, 10 + i, "old memory");
	}
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		check_pages(p, NR, 13, "a child");
		fill_pages(p, NR, 20);
		if (await_eviction(p, NR) != NR && under_uswap())
			fail("nothing of the child goes out");
		check_pages(p, NR, 20, "a child's own");
		_exit(0);
	}
	must(reap(pid) == 0);
	check_pages(p, NR, 13, "parent");
	return 0;
}
