/* SPDX-License-Identifier: MIT */
/* A program that gives up root in the middle: what was out comes back, and goes out again. */
#include "behave.h"

#include <grp.h>

#define NR 256

int main(void)
{
	char *p = map_pages(NR), *q;

	if (getuid() != 0)
		skip("needs root");
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(setgroups(0, NULL) == 0);
	must(setresgid(65534, 65534, 65534) == 0);
	must(setresuid(65534, 65534, 65534) == 0);
	must(setuid(0) == -1);
	check_pages(p, NR, 1, "after setuid");
	q = map_pages(NR);
	for (int i = 2; i < 4; i++) {
		fill_pages(q, NR, i);
		fill_pages(p, NR, 10 + i);
		if (await_eviction(p, NR) + await_eviction(q, NR) != 2 * NR && under_uswap())
			fail("nothing goes out any more");
		check_pages(q, NR, i, "new memory");
		check_pages(p, NR, 10 + i, "old memory");
	}
	check_paged_child(p, NR, 13);
	return 0;
}
