/* SPDX-License-Identifier: MIT */
/*
 * Asks for 32 TiB in one piece. Exit status 0 if it got them, 1 if it was refused.
 *   -t  a thread asks, and aborts if it is refused
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *ask(void *arg)
{
	void *p = mmap(NULL, 1ul << 45, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED && arg)
		abort();
	return p;
}

int main(int argc, char **argv)
{
	bool thread = argc > 1 && strcmp(argv[1], "-t") == 0;
	void *p = MAP_FAILED;
	pthread_t t;

	if (!thread)
		p = ask(NULL);
	else if (pthread_create(&t, NULL, ask, &thread) == 0)
		(void)pthread_join(t, &p);
	puts(p == MAP_FAILED ? "ask: refused" : "ask: granted");
	return p == MAP_FAILED;
}
