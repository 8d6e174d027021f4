/* SPDX-License-Identifier: MIT */
/*
 * A program that becomes itself again and again, with its memory evicted; with an argument
 * "threads", while threads wait for pages.
 */
#include "behave.h"

#define NR 96
#define THREADS 4

static char *p;

static void *reader(void *arg)
{
	for (unsigned long i = (unsigned long)arg;; i++)
		if (!page_matches(p + i % NR * PAGE_BYTES, page_tag_linear(1, i % NR)))
			fail("page %lu is wrong in a thread", i % NR);
	return NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0;
	bool threads = argc > 2;
	char next[16];

	p = map_pages(NR);
	check_zero(p, NR, "fresh after exec");
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	if (n == 0) {
		check_pages(p, NR, 1, "at the end");
		puts("arrived");
		return 0;
	}
	check_pages(p, NR / 2, 1, "before exec");
	for (long i = 0; threads && i < THREADS; i++) {
		pthread_t t;

		must(pthread_create(&t, NULL, reader, (void *)(i * NR / THREADS)) == 0);
	}
	if (threads)
		usleep(n * 1000);
	snprintf(next, sizeof(next), "%d", n - 1);
	execl("/proc/self/exe", argv[0], next, argv[2], NULL);
	fail("exec: %s", strerror(errno));
}
