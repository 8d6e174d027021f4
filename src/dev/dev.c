/* SPDX-License-Identifier: MIT */
#include "dev/dev_internal.h"

#include <errno.h>

#include "base/lock.h"
#include "base/mem.h"

LOCK_CLASS(sync_class, "dev_io_sync", RANK_DEV);

void dev_destroy(struct dev *d)
{
	if (d)
		d->ops->destroy(d);
}

struct sync_wait {
	struct us_mutex lock;
	struct us_cond cond;
	bool done; /* protected by lock */
};

static void sync_done(struct dev_io *io)
{
	struct sync_wait *w = io->priv;

	us_mutex_lock(&w->lock);
	w->done = true;
	us_cond_signal(&w->cond);
	us_mutex_unlock(&w->lock);
}

int dev_io_sync(struct dev *d, enum dev_op op, uint32_t slot, uint32_t nr_pages, void *buf)
{
	struct sync_wait w = {.done = false};
	struct dev_io io = {.op = op, .slot = slot, .nr_pages = nr_pages, .buf = buf,
			    .done = sync_done, .priv = &w};

	us_mutex_init(&w.lock, &sync_class);
	us_cond_init(&w.cond);
	dev_submit(d, &io);
	us_mutex_lock(&w.lock);
	while (!w.done)
		us_cond_wait(&w.cond, &w.lock);
	us_mutex_unlock(&w.lock);
	us_cond_deinit(&w.cond);
	us_mutex_deinit(&w.lock);
	return io.result;
}

void dev_io_end(struct dev *d, struct dev_io *io, int result)
{
	if (result == -EIO)
		atomic_fetch_add_explicit(&d->errors, 1, memory_order_relaxed);
	io->result = result;
	io->done(io);
}

bool dev_io_valid(const struct dev *d, const struct dev_io *io)
{
	uint32_t nr_slots = atomic_load_explicit(&d->nr_slots, memory_order_acquire);

	return io->slot && io->nr_pages && io->nr_pages <= MAX_FOLIO_PAGES &&
	       io->slot < nr_slots && io->nr_pages <= nr_slots - io->slot;
}

/* ---- the map of slots ---- */

static size_t map_bytes(const struct dev_slot_map *m)
{
	return ((size_t)m->nr_slots / 64 + 1) * sizeof(uint64_t);
}

int dev_slot_map_init(struct dev_slot_map *m, uint32_t nr_slots)
{
	m->nr_slots = nr_slots;
	m->words = mem_reserve(map_bytes(m));
	return m->words ? 0 : -ENOMEM;
}

void dev_slot_map_deinit(struct dev_slot_map *m)
{
	mem_release((void *)m->words, map_bytes(m));
	m->words = NULL;
}

/* The bits of [slot, slot+nr) that lie in slot's word; *n is how many they are. */
static uint64_t word_mask(uint32_t slot, uint32_t nr, uint32_t *n)
{
	*n = MIN(nr, 64 - slot % 64);
	return (*n == 64 ? UINT64_MAX : (1ull << *n) - 1) << slot % 64;
}

uint32_t dev_slot_map_set(struct dev_slot_map *m, uint32_t slot, uint32_t nr, bool stored)
{
	uint32_t changed = 0, n;

	for (; nr; slot += n, nr -= n) {
		uint64_t mask = word_mask(slot, nr, &n);
		_Atomic uint64_t *w = &m->words[slot / 64];
		uint64_t old;

		if (stored)
			old = ~atomic_fetch_or_explicit(w, mask, memory_order_relaxed);
		else
			old = atomic_fetch_and_explicit(w, ~mask, memory_order_relaxed);
		changed += (uint32_t)__builtin_popcountll(old & mask);
	}
	return changed;
}

bool dev_slot_map_all(const struct dev_slot_map *m, uint32_t slot, uint32_t nr)
{
	uint32_t n;

	for (; nr; slot += n, nr -= n) {
		uint64_t mask = word_mask(slot, nr, &n);

		if (~atomic_load_explicit(&m->words[slot / 64], memory_order_relaxed) & mask)
			return false;
	}
	return true;
}

bool dev_slot_map_any(const struct dev_slot_map *m, uint32_t slot, uint32_t nr)
{
	uint32_t n;

	for (; nr; slot += n, nr -= n) {
		uint64_t mask = word_mask(slot, nr, &n);

		if (atomic_load_explicit(&m->words[slot / 64], memory_order_relaxed) & mask)
			return true;
	}
	return false;
}

void dev_mark(struct dev *d, struct dev_slot_map *m, uint32_t slot, uint32_t nr, bool stored)
{
	uint64_t pages = dev_slot_map_set(m, slot, nr, stored);

	if (stored) {
		atomic_fetch_add_explicit(&d->stored_pages, pages, memory_order_relaxed);
		atomic_fetch_add_explicit(&d->stored_bytes, pages << PAGE_SHIFT,
					  memory_order_relaxed);
	} else {
		atomic_fetch_sub_explicit(&d->stored_pages, pages, memory_order_relaxed);
		atomic_fetch_sub_explicit(&d->stored_bytes, pages << PAGE_SHIFT,
					  memory_order_relaxed);
	}
}
