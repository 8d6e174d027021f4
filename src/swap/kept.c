/* SPDX-License-Identifier: MIT */
/*
 * Kept references and cached slots.
 *
 * `kept` counts those of an entry's references that belong to resident pages: kept <= refs. An
 * entry all of whose references are kept is a *cached slot*: what it holds is in the program's
 * memory too, or was changed there, so it can be given up: the entry becomes GONE, which only
 * resident pages name until they are written anew, evicted or unmapped.
 *
 * Why nothing is lost:
 *   - A kept reference is never loaded from. The page that has it is in the program's memory; when
 *     it leaves, its content is sealed as a new entry. Sealing returns the older copy only if it
 *     finds it in the index, with a plain reference taken there.
 *   - Under the lock of the entry's shard no kept reference comes or goes, since that takes the
 *     lock. So where kept == refs > 0 is seen under it, the entry lives and cannot die before the
 *     lock is let go.
 *   - Who could use the content has a plain reference for as long as he does: a word that is OUT,
 *     a load, a fill, a finder in the index, a batch of eviction that found it, a mover, a write.
 *     Then refs > kept, and it stays.
 *   - Who could get one while kept == refs: a finder, which takes it under the lock of the index.
 *     There the count is compared again and the entry leaves the index, in one step. A mover that
 *     collects owners takes one with entry_try_get(); it looks at the kind under the shard's lock
 *     afterwards, and leaves alone what is GONE. swap_get() is only for who has a plain one.
 *   - So no load is in flight when the slots are freed; no gate need be waited for.
 *   - A fork copies a word of a resident page under the shard's lock (swap_get_kept): before the
 *     entry is given up, then its reference is one of those counted, or after: it gets none.
 */
#include "swap/internal.h"
#include "trace/vmstat.h"

bool swap_keep(struct swap *s, swp_t e, uint32_t n)
{
	struct entry *p = entry_of(&s->table, e);
	uint32_t used, peak, usable, kept;
	struct swap_dev *sd;
	bool keep = false;

	entry_assert_live(&s->table, e);
	entry_lock(&s->table, e);
	kept = atomic_load_explicit(&p->kept, memory_order_relaxed);
	/* e is on the device as long as its shard is locked, and so the device is there. */
	sd = &s->devs[p->dev];
	if (p->kind == ENTRY_DEVICE && n <= UINT16_MAX - kept && !dev_in_memory(sd->dev) &&
	    atomic_load(&sd->state) == DEV_ON) {
		clusters_usage(&sd->clusters, &used, &peak, &usable);
		keep = used <= (swap_dev_max_slots(sd) - 1) / 2;
	}
	if (keep)
		atomic_store_explicit(&p->kept, (uint16_t)(kept + n), memory_order_relaxed);
	entry_unlock(&s->table, e);
	return keep;
}

bool swap_get_kept(struct swap *s, swp_t e, uint32_t n)
{
	struct entry *p = entry_of(&s->table, e);
	uint32_t kept;
	bool got;

	entry_assert_live(&s->table, e);
	entry_lock(&s->table, e);
	kept = atomic_load_explicit(&p->kept, memory_order_relaxed);
	got = p->kind != ENTRY_GONE && n <= UINT16_MAX - kept;
	if (got) {
		atomic_fetch_add_explicit(&p->refs, n, memory_order_relaxed);
		atomic_store_explicit(&p->kept, (uint16_t)(kept + n), memory_order_relaxed);
	}
	entry_unlock(&s->table, e);
	return got;
}

void swap_put_kept(struct swap *s, swp_t e, uint32_t n)
{
	struct entry *p = entry_of(&s->table, e);
	uint32_t kept;

	entry_assert_live(&s->table, e);
	entry_lock(&s->table, e);
	kept = atomic_load_explicit(&p->kept, memory_order_relaxed);
	if (unlikely(kept < n))
		swap_bug("entry %u: %u kept references dropped, only %u there", e, n, kept);
	atomic_store_explicit(&p->kept, (uint16_t)(kept - n), memory_order_relaxed);
	entry_unlock(&s->table, e);
	/* As plain ones for a moment: whoever looks meanwhile finds that the entry is in use. */
	swap_put(s, e, n);
}

bool entry_maybe_cached(struct swap *s, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);
	uint32_t kept = atomic_load_explicit(&p->kept, memory_order_relaxed);

	return kept && kept == atomic_load_explicit(&p->refs, memory_order_relaxed);
}

/* The entry names the slot on the device, itself or by one of its pieces. Its shard is locked. */
static bool names_slot(struct swap *s, const struct entry *p, unsigned int dev, uint32_t slot)
{
	if (p->kind == ENTRY_DEVICE)
		return p->dev == dev && slot - p->slot < 1u << p->order;
	for (swp_t n = p->slot; n; n = entry_of(&s->table, n)->chain) {
		const struct entry *q = entry_of(&s->table, n);

		if (q->dev == dev && slot - piece_slot(q) < 1u << q->order)
			return true;
	}
	return false;
}

bool entry_reclaim_kept(struct swap *s, swp_t e, uint32_t own, unsigned int dev, uint32_t slot)
{
	struct entry *p = entry_of(&s->table, e);
	unsigned int order;
	struct entry was;
	uint32_t kept;
	bool gone;

	entry_lock(&s->table, e);
	/* The counts first: of an entry that might be dying nothing else may be read. */
	kept = atomic_load_explicit(&p->kept, memory_order_relaxed);
	gone = kept && atomic_load_explicit(&p->refs, memory_order_acquire) == kept + own &&
	       (p->kind == ENTRY_DEVICE || p->kind == ENTRY_SPLIT) &&
	       (!slot || names_slot(s, p, dev, slot)) &&
	       dedup_remove_if(&s->dedup, e, kept + own);
	if (gone) {
		was.kind = p->kind;
		was.dev = p->dev;
		was.slot = p->slot;
		order = p->order;
		p->kind = ENTRY_GONE;
		p->slot = 0;
	}
	entry_unlock(&s->table, e);
	if (!gone)
		return false;
	/* The entry may be free, and in use again, from here on. */
	free_place(s, was.kind, was.dev, was.slot, order);
	atomic_fetch_sub(&s->swapped_pages, 1u << order);
	vmstat_add(VMSTAT_swap_slot_reclaimed, 1u << order);
	return true;
}

bool swap_reclaim_kept(struct swap *s, swp_t e, uint32_t own)
{
	return entry_reclaim_kept(s, e, own, 0, 0);
}
