/* SPDX-License-Identifier: MIT */
/*
 * Can this machine, and this process, do it? Every feature is tried, never deduced from a version,
 * and what is missing comes with the command that mends it.
 *
 * Locking: none; not thread-safe (forks a child). Context: blocks for some milliseconds.
 */
#ifndef USWAP_SYS_CHECK_H
#define USWAP_SYS_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

enum check_state {
	CHECK_OK,
	CHECK_MISSING,
	CHECK_NOTE, /* works, but the user should know */
};

struct check_item {
	const char *name;
	const char *purpose; /* what it is needed for */
	bool required;
	enum check_state state;
	char detail[160]; /* what was found; may be empty */
	char remedy[384]; /* missing: the command that mends it, or what else to do */
};

#define CHECK_MAX_ITEMS 40

struct check_report {
	struct check_item item[CHECK_MAX_ITEMS];
	unsigned int nr;
	unsigned int nr_required_missing;
	bool container;
};

/* Tries everything. Cannot fail: what cannot be tried is missing. */
void check_probe(struct check_report *r);

/*
 * Only what `run` cannot do without, in less than 3 ms. 0; or -errno, and why is one line with the
 * reason and the remedy (no prefix, no newline).
 */
int check_required(char *why, size_t len) __must_check;

#endif
