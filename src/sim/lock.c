/* SPDX-License-Identifier: MIT */
/*
 * base/lock.h for virtual threads. Stricter than the real one, in every build: the order of ranks,
 * and that a lock is released by who holds it and destroyed by nobody while held, are always
 * checked.
 *
 * Exploring, whoever waits for a mutex competes when it is free, in any order, as with the real
 * one. In virtual time the longest waiter gets it, handed over: so a lock that is never free does
 * 1 / (time held + hand-over) acquisitions a second, whatever the number of waiters.
 */
#include "sim/sim_internal.h"

#include <string.h>

#include "base/clock.h"

static _Atomic(struct lock_class *) all_classes;

static void lock_class_register(struct lock_class *cls)
{
	if (atomic_exchange(&cls->listed, true))
		return;
	cls->next = atomic_load(&all_classes);
	atomic_store(&all_classes, cls);
}

struct lock_class *lock_class_first(void)
{
	return atomic_load(&all_classes);
}

static void count(_Atomic uint64_t *n, uint64_t add)
{
	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + add,
			      memory_order_relaxed);
}

void lock_classes_reset(void)
{
	for (struct lock_class *c = lock_class_first(); c; c = c->next) {
		atomic_store(&c->count[0].acquired, 0);
		atomic_store(&c->contended, 0);
		atomic_store(&c->wait_ns, 0);
	}
}

void lock_classes_result(struct sim_result *r)
{
	for (struct lock_class *c = lock_class_first(); c && r->nr_locks < SIM_MAX_CLASSES;
	     c = c->next) {
		if (!lock_class_acquired(c))
			continue;
		r->lock[r->nr_locks++] = (struct sim_lock_result){
			c->name, lock_class_acquired(c), atomic_load(&c->contended),
			atomic_load(&c->wait_ns)};
	}
}

/* ---- who holds what ---- */

static void check_order(const struct vthread *me, const struct us_mutex *l)
{
	for (unsigned int i = 0; i < me->nr_held; i++)
		if (me->held[i]->cls->rank >= l->cls->rank)
			vfail(SIM_LOCKING, "%s:%d: %s (%d) taken under %s (%d)", sim_file, sim_line,
			      l->cls->name, l->cls->rank, me->held[i]->cls->name,
			      me->held[i]->cls->rank);
}

static void now_held(struct vthread *me, struct us_mutex *l)
{
	if (me->nr_held == MAX_HELD)
		vfail(SIM_LOCKING, "%s:%d: %u locks are held", sim_file, sim_line, MAX_HELD);
	me->held[me->nr_held++] = l;
	vmutex_of(l)->owner = me;
	count(&l->cls->count[0].acquired, 1);
}

static void not_held(struct vthread *me, struct us_mutex *l)
{
	struct vthread *owner = vmutex_of(l)->owner;
	unsigned int i = 0;

	if (owner != me)
		vfail(SIM_LOCKING, "%s:%d: %s is released by %s, held by %s", sim_file, sim_line,
		      l->cls->name, me->name, owner ? owner->name : "nobody");
	while (me->held[i] != l)
		i++;
	me->held[i] = me->held[--me->nr_held];
	vmutex_of(l)->owner = NULL;
}

void us_mutex_assert_held(struct us_mutex *l)
{
	if (vmutex_of(l)->owner != vcurrent())
		vfail(SIM_LOCKING, "%s must be held here", l->cls->name);
}

void us_mutex_init(struct us_mutex *l, struct lock_class *cls)
{
	memset(l, 0, sizeof(*l));
	l->cls = cls;
	lock_class_register(cls);
}

void us_mutex_deinit(struct us_mutex *l)
{
	if (vmutex_of(l)->owner)
		vfail(SIM_LOCKING, "%s is destroyed while %s holds it", l->cls->name,
		      vmutex_of(l)->owner->name);
}

/* ---- in virtual time ---- */

/* The lock is t's from now on; t waited since wait_since_ns. */
static void hand_over(struct us_mutex *l, struct vthread *t, struct vthread *from)
{
	const struct sim_costs *c = &vworld.costs;
	uint64_t waited = from->now_ns - t->wait_since_ns, at;

	now_held(t, l);
	if (c->spin_ns && waited > c->spin_ns) {
		at = from->now_ns + c->wake_ns;
		time_spend(c->waker_ns);
	} else {
		at = from->now_ns + c->handoff_ns + line_move_ns(from->cpu, t->cpu);
	}
	line_give(l, t->cpu);
	count(&l->cls->contended, 1);
	count(&l->cls->wait_ns, at - t->wait_since_ns);
	vworld.cpus[t->cpu].result.wait_ns += at - t->wait_since_ns;
	time_wake(t, at);
}

static void time_lock(struct vthread *me, struct us_mutex *l)
{
	line_drain();
	time_point();
	vworld.result->operations++;
	if (vmutex_of(l)->owner) {
		me->wait_since_ns = me->now_ns;
		vqueue_push(&vmutex_of(l)->waiters, me);
		time_block();
		return;
	}
	now_held(me, l);
	line_access(l, LINE_WRITE, 0);
	time_spend(vworld.costs.lock_ns);
}

static void time_unlock(struct vthread *me, struct us_mutex *l)
{
	struct vthread *t;

	/* Whoever has it next must see what was stored under it. */
	line_drain();
	time_point();
	not_held(me, l);
	t = vqueue_pop(&vmutex_of(l)->waiters);
	if (t)
		hand_over(l, t, me);
}

