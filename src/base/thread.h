/* SPDX-License-Identifier: MIT */
/*
 * Starting threads: every thread of the supervisor blocks all signals, so that a storm of them
 * only ever reaches the thread that reads them from a signalfd.
 */
#ifndef USWAP_BASE_THREAD_H
#define USWAP_BASE_THREAD_H

#include <pthread.h>

#include "base/util.h"

struct us_thread {
	pthread_t id;
	bool running;
	void (*fn)(void *arg);
	void *arg;
	char name[16];
};

/*
 * Starts fn(arg) in a thread called name (at most 15 bytes). cpu >= 0 pins it there.
 * Returns 0 or -errno. t must outlive the thread.
 */
int us_thread_start(struct us_thread *t, const char *name, int cpu, void (*fn)(void *), void *arg)
	__must_check;
/*
 * The calling thread runs for microseconds and must not be late: real-time priority, or where that
 * is not allowed a time slice so short that the scheduler prefers it when it wakes (Linux 6.12; in
 * vain before).
 */
void us_thread_urgent(void);
/*
 * The CPU that runs the calling thread, which may run on another one as soon as this returns. So
 * it is good for choosing among locked copies (a wrong choice costs time), never for going without
 * a lock: two threads may well use the same CPU's copy at once.
 */
unsigned int us_this_cpu(void);
/* How many copies make sense: CPUs that the machine is configured for, at least 1. */
unsigned int us_nr_cpus(void);
/* Waits for the thread's end; harmless if it was never started. */
void us_thread_join(struct us_thread *t);

#define US_MAX_THREADS 1024u
extern __thread unsigned int us_thread_number; /* + 1; 0: none yet. thread.c's */
unsigned int us_thread_number_take(void);
/*
 * A small number that no other living thread has, taken with the first call and given back at the
 * thread's end; US_MAX_THREADS for those that come when all are taken.
 */
static inline unsigned int us_this_thread(void)
{
	return likely(us_thread_number) ? us_thread_number - 1 : us_thread_number_take();
}

#endif
