/* SPDX-License-Identifier: MIT */
/* base/thread.h for virtual threads. */
#include "sim/sim_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct vthread *vthread_of(struct us_thread *t)
{
	return (struct vthread *)(uintptr_t)t->id;
}

int us_thread_start(struct us_thread *t, const char *name, int cpu, void (*fn)(void *), void *arg)
{
	struct vthread *v;

	t->fn = fn;
	t->arg = arg;
	t->running = false;
	snprintf(t->name, sizeof(t->name), "%s", name);
	/* A thread that is started outside a run would never go on. */
	if (vworld.mode == MODE_NONE)
		return -EAGAIN;
	v = vthread_new(name, cpu >= 0 ? (unsigned int)cpu : vworld.nr_threads, fn, arg);
	if (!v)
		return -ENOMEM;
	t->id = (pthread_t)(uintptr_t)v;
	t->running = true;
	if (vworld.mode == MODE_EXPLORE) {
		vtrace(vcurrent(), SIM_CREATE, NULL, v->name, sim_file, sim_line);
	} else {
		time_wake(v, vcurrent()->now_ns + vworld.costs.wake_ns);
		time_spend(vworld.costs.waker_ns);
	}
	return 0;
}

void us_thread_join(struct us_thread *t)
{
	struct vthread *me = vcurrent(), *v = vthread_of(t);

	if (!t->running)
		return;
	t->running = false;
	if (vworld.mode == MODE_EXPLORE) {
		me->state = V_JOIN;
		me->joins = v;
		explore_point(SIM_JOIN, NULL, v->name);
		return;
	}
	time_point();
	if (v->state == V_DONE)
		return;
	me->next = v->joiners;
	v->joiners = me;
	time_block();
}

void us_thread_urgent(void)
{
}
