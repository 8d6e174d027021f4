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
 * want them, then given back in one batch with the lock dropped. While that happens the run is
 * RELEASING: on no list, so nobody puts a new object into a page that is about to be discarded.
 *
 * Placement. Runs with a free place are listed by how full they are, fullest first, so that
 * nearly empty ones get the chance to drain. Within a run a place on touched pages is preferred.
 *
 * Size asked for. The last two bytes of each place hold the unused length, which serves the
 * caller's need for the length of a compressed object as well (zpool_size()).
 *
 * Handle: run << 7 | place. Run 0 does not exist, so a handle is never 0.
 */
#include "zpool/zpool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/mem.h"

#define RUN_PAGES 32u
#define RUN_BYTES (RUN_PAGES * PAGE_SIZE)
#define OBJ_BITS 7
#define MAX_OBJS (1u << OBJ_BITS)
#define MAX_RUNS ((1u << (32 - OBJ_BITS)) - 1)
#define TRAILER 2u

#define MIN_SIZE 32u
#define LINEAR_MAX 256u /* steps of 8 up to here, then 16 steps a doubling */
#define NR_LINEAR ((LINEAR_MAX - MIN_SIZE) / 8 + 1)
#define NR_CLASSES (NR_LINEAR + 8 * 16 + 1)
/* When a class finds no run, the next larger ones are tried: at most twice the size. */
#define FALLBACK_CLASSES 16u

#define NR_BUCKETS 4
enum { LIST_FREE = NR_BUCKETS, LIST_NONE };

#define RUN_PENDING 1u	 /* in zpool.pending */
#define RUN_RELEASING 2u /* its empty pages are being discarded; on no list */

#define MAX_PENDING 64
#define RELEASE_PAGES 64

struct size_class {
	uint32_t size;
	uint16_t nr_objs;
	uint16_t nr_pages;
};

struct run {
	uint64_t live_map[MAX_OBJS / 64];
	uint32_t next, prev; /* 0 = none */
	uint32_t touched;    /* a bit a page */
	uint8_t cls, nr_live, list, flags;
};
_Static_assert(sizeof(struct run) == 32, "the run table is the pool's metadata");

struct zpool {
	char *base; /* of run 0, which has no memory behind it that is used */
	struct run *runs;
	uint32_t max_runs;
	struct size_class classes[NR_CLASSES];
	_Atomic uint64_t touched_pages, stored_bytes; /* changed under lock */
	_Atomic uint32_t nr_runs;		      /* ever used, changed under lock */
	struct us_mutex lock;
	/* protected by lock */
	uint32_t partial[NR_CLASSES][NR_BUCKETS];
	uint32_t free_runs;
	uint64_t empty_pages; /* touched, but no live object overlaps them */
	uint32_t pending[MAX_PENDING];
	unsigned int nr_pending;
};

struct discard {
	uint32_t run, pages;
};

LOCK_CLASS(zpool_class, "zpool", RANK_ZPOOL);

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

static uint32_t page_mask(unsigned int first, unsigned int last)
{
	return (uint32_t)((2ull << last) - (1ull << first));
}

static uint32_t obj_pages(const struct size_class *c, unsigned int obj)
{
	return page_mask((obj * c->size) >> PAGE_SHIFT,
			 ((obj + 1) * c->size - 1) >> PAGE_SHIFT);
}

static char *run_addr(struct zpool *zp, uint32_t run)
{
	return zp->base + (size_t)run * RUN_BYTES;
}

