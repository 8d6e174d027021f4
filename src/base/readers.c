/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/readers.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

struct us_reader {
	_Alignas(64) _Atomic uint64_t since; /* the time at which the section began; 0: in none */
};

/* By number of the thread. Written by that thread alone, read by who waits. */
static struct us_reader readers[US_MAX_THREADS];
/* Threads without a number: how many of them are in a section. */
static struct us_reader crowd;

static _Atomic uint64_t now = 1;

enum barrier { BARRIER_UNKNOWN, BARRIER_KERNEL, BARRIER_READER };
static _Atomic int barrier;
static pthread_once_t barrier_once = PTHREAD_ONCE_INIT;

static bool kernel_barrier_register(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void barrier_choose(void)
{
	atomic_store(&barrier, kernel_barrier_register() ? BARRIER_KERNEL : BARRIER_READER);
}

/*
 * The record must be visible to all before the section's first load. With a barrier of the
 * reader's own it is so by the exchange; both kinds may be under way at once, since the wait is
 * right for either.
 */
static void begin_slowly(struct us_reader *r)
{
	pthread_once(&barrier_once, barrier_choose);
	atomic_exchange(&r->since, atomic_load(&now));
}

struct us_reader *us_read_begin(void)
{
	unsigned int n = us_this_thread();
	struct us_reader *r;

	if (unlikely(n == US_MAX_THREADS)) {
		atomic_fetch_add(&crowd.since, 1);
		return &crowd;
	}
	r = &readers[n];
	if (unlikely(atomic_load_explicit(&barrier, memory_order_relaxed) != BARRIER_KERNEL)) {
		begin_slowly(r);
		return r;
	}
	/* Release: who sees this one in place of the 0 before it knows what the last section read. */
	atomic_store_explicit(&r->since, atomic_load_explicit(&now, memory_order_acquire),
			      memory_order_release);
	/* The compiler keeps the order; the CPU's is the kernel's barrier's matter. */
	atomic_signal_fence(memory_order_seq_cst);
	return r;
}

void us_read_end(struct us_reader *r)
{
	if (unlikely(r == &crowd))
		atomic_fetch_sub(&crowd.since, 1);
	else
		atomic_store_explicit(&r->since, 0, memory_order_release);
}

static void barrier_in_all(void)
{
	pthread_once(&barrier_once, barrier_choose);
	if (atomic_load(&barrier) != BARRIER_KERNEL)
		return; /* the step of `now` is a full barrier on this side */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return;
	/* A child of fork(2) may have to register anew. */
	if (kernel_barrier_register() &&
	    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return;
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0)
		return;
	/* Going on could free what somebody reads. */
	fprintf(stderr, "uswap: membarrier worked and does not any more\n");
	abort();
}

static void wait_for(struct us_reader *r, uint64_t time)
{
	uint64_t nap_ns = NSEC_PER_USEC, since;

	for (;;) {
		since = atomic_load_explicit(&r->since, memory_order_acquire);
		if (!since || (r != &crowd && since >= time))
			return;
		clock_sleep_ns(nap_ns);
		nap_ns = MIN(nap_ns * 2, NSEC_PER_MSEC);
	}
}

void us_read_wait(void)
{
	uint64_t time = atomic_fetch_add(&now, 1) + 1;

	barrier_in_all();
	for (unsigned int i = 0; i < US_MAX_THREADS; i++)
		wait_for(&readers[i], time);
	wait_for(&crowd, time);
}
