/* SPDX-License-Identifier: MIT */
/*
 * The first thread ends, the others go on: the process then looks like a zombie from outside. Its
 * memory is paged and forked as before, what it maps from then on, too.
 */
#include "behave.h"

#define NR 256
#define ROUNDS 8

static char *p;
static pthread_t first;

static void *rest(void *arg)
{
	char *q;
	pid_t pid;

	(void)arg;
	must(pthread_join(first, NULL) == 0);
	for (int i = 1; i <= ROUNDS; i++) {
		/* Meanwhile it is looked at from outside. */
		usleep(15000);
		check_pages(p, NR, i, "after the first thread");
		fill_pages(p, NR, i + 1);
		if (i == 1 && await_eviction(p, NR) != NR && under_uswap())
			fail("nothing goes out any more");
	}
	q = map_pages(NR);
	fill_pages(q, NR, 99);
	if (await_eviction(q, NR) != NR && under_uswap())
		fail("nothing new goes out");
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		check_pages(q, NR, 99, "a child, what is new");
		check_pages(p, NR, ROUNDS + 1, "a child");
		_exit(3);
	}
	must(reap(pid) == 3);
	check_pages(p, NR, ROUNDS + 1, "at the end");
	check_pages(q, NR, 99, "at the end, what is new");
	_exit(0);
}

static void one_process(void)
{
	pthread_t t;

	p = map_pages(NR);
	fill_pages(p, NR, 1);
	await_eviction(p, NR / 2);
	first = pthread_self();
	must(pthread_create(&t, NULL, rest, NULL) == 0);
	pthread_exit(NULL);
}

int main(void)
{
	pid_t pid[3];

	/* Some of them, since what may go wrong is a matter of microseconds. */
	for (int i = 0; i < 3; i++) {
		pid[i] = fork();
		must(pid[i] >= 0);
		if (pid[i] == 0)
			one_process();
	}
	for (int i = 0; i < 3; i++)
		must(reap(pid[i]) == 0);
	one_process();
}
