/* SPDX-License-Identifier: MIT */
/*
 * Takes a folio on a device apart where it lies: each page that is still wanted gets an entry of
 * its own over the slot that holds it. For a swap-in page by page, after which the rest of the
 * folio would keep all its slots for the few that are left.
 *
 * Why nothing is lost or mixed up:
 *   - Under the locks of the entry's shard and of the index the references are exactly the
 *     caller's: no load is in flight, no word but the caller's names the folio, and since it
 *     leaves the index in the same step nobody finds it any more.
 *   - Its kind becomes GONE there. A mover that collects owners may still take a reference, from
 *     the slots' old owner; it looks at the kind under the shard's lock and leaves it alone.
 *   - A new entry is complete before anybody can come across it: before its slot names it as the
 *     owner, and before the index does.
 *   - The slots never change hands: no content is moved or written.
 */
#include <errno.h>

#include "swap/internal.h"

static bool is_live(const uint64_t *live, unsigned int i)
{
	return live[i / 64] >> (i % 64) & 1;
}

/* Of an entry that was never shown to anybody. */
static void forget(struct swap *s, swp_t e)
{
	entry_lock(&s->table, e);
	entry_of(&s->table, e)->kind = ENTRY_GONE;
	entry_unlock(&s->table, e);
	swap_put(s, e, 1);
}

/* An entry with its hash for each live page. False: none left, and none made. */
static bool make_entries(struct swap *s, unsigned int class, const char *content,
			 const uint64_t *live, unsigned int nr, swp_t *out)
{
	for (unsigned int i = 0; i < nr; i++) {
		out[i] = is_live(live, i) ? entry_alloc(&s->table, ENTRY_FILLING, 0, class)
					  : 0;
		if (out[i]) {
			entry_of(&s->table, out[i])->hash =
				hash_folio(content + (size_t)i * PAGE_SIZE, PAGE_SIZE);
			continue;
		}
		if (!is_live(live, i))
			continue;
		while (i--)
			if (out[i])
				forget(s, out[i]);
		return false;
	}
	return true;
}

/* False: there are other references, or it is not whole on a device. */
static bool take_whole(struct swap *s, swp_t e, uint32_t refs, unsigned int *dev, uint32_t *slot)
{
	struct entry *p = entry_of(&s->table, e);
	bool taken;

	entry_lock(&s->table, e);
	taken = p->kind == ENTRY_DEVICE && !atomic_load_explicit(&p->kept, memory_order_relaxed) &&
		dedup_remove_if(&s->dedup, e, refs);
	if (taken) {
		*dev = p->dev;
		*slot = p->slot;
		p->kind = ENTRY_GONE;
		p->slot = 0;
	}
	entry_unlock(&s->table, e);
	return taken;
}

static void give_slot(struct swap *s, swp_t e, unsigned int dev, uint32_t slot)
{
	struct entry *p = entry_of(&s->table, e);

	entry_lock(&s->table, e);
	p->dev = dev & 31u;
	p->slot = slot;
	p->kind = ENTRY_DEVICE;
	entry_unlock(&s->table, e);
	clusters_set_owner(&s->devs[dev].clusters, slot, 0, e);
}

int swap_explode(struct swap *s, swp_t e, uint32_t refs, const void *content,
		 const uint64_t live[MAX_FOLIO_PAGES / 64], swp_t *out)
{
	unsigned int order = swap_order(s, e), nr = 1u << order, dev = 0, nr_live = 0;
	uint32_t slot = 0;

	if (!order)
		return -EINVAL;
	if (!make_entries(s, entry_of(&s->table, e)->class, content, live, nr, out))
		return -ENOMEM;
	if (!take_whole(s, e, refs, &dev, &slot)) {
		for (unsigned int i = 0; i < nr; i++)
			if (out[i])
				forget(s, out[i]);
		return -EBUSY;
	}
	/* Counted before any of them can be freed. */
	for (unsigned int i = 0; i < nr; i++)
		nr_live += out[i] != 0;
	atomic_fetch_sub(&s->swapped_pages, nr - nr_live);
	for (unsigned int i = 0; i < nr; i++) {
		if (out[i])
			give_slot(s, out[i], dev, slot + i);
		else
			swap_dev_free_slots(s, dev, slot + i, 0);
	}
	swap_put(s, e, refs);
	for (unsigned int i = 0; i < nr; i++) {
		swp_t same = out[i] ? dedup_find_or_insert(&s->dedup, out[i]) : 0;

		if (same != out[i]) {
			swap_put(s, out[i], 1);
			out[i] = same;
		}
	}
	return 0;
}
