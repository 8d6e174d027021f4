/* SPDX-License-Identifier: MIT */
/*
 * Layout. One reservation of address space is cut into runs of 32 pages. A run in use belongs to
 * one size class and holds up to 128 objects of that size, side by side; it has no other
 * structure. Address space costs nothing, memory does: so a run of small objects leaves the rest
 * of its 32 pages untouched, and no page allocator is needed below the runs.
 *
 * Returning memory. A page that no live object overlaps goes back to the kernel, not only a run
 * that is empty as a whole. `touched` has a bit for each page that may be backed by memory. Pages
 * that became empty are kept for a while (RELEASE_PAGES), since the next object is likely to
 * want them, then given back in batches with no lock held. While that happens the run is
 * RELEASING: on no list, so nobody puts a new object into a page that is about to be discarded.
 * A run goes to another class only when it is empty and all its pages are given back.
 *
 * Placement. Runs with a free place are listed by how full they are, fullest first, so that
 * nearly empty ones get the chance to drain. Within a run a place on touched pages is preferred.
 *
 * Size asked for. The last two bytes of each place hold the unused length, which serves the
 * caller's need for the length of a compressed object as well (zpool_size()).
 *
 * Handle: run << 7 | place. Run 0 does not exist, so a handle is never 0.
 *
 * Locks, outermost first: release_lock (one thread at a time gives back), a class's lock (its lists
 * and all of its runs), runs_lock (runs of no class). The lengths of compressed pages spread over
 * dozens of classes, so threads seldom meet at the same lock.
 */
#include "zpool/zpool_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/mem.h"

/* Empty pages that may wait to be given back. */
#define RELEASE_PAGES 256
/* When a class finds no run, the next larger ones are tried: at most twice the size. */
#define FALLBACK_CLASSES 16u

LOCK_CLASS(release_class, "zpool_release", RANK_ZPOOL - 1);
LOCK_CLASS(zpool_class, "zpool", RANK_ZPOOL);
LOCK_CLASS(runs_class, "zpool_runs", RANK_ZPOOL + 1);

static void count(_Atomic uint64_t *counter, int64_t n)
{
	if (n)
		atomic_fetch_add_explicit(counter, (uint64_t)n, memory_order_relaxed);
}

/* ---- geometry ---- */

static unsigned int class_of(size_t bytes)
{
	uint32_t need = (uint32_t)bytes + TRAILER, v, msb;

	if (need <= MIN_SIZE)
		return 0;
	if (need <= LINEAR_MAX)
		return (need - MIN_SIZE + 7) / 8;
	v = need - 1;
	msb = 31 - (uint32_t)__builtin_clz(v);
	return NR_LINEAR + (msb - 8) * 16 + ((v >> (msb - 4)) & 15);
}

static uint32_t class_size(unsigned int cls)
{
	unsigned int i = cls - NR_LINEAR;

	if (cls < NR_LINEAR)
		return MIN_SIZE + cls * 8;
	return (17 + i % 16) << (4 + i / 16);
}

/* As many objects as fit, or up to a quarter fewer if they fill their last page better. */
static void class_init(struct size_class *c, unsigned int cls)
{
	uint32_t size = class_size(cls);
	uint32_t max = (uint32_t)MIN(RUN_BYTES / size, MAX_OBJS);
	uint64_t best = UINT64_MAX;

	us_mutex_init(&c->lock, &zpool_class);
	c->size = size;
	for (uint32_t k = max; k >= 1 && k >= max - max / 4; k--) {
		uint32_t pages = (uint32_t)bytes_to_pages((uint64_t)k * size);
		uint64_t cost = ((uint64_t)pages << 32) / k;

		if (cost >= best)
			continue;
		best = cost;
		c->nr_objs = (uint16_t)k;
		c->nr_pages = (uint16_t)pages;
	}
}

static char *run_addr(struct zpool *zp, uint32_t run)
{
	return zp->base + (size_t)run * RUN_BYTES;
}

