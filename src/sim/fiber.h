/* SPDX-License-Identifier: MIT */
/*
 * Coroutines: several stacks, of which one runs at a time, on one thread.
 *
 * Not its job: who runs next (vthread.c).
 * Context: fiber_create() may map memory; fiber_switch() does nothing but switch. Not for more than
 * one real thread. AddressSanitizer is told of every switch.
 */
#ifndef USWAP_SIM_FIBER_H
#define USWAP_SIM_FIBER_H

#include <stddef.h>

#include "base/util.h"

#define FIBER_STACK_BYTES (256u << 10)

struct fiber {
	void *sp;    /* while it does not run */
	char *stack; /* NULL: the thread's own */
	const void *asan_bottom;
	size_t asan_bytes;
	void *asan_fake;
};

/* f stands for the calling thread and its own stack. */
void fiber_of_thread(struct fiber *f);
/* main never returns: it ends with fiber_exit(). 0 or -ENOMEM. */
int fiber_create(struct fiber *f, void (*main)(void)) __must_check;
/* Keeps the stack for the next fiber. f does not run; takes one that was never created. */
void fiber_destroy(struct fiber *f);
/* from is the running one. Returns when somebody switches back to it. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* The running fiber ends; to goes on. */
void fiber_exit(struct fiber *from, struct fiber *to) __attribute__((noreturn));
/* First thing on a new stack. */
void fiber_begun(struct fiber *self);

#endif
