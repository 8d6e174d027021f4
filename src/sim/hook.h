/* SPDX-License-Identifier: MIT */
/*
 * What the second build of the engine calls where the first one uses the machine: the headers of
 * overlay/ lead here. Each hook is a point at which another thread may go on, or virtual time
 * passes; outside a run it does nothing.
 *
 * Included by code under test: no include of base/ here, and nothing but declarations.
 */
#ifndef USWAP_SIM_HOOK_H
#define USWAP_SIM_HOOK_H

#include <stdint.h>

enum sim_op {
	SIM_START,
	SIM_LOAD,
	SIM_STORE,
	SIM_PLAIN_STORE, /* not sequentially consistent: an instruction like any other */
	SIM_RMW,
	SIM_CAS,
	SIM_LOCK,
	SIM_TRYLOCK,
	SIM_UNLOCK,
	SIM_WAIT,
	SIM_TIMEDWAIT,
	SIM_SIGNAL,
	SIM_BROADCAST,
	SIM_CREATE,
	SIM_JOIN,
	SIM_SLEEP,
	SIM_RELAX,
	SIM_END,
	NR_SIM_OPS
};

/* Where the caller of the next operation stands in the source. */
extern const char *sim_file;
extern int sim_line;

static inline void sim_here(const char *file, int line)
{
	sim_file = file;
	sim_line = line;
}

/* Before an atomic access of p. */
void sim_atomic(const volatile void *p, enum sim_op op, const char *file, int line);

uint64_t sim_clock_now_ns(void);
void sim_clock_sleep_ns(uint64_t ns);
/* A loop that waits for another CPU. */
void sim_relax(void);
/* The number of the virtual CPU; 0 outside a run. */
unsigned int sim_this_cpu(void);
/* How many there are; outside a run what sim_set_nr_cpus() said. */
unsigned int sim_nr_cpus(void);
/* A number that no other thread of the run has; outside a run SIM_MAX_THREADS. */
unsigned int sim_this_thread(void);

#endif
