/* SPDX-License-Identifier: MIT */
/*
 * The gate alone (swap/gate.h): two things, each with a place that is read after its lock was
 * dropped. A mover changes both, one after the other, and frees each old place once the gate is
 * drained. A reader that was delayed inside gate_enter() during the first drain must still hold up
 * the second.
 */
#include "scenario.h"
#include "swap/gate.h"

LOCK_CLASS(thing_class, "thing", RANK_ENTRY);

struct thing {
	struct us_mutex lock;
	int place;
};

static struct gate gate;
static struct thing things[2];
static bool freed[4];
static _Atomic int step;

static void read_place(void *arg)
{
	struct thing *t = arg;
	unsigned int phase;
	int place;

	us_mutex_lock(&t->lock);
	place = t->place;
	phase = gate_enter(&gate);
	us_mutex_unlock(&t->lock);
	(void)atomic_load(&step);
	sim_check(!freed[place]);
	gate_leave(&gate, phase);
}

static void move_both(void *arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		int old;

		us_mutex_lock(&things[i].lock);
		old = things[i].place;
		things[i].place = old + 2;
		us_mutex_unlock(&things[i].lock);
		gate_drain(&gate);
		freed[old] = true;
	}
}

static void begin(void)
{
	memset(&gate, 0, sizeof(gate));
	gate_init(&gate);
	memset(freed, 0, sizeof(freed));
	for (int i = 0; i < 2; i++) {
		us_mutex_init(&things[i].lock, &thing_class);
		things[i].place = i;
	}
}

static void run_one(void)
{
	begin();
	RUN_PARTS(PART(read_place, &things[1]), PART(move_both, NULL));
}

static void run_two(void)
{
	begin();
	RUN_PARTS(PART(read_place, &things[0]), PART(read_place, &things[1]),
		  PART(move_both, NULL));
}

SCENARIO(swap_gate_one_reader, .what = "a reader of a place that is moved", .run = run_one);
SCENARIO(swap_gate_two_readers, .what = "readers of two places that are moved", .run = run_two);
