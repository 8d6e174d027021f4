/* SPDX-License-Identifier: MIT */
/*
 * Leaving rules out, in the binary that is built for tests only: USWAP_TEST names them. See
 * docs/fault-states.md for the rules and tests/e2e/cases/rules.py for what each one's lack does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "super/job.h"
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
	{"evict-aged", &mm_mutants.evict_aged},
	{"slow-reader", &mm_mutants.slow_reader},
};

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
		s += n;
		if (*s)
			s++;
	}
}
