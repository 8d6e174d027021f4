/* SPDX-License-Identifier: MIT */
/* mlockall brings back what is swapped out and keeps it, and what is mapped later; after munlockall
 * memory can go again. */
#include "behave.h"

#define NR 128

static void check_resident(char *p, const char *what)
{
	size_t n = pages_resident(p, NR);

	if (n != NR)
		fail("%s: %zu of %u pages are resident", what, n, NR);
}

int main(void)
{
	char *p = map_pages(NR), *q, *r;

	for (unsigned int round = 0; round < 2; round++) {
		fill_pages(p, NR, 1 + round);
		await_eviction(p, NR);
		must(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
		check_resident(p, "locked");
		q = map_pages(NR);
		check_resident(q, "mapped while all is locked");
		check_zero(q, NR, "mapped while all is locked");
		fill_pages(q, NR, 10 + round);
		if (under_uswap())
			usleep(100000);
		check_resident(p, "still locked");
		check_resident(q, "still locked, mapped later");
		check_pages(p, NR, 1 + round, "locked");
		check_pages(q, NR, 10 + round, "locked, mapped later");
		must(munlockall() == 0);

		fill_pages(p, NR, 20 + round);
		await_eviction(p, NR);
		await_eviction(q, NR);
		check_pages(p, NR, 20 + round, "unlocked");
		check_pages(q, NR, 10 + round, "unlocked, mapped while all was locked");
		r = map_pages(NR);
		check_zero(r, NR, "mapped after it");
		fill_pages(r, NR, 30 + round);
		await_eviction(r, NR);
		check_pages(r, NR, 30 + round, "mapped after it");
		must(munmap(q, NR * PAGE_BYTES) == 0);
		must(munmap(r, NR * PAGE_BYTES) == 0);
	}
	return 0;
}
