/* SPDX-License-Identifier: MIT */
/*
 * From a folio that is to be written to slots for it, one attempt after the other:
 *   1. a device that is open, in the order of the queue, of those that have not refused it
 *   2. one that is full, where content that nobody needs may be given up for it
 *   3. one that refused it for compressing poorly, with DEV_IO_LAST: it takes it then
 * The flag is given at once where no other device is left. A large folio that finds no run among
 * the devices whose turn it is goes no further: it is to be split (no_run).
 *
 * Why nothing goes where it may not: the tiers that are denied to the folio's class, and devices
 * that are barred, are in each request to the queue; 2 asks only what such a request named.
 */
#include <errno.h>

#include "swap/internal.h"

static uint32_t alloc_whole(void *dev, unsigned int order)
{
	return swap_dev_alloc_folio(dev, order);
}

static uint32_t alloc_quick(void *dev, unsigned int order)
{
	return swap_dev_alloc(dev, order);
}

static bool is_full(void *dev)
{
	return swap_dev_is_full(dev);
}

const struct queue_ops swap_queue_ops = {
	.alloc = alloc_whole, .alloc_quick = alloc_quick, .is_full = is_full};

static struct queue_req request(struct swap *s, const struct write_io *wio, uint32_t skip)
{
	const struct swap_class *c = &s->class[wio->class];

	return (struct queue_req){.order = wio->order,
				  .skip = skip,
				  .denied = c->denied,
				  .policy = c->policy,
				  .home = wio->home,
				  .quick = wio->moving || wio->piece};
}

static void placed(struct write_io *wio, unsigned int dev, uint32_t slot, bool last)
{
	wio->dev = dev;
	wio->slot = slot;
	wio->last = last;
	wio->lead = wio;
	wio->state = WRITE_PLACED;
	wio->tried |= 1u << dev;
	if (last)
		wio->tried_last |= 1u << dev;
}

/* Could another device take it if this one refuses? */
static bool others_left(struct swap *s, const struct write_io *wio, unsigned int dev)
{
	struct queue_req req = request(s, wio, wio->tried | 1u << dev);

	return queue_open(s->queue, &req);
}

/* Devices whose bit is set in `skip` are left alone. 0, -ENOENT or -E2BIG. */
static int place_open(struct swap *s, struct write_io *wio, uint32_t skip, bool last)
{
	struct queue_req req = request(s, wio, skip);
	struct queue_got got;
	int err = queue_alloc(s->queue, &req, &got);

	if (!err)
		placed(wio, got.dev, got.slot, last || !others_left(s, wio, got.dev));
	return err;
}

/*
 * The allocator of a full device gives up what only resident pages name, if it comes across some.
 * In the gate since before the device is found ON, as a walk of the queue is not under way.
 */
static bool place_full(struct swap *s, struct write_io *wio, uint32_t skip, bool last)
{
	struct queue_req req = request(s, wio, skip);
	unsigned int phase = gate_enter(&s->devs_gate);
	uint64_t full = queue_full(s->queue, &req);
	uint32_t slot = 0;

	for (uint64_t left = full; left && !slot; left &= left - 1) {
		unsigned int d = (unsigned int)__builtin_ctzll(left);

		if (!swap_dev_usable(&s->devs[d]))
			continue;
		slot = swap_dev_alloc(&s->devs[d], wio->order);
		if (slot)
			placed(wio, d, slot, last || !others_left(s, wio, d));
	}
	gate_leave(&s->devs_gate, phase);
	wio->no_run |= full && !slot;
	return slot;
}

/* 0; -ENOENT; or -E2BIG: it is to be split. */
static int place_among(struct swap *s, struct write_io *wio, uint32_t skip, bool last)
{
	int err = place_open(s, wio, skip, last);

	if (err == -ENOENT && place_full(s, wio, skip, last))
		return 0;
	wio->no_run |= err == -E2BIG;
	return err;
}

/*
 * At other slots of the device where it is. Not by way of the queue: relocation may be at work
 * inside a walk, and walks do not nest. Who relocates keeps the device there (see place.c).
 */
static bool place_at_home(struct swap *s, struct write_io *wio)
{
	struct swap_dev *sd = &s->devs[wio->dev];
	uint32_t slot;

	if (wio->tried_last & 1u << wio->dev || !swap_dev_usable(sd))
		return false;
	slot = swap_dev_alloc(sd, wio->order);
	if (slot)
		placed(wio, wio->dev, slot, true);
	else
		wio->no_run = true;
	return slot;
}

bool swap_place(struct swap *s, struct write_io *wio)
{
	uint32_t again;
	int err;

	if (wio->stays)
		return place_at_home(s, wio);
	err = place_among(s, wio, wio->tried, false);
	again = wio->refused & ~wio->tried_last;
	if (err == -ENOENT && again)
		err = place_among(s, wio, ~again, true);
	return !err;
}
