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
 *
 * With a window (relocation) two things differ:
 *   - A device that can copy slots does so, without our reading them. Nobody may free the source
 *     meanwhile, so we pass its gate as a load does: from the look under the entry's lock until the
 *     copy is done.
 *   - Of a SPLIT folio a piece moves alone: it keeps its number, and its slot changes in one store.
 *     A load of the folio sees the old or the new slot; either is good until split_gate is drained.
 *     The change happens under the folio's lock, if the folio still has the same pieces and this
 *     one the same slot. That the piece is the same one, with the same content, follows from the
 *     window: none of its slots is given to anybody while it is open, so no other piece can have
 *     come to lie there.
 */
#include "swap/move.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "trace/vmstat.h"

LOCK_CLASS(mover_class, "swap_mover", RANK_CACHE - 4);
LOCK_CLASS(inner_class, "swap_relocate", RANK_CACHE - 2);
LOCK_CLASS(mover_done_class, "swap_mover_done", RANK_ENTRY);

static int init(struct mover *m, struct swap *s, struct lock_class *class)
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
	us_mutex_init(&m->lock, class);
	us_mutex_init(&m->done_lock, &mover_done_class);
	us_cond_init(&m->done);
	m->swap = s;
	return 0;
}

int mover_init(struct mover *m, struct swap *s)
{
	return init(m, s, &mover_class);
}

int mover_init_inner(struct mover *m, struct swap *s)
{
	return init(m, s, &inner_class);
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

uint64_t mover_bytes(struct mover *m)
{
	return (uint64_t)atomic_load_explicit(&m->peak_pages, memory_order_relaxed) * PAGE_SIZE +
	       write_set_bytes(&m->set);
}

void mover_trim(struct mover *m)
{
	us_mutex_lock(&m->lock);
	mem_discard(m->buf, (size_t)atomic_load(&m->peak_pages) * PAGE_SIZE);
	atomic_store(&m->peak_pages, 0);
	write_set_trim(&m->set);
	us_mutex_unlock(&m->lock);
}

/* ---- what there is to move ---- */

static bool in_window(const struct move_request *req, uint32_t slot, unsigned int order)
{
	return slot < req->window_slot + req->window_nr && req->window_slot < slot + (1u << order);
}

/* split_gate is held, so the pieces are there even if somebody moves the folio meanwhile. */
static bool has_piece_on(struct swap *s, swp_t first, unsigned int dev)
{
	for (; first; first = entry_of(&s->table, first)->chain)
		if (entry_of(&s->table, first)->dev == dev)
			return true;
	return false;
}

/*
 * Where e is. False: it has nothing on the device. On the device: in its gate from here on, so that
 * these slots hold e until mover_read() has read them, whoever moves it meanwhile.
 */
static bool look_whole(struct swap *s, struct move_item *it, unsigned int from)
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
	there = it->kind == ENTRY_DEVICE && it->dev == from;
	if (there) {
		it->gate = &s->devs[from].gate;
		it->phase = gate_enter(it->gate);
	}
	entry_unlock(&s->table, it->entry);
	if (it->kind == ENTRY_SPLIT) {
		there = has_piece_on(s, it->slot, from);
		gate_leave(&s->split_gate, phase);
		return there;
	}
	return there;
}

/* The lock of the folio's shard is held, so its pieces stay. Returns items added. */
static unsigned int look_pieces(struct mover *m, const struct move_request *req, unsigned int at,
				bool *too_many)
{
	struct swap *s = m->swap;
	swp_t e = m->items[at].entry, first = entry_of(&s->table, e)->slot;
	unsigned int n = 0;

	for (swp_t k = first; k; k = entry_of(&s->table, k)->chain) {
		const struct entry *q = entry_of(&s->table, k);
		struct move_item *it = &m->items[at + n];

		if (q->dev != req->from || !in_window(req, piece_slot(q), q->order))
			continue;
		*too_many = at + n == MOVE_FOLIOS;
		if (*too_many)
			break;
		*it = (struct move_item){.m = m, .entry = e, .order = q->order,
					 .kind = ENTRY_SPLIT, .dev = q->dev,
					 .slot = piece_slot(q), .piece = k, .first = first,
					 .gate = &s->split_gate};
		it->phase = gate_enter(it->gate);
		n++;
	}
	return n;
}

/* What e has in the window: none, one, or for a folio in pieces several items. */
static unsigned int look_window(struct mover *m, const struct move_request *req, unsigned int at,
				bool *too_many)
{
	struct move_item *it = &m->items[at];
	struct swap *s = m->swap;
	struct entry *p = entry_of(&s->table, it->entry);
	unsigned int n = 0;

	entry_lock(&s->table, it->entry);
	if (p->kind == ENTRY_SPLIT) {
		n = look_pieces(m, req, at, too_many);
	} else if (p->kind == ENTRY_DEVICE && p->dev == req->from &&
		   in_window(req, p->slot, p->order)) {
		it->kind = ENTRY_DEVICE;
		it->dev = p->dev;
		it->slot = p->slot;
		it->order = p->order;
		it->gate = &s->devs[p->dev].gate;
		it->phase = gate_enter(it->gate);
		n = 1;
	}
	entry_unlock(&s->table, it->entry);
	return n;
}

static unsigned int look(struct mover *m, const struct move_request *req, unsigned int at, swp_t e,
			 bool *too_many)
{
	m->items[at] = (struct move_item){.m = m, .entry = e};
	if (req->window_nr)
		return look_window(m, req, at, too_many);
	return look_whole(m->swap, &m->items[at], req->from);
}

