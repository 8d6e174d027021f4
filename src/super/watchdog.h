/* SPDX-License-Identifier: MIT */
/*
 * Looks from the keeper whether the supervisor's loops go on (base/watch.h).
 * No locking: one process with one thread. Never blocks.
 */
#ifndef USWAP_SUPER_WATCHDOG_H
#define USWAP_SUPER_WATCHDOG_H

#include <sys/types.h>

#include "base/watch.h"

struct watchdog {
	pid_t supervisor;
	bool quiet; /* tells of nothing but the end */
	uint64_t last_ns;
	struct watchdog_loop {
		uint64_t rounds, still_ns;
		bool told;
	} loop[WATCH_SLOTS];
};

/* How long a loop may be still until that is told, and until the job is ended. */
extern uint64_t watchdog_tell_ns, watchdog_end_ns;

/* How often to look. */
int watchdog_tick_ms(void);
/* Looks; true: a loop has been still for too long, which has been told. */
bool watchdog_look(struct watchdog *d);

#endif
