/* SPDX-License-Identifier: MIT */
/* A timer that fires while threads wait for their pages, with a handler on an alternate stack that
 * is swapped out itself and touches memory that is swapped out. */
#include "behave.h"

#include <stdatomic.h>
#include <sys/time.h>

#define NR 128
#define STACK 64

static char *area, *for_handler;
static atomic_uint fired;
static _Thread_local volatile sig_atomic_t inside;

static void on_alarm(int sig, siginfo_t *info, void *context)
{
	unsigned int n = atomic_fetch_add(&fired, 1);
	char here[2 * PAGE_BYTES];
	int saved = errno;

	if (inside++)
		fail("handler within the handler");
	memset(here, (int)n, sizeof(here));
	for (size_t i = 0; i < 4; i++) {
		size_t at = (n * 29 + i * 31) % NR;

		if (!page_matches(for_handler + at * PAGE_BYTES, page_tag_linear(9, at)))
			fail("handler: page %zu", at);
	}
	for (size_t i = 0; i < sizeof(here); i++)
		if (((volatile char *)here)[i] != (char)n)
			fail("handler: its stack changed");
	inside--;
	errno = saved;
}

static void *also(void *arg)
{
	stack_t alt = {.ss_sp = map_pages(STACK), .ss_size = STACK * PAGE_BYTES};
	char *mine = map_pages(NR);

	must(sigaltstack(&alt, NULL) == 0);
	for (unsigned int round = 0; round < 6; round++) {
		fill_pages(mine, NR, 50 + round);
		await_eviction(mine, NR);
		check_pages(mine, NR, 50 + round, "other thread");
	}
	alt.ss_flags = SS_DISABLE;
	must(sigaltstack(&alt, NULL) == 0);
	return NULL;
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_alarm,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	stack_t alt = {.ss_sp = map_pages(STACK), .ss_size = STACK * PAGE_BYTES};
	pthread_t thread;
	char *own;
	int fd = memfd_create("behaviour", 0);

	must(fd >= 0);
	area = map_pages(NR);
	own = map_pages(NR);
	for_handler = map_pages(NR);
	fill_pages(for_handler, NR, 9);
	await_eviction(for_handler, NR);
	must(sigaltstack(&alt, NULL) == 0);
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &often, NULL) == 0);
	must(pthread_create(&thread, NULL, also, NULL) == 0);
	for (unsigned int round = 0; round < 8 || atomic_load(&fired) < 200; round++) {
		fill_pages(area, NR, 10 + round);
		await_eviction(area, NR);
		/* System calls that wait for a page within. */
		must(pwrite(fd, area, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		await_eviction(own, NR);
		must(pread(fd, own, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		check_pages(own, NR, 10 + round, "read while signals come");
		check_pages(area, NR, 10 + round, "touched while signals come");
	}
	must(pthread_join(thread, NULL) == 0);
	must(setitimer(ITIMER_REAL, &never, NULL) == 0);
	check_pages(for_handler, NR, 9, "what the handler reads");
	return 0;
}