void mover_leave_gate(struct move_item *it)
{
	if (it->gate)
		gate_leave(it->gate, it->phase);
	it->gate = NULL;
}

/* ---- writing ---- */

static void placed(struct move_item *it, unsigned int dev, uint32_t slot)
{
	it->new_kind = ENTRY_DEVICE;
	it->new_dev = dev;
	it->new_slot = slot;
}

static void write_all(struct mover *m, const struct move_request *req, unsigned int n)
{
	bool stays = req->to != MOVE_ANYWHERE;
	uint32_t barred = stays ? 0 : req->barred | 1u << req->from;
	struct swap *s = m->swap;
	unsigned int nr = 0;

	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];

		if (it->result)
			continue;
		m->ios[nr++] = (struct write_io){.swap = s,
						 .entry = i, /* of m->items */
						 .mem = it->load.buf,
						 .order = it->order,
						 .tried = barred,
						 .tried_last = barred,
						 .barred = barred,
						 .class = entry_of(&s->table, it->entry)->class,
						 .dev = stays ? req->to : 0,
						 .stays = stays,
						 .moving = true};
	}
	write_ios(s, &m->set, m->ios, nr);
	for (unsigned int k = 0; k < nr; k++) {
		struct write_io *wio = &m->ios[k];
		struct move_item *it = &m->items[wio->entry];

		if (wio->state == WRITE_STORED) {
			placed(it, wio->dev, wio->slot);
		} else if (req->pieces && wio->order && wio->no_run) {
			it->new_slot = split_write(s, &m->set, wio);
			if (it->new_slot)
				it->new_kind = ENTRY_SPLIT;
		}
	}
}

/* The device copies by itself. */
static void copy_all(struct mover *m, unsigned int dev, unsigned int n)
{
	struct swap_dev *sd = &m->swap->devs[dev];

	for (unsigned int i = 0; i < n; i++) {
		struct move_item *it = &m->items[i];
		bool whole = it->kind == ENTRY_DEVICE || it->piece;
		uint32_t to = whole ? swap_dev_alloc(sd, it->order) : 0;
		int r = to ? sd->dev->ops->copy_slots(sd->dev, it->slot, to, 1u << it->order)
			   : -ENOSPC;

		mover_leave_gate(it);
		if (!r) {
			placed(it, dev, to);
			continue;
		}
		if (to)
			swap_dev_unalloc(sd, to, it->order);
		/* Damaged: who loads it finds out. */
		if (r != -ENOSPC && r != -ENOMEM)
			it->result = r;
	}
}

/* ---- changing over ---- */

/* Under the lock of the entry: is it still what was looked at? */
static bool is_same(struct swap *s, const struct move_item *it)
{
	const struct entry *p = entry_of(&s->table, it->entry);

	if (it->piece)
		return p->kind == ENTRY_SPLIT && p->slot == it->first &&
		       piece_slot(entry_of(&s->table, it->piece)) == it->slot;
	return p->kind == it->kind && p->slot == it->slot &&
	       (p->kind != ENTRY_DEVICE || p->dev == it->dev);
}

/* The entry names the new place from here on. False: somebody else moved it first. */
static bool change_over(struct swap *s, struct move_item *it)
{
	struct entry *p = entry_of(&s->table, it->entry);
	bool same;

	/*
	 * The owner first: once the entry names the new place another mover may free it again. One
	 * that finds the entry by this owner too early sees that it is not there.
	 */
	if (it->new_kind == ENTRY_SPLIT)
		split_set_owner(s, it->new_slot, it->entry);
	else
		clusters_set_owner(&s->devs[it->new_dev].clusters, it->new_slot, it->order,
				   it->entry);
	entry_lock(&s->table, it->entry);
	same = is_same(s, it);
#ifdef USWAP_MUTANT_MOVE_NO_RECHECK
	same = true;
#endif
	if (same && it->piece) {
		__atomic_store_n(&entry_of(&s->table, it->piece)->slot, it->new_slot,
				 __ATOMIC_RELEASE);
	} else if (same) {
		p->kind = it->new_kind & 7u;
		p->dev = it->new_dev & 31u;
		p->slot = it->new_slot;
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
	same = is_same(s, it);
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

		if (it->result) {
			it->freeing = req->lose_unreadable && lose(s, it);
			res->unreadable++;
			res->lost_pages += it->freeing ? 1u << it->order : 0;
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
			free_place(s, it->piece ? ENTRY_DEVICE : it->kind, it->dev, it->slot,
				   it->order);
	}
}

void mover_move_locked(struct mover *m, const struct move_request *req, const swp_t *e,
		       unsigned int n, struct move_result *res)
{
	struct swap *s = m->swap;
	unsigned int nr = 0, found;

	for (unsigned int i = 0; i < n; i++) {
		bool too_many = nr == MOVE_FOLIOS;

		found = too_many ? 0 : look(m, req, nr, e[i], &too_many);
		nr += found;
		res->gone += !found && !too_many;
		res->too_many += too_many;
	}
	if (req->copy || (req->window_nr && s->devs[req->from].dev->ops->copy_slots)) {
		copy_all(m, req->from, nr);
	} else {
		mover_read(m, nr);
		write_all(m, req, nr);
	}
	settle(m, req, nr, res);
	free_old_places(m, req->from, nr);
	for (unsigned int i = 0; i < n; i++)
		swap_put(s, e[i], 1);
}

void mover_move(struct mover *m, const struct move_request *req, const swp_t *e, unsigned int n,
		struct move_result *res)
{
	us_mutex_lock(&m->lock);
	mover_move_locked(m, req, e, n, res);
	us_mutex_unlock(&m->lock);
}
