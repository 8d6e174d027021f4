/* SPDX-License-Identifier: MIT */
/* A child does not have what bears MADV_DONTFORK, and finds zeros in what bears MADV_WIPEONFORK;
 * the parent keeps both, and what lies between. */
#include "behave.h"

#define NR 64

int main(void)
{
	for (unsigned int round = 0; round < 3; round++) {
		char *around = map_pages(5 * NR), *not_forked = around + NR * PAGE_BYTES;
		char *wiped = around + 3 * NR * PAGE_BYTES;
		unsigned char vec[NR];
		pid_t pid;

		must(madvise(wiped, NR * PAGE_BYTES, MADV_WIPEONFORK) == 0);
		must(madvise(not_forked, NR * PAGE_BYTES, MADV_DONTFORK) == 0);
		fill_pages(around, NR, 1);
		fill_pages(not_forked, NR, 2);
		fill_pages(around + 2 * NR * PAGE_BYTES, NR, 3);
		fill_pages(wiped, NR, 4);
		fill_pages(around + 4 * NR * PAGE_BYTES, NR, 5);
		await_eviction(around, 3 * NR);
		pid = fork();
		must(pid >= 0);
		if (pid == 0) {
			must(mincore(not_forked, NR * PAGE_BYTES, vec) == -1 && errno == ENOMEM);
			check_zero(wiped, NR, "child, wiped");
			check_pages(around, NR, 1, "child");
			/* The hole can be used. */
			must(mmap(not_forked, NR * PAGE_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
				  0) == not_forked);
			check_zero(not_forked, NR, "child, new memory");
			fill_pages(not_forked, NR, 6);
			await_eviction(not_forked, NR);
			check_pages(not_forked, NR, 6, "child, in the hole");
			check_pages(around + 2 * NR * PAGE_BYTES, NR, 3, "child");
			check_pages(around + 4 * NR * PAGE_BYTES, NR, 5, "child");
			_exit(0);
		}
		check_pages(not_forked, NR, 2, "parent, not forked");
		must(reap(pid) == 0);
		check_pages(wiped, NR, 4, "parent, wiped in the child");
		check_pages(around, NR, 1, "parent");
		check_pages(around + 2 * NR * PAGE_BYTES, NR, 3, "parent");
		check_pages(around + 4 * NR * PAGE_BYTES, NR, 5, "parent");

		/* Undone: the next child has it. */
		must(madvise(not_forked, NR * PAGE_BYTES, MADV_DOFORK) == 0);
		await_eviction(not_forked, NR);
		pid = fork();
		must(pid >= 0);
		if (pid == 0) {
			check_pages(not_forked, NR, 2, "child, after DOFORK");
			_exit(0);
		}
		must(reap(pid) == 0);
		must(munmap(around, 5 * NR * PAGE_BYTES) == 0);
	}
	return 0;
}
