/* SPDX-License-Identifier: MIT */
/*
 * fork() of a program with many threads, whose memory fills the budget. In the child the C library
 * writes to the stack of each, before any handler runs and so before the child has a helper.
 *
 * forkthreads THREADS BYTES: exit status 0 if the child found all pages right; 77: no such threads
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stress/pages.h"

static void *rest(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static size_t check(const char *p, size_t nr_pages)
{
	size_t bad = 0;

	for (size_t i = 0; i < nr_pages; i++)
		bad += !page_matches(p + i * PAGE_BYTES, page_tag_linear(1, i));
	return bad;
}

int main(int argc, char **argv)
{
	size_t nr_pages = argc == 3 ? parse_bytes(argv[2]) / PAGE_BYTES : 0;
	int status, threads = argc == 3 ? atoi(argv[1]) : 0;
	pthread_attr_t attr;
	pthread_t t;
	pid_t pid;
	char *p;

	if (!nr_pages || pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, 256 << 10))
		return 2;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t, &attr, rest, NULL))
			return 77;
	p = mmap(NULL, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (p == MAP_FAILED)
		return 2;
	for (size_t i = 0; i < nr_pages; i++)
		page_fill(p + i * PAGE_BYTES, page_tag_linear(1, i));
	/* So that the stacks are the coldest. */
	for (int i = 0; i < 3; i++)
		if (check(p, nr_pages))
			return 1;
	pid = fork();
	if (pid == 0)
		_exit(check(p, nr_pages) != 0);
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}
