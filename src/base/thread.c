/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

unsigned int us_this_cpu(void)
{
	int cpu = sched_getcpu();

	return cpu < 0 ? 0 : (unsigned int)cpu;
}

unsigned int us_nr_cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);

	return n < 1 ? 1 : (unsigned int)n;
}

/* struct sched_attr of sched_setattr(2), which the C library does not have. */
struct sched_attr_v0 {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

#define URGENT_SLICE_NS 100000ull /* the shortest that the kernel takes */

void us_thread_urgent(void)
{
	struct sched_param sp = {.sched_priority = 1};
	struct sched_attr_v0 slice = {
		.size = sizeof(slice), .policy = SCHED_OTHER, .runtime_ns = URGENT_SLICE_NS};

	if (sched_setscheduler(0, SCHED_FIFO, &sp) != 0)
		(void)syscall(SYS_sched_setattr, 0, &slice, 0);
}
