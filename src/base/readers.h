/* SPDX-License-Identifier: MIT */
/*
 * Sections in which a thread reads what others replace: a reader pays two plain stores and no
 * locked instruction, whoever replaces waits until all that might still see the old are gone.
 *
 *	reader					writer (writers exclude each other)
 *	r = us_read_begin();			make the new one
 *	p = atomic_load(&current);		atomic_store(&current, new);
 *	... use *p ...				us_read_wait();
 *	us_read_end(r);				reuse or free the old one
 *
 * Why nobody reads what is gone: a section writes the time at which it began (us_read_now)
 * into a record of its thread *before* it loads `current`. us_read_wait() moves the time on, and
 * then has the kernel put a full barrier into every thread of the process (membarrier(2)). A
 * section whose record was not to be seen after that has written it after the barrier, so it loads
 * `current` after it too, and gets the new one. A section whose record is seen, and is from before
 * the new time, is waited for.
 *
 * Not its job: who may write; more than one domain: a wait waits for the sections of all users.
 *
 * Locking: sections may block and take locks; they do not nest. us_read_wait() must not be called
 *   inside one, nor with a lock held that a section may wait for.
 * Context: begin and end never block or allocate. us_read_wait() sleeps as long as the longest
 *   section that has begun before it.
 * Where the kernel has no membarrier a section begins with a locked instruction instead.
 * In the child of a fork(2) sections of threads that are not there would be waited for: not for use
 * in one.
 */
#ifndef USWAP_BASE_READERS_H
#define USWAP_BASE_READERS_H

#include <stdatomic.h>

#include "base/thread.h"

struct us_reader {
	_Alignas(64) _Atomic uint64_t since; /* the time at which the section began; 0: in none */
};

/* readers.c's. By number of the thread; the last one is for all that have none. */
extern struct us_reader us_readers[US_MAX_THREADS + 1];
/* 0: begin in the other way. */
extern _Atomic uint64_t us_read_now;

struct us_reader *us_read_begin_slowly(unsigned int thread);
void us_read_end_crowd(void);

static inline __must_check struct us_reader *us_read_begin(void)
{
	unsigned int n = us_this_thread();
	uint64_t now = atomic_load_explicit(&us_read_now, memory_order_acquire);
	struct us_reader *r = &us_readers[n];

	if (unlikely(!now || n == US_MAX_THREADS))
		return us_read_begin_slowly(n);
	/* Release: who sees this and not the 0 before it knows what the last section read. */
	atomic_store_explicit(&r->since, now, memory_order_release);
	/* Keeps the compiler's order; the CPU's is seen to by the barrier of who waits. */
	atomic_signal_fence(memory_order_seq_cst);
	return r;
}

static inline void us_read_end(struct us_reader *r)
{
	if (unlikely(r == &us_readers[US_MAX_THREADS]))
		us_read_end_crowd();
	else
		atomic_store_explicit(&r->since, 0, memory_order_release);
}

/* Returns when every section that had begun before the call has ended. */
void us_read_wait(void);
/* From now on as if the kernel had no membarrier. For tests, before there is any section. */
void us_read_without_kernel(void);

#endif
