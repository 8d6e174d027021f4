/* SPDX-License-Identifier: MIT */
/* Two threads touch one missing page at the same moment, 100,000 times or as many as fit: both
 * writes are there, beside the zeros or the content that it had. */
#include "behave.h"

#include <stdatomic.h>

#define NR 64
#define ROUNDS 100000

static char *page, *area;
static atomic_uint arrived;
static atomic_bool stop;
static uint64_t until;

/* Both leave it with the same answer. */
static bool meet(unsigned int *turn)
{
	*turn += 2;
	atomic_fetch_add(&arrived, 1);
	for (unsigned int i = 0; atomic_load(&arrived) < *turn; i++)
		if (i > 1000)
			sched_yield();
	return !stop;
}

static void *touch(void *arg)
{
	size_t me = (uintptr_t)arg;
	_Atomic uint64_t *mine = (void *)(page + 8 * me), *other = (void *)(page + 8 * !me);
	unsigned int turn = 0;

	for (uint64_t round = 1; meet(&turn); round++) {
		/* Meets again with the page gone. */
		if (me == 0)
			must(madvise(page, PAGE_BYTES, MADV_DONTNEED) == 0);
		meet(&turn);
		if (*mine)
			fail("round %lu: not zero", (unsigned long)round);
		*mine = round;
		meet(&turn);
		if (*mine != round || *other != round || ((uint64_t *)page)[100])
			fail("round %lu: a write is lost", (unsigned long)round);
		if (me == 0 && (round == ROUNDS || clock_ns() > until))
			stop = true;
	}

	/* The same with content: all pages are out, and both come. */
	for (unsigned int round = 0; round < 8; round++) {
		meet(&turn);
		if (me == 0) {
			fill_pages(area, NR, 1 + round);
			await_eviction(area, NR);
		}
		for (size_t i = 0; i < NR; i++) {
			meet(&turn);
			if (!page_matches(area + i * PAGE_BYTES, page_tag_linear(1 + round, i)))
				fail("page %zu, round %u", i, round);
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;
	char *p = map_pages(NR + 64);

	page = p + 20 * PAGE_BYTES;
	area = p + 64 * PAGE_BYTES;
	until = clock_ns() + 600000000ull;
	must(pthread_create(&thread, NULL, touch, (void *)1) == 0);
	touch((void *)0);
	must(pthread_join(thread, NULL) == 0);
	return 0;
}
