/* SPDX-License-Identifier: MIT */
/* fork while a timer's signals come every 70 microseconds, whose handler reads evicted memory. */
#include "behave.h"

#include <sys/time.h>

#define NR 128

static char *p;
static volatile unsigned long hits, bad;

static void on_alarm(int sig)
{
	unsigned long i = hits++;

	(void)sig;
	if (i % 16 == 0 &&
	    !page_matches(p + i / 16 % NR * PAGE_BYTES, page_tag_linear(1, i / 16 % NR)))
		bad++;
}

int main(void)
{
	struct itimerval every = {{0, 70}, {0, 70}}, off = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_alarm};

	p = map_pages(NR);
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &every, NULL) == 0);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0) {
			/* Half of the children have a storm of their own. */
			if (i & 1)
				must(setitimer(ITIMER_REAL, &every, NULL) == 0);
			if (i % 8 == 0)
				await_eviction(p, NR);
			for (int k = i; k < i + 16; k++)
				if (!page_matches(p + k % NR * PAGE_BYTES,
						  page_tag_linear(1, k % NR)))
					fail("child %d: page %d", i, k % NR);
			_exit(bad ? 9 : 0);
		}
		must(reap(pid) == 0);
	}
	must(setitimer(ITIMER_REAL, &off, NULL) == 0);
	await_eviction(p, NR);
	check_pages(p, NR, 1, "parent");
	must(hits > 0 && bad == 0);
	return 0;
}
