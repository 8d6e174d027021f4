/* SPDX-License-Identifier: MIT */
/* mlock, mlock2 and munlock of swapped out memory: it comes back right, stays resident while it is
 * locked, and can go again afterwards. */
#include "bait.h"

#define NR 128

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static void check_stays(char *p, size_t nr, const char *what)
{
	size_t n = pages_resident(p, nr);

	if (n != nr)
		fail("%s: %zu of %zu pages are resident", what, n, nr);
	for (int i = 0; i < 3; i++)
		let_evict();
	n = pages_resident(p, nr);
	if (n != nr)
		fail("%s: %zu of %zu pages stayed", what, n, nr);
}

int main(void)
{
	char *p = map_pages(NR), *part = p + 40 * PAGE_BYTES, *q;

	for (unsigned int round = 0; round < 3; round++) {
		fill_pages(p, NR, 1 + round);
		await_eviction(p, NR);
		must(mlock(p, NR * PAGE_BYTES) == 0);
		check_stays(p, NR, "locked");
		check_pages(p, NR, 1 + round, "locked");
		must(munlock(p, NR * PAGE_BYTES) == 0);
		fill_pages(p, NR, 10 + round);
		await_eviction(p, NR);
		check_pages(p, NR, 10 + round, "unlocked");

		/* A part, while its neighbours go. */
		await_eviction(p, NR);
		must(mlock(part, 20 * PAGE_BYTES) == 0);
		check_stays(part, 20, "part locked");
		check_pages(p, NR, 10 + round, "around the locked part");
		check_stays(part, 20, "part locked");
		must(munlock(part, 20 * PAGE_BYTES) == 0);
		fill_pages(p, NR, 20 + round);
		await_eviction(p, NR);
		check_pages(p, NR, 20 + round, "part unlocked");
	}

	/* Locked as it is touched: pages that are out come back when they are wanted, and stay. */
	fill_pages(p, NR, 30);
	await_eviction(p, NR);
	if (syscall(SYS_mlock2, p, NR * PAGE_BYTES, MLOCK_ONFAULT) == 0) {
		check_pages(p, NR, 30, "locked on fault");
		check_stays(p, NR, "locked on fault");
		must(munlock(p, NR * PAGE_BYTES) == 0);
	}
	check_pages(p, NR, 30, "after mlock2");

	/* Locked from the start. */
	q = mmap(NULL, NR * PAGE_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	must(q != MAP_FAILED);
	fill_pages(q, NR, 31);
	check_stays(q, NR, "MAP_LOCKED");
	check_pages(q, NR, 31, "MAP_LOCKED");
	must(munlock(q, NR * PAGE_BYTES) == 0);
	fill_pages(q, NR, 32);
	await_eviction(q, NR);
	check_pages(q, NR, 32, "MAP_LOCKED, unlocked");
	return 0;
}