static bool obj_is_live(const struct run *r, unsigned int obj)
{
	return r->live_map[obj / 64] >> (obj % 64) & 1;
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

static uint32_t live_pages(const struct run *r, const struct size_class *c)
{
	uint32_t mask = 0;

	if (!r->nr_live)
		return 0;
	for (unsigned int o = 0; o < c->nr_objs; o++)
		if (obj_is_live(r, o))
			mask |= obj_pages(c, o);
	return mask;
}

/* ---- lists of runs ---- */

static uint32_t *list_head(struct zpool *zp, const struct run *r)
{
	return r->list == LIST_FREE ? &zp->free_runs : &zp->partial[r->cls][r->list];
}

static void run_unlist(struct zpool *zp, uint32_t run)
{
	struct run *r = &zp->runs[run];

	if (r->list == LIST_NONE)
		return;
	if (r->prev)
		zp->runs[r->prev].next = r->next;
	else
		*list_head(zp, r) = r->next;
	if (r->next)
		zp->runs[r->next].prev = r->prev;
	r->next = r->prev = 0;
	r->list = LIST_NONE;
}

/* Puts run on the list where its number of live objects belongs. */
static void run_place(struct zpool *zp, uint32_t run)
{
	struct run *r = &zp->runs[run];
	unsigned int nr_objs = zp->classes[r->cls].nr_objs;
	uint32_t *head;
	uint8_t list;

	if (r->flags & RUN_RELEASING)
		return;
	if (!r->nr_live)
		list = LIST_FREE;
	else if (r->nr_live == nr_objs)
		list = LIST_NONE;
	else
		list = (uint8_t)(r->nr_live * NR_BUCKETS / nr_objs);
	if (list == r->list)
		return;
	run_unlist(zp, run);
	if (list == LIST_NONE)
		return;
	r->list = list;
	head = list_head(zp, r);
	r->next = *head;
	if (r->next)
		zp->runs[r->next].prev = run;
	*head = run;
}

static uint32_t run_new(struct zpool *zp, unsigned int cls)
{
	uint32_t run = zp->free_runs;

	if (run) {
		run_unlist(zp, run);
	} else {
		run = atomic_load_explicit(&zp->nr_runs, memory_order_relaxed) + 1;
		if (run > zp->max_runs)
			return 0;
		atomic_store_explicit(&zp->nr_runs, run, memory_order_relaxed);
		zp->runs[run].list = LIST_NONE;
	}
	zp->runs[run].cls = (uint8_t)cls;
	return run;
}

static uint32_t run_partial(struct zpool *zp, unsigned int cls)
{
	for (int b = NR_BUCKETS - 1; b >= 0; b--)
		if (zp->partial[cls][b])
			return zp->partial[cls][b];
	return 0;
}

static uint32_t run_find(struct zpool *zp, unsigned int cls)
{
	uint32_t run = run_partial(zp, cls);

	if (!run)
		run = run_new(zp, cls);
	for (unsigned int i = 1; !run && i <= FALLBACK_CLASSES && cls + i < NR_CLASSES; i++)
		run = run_partial(zp, cls + i);
	return run;
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
	struct run *r = &zp->runs[run];

	/* With the array full it is found again by its next free, or reused as it is. */
	if (r->flags & RUN_PENDING || zp->nr_pending == MAX_PENDING)
		return;
	r->flags |= RUN_PENDING;
	zp->pending[zp->nr_pending++] = run;
}

static unsigned int release_begin(struct zpool *zp, struct discard *d)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < zp->nr_pending; i++) {
		uint32_t run = zp->pending[i];
		struct run *r = &zp->runs[run];
		uint32_t pages = r->touched & ~live_pages(r, &zp->classes[r->cls]);

		r->flags &= (uint8_t)~RUN_PENDING;
		/* One that is RELEASING is looked at again by release_end() of that thread. */
		if (!pages || r->flags & RUN_RELEASING)
			continue;
		run_unlist(zp, run);
		r->flags |= RUN_RELEASING;
		d[n++] = (struct discard){.run = run, .pages = pages};
	}
	zp->nr_pending = 0;
	return n;
}

static void release_end(struct zpool *zp, const struct discard *d, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct run *r = &zp->runs[d[i].run];
		unsigned int pages = (unsigned int)__builtin_popcount(d[i].pages);

		r->touched &= ~d[i].pages;
		atomic_fetch_sub_explicit(&zp->touched_pages, pages, memory_order_relaxed);
		zp->empty_pages -= pages;
		r->flags &= (uint8_t)~RUN_RELEASING;
		run_place(zp, d[i].run);
		if (r->touched & ~live_pages(r, &zp->classes[r->cls]))
			run_pend(zp, d[i].run);
	}
}

static void discard_pages(struct zpool *zp, const struct discard *d)
{
	uint32_t left = d->pages;

	while (left) {
		unsigned int first = (unsigned int)__builtin_ctz(left);
		uint32_t ones = ~(left >> first);
		unsigned int n = ones ? (unsigned int)__builtin_ctz(ones) : RUN_PAGES;

		mem_discard(run_addr(zp, d->run) + first * PAGE_SIZE, n * PAGE_SIZE);
		left &= ~page_mask(first, first + n - 1);
	}
}

/* Called with the lock held; drops it meanwhile. */
static void release_empty(struct zpool *zp)
{
	struct discard d[MAX_PENDING];
	unsigned int n = release_begin(zp, d);

	us_mutex_unlock(&zp->lock);
	for (unsigned int i = 0; i < n; i++)
		discard_pages(zp, &d[i]);
	us_mutex_lock(&zp->lock);
	release_end(zp, d, n);
}

