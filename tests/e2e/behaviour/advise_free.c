/* SPDX-License-Identifier: MIT */
/* After MADV_FREE a page is what it was or zero, never another one; what is written then stays. */
#include "behave.h"

#define NR 128

/* Pages from..NR of p are zero, or what fill_pages(p, NR, seed) wrote. */
static void check_freed(const char *p, size_t from, unsigned int seed, const char *what)
{
	for (size_t i = from; i < NR; i++) {
		const char *page = p + i * PAGE_BYTES;

		if (!page_is_zero(page) && !page_matches(page, page_tag_linear(seed, i)))
			fail("%s: page %zu is another one", what, i);
	}
}

int main(void)
{
	char *p = map_pages(NR), *q = map_pages(NR);

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(madvise(p, NR * PAGE_BYTES, MADV_FREE) == 0);
	check_freed(p, 0, 1, "freed while it was out");

	/* Freed while it is present; half is written to, and must stay. */
	fill_pages(q, NR, 2);
	must(madvise(q, NR * PAGE_BYTES, MADV_FREE) == 0);
	fill_pages(q, NR / 2, 3);
	fill_pages(p, NR, 4);
	await_eviction(p, NR);
	for (int i = 0; i < 40; i++) {
		check_pages(q, NR / 2, 3, "written after MADV_FREE");
		if (under_uswap())
			usleep(20000);
	}
	check_pages(p, NR, 4, "written after MADV_FREE of what was out");

	/* By now the rest may have been evicted, or taken. */
	check_freed(q, NR / 2, 2, "freed while it was present");
	return 0;
}
