/* SPDX-License-Identifier: MIT */
/*
 * Threads that fight over the same addresses. Rules 1 and 2 (the gate, the permit).
 *
 * Each address is free, or owned by the thread whose mmap(MAP_FIXED_NOREPLACE) won it. The owner
 * fills, checks a few times and unmaps. Other threads wait for exactly that: the mapping that
 * follows an munmap comes within microseconds, while the pager may still hold an order to move
 * out the pages that were there before.
 *   Without the gate: the move happens between the munmap and the reading of its event, takes a
 *   page of the new mapping, and the event then throws it away.
 *   Without the permit: the same between the reading of the event and the update of the tables.
 *   The window is wide when two munmaps overlap: the reader waits for the second one's event
 *   while the first thread is awake again and has mapped and filled the place anew. So the sizes
 *   differ: large ones take long to unmap, small ones are quick to come back.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define PLACES 6
#define PLACE_BYTES (4ul << 20)

static char *arena;
static _Atomic uint64_t rounds, checks, zero, other, dirty;
static _Atomic int stop;
static bool stop_at_wrong;

static void found_wrong(_Atomic uint64_t *counter)
{
	(*counter)++;
	if (stop_at_wrong)
		stop = 1;
}

static void own(unsigned int id, char *base, size_t nr_pages, unsigned int generation,
		uint64_t *rng)
{
	unsigned int looks = 1 + random_next(rng) % 3;

	for (size_t i = 0; i < nr_pages && !stop; i++) {
		if (!page_is_zero(base + i * PAGE_BYTES))
			found_wrong(&dirty);
		page_fill(base + i * PAGE_BYTES, page_tag(id, 0, generation, i, 0));
	}
	while (looks-- && !stop) {
		if (random_next(rng) % 2)
			usleep(random_next(rng) % 1000);
		for (size_t i = 0; i < nr_pages && !stop; i++) {
			uint64_t tag = page_tag(id, 0, generation, i, 0);
			char *page = base + i * PAGE_BYTES;

			if (page_matches(page, tag))
				continue;
			found_wrong(page_is_zero(page) ? &zero : &other);
			page_fill(page, tag);
		}
		checks += nr_pages;
	}
}

static void *contender(void *arg)
{
	static const size_t sizes[] = { 32, 32, 32, 64, 512, 1024 };
	unsigned int id = (uintptr_t)arg, generation = 0;
	uint64_t rng = mix64(id + 1) | 1;

	while (!stop) {
		size_t nr_pages = sizes[random_next(&rng) % 6];
		char *base = arena + random_next(&rng) % PLACES * PLACE_BYTES;

		if (mmap(base, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != base)
			continue;
		own(id, base, nr_pages, generation++, &rng);
		munmap(base, nr_pages * PAGE_BYTES);
		rounds++;
		/* Straight back to where it was, before anybody has looked. */
		if (random_next(&rng) % 2 &&
		    mmap(base, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == base) {
			own(id, base, nr_pages, generation++, &rng);
			munmap(base, nr_pages * PAGE_BYTES);
			rounds++;
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int seconds = 10, nr_threads = 4;
	pthread_t thread[16];
	uint64_t end;
	int c;

	while ((c = getopt(argc, argv, "s:t:u")) != -1) {
		if (c == 's')
			seconds = atoi(optarg);
		else if (c == 't')
			nr_threads = atoi(optarg);
		else if (c == 'u')
			stop_at_wrong = true;
		else
			return 2;
	}
	if (nr_threads < 1 || nr_threads > 16)
		return 2;
	/* Threads first: their stacks must not come to lie among the places. */
	arena = mmap(NULL, (PLACES + 2) * PLACE_BYTES + (1ul << 30), PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return 2;
	/* Far from both ends, where the kernel would put somebody else's mapping. */
	arena += 1ul << 29;
	munmap(arena, PLACES * PLACE_BYTES);
	for (unsigned int i = 0; i < nr_threads; i++)
		if (pthread_create(&thread[i], NULL, contender, (void *)(uintptr_t)i))
			return 2;
	end = clock_ns() + seconds * 1000000000ull;
	while (!stop && clock_ns() < end)
		usleep(10000);
	stop = 1;
	for (unsigned int i = 0; i < nr_threads; i++)
		pthread_join(thread[i], NULL);
	printf("contend: rounds=%llu checks=%llu wrong=%llu zero=%llu other=%llu dirty=%llu\n",
	       (unsigned long long)rounds, (unsigned long long)checks,
	       (unsigned long long)(zero + other + dirty), (unsigned long long)zero,
	       (unsigned long long)other, (unsigned long long)dirty);
	return zero || other || dirty || !checks;
}
