/* SPDX-License-Identifier: MIT */
/*
 * Fills a region, then reads every page of it with a handler for SIGBUS of its own.
 *
 * For devices that lose or damage pages: each page must be right, or the thread that reads it
 * must get SIGBUS (and write(2) from it EFAULT). A page that can be read and is not what was
 * written is what must never happen.
 * With -w it says "ready" between the two, and waits for a line of standard input.
 * Prints "right=R lost=L wrong=W efault=E fault_address_wrong=A". Exit status 1 if W or A.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

static sigjmp_buf back;
static volatile sig_atomic_t guarded;
static char *volatile fault_address;
static bool incompressible;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	if (!guarded)
		_exit(99);
	fault_address = info->si_addr;
	siglongjmp(back, 1);
}

static enum page_layout layout_of(uint64_t tag)
{
	return incompressible ? PAGE_RANDOM : page_layout_of(tag);
}

/* Calls of their own: nothing of their loops may live in registers across the sigsetjmp. */
static __attribute__((noinline)) void fill_it(void *page, uint64_t tag)
{
	page_fill_as(page, tag, layout_of(tag));
}

static __attribute__((noinline)) bool matches_it(const void *page, uint64_t tag)
{
	return page_matches_as(page, tag, layout_of(tag));
}

/* False: SIGBUS. */
static bool try_fill(void *page, uint64_t tag)
{
	guarded = 1;
	if (sigsetjmp(back, 1)) {
		guarded = 0;
		return false;
	}
	fill_it(page, tag);
	guarded = 0;
	return true;
}

static enum { RIGHT, LOST, WRONG } try_read(const void *page, uint64_t tag)
{
	bool right;

	guarded = 1;
	if (sigsetjmp(back, 1)) {
		guarded = 0;
		return LOST;
	}
	right = matches_it(page, tag);
	guarded = 0;
	return right ? RIGHT : WRONG;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
	uint64_t count[3] = { 0 }, efault = 0, elsewhere = 0;
	unsigned int passes = 1;
	bool wait = false;
	size_t bytes = 0;
	char *region, line[8];
	int c, fd;

	while ((c = getopt(argc, argv, "m:p:rw")) != -1) {
		if (c == 'm')
			bytes = parse_bytes(optarg);
		else if (c == 'p')
			passes = atoi(optarg);
		else if (c == 'r')
			incompressible = true;
		else if (c == 'w')
			wait = true;
		else
			return 2;
	}
	if (!bytes)
		return 2;
	sigaction(SIGBUS, &action, NULL);
	fd = memfd_create("sigbus", MFD_CLOEXEC);
	region = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fd < 0 || region == MAP_FAILED)
		return 2;
	/* A page that is new is never lost, so SIGBUS here is a mistake too. */
	for (size_t i = 0; i < bytes / PAGE_BYTES; i++)
		if (!try_fill(region + i * PAGE_BYTES, page_tag_linear(7, i)))
			elsewhere++;
	if (wait) {
		printf("ready\n");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 2;
	}
	for (size_t k = 0; k < passes * (bytes / PAGE_BYTES); k++) {
		size_t i = k % (bytes / PAGE_BYTES);
		char *page = region + i * PAGE_BYTES;
		int found = try_read(page, page_tag_linear(7, i));

		count[found]++;
		if (found != LOST)
			continue;
		if (fault_address < page || fault_address >= page + PAGE_BYTES)
			elsewhere++;
		if (pwrite(fd, page, PAGE_BYTES, 0) < 0 && errno == EFAULT)
			efault++;
	}
	printf("right=%llu lost=%llu wrong=%llu efault=%llu fault_address_wrong=%llu\n",
	       (unsigned long long)count[RIGHT], (unsigned long long)count[LOST],
	       (unsigned long long)count[WRONG], (unsigned long long)efault,
	       (unsigned long long)elsewhere);
	return count[WRONG] || elsewhere;
}
