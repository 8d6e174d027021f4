/* SPDX-License-Identifier: MIT */
/*
 * A set of addresses as sorted, disjoint ranges. It may forget, never invent: when it is full, or
 * without memory, it becomes smaller than it should be. Who uses it must be right with any subset.
 *
 * Locking: the caller's.
 */
#ifndef USWAP_MM_RANGES_H
#define USWAP_MM_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_RANGES 65536u

struct addr_range {
	uint64_t start, end;
};

struct ranges {
	struct addr_range *r; /* NULL: none yet */
	unsigned int nr;
};

void ranges_deinit(struct ranges *s);
/* start < end in all of these; ranges that touch become one. */
void ranges_add(struct ranges *s, uint64_t start, uint64_t end);
void ranges_remove(struct ranges *s, uint64_t start, uint64_t end);
/* Is any address of [start, end) in the set? */
bool ranges_overlap(const struct ranges *s, uint64_t start, uint64_t end);

#endif
