/* SPDX-License-Identifier: MIT */
/* madvise of single pages within swapped out memory: DONTNEED gives zeros there and nowhere else;
 * COLD, PAGEOUT, WILLNEED, HUGEPAGE and the like change no content. */
#include "behave.h"

#define NR 128

static const int harmless[] = {
	MADV_NORMAL,   MADV_RANDOM,	MADV_SEQUENTIAL,    MADV_WILLNEED,
	MADV_COLD,     MADV_PAGEOUT,	MADV_DONTDUMP,	    MADV_DODUMP,
	MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
};

static bool is_hole(size_t i)
{
	return i % 16 == 5 || i % 16 == 6 || i == 0 || i == NR - 1;
}

int main(void)
{
	char *p = map_pages(NR);

	for (unsigned int round = 0; round < 6; round++) {
		fill_pages(p, NR, 1 + round);
		await_eviction(p, NR);
		/* Half of the neighbours are back, half are out. */
		if (round & 1)
			for (size_t i = 0; i < NR; i += 3)
				must(page_matches(p + i * PAGE_BYTES,
						  page_tag_linear(1 + round, i)));
		for (size_t i = 0; i < NR; i++)
			if (is_hole(i))
				must(madvise(p + i * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED) == 0);
		if (round & 2)
			await_eviction(p, NR);
		for (size_t i = 0; i < NR; i++) {
			const char *page = p + i * PAGE_BYTES;

			if (is_hole(i) ? !page_is_zero(page)
				       : !page_matches(page, page_tag_linear(1 + round, i)))
				fail("DONTNEED: page %zu of round %u", i, round);
		}
	}

	for (size_t a = 0; a < sizeof(harmless) / sizeof(harmless[0]); a++) {
		fill_pages(p, NR, 40 + a);
		await_eviction(p, NR);
		/* EINVAL: a kernel that was built without it. */
		if (madvise(p, NR / 2 * PAGE_BYTES, harmless[a]))
			must(errno == EINVAL);
		check_pages(p, NR, 40 + a, "after harmless advice");
		if (madvise(p, NR * PAGE_BYTES, harmless[a]))
			must(errno == EINVAL);
		check_pages(p, NR, 40 + a, "after harmless advice, present");
	}

	/* The whole, while it is out, in and on its way. */
	for (unsigned int round = 0; round < 20; round++) {
		fill_pages(p, NR, 80 + round);
		if (round & 1)
			await_eviction(p, NR);
		must(madvise(p, NR * PAGE_BYTES, MADV_DONTNEED) == 0);
		check_zero(p, NR, "DONTNEED of all");
	}
	return 0;
}
