/* SPDX-License-Identifier: MIT */
/*
 * Pages with a name: fill a page so that its content says which page it is, and tell later
 * whether it still is that page, is zero, is another page, or is damaged.
 *
 * Every word of a page is checked, so one wrong byte is found. The four layouts make the engine
 * take its different ways: mostly zero, same-filled, compressible, incompressible.
 * No locks, no allocation: usable in a forked child of a threaded program.
 */
#ifndef USWAP_TESTS_PAGES_H
#define USWAP_TESTS_PAGES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE_BYTES 4096ul
#define PAGE_WORDS (PAGE_BYTES / 8)
#define TAG_MARK 0xaull /* lowest four bits of every tag: a tag is never zero */

enum page_layout { PAGE_SPARSE, PAGE_SAME, PAGE_REGULAR, PAGE_RANDOM };
enum page_verdict { PAGE_RIGHT, PAGE_ZERO, PAGE_STALE, PAGE_MISPLACED, PAGE_DAMAGED };

static inline uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* owner and slot: 8 bits; generation: 20; index: 12; version: 12. */
static inline uint64_t page_tag(unsigned int owner, unsigned int slot, unsigned int generation,
				unsigned int index, unsigned int version)
{
	return (uint64_t)(owner & 0xff) << 56 | (uint64_t)(slot & 0xff) << 48 |
	       (uint64_t)(generation & 0xfffff) << 28 | (uint64_t)(index & 0xfff) << 16 |
	       (uint64_t)(version & 0xfff) << 4 | TAG_MARK;
}

/* For one large region: the number of the page and a seed. */
static inline uint64_t page_tag_linear(unsigned int seed, uint64_t index)
{
	return (uint64_t)(seed & 0xffff) << 48 | (index & 0xfffffffffffull) << 4 | TAG_MARK;
}

static inline enum page_layout page_layout_of(uint64_t tag)
{
	return (enum page_layout)(mix64(tag) & 3);
}

static inline uint64_t page_word(uint64_t tag, enum page_layout layout, size_t i)
{
	switch (layout) {
	case PAGE_SPARSE:
		return i == 0 ? tag : i == 255 ? tag * 3 : i == 511 ? ~tag : 0;
	case PAGE_SAME:
		return tag;
	case PAGE_REGULAR:
		return tag + (i & 7) * 0x0101010101010101ull;
	default:
		/* Not mix64(tag + i): pages with near tags would be shifted copies of each other. */
		return i == 0 ? tag : mix64(tag * 0x9fb21c651e98df25ull ^ i);
	}
}

static inline void page_fill_as(void *page, uint64_t tag, enum page_layout layout)
{
	uint64_t *w = page;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		w[i] = page_word(tag, layout, i);
}

static inline bool page_matches_as(const void *page, uint64_t tag, enum page_layout layout)
{
	const uint64_t *w = page;
	uint64_t difference = 0;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		difference |= w[i] ^ page_word(tag, layout, i);
	return difference == 0;
}

static inline void page_fill(void *page, uint64_t tag)
{
	page_fill_as(page, tag, page_layout_of(tag));
}

static inline bool page_matches(const void *page, uint64_t tag)
{
	return page_matches_as(page, tag, page_layout_of(tag));
}

static inline bool page_is_zero(const void *page)
{
	const uint64_t *w = page;
	uint64_t any = 0;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		any |= w[i];
	return any == 0;
}

/* What a page that should bear `tag` is. Stale: an older or newer version of the same area. */
static inline enum page_verdict page_judge(const void *page, uint64_t tag)
{
	uint64_t found;

	if (page_matches(page, tag))
		return PAGE_RIGHT;
	if (page_is_zero(page))
		return PAGE_ZERO;
	found = *(const uint64_t *)page;
	if ((found & 0xf) == TAG_MARK && page_matches(page, found))
		return found >> 48 == tag >> 48 ? PAGE_STALE : PAGE_MISPLACED;
	return PAGE_DAMAGED;
}

static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* How many pages of an anonymous range are mapped right now: an evicted page is not. */
static inline size_t pages_resident(void *base, size_t nr_pages)
{
	unsigned char vec[1024];
	size_t resident = 0;

	for (size_t at = 0; at < nr_pages; at += sizeof(vec)) {
		size_t n = nr_pages - at < sizeof(vec) ? nr_pages - at : sizeof(vec);

		if (mincore((char *)base + at * PAGE_BYTES, n * PAGE_BYTES, vec))
			return 0;
		for (size_t i = 0; i < n; i++)
			resident += vec[i] & 1;
	}
	return resident;
}

/*
 * Memory that uswap leaves alone, for what a test must remember: less than 128 KiB, with
 * inaccessible pages around it so that the kernel cannot merge it with a neighbour.
 */
static inline void *unmanaged_alloc(size_t bytes, bool shared)
{
	size_t len = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
	char *around, *p;

	if (len >= 128 * 1024)
		abort();
	around = mmap(NULL, len + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (around == MAP_FAILED)
		abort();
	p = mmap(around + PAGE_BYTES, len, PROT_READ | PROT_WRITE,
		 (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

/* "64M" and the like; 0 on nonsense. */
static inline size_t parse_bytes(const char *s)
{
	char *end;
	unsigned long long n = strtoull(s, &end, 10);

	switch (*end) {
	case 'G': case 'g':
		n <<= 30;
		break;
	case 'M': case 'm':
		n <<= 20;
		break;
	case 'K': case 'k':
		n <<= 10;
		break;
	case 0:
		break;
	default:
		return 0;
	}
	return n;
}

#endif
