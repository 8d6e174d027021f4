/* SPDX-License-Identifier: MIT */
/* A program that forbids others to look at it (PR_SET_DUMPABLE 0) is paged as before. */
#include "behave.h"

#include <sys/prctl.h>

#define NR 256

int main(void)
{
	char *p = map_pages(NR), *q;

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(prctl(PR_SET_DUMPABLE, 0) == 0);
	check_pages(p, NR, 1, "what was out before");
	q = map_pages(NR);
	fill_pages(q, NR, 2);
	fill_pages(p, NR, 3);
	if (await_eviction(p, NR) + await_eviction(q, NR) != 2 * NR && under_uswap())
		fail("nothing goes out any more");
	check_pages(p, NR, 3, "old memory");
	check_pages(q, NR, 2, "new memory");
	check_paged_child(p, NR, 3);
	must(prctl(PR_GET_DUMPABLE) == 0);
	return 0;
}
