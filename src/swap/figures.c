/* SPDX-License-Identifier: MIT */
/*
 * What swap holds, for budgets and for people, and whether it is consistent.
 */
#include <stdio.h>
#include <string.h>

#include "swap/internal.h"
#include "swap/relocate.h"
#include "swap/worker.h"

static const char *const kind_names[NR_ENTRY_KINDS] = {
	[ENTRY_FREE] = "FREE",	   [ENTRY_FILLING] = "FILLING", [ENTRY_CACHED] = "CACHED",
	[ENTRY_FILLED] = "FILLED", [ENTRY_DEVICE] = "DEVICE",	[ENTRY_SPLIT] = "SPLIT",
	[ENTRY_LOST] = "LOST",	   [ENTRY_GONE] = "GONE",
};

void swap_usage(struct swap *s, struct swap_usage *u)
{
	unsigned int phase = gate_enter(&s->devs_gate);

	memset(u, 0, sizeof(*u));
	u->cached_bytes = cache_held_bytes(&s->cache);
	u->nr_entries = atomic_load_explicit(&s->table.nr_live, memory_order_relaxed) -
			atomic_load_explicit(&s->nr_pieces, memory_order_relaxed);
	u->swapped_pages = atomic_load_explicit(&s->swapped_pages, memory_order_relaxed);
	u->metadata_bytes = align_up(sizeof(*s), PAGE_SIZE) + entry_table_bytes(&s->table) +
			    dedup_bytes(&s->dedup) + cache_metadata_bytes(&s->cache) +
			    writeout_bytes(&s->writeout) + queue_bytes(s->queue) +
			    mover_bytes(&s->relocate_now->mover) +
			    mover_bytes(&s->relocate_back->mover);
	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++) {
		struct dev *d;

		if (!swap_dev_present(&s->devs[i]))
			continue;
		d = s->devs[i].dev;
		if (dev_in_memory(d) && d->ops->memory_bytes)
			u->pool_bytes += d->ops->memory_bytes(d);
		if (d->ops->metadata_bytes)
			u->metadata_bytes += d->ops->metadata_bytes(d);
		u->metadata_bytes += clusters_bytes(&s->devs[i].clusters);
	}
	gate_leave(&s->devs_gate, phase);
}

uint64_t swap_free_pages(struct swap *s)
{
	unsigned int phase = gate_enter(&s->devs_gate);
	uint64_t n = 0;

	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++)
		if (swap_dev_usable(&s->devs[i]))
			n += swap_dev_room(&s->devs[i]);
	gate_leave(&s->devs_gate, phase);
	return n;
}

bool swap_order_ok(struct swap *s, unsigned int order)
{
	unsigned int phase = gate_enter(&s->devs_gate);
	bool ok = false;

	for (uint32_t i = 0; i < atomic_load(&s->nr_devs) && !ok; i++) {
		struct swap_dev *sd = &s->devs[i];

		if (!swap_dev_usable(sd))
			continue;
		ok = clusters_order_ok(&sd->clusters, order) || relocate_likely(sd, order) ||
		     swap_dev_max_slots(sd) - atomic_load(&sd->dev->nr_slots) >= 2u << order;
	}
	gate_leave(&s->devs_gate, phase);
	return ok;
}

unsigned int swap_nr_devs(struct swap *s)
{
	return atomic_load(&s->nr_devs);
}

struct listing {
	struct swap_dev_info *info;
	unsigned int number[MAX_DEVS];
	unsigned int nr;
	int only; /* this device; -1: all */
};

