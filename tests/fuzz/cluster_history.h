/* SPDX-License-Identifier: MIT */
/*
 * The cluster allocator beside a naive model, an array with one word a slot: a history of calls,
 * drawn from bytes, is given to both, and compared after each call. Aborts on a difference.
 */
#ifndef USWAP_TEST_CLUSTER_HISTORY_H
#define USWAP_TEST_CLUSTER_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* The first bytes choose the kind of device. Ends with the bytes. */
void cluster_history_run(const uint8_t *bytes, size_t len);

/* What the histories since the start of the program did, so that tests can say it was not idle. */
struct cluster_history_stats {
	uint64_t allocs, refused, frees, reclaimed, discards, windows, cleared, collected, grown;
};
extern struct cluster_history_stats cluster_history_stats;

#endif
