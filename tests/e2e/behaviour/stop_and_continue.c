/* SPDX-License-Identifier: MIT */
/* A child is stopped while its memory is evicted, and in the middle of faults; then it goes on. */
#include "behave.h"

#define NR 256

static void *reader(void *arg)
{
	char *p = arg;

	for (unsigned long i = 0;; i++)
		if (!page_matches(p + i % NR * PAGE_BYTES, page_tag_linear(2, i % NR)))
			fail("page %lu is wrong in a thread", i % NR);
	return NULL;
}

static void child(char *p)
{
	char *q = map_pages(NR);
	pthread_t t;

	check_pages(p, NR, 1, "child, at first");
	fill_pages(p, NR, 2);
	must(raise(SIGSTOP) == 0);
	/* 200 ms have passed, in which the child did nothing. */
	if (under_uswap() && pages_resident(p, NR) > NR / 2)
		fail("nothing was evicted while it was stopped");
	check_pages(p, NR, 2, "after the first stop");
	must(pthread_create(&t, NULL, reader, p) == 0);
	for (int i = 0;; i++) {
		fill_pages(q, NR, 3 + i);
		await_eviction(q, NR / 8);
		check_pages(q, NR, 3 + i, "between stops");
	}
}

int main(void)
{
	char *p = map_pages(NR);
	int status;
	pid_t pid;

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0)
		child(p);
	must(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	usleep(200000);
	must(kill(pid, SIGCONT) == 0);
	must(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
	for (int i = 0; i < 10; i++) {
		usleep(7000);
		must(kill(pid, SIGSTOP) == 0);
		must(waitpid(pid, &status, WUNTRACED) == pid);
		if (!WIFSTOPPED(status))
			fail("the child ended with %x", status);
		usleep(10000);
		must(kill(pid, SIGCONT) == 0);
		must(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
	}
	usleep(10000);
	must(waitpid(pid, &status, WNOHANG) == 0);
	must(kill(pid, SIGTERM) == 0);
	must(reap(pid) == 128 + SIGTERM);
	check_pages(p, NR, 1, "parent");
	return 0;
}