/* ---- the interface ---- */

struct zpool *zpool_create(uint64_t max_bytes)
{
	uint64_t runs = CLAMP(max_bytes / RUN_BYTES, 1, MAX_RUNS);
	struct zpool *zp = calloc(1, sizeof(*zp));

	if (!zp)
		return NULL;
	zp->max_runs = (uint32_t)runs;
	zp->base = mem_reserve((runs + 1) * RUN_BYTES);
	zp->runs = mem_reserve((runs + 1) * sizeof(struct run));
	if (!zp->base || !zp->runs) {
		zpool_destroy(zp);
		return NULL;
	}
	for (unsigned int i = 0; i < NR_CLASSES; i++)
		class_init(&zp->classes[i], i);
	us_mutex_init(&zp->lock, &zpool_class);
	return zp;
}

void zpool_destroy(struct zpool *zp)
{
	if (!zp)
		return;
	mem_release(zp->base, ((size_t)zp->max_runs + 1) * RUN_BYTES);
	mem_release(zp->runs, ((size_t)zp->max_runs + 1) * sizeof(struct run));
	if (zp->lock.cls)
		us_mutex_deinit(&zp->lock);
	free(zp);
}

static __attribute__((noreturn)) void broken(const char *what, uint32_t value)
{
	fprintf(stderr, "uswap: zpool: %s (%#x)\n", what, value);
	abort();
}

static char *trailer_of(struct zpool *zp, uint32_t handle)
{
	char *p = zpool_map(zp, handle);

	return p + zp->classes[zp->runs[handle >> OBJ_BITS].cls].size - TRAILER;
}

uint32_t zpool_alloc(struct zpool *zp, size_t bytes)
{
	const struct size_class *c;
	uint32_t run, handle, pages, used;
	unsigned int obj;
	uint16_t unused;
	struct run *r;

	if (!bytes || bytes > ZPOOL_MAX_OBJ)
		return 0;
	us_mutex_lock(&zp->lock);
	run = run_find(zp, class_of(bytes));
	if (!run) {
		us_mutex_unlock(&zp->lock);
		return 0;
	}
	r = &zp->runs[run];
	c = &zp->classes[r->cls];
	obj = obj_pick(r, c);
	pages = obj_pages(c, obj);
	used = shared_pages(r, c, obj);
	zp->empty_pages -= (uint64_t)__builtin_popcount(r->touched & pages & ~used);
	atomic_fetch_add_explicit(&zp->touched_pages,
				  (uint64_t)__builtin_popcount(pages & ~r->touched),
				  memory_order_relaxed);
	r->touched |= pages;
	r->live_map[obj / 64] |= 1ull << (obj % 64);
	r->nr_live++;
	run_place(zp, run);
	atomic_fetch_add_explicit(&zp->stored_bytes, bytes, memory_order_relaxed);
	us_mutex_unlock(&zp->lock);

	handle = run << OBJ_BITS | obj;
	unused = (uint16_t)(c->size - TRAILER - bytes);
	memcpy(trailer_of(zp, handle), &unused, TRAILER);
	return handle;
}

void zpool_free(struct zpool *zp, uint32_t handle)
{
	uint32_t run = handle >> OBJ_BITS, emptied;
	unsigned int obj = handle & (MAX_OBJS - 1);
	const struct size_class *c;
	struct run *r;
	size_t bytes;

	if (!run || run > atomic_load_explicit(&zp->nr_runs, memory_order_relaxed))
		broken("free of a handle that never was", handle);
	bytes = zpool_size(zp, handle);
	us_mutex_lock(&zp->lock);
	r = &zp->runs[run];
	c = &zp->classes[r->cls];
	if (!obj_is_live(r, obj))
		broken("free of a handle that is not live", handle);
	r->live_map[obj / 64] &= ~(1ull << (obj % 64));
	r->nr_live--;
	emptied = obj_pages(c, obj) & ~shared_pages(r, c, obj);
	run_place(zp, run);
	if (emptied) {
		zp->empty_pages += (uint64_t)__builtin_popcount(emptied);
		run_pend(zp, run);
	}
	atomic_fetch_sub_explicit(&zp->stored_bytes, bytes, memory_order_relaxed);
	if (zp->nr_pending == MAX_PENDING ||
	    (zp->empty_pages >= RELEASE_PAGES && zp->nr_pending))
		release_empty(zp);
	us_mutex_unlock(&zp->lock);
}

