/* SPDX-License-Identifier: MIT */
/* Children and grandchildren that end at once, before anybody has got to know them: nothing is said
 * about them, and the memory that they looked at is right. */
#include "behave.h"

#define NR 64

int main(void)
{
	char *p = map_pages(NR);
	pid_t pid;

	for (unsigned int round = 0; round < 60; round++) {
		if (round % 20 == 0) {
			fill_pages(p, NR, 1 + round);
			await_eviction(p, NR);
		}
		pid = fork();
		must(pid >= 0);
		if (pid == 0) {
			must(page_matches(p + round * PAGE_BYTES,
					  page_tag_linear(1 + round / 20 * 20, round)));
			pid = fork();
			if (pid == 0)
				must(page_matches(p, page_tag_linear(1 + round / 20 * 20, 0)));
			_exit(pid < 0);
		}
		if (round % 3 == 0)
			must(reap(pid) == 0);
	}
	while (wait(NULL) > 0)
		;
	check_pages(p, NR, 41, "parent");
	return 0;
}
