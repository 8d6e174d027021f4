/* SPDX-License-Identifier: MIT */
/* Does touching a byte raise SIGSEGV? For one thread at a time. */
#ifndef USWAP_TESTS_SEGFAULT_H
#define USWAP_TESTS_SEGFAULT_H

#include "behave.h"

#include <setjmp.h>

static sigjmp_buf segfault_back;

static void on_segfault(int sig, siginfo_t *info, void *context)
{
	siglongjmp(segfault_back, 1);
}

/* Before the first call of segfaults(). */
static inline void catch_segfaults(void)
{
	struct sigaction sa = {.sa_sigaction = on_segfault, .sa_flags = SA_SIGINFO};

	must(sigaction(SIGSEGV, &sa, NULL) == 0);
}

static inline bool segfaults(volatile char *p, bool write)
{
	if (sigsetjmp(segfault_back, 1))
		return true;
	if (write)
		*p = 1;
	else
		(void)*p;
	return false;
}

#endif
