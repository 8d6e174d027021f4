/* SPDX-License-Identifier: MIT */
#include "swap/cache.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

LOCK_CLASS(cache_class, "swap_cache", RANK_CACHE);

/* Buffers given back in one go; runs of neighbours share a system call. */
#define DROP_BATCH 256u

static uint64_t order_bytes(unsigned int order)
{
	return (uint64_t)PAGE_SIZE << order;
}

/* ---- lists of buffers, by id ---- */

static void list_push_tail(struct cache *c, struct buf_list *l, uint32_t id)
{
	struct buf *b = &c->bufs[id];

	b->prev = l->tail;
	b->next = 0;
	if (l->tail)
		c->bufs[l->tail].next = id;
	else
		l->head = id;
	l->tail = id;
}

static void list_remove(struct cache *c, struct buf_list *l, uint32_t id)
{
	struct buf *b = &c->bufs[id];

	if (b->prev)
		c->bufs[b->prev].next = b->next;
	else
		l->head = b->next;
	if (b->next)
		c->bufs[b->next].prev = b->prev;
	else
		l->tail = b->prev;
	b->next = b->prev = 0;
}

/* ---- set-up ---- */

int cache_init(struct cache *c, uint64_t cap_bytes)
{
	uint64_t ids = 1, words = 0, w = 0;

	memset(c, 0, sizeof(*c));
	c->cap_bytes = align_down(cap_bytes, PAGE_SIZE);
	c->warm_cap_bytes = MIN(c->cap_bytes / 4, MIB(2));
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct buf_region *r = &c->regions[o];

		r->first_id = (uint32_t)ids;
		r->nr = (uint32_t)(c->cap_bytes / order_bytes(o));
		ids += r->nr;
		words += (r->nr + 63) / 64;
		if (ids > UINT32_MAX / 2)
			return -EINVAL;
	}
	c->bufs_bytes = ids * sizeof(struct buf);
	c->cold_bits_bytes = words * sizeof(uint64_t);
	c->bufs = mem_reserve(c->bufs_bytes);
	c->home = mem_reserve(ids);
	c->cold_bits = mem_reserve(c->cold_bits_bytes);
	us_mutex_init(&c->lock, &cache_class);
	if (!c->bufs || !c->home || !c->cold_bits)
		return -ENOMEM;
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct buf_region *r = &c->regions[o];

		r->mem = mem_reserve(r->nr * order_bytes(o));
		if (!r->mem)
			return -ENOMEM;
		r->cold = c->cold_bits + w;
		w += (r->nr + 63) / 64;
	}
	return 0;
}

void cache_deinit(struct cache *c)
{
	for (unsigned int o = 0; o <= MAX_ORDER; o++)
		mem_release(c->regions[o].mem, c->regions[o].nr * order_bytes(o));
	mem_release(c->bufs, c->bufs_bytes);
	mem_release(c->home, c->bufs_bytes / sizeof(struct buf));
	mem_release(c->cold_bits, c->cold_bits_bytes);
	if (c->lock.cls)
		us_mutex_deinit(&c->lock);
	memset(c, 0, sizeof(*c));
}

void *cache_mem(struct cache *c, uint32_t id, unsigned int order)
{
	const struct buf_region *r = &c->regions[order];

	return r->mem + (uint64_t)(id - r->first_id) * order_bytes(order);
}

/* ---- giving memory back ---- */

struct drop_batch {
	uint32_t ids[DROP_BATCH];
	unsigned int nr, order;
};

/* The order whose warm buffers hold most. */
static unsigned int warmest_order(const struct cache *c)
{
	unsigned int best = 0;

	for (unsigned int o = 1; o <= MAX_ORDER; o++)
		if (c->regions[o].warm_bytes > c->regions[best].warm_bytes)
			best = o;
	return best;
}

/* Under the lock: takes the longest unused warm buffers of one order until warm_bytes <= keep. */
static void drop_begin(struct cache *c, struct drop_batch *d, uint64_t keep)
{
	struct buf_region *r;

	d->nr = 0;
	d->order = warmest_order(c);
	r = &c->regions[d->order];
	while (c->warm_bytes > keep && r->warm.head && d->nr < DROP_BATCH) {
		uint32_t id = r->warm.head;

		list_remove(c, &r->warm, id);
		r->warm_bytes -= order_bytes(d->order);
		c->warm_bytes -= order_bytes(d->order);
		c->bufs[id].state = BUF_DROPPING;
		d->ids[d->nr++] = id;
	}
}

static void sort_ids(uint32_t *ids, unsigned int nr)
{
	/* Shell sort: the ids are few and mostly in order already. */
	for (unsigned int gap = 64; gap; gap /= 4)
		for (unsigned int i = gap; i < nr; i++) {
			uint32_t v = ids[i];
			unsigned int j = i;

			for (; j >= gap && ids[j - gap] > v; j -= gap)
				ids[j] = ids[j - gap];
			ids[j] = v;
		}
}

