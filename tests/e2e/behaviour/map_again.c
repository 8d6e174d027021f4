/* SPDX-License-Identifier: MIT */
/* munmap and mmap of the same address, MAP_FIXED over swapped out memory or a part of it: the new
 * memory is zero, or the file that was mapped, and the rest as it was. */
#include "behave.h"

#define NR 128
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void map_at(char *p, size_t nr, int flags, int fd)
{
	must(mmap(p, nr * PAGE_BYTES, RW, flags, fd, 0) == p);
}

int main(void)
{
	int file = memfd_create("behaviour", 0);
	char *p = map_pages(NR), *other = map_pages(16), *part = p + 30 * PAGE_BYTES;

	must(file >= 0 && ftruncate(file, 16 * PAGE_BYTES) == 0);
	fill_pages(other, 16, 70);
	must(pwrite(file, other, 16 * PAGE_BYTES, 0) == 16 * PAGE_BYTES);
	for (unsigned int round = 0; round < 12; round++) {
		unsigned int seed = 1 + round * 4;

		fill_pages(p, NR, seed);
		await_eviction(p, NR);
		must(munmap(p, NR * PAGE_BYTES) == 0);
		map_at(p, NR, PRIVATE | MAP_FIXED_NOREPLACE, -1);
		check_zero(p, NR, "mapped again");

		/* Some of it touched before it goes, some not. */
		fill_pages(p, NR, seed + 1);
		await_eviction(p, NR);
		check_pages(p, NR / 2, seed + 1, "before MAP_FIXED");
		map_at(p, NR, PRIVATE | MAP_FIXED, -1);
		check_zero(p, NR, "mapped over");

		/* A part, written to at once. */
		fill_pages(p, NR, seed + 2);
		await_eviction(p, NR);
		map_at(part, 16, PRIVATE | MAP_FIXED, -1);
		check_zero(part, 8, "part mapped over");
		fill_pages(part, 16, seed + 3);
		check_pages(p, 30, seed + 2, "before the part");
		await_eviction(p, NR);
		check_pages(part, 16, seed + 3, "part mapped over");
		for (size_t i = 46; i < NR; i++)
			if (!page_matches(p + i * PAGE_BYTES, page_tag_linear(seed + 2, i)))
				fail("behind the part: page %zu", i);

		/* A part that is a file for a while, shared or private. */
		map_at(part, 16, (round & 1 ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, file);
		check_pages(part, 16, 70, "file over the part");
		map_at(part, 16, PRIVATE | MAP_FIXED, -1);
		check_zero(part, 16, "over the file");
		check_pages(p, 30, seed + 2, "before the file");
	}
	return 0;
}
