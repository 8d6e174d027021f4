/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sim/fiber.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

void fiber_swap(void **save_sp, void *load_sp);
void fiber_entry(void);

/* Stacks that nobody uses, linked through their first word. Kept: a run makes a few each. */
static char *free_stacks;

/* The lowest page is inaccessible: running over the end is a fault, not a mystery. */
static char *stack_get(void)
{
	char *p = free_stacks;

	if (p) {
		memcpy(&free_stacks, p + PAGE_SIZE, sizeof(char *));
		return p;
	}
	p = mmap(NULL, FIBER_STACK_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p, PAGE_SIZE, PROT_NONE) != 0) {
		munmap(p, FIBER_STACK_BYTES);
		return NULL;
	}
	return p;
}

void fiber_of_thread(struct fiber *f)
{
	memset(f, 0, sizeof(*f));
#ifdef FIBER_ASAN
	pthread_attr_t a;
	void *bottom;

	if (pthread_getattr_np(pthread_self(), &a) == 0) {
		pthread_attr_getstack(&a, &bottom, &f->asan_bytes);
		f->asan_bottom = bottom;
		pthread_attr_destroy(&a);
	}
#endif
}

int fiber_create(struct fiber *f, void (*main)(void))
{
	uintptr_t *sp;

	memset(f, 0, sizeof(*f));
	f->stack = stack_get();
	if (!f->stack)
		return -ENOMEM;
#ifdef FIBER_ASAN
	__asan_unpoison_memory_region(f->stack + PAGE_SIZE, FIBER_STACK_BYTES - PAGE_SIZE);
#endif
	f->asan_bottom = f->stack;
	f->asan_bytes = FIBER_STACK_BYTES;
	/* What fiber_swap() pops: r15, r14, r13, r12, rbx, rbp, and the address to go on at. */
	sp = (uintptr_t *)(f->stack + FIBER_STACK_BYTES) - 9; /* so that the call is aligned */
	memset(sp, 0, 9 * sizeof(*sp));
	sp[4] = (uintptr_t)main;
	sp[6] = (uintptr_t)fiber_entry;
	f->sp = sp;
	return 0;
}

void fiber_destroy(struct fiber *f)
{
	if (!f->stack)
		return;
	memcpy(f->stack + PAGE_SIZE, &free_stacks, sizeof(char *));
	free_stacks = f->stack;
	f->stack = NULL;
}

void fiber_begun(struct fiber *self)
{
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
	(void)self;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(&from->asan_fake, to->asan_bottom, to->asan_bytes);
	fiber_swap(&from->sp, to->sp);
	__sanitizer_finish_switch_fiber(from->asan_fake, NULL, NULL);
#else
	fiber_swap(&from->sp, to->sp);
#endif
}

void fiber_exit(struct fiber *from, struct fiber *to)
{
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(NULL, to->asan_bottom, to->asan_bytes);
#endif
	fiber_swap(&from->sp, to->sp);
	abort();
}