static bool page_is_live(const struct run *r, const struct size_class *c, unsigned int page)
{
	unsigned int lo = page * PAGE_SIZE / c->size;
	unsigned int hi = MIN((page * PAGE_SIZE + PAGE_SIZE - 1) / c->size, c->nr_objs - 1u);

	for (unsigned int o = lo; o <= hi; o++)
		if (obj_is_live(r, o))
			return true;
	return false;
}

/*
 * The pages of obj, itself not live, that another object lives on. Pages in its middle belong to
 * it alone.
 */
static uint32_t shared_pages(const struct run *r, const struct size_class *c, unsigned int obj)
{
	unsigned int first = (obj * c->size) >> PAGE_SHIFT;
	unsigned int last = ((obj + 1) * c->size - 1) >> PAGE_SHIFT;
	uint32_t mask = 0;

	if (page_is_live(r, c, first))
		mask |= 1u << first;
	if (last != first && page_is_live(r, c, last))
		mask |= 1u << last;
	return mask;
}

/* ---- lists of runs ---- */

static void run_unlist(struct zpool *zp, struct size_class *c, struct run *r)
{
	if (r->list == LIST_NONE)
		return;
	if (r->prev)
		zp->runs[r->prev].next = r->next;
	else
		c->partial[r->list] = r->next;
	if (r->next)
		zp->runs[r->next].prev = r->prev;
	r->next = r->prev = 0;
	r->list = LIST_NONE;
}

/* Puts run on the list where its number of live objects belongs. */
static void run_place(struct zpool *zp, struct size_class *c, uint32_t run)
{
	struct run *r = &zp->runs[run];
	uint8_t list = LIST_NONE;

	if (r->flags & RUN_RELEASING)
		return;
	if (r->nr_live < c->nr_objs)
		list = (uint8_t)(r->nr_live * NR_BUCKETS / c->nr_objs);
	if (list == r->list)
		return;
	run_unlist(zp, c, r);
	if (list == LIST_NONE)
		return;
	r->list = list;
	r->next = c->partial[list];
	if (r->next)
		zp->runs[r->next].prev = run;
	c->partial[list] = run;
}

static uint32_t run_new(struct zpool *zp, unsigned int cls)
{
	uint32_t run;

	us_mutex_lock(&zp->runs_lock);
	run = zp->free_runs;
	if (run) {
		zp->free_runs = zp->runs[run].next;
	} else {
		run = atomic_load_explicit(&zp->nr_runs, memory_order_relaxed) + 1;
		if (run <= zp->max_runs)
			atomic_store_explicit(&zp->nr_runs, run, memory_order_relaxed);
		else
			run = 0;
	}
	if (run) {
		zp->runs[run].next = 0;
		zp->runs[run].list = LIST_NONE;
		zp->runs[run].cls = (uint8_t)cls;
	}
	us_mutex_unlock(&zp->runs_lock);
	return run;
}

/*
 * Takes an empty, untouched run, which is on no list, away from its class. Its bit goes too: with
 * a bit set, release_empty() would look at a run whose class may change under its hands.
 */
static void run_retire(struct zpool *zp, uint32_t run)
{
	struct run *r = &zp->runs[run];

	atomic_fetch_and_explicit(&zp->pending[run / 64], ~(1ull << run % 64),
				  memory_order_relaxed);
	us_mutex_lock(&zp->runs_lock);
	r->list = LIST_FREE;
	r->next = zp->free_runs;
	zp->free_runs = run;
	us_mutex_unlock(&zp->runs_lock);
}

static uint32_t run_partial(const struct size_class *c)
{
	for (int b = NR_BUCKETS - 1; b >= 0; b--)
		if (c->partial[b])
			return c->partial[b];
	return 0;
}

