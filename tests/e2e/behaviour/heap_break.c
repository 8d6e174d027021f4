/* SPDX-License-Identifier: MIT */
/* The end of the heap goes up and down over swapped out memory: what stays is as it was, what comes
 * anew is zero. */
#include "behave.h"

#define NR 512

static void move_break(long pages)
{
	must(sbrk(pages * (long)PAGE_BYTES) != (void *)-1);
}

int main(void)
{
	uintptr_t end = (uintptr_t)sbrk(0);
	char *p;

	must(sbrk((long)(-end & (PAGE_BYTES - 1))) != (void *)-1);
	p = sbrk(0);
	for (unsigned int round = 0; round < 4; round++) {
		move_break(NR);
		check_zero(p, NR, "heap");
		fill_pages(p, NR, 1 + round);
		await_eviction(p, NR);
		move_break(-(NR / 2));
		check_pages(p, NR / 4, 1 + round, "below the break");
		move_break(NR / 2);
		check_zero(p + NR / 2 * PAGE_BYTES, NR / 2, "above the old break");
		check_pages(p, NR / 2, 1 + round, "below the old break");
		/* Page by page. */
		fill_pages(p, NR, 10 + round);
		await_eviction(p, NR / 2);
		for (int i = 0; i < 40; i++)
			move_break(-1);
		for (int i = 0; i < 40; i++)
			move_break(1);
		check_pages(p, NR - 40, 10 + round, "below forty pages");
		check_zero(p + (NR - 40) * PAGE_BYTES, 40, "forty pages");
		move_break(-NR);
	}
	return 0;
}
