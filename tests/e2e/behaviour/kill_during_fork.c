/* SPDX-License-Identifier: MIT */
/* A child is killed up to 2 ms after its birth, 100 times: its parent and its siblings are right.
 */
#include "behave.h"

#define NR 128

int main(void)
{
	char *p = map_pages(NR);

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork(), sibling = 0;
		int status;

		must(pid >= 0);
		if (pid == 0) {
			for (;;) {
				check_pages(p, NR, 1, "child");
				if (i & 1)
					fill_pages(p, NR, 1);
			}
		}
		if (i % 10 == 5) {
			sibling = fork();
			must(sibling >= 0);
			if (sibling == 0) {
				check_pages(p, NR, 1, "sibling");
				_exit(7);
			}
		}
		if (i % 4)
			usleep(i * 20);
		must(kill(pid, SIGKILL) == 0);
		must(waitpid(pid, &status, 0) == pid);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			fail("child %d ended with %x", i, status);
		if (sibling)
			must(reap(sibling) == 7);
		must(page_matches(p + i * PAGE_BYTES, page_tag_linear(1, i)));
	}
	await_eviction(p, NR);
	check_pages(p, NR, 1, "parent");
	return 0;
}
