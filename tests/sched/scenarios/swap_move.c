/* SPDX-License-Identifier: MIT */
/*
 * A page goes to the other device while it is loaded, dropped, and moved by somebody else too: no
 * load reads a slot that was freed, and one place is left, or none.
 */
#include "swap/move.h"
#include "swap_world.h"

static struct world w;
static struct mover mover[2];
static swp_t e;

static void move(void *arg)
{
	struct move_request req = {.from = 0, .to = MOVE_ANYWHERE};
	struct move_result res = {0};

	mover_move(arg, &req, &e, 1, &res);
	sim_check(res.moved + res.gone == 1);
}

static void load_and_put(void *arg)
{
	(void)arg;
	world_load(&w, e, 1);
	swap_put(w.swap, e, 1);
}

static void put(void *arg)
{
	(void)arg;
	swap_put(w.swap, e, 1);
}

static void begin(uint32_t references)
{
	world_create(&w, 8, 8);
	e = world_store_written(&w, 1);
	swap_get(w.swap, e, references - 1);
	sim_check(mover_init(&mover[0], w.swap) == 0 && mover_init(&mover[1], w.swap) == 0);
}

static void end(void)
{
	mover_deinit(&mover[0]);
	mover_deinit(&mover[1]);
	world_end(&w);
}

static void run_load(void)
{
	begin(2);
	RUN_PARTS(PART(load_and_put, NULL), PART(move, &mover[0]));
	end();
}

static void run_put(void)
{
	begin(2);
	RUN_PARTS(PART(put, NULL), PART(move, &mover[0]));
	end();
}

static void run_two_movers(void)
{
	begin(3);
	RUN_PARTS(PART(move, &mover[0]), PART(move, &mover[1]));
	sim_check(entry_of(&w.swap->table, e)->dev == 1 && world_nr_present(&w) == 1);
	world_load(&w, e, 1);
	swap_put(w.swap, e, 1);
	end();
}

SCENARIO(swap_move_load, .what = "a page is moved and loaded", .run = run_load);
SCENARIO(swap_move_put, .what = "a page is moved and dropped", .run = run_put);
SCENARIO(swap_move_twice, .what = "two movers want the same page", .run = run_two_movers);