/* Without the lock: nobody else touches a dropping buffer. */
static void drop_memory(struct cache *c, struct drop_batch *d)
{
	unsigned int run;

	sort_ids(d->ids, d->nr);
	for (unsigned int i = 0; i < d->nr; i += run) {
		run = 1;
		while (i + run < d->nr && d->ids[i + run] == d->ids[i] + run)
			run++;
		mem_discard(cache_mem(c, d->ids[i], d->order), run * order_bytes(d->order));
	}
}

static void drop_end(struct cache *c, struct drop_batch *d)
{
	struct buf_region *r = &c->regions[d->order];

	for (unsigned int i = 0; i < d->nr; i++) {
		uint32_t k = d->ids[i] - r->first_id;

		c->bufs[d->ids[i]].state = BUF_COLD;
		r->cold[k / 64] &= ~(1ull << (k % 64));
		r->cold_hint = MIN(r->cold_hint, k / 64);
	}
	c->held_bytes -= d->nr * order_bytes(d->order);
}

/* Called and returns with the lock held, dropping it in between; false: nothing was warm. */
static bool drop_some(struct cache *c, uint64_t keep)
{
	struct drop_batch d;

	drop_begin(c, &d, keep);
	if (!d.nr)
		return false;
	us_mutex_unlock(&c->lock);
	drop_memory(c, &d);
	us_mutex_lock(&c->lock);
	drop_end(c, &d);
	return true;
}

/* ---- buffers ---- */

static uint32_t take_cold(struct cache *c, unsigned int order)
{
	struct buf_region *r = &c->regions[order];
	uint32_t words = (r->nr + 63) / 64;

	for (uint32_t w = r->cold_hint; w < words; w++) {
		uint64_t cold = ~r->cold[w];
		uint32_t k;

		if (!cold)
			continue;
		r->cold_hint = w;
		k = w * 64 + (uint32_t)__builtin_ctzll(cold);
		if (k >= r->nr)
			return 0;
		r->cold[w] |= 1ull << (k % 64);
		c->touched_ids[order] = MAX(c->touched_ids[order], k + 1);
		return r->first_id + k;
	}
	return 0;
}

uint32_t cache_alloc(struct cache *c, unsigned int order)
{
	struct buf_region *r = &c->regions[order];
	uint64_t bytes = order_bytes(order);
	uint32_t id = 0;

	us_mutex_lock(&c->lock);
	for (;;) {
		if (r->warm.tail) {
			id = r->warm.tail;
			list_remove(c, &r->warm, id);
			r->warm_bytes -= bytes;
			c->warm_bytes -= bytes;
			break;
		}
		if (c->held_bytes + bytes <= c->cap_bytes) {
			id = take_cold(c, order);
			if (id)
				c->held_bytes += bytes;
			break;
		}
		/* Memory that is warm for other orders makes room, if there is enough of it. */
		if (c->held_bytes - c->warm_bytes + bytes > c->cap_bytes)
			break;
		if (!drop_some(c, c->warm_bytes - MIN(c->warm_bytes, bytes)))
			break;
	}
	if (id)
		c->bufs[id] = (struct buf){.state = BUF_BUSY};
	c->home[id] = 0;
	us_mutex_unlock(&c->lock);
	return id;
}

void cache_free(struct cache *c, uint32_t id, unsigned int order)
{
	struct buf_region *r = &c->regions[order];
	struct buf *b = &c->bufs[id];

	if (unlikely(order > MAX_ORDER))
		swap_bug("buffer %u of order %u", id, order);
	us_mutex_lock(&c->lock);
	if (b->state == BUF_QUEUED) {
		list_remove(c, &c->queue, id);
		c->nr_queued--;
	} else if (b->state != BUF_BUSY) {
		swap_bug("buffer %u is freed in state %u", id, b->state);
	}
	b->state = BUF_WARM;
	b->entry = 0;
	list_push_tail(c, &r->warm, id);
	r->warm_bytes += order_bytes(order);
	c->warm_bytes += order_bytes(order);
	if (c->warm_bytes > c->warm_cap_bytes) {
		while (c->warm_bytes > c->warm_cap_bytes / 2)
			if (!drop_some(c, c->warm_cap_bytes / 2))
				break;
	}
	us_mutex_unlock(&c->lock);
}

/* ---- the queue ---- */

void cache_queue(struct cache *c, uint32_t id, swp_t e)
{
	us_mutex_lock(&c->lock);
	c->bufs[id].state = BUF_QUEUED;
	c->bufs[id].entry = e;
	list_push_tail(c, &c->queue, id);
	c->nr_queued++;
	us_mutex_unlock(&c->lock);
}

