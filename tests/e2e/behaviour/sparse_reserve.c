/* SPDX-License-Identifier: MIT */
/* 64 GiB without reserve touched here and there, and 16 TiB reserved with PROT_NONE of which parts
 * are opened by mprotect, closed, and opened again. */
#include "behave.h"

#define GB (1024ul * MB)
#define STEP (256 * MB)
#define TOUCHED (64 * GB / STEP)
#define PARTS 8
#define PART 64

static char *sparse_page(char *p, size_t i)
{
	return p + i * STEP + i % 7 * PAGE_BYTES;
}

static size_t sparse_out(char *p)
{
	size_t out = 0;

	for (size_t i = 0; i < TOUCHED; i++)
		out += !pages_resident(sparse_page(p, i), 1);
	return out;
}

static void sparse(void)
{
	char *p = mmap(NULL, 64 * GB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(p != MAP_FAILED);
	for (unsigned int round = 1; round < 4; round++) {
		for (size_t i = 0; i < TOUCHED; i++)
			page_fill(sparse_page(p, i), page_tag_linear(round, i));
		for (int i = 0; under_uswap() && i < 200 && sparse_out(p) < TOUCHED; i++)
			usleep(5000);
		for (size_t i = 0; i < TOUCHED; i++) {
			if (!page_matches(sparse_page(p, i), page_tag_linear(round, i)))
				fail("page %zu of 64 GiB, round %u", i, round);
			must(page_is_zero(sparse_page(p, i) + 9 * PAGE_BYTES));
		}
	}
	must(munmap(p, 64 * GB) == 0);
}

static void reserve(void)
{
	char *p = mmap(NULL, 16384 * GB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);

	must(p != MAP_FAILED);
	for (unsigned int round = 1; round < 4; round++) {
		for (size_t i = 0; i < PARTS; i++) {
			char *part = p + i * 2000 * GB + i * 12345 * PAGE_BYTES;

			must(mprotect(part, PART * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
			check_zero(part, PART, "opened");
			fill_pages(part, PART, 10 * round + i);
		}
		for (size_t i = 0; i < PARTS; i++) {
			char *part = p + i * 2000 * GB + i * 12345 * PAGE_BYTES;

			await_eviction(part, PART);
			/* Longer by as much again. */
			must(mprotect(part, 2 * PART * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
			check_zero(part + PART * PAGE_BYTES, PART, "opened behind it");
			check_pages(part, PART / 2, 10 * round + i, "a part of 16 TiB");
			fill_pages(part + PART * PAGE_BYTES, PART, 50 * round + i);
		}
		for (size_t i = 0; i < PARTS; i++) {
			char *part = p + i * 2000 * GB + i * 12345 * PAGE_BYTES;

			await_eviction(part, 2 * PART);
			check_pages(part, PART, 10 * round + i, "a part of 16 TiB");
			check_pages(part + PART * PAGE_BYTES, PART, 50 * round + i, "behind it");
			must(madvise(part, 2 * PART * PAGE_BYTES, MADV_DONTNEED) == 0);
			must(mprotect(part, 2 * PART * PAGE_BYTES, PROT_NONE) == 0);
		}
	}
}

int main(void)
{
	sparse();
	reserve();
	return 0;
}
