/* SPDX-License-Identifier: MIT */
/*
 * Which CPUs have which cache line. A line is with its last writer and with those that have read
 * it since. A read by another CPU fetches it from the last writer; a write fetches it and takes it
 * away from all others, one write at a time: that bounds how often all CPUs together can change
 * one word, which is what a shared counter costs.
 *
 * A plain store does not wait for its line, as CPUs have buffers for them: several are under way at
 * once, and while others read on. Only what orders memory waits until they are done: read-modify-
 * write operations, sequentially consistent stores, and giving a lock away.
 *
 * Not modelled: capacity (a line that a CPU has stays until somebody writes it), bandwidth, and
 * plain accesses, which have no hook.
 */
#include "sim/sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_CPU UINT32_MAX
#define CPU_WORDS (SIM_MAX_CPUS / 64)

struct line {
	uintptr_t number; /* address / 64; 0: unused */
	uint32_t writer;
	uint64_t has[CPU_WORDS]; /* CPUs that have it */
	uint64_t free_at_ns;	 /* the last write that was started is done then */
};

static struct line *table;
static size_t nr_slots, nr_used;

int lines_reset(void)
{
	if (!table) {
		nr_slots = 1u << 12;
		table = calloc(nr_slots, sizeof(*table));
		if (!table)
			return -ENOMEM;
	}
	memset(table, 0, nr_slots * sizeof(*table));
	nr_used = 0;
	return 0;
}

static struct line *slot_of(struct line *tab, size_t n, uintptr_t number)
{
	size_t i = (size_t)(number * 0x9e3779b97f4a7c15ull >> 20) & (n - 1);

	while (tab[i].number && tab[i].number != number)
		i = (i + 1) & (n - 1);
	return &tab[i];
}

static void grow(void)
{
	struct line *bigger = calloc(2 * nr_slots, sizeof(*bigger));

	if (!bigger)
		abort();
	for (size_t i = 0; i < nr_slots; i++)
		if (table[i].number)
			*slot_of(bigger, 2 * nr_slots, table[i].number) = table[i];
	free(table);
	table = bigger;
	nr_slots *= 2;
}

static struct line *line_of(const volatile void *p)
{
	uintptr_t number = (uintptr_t)p >> 6;
	struct line *l = slot_of(table, nr_slots, number);

	if (l->number)
		return l;
	if (2 * ++nr_used > nr_slots) {
		grow();
		l = slot_of(table, nr_slots, number);
	}
	l->number = number;
	l->writer = NO_CPU;
	return l;
}

uint64_t line_move_ns(unsigned int from, unsigned int to)
{
	const struct sim_costs *c = &vworld.costs;

	if (from == to)
		return 0;
	if (from / c->cpus_near == to / c->cpus_near)
		return c->line_near_ns;
	return from / c->cpus_socket == to / c->cpus_socket ? c->line_far_ns : c->line_remote_ns;
}

static bool has(const struct line *l, unsigned int cpu)
{
	return l->has[cpu / 64] >> (cpu % 64) & 1;
}

static bool alone(const struct line *l, unsigned int cpu)
{
	for (unsigned int w = 0; w < CPU_WORDS; w++)
		if (l->has[w] != (w == cpu / 64 ? 1ull << (cpu % 64) : 0))
			return false;
	return true;
}

/* Every holder has to give it up: the farthest one decides. */
static uint64_t take_away_ns(const struct line *l, unsigned int cpu)
{
	uint64_t ns = 0;

	for (unsigned int w = 0; w < CPU_WORDS; w++)
		for (uint64_t m = l->has[w]; m; m &= m - 1)
			ns = MAX(ns, line_move_ns(w * 64 + (unsigned int)__builtin_ctzll(m), cpu));
	return ns;
}

static void own(struct line *l, unsigned int cpu)
{
	memset(l->has, 0, sizeof(l->has));
	l->has[cpu / 64] = 1ull << (cpu % 64);
	l->writer = cpu;
}

void line_give(const volatile void *p, unsigned int cpu)
{
	own(line_of(p), cpu);
}

static void stall(uint64_t ns)
{
	vworld.cpus[vworld.cur->cpu].result.stall_ns += ns;
	time_spend(ns);
}

void line_drain(void)
{
	struct vthread *me = vworld.cur;

	if (me->stores_done_ns > me->now_ns)
		stall(me->stores_done_ns - me->now_ns);
}

/* How long the line takes to come, own_ns if it is there. */
static uint64_t fetch_ns(const struct line *l, unsigned int cpu, enum line_use use, uint64_t own_ns)
{
	uint64_t ns = own_ns;

	if (l->writer == NO_CPU)
		/* The first use of all comes from memory, which is about as far as another group. */
		ns = vworld.costs.line_far_ns;
	else if (use == LINE_READ)
		ns = line_move_ns(l->writer, cpu);
	else if (!alone(l, cpu))
		ns = take_away_ns(l, cpu);
	return MAX(ns, own_ns);
}

void line_access(const volatile void *p, enum line_use use, uint64_t own_ns)
{
	struct vthread *me = vworld.cur;
	struct line *l = line_of(p);
	uint64_t start, ns;

	if (use == LINE_READ && has(l, me->cpu)) {
		time_spend(own_ns);
		return;
	}
	if (use == LINE_WRITE)
		line_drain();
	ns = fetch_ns(l, me->cpu, use, own_ns);
	start = MAX(me->now_ns, l->free_at_ns);
	if (ns != own_ns)
		vworld.result->line_moves++;
	if (use == LINE_READ) {
		l->has[me->cpu / 64] |= 1ull << (me->cpu % 64);
		if (l->writer == NO_CPU)
			l->writer = me->cpu;
	} else {
		own(l, me->cpu);
		l->free_at_ns = start + ns;
	}
	if (use == LINE_STORE) {
		me->stores_done_ns = MAX(me->stores_done_ns, start + ns);
		time_spend(own_ns);
		return;
	}
	stall(start + ns - own_ns - me->now_ns);
	time_spend(own_ns);
}
