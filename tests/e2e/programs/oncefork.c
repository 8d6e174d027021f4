/* SPDX-License-Identifier: MIT */
/*
 * Memory that was once shared with a forked child must become evictable again. Rule 7.
 *
 * Fills a first region while there is room, forks a child that ends (or, with -k, stays and checks
 * its own at the end), fills a second region so that room gets short, and walks that one so that
 * the first is the cold one. Then counts how many pages of the first region are out, and checks
 * all. -F: by _Fork, -R: by a raw clone; neither runs handlers.
 * Prints "pages=P out=N wrong=W". Exit status 1 if W.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stress/pages.h"

static char *map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static pid_t raw_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static size_t check(const char *p, size_t nr_pages, unsigned int seed)
{
	size_t bad = 0;

	for (size_t i = 0; i < nr_pages; i++)
		bad += !page_matches(p + i * PAGE_BYTES, page_tag_linear(seed, i));
	return bad;
}

int main(int argc, char **argv)
{
	size_t first_bytes = 0, second_bytes = 0, nr_first, nr_second, out, bad = 0;
	bool keep_child = false;
	pid_t (*make)(void) = fork;
	int c, status = 0, end[2];
	char *first, *second;
	pid_t pid;

	while ((c = getopt(argc, argv, "a:b:kFR")) != -1) {
		if (c == 'a')
			first_bytes = parse_bytes(optarg);
		else if (c == 'b')
			second_bytes = parse_bytes(optarg);
		else if (c == 'k')
			keep_child = true;
		else if (c == 'F')
			make = _Fork;
		else if (c == 'R')
			make = raw_clone;
		else
			return 2;
	}
	if (!first_bytes || !second_bytes || pipe(end))
		return 2;
	nr_first = first_bytes / PAGE_BYTES;
	nr_second = second_bytes / PAGE_BYTES;
	first = map(first_bytes);
	for (size_t i = 0; i < nr_first; i++)
		page_fill(first + i * PAGE_BYTES, page_tag_linear(1, i));
	pid = make();
	if (pid < 0)
		return 2;
	if (pid == 0) {
		char byte;

		close(end[1]);
		if (!keep_child)
			_exit(0);
		/* Until the parent closes its end. */
		if (read(end[0], &byte, 1) != 0)
			_exit(2);
		_exit(check(first, nr_first, 1) != 0);
	}
	if (!keep_child)
		waitpid(pid, NULL, 0);
	second = map(second_bytes);
	for (size_t i = 0; i < nr_second; i++)
		page_fill(second + i * PAGE_BYTES, page_tag_linear(2, i));
	bad += check(second, nr_second, 2);
	bad += check(second, nr_second, 2);
	out = nr_first - pages_resident(first, nr_first);
	bad += check(first, nr_first, 1);
	close(end[1]);
	if (keep_child && (waitpid(pid, &status, 0) != pid || status))
		bad++;
	printf("oncefork: pages=%zu out=%zu wrong=%zu\n", nr_first, out, bad);
	return bad != 0;
}
