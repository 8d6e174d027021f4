/* SPDX-License-Identifier: MIT */
/* Lets the evictor work where the pages that a test is about must not, or need not, leave. */
#ifndef USWAP_TESTS_BAIT_H
#define USWAP_TESTS_BAIT_H

#include "behave.h"

#define BAIT_PAGES 64

/* Returns once other pages, which were touched after all earlier ones, have been evicted. */
static inline void let_evict(void)
{
	static char *bait;

	if (!bait)
		bait = map_pages(BAIT_PAGES);
	fill_pages(bait, BAIT_PAGES, 0xba17);
	await_eviction(bait, BAIT_PAGES);
	check_pages(bait, BAIT_PAGES, 0xba17, "bait");
}

#endif
