/* SPDX-License-Identifier: MIT */
/*
 * Which device a folio goes to: higher priority first; devices of equal priority take turns of
 * one cluster's worth of pages, so that neighbours in time are neighbours on a device.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/internal.h"
#include "swap/relocate.h"
#include "swap/worker.h"

bool swap_dev_usable(struct swap_dev *sd)
{
	uint64_t since = atomic_load_explicit(&sd->full_since_ns, memory_order_relaxed);

	if (atomic_load_explicit(&sd->failed, memory_order_relaxed))
		return false;
	return !since || clock_now_ns() - since > FULL_RETRY_NS;
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
	nr = atomic_load(&s->nr_devs);
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
	uint8_t walk[MAX_DEVS];
	unsigned int n = swap_dev_walk(s, walk);

	for (unsigned int i = 0; i < n; i++)
		if (swap_dev_usable(&s->devs[walk[i]]))
			return dev_in_memory(s->devs[walk[i]].dev);
	return false;
}

void swap_dev_charge(struct swap *s, unsigned int dev, uint32_t nr_pages)
{
	unsigned int nr;

	us_mutex_lock(&s->devs_lock);
	nr = atomic_load(&s->nr_devs);
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