/* Clears and returns the mark that a load left. */
static bool test_and_clear_referenced(struct cache *c, struct entry_table *t, uint32_t id, swp_t e)
{
	bool referenced;

	entry_lock(t, e);
	referenced = c->bufs[id].flags & BUF_REFERENCED;
	c->bufs[id].flags &= (uint8_t)~BUF_REFERENCED;
	entry_unlock(t, e);
	return referenced;
}

/*
 * Whoever brought a queued entry's references to 0 is about to take the lock of the cache to free
 * its buffer, and reuses the entry only after that: so reading a queued buffer's entry is safe
 * here, and entry_try_get() tells whether it may be used. No reference is taken that would have to
 * be dropped under the lock.
 */
unsigned int cache_take_oldest(struct cache *c, struct entry_table *t, swp_t *out,
			       unsigned int max, uint64_t max_pages, uint64_t *scan)
{
	unsigned int n = 0;
	uint64_t pages = 0;
	uint32_t next;

	us_mutex_lock(&c->lock);
	for (uint32_t id = c->queue.head; id && n < max && *scan; id = next, (*scan)--) {
		swp_t e = c->bufs[id].entry;
		struct entry *p = entry_of(t, e);

		next = c->bufs[id].next;
		if (n && pages + (1ull << p->order) > max_pages)
			break;
		if (test_and_clear_referenced(c, t, id, e)) {
			list_remove(c, &c->queue, id);
			list_push_tail(c, &c->queue, id);
			continue;
		}
		if (!entry_try_get(p))
			continue;
		list_remove(c, &c->queue, id);
		c->bufs[id].state = BUF_BUSY;
		c->nr_queued--;
		pages += 1ull << p->order;
		out[n++] = e;
	}
	us_mutex_unlock(&c->lock);
	return n;
}

/* ---- figures ---- */

uint64_t cache_nr_queued(struct cache *c)
{
	uint64_t n;

	us_mutex_lock(&c->lock);
	n = c->nr_queued;
	us_mutex_unlock(&c->lock);
	return n;
}

uint64_t cache_held_bytes(struct cache *c)
{
	uint64_t n;

	us_mutex_lock(&c->lock);
	n = c->held_bytes;
	us_mutex_unlock(&c->lock);
	return n;
}

uint64_t cache_metadata_bytes(struct cache *c)
{
	uint64_t n = 0;

	us_mutex_lock(&c->lock);
	for (unsigned int o = 0; o <= MAX_ORDER; o++)
		n += align_up(c->touched_ids[o] * (sizeof(struct buf) + 1), PAGE_SIZE);
	us_mutex_unlock(&c->lock);
	return n + align_up(c->cold_bits_bytes, PAGE_SIZE);
}

static uint64_t check_list(struct cache *c, const struct buf_list *l, enum buf_state state)
{
	uint64_t n = 0;
	uint32_t prev = 0;

	for (uint32_t id = l->head; id; prev = id, id = c->bufs[id].next, n++)
		if (c->bufs[id].state != state || c->bufs[id].prev != prev)
			swap_bug("buffer %u is on a list by mistake", id);
	if (l->tail != prev)
		swap_bug("a list of buffers has the wrong tail");
	return n;
}

void cache_check(struct cache *c, struct entry_table *t, uint64_t busy_bytes)
{
	uint64_t warm = 0;

	us_mutex_lock(&c->lock);
	if (check_list(c, &c->queue, BUF_QUEUED) != c->nr_queued)
		swap_bug("the queue counts %llu folios", (unsigned long long)c->nr_queued);
	for (uint32_t id = c->queue.head; id; id = c->bufs[id].next) {
		struct entry *p = entry_of(t, c->bufs[id].entry);

		if (p->kind != ENTRY_CACHED || p->slot != id || !atomic_load(&p->refs))
			swap_bug("queued buffer %u and entry %u disagree", id, c->bufs[id].entry);
	}
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		struct buf_region *r = &c->regions[o];
		uint64_t bytes = check_list(c, &r->warm, BUF_WARM) * order_bytes(o);

		if (bytes != r->warm_bytes)
			swap_bug("order %u: %llu warm bytes, counts %llu", o,
				 (unsigned long long)bytes, (unsigned long long)r->warm_bytes);
		warm += bytes;
	}
	if (warm != c->warm_bytes || warm > c->warm_cap_bytes || c->held_bytes > c->cap_bytes ||
	    c->held_bytes != busy_bytes + warm)
		swap_bug("cache holds %llu bytes: %llu busy, %llu warm, %llu warm counted",
			 (unsigned long long)c->held_bytes, (unsigned long long)busy_bytes,
			 (unsigned long long)warm, (unsigned long long)c->warm_bytes);
	us_mutex_unlock(&c->lock);
}
