/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/util.h"

#ifndef USWAP_DEBUG
#define USWAP_DEBUG 0
#endif

static _Atomic(struct lock_class *) all_classes;

static void lock_class_register(struct lock_class *cls)
{
	struct lock_class *head;

	if (atomic_exchange(&cls->listed, true))
		return;
	head = atomic_load(&all_classes);
	do {
		cls->next = head;
	} while (!atomic_compare_exchange_weak(&all_classes, &head, cls));
}

struct lock_class *lock_class_first(void)
{
	return atomic_load(&all_classes);
}

#if USWAP_DEBUG >= 1
#define MAX_HELD 16
static __thread struct lock_class *held[MAX_HELD];
static __thread int nr_held;

static void order_acquire(struct lock_class *cls)
{
	for (int i = 0; i < nr_held; i++) {
		if (held[i]->rank < cls->rank)
			continue;
		fprintf(stderr, "uswap: lock order: %s (%d) taken under %s (%d)\n", cls->name,
			cls->rank, held[i]->name, held[i]->rank);
		abort();
	}
	if (nr_held == MAX_HELD)
		abort();
	held[nr_held++] = cls;
}

static void order_release(struct lock_class *cls)
{
	for (int i = nr_held - 1; i >= 0; i--) {
		if (held[i] != cls)
			continue;
		held[i] = held[--nr_held];
		return;
	}
	fprintf(stderr, "uswap: %s released but not held\n", cls->name);
	abort();
}

void us_mutex_assert_held(struct us_mutex *l)
{
	for (int i = 0; i < nr_held; i++)
		if (held[i] == l->cls)
			return;
	fprintf(stderr, "uswap: %s must be held here\n", l->cls->name);
	abort();
}
#else
static void order_acquire(struct lock_class *cls)
{
	(void)cls;
}

static void order_release(struct lock_class *cls)
{
	(void)cls;
}

void us_mutex_assert_held(struct us_mutex *l)
{
	(void)l;
}
#endif

void us_mutex_init(struct us_mutex *l, struct lock_class *cls)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	if (cls->inherits)
		(void)pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	/* A kernel that cannot do it says so here. */
	if (pthread_mutex_init(&l->m, &a) != 0)
		pthread_mutex_init(&l->m, NULL);
	pthread_mutexattr_destroy(&a);
	l->cls = cls;
	lock_class_register(cls);
}

void us_mutex_deinit(struct us_mutex *l)
{
	pthread_mutex_destroy(&l->m);
}

/*
 * Most holders are done within a microsecond, and sleeping costs both sides several: the waiter
 * two switches, the holder a system call. So look again for about two microseconds first.
 */
#define SPINS 40

static bool spin_for(struct us_mutex *l)
{
	for (int i = 0; i < SPINS; i++) {
		cpu_relax();
		if (pthread_mutex_trylock(&l->m) == 0)
			return true;
	}
	return false;
}

static void count_acquired(struct lock_class *cls)
{
	unsigned int n = us_this_thread();
	_Atomic uint64_t *count = &cls->count[MIN(n, LOCK_OWN_COUNTS)].acquired;

	/* Nobody else writes it, so no locked instruction. */
	if (likely(n < LOCK_OWN_COUNTS))
		atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	else
		atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

void us_mutex_lock(struct us_mutex *l)
{
	order_acquire(l->cls);
	if (pthread_mutex_trylock(&l->m) != 0) {
		uint64_t start = clock_now_ns();

		if (!spin_for(l))
			pthread_mutex_lock(&l->m);
		atomic_fetch_add_explicit(&l->cls->contended, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&l->cls->wait_ns, clock_now_ns() - start,
					  memory_order_relaxed);
	}
	count_acquired(l->cls);
}

bool us_mutex_trylock(struct us_mutex *l)
{
	/* A try-lock cannot deadlock, so it may be taken out of order. */
	if (pthread_mutex_trylock(&l->m) != 0)
		return false;
#if USWAP_DEBUG >= 1
	if (nr_held == MAX_HELD)
		abort();
	held[nr_held++] = l->cls;
#endif
	count_acquired(l->cls);
	return true;
}

void us_mutex_unlock(struct us_mutex *l)
{
	order_release(l->cls);
	pthread_mutex_unlock(&l->m);
}

void us_cond_init(struct us_cond *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&c->c, &a);
	pthread_condattr_destroy(&a);
}

void us_cond_deinit(struct us_cond *c)
{
	pthread_cond_destroy(&c->c);
}

void us_cond_signal(struct us_cond *c)
{
	pthread_cond_signal(&c->c);
}

void us_cond_broadcast(struct us_cond *c)
{
	pthread_cond_broadcast(&c->c);
}

void us_cond_wait(struct us_cond *c, struct us_mutex *l)
{
	pthread_cond_wait(&c->c, &l->m);
}

bool us_cond_timedwait(struct us_cond *c, struct us_mutex *l, uint64_t timeout_ns)
{
	uint64_t at = clock_now_ns() + timeout_ns;
	struct timespec ts = {.tv_sec = (time_t)(at / NSEC_PER_SEC),
			      .tv_nsec = (long)(at % NSEC_PER_SEC)};

	return pthread_cond_timedwait(&c->c, &l->m, &ts) != ETIMEDOUT;
}
