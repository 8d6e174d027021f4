/* SPDX-License-Identifier: MIT */
/*
 * Events that arrive in another order than they happened. Rule 3.
 *
 * The kernel posts the events of mremap and munmap after it has dropped the lock of the address
 * space, and a call that has two to post waits until the first has been read. In that time a
 * second thread can do its own call and post its event in between:
 *
 *   remap: thread 1 moves A over B (which is mapped: UNMAP B is posted first and waited for, then
 *          REMAP A to B). Meanwhile A is free, and thread 2 moves D to A: REMAP D to A is read
 *          before REMAP A to B. Applied in the order of reading, what was in A is lost and B
 *          gets D's pages.
 *   unmap: thread 1 moves the first half of A over B and cuts off the rest by the same mremap:
 *          UNMAP B, REMAP A to B, and last UNMAP of A's second half. Thread 2 moves D to where
 *          the second half was: REMAP D is read before that UNMAP, which then throws D away.
 *
 * The threads do not agree on who goes first. Both orders leave a state that can be told from
 * outside (is the place of D mapped or not), and for each it is known what every page must hold.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

#define HALF 64ul /* pages of B, D and of each half of A */
#define HALF_BYTES (HALF * PAGE_BYTES)

static char *a, *b, *d;
static bool mode_unmap;
static _Atomic unsigned int go, finished;
static _Atomic int stop;
static uint64_t checks, zero, other, first, second;

static void spin_ns(uint64_t ns)
{
	uint64_t end = clock_ns() + ns;

	while (clock_ns() < end)
		;
}

/* Thread 2: moves D to A, or to A's second half, a few microseconds after the start. */
static void *mover(void *arg)
{
	uint64_t rng = 88172645463325252ull;
	unsigned int round = 0;

	for (;;) {
		char *to;

		while (go == round && !stop)
			sched_yield();
		if (stop)
			return NULL;
		round = go;
		to = mode_unmap ? a + HALF_BYTES : a;
		spin_ns(random_next(&rng) % 60000);
		if (mremap(d, HALF_BYTES, HALF_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
			abort();
		finished = round;
	}
}

static void map_and_fill(char *at, size_t nr_pages, unsigned int owner, unsigned int round)
{
	if (mmap(at, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		abort();
	for (size_t i = 0; i < nr_pages; i++)
		page_fill(at + i * PAGE_BYTES, page_tag(owner, 0, round, i, 0));
}

static void check(char *at, size_t nr_pages, unsigned int owner, unsigned int round)
{
	for (size_t i = 0; i < nr_pages; i++) {
		char *page = at + i * PAGE_BYTES;

		if (page_matches(page, page_tag(owner, 0, round, i, 0)))
			continue;
		if (page_is_zero(page))
			zero++;
		else
			other++;
	}
	checks += nr_pages;
}

static bool is_mapped(char *at)
{
	unsigned char vec;

	return mincore(at, PAGE_BYTES, &vec) == 0;
}

/* Until most of the three areas is out: only what is managed has events. With a bound. */
static void await_eviction(size_t a_pages)
{
	uint64_t end = clock_ns() + 100000000ull;

	while (clock_ns() < end) {
		if (pages_resident(a, a_pages) < a_pages / 2 && pages_resident(b, HALF) < HALF / 2 &&
		    pages_resident(d, HALF) < HALF / 2)
			return;
		usleep(200);
	}
}

static void run_round(unsigned int round)
{
	static uint64_t rng = 0x9e3779b97f4a7c15ull;
	size_t a_pages = mode_unmap ? 2 * HALF : HALF;
	char *place;

	map_and_fill(a, a_pages, 1, round);
	map_and_fill(b, HALF, 2, round);
	map_and_fill(d, HALF, 3, round);
	await_eviction(a_pages);

	go = round;
	spin_ns(random_next(&rng) % 8000);
	if (mremap(a, a_pages * PAGE_BYTES, HALF_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, b) != b)
		abort();
	while (finished != round)
		sched_yield();

	place = mode_unmap ? a + HALF_BYTES : a;
	if (is_mapped(place)) {
		/* Thread 1 was first: A is in B, and D came after it. */
		first++;
		check(place, HALF, 3, round);
		check(b, HALF, 1, round);
	} else {
		/* D was there before: with "remap" it travelled on to B, with "unmap" it was cut. */
		second++;
		check(b, HALF, mode_unmap ? 1 : 3, round);
	}
	munmap(a, 2 * HALF_BYTES);
	munmap(b, HALF_BYTES);
}

int main(int argc, char **argv)
{
	bool stop_at_wrong = false;
	unsigned int seconds = 10, round = 0;
	pthread_t thread;
	uint64_t end;
	char *arena;
	int c;

	while ((c = getopt(argc, argv, "s:m:u")) != -1) {
		if (c == 's')
			seconds = atoi(optarg);
		else if (c == 'm' && !strcmp(optarg, "unmap"))
			mode_unmap = true;
		else if (c == 'm' && !strcmp(optarg, "remap"))
			mode_unmap = false;
		else if (c == 'u')
			stop_at_wrong = true;
		else
			return 2;
	}
	if (pthread_create(&thread, NULL, mover, NULL))
		return 2;
	arena = mmap(NULL, 1ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return 2;
	/* Places with a gap around each, or neighbours would become one mapping. */
	a = arena + (64ul << 20);
	b = arena + (128ul << 20);
	d = arena + (192ul << 20);
	end = clock_ns() + seconds * 1000000000ull;
	while (clock_ns() < end && !(stop_at_wrong && (zero || other)))
		run_round(++round);
	stop = 1;
	pthread_join(thread, NULL);
	printf("reorder: rounds=%u first=%llu second=%llu checks=%llu wrong=%llu zero=%llu "
	       "other=%llu dirty=0\n",
	       round, (unsigned long long)first, (unsigned long long)second,
	       (unsigned long long)checks, (unsigned long long)(zero + other),
	       (unsigned long long)zero, (unsigned long long)other);
	return zero || other || !checks;
}
