/* SPDX-License-Identifier: MIT */
/*
 * A batch: look where each folio is; load it (which checks its hash); write it elsewhere; say so in
 * its entry, if it is still where it was; wait until no load is left that saw the old place; free
 * the old place.
 *
 * Why nothing is lost or mixed up:
 *   - The content of a folio never changes while its entry lives, and the caller's reference keeps
 *     it alive. So what was loaded is right, wherever it is found then, and both copies are good
 *     until the old one is freed.
 *   - A load looks up the place and enters the gate under the entry's lock; the place changes under
 *     the same lock. So after gate_drain() every load that saw the old place has read it, and only
 *     then are its slots freed and perhaps given to others. (gate.h)
 *   - Two movers of one folio: the later one finds that the place is not what it saw, and frees
 *     what it wrote.
 *   - The last reference dropped meanwhile is ours: then mover_move() frees the new place itself.
 *   - A copy is on the new device before the entry says so; if writing fails the entry is as before.
 */
#include "swap/move.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "trace/vmstat.h"

LOCK_CLASS(mover_class, "swap_mover", RANK_CACHE - 3);
LOCK_CLASS(mover_done_class, "swap_mover_done", RANK_ENTRY);

int mover_init(struct mover *m, struct swap *s)
{
	int r;

	memset(m, 0, sizeof(*m));
	m->buf = mem_reserve(WRITE_PAGES * PAGE_SIZE);
	if (!m->buf)
		return -ENOMEM;
	r = write_set_init(&m->set);
	if (r) {
		mem_release(m->buf, WRITE_PAGES * PAGE_SIZE);
		return r;
	}
	us_mutex_init(&m->lock, &mover_class);
	us_mutex_init(&m->done_lock, &mover_done_class);
	us_cond_init(&m->done);
	m->swap = s;
	return 0;
}

void mover_deinit(struct mover *m)
{
	if (!m->swap)
		return;
	write_set_deinit(&m->set);
	mem_release(m->buf, WRITE_PAGES * PAGE_SIZE);
	us_mutex_deinit(&m->lock);
	us_mutex_deinit(&m->done_lock);
	us_cond_deinit(&m->done);
	m->swap = NULL;
}

/* ---- reading ---- */

/* split_gate is held, so the pieces are there even if somebody moves the folio meanwhile. */
static bool has_piece_on(struct swap *s, swp_t first, unsigned int dev)
{
	for (; first; first = entry_of(&s->table, first)->chain)
		if (entry_of(&s->table, first)->dev == dev)
			return true;
	return false;
}

/* Where e is. False: it has nothing on the device. */
static bool look(struct swap *s, struct move_item *it, unsigned int from)
{
	struct entry *p = entry_of(&s->table, it->entry);
	unsigned int phase = 0;
	bool there;

	entry_lock(&s->table, it->entry);
	it->kind = p->kind;
	it->dev = p->dev;
	it->slot = p->slot;
	it->order = p->order;
	if (it->kind == ENTRY_SPLIT)
		phase = gate_enter(&s->split_gate);
	entry_unlock(&s->table, it->entry);
	it->new_kind = ENTRY_FREE;
	it->freeing = false;
	if (it->kind == ENTRY_SPLIT) {
		there = has_piece_on(s, it->slot, from);
		gate_leave(&s->split_gate, phase);
		return there;
	}
	return it->kind == ENTRY_DEVICE && it->dev == from;
}

static void load_done(struct swap_load *l)
{
	struct mover *m = container_of(l, struct move_item, load)->m;

	us_mutex_lock(&m->done_lock);
	if (--m->pending == 0)
		us_cond_signal(&m->done);
	us_mutex_unlock(&m->done_lock);
}

static void load_all(struct mover *m, unsigned int n)
{
	char *buf = m->buf;

	us_mutex_lock(&m->done_lock);
	m->pending = n;
	us_mutex_unlock(&m->done_lock);
	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];

		it->load = (struct swap_load){.entry = it->entry, .buf = buf, .done = load_done,
					      .moving = true};
		buf += PAGE_SIZE << it->order;
		swap_load(m->swap, &it->load);
	}
	us_mutex_lock(&m->done_lock);
	while (m->pending)
		us_cond_wait(&m->done, &m->done_lock);
	us_mutex_unlock(&m->done_lock);
}

/* ---- writing ---- */