/* ---- the interface ---- */

void us_mutex_lock(struct us_mutex *l)
{
	struct vthread *me = vcurrent();

	check_order(me, l);
	if (vworld.mode == MODE_TIME) {
		time_lock(me, l);
		return;
	}
	if (vworld.mode == MODE_EXPLORE) {
		me->state = V_LOCK;
		me->wants = l;
		explore_point(SIM_LOCK, l, l->cls->name);
	}
	if (vmutex_of(l)->owner)
		vfail(SIM_DEADLOCK, "%s is taken twice", l->cls->name);
	now_held(me, l);
}

bool us_mutex_trylock(struct us_mutex *l)
{
	struct vthread *me = vcurrent();

	if (vworld.mode == MODE_EXPLORE)
		explore_point(SIM_TRYLOCK, l, l->cls->name);
	if (vworld.mode == MODE_TIME) {
		time_point();
		vworld.result->operations++;
		line_access(l, LINE_WRITE, vworld.costs.lock_ns);
		/* Others may have been earlier than the line. */
		time_point();
	}
	if (vmutex_of(l)->owner)
		return false;
	now_held(me, l);
	return true;
}

void us_mutex_unlock(struct us_mutex *l)
{
	struct vthread *me = vcurrent();

	if (vworld.mode == MODE_TIME) {
		time_unlock(me, l);
		return;
	}
	not_held(me, l);
	if (vworld.mode == MODE_NONE)
		return;
	vtrace(me, SIM_UNLOCK, l, l->cls->name, sim_file, sim_line);
	if (vworld.cfg.after_unlock)
		explore_block();
}

/* ---- conditions ---- */

void us_cond_init(struct us_cond *c)
{
	memset(c, 0, sizeof(*c));
}

void us_cond_deinit(struct us_cond *c)
{
	if (vcond_of(c)->waiters.head)
		vfail(SIM_LOCKING, "a condition is destroyed while %s waits for it",
		      vcond_of(c)->waiters.head->name);
}

static void wake_waiter(struct vthread *t)
{
	t->wake_at_ns = 0;
	if (vworld.mode == MODE_EXPLORE) {
		t->state = V_LOCK; /* wants the mutex again */
		return;
	}
	t->timed_out = false;
	time_wake(t, vcurrent()->now_ns + vworld.costs.wake_ns);
	time_spend(vworld.costs.waker_ns);
}

static void signal_waiters(struct us_cond *c, bool all)
{
	struct vcond *v = vcond_of(c);
	struct vthread *t;

	do {
		t = vworld.mode == MODE_EXPLORE && !all ? explore_pick_waiter(v)
							: vqueue_pop(&v->waiters);
		if (t)
			wake_waiter(t);
	} while (t && all);
}

void us_cond_signal(struct us_cond *c)
{
	if (vworld.mode == MODE_EXPLORE)
		explore_point(SIM_SIGNAL, c, NULL);
	else if (vworld.mode == MODE_TIME)
		time_point();
	signal_waiters(c, false);
}

void us_cond_broadcast(struct us_cond *c)
{
	if (vworld.mode == MODE_EXPLORE)
		explore_point(SIM_BROADCAST, c, NULL);
	else if (vworld.mode == MODE_TIME)
		time_point();
	signal_waiters(c, true);
}

static void explore_wait(struct vthread *me, struct us_cond *c, struct us_mutex *l,
			 uint64_t wake_at_ns, enum sim_op op)
{
	/* The mutex keeps away only those that take it to signal. */
	explore_point(op, c, l->cls->name);
	vqueue_push(&vcond_of(c)->waiters, me);
	me->wake_at_ns = wake_at_ns;
	me->waits = c;
	not_held(me, l);
	me->state = V_COND;
	me->wants = l;
	explore_block();
	/* Signalled it went on only while the mutex was free; so it is. */
	vtrace(me, SIM_LOCK, l, l->cls->name, me->file, me->line);
	now_held(me, l);
}

static bool cond_wait(struct us_cond *c, struct us_mutex *l, uint64_t wake_at_ns, enum sim_op op)
{
	struct vthread *me = vcurrent();

	if (vworld.mode == MODE_NONE)
		vfail(SIM_DEADLOCK, "nobody can signal what is waited for");
	us_mutex_assert_held(l);
	me->timed_out = false;
	if (vworld.mode == MODE_EXPLORE) {
		explore_wait(me, c, l, wake_at_ns, op);
		return !me->timed_out;
	}
	time_unlock(me, l);
	vqueue_push(&vcond_of(c)->waiters, me);
	if (wake_at_ns) {
		me->timed_out = true; /* unless a signal comes first */
		time_block_until(wake_at_ns);
		if (me->timed_out)
			vqueue_remove(&vcond_of(c)->waiters, me);
	} else {
		time_block();
	}
	time_lock(me, l);
	return !me->timed_out;
}

void us_cond_wait(struct us_cond *c, struct us_mutex *l)
{
	(void)cond_wait(c, l, 0, SIM_WAIT);
}

bool us_cond_timedwait(struct us_cond *c, struct us_mutex *l, uint64_t timeout_ns)
{
	uint64_t now = vworld.mode == MODE_TIME ? vcurrent()->now_ns : sim_clock_now_ns();

	return cond_wait(c, l, now + MAX(timeout_ns, 1u), SIM_TIMEDWAIT);
}
