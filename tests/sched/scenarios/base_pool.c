/* SPDX-License-Identifier: MIT */
/* mem_pool: an object belongs to one thread at a time, is zero when it is handed out, and comes
 * back. */
#include "base/mem.h"
#include "scenario.h"

static struct mem_pool pool;

/* With two objects for two threads none of them ever goes without. */
static void use_twice(void *arg)
{
	for (int i = 0; i < 2; i++) {
		uintptr_t *p = mem_pool_alloc(&pool);

		sim_check(p);
		sim_check(p[0] == 0 && p[1] == 0);
		p[1] = (uintptr_t)arg;
		(void)mem_total_bytes();
		sim_check(p[1] == (uintptr_t)arg);
		mem_pool_free(&pool, p);
	}
}

static void run(void)
{
	sim_check(mem_pool_init(&pool, 16, 2) == 0);
	RUN_PARTS(PART(use_twice, (void *)1), PART(use_twice, (void *)2));
	sim_check(pool.used == 0);
	mem_pool_deinit(&pool);
}

SCENARIO(base_pool, .what = "two threads share a pool of two objects", .run = run);
