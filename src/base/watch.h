/* SPDX-License-Identifier: MIT */
/*
 * Signs of life: every loop of the supervisor that never rests for long counts its rounds in
 * memory that is shared with a process forked later, which can see that one of them has stopped.
 *
 * Not its job: what to do about it (super/keeper.c).
 * Context: watch_beat() may be called with any lock held; it neither blocks nor allocates.
 */
#ifndef USWAP_BASE_WATCH_H
#define USWAP_BASE_WATCH_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/util.h"

#define WATCH_SLOTS 32

struct watch {
	char name[24];
	atomic_bool running;
	_Atomic uint64_t rounds;
};

/* Before the fork and before any thread; without it all of this does nothing. 0 or -errno. */
int watch_init(void) __must_check;
/* The WATCH_SLOTS entries, or NULL. */
struct watch *watch_table(void);

/* By the loop itself: its name stays the caller's. May return NULL, which the others take. */
struct watch *watch_start(const char *name);
void watch_beat(struct watch *w);
void watch_stop(struct watch *w);
/* It waits for something to do, for any time; and does it. */
void watch_rest(struct watch *w);
void watch_go_on(struct watch *w);

/* For tests: the loop of this name stops a second after its start, and so hangs. */
extern const char *watch_stall;

#endif
