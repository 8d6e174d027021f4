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
 * And one drain at a time: two that turn the phase between each other's turns could both look at
 * the same phase twice, and miss a reader in the other one. So drain takes the gate's own lock.
 *
 * Context: enter and leave are one atomic each and never block. drain sleeps in short steps until
 * the readers have left, as long as their device takes. RANK_CACHE - 1, together with the lock of
 * the array of devices, which is never held over a drain.
 */
#ifndef USWAP_SWAP_GATE_H
#define USWAP_SWAP_GATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/lock.h"

#define GATE_PAUSE_NS (20 * NSEC_PER_USEC)

struct gate {
	_Atomic uint32_t phase;
	_Atomic uint32_t readers[2];
	struct us_mutex drain_lock;
};

void gate_init(struct gate *g);
void gate_deinit(struct gate *g); /* also of one that is all zeros */

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

void gate_drain(struct gate *g);

#endif
