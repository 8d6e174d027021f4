/* SPDX-License-Identifier: MIT */
/*
 * The two policies with one list for all, which the ring policies are measured against.
 *
 * The list is Linux's in its shape, since that is what is measured: doubly linked, sorted by
 * priority, its links spread over the devices, a cache line each. Moving a device behind its peers
 * takes it out, goes past all that are left of its priority, and puts it in there. So with eight
 * equal devices whoever holds the lock waits for nine lines, each where another CPU has written or
 * read it, and each known only from the one before.
 *
 * The list holds numbers of devices, not positions, because it outlives layouts. A writer brings
 * it up to date before its layout is published, so a reader of the old layout may find a device
 * there that it does not know, which it passes over, or miss one of its own: then its own
 * set decides.
 */
#include "swap/queue_internal.h"

/* ---- the list; all under list_lock ---- */

static unsigned int next_of(const struct plist *l, unsigned int at)
{
	return atomic_load_explicit(&l->node[at].next, memory_order_relaxed);
}

static unsigned int prev_of(const struct plist *l, unsigned int at)
{
	return atomic_load_explicit(&l->node[at].prev, memory_order_relaxed);
}

static int prio_at(const struct plist *l, unsigned int at)
{
	return atomic_load_explicit(&l->node[at].prio, memory_order_relaxed);
}

static void link_both(struct plist *l, unsigned int before, unsigned int after)
{
	atomic_store_explicit(&l->node[before].next, (uint8_t)after, memory_order_relaxed);
	atomic_store_explicit(&l->node[after].prev, (uint8_t)before, memory_order_relaxed);
}

static void insert_before(struct plist *l, unsigned int at, unsigned int after)
{
	link_both(l, prev_of(l, after), at);
	link_both(l, at, after);
}

static void take_out(struct plist *l, unsigned int at)
{
	link_both(l, prev_of(l, at), next_of(l, at));
}

/* The first at or after `at` that is not of that priority. */
static unsigned int end_of_peers(const struct plist *l, unsigned int at, int prio)
{
	while (at != PLIST_HEAD && prio_at(l, at) == prio)
		at = next_of(l, at);
	return at;
}

static void rotate(struct plist *l, unsigned int at)
{
	unsigned int next = next_of(l, at);
	int prio = prio_at(l, at);

	if (next == PLIST_HEAD || prio_at(l, next) != prio)
		return;
	take_out(l, at);
	insert_before(l, at, end_of_peers(l, next, prio));
}

/* Behind all of its priority. */
static void add(struct plist *l, unsigned int at, int prio)
{
	unsigned int after = next_of(l, PLIST_HEAD);

	while (after != PLIST_HEAD && prio_at(l, after) > prio)
		after = next_of(l, after);
	atomic_store_explicit(&l->node[at].prio, prio, memory_order_relaxed);
	insert_before(l, at, end_of_peers(l, after, prio));
}

/* ---- rings ---- */

void plist_clear(struct queue *q, struct queue_ring *ring)
{
	us_mutex_lock(&ring->list_lock);
	link_both(&q->plists[ring->index], PLIST_HEAD, PLIST_HEAD);
	us_mutex_unlock(&ring->list_lock);
}

static void plist_sync(struct queue *q, struct queue_ring *ring, const uint8_t *numbers,
		       unsigned int nr)
{
	struct plist *l = &q->plists[ring->index];
	uint64_t wanted = 0, there = 0;

	for (unsigned int i = 0; i < nr; i++)
		wanted |= 1ull << numbers[i];
	us_mutex_lock(&ring->list_lock);
	for (unsigned int at = next_of(l, PLIST_HEAD); at != PLIST_HEAD; at = next_of(l, at)) {
		if (wanted & 1ull << at)
			there |= 1ull << at;
		else
			take_out(l, at);
	}
	for (unsigned int i = 0; i < nr; i++)
		if (!(there & 1ull << numbers[i]))
			add(l, numbers[i], q->devs[numbers[i]].prio);
	us_mutex_unlock(&ring->list_lock);
}

/* The first of the list that is in `left`; it goes behind its peers. */
static unsigned int take_first(struct queue_walk *w, uint64_t left)
{
	struct queue_ring *ring = w->g->ring;
	struct plist *l = &w->q->plists[ring->index];
	unsigned int pos = (unsigned int)__builtin_ctzll(left);

	us_mutex_lock(&ring->list_lock);
	for (unsigned int at = next_of(l, PLIST_HEAD); at != PLIST_HEAD; at = next_of(l, at)) {
		unsigned int here = w->l->position[at];

		if (here == NO_POSITION || !(left & 1ull << here))
			continue;
		pos = here;
		rotate(l, at);
		break;
	}
	us_mutex_unlock(&ring->list_lock);
	return pos;
}

/* ---- plist-shared: above the list, each CPU's device and what is left of its cluster ---- */

#define CACHE_SET (1ull << 63)

static unsigned int shared_pick(struct queue_walk *w, uint64_t left)
{
	_Atomic uint64_t *word = queue_word(w->q, w->cpu, w->g->ring);
	uint64_t v = atomic_load_explicit(word, memory_order_relaxed);
	uint32_t pages = (uint32_t)(v >> 8);
	unsigned int pos;

	/* By number, since it must stay that device when positions change. */
	pos = v & CACHE_SET ? w->l->position[v & 0xff] : NO_POSITION;
	if (w->step || pos == NO_POSITION || pages < w->nr_pages || !(left & 1ull << pos)) {
		pos = take_first(w, left);
		pages = QUEUE_QUOTA_PAGES;
	}
	atomic_store_explicit(word,
			      CACHE_SET | (uint64_t)(pages - w->nr_pages) << 8 | w->l->number[pos],
			      memory_order_relaxed);
	return pos;
}

const struct queue_policy_ops policy_plist_shared = {
	.name = "plist-shared", .scope = SCOPE_LIST, .pick = shared_pick, .sync = plist_sync};

/* ---- plist-percpu: with every allocation ---- */

static unsigned int percpu_pick(struct queue_walk *w, uint64_t left)
{
	return take_first(w, left);
}

const struct queue_policy_ops policy_plist_percpu = {
	.name = "plist-percpu", .scope = SCOPE_LIST, .pick = percpu_pick, .sync = plist_sync};
