/* SPDX-License-Identifier: MIT */
/* mprotect to NONE, READ and back, of single pages and of all, while their neighbours are evicted
 * and come back: no content changes, and what is inaccessible stays so. */
#include "segfault.h"

#include <stdatomic.h>

#define NR 128
#define RW (PROT_READ | PROT_WRITE)

static char *area;
static atomic_bool done;

/* Its own pages are every second one. */
static void *neighbour(void *arg)
{
	unsigned int seed = 1;

	while (!done) {
		for (size_t i = 1; i < NR; i += 2)
			page_fill(area + i * PAGE_BYTES, page_tag_linear(seed, i));
		usleep(500);
		for (size_t i = 1; i < NR; i += 2)
			if (!page_matches(area + i * PAGE_BYTES, page_tag_linear(seed, i)))
				fail("neighbour: page %zu", i);
		seed = seed % 1000 + 1;
	}
	return NULL;
}

int main(void)
{
	uint64_t until = clock_ns() + 600000000ull;
	pthread_t thread;
	unsigned int round;

	catch_segfaults();
	area = map_pages(NR);
	must(pthread_create(&thread, NULL, neighbour, NULL) == 0);
	for (round = 0; round < 2000 && clock_ns() < until; round++) {
		for (size_t i = 0; i < NR; i += 2)
			page_fill(area + i * PAGE_BYTES, page_tag_linear(2000 + round, i));
		if (round % 8 == 0)
			usleep(3000);
		for (size_t i = round % 8 & ~1u; i < NR; i += 8) {
			char *page = area + i * PAGE_BYTES;
			int prot = i & 8 ? PROT_NONE : PROT_READ;

			must(mprotect(page, PAGE_BYTES, prot) == 0);
			if (i % 32 == 0 || i % 32 == 8)
				must(segfaults(page + 1, prot == PROT_READ));
		}
		for (size_t i = round % 8 & ~1u; i < NR; i += 8)
			must(mprotect(area + i * PAGE_BYTES, PAGE_BYTES, RW) == 0);
		for (size_t i = 0; i < NR; i += 2)
			if (!page_matches(area + i * PAGE_BYTES, page_tag_linear(2000 + round, i)))
				fail("round %u: page %zu", round, i);
	}
	done = true;
	must(pthread_join(thread, NULL) == 0);

	/* All of it while it is out. */
	for (int i = 0; i < 5; i++) {
		fill_pages(area, NR, i + 1);
		await_eviction(area, NR);
		must(mprotect(area, NR * PAGE_BYTES, PROT_NONE) == 0);
		must(segfaults(area + i * 5 * PAGE_BYTES, false));
		must(mprotect(area, NR * PAGE_BYTES, PROT_READ) == 0);
		check_pages(area, NR / 2, i + 1, "read-only");
		must(segfaults(area + i * 5 * PAGE_BYTES, true));
		must(mprotect(area, NR * PAGE_BYTES, RW) == 0);
		check_pages(area, NR, i + 1, "writable again");
	}
	return 0;
}
