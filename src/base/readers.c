/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/readers.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

struct us_reader us_readers[US_MAX_THREADS + 1];
_Atomic uint64_t us_read_now;

/* The time of sections that bring their own barrier, where the kernel has none. */
static _Atomic uint64_t slow_now = 1;
static bool kernel_barrier; /* constant once there is a section */

static bool kernel_barrier_register(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Before main(), so that no section has to ask whether it has been done. */
__attribute__((constructor)) static void barrier_choose(void)
{
	kernel_barrier = kernel_barrier_register();
	atomic_init(&us_read_now, kernel_barrier ? 1 : 0);
}

void us_read_without_kernel(void)
{
	kernel_barrier = false;
	atomic_store(&us_read_now, 0);
}

/* Which of the two times is in use. */
static _Atomic uint64_t *time_in_use(void)
{
	return kernel_barrier ? &us_read_now : &slow_now;
}

/* The exchange is a barrier: the record is visible before the section's first load. */
struct us_reader *us_read_begin_slowly(unsigned int thread)
{
	struct us_reader *r = &us_readers[thread];
	_Atomic uint64_t *now = time_in_use();

	if (thread == US_MAX_THREADS)
		atomic_fetch_add(&r->since, 1); /* how many are in a section */
	else
		atomic_exchange(&r->since, atomic_load(now));
	return r;
}

void us_read_end_crowd(void)
{
	atomic_fetch_sub(&us_readers[US_MAX_THREADS].since, 1);
}

static void barrier_in_all(void)
{
	if (!kernel_barrier)
		return; /* on this side the step of time is one */
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

/* Threads without a number are waited for until none of them is inside, whenever it began. */
static void wait_for(unsigned int n, uint64_t time)
{
	uint64_t nap_ns = NSEC_PER_USEC, since;

	for (;;) {
		since = atomic_load_explicit(&us_readers[n].since, memory_order_acquire);
		if (!since || (n < US_MAX_THREADS && since >= time))
			return;
		clock_sleep_ns(nap_ns);
		nap_ns = MIN(nap_ns * 2, NSEC_PER_MSEC);
	}
}

void us_read_wait(void)
{
	uint64_t time = atomic_fetch_add(time_in_use(), 1) + 1;

	barrier_in_all();
	for (unsigned int n = 0; n <= US_MAX_THREADS; n++)
		wait_for(n, time);
}
