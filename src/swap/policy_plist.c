/* SPDX-License-Identifier: MIT */
/*
 * The two policies with one list for all, which the ring policies are measured against.
 *
 * The list holds numbers of devices, not positions, because it outlives layouts. A writer brings
 * it up to date before its layout is published, so a reader of the old layout may find a device
 * there that it does not know, which it passes over, or miss one of its own: then its own
 * set decides.
 */
#include <string.h>

#include "swap/queue_internal.h"

static int prio_of(struct queue *q, const struct queue_ring *ring, unsigned int at)
{
	return q->devs[ring->list[at]].prio;
}

/* Puts the number behind all of its priority. */
static void list_insert(struct queue *q, struct queue_ring *ring, uint8_t number)
{
	unsigned int at = ring->nr_list;

	for (; at && prio_of(q, ring, at - 1) < q->devs[number].prio; at--)
		ring->list[at] = ring->list[at - 1];
	ring->list[at] = number;
	ring->nr_list++;
}

static void list_remove(struct queue_ring *ring, unsigned int at)
{
	ring->nr_list--;
	memmove(&ring->list[at], &ring->list[at + 1], ring->nr_list - at);
}

static void plist_sync(struct queue *q, struct queue_ring *ring, const uint8_t *numbers,
		       unsigned int nr)
{
	uint64_t wanted = 0, there = 0;

	us_mutex_lock(&ring->list_lock);
	for (unsigned int i = 0; i < nr; i++)
		wanted |= 1ull << numbers[i];
	for (unsigned int i = ring->nr_list; i--;)
		if (wanted & 1ull << ring->list[i])
			there |= 1ull << ring->list[i];
		else
			list_remove(ring, i);
	for (unsigned int i = 0; i < nr; i++)
		if (!(there & 1ull << numbers[i]))
			list_insert(q, ring, numbers[i]);
	us_mutex_unlock(&ring->list_lock);
}

/* The first of the list that is in `left`; it goes behind its peers. */
static unsigned int take_first(struct queue_walk *w, uint64_t left)
{
	struct queue_ring *ring = w->g->ring;
	unsigned int pos = (unsigned int)__builtin_ctzll(left);

	us_mutex_lock(&ring->list_lock);
	for (unsigned int i = 0; i < ring->nr_list; i++) {
		uint8_t number = ring->list[i];
		unsigned int at = w->l->position[number];

		if (at == NO_POSITION || !(left & 1ull << at))
			continue;
		pos = at;
		list_remove(ring, i);
		list_insert(w->q, ring, number);
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
