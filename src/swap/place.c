/* SPDX-License-Identifier: MIT */
/*
 * Which device a folio goes to: higher priority first; devices of equal priority take turns of
 * one cluster's worth of pages, so that neighbours in time are neighbours on a device.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/internal.h"
#include "swap/relocate.h"
#include "swap/worker.h"

/* For memory_room_pages(). */
#define TELLING_PAGES 1024u
#define HOPED_BYTES 256u

bool swap_dev_usable(struct swap_dev *sd)
{
	uint64_t since = atomic_load_explicit(&sd->full_since_ns, memory_order_relaxed);

	if (atomic_load_explicit(&sd->state, memory_order_acquire) != DEV_ON ||
	    atomic_load_explicit(&sd->failed, memory_order_relaxed))
		return false;
	return !since || clock_now_ns() - since > FULL_RETRY_NS;
}

bool swap_dev_present(struct swap_dev *sd)
{
	int state = atomic_load(&sd->state);

	return state == DEV_ON || state == DEV_DRAINING;
}

/* Turns are kept by position, and positions have moved. */
static void reset_turns(struct swap *s)
{
	memset(s->turns, 0, sizeof(s->turns));
}

void swap_dev_enlist(struct swap *s, unsigned int n)
{
	uint32_t at = s->nr_by_prio++;

	for (; at && s->devs[s->by_prio[at - 1]].prio < s->devs[n].prio; at--)
		s->by_prio[at] = s->by_prio[at - 1];
	s->by_prio[at] = (uint8_t)n;
	reset_turns(s);
}

void swap_dev_unlist(struct swap *s, unsigned int n)
{
	uint32_t at = 0;

	while (at < s->nr_by_prio && s->by_prio[at] != n)
		at++;
	if (at == s->nr_by_prio)
		swap_bug("device %u is not on the list", n);
	s->nr_by_prio--;
	memmove(&s->by_prio[at], &s->by_prio[at + 1], s->nr_by_prio - at);
	reset_turns(s);
}

/* How many devices share the priority of the one at position `at`, from there on. */
static unsigned int group_len(struct swap *s, unsigned int at, unsigned int nr)
{
	int prio = s->devs[s->by_prio[at]].prio;
	unsigned int len = 1;

	while (at + len < nr && s->devs[s->by_prio[at + len]].prio == prio)
		len++;
	return len;
}

unsigned int swap_dev_walk(struct swap *s, uint8_t *walk)
{
	unsigned int nr, n = 0;

	us_mutex_lock(&s->devs_lock);
	nr = s->nr_by_prio;
	for (unsigned int at = 0, len; at < nr; at += len) {
		len = group_len(s, at, nr);
		for (unsigned int k = 0; k < len; k++)
			walk[n++] = s->by_prio[at + (s->turns[at].first + k) % len];
	}
	us_mutex_unlock(&s->devs_lock);
	return n;
}

bool swap_first_in_memory(struct swap *s)
{
	unsigned int phase = gate_enter(&s->devs_gate), n;
	uint8_t walk[MAX_DEVS];
	bool in_memory = false;

	n = swap_dev_walk(s, walk);
	for (unsigned int i = 0; i < n; i++)
		if (swap_dev_usable(&s->devs[walk[i]])) {
			in_memory = dev_in_memory(s->devs[walk[i]].dev);
			break;
		}
	gate_leave(&s->devs_gate, phase);
	return in_memory;
}

void swap_dev_charge(struct swap *s, unsigned int dev, uint32_t nr_pages)
{
	unsigned int nr;

	us_mutex_lock(&s->devs_lock);
	nr = s->nr_by_prio;
	for (unsigned int at = 0, len; at < nr; at += len) {
		struct turn *t = &s->turns[at];

		len = group_len(s, at, nr);
		if (s->devs[s->by_prio[at]].prio != s->devs[dev].prio)
			continue;
		t->used_pages += nr_pages;
		if (t->used_pages >= CLUSTER_SLOTS) {
			t->used_pages = 0;
			t->first = (t->first + 1) % len;
		}
		break;
	}
	us_mutex_unlock(&s->devs_lock);
}

