/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define STACK_BYTES (256u << 10)

static void *trampoline(void *p)
{
	struct us_thread *t = p;

	pthread_setname_np(pthread_self(), t->name);
	t->fn(t->arg);
	return NULL;
}

int us_thread_start(struct us_thread *t, const char *name, int cpu, void (*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int r;

	t->fn = fn;
	t->arg = arg;
	snprintf(t->name, sizeof(t->name), "%s", name);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t->id, &attr, trampoline, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	t->running = r == 0;
	return -r;
}

void us_thread_join(struct us_thread *t)
{
	if (!t->running)
		return;
	pthread_join(t->id, NULL);
	t->running = false;
}