/* Rows come by priority and leave by number. The device stays until this has returned. */
static void describe(void *arg, const struct queue_row *row)
{
	struct listing *l = arg;
	struct swap_dev *sd = row->owner;
	uint32_t used, peak, usable;
	unsigned int at = l->nr;
	int state = atomic_load(&sd->state);

	if (l->only >= 0 && row->dev != (unsigned int)l->only)
		return;
	for (; at && l->number[at - 1] > row->dev; at--) {
		l->info[at] = l->info[at - 1];
		l->number[at] = l->number[at - 1];
	}
	l->nr++;
	l->number[at] = row->dev;
	clusters_usage(&sd->clusters, &used, &peak, &usable);
	used -= MIN(used, relocate_ready_slots(sd));
	l->info[at] = (struct swap_dev_info){
		.type = sd->dev->ops->type,
		.in_memory = dev_in_memory(sd->dev),
		.draining = state == DEV_DRAINING || state == DEV_LEAVING,
		.prio = row->prio,
		.tier = row->tier_name,
		.weight = row->weight,
		.size_bytes = (uint64_t)usable << PAGE_SHIFT,
		.used_bytes = (uint64_t)used << PAGE_SHIFT,
		.peak_bytes = (uint64_t)peak << PAGE_SHIFT,
		.full = !swap_dev_usable(sd) || used + 1 >= swap_dev_max_slots(sd),
		.errors = atomic_load(&sd->dev->errors),
		.stored_bytes = atomic_load(&sd->dev->stored_pages) << PAGE_SHIFT,
		.compressed_bytes = atomic_load(&sd->dev->stored_bytes),
	};
	memcpy(l->info[at].name, sd->dev->name, sizeof(l->info[at].name));
}

static unsigned int list(struct swap *s, struct swap_dev_info *info, int only)
{
	struct listing l = {.info = info, .only = only};

	queue_each(s->queue, describe, &l);
	return l.nr;
}

bool swap_dev_info(struct swap *s, unsigned int i, struct swap_dev_info *info)
{
	return i < MAX_DEVS && list(s, info, (int)i);
}

unsigned int swap_list_devs(struct swap *s, struct swap_dev_info *info)
{
	return list(s, info, -1);
}

/* ---- consistency ---- */

struct tally {
	uint64_t pieces; /* named by SPLIT entries */
	uint64_t live, indexed, buf_bytes, swapped_pages;
	uint64_t dev_pages[MAX_DEVS];
};

/* The pages of the pieces are counted with these. */
static void tally_pieces(struct swap *s, swp_t e, struct tally *t)
{
	struct entry *p = entry_of(&s->table, e);
	uint64_t pages = 0;

	for (swp_t n = p->slot; n; n = entry_of(&s->table, n)->chain) {
		struct entry *q = entry_of(&s->table, n);

		if (q->kind != ENTRY_DEVICE || entry_is_indexed(q) || atomic_load(&q->refs) != 1)
			swap_bug("entry %u: piece %u of kind %u", e, n, q->kind);
		pages += 1u << q->order;
		t->pieces++;
	}
	if (pages != 1u << p->order)
		swap_bug("entry %u: its pieces have %llu pages", e, (unsigned long long)pages);
}

static void tally_entry(struct swap *s, swp_t e, struct tally *t)
{
	struct entry *p = entry_of(&s->table, e);
	struct buf *b;

	if (!atomic_load(&p->refs)) {
		if (p->kind != ENTRY_FREE)
			swap_bug("entry %u of kind %u has no references", e, p->kind);
		return;
	}
	if (atomic_load(&p->kept) > atomic_load(&p->refs))
		swap_bug("entry %u: %u of %u references are kept", e, atomic_load(&p->kept),
			 atomic_load(&p->refs));
	t->live++;
	t->indexed += entry_is_indexed(p);
	switch (p->kind) {
	case ENTRY_FILLING:
	case ENTRY_CACHED:
		b = &s->cache.bufs[p->slot];
		if (b->pins || b->flags & BUF_ORPHAN)
			swap_bug("buffer %u is pinned although nothing is in flight", p->slot);
		if (b->state != (p->kind == ENTRY_CACHED ? BUF_QUEUED : BUF_BUSY))
			swap_bug("entry %u: buffer %u in state %u", e, p->slot, b->state);
		if (p->kind == ENTRY_CACHED && b->entry != e)
			swap_bug("entry %u: buffer %u belongs to %u", e, p->slot, b->entry);
		t->buf_bytes += PAGE_SIZE << p->order;
		break;
	case ENTRY_DEVICE:
		if (!swap_dev_present(&s->devs[p->dev]) || !p->slot ||
		    p->slot & ((1u << p->order) - 1))
			swap_bug("entry %u: device %u slot %u", e, p->dev, p->slot);
		t->dev_pages[p->dev] += 1u << p->order;
		t->swapped_pages += 1u << p->order;
		break;
	case ENTRY_SPLIT:
		tally_pieces(s, e, t);
		break;
	case ENTRY_FILLED:
		t->swapped_pages += 1u << p->order;
		break;
	case ENTRY_LOST:
		break;
	case ENTRY_GONE:
		if (atomic_load(&p->kept) != atomic_load(&p->refs) || entry_is_indexed(p))
			swap_bug("entry %u: content is gone, %u references, %u kept", e,
				 atomic_load(&p->refs), atomic_load(&p->kept));
		break;
	default:
		swap_bug("entry %u has kind %u", e, p->kind);
	}
}

