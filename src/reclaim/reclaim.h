/* SPDX-License-Identifier: MIT */
/*
 * When pages leave: watermarks, the kswapd thread, and what happens when nothing can leave.
 *
 * All figures are bytes of the budget (`--ram`). used = what the host reports; free = limit - used.
 *   free < low   kswapd runs until free >= high
 *   free < min   a fault that needs a new page waits (direct reclaim as a throttle)
 * Which page leaves is decided by the host's shrink(), which walks generations (src/mm).
 *
 * Locking: RANK_RECLAIM inside; the ops are called without it.
 */
#ifndef USWAP_RECLAIM_RECLAIM_H
#define USWAP_RECLAIM_RECLAIM_H

#include "base/lock.h"
#include "base/thread.h"
#include "base/util.h"

struct reclaim_ops {
	/* Bytes of the budget in use now. Cheap; called after each batch. */
	uint64_t (*used)(void *host);
	/*
	 * Takes about nr_pages cold pages out of programs and stores them. Returns how many bytes
	 * of the budget that freed (may be 0), or -ENOSPC when devices take nothing more.
	 */
	int64_t (*shrink)(void *host, uint64_t nr_pages);
	/* free went above min: faults that wait may go on. */
	void (*resume)(void *host);
	/*
	 * Nothing could be freed for OOM_WAIT_NS although faults wait. The host ends a process and
	 * returns true, or false when there is nobody to end.
	 */
	bool (*out_of_memory)(void *host);
	/* No shrink() has followed for 20 ms: ends what the last ones left under way. May be NULL. */
	void (*settle)(void *host);
};

struct watermarks {
	uint64_t min, low, high;
};

struct reclaim {
	const struct reclaim_ops *ops;
	void *host;
	struct watch *watch; /* kswapd's; the host beats it while it shrinks for long */
	struct us_thread thread;
	struct us_mutex lock;
	struct us_cond wake;
	/* protected by lock */
	uint64_t limit;
	struct watermarks wm;
	bool kick, stop, waiters;
	uint64_t no_progress_since_ns; /* 0: progress was made */
};

/* How long nothing may be freed, with faults waiting, before a process is ended. */
#define OOM_WAIT_NS (2ull * 1000000000ull)

/* Watermarks of a limit: high = limit/64 within [2 MiB, 64 MiB], low = 3/4, min = 3/8 of it. */
struct watermarks watermarks_of(uint64_t limit);

/* Prepares r and starts kswapd. 0 or -errno. */
int reclaim_start(struct reclaim *r, const struct reclaim_ops *ops, void *host, uint64_t limit)
	__must_check;
void reclaim_stop(struct reclaim *r);
void reclaim_set_limit(struct reclaim *r, uint64_t limit);
/* Wakes kswapd if used says that free is below low. Any thread. */
void reclaim_poke(struct reclaim *r, uint64_t used);
/* A fault waits: kswapd runs until it may go on, or declares the job out of memory. */
void reclaim_need(struct reclaim *r);
/* The limit and watermarks now. */
uint64_t reclaim_limit(struct reclaim *r, struct watermarks *wm);

#endif
