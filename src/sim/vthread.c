/* SPDX-License-Identifier: MIT */
#include "sim/sim_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct vworld vworld;
const char *sim_file = "?";
int sim_line;

const char *const sim_failure_names[NR_SIM_FAILURES] = {
	"ok", "deadlock", "livelock", "locking", "check", "abort", "unstable"};

static const char *const op_names[NR_SIM_OPS] = {
	[SIM_START] = "starts",	      [SIM_LOAD] = "load",
	[SIM_STORE] = "store",	      [SIM_PLAIN_STORE] = "store",
	[SIM_RMW] = "read-modify-write",
	[SIM_CAS] = "compare-exchange", [SIM_LOCK] = "lock",
	[SIM_TRYLOCK] = "trylock",    [SIM_UNLOCK] = "unlock",
	[SIM_WAIT] = "wait",	      [SIM_TIMEDWAIT] = "timedwait",
	[SIM_SIGNAL] = "signal",      [SIM_BROADCAST] = "broadcast",
	[SIM_CREATE] = "create",      [SIM_JOIN] = "join",
	[SIM_SLEEP] = "sleep",	      [SIM_RELAX] = "relax",
	[SIM_END] = "ends",
};

/* ---- queues ---- */

void vqueue_push(struct vqueue *q, struct vthread *t)
{
	t->next = NULL;
	if (q->tail)
		q->tail->next = t;
	else
		q->head = t;
	q->tail = t;
}

struct vthread *vqueue_pop(struct vqueue *q)
{
	struct vthread *t = q->head;

	if (t)
		vqueue_remove(q, t);
	return t;
}

void vqueue_remove(struct vqueue *q, struct vthread *t)
{
	struct vthread *prev = NULL;

	for (struct vthread *u = q->head; u != t; u = u->next)
		prev = u;
	if (prev)
		prev->next = t->next;
	else
		q->head = t->next;
	if (q->tail == t)
		q->tail = prev;
	t->next = NULL;
}

/* ---- threads ---- */

static void vthread_main(void)
{
	struct vthread *t = vworld.cur;

	fiber_begun(&t->fiber);
	t->fn(t->arg);
	sim_here(t->file, t->line);
	if (t->nr_held)
		vfail(SIM_LOCKING, "thread %u (%s) ends with %s held", t->id, t->name,
		      t->held[0]->cls->name);
	if (vworld.mode == MODE_TIME)
		time_end();
	t->state = V_DONE;
	vworld.nr_live--;
	vtrace(t, SIM_END, NULL, NULL, NULL, 0);
	explore_block();
	abort();
}

struct vthread *vthread_new(const char *name, unsigned int cpu, void (*fn)(void *), void *arg)
{
	struct vthread *t;

	if (vworld.nr_threads == SIM_MAX_THREADS)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	if (fiber_create(&t->fiber, vthread_main) != 0) {
		free(t);
		return NULL;
	}
	t->id = vworld.nr_threads;
	t->turn = (t->id + 1) * 0x9e3779b1u; /* odd: no two are the same */
	t->cpu = cpu % vworld.nr_cpus;
	t->fn = fn;
	t->arg = arg;
	t->state = V_READY;
	t->op = SIM_START;
	t->file = sim_file;
	t->line = sim_line;
	snprintf(t->name, sizeof(t->name), "%s", name);
	vworld.threads[vworld.nr_threads++] = t;
	vworld.nr_live++;
	return t;
}

void vswitch(struct vthread *to)
{
	struct vthread *from = vworld.cur ? vworld.cur : &vworld.outside;

	if (to == from)
		return;
	vworld.cur = to == &vworld.outside ? NULL : to;
	if (from->state == V_DONE && from != &vworld.outside)
		fiber_exit(&from->fiber, &to->fiber);
	fiber_switch(&from->fiber, &to->fiber);
}