static bool grow_dev(struct swap_dev *sd, uint32_t nr_pages)
{
	struct dev *d = sd->dev;
	uint32_t now = atomic_load(&d->nr_slots), grown;

	if (!d->ops->grow || now >= d->max_slots)
		return false;
	/* A run must be aligned, so up to one more run of slots may be needed. */
	grown = d->ops->grow(d, (uint32_t)MIN((uint64_t)now + 2ull * nr_pages, d->max_slots));
	clusters_set_size(&sd->clusters, grown);
	atomic_store(&sd->grown_out, grown <= now);
	return grown > now;
}

uint32_t swap_dev_max_slots(struct swap_dev *sd)
{
	struct dev *d = sd->dev;

	if (!d->ops->grow || atomic_load(&sd->grown_out) || atomic_load(&sd->full_since_ns))
		return atomic_load(&d->nr_slots);
	return d->max_slots;
}

/*
 * Pages for which the device has memory, if new ones compress as those do that it has. While it has
 * too few to tell, the best that can be hoped for: who finds out by trying stops soon.
 */
static uint64_t memory_room_pages(struct dev *d)
{
	uint64_t room = d->ops->memory_room ? d->ops->memory_room(d) : UINT64_MAX;
	uint64_t pages = atomic_load(&d->stored_pages), bytes = atomic_load(&d->stored_bytes);
	uint64_t each = HOPED_BYTES;

	if (room == UINT64_MAX)
		return UINT64_MAX;
	if (pages >= TELLING_PAGES)
		each = MAX(bytes / pages, 1u);
	return room / each;
}

uint64_t swap_dev_room(struct swap_dev *sd)
{
	uint32_t used, peak, usable;
	uint64_t room;

	clusters_usage(&sd->clusters, &used, &peak, &usable);
	used -= MIN(used, relocate_ready_slots(sd));
	usable = MAX(swap_dev_max_slots(sd), 1u) - 1;
	room = usable > used ? usable - used : 0;
	return MIN(room, memory_room_pages(sd->dev));
}

uint32_t swap_dev_alloc(struct swap_dev *sd, unsigned int order)
{
	uint32_t slot = clusters_alloc(&sd->clusters, order);

	while (!slot && grow_dev(sd, 1u << order))
		slot = clusters_alloc(&sd->clusters, order);
	if (!slot)
		worker_device_full(sd->swap, sd);
	if (!slot && !order && relocate_drop_ready(sd))
		slot = clusters_alloc(&sd->clusters, order);
	return slot;
}

uint32_t swap_dev_alloc_folio(struct swap_dev *sd, unsigned int order)
{
	struct swap *s = sd->swap;
	unsigned int dev = (unsigned int)(sd - s->devs);
	uint32_t slot = swap_dev_alloc(sd, order);

	if (slot || !order)
		return slot;
	if (dev_in_memory(sd->dev))
		return relocate_now(s, dev, order);
	/* Asked for even if one is ready, and after it was taken: so that the next one is, too. */
	slot = relocate_take_ready(sd, order);
	relocate_ask(s, dev, order);
	return slot;
}

void swap_dev_write_failed(struct swap_dev *sd, int err)
{
	switch (err) {
	case -ENOSPC:
		atomic_store(&sd->full_since_ns, clock_now_ns());
		if (!atomic_exchange(&sd->full_logged, true))
			log_warn("%s: no space left", sd->dev->name);
		break;
	case -EIO:
		if (atomic_fetch_add(&sd->write_errors, 1) + 1 == MAX_WRITE_ERRORS) {
			atomic_store(&sd->failed, true);
			log_error("%s: %d writes failed; nothing more is written to it",
				  sd->dev->name, MAX_WRITE_ERRORS);
		}
		break;
	default: /* -E2BIG, -ENOMEM: about this folio, not about the device */
		break;
	}
}
