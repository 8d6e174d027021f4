/* SPDX-License-Identifier: MIT */
/*
 * Slots for a folio: on which device is the queue's to say (queue.h); here is what a device does to
 * have some, and what becomes of a folio that no open device takes.
 *
 * Why no slot is given out on a device that is being emptied: a walk of the queue is waited for by
 * queue_off(), which comes before clusters_disable() (swapoff.c). Whoever takes slots without a walk
 * is in devs_gate since before he found the device ON, or holds content there and is in its gate:
 * swap_off() changes the state, disables the clusters, then drains.
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

/* The gate: the device is there until we have looked at it, as it was open when we were in. */
bool swap_first_in_memory(struct swap *s)
{
	unsigned int phase = gate_enter(&s->devs_gate);
	int first = queue_first(s->queue, &(struct queue_req){0});
	bool in_memory = first >= 0 && dev_in_memory(s->devs[first].dev);

	gate_leave(&s->devs_gate, phase);
	return in_memory;
}

static unsigned int number_of(const struct swap_dev *sd)
{
	return (unsigned int)(sd - sd->swap->devs);
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
	atomic_store(&sd->grown_out_ns, grown > now ? 0 : clock_now_ns());
	if (grown > now)
		queue_retry(sd->swap->queue, number_of(sd));
	return grown > now;
}

uint32_t swap_dev_max_slots(struct swap_dev *sd)
{
	struct dev *d = sd->dev;

	if (!d->ops->grow || atomic_load(&sd->grown_out_ns) || atomic_load(&sd->full_since_ns))
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
	unsigned int dev = number_of(sd);
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

void swap_dev_unalloc(struct swap_dev *sd, uint32_t slot, unsigned int order)
{
	clusters_free(&sd->clusters, slot, order);
	queue_unused(sd->swap->queue, number_of(sd));
}

/*
 * Runs that are held ready first: one that is dropped meanwhile is free by the second look, or its
 * owner tells the queue after it. What a window keeps counts as free.
 */
bool swap_dev_is_full(struct swap_dev *sd)
{
	uint32_t ready = relocate_ready_slots(sd), used, peak, usable;
	struct dev *d = sd->dev;

	if (d->ops->grow && atomic_load(&d->nr_slots) < d->max_slots &&
	    !atomic_load(&sd->grown_out_ns))
		return false;
	clusters_usage(&sd->clusters, &used, &peak, &usable);
	return used >= usable + ready;
}

void swap_dev_write_failed(struct swap_dev *sd, int err)
{
	switch (err) {
	case -ENOSPC:
		atomic_store(&sd->full_since_ns, clock_now_ns());
		queue_close(sd->swap->queue, number_of(sd), QUEUE_NOSPC);
		if (!atomic_exchange(&sd->full_logged, true))
			log_warn("%s: no space left", sd->dev->name);
		break;
	case -EIO:
		if (atomic_fetch_add(&sd->write_errors, 1) + 1 == MAX_WRITE_ERRORS) {
			atomic_store(&sd->failed, true);
			queue_close(sd->swap->queue, number_of(sd), QUEUE_FAILED);
			log_error("%s: %d writes failed; nothing more is written to it",
				  sd->dev->name, MAX_WRITE_ERRORS);
		}
		break;
	default: /* -E2BIG, -ENOMEM: about this folio, not about the device */
		break;
	}
}

/* ---- what time changes ---- */

static void look_again(struct swap *s, unsigned int n, unsigned int closed)
{
	struct swap_dev *sd = &s->devs[n];
	uint64_t now = clock_now_ns(), since = atomic_load(&sd->full_since_ns),
		 grown_out = atomic_load(&sd->grown_out_ns);

	/* 0: freed since, by one who did not see yet that it was closed. */
	if (closed & QUEUE_NOSPC && (!since || now - since > FULL_RETRY_NS)) {
		atomic_store(&sd->full_since_ns, 0);
		queue_retry(s->queue, n);
	} else if (closed & QUEUE_FULL && grown_out && now - grown_out > FULL_RETRY_NS) {
		atomic_store(&sd->grown_out_ns, 0);
		queue_retry(s->queue, n);
	} else if (closed & QUEUE_FULL) {
		worker_device_full(s, sd);
	}
}

void swap_devs_look_again(struct swap *s)
{
	unsigned int phase = gate_enter(&s->devs_gate), closed;

	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++) {
		closed = queue_closed(s->queue, i);
		if (unlikely(closed) && atomic_load(&s->devs[i].state) == DEV_ON)
			look_again(s, i, closed);
	}
	gate_leave(&s->devs_gate, phase);
}
