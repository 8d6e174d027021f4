/* SPDX-License-Identifier: MIT */
/*
 * A device with one slot, which is taken: a page that is written out while the slot is freed either
 * gets it or stays in the cache; and afterwards the slot is found.
 */
#include <errno.h>

#include "swap_world.h"

static struct world w;
static swp_t old, new;

static void put_old(void *arg)
{
	(void)arg;
	swap_put(w.swap, old, 1);
}

static void write_out(void *arg)
{
	int64_t n = swap_writeout(w.swap, 1);

	(void)arg;
	sim_check(n == 1 || n == -ENOSPC);
}

static void run(void)
{
	world_create(&w, 2, 0);
	old = world_store_written(&w, 1);
	new = world_store(&w, 2);
	RUN_PARTS(PART(put_old, NULL), PART(write_out, NULL));
	if (entry_of(&w.swap->table, new)->kind == ENTRY_CACHED)
		sim_check(swap_writeout(w.swap, 1) == 1);
	sim_check(world_nr_present(&w) == 1);
	world_load(&w, new, 2);
	swap_put(w.swap, new, 1);
	world_end(&w);
}

SCENARIO(swap_last_slot, .what = "the only slot is freed while a page wants it", .run = run);
