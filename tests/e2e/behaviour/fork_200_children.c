/* SPDX-License-Identifier: MIT */
/* 200 short children, some at the same time; each checks a few evicted pages and changes one. */
#include "behave.h"

#define NR 256
#define CHILDREN 200
#define AT_ONCE 5

int main(void)
{
	char *p = map_pages(NR);
	pid_t pid[AT_ONCE];

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t *mine = &pid[i % AT_ONCE];
		int from = i * 37 % (NR - 8);

		if (i >= AT_ONCE)
			must(reap(*mine) == i % AT_ONCE);
		*mine = fork();
		must(*mine >= 0);
		if (*mine)
			continue;
		for (int k = from; k < from + 8; k++)
			if (!page_matches(p + k * PAGE_BYTES, page_tag_linear(1, k)))
				fail("child %d: page %d is %s", i, k,
				     page_is_zero(p + k * PAGE_BYTES) ? "zero" : "wrong");
		fill_pages(p + from * PAGE_BYTES, 4, 100 + i);
		check_pages(p + from * PAGE_BYTES, 4, 100 + i, "a child's own");
		_exit(i % AT_ONCE);
	}
	for (int i = 0; i < AT_ONCE; i++)
		must(reap(pid[i]) == i);
	await_eviction(p, NR);
	check_pages(p, NR, 1, "parent");
	must(wait(NULL) == -1 && errno == ECHILD);
	return 0;
}