/* A place in a run that has one: the first on touched pages, else the first. */
static unsigned int obj_pick(const struct run *r, const struct size_class *c)
{
	uint32_t all = page_mask(0, c->nr_pages - 1u);
	unsigned int first = MAX_OBJS;
	/* A run that fills from its start has no better place than the first. */
	bool any = (r->touched & all) == all || !(r->touched & (r->touched + 1));

	for (unsigned int w = 0; w < ARRAY_SIZE(r->live_map); w++) {
		for (uint64_t m = ~r->live_map[w]; m; m &= m - 1) {
			unsigned int o = w * 64 + (unsigned int)__builtin_ctzll(m);

			if (o >= c->nr_objs)
				return first;
			if (any || !(obj_pages(c, o) & ~r->touched))
				return o;
			first = MIN(first, o);
		}
	}
	return first;
}

/* ---- giving pages back ---- */

static void run_pend(struct zpool *zp, uint32_t run)
{
	atomic_fetch_or_explicit(&zp->pending[run / 64], 1ull << run % 64, memory_order_release);
	atomic_fetch_or_explicit(&zp->pending_words[run / 4096], 1ull << run / 64 % 64,
				 memory_order_release);
}

static void discard_pages(char *addr, uint32_t pages)
{
	while (pages) {
		unsigned int first = (unsigned int)__builtin_ctz(pages);
		uint32_t ones = ~(pages >> first);
		unsigned int n = ones ? (unsigned int)__builtin_ctz(ones) : RUN_PAGES;

		mem_discard(addr + first * PAGE_SIZE, n * PAGE_SIZE);
		pages &= ~page_mask(first, first + n - 1);
	}
}

/*
 * The run keeps its class: only this function takes a run away from one, and release_lock is held.
 * Objects may be freed while the class's lock is dropped, but none is put into the run.
 */
static void run_release(struct zpool *zp, uint32_t run)
{
	struct run *r = &zp->runs[run];
	struct size_class *c = &zp->classes[r->cls];
	uint32_t pages;

	us_mutex_lock(&c->lock);
	pages = r->touched & ~live_pages(r, c);
	if (!pages) {
		us_mutex_unlock(&c->lock);
		return;
	}
	run_unlist(zp, c, r);
	r->flags |= RUN_RELEASING;
	us_mutex_unlock(&c->lock);

	discard_pages(run_addr(zp, run), pages);

	us_mutex_lock(&c->lock);
	r->flags &= (uint8_t)~RUN_RELEASING;
	r->touched &= ~pages;
	count(&zp->touched_pages, -popcount(pages));
	count(&zp->empty_pages, -popcount(pages));
	/* What was freed meanwhile has set the run's bit again. */
	if (r->touched)
		run_place(zp, c, run);
	else
		run_retire(zp, run);
	us_mutex_unlock(&c->lock);
}

/* Called without locks. One thread does it for all; the others go on. */
static void release_empty(struct zpool *zp)
{
	uint32_t last = atomic_load_explicit(&zp->nr_runs, memory_order_relaxed) / 4096;

	if (!us_mutex_trylock(&zp->release_lock))
		return;
	for (uint32_t s = 0; s <= last; s++) {
		uint64_t words = atomic_exchange_explicit(&zp->pending_words[s], 0,
							  memory_order_acquire);

		for (; words; words &= words - 1) {
			uint32_t w = s * 64 + (uint32_t)__builtin_ctzll(words);
			uint64_t runs = atomic_exchange_explicit(&zp->pending[w], 0,
								 memory_order_acquire);

			for (; runs; runs &= runs - 1)
				run_release(zp, w * 64 + (uint32_t)__builtin_ctzll(runs));
		}
	}
	us_mutex_unlock(&zp->release_lock);
}

/* ---- the interface ---- */

static size_t run_table_bytes(uint64_t nr_runs)
{
	return (size_t)align_up((nr_runs + 1) * sizeof(struct run), PAGE_SIZE);
}

static size_t pending_bytes(uint64_t nr_runs)
{
	return (size_t)align_up((nr_runs / 64 + 1) * sizeof(uint64_t), PAGE_SIZE);
}

