/* SPDX-License-Identifier: MIT */
/*
 * What the programs of this folder share. Each is one thing that programs do with memory, and
 * checks itself: exit status 0, or a line on standard error that says what was wrong, and 1; 77
 * and a line on standard output where the machine lacks something. Whatever it prints and however
 * it ends must be the same natively and under uswap, where everything is evicted as fast as can be
 * (cases/behaviour.py). It takes well under a second natively.
 */
#ifndef USWAP_TESTS_BEHAVE_H
#define USWAP_TESTS_BEHAVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stress/pages.h"

#define KB 1024ul
#define MB (1024ul * KB)

/* Ends the process with a message; from a child too. */
static inline __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		_exit(2);
	_exit(1);
}

/* must(mmap(...) != MAP_FAILED) */
#define must(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail("%s:%d: %s: %s", __FILE__, __LINE__, #cond, strerror(errno));         \
	} while (0)

static inline __attribute__((noreturn)) void skip(const char *why)
{
	printf("%s\n", why);
	exit(77);
}

/* Private anonymous memory, not touched. At least 32 pages, or uswap leaves it alone. */
static inline char *map_pages(size_t nr)
{
	char *p = mmap(NULL, nr * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	must(p != MAP_FAILED);
	return p;
}

/* Gives pages content that says which they are. */
static inline void fill_pages(void *p, size_t nr, unsigned int seed)
{
	for (size_t i = 0; i < nr; i++)
		page_fill((char *)p + i * PAGE_BYTES, page_tag_linear(seed, i));
}

/* Fails unless each page has what fill_pages(p, nr, seed) wrote. */
static inline void check_pages(const void *p, size_t nr, unsigned int seed, const char *what)
{
	for (size_t i = 0; i < nr; i++) {
		const char *page = (const char *)p + i * PAGE_BYTES;
		uint64_t tag = page_tag_linear(seed, i);

		if (!page_matches(page, tag))
			fail("%s: page %zu of %zu at %p is %s", what, i, nr, (const void *)page,
			     page_is_zero(page) ? "zero" : "wrong");
	}
}

static inline void check_zero(const void *p, size_t nr, const char *what)
{
	for (size_t i = 0; i < nr; i++)
		if (!page_is_zero((const char *)p + i * PAGE_BYTES))
			fail("%s: page %zu of %zu is not zero", what, i, nr);
}

/* Is the program run by uswap? Only to wait for eviction; never to behave otherwise. */
static inline bool under_uswap(void)
{
	return getenv("USWAP_AGENT") != NULL;
}

/*
 * Waits until the pages are out of the page table (at most 2 s; natively not at all). Returns how
 * many are out. What stays in RAM by design (locked, read-only) must not be waited for.
 */
static inline size_t await_eviction(void *p, size_t nr)
{
	size_t out = 0;

	for (int i = 0; under_uswap() && i < 400; i++) {
		out = nr - pages_resident(p, nr);
		if (out == nr)
			break;
		usleep(5000);
	}
	return out;
}

/* Reaps pid and returns its exit status as a shell tells it. */
static inline int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) != pid)
		must(errno == EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A forked child finds what fill_pages(p, nr, seed) wrote, and is paged itself; so is the parent. */
static inline void check_paged_child(char *p, size_t nr, unsigned int seed)
{
	pid_t pid;

	await_eviction(p, nr);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		check_pages(p, nr, seed, "a child");
		fill_pages(p, nr, seed + 1);
		if (await_eviction(p, nr) != nr && under_uswap())
			fail("nothing of the child goes out");
		check_pages(p, nr, seed + 1, "a child's own");
		_exit(0);
	}
	must(reap(pid) == 0);
	check_pages(p, nr, seed, "parent");
}

#endif
