/* SPDX-License-Identifier: MIT */
#include "swap/gate.h"

#ifdef USWAP_MUTANT_GATE_ONE_TURN
#define GATE_TURNS 1
#else
#define GATE_TURNS 2
#endif

LOCK_CLASS(gate_class, "swap_gate", RANK_CACHE - 1);

void gate_init(struct gate *g)
{
	us_mutex_init(&g->drain_lock, &gate_class);
}

void gate_deinit(struct gate *g)
{
	if (g->drain_lock.cls)
		us_mutex_deinit(&g->drain_lock);
}

void gate_drain(struct gate *g)
{
	us_mutex_lock(&g->drain_lock);
	for (int turn = 0; turn < GATE_TURNS; turn++) {
		unsigned int before = atomic_fetch_add(&g->phase, 1) & 1;

		while (atomic_load(&g->readers[before]))
			clock_sleep_ns(GATE_PAUSE_NS);
	}
	us_mutex_unlock(&g->drain_lock);
}