struct zpool *zpool_create(uint64_t max_bytes)
{
	uint64_t runs = CLAMP(max_bytes / RUN_BYTES, 1u, MAX_RUNS);
	struct zpool *zp = calloc(1, sizeof(*zp));

	if (!zp)
		return NULL;
	us_mutex_init(&zp->release_lock, &release_class);
	us_mutex_init(&zp->runs_lock, &runs_class);
	for (unsigned int i = 0; i < NR_CLASSES; i++)
		class_init(&zp->classes[i], i);
	zp->max_runs = (uint32_t)runs;
	zp->base = mem_reserve((runs + 1) * RUN_BYTES);
	zp->runs = mem_reserve(run_table_bytes(runs));
	zp->pending = mem_reserve(pending_bytes(runs));
	zp->pending_words = mem_reserve(pending_bytes(runs / 64));
	if (!zp->base || !zp->runs || !zp->pending || !zp->pending_words) {
		zpool_destroy(zp);
		return NULL;
	}
	return zp;
}

void zpool_destroy(struct zpool *zp)
{
	if (!zp)
		return;
	mem_release(zp->base, ((size_t)zp->max_runs + 1) * RUN_BYTES);
	mem_release(zp->runs, run_table_bytes(zp->max_runs));
	mem_release((void *)zp->pending, pending_bytes(zp->max_runs));
	mem_release((void *)zp->pending_words, pending_bytes(zp->max_runs / 64));
	us_mutex_deinit(&zp->release_lock);
	us_mutex_deinit(&zp->runs_lock);
	for (unsigned int i = 0; i < NR_CLASSES; i++)
		us_mutex_deinit(&zp->classes[i].lock);
	free(zp);
}

static char *trailer_of(struct zpool *zp, uint32_t handle)
{
	char *p = zpool_map(zp, handle);

	return p + zp->classes[zp->runs[handle >> OBJ_BITS].cls].size - TRAILER;
}

/* may_grow: the class may take a new run. */
static uint32_t class_alloc(struct zpool *zp, unsigned int cls, size_t bytes, bool may_grow)
{
	struct size_class *c = &zp->classes[cls];
	uint32_t run, handle, pages, shared;
	unsigned int obj;
	uint16_t unused;
	struct run *r;

	us_mutex_lock(&c->lock);
	run = run_partial(c);
	if (!run && may_grow)
		run = run_new(zp, cls);
	if (!run) {
		us_mutex_unlock(&c->lock);
		return 0;
	}
	r = &zp->runs[run];
	obj = obj_pick(r, c);
	pages = obj_pages(c, obj);
	shared = shared_pages(r, c, obj);
	count(&zp->empty_pages, -popcount(r->touched & pages & ~shared));
	count(&zp->touched_pages, popcount(pages & ~r->touched));
	r->touched |= pages;
	r->live_map[obj / 64] |= 1ull << (obj % 64);
	r->nr_live++;
	run_place(zp, c, run);
	us_mutex_unlock(&c->lock);

	count(&zp->stored_bytes, (int64_t)bytes);
	handle = run << OBJ_BITS | obj;
	unused = (uint16_t)(c->size - TRAILER - bytes);
	memcpy(trailer_of(zp, handle), &unused, TRAILER);
	return handle;
}

uint32_t zpool_alloc(struct zpool *zp, size_t bytes)
{
	unsigned int cls;
	uint32_t handle;

	if (!bytes || bytes > ZPOOL_MAX_OBJ)
		return 0;
	cls = class_of(bytes);
	handle = class_alloc(zp, cls, bytes, true);
	if (!handle && atomic_load_explicit(&zp->empty_pages, memory_order_relaxed)) {
		/* Empty runs of other classes may be waiting for more to go with them. */
		release_empty(zp);
		handle = class_alloc(zp, cls, bytes, true);
	}
	for (unsigned int i = 1; !handle && i <= FALLBACK_CLASSES && cls + i < NR_CLASSES; i++)
		handle = class_alloc(zp, cls + i, bytes, false);
	return handle;
}