void *zpool_map(struct zpool *zp, uint32_t handle)
{
	uint32_t run = handle >> OBJ_BITS;

	return run_addr(zp, run) +
	       (size_t)(handle & (MAX_OBJS - 1)) * zp->classes[zp->runs[run].cls].size;
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
	uint64_t runs = atomic_load_explicit(&zp->nr_runs, memory_order_relaxed) + 1ull;

	return align_up(runs * sizeof(struct run), PAGE_SIZE) + align_up(sizeof(*zp), PAGE_SIZE);
}

uint64_t zpool_bytes(struct zpool *zp)
{
	uint64_t pages = atomic_load_explicit(&zp->touched_pages, memory_order_relaxed);

	return (pages << PAGE_SHIFT) + zpool_metadata_bytes(zp);
}

/* ---- the walker ---- */

struct tally {
	uint64_t touched, empty, stored, listed;
};

static void check_run(struct zpool *zp, uint32_t run, struct tally *t)
{
	const struct run *r = &zp->runs[run];
	const struct size_class *c = &zp->classes[r->cls];
	uint32_t live = live_pages(r, c);
	unsigned int n = 0;

	for (unsigned int o = 0; o < MAX_OBJS; o++) {
		if (!obj_is_live(r, o))
			continue;
		if (o >= c->nr_objs)
			broken("a live object beyond its run", run);
		n++;
		t->stored += zpool_size(zp, run << OBJ_BITS | o);
	}
	if (n != r->nr_live)
		broken("live objects miscounted in run", run);
	if (live & ~r->touched)
		broken("a live object on untouched pages in run", run);
	t->touched += (uint64_t)__builtin_popcount(r->touched);
	t->empty += (uint64_t)__builtin_popcount(r->touched & ~live);
	if (r->flags & RUN_RELEASING ? r->list != LIST_NONE
				     : (r->list == LIST_NONE) != (n == c->nr_objs))
		broken("on the wrong list: run", run);
	t->listed += r->list != LIST_NONE;
}

static uint64_t check_list(struct zpool *zp, uint32_t head, unsigned int list, unsigned int cls)
{
	uint32_t prev = 0;
	uint64_t n = 0;

	for (uint32_t run = head; run; run = zp->runs[run].next) {
		const struct run *r = &zp->runs[run];

		if (r->list != list || r->prev != prev)
			broken("broken list at run", run);
		if (list == LIST_FREE ? r->nr_live != 0
				      : r->cls != cls || r->nr_live * NR_BUCKETS /
								 zp->classes[cls].nr_objs != list)
			broken("in the wrong bucket: run", run);
		prev = run;
		n++;
	}
	return n;
}

void zpool_check(struct zpool *zp)
{
	uint32_t nr_runs;
	struct tally t = {0};
	uint64_t listed;

	us_mutex_lock(&zp->lock);
	nr_runs = atomic_load(&zp->nr_runs);
	for (uint32_t run = 1; run <= nr_runs; run++)
		check_run(zp, run, &t);
	listed = check_list(zp, zp->free_runs, LIST_FREE, 0);
	for (unsigned int cls = 0; cls < NR_CLASSES; cls++)
		for (unsigned int b = 0; b < NR_BUCKETS; b++)
			listed += check_list(zp, zp->partial[cls][b], b, cls);
	if (listed != t.listed)
		broken("runs lost from their lists", (uint32_t)(t.listed - listed));
	if (t.touched != atomic_load(&zp->touched_pages))
		broken("touched pages miscounted", (uint32_t)t.touched);
	if (t.empty != zp->empty_pages)
		broken("empty pages miscounted", (uint32_t)t.empty);
	if (t.stored != atomic_load(&zp->stored_bytes))
		broken("stored bytes miscounted", (uint32_t)t.stored);
	us_mutex_unlock(&zp->lock);
}

int zpool_to_text(struct zpool *zp, char *buf, size_t len)
{
	uint64_t empty;

	us_mutex_lock(&zp->lock);
	empty = zp->empty_pages;
	us_mutex_unlock(&zp->lock);
	return snprintf(buf, len, "zpool: %llu bytes stored, %llu touched (%llu empty), %llu tables",
			(unsigned long long)zpool_stored_bytes(zp),
			(unsigned long long)(atomic_load(&zp->touched_pages) << PAGE_SHIFT),
			(unsigned long long)(empty << PAGE_SHIFT),
			(unsigned long long)zpool_metadata_bytes(zp));
}
