/* SPDX-License-Identifier: MIT */
/*
 * Memory that was freed with MADV_FREE and written again is present without a fault. Rule 4.
 *
 * Many regions, far apart: more than the supervisor notes one by one, so that it has to look at
 * ranges that span everything in between, its own staging included. Each region is filled, freed
 * and written anew, at once; meanwhile a second, larger memory is walked without a pause, so that
 * staging is in use whenever the supervisor looks. After that all regions must be right, and most
 * of what was written anew must be evictable: prints "pages=P out=N wrong=W". Status 1 if W.
 * -b SIZE: the second memory; -s SECONDS: how long; -u: until the first wrong page.
 * -f: a child is forked right after the regions were written anew; it walks and counts as well,
 * and its figures are added.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stress/pages.h"

#define REGIONS 96u
#define REGION_PAGES 64u
#define LOW_BASE 0x10000000000ull /* far below everything else */
#define BELOW_STACK (64ull << 20) /* above the libraries, and so above staging */
#define GAP (1ull << 21)
#define ROUND_NS 1400000000ull

static char *region[REGIONS];

static char *map_at(uint64_t address, size_t bytes)
{
	char *p = mmap((void *)address, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static void write_region(unsigned int i, unsigned int seed)
{
	for (unsigned int k = 0; k < REGION_PAGES; k++)
		page_fill(region[i] + k * PAGE_BYTES, page_tag_linear(seed, i * REGION_PAGES + k));
}

static size_t check_regions(unsigned int seed)
{
	size_t bad = 0;

	for (unsigned int i = 0; i < REGIONS; i++)
		for (unsigned int k = 0; k < REGION_PAGES; k++)
			bad += !page_matches(region[i] + k * PAGE_BYTES,
					     page_tag_linear(seed, i * REGION_PAGES + k));
	return bad;
}

/* Keeps eviction busy for a while. Returns wrong pages. */
static size_t walk(char *big, size_t nr_pages, unsigned int seed)
{
	uint64_t end = clock_ns() + ROUND_NS;
	size_t bad = 0;

	while (clock_ns() < end)
		for (size_t i = 0; i < nr_pages; i++)
			bad += !page_matches(big + i * PAGE_BYTES, page_tag_linear(seed, i));
	return bad;
}

static size_t count_out(void)
{
	size_t out = 0;

	for (unsigned int i = 0; i < REGIONS; i++)
		out += REGION_PAGES - pages_resident(region[i], REGION_PAGES);
	return out;
}

int main(int argc, char **argv)
{
	size_t bytes = 32 << 20, nr_pages, bad = 0, out = 0, pages = 0;
	bool with_child = false, stop_at_wrong = false;
	uint64_t end = 0;
	int c, status;
	char *big;

	while ((c = getopt(argc, argv, "b:s:uf")) != -1) {
		if (c == 'b')
			bytes = parse_bytes(optarg);
		else if (c == 's')
			end = clock_ns() + strtoull(optarg, NULL, 10) * 1000000000ull;
		else if (c == 'u')
			stop_at_wrong = true;
		else if (c == 'f')
			with_child = true;
		else
			return 2;
	}
	nr_pages = bytes / PAGE_BYTES;
	if (!nr_pages)
		return 2;
	for (unsigned int i = 0; i < REGIONS - 1; i++)
		region[i] = map_at(LOW_BASE + i * GAP, REGION_PAGES * PAGE_BYTES);
	region[REGIONS - 1] = map_at(((uint64_t)&bytes - BELOW_STACK) & ~(GAP - 1),
				     REGION_PAGES * PAGE_BYTES);
	big = map_at(0, bytes);
	for (size_t i = 0; i < nr_pages; i++)
		page_fill(big + i * PAGE_BYTES, page_tag_linear(1, i));
	for (unsigned int r = 0; !r || (clock_ns() < end && !(bad && stop_at_wrong)); r++) {
		pid_t pid = -1;

		for (unsigned int i = 0; i < REGIONS; i++)
			write_region(i, 100 + r);
		for (unsigned int i = 0; i < REGIONS; i++) {
			if (madvise(region[i], REGION_PAGES * PAGE_BYTES, MADV_FREE))
				return 2;
			write_region(i, 200 + r);
		}
		if (with_child && (pid = fork()) < 0)
			return 2;
		bad += walk(big, nr_pages, 1);
		out += count_out();
		bad += check_regions(200 + r);
		pages += REGIONS * REGION_PAGES;
		if (pid == 0) {
			printf("pages=%zu out=%zu wrong=%zu\n", pages, out, bad);
			fflush(stdout);
			_exit(bad != 0);
		}
		if (pid > 0 && (waitpid(pid, &status, 0) != pid || status))
			bad++;
	}
	printf("pages=%zu out=%zu wrong=%zu\n", pages, out, bad);
	return bad != 0;
}
