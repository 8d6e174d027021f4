/* SPDX-License-Identifier: MIT */
/* 64 threads that come and go, each with memory of its own and all on the same evicted pages. */
#include "behave.h"

#define THREADS 64
#define WAVES 5
#define NR 256
#define OWN 40

static char *area;

static void *work(void *arg)
{
	size_t me = (uintptr_t)arg;
	char on_stack[3 * PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
	char *own = map_pages(OWN);

	fill_pages(on_stack, 3, me + 1);
	fill_pages(own, OWN, me + 2);
	for (size_t i = 0; i < NR; i++) {
		size_t at = (i * 37 + me * 11) % NR;

		if (!page_matches(area + at * PAGE_BYTES, page_tag_linear(7, at)))
			fail("thread %zu: page %zu", me, at);
	}
	if (me % 16 == 0)
		await_eviction(own, OWN);
	check_pages(own, OWN, me + 2, "a thread's own");
	check_pages(on_stack, 3, me + 1, "a thread's stack");
	must(munmap(own, OWN * PAGE_BYTES) == 0);
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];

	area = map_pages(NR);
	fill_pages(area, NR, 7);
	for (size_t i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
	/* As one goes the next one comes. */
	for (size_t i = 0; i < THREADS * WAVES; i++) {
		must(pthread_join(thread[i % THREADS], NULL) == 0);
		must(pthread_create(&thread[i % THREADS], NULL, work, (void *)(i + THREADS)) == 0);
	}
	for (size_t i = 0; i < THREADS; i++)
		must(pthread_join(thread[i], NULL) == 0);
	check_pages(area, NR, 7, "after all of them");
	return 0;
}
