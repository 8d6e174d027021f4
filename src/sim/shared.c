/* SPDX-License-Identifier: MIT */
/*
 * Which operations meet those of other threads. One that meets none may come a little earlier or
 * later without anybody seeing it: to switch before it is to switch before the thread's next one
 * that does meet somebody. So points of the first kind can be left out (sim_explore_config.only_shared).
 *
 * Two operations of two threads meet if they use the same object and one of them changes it. What is
 * remembered from run to run is the places in the source, since objects lie elsewhere each time: a
 * place is shared once an operation there has met one. Whoever explores begins anew when there is
 * a new one; when there is none any more nothing was left out that mattered.
 *
 * That supposes that what lies between operations is protected by them. Where it is not, a switch at
 * an operation that meets nobody could show it: such races are ThreadSanitizer's.
 */
#include "sim/sim_internal.h"

#define MAX_PLACES 4096u
#define MAX_ACCESSES (1u << 14)

struct place {
	const char *file; /* NULL: unused */
	int line;
	bool shared;
};

/* Of this run. */
struct access {
	uint64_t run; /* else the slot is free */
	uintptr_t object;
	unsigned int thread, place;
	bool changes;
};

static struct place places[MAX_PLACES];
static struct access accesses[MAX_ACCESSES];
static unsigned int nr_places, nr_accesses, nr_shared;
static uint64_t run;

static size_t hash(uintptr_t a, uintptr_t b)
{
	return (size_t)((a * 0x9e3779b97f4a7c15ull ^ b * 0xc2b2ae3d27d4eb4full) >> 20);
}

static unsigned int place_of(const char *file, int line)
{
	size_t i = hash((uintptr_t)file, (uintptr_t)line) % MAX_PLACES;

	for (; places[i].file; i = (i + 1) % MAX_PLACES)
		if (places[i].file == file && places[i].line == line)
			return (unsigned int)i;
	if (++nr_places > MAX_PLACES / 2)
		vfail(SIM_CHECK, "too many places for --only-shared");
	places[i].file = file;
	places[i].line = line;
	return (unsigned int)i;
}

static void met(unsigned int place)
{
	nr_shared += !places[place].shared;
	places[place].shared = true;
}

void shared_begin_run(void)
{
	run++;
	nr_accesses = 0;
}

unsigned int sim_nr_shared_places(void)
{
	return nr_shared;
}

bool shared_note(const struct vthread *t, enum sim_op op, const volatile void *object)
{
	unsigned int place = place_of(t->file, t->line);
	bool changes = op != SIM_LOAD, known = false;
	size_t i = hash((uintptr_t)object, 0) % MAX_ACCESSES;

	/* What the first thread does alone is before or after all that others do. */
	if (!t->id && vworld.nr_live == 1)
		return places[place].shared;
	for (; accesses[i].run == run; i = (i + 1) % MAX_ACCESSES) {
		const struct access *a = &accesses[i];

		if (a->object != (uintptr_t)object)
			continue;
		if (a->thread != t->id && (a->changes || changes)) {
			met(a->place);
			met(place);
		}
		known |= a->thread == t->id && a->place == place && a->changes == changes;
	}
	if (known)
		return places[place].shared;
	if (++nr_accesses > MAX_ACCESSES / 2)
		vfail(SIM_CHECK, "too many objects for --only-shared");
	accesses[i] = (struct access){run, (uintptr_t)object, t->id, place, changes};
	return places[place].shared;
}
