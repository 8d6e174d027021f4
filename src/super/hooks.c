/* SPDX-License-Identifier: MIT */
/*
 * Leaving rules out, in the binary that is built for tests only: USWAP_TEST names them. See
 * docs/fault-states.md for the rules and tests/e2e/cases/rules.py for what each one's lack does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "super/job.h"
#include "super/watchdog.h"
#include "sys/direct.h"

static const struct {
	const char *name;
	bool *flag;
} hooks[] = {
	{"no-gate", &mm_mutants.no_gate},
	{"no-permit", &mm_mutants.no_permit},
	{"no-order", &mm_mutants.no_order},
	{"no-filled-only", &mm_mutants.no_filled_only},
	{"no-whole-vma", &mm_mutants.no_whole_vma},
	{"no-populate", &mm_mutants.no_populate},
	{"own-staging", &mm_mutants.own_staging},
	{"slow-reader", &mm_mutants.slow_reader},
};

/* watchdog=TELL:END in milliseconds; stall=NAME, the loop that is to hang. */
static void watch_hooks(const char *s)
{
	static char name[24];
	unsigned int tell_ms, end_ms;

	if (sscanf(s, "watchdog=%u:%u", &tell_ms, &end_ms) == 2) {
		watchdog_tell_ns = tell_ms * NSEC_PER_MSEC;
		watchdog_end_ns = end_ms * NSEC_PER_MSEC;
	}
	if (sscanf(s, "stall=%23[^,]", name) == 1)
		watch_stall = name;
}

void hooks_read(void)
{
	const char *s = getenv("USWAP_TEST");

	if (!super_test_hooks || !s)
		return;
	while (*s) {
		size_t n = strcspn(s, ",");
		char fs[32];

		for (unsigned int i = 0; i < ARRAY_SIZE(hooks); i++)
			if (strlen(hooks[i].name) == n && !strncmp(hooks[i].name, s, n))
				*hooks[i].flag = true;
		if (sscanf(s, "direct-fs=%31[^,]", fs) == 1)
			direct_add_fs(fs);
		watch_hooks(s);
		s += n;
		if (*s)
			s++;
	}
}
