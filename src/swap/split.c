/* SPDX-License-Identifier: MIT */
/*
 * A folio that no device can take whole, because no aligned run of its order is free anywhere, is
 * stored in pieces. Tables of spaces name (entry, page), so the entry stays; it becomes SPLIT and
 * its slot names the first of a chain of piece entries, in the order of the pages. A piece is a
 * DEVICE entry with one reference, the folio's; it is not in the index. Its slots are owned by the
 * folio: what moves is the folio, which is written anew (move.c), so a stored piece never changes.
 *
 * Pieces start as two halves; one that finds no run is halved again, down to single pages.
 */
#include "swap/internal.h"
#include "trace/vmstat.h"

static swp_t new_piece(struct swap *s, unsigned int order, unsigned int class)
{
	swp_t e = entry_alloc(&s->table, ENTRY_FILLING, order, class);

	if (e)
		atomic_fetch_add_explicit(&s->nr_pieces, 1, memory_order_relaxed);
	return e;
}

void split_set_owner(struct swap *s, swp_t first, swp_t e)
{
	for (; first; first = entry_of(&s->table, first)->chain) {
		struct entry *p = entry_of(&s->table, first);

		clusters_set_owner(&s->devs[p->dev].clusters, p->slot, p->order, e);
	}
}

void split_free(struct swap *s, swp_t first)
{
	while (first) {
		struct entry *p = entry_of(&s->table, first);
		swp_t next = p->chain;

		if (p->kind == ENTRY_DEVICE)
			swap_dev_free_slots(s, p->dev, p->slot, p->order);
		entry_lock(&s->table, first);
		p->kind = ENTRY_GONE;
		p->chain = 0;
		entry_unlock(&s->table, first);
		atomic_fetch_sub_explicit(&s->nr_pieces, 1, memory_order_relaxed);
		/* Who took a number for another entry's may hold a reference for a moment. */
		swap_put(s, first, 1);
		first = next;
	}
}

/* Puts a second half behind a piece. False: no entry is left, or it is a single page. */
static bool halve(struct swap *s, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);
	swp_t half;

	if (!p->order)
		return false;
	half = new_piece(s, p->order - 1u, p->class);
	if (!half)
		return false;
	entry_of(&s->table, half)->chain = p->chain;
	p->chain = half;
	entry_lock(&s->table, e);
	p->order--;
	entry_unlock(&s->table, e);
	return true;
}

/* Up to WRITE_PIECES pieces that are not stored yet. */
static unsigned int gather(struct swap *s, struct write_set *set, swp_t first,
			   const struct write_io *folio)
{
	char *mem = folio->mem;
	unsigned int n = 0;

	for (swp_t e = first; e && n < WRITE_PIECES; e = entry_of(&s->table, e)->chain) {
		struct entry *p = entry_of(&s->table, e);

		if (p->kind == ENTRY_FILLING)
			set->pieces[n++] = (struct write_io){
				.swap = s, .entry = e, .mem = mem, .order = p->order,
				.tried = folio->barred, .tried_last = folio->barred,
				.barred = folio->barred, .class = folio->class,
				.home = folio->home,
				.moving = folio->moving,
				.piece = true};
		mem += PAGE_SIZE << p->order;
	}
	return n;
}

static void piece_stored(struct swap *s, const struct write_io *wio)
{
	struct entry *p = entry_of(&s->table, wio->entry);

	entry_lock(&s->table, wio->entry);
	p->hash = hash_folio(wio->mem, PAGE_SIZE << wio->order);
	p->dev = wio->dev & 31u;
	p->slot = wio->slot;
	p->kind = ENTRY_DEVICE;
	entry_unlock(&s->table, wio->entry);
}

swp_t split_write(struct swap *s, struct write_set *set, const struct write_io *wio)
{
	swp_t first = new_piece(s, wio->order, wio->class);
	unsigned int n;

	if (!first)
		return 0;
	if (!halve(s, first))
		goto fail;
	while ((n = gather(s, set, first, wio))) {
		write_ios(s, set, set->pieces, n);
		for (unsigned int i = 0; i < n; i++)
			if (set->pieces[i].state == WRITE_STORED)
				piece_stored(s, &set->pieces[i]);
		for (unsigned int i = 0; i < n; i++) {
			struct write_io *p = &set->pieces[i];

			if (p->state == WRITE_FAILED && !(p->no_run && halve(s, p->entry)))
				goto fail;
		}
	}
	return first;
fail:
	split_free(s, first);
	return 0;
}

/* ---- back ---- */

enum split_turn { TURN_SUBMITTER, TURN_LEFT, TURN_DONE };

static bool submit_piece_and_test_done(struct swap_load *l);

/* Judges the piece that was read and moves on. False: the load is over, and l perhaps gone. */
static bool next_piece(struct swap_load *l)
{
	struct swap *s = l->swap;
	struct entry *p = entry_of(&s->table, l->piece);
	int err = load_check(s, l, p->hash);

	l->piece_page += 1u << p->order;
	l->piece = p->chain;
	if (err || !l->piece) {
		if (!err && !l->moving)
			atomic_fetch_add_explicit(
				&order_stats[entry_of(&s->table, l->entry)->order].swpin, 1,
				memory_order_relaxed);
		gate_leave(&s->split_gate, l->gate_phase);
		load_finish(l, err);
		return false;
	}
	return true;
}

/*
 * A device may complete inside dev_submit(); going on from there would nest as deep as there are
 * pieces. So the completion goes on only if the submitter has left, else the submitter does.
 */
static void piece_done(struct dev_io *io)
{
	struct swap_load *l = container_of(io, struct swap_load, io);

	if (atomic_exchange(&l->turn, TURN_DONE) == TURN_SUBMITTER)
		return;
	while (next_piece(l) && submit_piece_and_test_done(l))
		;
}

/* True if the piece was complete before we left: then going on is up to the caller. */
static bool submit_piece_and_test_done(struct swap_load *l)
{
	struct entry *p = entry_of(&l->swap->table, l->piece);
	struct swap_dev *sd = &l->swap->devs[p->dev];
	/* As in load_from_device(). The piece is there to hold it: split_gate, which l is in. */
	unsigned int phase = gate_enter(&sd->gate);
	bool done;

	l->io = (struct dev_io){
		.op = DEV_READ,
		.slot = piece_slot(p),
		.nr_pages = 1u << p->order,
		.buf = (char *)l->buf + (size_t)l->piece_page * PAGE_SIZE,
		.done = piece_done,
		.priv = sd,
	};
	atomic_store(&l->turn, TURN_SUBMITTER);
	dev_submit(sd->dev, &l->io);
	done = atomic_exchange(&l->turn, TURN_LEFT) == TURN_DONE;
	gate_leave(&sd->gate, phase);
	return done;
}

void split_load(struct swap_load *l, swp_t first)
{
	l->piece = first;
	l->piece_page = 0;
	while (submit_piece_and_test_done(l) && next_piece(l))
		;
}
