/* SPDX-License-Identifier: MIT */
/* Ends as its arguments say, "exit N" or "signal N", with its memory evicted. */
#include "behave.h"

#include <sys/resource.h>

#define NR 64

int main(int argc, char **argv)
{
	struct rlimit none = {0, 0};
	int n = argc > 2 ? atoi(argv[2]) : 0;
	char *p = map_pages(NR);

	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	check_pages(p, NR / 2, 1, "before the end");
	if (argc > 2 && !strcmp(argv[1], "exit"))
		exit(n);
	must(setrlimit(RLIMIT_CORE, &none) == 0);
	must(signal(n, SIG_DFL) != SIG_ERR || n == SIGKILL);
	raise(n);
	fail("signal %d did nothing", n);
}
