/* SPDX-License-Identifier: MIT */
/*
 * Who goes on is somebody else's choice. A thread stops before each operation and says what it is
 * about to do; so whether it can go on is known (a mutex that it wants is free), and each choice
 * is one step of one thread.
 */
#include "sim/sim_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MAX_QUIET 16

static struct {
	uintptr_t from, to;
} quiet[MAX_QUIET];
static unsigned int nr_quiet;

static bool is_quiet(const volatile void *p)
{
	for (unsigned int i = 0; i < nr_quiet; i++)
		if ((uintptr_t)p >= quiet[i].from && (uintptr_t)p < quiet[i].to)
			return true;
	return false;
}

void sim_quiet(const volatile void *p, size_t bytes)
{
	if (is_quiet(p) && is_quiet((const volatile char *)p + bytes - 1))
		return;
	if (nr_quiet == MAX_QUIET)
		vfail(SIM_CHECK, "too many quiet places");
	quiet[nr_quiet].from = (uintptr_t)p;
	quiet[nr_quiet++].to = (uintptr_t)p + bytes;
}

/* ---- who can go on ---- */

static bool can_go_on(const struct vthread *t)
{
	switch (t->state) {
	case V_READY:
		return true;
	case V_LOCK:
		return !vmutex_of(t->wants)->owner;
	case V_JOIN:
		return t->joins->state == V_DONE;
	default:
		return false;
	}
}

/* Would go on if its time were over, or without a signal where that is allowed. */
static bool could_be_let_on(const struct vthread *t)
{
	if (t->state == V_SLEEP)
		return true;
	return t->state == V_COND && (t->wake_at_ns || vworld.cfg.spurious) &&
	       !vmutex_of(t->wants)->owner;
}

static void add(struct sim_choice *c, const struct vthread *t)
{
	c->thread[c->nr++] = t->id;
}

/*
 * The running thread first, the others behind it in order of their numbers, so that always taking
 * the first runs threads in turn. Sleepers come last; where nobody else can go on the earliest of
 * them is the one to be woken.
 */
static void collect(struct sim_choice *c, const struct vthread *cur)
{
	unsigned int n = vworld.nr_threads;
	const struct vthread *earliest = NULL;

	c->nr = 0;
	if (can_go_on(cur))
		add(c, cur);
	c->nr_free = c->nr;
	for (unsigned int i = 1; i < n; i++) {
		const struct vthread *t = vworld.threads[(cur->id + i) % n];

		if (can_go_on(t))
			add(c, t);
	}
	if (!c->nr_free)
		c->nr_free = c->nr;
	c->nr_ready = c->nr;
	if (!c->nr) {
		for (unsigned int i = 0; i < n; i++) {
			const struct vthread *t = vworld.threads[(cur->id + 1 + i) % n];

			if (could_be_let_on(t) && t->wake_at_ns &&
			    (!earliest || t->wake_at_ns < earliest->wake_at_ns))
				earliest = t;
		}
		if (!earliest)
			return;
		add(c, earliest);
		c->nr_free = 1;
	}
	for (unsigned int i = 0; i < n; i++) {
		const struct vthread *t = vworld.threads[(cur->id + 1 + i) % n];

		if (t != earliest && could_be_let_on(t))
			add(c, t);
	}
}

static const char *class_name(const struct us_mutex *l)
{
	return l->cls ? l->cls->name : "a lock";
}

static void deadlock(void)
{
	char text[400] = "";
	size_t n = 0;

	for (unsigned int i = 0; i < vworld.nr_threads && n < sizeof(text) - 1; i++) {
		struct vthread *t = vworld.threads[i], *owner;
		int w = 0;

		if (t->state == V_LOCK) {
			owner = vmutex_of(t->wants)->owner;
			w = snprintf(text + n, sizeof(text) - n, "; %s wants %s, held by %s",
				     t->name, class_name(t->wants), owner ? owner->name : "?");
		} else if (t->state == V_COND) {
			w = snprintf(text + n, sizeof(text) - n, "; %s waits for a signal",
				     t->name);
		} else if (t->state == V_JOIN) {
			w = snprintf(text + n, sizeof(text) - n, "; %s waits for the end of %s",
				     t->name, t->joins->name);
		}
		n = MIN(n + (size_t)MAX(w, 0), sizeof(text) - 1);
	}
	vfail(SIM_DEADLOCK, "nobody can go on%s", text);
}

/* ---- going on ---- */

static void let_go_on(struct vthread *t)
{
	if (t->state == V_SLEEP || t->state == V_COND) {
		if (t->state == V_COND)
			vqueue_remove(&vcond_of(t->waits)->waiters, t);
		t->timed_out = t->wake_at_ns != 0;
		vworld.clock_ns = MAX(vworld.clock_ns, t->wake_at_ns);
		t->wake_at_ns = 0;
	}
	t->state = V_READY;
	vswitch(t);
}

static void count_step(void)
{
	if (++vworld.steps > vworld.cfg.max_steps)
		vfail(SIM_LIVELOCK, "no end after %llu steps",
		      (unsigned long long)vworld.cfg.max_steps);
	vworld.clock_ns++;
}

