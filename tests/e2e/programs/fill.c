/* SPDX-License-Identifier: MIT */
/*
 * Fills a region and checks every page of it: the workload behind most cases.
 *
 * Prints only what does not depend on speed, so that two runs can be compared byte by byte
 * (-T adds the times). Exit status 1 if any page was wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

struct live {
	_Atomic uint64_t checks, wrong, passes;
};

static char *region;
static uint64_t nr_pages;
static unsigned int nr_threads = 1, seed = 1;
static bool incompressible, zero_content, random_order;
static _Atomic uint64_t wrong;
static struct live *live;

struct part {
	pthread_t thread;
	uint64_t from, to;
	bool fill;
};

static enum page_layout layout_of(uint64_t tag)
{
	return incompressible ? PAGE_RANDOM : page_layout_of(tag);
}

static void fill_one(uint64_t i)
{
	uint64_t tag = page_tag_linear(seed, i);

	if (zero_content) /* a page of its own, but nothing to store */
		*(volatile uint64_t *)(region + i * PAGE_BYTES) = 0;
	else
		page_fill_as(region + i * PAGE_BYTES, tag, layout_of(tag));
}

static void check_one(uint64_t i)
{
	uint64_t tag = page_tag_linear(seed, i);
	void *page = region + i * PAGE_BYTES;
	bool right = zero_content ? page_is_zero(page) : page_matches_as(page, tag, layout_of(tag));

	if (!right && wrong++ < 10)
		fprintf(stderr, "fill: page %llu is wrong, first word %016llx\n",
			(unsigned long long)i, (unsigned long long)*(uint64_t *)page);
	if (live) {
		live->checks++;
		if (!right)
			live->wrong++;
	}
}

static void *run_part(void *arg)
{
	struct part *p = arg;
	uint64_t n = p->to - p->from, rng = mix64(seed + p->from) | 1;

	for (uint64_t k = 0; k < n; k++) {
		if (p->fill)
			fill_one(p->from + k);
		else
			check_one(p->from + (random_order ? random_next(&rng) % n : k));
	}
	return NULL;
}

/* The whole region by all threads, each a part of its own. */
static uint64_t run_all(bool fill)
{
	struct part part[64];
	uint64_t start = clock_ns();

	for (unsigned int t = 0; t < nr_threads; t++) {
		part[t].from = nr_pages * t / nr_threads;
		part[t].to = nr_pages * (t + 1) / nr_threads;
		part[t].fill = fill;
		if (t && pthread_create(&part[t].thread, NULL, run_part, &part[t]))
			abort();
	}
	run_part(&part[0]);
	for (unsigned int t = 1; t < nr_threads; t++)
		pthread_join(part[t].thread, NULL);
	if (live && !fill)
		live->passes++;
	return clock_ns() - start;
}

static void *map_counters(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	void *p;

	if (fd < 0 || ftruncate(fd, PAGE_BYTES))
		abort();
	p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		abort();
	close(fd);
	return p;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: fill -m SIZE [-t THREADS] [-p PASSES] [-S SEED] [-r] [-z] [-R] [-H] [-w] "
		"[-T] [-o FILE [-L]]\n"
		"  -r  content that does not compress   -z  pages of zeros\n"
		"  -R  check in random order            -H  MADV_HUGEPAGE\n"
		"  -w  say \"ready\" when filled; then one pass for each line of standard input\n"
		"  -T  print the times                  -o  keep counters in FILE\n"
		"  -L  check until killed\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool huge = false, wait = false, times = false, forever = false;
	unsigned int passes = 1;
	uint64_t fill_ns, walk_ns = 0;
	size_t bytes = 0;
	char line[64];
	int c;

	while ((c = getopt(argc, argv, "m:t:p:S:rzRHwTo:L")) != -1) {
		switch (c) {
		case 'm':
			bytes = parse_bytes(optarg);
			break;
		case 't':
			nr_threads = atoi(optarg);
			break;
		case 'p':
			passes = atoi(optarg);
			break;
		case 'S':
			seed = atoi(optarg);
			break;
		case 'r':
			incompressible = true;
			break;
		case 'z':
			zero_content = true;
			break;
		case 'R':
			random_order = true;
			break;
		case 'H':
			huge = true;
			break;
		case 'w':
			wait = true;
			break;
		case 'T':
			times = true;
			break;
		case 'o':
			live = map_counters(optarg);
			break;
		case 'L':
			forever = true;
			break;
		default:
			return usage();
		}
	}
	if (!bytes || !nr_threads || nr_threads > 64)
		return usage();
	nr_pages = bytes / PAGE_BYTES;
	/* Aligned to 2 MiB, or huge pages would depend on luck. */
	region = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region == MAP_FAILED) {
		perror("fill: mmap");
		return 2;
	}
	region = (char *)(((uintptr_t)region + (2 << 20) - 1) & ~((2ul << 20) - 1));
	if (huge && madvise(region, bytes, MADV_HUGEPAGE))
		perror("fill: MADV_HUGEPAGE");

	fill_ns = run_all(true);
	if (wait) {
		printf("ready\n");
		fflush(stdout);
		while (fgets(line, sizeof(line), stdin)) {
			run_all(false);
			printf("pass wrong=%llu\n", (unsigned long long)wrong);
			fflush(stdout);
		}
	} else if (forever) {
		printf("ready\n");
		fflush(stdout);
		for (;;)
			run_all(false);
	} else {
		for (unsigned int i = 0; i < passes; i++)
			walk_ns += run_all(false);
	}
	printf("fill: pages=%llu wrong=%llu\n", (unsigned long long)nr_pages,
	       (unsigned long long)wrong);
	if (times)
		printf("fill_ns=%llu walk_ns=%llu\n", (unsigned long long)fill_ns,
		       (unsigned long long)walk_ns);
	return wrong != 0;
}
