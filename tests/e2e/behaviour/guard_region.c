/* SPDX-License-Identifier: MIT */
/* MADV_GUARD_INSTALL within swapped out memory: touching it is SIGSEGV, the pages beside it are as
 * they were, and it can be used again once it is removed. */
#include "segfault.h"


#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#define NR 128
#define FROM 37
#define GUARDED 6


static void check_around(char *p, unsigned int seed, const char *what)
{
	for (size_t i = 0; i < NR; i++)
		if ((i < FROM || i >= FROM + GUARDED) &&
		    !page_matches(p + i * PAGE_BYTES, page_tag_linear(seed, i)))
			fail("%s: page %zu", what, i);
}

int main(void)
{
	char *p = map_pages(NR), *guard = p + FROM * PAGE_BYTES, *q;

	catch_segfaults();
	if (madvise(guard, PAGE_BYTES, MADV_GUARD_INSTALL) && errno == EINVAL)
		skip("no guard regions here");
	must(madvise(guard, PAGE_BYTES, MADV_GUARD_REMOVE) == 0);
	for (unsigned int round = 0; round < 4; round++) {
		fill_pages(p, NR, 1 + round);
		await_eviction(p, NR);
		must(madvise(guard, GUARDED * PAGE_BYTES, MADV_GUARD_INSTALL) == 0);
		if (round & 1)
			check_around(p, 1 + round, "beside it, before it is touched");
		for (size_t i = 0; i < GUARDED; i++)
			must(segfaults(guard + i * PAGE_BYTES + 100 * i, (i + round) & 1));
		check_around(p, 1 + round, "beside it");
		/* System calls see it, too. */
		must(write(STDOUT_FILENO, guard, 1) == -1 && errno == EFAULT);
		fill_pages(p, FROM, 1 + round);
		await_eviction(p, FROM);
		must(segfaults(guard + 3 * PAGE_BYTES, true));
		check_around(p, 1 + round, "beside it, evicted once more");
		must(madvise(guard, GUARDED * PAGE_BYTES, MADV_GUARD_REMOVE) == 0);
		fill_pages(guard, GUARDED, 50);
		await_eviction(guard, GUARDED);
		check_pages(guard, GUARDED, 50, "used again");
		check_around(p, 1 + round, "beside what is used again");
	}

	/* Where nothing was before there are zeros once it is removed. */
	q = map_pages(NR);
	must(madvise(q + FROM * PAGE_BYTES, GUARDED * PAGE_BYTES, MADV_GUARD_INSTALL) == 0);
	fill_pages(q, FROM, 1);
	must(segfaults(q + FROM * PAGE_BYTES, true));
	await_eviction(q, FROM);
	must(madvise(q + FROM * PAGE_BYTES, GUARDED * PAGE_BYTES, MADV_GUARD_REMOVE) == 0);
	check_zero(q + FROM * PAGE_BYTES, NR - FROM, "removed");
	check_pages(q, FROM, 1, "before the removed one");
	return 0;
}