static void next_step(void)
{
	struct vthread *cur = vworld.cur;
	struct sim_choice *c = &vworld.choice;
	unsigned int i = 0;

	if (!vworld.nr_live) {
		vswitch(&vworld.outside);
		return;
	}
	count_step();
	collect(c, cur);
	if (!c->nr)
		deadlock();
	if (c->nr > 1)
		i = vworld.cfg.choose(vworld.cfg.priv, c);
	let_go_on(vworld.threads[c->thread[i]]);
}

/* The thread goes on, and places keep the numbers that they have where every one is a choice. */
static void pass_point(struct vthread *t)
{
	struct sim_choice *c = &vworld.choice;

	count_step();
	collect(c, t);
	if (c->nr > 1)
		vworld.cfg.passed(vworld.cfg.priv);
	t->state = V_READY;
}

static bool can_pass(const struct vthread *t)
{
	switch (t->op) {
	case SIM_LOAD:
	case SIM_STORE:
	case SIM_PLAIN_STORE:
	case SIM_RMW:
	case SIM_CAS:
	case SIM_LOCK:
	case SIM_TRYLOCK:
		return !shared_note(t, t->op, t->object) && can_go_on(t);
	default:
		return false;
	}
}

static void said(struct vthread *t, const char *name)
{
	vtrace(t, t->op, t->object, name, t->file, t->line);
}

void explore_point(enum sim_op op, const volatile void *object, const char *name)
{
	struct vthread *t = vworld.cur;

	t->op = op;
	t->object = object;
	t->file = sim_file;
	t->line = sim_line;
	if (vworld.cfg.only_shared && can_pass(t))
		pass_point(t);
	else
		next_step();
	said(t, name);
}

void explore_block(void)
{
	next_step();
}

struct vthread *explore_pick_waiter(struct vcond *wc)
{
	struct sim_choice *c = &vworld.choice;
	struct vthread *t = wc->waiters.head;
	unsigned int i = 0;

	if (!t)
		return NULL;
	c->nr = 0;
	for (; t; t = t->next)
		add(c, t);
	c->nr_free = c->nr_ready = c->nr;
	if (c->nr > 1)
		i = vworld.cfg.choose(vworld.cfg.priv, c);
	t = vworld.threads[c->thread[i]];
	vqueue_remove(&wc->waiters, t);
	return t;
}

void sim_explore(const struct sim_explore_config *cfg, void (*fn)(void *arg), void *arg)
{
	struct vthread *t;

	vworld_begin(MODE_EXPLORE, MAX(cfg->nr_cpus, 1u));
	vworld.cfg = *cfg;
	shared_begin_run();
	t = vthread_new("main", 0, fn, arg);
	if (!t)
		vfail(SIM_CHECK, "no memory for a thread");
	vswitch(t);
	vworld_end();
}

uint64_t sim_nr_steps(void)
{
	return vworld.steps;
}

/* ---- hooks ---- */

/* A pause instruction: 40 to 140 cycles on x86 since 2017, a few before. */
#define RELAX_NS 30

static void explore_sleep(enum sim_op op, uint64_t ns)
{
	struct vthread *t = vworld.cur;

	/* Even cpu_relax() lets some time pass, or a loop on it would keep others from waking. */
	t->state = V_SLEEP;
	t->wake_at_ns = vworld.clock_ns + MAX(ns, 1u);
	explore_point(op, NULL, NULL);
}

void sim_atomic(const volatile void *p, enum sim_op op, const char *file, int line)
{
	if (vworld.mode == MODE_NONE)
		return;
	sim_here(file, line);
	if (vworld.mode == MODE_EXPLORE) {
		if (!is_quiet(p))
			explore_point(op, p, NULL);
		return;
	}
	time_point();
	vworld.result->operations++;
	if (op == SIM_LOAD)
		line_access(p, LINE_READ, vworld.costs.load_ns);
	else if (op == SIM_PLAIN_STORE)
		line_access(p, LINE_STORE, vworld.costs.load_ns);
	else
		line_access(p, LINE_WRITE, vworld.costs.atomic_ns);
}

uint64_t sim_clock_now_ns(void)
{
	switch (vworld.mode) {
	case MODE_EXPLORE:
		return vworld.clock_ns;
	case MODE_TIME:
		return NSEC_PER_SEC + vcurrent()->now_ns;
	default:
		return NSEC_PER_SEC;
	}
}

uint64_t sim_now_ns(void)
{
	return sim_clock_now_ns() - NSEC_PER_SEC;
}

void sim_clock_sleep_ns(uint64_t ns)
{
	if (vworld.mode == MODE_EXPLORE)
		explore_sleep(SIM_SLEEP, ns);
	if (vworld.mode != MODE_TIME)
		return;
	time_point();
	time_block_until(vcurrent()->now_ns + ns);
}

void sim_relax(void)
{
	if (vworld.mode == MODE_EXPLORE)
		explore_sleep(SIM_RELAX, 0);
	if (vworld.mode != MODE_TIME)
		return;
	/* On a CPU with others these get their turn. */
	time_point();
	time_block_until(vcurrent()->now_ns + RELAX_NS);
}

void sim_work(uint64_t ns)
{
	if (vworld.mode == MODE_TIME)
		time_spend(ns);
}
