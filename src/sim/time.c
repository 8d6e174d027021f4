/* SPDX-License-Identifier: MIT */
/*
 * Virtual time: a discrete-event simulation whose events are "thread t goes on at time x".
 *
 * The heap holds every thread whose next moment is known, but the running one:
 *   V_READY  it has its CPU and goes on there;
 *   V_SLEEP  it wakes, and then needs its CPU, for which it may have to queue.
 * Before each operation the running thread lets all go first that are earlier (time_point), so
 * operations happen in the order of time. Between operations time passes without anybody seeing it.
 * Among equals the order is fixed but mixed: in the order of CPUs a lock would go from neighbour to
 * neighbour, which is the cheapest way through the machine.
 *
 * A CPU runs one of its threads until that one waits: there are no time slices.
 */
#include "sim/sim_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the heap ---- */

static bool before(const struct vthread *a, const struct vthread *b)
{
	return a->now_ns < b->now_ns || (a->now_ns == b->now_ns && a->turn < b->turn);
}

static void heap_set(unsigned int i, struct vthread *t)
{
	vworld.heap[i] = t;
	t->heap_at = i + 1;
}

static void heap_up(unsigned int i, struct vthread *t)
{
	while (i && before(t, vworld.heap[(i - 1) / 2])) {
		heap_set(i, vworld.heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_set(i, t);
}

static void heap_down(unsigned int i, struct vthread *t)
{
	for (unsigned int k; (k = 2 * i + 1) < vworld.nr_heap; i = k) {
		if (k + 1 < vworld.nr_heap && before(vworld.heap[k + 1], vworld.heap[k]))
			k++;
		if (!before(vworld.heap[k], t))
			break;
		heap_set(i, vworld.heap[k]);
	}
	heap_set(i, t);
}

static void heap_push(struct vthread *t)
{
	heap_up(vworld.nr_heap++, t);
}

static void heap_remove(struct vthread *t)
{
	unsigned int i = t->heap_at - 1;
	struct vthread *last = vworld.heap[--vworld.nr_heap];

	t->heap_at = 0;
	if (last == t)
		return;
	if (i && before(last, vworld.heap[(i - 1) / 2]))
		heap_up(i, last);
	else
		heap_down(i, last);
}

static struct vthread *heap_pop(void)
{
	struct vthread *t = vworld.nr_heap ? vworld.heap[0] : NULL;

	if (t)
		heap_remove(t);
	return t;
}

/* ---- CPUs ---- */

static void leave_cpu(struct vthread *t)
{
	struct vcpu *c = &vworld.cpus[t->cpu];
	struct vthread *u = c->first;

	c->free_at_ns = t->now_ns;
	c->running = u;
	if (!u)
		return;
	c->first = u->cpu_next;
	if (!c->first)
		c->last = NULL;
	u->cpu_next = NULL;
	u->now_ns = MAX(u->now_ns, c->free_at_ns) + vworld.costs.switch_ns;
	heap_push(u);
}

/* t, not in the heap, wants its CPU at t->now_ns. False: it has to queue. */
static bool take_cpu(struct vthread *t)
{
	struct vcpu *c = &vworld.cpus[t->cpu];

	t->state = V_READY;
	if (!c->running) {
		c->running = t;
		t->now_ns = MAX(t->now_ns, c->free_at_ns);
		return true;
	}
	if (c->last)
		c->last->cpu_next = t;
	else
		c->first = t;
	c->last = t;
	return false;
}

/* ---- going on ---- */

/* Who goes on now; the caller's stack if nobody can. */
static struct vthread *next_event(void)
{
	struct vthread *t;

	while ((t = heap_pop())) {
		if (t->state != V_SLEEP || take_cpu(t))
			return t;
	}
	vworld.stuck = vworld.nr_live != 0;
	return &vworld.outside;
}

void time_point(void)
{
	struct vthread *me = vworld.cur;

	if (!vworld.nr_heap || !before(vworld.heap[0], me))
		return;
	heap_push(me);
	vswitch(next_event());
}

void time_spend(uint64_t ns)
{
	struct vthread *me = vworld.cur;

	me->now_ns += ns;
	vworld.cpus[me->cpu].result.busy_ns += ns;
}

void time_block(void)
{
	struct vthread *me = vworld.cur;

	me->state = V_COND;
	leave_cpu(me);
	vswitch(next_event());
}

void time_block_until(uint64_t wake_at_ns)
{
	struct vthread *me = vworld.cur;

	leave_cpu(me);
	me->state = V_SLEEP;
	me->now_ns = MAX(me->now_ns, wake_at_ns);
	heap_push(me);
	vswitch(next_event());
}

void time_wake(struct vthread *t, uint64_t at_ns)
{
	if (t->heap_at) {
		/* It would have gone on later by itself. */
		heap_remove(t);
		t->now_ns = at_ns;
	}
	t->now_ns = MAX(t->now_ns, at_ns);
	t->state = V_SLEEP;
	heap_push(t);
}

void time_end(void)
{
	struct vthread *me = vworld.cur;

	me->state = V_READY; /* still, for those that are earlier */
	time_point();
	me->state = V_DONE;
	vworld.nr_live--;
	for (struct vthread *t = me->joiners, *next; t; t = next) {
		next = t->next;
		time_wake(t, me->now_ns + vworld.costs.wake_ns);
	}
	vworld.result->elapsed_ns = MAX(vworld.result->elapsed_ns, me->now_ns);
	leave_cpu(me);
	vswitch(next_event());
	__builtin_unreachable();
}

/* ---- a run ---- */

struct cpu_fn {
	void (*fn)(unsigned int cpu, void *arg);
	void *arg;
};

static void run_cpu(void *p)
{
	const struct cpu_fn *f = p;

	f->fn(vworld.cur->cpu, f->arg);
}

static void collect(struct sim_result *r)
{
	for (unsigned int i = 0; i < r->nr_cpus; i++)
		r->cpu[i] = vworld.cpus[i].result;
	lock_classes_result(r);
}

int sim_run(unsigned int nr_cpus, const struct sim_costs *costs,
	    void (*fn)(unsigned int cpu, void *arg), void *arg, struct sim_result *r)
{
	struct cpu_fn f = {fn, arg};
	int err = 0;

	memset(r, 0, sizeof(*r));
	if (!nr_cpus || nr_cpus > SIM_MAX_CPUS) {
		snprintf(r->error, sizeof(r->error), "1 to %d CPUs, not %u", SIM_MAX_CPUS, nr_cpus);
		return -EINVAL;
	}
	r->nr_cpus = nr_cpus;
	lock_classes_reset();
	err = lines_reset();
	if (err)
		return err;
	vworld_begin(MODE_TIME, nr_cpus);
	vworld.costs = *costs;
	vworld.result = r;
	for (unsigned int i = 0; i < nr_cpus && !err; i++) {
		struct vthread *t;
		char name[16];

		snprintf(name, sizeof(name), "cpu%u", i);
		t = vthread_new(name, i, run_cpu, &f);
		if (t)
			time_wake(t, 0);
		else
			err = -ENOMEM;
	}
	if (!err)
		vswitch(next_event());
	if (vworld.stuck) {
		snprintf(r->error, sizeof(r->error), "%u threads wait for ever", vworld.nr_live);
		err = -EDEADLK;
	}
	collect(r);
	vworld_end();
	return err;
}