static void write_all(struct mover *m, const struct move_request *req, unsigned int n)
{
	uint32_t all = UINT32_MAX, barred;
	struct swap *s = m->swap;
	unsigned int nr = 0;

	barred = req->to == MOVE_ANYWHERE ? 1u << req->from : all & ~(1u << req->to);
	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];

		if (it->load.result)
			continue;
		m->ios[nr++] = (struct write_io){.swap = s,
						 .entry = i, /* of m->items */
						 .mem = it->load.buf,
						 .order = it->order,
						 .tried = barred,
						 .tried_last = barred,
						 .barred = barred,
						 .moving = true};
	}
	write_ios(s, &m->set, m->ios, nr);
	for (unsigned int k = 0; k < nr; k++) {
		struct write_io *wio = &m->ios[k];
		struct move_item *it = &m->items[wio->entry];

		if (wio->state == WRITE_STORED) {
			it->new_kind = ENTRY_DEVICE;
			it->new_dev = wio->dev;
			it->new_slot = wio->slot;
		} else if (req->pieces && wio->order && wio->no_run) {
			it->new_slot = split_write(s, &m->set, wio);
			if (it->new_slot)
				it->new_kind = ENTRY_SPLIT;
		}
	}
}

/* ---- changing over ---- */

/* The entry names the new place from here on. False: somebody else moved it first. */
static bool change_over(struct swap *s, struct move_item *it)
{
	struct entry *p = entry_of(&s->table, it->entry);
	bool same;

	entry_lock(&s->table, it->entry);
	same = p->kind == it->kind && p->slot == it->slot &&
	       (p->kind != ENTRY_DEVICE || p->dev == it->dev);
#ifdef USWAP_MUTANT_MOVE_NO_RECHECK
	same = true;
#endif
	if (same) {
		p->kind = it->new_kind & 7u;
		p->dev = it->new_dev & 31u;
		p->slot = it->new_slot;
		/* Before anybody can move it on: he would free slots that we name its owner later. */
		if (it->new_kind == ENTRY_SPLIT)
			split_set_owner(s, it->new_slot, it->entry);
		else
			clusters_set_owner(&s->devs[it->new_dev].clusters, it->new_slot, it->order,
					   it->entry);
	}
	entry_unlock(&s->table, it->entry);
	if (!same)
		free_place(s, it->new_kind, it->new_dev, it->new_slot, it->order);
	return same;
}

/* What cannot be read is given up: each use of it gets the error, nothing else does. */
static bool lose(struct swap *s, struct move_item *it)
{
	struct entry *p = entry_of(&s->table, it->entry);
	bool same;

	dedup_remove(&s->dedup, it->entry);
	entry_lock(&s->table, it->entry);
	same = p->kind == it->kind && p->slot == it->slot &&
	       (p->kind != ENTRY_DEVICE || p->dev == it->dev);
	if (same) {
		p->kind = ENTRY_LOST;
		p->slot = 0;
	}
	entry_unlock(&s->table, it->entry);
	if (same)
		atomic_fetch_sub(&s->swapped_pages, 1u << it->order);
	return same;
}

static void settle(struct mover *m, const struct move_request *req, unsigned int n,
		   struct move_result *res)
{
	struct swap *s = m->swap;

	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];

		if (it->load.result) {
			it->freeing = req->lose_unreadable && lose(s, it);
			res->unreadable++;
		} else if (it->new_kind == ENTRY_FREE) {
			res->no_room++;
		} else if (change_over(s, it)) {
			it->freeing = true;
			res->moved++;
			res->moved_pages += 1u << it->order;
		} else {
			res->gone++;
		}
	}
}

static void free_old_places(struct mover *m, unsigned int from, unsigned int n)
{
	struct swap *s = m->swap;
	bool device = false, split = false;

	for (unsigned int i = 0; i < n; i++) {
		device |= m->items[i].freeing && m->items[i].kind == ENTRY_DEVICE;
		split |= m->items[i].freeing && m->items[i].kind == ENTRY_SPLIT;
	}
#ifdef USWAP_MUTANT_MOVE_NO_DRAIN
	device = false;
#endif
	if (device)
		gate_drain(&s->devs[from].gate);
	if (split)
		gate_drain(&s->split_gate);
	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];

		if (it->freeing)
			free_place(s, it->kind, it->dev, it->slot, it->order);
	}
}

void mover_move(struct mover *m, const struct move_request *req, const swp_t *e, unsigned int n,
		struct move_result *res)
{
	struct swap *s = m->swap;
	unsigned int nr = 0;

	us_mutex_lock(&m->lock);
	for (unsigned int i = 0; i < n; i++) {
		m->items[nr].entry = e[i];
		m->items[nr].m = m;
		if (look(s, &m->items[nr], req->from))
			nr++;
		else
			res->gone++;
	}
	load_all(m, nr);
	write_all(m, req, nr);
	settle(m, req, nr, res);
	free_old_places(m, req->from, nr);
	us_mutex_unlock(&m->lock);
	for (unsigned int i = 0; i < n; i++)
		swap_put(s, e[i], 1);
}
