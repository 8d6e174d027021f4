/* SPDX-License-Identifier: MIT */
/*
 * Equal pages: two threads store the same content at once and get one entry, or two that are both
 * good; and the entry that is found may be on its way out.
 */
#include "swap_world.h"

static struct world w;
static swp_t first;

static void store_load_put(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	swp_t e = world_store(&w, seed);

	world_load(&w, e, seed);
	swap_put(w.swap, e, 1);
}

static void put_first(void *arg)
{
	(void)arg;
	swap_put(w.swap, first, 1);
}

static void write_out(void *arg)
{
	(void)arg;
	sim_check(swap_writeout(w.swap, 2) >= 0);
}

static void run_two_writers(void)
{
	world_create(&w, 8, 0);
	RUN_PARTS(PART(store_load_put, (void *)1), PART(store_load_put, (void *)1));
	world_end(&w);
}

/* The number of the dying entry may be in use again, for other content, at once. */
static void run_dying(void)
{
	world_create(&w, 8, 0);
	first = world_store(&w, 1);
	RUN_PARTS(PART(store_load_put, (void *)1), PART(put_first, NULL),
		  PART(store_load_put, (void *)2));
	world_end(&w);
}

static void run_written(void)
{
	world_create(&w, 8, 0);
	first = world_store(&w, 1);
	RUN_PARTS(PART(store_load_put, (void *)1), PART(put_first, NULL), PART(write_out, NULL));
	world_end(&w);
}

SCENARIO(swap_dedup_two_writers, .what = "two threads store the same page",
	 .run = run_two_writers);
SCENARIO(swap_dedup_dying, .what = "a page is stored whose equal is being dropped",
	 .run = run_dying);
SCENARIO(swap_dedup_written, .what = "the same while that is written out", .run = run_written);