void zpool_free(struct zpool *zp, uint32_t handle)
{
	uint32_t run = handle >> OBJ_BITS, emptied;
	unsigned int obj = handle & (MAX_OBJS - 1);
	struct size_class *c;
	struct run *r;

	if (!run || run > atomic_load_explicit(&zp->nr_runs, memory_order_relaxed))
		zpool_broken("free of a handle that never was", handle);
	r = &zp->runs[run];
	c = &zp->classes[r->cls];
	us_mutex_lock(&c->lock);
	if (!obj_is_live(r, obj))
		zpool_broken("free of a handle that is not live", handle);
	count(&zp->stored_bytes, -(int64_t)zpool_size(zp, handle));
	r->live_map[obj / 64] &= ~(1ull << (obj % 64));
	r->nr_live--;
	emptied = obj_pages(c, obj) & ~shared_pages(r, c, obj);
	run_place(zp, c, run);
	if (emptied) {
		count(&zp->empty_pages, popcount(emptied));
		run_pend(zp, run);
	}
	us_mutex_unlock(&c->lock);
	if (emptied && atomic_load_explicit(&zp->empty_pages, memory_order_relaxed) >= RELEASE_PAGES)
		release_empty(zp);
}

void *zpool_map(struct zpool *zp, uint32_t handle)
{
	uint32_t run = handle >> OBJ_BITS;

	return run_addr(zp, run) +
	       (size_t)(handle & (MAX_OBJS - 1)) * zp->classes[zp->runs[run].cls].size;
}

bool zpool_is_sparse(struct zpool *zp, uint32_t handle)
{
	uint32_t run = handle >> OBJ_BITS, best;
	struct run *r = &zp->runs[run];
	struct size_class *c = &zp->classes[r->cls];
	bool sparse = false;

	us_mutex_lock(&c->lock);
	if (r->list < NR_BUCKETS - 1) {
		best = run_partial(c);
		/* Between two that are as full as each other, one has to be the first. */
		sparse = best != run && zp->runs[best].nr_live >= r->nr_live;
	}
	us_mutex_unlock(&c->lock);
	return sparse;
}

size_t zpool_size(struct zpool *zp, uint32_t handle)
{
	uint32_t room = zp->classes[zp->runs[handle >> OBJ_BITS].cls].size - TRAILER;
	uint16_t unused;

	memcpy(&unused, trailer_of(zp, handle), TRAILER);
	/* Overwritten memory must not make a reader leave the object. */
	return unused < room ? room - unused : room;
}

uint64_t zpool_stored_bytes(struct zpool *zp)
{
	return atomic_load_explicit(&zp->stored_bytes, memory_order_relaxed);
}

uint64_t zpool_metadata_bytes(struct zpool *zp)
{
	uint64_t runs = atomic_load_explicit(&zp->nr_runs, memory_order_relaxed);

	return run_table_bytes(runs) + pending_bytes(runs) + pending_bytes(runs / 64) +
	       align_up(sizeof(*zp), PAGE_SIZE);
}

uint64_t zpool_bytes(struct zpool *zp)
{
	uint64_t pages = atomic_load_explicit(&zp->touched_pages, memory_order_relaxed);

	return (pages << PAGE_SHIFT) + zpool_metadata_bytes(zp);
}

int zpool_to_text(struct zpool *zp, char *buf, size_t len)
{
	return snprintf(buf, len, "zpool: %llu bytes stored, %llu touched (%llu empty), %llu tables",
			(unsigned long long)zpool_stored_bytes(zp),
			(unsigned long long)(atomic_load(&zp->touched_pages) << PAGE_SHIFT),
			(unsigned long long)(atomic_load(&zp->empty_pages) << PAGE_SHIFT),
			(unsigned long long)zpool_metadata_bytes(zp));
}
