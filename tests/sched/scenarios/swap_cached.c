/* SPDX-License-Identifier: MIT */
/*
 * A page of the swap cache is loaded, written to a device, and dropped, all at once: whoever loads
 * holds a reference, so it gets the content, from wherever it is; and in the end nothing is left.
 */
#include "swap_world.h"

static struct world w;
static swp_t e;

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

/* The entry may be gone before, and a page that is being loaded gets its second chance. */
static void write_out(void *arg)
{
	int64_t n = swap_writeout(w.swap, 1);

	(void)arg;
	sim_check(n == 0 || n == 1);
}

static void begin(uint32_t references)
{
	world_create(&w, 8, 0);
	e = world_store(&w, 1);
	if (references > 1)
		swap_get(w.swap, e, references - 1);
}

static void run_load_writeout(void)
{
	begin(1);
	RUN_PARTS(PART(load_and_put, NULL), PART(write_out, NULL));
	world_end(&w);
}

static void run_put_writeout(void)
{
	begin(1);
	RUN_PARTS(PART(put, NULL), PART(write_out, NULL));
	world_end(&w);
}

static void run_load_writeout_put(void)
{
	begin(2);
	RUN_PARTS(PART(load_and_put, NULL), PART(write_out, NULL), PART(put, NULL));
	world_end(&w);
}

static void run_two_loads_writeout(void)
{
	begin(2);
	RUN_PARTS(PART(load_and_put, NULL), PART(load_and_put, NULL), PART(write_out, NULL));
	world_end(&w);
}

/* The buffer is used again as soon as it is free, and is free once no load copies out of it. */
static void write_out_and_store(void *arg)
{
	swp_t f;

	write_out(arg);
	f = world_store(&w, 2);
	swap_put(w.swap, f, 1);
}

static void run_buffer_again(void)
{
	begin(1);
	RUN_PARTS(PART(load_and_put, NULL), PART(write_out_and_store, NULL));
	world_end(&w);
}

/* Of two pages one is left in flight when the call returns, and judged by another. */
static void write_ahead(void *arg)
{
	int64_t n = swap_writeout_ahead(w.swap, 1, 1);

	(void)arg;
	sim_check(n >= 0);
	(void)swap_writeout_settle(w.swap);
}

static void run_in_flight(void)
{
	swp_t first;

	world_create(&w, 8, 0);
	first = world_store(&w, 2);
	e = world_store(&w, 1);
	RUN_PARTS(PART(load_and_put, NULL), PART(write_ahead, NULL));
	world_load(&w, first, 2);
	swap_put(w.swap, first, 1);
	world_end(&w);
}

SCENARIO(swap_in_flight, .what = "a page is loaded and dropped while its write is left in flight",
	 .run = run_in_flight);
SCENARIO(swap_buffer_again, .what = "a page is loaded, written out, and its buffer used again",
	 .run = run_buffer_again, .after_unlock = true);
SCENARIO(swap_load_writeout, .what = "a cached page is loaded and written out",
	 .run = run_load_writeout);
SCENARIO(swap_put_writeout, .what = "the last reference goes while the page is written out",
	 .run = run_put_writeout);
SCENARIO(swap_load_writeout_put, .what = "a page is loaded, written out, and dropped",
	 .run = run_load_writeout_put);
SCENARIO(swap_two_loads_writeout, .what = "a page is loaded twice and written out",
	 .run = run_two_loads_writeout);
