/* SPDX-License-Identifier: MIT */
/*
 * A mount namespace of its own, nothing mounted in it but an empty root, then chroot: the program
 * and its children are paged as before.
 */
#include "behave.h"

#include <sys/mount.h>

#define NR 256

static void a_child(char *p, int seed)
{
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0) {
		check_pages(p, NR, seed, "a child");
		fill_pages(p, NR, seed + 100);
		if (await_eviction(p, NR) != NR && under_uswap())
			fail("nothing of the child goes out");
		check_pages(p, NR, seed + 100, "a child's own");
		_exit(0);
	}
	must(reap(pid) == 0);
	check_pages(p, NR, seed, "parent");
}

int main(void)
{
	char *p = map_pages(NR);

	if (getuid() != 0)
		skip("needs root");
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(unshare(CLONE_NEWNS) == 0);
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	check_pages(p, NR, 1, "in the mount namespace");
	fill_pages(p, NR, 2);
	await_eviction(p, NR);
	a_child(p, 2);
	must(mount("none", "/tmp", "tmpfs", 0, NULL) == 0);
	must(chroot("/tmp") == 0);
	must(chdir("/") == 0);
	must(access("/proc", F_OK) == -1);
	check_pages(p, NR, 2, "in another root");
	fill_pages(p, NR, 3);
	if (await_eviction(p, NR) != NR && under_uswap())
		fail("nothing goes out any more");
	a_child(p, 3);
	must(unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) == 0);
	fill_pages(p, NR, 4);
	await_eviction(p, NR);
	check_pages(p, NR, 4, "in other namespaces");
	return 0;
}
