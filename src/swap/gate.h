/* SPDX-License-Identifier: MIT */
/*
 * A gate that readers pass and a mover waits at: after gate_drain() no reader is left that entered
 * before the call. Readers never wait.
 *
 * A reader enters under the lock under which it reads where the content is, and leaves when it has
 * read it. A mover changes the place under the same lock, then drains, then frees the old place:
 * whoever saw the old place has entered before the change, so it has left when drain returns.
 *
 * Two phases: readers count in the present one; drain turns to the other and waits for the one
 * before, twice. Once would not do: a reader may have read the phase, been delayed, and counted in
 * the phase that an earlier drain had found empty already.
 *
 * Context: enter and leave are one atomic each and never block. drain sleeps in short steps until
 * the readers have left, as long as their device takes; one at a time (the caller's lock).
 */
#ifndef USWAP_SWAP_GATE_H
#define USWAP_SWAP_GATE_H

#include <stdatomic.h>

#include "base/clock.h"

#define GATE_PAUSE_NS (20 * NSEC_PER_USEC)
#ifdef USWAP_MUTANT_GATE_ONE_TURN
#define GATE_TURNS 1
#else
#define GATE_TURNS 2
#endif

struct gate {
	_Atomic uint32_t phase;
	_Atomic uint32_t readers[2];
};

/* Returns the phase, for gate_leave(). */
static inline unsigned int gate_enter(struct gate *g)
{
	unsigned int phase = atomic_load(&g->phase) & 1;

	atomic_fetch_add(&g->readers[phase], 1);
	return phase;
}

static inline void gate_leave(struct gate *g, unsigned int phase)
{
	atomic_fetch_sub(&g->readers[phase], 1);
}

static inline void gate_drain(struct gate *g)
{
	for (int turn = 0; turn < GATE_TURNS; turn++) {
		unsigned int before = atomic_fetch_add(&g->phase, 1) & 1;

		while (atomic_load(&g->readers[before]))
			clock_sleep_ns(GATE_PAUSE_NS);
	}
}

#endif