void vworld_begin(enum vmode mode, unsigned int nr_cpus)
{
	if (vworld.mode != MODE_NONE) {
		fputs("sim: runs do not nest\n", stderr);
		abort();
	}
	vworld.mode = mode;
	vworld.nr_cpus = nr_cpus;
	vworld.nr_threads = vworld.nr_live = 0;
	vworld.steps = vworld.nr_traced = 0;
	vworld.clock_ns = NSEC_PER_SEC; /* time 0 means "never" in places */
	vworld.nr_heap = 0;
	vworld.stuck = false;
	memset(vworld.cpus, 0, nr_cpus * sizeof(vworld.cpus[0]));
	fiber_of_thread(&vworld.outside.fiber);
}

/* Threads that never ended leave what they hold: only after a failure. */
void vworld_end(void)
{
	for (unsigned int i = 0; i < vworld.nr_threads; i++) {
		fiber_destroy(&vworld.threads[i]->fiber);
		free(vworld.threads[i]);
	}
	vworld.nr_threads = 0;
	vworld.cur = NULL;
	vworld.mode = MODE_NONE;
}

/* ---- failures and the trace ---- */

void vfail(enum sim_failure kind, const char *fmt, ...)
{
	char message[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (vworld.mode == MODE_EXPLORE)
		vworld.cfg.failed(vworld.cfg.priv, kind, message);
	fprintf(stderr, "sim: %s: %s\n", sim_failure_names[kind], message);
	abort();
}

void sim_check_failed(const char *cond, const char *file, int line)
{
	vfail(SIM_CHECK, "%s:%d: not true: %s", file, line, cond);
}

void vtrace(struct vthread *t, enum sim_op op, const volatile void *object, const char *name,
	    const char *file, int line)
{
	uint64_t n = vworld.nr_traced++;
	struct trace_step *s = &vworld.trace[n % TRACE_STEPS];
	const struct trace_step *before = n ? &vworld.trace[(n - 1) % TRACE_STEPS] : NULL;

	s->thread = (unsigned short)t->id;
	s->op = (unsigned char)op;
	s->switched = !before || before->thread != s->thread;
	s->object = object;
	s->name = name;
	s->file = file;
	s->line = line;
}

static const char *short_file(const char *file)
{
	while (strncmp(file, "../", 3) == 0)
		file += 3;
	return file;
}

size_t sim_trace_to_text(char *buf, size_t len)
{
	uint64_t first = vworld.nr_traced > TRACE_STEPS ? vworld.nr_traced - TRACE_STEPS : 0;
	size_t n = 0;

	for (uint64_t i = first; i < vworld.nr_traced && n + 1 < len; i++) {
		const struct trace_step *s = &vworld.trace[i % TRACE_STEPS];
		const char *mark = s->switched ? ">" : " ";
		int w;

		w = snprintf(buf + n, len - n, "%s %5llu  %2u %-15s %-17s", mark,
			     (unsigned long long)i, s->thread,
			     vworld.threads[s->thread]->name, op_names[s->op]);
		n = MIN(n + (size_t)MAX(w, 0), len - 1);
		w = 0;
		if (s->name)
			w = snprintf(buf + n, len - n, " %s", s->name);
		else if (s->object)
			w = snprintf(buf + n, len - n, " %p", (void *)(uintptr_t)s->object);
		n = MIN(n + (size_t)MAX(w, 0), len - 1);
		if (s->file)
			w = snprintf(buf + n, len - n, "  %s:%d\n", short_file(s->file), s->line);
		else
			w = snprintf(buf + n, len - n, "\n");
		n = MIN(n + (size_t)MAX(w, 0), len - 1);
	}
	return n;
}

/* ---- hooks that both modes have ---- */

unsigned int sim_this_cpu(void)
{
	return vworld.mode == MODE_NONE ? 0 : vcurrent()->cpu;
}

static unsigned int nr_cpus_outside = 1;

void sim_set_nr_cpus(unsigned int nr_cpus)
{
	nr_cpus_outside = nr_cpus;
}

unsigned int sim_nr_cpus(void)
{
	return vworld.mode == MODE_NONE ? nr_cpus_outside : vworld.nr_cpus;
}

unsigned int sim_this_thread(void)
{
	return vworld.mode == MODE_NONE ? SIM_MAX_THREADS : vcurrent()->id;
}

void sim_migrate(unsigned int cpu)
{
	if (vworld.mode == MODE_EXPLORE)
		vcurrent()->cpu = cpu % vworld.nr_cpus;
}
