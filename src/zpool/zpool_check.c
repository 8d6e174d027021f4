/* SPDX-License-Identifier: MIT */
#include "zpool/zpool_internal.h"

#include <stdio.h>
#include <stdlib.h>

void zpool_broken(const char *what, uint32_t value)
{
	fprintf(stderr, "uswap: zpool: %s (%#x)\n", what, value);
	abort();
}

struct tally {
	uint64_t touched, empty, stored, listed;
};

static void check_run(struct zpool *zp, uint32_t run, struct tally *t)
{
	const struct run *r = &zp->runs[run];
	const struct size_class *c = &zp->classes[r->cls];
	uint32_t live = live_pages(r, c);
	unsigned int n = 0;
	bool pending;

	for (unsigned int o = 0; o < MAX_OBJS; o++) {
		if (!obj_is_live(r, o))
			continue;
		if (o >= c->nr_objs)
			zpool_broken("a live object beyond its run", run);
		n++;
		t->stored += zpool_size(zp, run << OBJ_BITS | o);
	}
	if (n != r->nr_live)
		zpool_broken("live objects miscounted in run", run);
	if (live & ~r->touched)
		zpool_broken("a live object on untouched pages in run", run);
	t->touched += (uint64_t)popcount(r->touched);
	t->empty += (uint64_t)popcount(r->touched & ~live);
	if (r->flags & RUN_RELEASING)
		zpool_broken("left half released: run", run);
	if (r->list == LIST_FREE ? r->touched != 0
				 : (r->list == LIST_NONE) != (n == c->nr_objs))
		zpool_broken("on the wrong list: run", run);
	pending = atomic_load(&zp->pending[run / 64]) >> run % 64 & 1;
	if (r->touched & ~live && !pending)
		zpool_broken("empty pages forgotten in run", run);
	if (r->list == LIST_FREE && pending)
		zpool_broken("free but pending: run", run);
	t->listed += r->list != LIST_NONE;
}

static uint64_t check_partial(struct zpool *zp, unsigned int cls, unsigned int bucket)
{
	const struct size_class *c = &zp->classes[cls];
	uint32_t prev = 0;
	uint64_t n = 0;

	for (uint32_t run = c->partial[bucket]; run; run = zp->runs[run].next) {
		const struct run *r = &zp->runs[run];

		if (r->list != bucket || r->prev != prev || r->cls != cls)
			zpool_broken("broken list at run", run);
		if ((unsigned int)r->nr_live * NR_BUCKETS / c->nr_objs != bucket)
			zpool_broken("in the wrong bucket: run", run);
		prev = run;
		n++;
	}
	return n;
}

void zpool_check(struct zpool *zp)
{
	uint32_t nr_runs = atomic_load(&zp->nr_runs);
	struct tally t = {0};
	uint64_t listed = 0;

	for (uint32_t run = 1; run <= nr_runs; run++)
		check_run(zp, run, &t);
	for (uint32_t run = zp->free_runs; run; run = zp->runs[run].next, listed++)
		if (zp->runs[run].list != LIST_FREE)
			zpool_broken("not free but listed so: run", run);
	for (unsigned int cls = 0; cls < NR_CLASSES; cls++)
		for (unsigned int b = 0; b < NR_BUCKETS; b++)
			listed += check_partial(zp, cls, b);
	if (listed != t.listed)
		zpool_broken("runs lost from their lists", (uint32_t)(t.listed - listed));
	if (t.touched != atomic_load(&zp->touched_pages))
		zpool_broken("touched pages miscounted", (uint32_t)t.touched);
	if (t.empty != atomic_load(&zp->empty_pages))
		zpool_broken("empty pages miscounted", (uint32_t)t.empty);
	if (t.stored != atomic_load(&zp->stored_bytes))
		zpool_broken("stored bytes miscounted", (uint32_t)t.stored);
}
