/* SPDX-License-Identifier: MIT */
/* Huge pages by advice, made by the kernel and by MADV_COLLAPSE, while their pages are evicted and
 * come back. */
#include "behave.h"

#include <stdatomic.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE (2 * MB)
#define NR (3 * HUGE / PAGE_BYTES)

static char *area;
static atomic_bool done;

static void *collapse(void *arg)
{
	while (!done) {
		for (size_t i = 0; i < 3; i++)
			madvise(area + i * HUGE, HUGE, MADV_COLLAPSE);
		usleep(1000);
	}
	return NULL;
}

int main(void)
{
	uint64_t until;
	pthread_t thread;
	char *p = map_pages(NR + HUGE / PAGE_BYTES);

	area = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	if (madvise(area, 3 * HUGE, MADV_HUGEPAGE) && errno == EINVAL)
		skip("no huge pages here");
	must(pthread_create(&thread, NULL, collapse, NULL) == 0);
	until = clock_ns() + 900000000ull;
	for (unsigned int round = 1; round < 60 && clock_ns() < until; round++) {
		fill_pages(area, NR, round);
		if (round % 4 == 0)
			await_eviction(area + HUGE, 256);
		/* One in the middle of a huge page becomes zero. */
		must(madvise(area + (round + 600) * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED) == 0);
		for (size_t i = 0; i < NR; i++) {
			const char *page = area + i * PAGE_BYTES;

			if (i == round + 600 ? !page_is_zero(page)
					     : !page_matches(page, page_tag_linear(round, i)))
				fail("round %u: page %zu", round, i);
		}
	}
	done = true;
	must(pthread_join(thread, NULL) == 0);
	fill_pages(area, NR, 99);
	must(mremap(area, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED);
	check_zero(area, HUGE / PAGE_BYTES, "moved away");
	return 0;
}
