/* SPDX-License-Identifier: MIT */
/*
 * A hand goes round the owners of a device's slots. Those whose content the device calls sparse are
 * moved to other slots of it, so the device stores them anew. It is the mover's work, with its
 * arguments for why nothing is lost (move.c).
 *
 * When: as soon as holes take more than an eighth of what is stored, and a mebibyte. A whole round
 * that moved next to nothing is not repeated before a good part of the content has changed.
 */
#include "swap/compact.h"

#include "swap/relocate.h"
#include "trace/vmstat.h"

#define WASTE_SHARE 8
#define WASTE_BYTES MIB(1)
#define COMPACT_PAGES 512u /* a call */
#define COMPACT_OWNERS 64u
#define COMPACT_ROUNDS 32 /* of so many owners, a call */
/* A round is repeated when a part like this of what is stored was freed. */
#define CHANGE_SHARE 16

static bool is_wasteful(struct swap_dev *sd)
{
	struct dev *d = sd->dev;
	uint64_t stored;

	if (!dev_in_memory(d) || !d->ops->is_sparse || !d->ops->copy_slots || !d->ops->memory_bytes)
		return false;
	stored = atomic_load_explicit(&d->stored_bytes, memory_order_relaxed);
	return d->ops->memory_bytes(d) > stored + stored / WASTE_SHARE + WASTE_BYTES;
}

/* Folios in pieces are left: their owner's slots are found once for each piece. */
static bool is_sparse(struct swap *s, unsigned int dev, swp_t e)
{
	struct swap_dev *sd = &s->devs[dev];
	struct entry *p = entry_of(&s->table, e);
	unsigned int phase = 0;
	uint32_t slot = 0;
	bool sparse;

	entry_lock(&s->table, e);
	if (p->kind == ENTRY_DEVICE && p->dev == dev) {
		slot = p->slot;
		/* As a load: whoever moves it away frees the slots only when we have left. */
		phase = gate_enter(&sd->gate);
	}
	entry_unlock(&s->table, e);
	if (!slot)
		return false;
	sparse = sd->dev->ops->is_sparse(sd->dev, slot, 1u << p->order);
	gate_leave(&sd->gate, phase);
	return sparse;
}

struct found {
	swp_t e[MOVE_FOLIOS];
	unsigned int nr;
	uint32_t pages;
};

/* The hand goes on until enough is found. True: it has come round. */
static bool find(struct swap *s, unsigned int dev, struct found *f)
{
	struct swap_dev *sd = &s->devs[dev];
	uint32_t owner[COMPACT_OWNERS];

	for (int round = 0; round < COMPACT_ROUNDS && f->pages < COMPACT_PAGES &&
			    f->nr + COMPACT_OWNERS <= MOVE_FOLIOS; round++) {
		unsigned int n = clusters_collect(&sd->clusters, &sd->compact.cursor, entry_claim,
						  &s->table, owner, COMPACT_OWNERS);

		if (!n) {
			sd->compact.cursor = 0;
			return true;
		}
		for (unsigned int i = 0; i < n; i++) {
			uint32_t pages = 1u << entry_of(&s->table, owner[i])->order;

			if (f->pages + pages <= WRITE_PAGES && is_sparse(s, dev, owner[i])) {
				f->e[f->nr++] = owner[i];
				f->pages += pages;
			} else {
				swap_put(s, owner[i], 1);
			}
		}
	}
	return false;
}

static void compact_dev(struct swap *s, unsigned int dev)
{
	struct swap_dev *sd = &s->devs[dev];
	struct compact_dev *c = &sd->compact;
	struct move_request req = {.from = dev, .to = dev, .copy = true};
	uint64_t freed = atomic_load_explicit(&sd->freed, memory_order_relaxed);
	struct move_result res = {0};
	struct found f = {.nr = 0};
	bool round;

	if (!is_wasteful(sd) || freed < c->rest_until)
		return;
	round = find(s, dev, &f);
	if (f.nr)
		mover_move(&s->relocate_now->mover, &req, f.e, f.nr, &res);
	/* What only moved is no more room than before. */
	atomic_fetch_sub_explicit(&sd->freed, res.moved_pages, memory_order_relaxed);
	c->moved_pages += res.moved_pages;
	vmstat_add(VMSTAT_swap_compacted, res.moved_pages);
	if (round) {
		uint64_t stored = atomic_load_explicit(&sd->dev->stored_pages, memory_order_relaxed);

		if (c->moved_pages < stored / CHANGE_SHARE)
			c->rest_until = freed + stored / CHANGE_SHARE;
		c->moved_pages = 0;
	}
}

void compact_some(struct swap *s)
{
	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++) {
		/* Not the gate of the device, which the mover drains. */
		unsigned int phase = gate_enter(&s->devs_gate);

		if (atomic_load(&s->devs[i].state) == DEV_ON)
			compact_dev(s, i);
		gate_leave(&s->devs_gate, phase);
	}
}
