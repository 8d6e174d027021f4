/* SPDX-License-Identifier: MIT */
/*
 * unshare(CLONE_NEWUSER), which only a program with one thread may, then a process namespace and a
 * fork in it: the memory is paged as before.
 */
#include "behave.h"

#define NR 256

int main(void)
{
	char *p = map_pages(NR), *q;
	pid_t pid;

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	if (unshare(CLONE_NEWUSER) != 0) {
		if (errno == EPERM || errno == ENOSPC || errno == ENOSYS)
			skip("no user namespaces here");
		fail("unshare: %s", strerror(errno));
	}
	check_pages(p, NR, 1, "in the user namespace");
	q = map_pages(NR);
	fill_pages(q, NR, 2);
	if (await_eviction(q, NR) != NR && under_uswap())
		fail("nothing goes out any more");
	check_pages(q, NR, 2, "new memory");
	must(unshare(CLONE_NEWPID) == 0);
	fill_pages(p, NR, 3);
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		must(getpid() == 1);
		check_pages(p, NR, 3, "a child");
		fill_pages(p, NR, 4);
		await_eviction(p, NR);
		check_pages(p, NR, 4, "a child's own");
		_exit(0);
	}
	must(reap(pid) == 0);
	check_pages(p, NR, 3, "parent");
	return 0;
}