void swap_check(struct swap *s)
{
	struct tally t = {0};
	uint32_t end;

	worker_settle(s);
	wait_for_loads(s);
	end = atomic_load(&s->table.next_unused);
	for (swp_t e = 1; e < end; e++)
		tally_entry(s, e, &t);
	if (t.live != atomic_load(&s->table.nr_live))
		swap_bug("%llu live entries, %u counted", (unsigned long long)t.live,
			 atomic_load(&s->table.nr_live));
	if (t.pieces != atomic_load(&s->nr_pieces))
		swap_bug("%llu pieces, %u counted", (unsigned long long)t.pieces,
			 atomic_load(&s->nr_pieces));
	if (t.swapped_pages != atomic_load(&s->swapped_pages))
		swap_bug("%llu swapped pages, %llu counted", (unsigned long long)t.swapped_pages,
			 (unsigned long long)atomic_load(&s->swapped_pages));
	dedup_check(&s->dedup);
	if (t.indexed != s->dedup.nr_entries)
		swap_bug("%llu entries say they are indexed, %u are",
			 (unsigned long long)t.indexed, s->dedup.nr_entries);
	cache_check(&s->cache, &s->table, t.buf_bytes);
	queue_check(s->queue);
	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++) {
		uint32_t used, peak, usable;

		if (!swap_dev_present(&s->devs[i]))
			continue;
		clusters_check(&s->devs[i].clusters);
		clusters_usage(&s->devs[i].clusters, &used, &peak, &usable);
		if (used != t.dev_pages[i] + relocate_ready_slots(&s->devs[i]))
			swap_bug("%s: %u slots used, entries have %llu", s->devs[i].dev->name,
				 used, (unsigned long long)t.dev_pages[i]);
	}
}

char *swap_entry_to_text(struct swap *s, swp_t e, char *buf, size_t len)
{
	struct entry copy;
	char where[64] = "";

	if (!e || e >= atomic_load(&s->table.next_unused)) {
		snprintf(buf, len, "entry %u: none", e);
		return buf;
	}
	entry_lock(&s->table, e);
	copy.kind = entry_of(&s->table, e)->kind;
	copy.order = entry_of(&s->table, e)->order;
	copy.dev = entry_of(&s->table, e)->dev;
	copy.slot = entry_of(&s->table, e)->slot;
	if (copy.kind == ENTRY_DEVICE)
		snprintf(where, sizeof(where), "%.63s", s->devs[copy.dev].dev->name);
	entry_unlock(&s->table, e);
	if (copy.kind == ENTRY_DEVICE)
		snprintf(buf, len, "entry %u: DEVICE %s slot %u order %u refs %u", e,
			 where, copy.slot, copy.order,
			 atomic_load(&entry_of(&s->table, e)->refs));
	else
		snprintf(buf, len, "entry %u: %s order %u refs %u", e,
			 copy.kind < NR_ENTRY_KINDS ? kind_names[copy.kind] : "?", copy.order,
			 atomic_load(&entry_of(&s->table, e)->refs));
	return buf;
}
