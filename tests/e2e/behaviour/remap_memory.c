/* SPDX-License-Identifier: MIT */
/* mremap of memory that is swapped out: grown, shrunk, moved, moved over other memory, left behind
 * mapped, and of a part of a range. */
#include "behave.h"

#define NR 128

static char *remap(char *p, size_t from, size_t to, int flags, char *where)
{
	char *q = mremap(p, from * PAGE_BYTES, to * PAGE_BYTES, flags, where);

	if (q == MAP_FAILED)
		fail("mremap of %zu pages to %zu, flags %d: %s", from, to, flags, strerror(errno));
	return q;
}

/* Memory with a hole behind it, where it can grow. */
static char *with_room(void)
{
	char *p = map_pages(4 * NR);

	must(munmap(p + NR * PAGE_BYTES, 3 * NR * PAGE_BYTES) == 0);
	return p;
}

static void grow_and_shrink(unsigned int seed)
{
	char *p = with_room(), *q;

	fill_pages(p, NR, seed);
	await_eviction(p, NR);
	must(remap(p, NR, 2 * NR, 0, NULL) == p);
	check_zero(p + NR * PAGE_BYTES, NR, "grown part");
	fill_pages(p + NR * PAGE_BYTES, NR, seed + 1);
	await_eviction(p, 2 * NR);
	check_pages(p, NR, seed, "before the grown part");
	check_pages(p + NR * PAGE_BYTES, NR, seed + 1, "grown part");
	await_eviction(p, 2 * NR);

	/* Shrunk and grown again: zeros. */
	must(remap(p, 2 * NR, NR / 2, 0, NULL) == p);
	must(remap(p, NR / 2, 2 * NR, 0, NULL) == p);
	check_pages(p, NR / 2, seed, "what was left");
	check_zero(p + NR / 2 * PAGE_BYTES, 2 * NR - NR / 2, "grown again");
	fill_pages(p, 2 * NR, seed + 2);
	await_eviction(p, 2 * NR);

	/* Something in the way: it has to move, in order to grow. */
	must(mmap(p + 2 * NR * PAGE_BYTES, PAGE_BYTES, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
	must(mremap(p, 2 * NR * PAGE_BYTES, 3 * NR * PAGE_BYTES, 0) == MAP_FAILED);
	q = remap(p, 2 * NR, 3 * NR, MREMAP_MAYMOVE, NULL);
	must(q != p);
	check_pages(q, 2 * NR, seed + 2, "moved and grown");
	check_zero(q + 2 * NR * PAGE_BYTES, NR, "new part of what moved");
	must(munmap(p + 2 * NR * PAGE_BYTES, PAGE_BYTES) == 0);
	must(munmap(q, 3 * NR * PAGE_BYTES) == 0);
}

static void move_over(unsigned int seed)
{
	char *p = map_pages(NR), *q = map_pages(NR);

	fill_pages(p, NR, seed);
	fill_pages(q, NR, seed + 1);
	await_eviction(p, NR);
	await_eviction(q, NR);
	must(remap(p, NR, NR, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	check_pages(q, NR / 2, seed, "moved over other memory");
	must(mmap(p, NR * PAGE_BYTES, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p);
	check_zero(p, NR, "mapped where it was");
	await_eviction(q, NR);
	check_pages(q, NR, seed, "moved over other memory, evicted there");
	munmap(p, NR * PAGE_BYTES);
	munmap(q, NR * PAGE_BYTES);
}

static void leave_mapped(unsigned int seed)
{
	char *p = map_pages(NR), *q;

	fill_pages(p, NR, seed);
	await_eviction(p, NR);
	q = mremap(p, NR * PAGE_BYTES, NR * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	must(q != MAP_FAILED);
	check_pages(q, NR / 2, seed, "moved, and left mapped");
	check_zero(p, NR, "left behind mapped");
	fill_pages(p, NR, seed + 1);
	await_eviction(p, NR);
	await_eviction(q, NR);
	check_pages(p, NR, seed + 1, "left behind and written to");
	check_pages(q, NR, seed, "moved, and left mapped, evicted there");
	munmap(p, NR * PAGE_BYTES);
	munmap(q, NR * PAGE_BYTES);
}

static void move_part(unsigned int seed)
{
	char *p = map_pages(2 * NR), *part = p + 40 * PAGE_BYTES, *q = map_pages(NR);

	must(munmap(q, NR * PAGE_BYTES) == 0);
	fill_pages(p, 40, seed);
	fill_pages(part, 50, seed + 1);
	fill_pages(part + 50 * PAGE_BYTES, 2 * NR - 90, seed + 2);
	await_eviction(p, 2 * NR);
	must(remap(part, 50, 50, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	check_pages(q, 50, seed + 1, "a part, moved");
	check_pages(p, 40, seed, "before the part");
	check_pages(part + 50 * PAGE_BYTES, 2 * NR - 90, seed + 2, "behind the part");
	await_eviction(q, 50);

	/* Back into the hole. */
	must(remap(q, 50, 50, MREMAP_MAYMOVE | MREMAP_FIXED, part) == part);
	check_pages(part, 50, seed + 1, "a part, moved back");
	await_eviction(p, 2 * NR);
	check_pages(p, 40, seed, "before the part that came back");
	check_pages(part, 50, seed + 1, "the part that came back");
	check_pages(part + 50 * PAGE_BYTES, 2 * NR - 90, seed + 2, "behind the part");
	munmap(p, 2 * NR * PAGE_BYTES);
}

int main(void)
{
	for (unsigned int round = 0; round < 4; round++) {
		grow_and_shrink(10 * round + 1);
		move_over(10 * round + 4);
		leave_mapped(10 * round + 6);
		move_part(10 * round + 8);
	}
	return 0;
}
