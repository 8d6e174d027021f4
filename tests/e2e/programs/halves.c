/* SPDX-License-Identifier: MIT */
/*
 * Mappings that change between being seen in /proc/PID/maps and being registered. Rule 5.
 *
 * A mapping is made and filled; a moment later its second half is unmapped and mapped anew. If
 * the pager looked before and registers after the cut, only the first half gets registered. A
 * pager that then takes all pages of the range it saw for its own evicts pages of the new second
 * half, which is not registered: they read as zeros and no fault tells anybody.
 *
 * Many places at once, each in another state, so that the list of mappings is long and there is
 * time between reading a line of it and acting on it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

#define PLACES 96
#define STEP_BYTES (1ul << 20)
#define PAGES 64ul /* 256 KiB; a half is 128 KiB and still large enough to be managed */
#define HALF (PAGES / 2)

struct place {
	char *base;
	unsigned int state, generation;
};

static struct place *place;
static uint64_t rounds, checks, zero, other, dirty;

static void map_part(char *at, size_t nr_pages)
{
	if (mmap(at, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		abort();
}

static void fill_part(unsigned int k, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		char *page = place[k].base + i * PAGE_BYTES;

		if (!page_is_zero(page))
			dirty++;
		page_fill(page, page_tag(k, 0, place[k].generation, i, 0));
	}
}

static void check_all(unsigned int k)
{
	for (size_t i = 0; i < PAGES; i++) {
		char *page = place[k].base + i * PAGE_BYTES;
		uint64_t tag = page_tag(k, 0, place[k].generation, i, 0);

		if (page_matches(page, tag))
			continue;
		if (page_is_zero(page))
			zero++;
		else
			other++;
		page_fill(page, tag);
	}
	checks += PAGES;
}

static void cut(unsigned int k, uint64_t *rng)
{
	char *middle = place[k].base + HALF * PAGE_BYTES;

	munmap(middle, HALF * PAGE_BYTES);
	if (random_next(rng) % 2)
		for (uint64_t end = clock_ns() + random_next(rng) % 200000; clock_ns() < end;)
			;
	map_part(middle, HALF);
	fill_part(k, HALF, PAGES);
}

static void step(unsigned int k, uint64_t *rng)
{
	switch (place[k].state++) {
	case 0:
		map_part(place[k].base, PAGES);
		fill_part(k, 0, PAGES);
		/* Sometimes at once, sometimes when this place is drawn again. */
		if (random_next(rng) % 2) {
			usleep(random_next(rng) % 1500);
			cut(k, rng);
			place[k].state = 2;
		}
		break;
	case 1:
		cut(k, rng);
		break;
	case 2:
	case 3:
		check_all(k);
		break;
	default:
		check_all(k);
		munmap(place[k].base, PAGES * PAGE_BYTES);
		place[k].state = 0;
		place[k].generation++;
		rounds++;
	}
}

int main(int argc, char **argv)
{
	bool stop_at_wrong = false;
	unsigned int seconds = 10;
	uint64_t end, rng = 0x2545f4914f6cdd1dull;
	char *arena;
	int c;

	while ((c = getopt(argc, argv, "s:u")) != -1) {
		if (c == 's')
			seconds = atoi(optarg);
		else if (c == 'u')
			stop_at_wrong = true;
		else
			return 2;
	}
	place = unmanaged_alloc(PLACES * sizeof(*place), false);
	arena = mmap(NULL, (PLACES + 1) * STEP_BYTES, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return 2;
	for (unsigned int k = 0; k < PLACES; k++)
		place[k].base = arena + k * STEP_BYTES + STEP_BYTES / 2;
	end = clock_ns() + seconds * 1000000000ull;
	while (clock_ns() < end && !(stop_at_wrong && (zero || other || dirty)))
		step(random_next(&rng) % PLACES, &rng);
	printf("halves: rounds=%llu checks=%llu wrong=%llu zero=%llu other=%llu dirty=%llu\n",
	       (unsigned long long)rounds, (unsigned long long)checks,
	       (unsigned long long)(zero + other + dirty), (unsigned long long)zero,
	       (unsigned long long)other, (unsigned long long)dirty);
	return zero || other || dirty || !checks;
}
