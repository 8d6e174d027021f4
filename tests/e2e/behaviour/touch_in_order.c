/* SPDX-License-Identifier: MIT */
/* New memory touched page by page, up to the very end of its mapping, with other mappings and guard
 * regions close behind: what is answered ahead of a touch must stop in time. */
#include "segfault.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

#define NR 256
#define GUARD_AT 100

static char *between(void)
{
	/* [no access][NR pages][no access] */
	char *p = mmap(NULL, (NR + 64) * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	must(mprotect(p + 32 * PAGE_BYTES, NR * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
	return p + 32 * PAGE_BYTES;
}

static void in_order(char *p, size_t nr, unsigned int seed)
{
	for (size_t i = 0; i < nr; i++) {
		check_zero(p + i * PAGE_BYTES, 1, "new memory");
		fill_pages(p + i * PAGE_BYTES, 1, seed + (unsigned int)i);
	}
	for (size_t i = 0; i < nr; i++)
		check_pages(p + i * PAGE_BYTES, 1, seed + (unsigned int)i, "touched in order");
}

/* Written without a look first, which is what is answered ahead. */
static void written_in_order(char *p, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		*(volatile char *)(p + i * PAGE_BYTES + 8) = (char)(i | 1);
	for (size_t i = 0; i < nr; i++)
		must(p[i * PAGE_BYTES + 8] == (char)(i | 1) && p[i * PAGE_BYTES] == 0);
}

int main(void)
{
	bool guards = true;

	catch_segfaults();
	for (unsigned int round = 0; round < 20; round++) {
		char *p = between(), *q = between();

		written_in_order(p, NR);
		must(segfaults(p + NR * PAGE_BYTES, round & 1));
		/* The end of the mapping moves to where the next touches would be. */
		must(munmap(p + NR / 2 * PAGE_BYTES, NR / 2 * PAGE_BYTES) == 0);
		must(segfaults(p + NR / 2 * PAGE_BYTES, true));
		in_order(q, NR, round);

		p = map_pages(NR);
		if (guards && madvise(p + GUARD_AT * PAGE_BYTES, 3 * PAGE_BYTES,
				      MADV_GUARD_INSTALL) != 0) {
			must(errno == EINVAL);
			guards = false;
		}
		written_in_order(p, GUARD_AT);
		for (size_t i = 0; guards && i < 3; i++)
			must(segfaults(p + (GUARD_AT + i) * PAGE_BYTES, true));
		written_in_order(p + (GUARD_AT + 3) * PAGE_BYTES, NR - GUARD_AT - 3);
		must(munmap(p, NR * PAGE_BYTES) == 0);
	}
	return 0;
}
