/* SPDX-License-Identifier: MIT */
/*
 * One run: open a window, claim the owners of what is in it, move them, close it. A window that is
 * cleared is the run.
 *
 * Why nothing is lost or mixed up:
 *   - The window's free slots are given to nobody, and those that come free in it neither; what is
 *     in it when it opens either moves out or is freed by its owner. So when it closes as cleared
 *     nothing is in it, and until then nobody but its old owners has content there.
 *   - An owner's number may have become another entry's between the listing and the claim. The
 *     mover looks, under the entry's lock, whether the entry has slots in the window. Only who had
 *     some when it was opened can (nobody gets slots there since); a piece of a folio, whose number
 *     is nobody's business, cannot have become one of these.
 *   - Moving is the mover's, with its arguments (move.c): loads meanwhile, frees meanwhile,
 *     swapoff's movers on the same folio, a device that fails.
 *   - swapoff disables the clusters: a window closes without a result then, and ready runs are
 *     freed by relocate_drop_ready(), or by us: both look at `writeok` under relocate_dev.lock.
 *
 * What does not work is not tried again at once: an order for which no window was to be had, or
 * none that could be cleared, waits until about a run's worth of slots was freed since.
 */
#include "swap/relocate.h"

#include <string.h>

#include "swap/worker.h"
#include "trace/vmstat.h"

LOCK_CLASS(ready_class, "swap_ready", RANK_ENTRY);

/* Windows that one call may try to clear. */
#define RELOCATE_TRIES 2
/* Of a window, where folios have more pieces in it than a batch takes. */
#define CLEAR_ROUNDS 4
/* Ready runs of one order, all together: 16 MiB. */
#define READY_PAGES 4096u
/* Half of what is free at most is held ready: single pages get it if they find nothing else. */
#define READY_SHARE 2
/*
 * The bound of background work: a page moved for each page written, and this much ahead. Making a
 * run costs less than a run's pages, so this suffices to make one for each large folio that is
 * written; and whatever happens, writing costs at most one more read and write a page.
 */
#define CREDIT_PAGES 4096

int relocator_init(struct relocator *r, struct swap *s)
{
	return mover_init_inner(&r->mover, s);
}

void relocator_deinit(struct relocator *r)
{
	mover_deinit(&r->mover);
}

void relocate_dev_init(struct relocate_dev *rd)
{
	memset(rd, 0, sizeof(*rd));
	us_mutex_init(&rd->lock, &ready_class);
	atomic_store(&rd->credit, CREDIT_PAGES);
}

void relocate_dev_deinit(struct relocate_dev *rd)
{
	if (rd->lock.cls)
		us_mutex_deinit(&rd->lock);
	rd->lock.cls = NULL;
}

/* ---- one run ---- */

/* References to the owners that live. */
static unsigned int claim_owners(struct swap *s, struct relocator *r)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < r->window.nr; i++)
		if (entry_try_get(entry_of(&s->table, r->window.owner[i])))
			r->claimed[n++] = r->window.owner[i];
	return n;
}

static uint32_t free_slots(struct swap_dev *sd)
{
	uint32_t used, peak, usable;

	clusters_usage(&sd->clusters, &used, &peak, &usable);
	return usable > used ? usable - used : 0;
}

/* Was something freed since it was last in vain? */
static bool worth_trying(struct swap_dev *sd, unsigned int order)
{
	return (int64_t)(atomic_load_explicit(&sd->freed, memory_order_relaxed) -
			 atomic_load_explicit(&sd->relocate.again_at[order],
					      memory_order_relaxed)) >= 0;
}

static void was_in_vain(struct swap_dev *sd, unsigned int order)
{
	atomic_store_explicit(&sd->relocate.again_at[order],
			      atomic_load_explicit(&sd->freed, memory_order_relaxed) +
				      (1u << order),
			      memory_order_relaxed);
	vmstat_add(VMSTAT_swap_relocate_fail, 1);
}

/* Moves what is in the window elsewhere, a batch at a time. Returns pages moved. */
static uint64_t clear_window(struct swap *s, struct relocator *r, const struct move_request *req)
{
	uint64_t pages = 0;

	for (int round = 0; round < CLEAR_ROUNDS; round++) {
		unsigned int n = claim_owners(s, r);
		struct move_result res = {0};

		for (unsigned int i = 0; i < n; i += MOVE_FOLIOS)
			mover_move_locked(&r->mover, req, r->claimed + i, MIN(n - i, MOVE_FOLIOS),
					  &res);
		pages += res.moved_pages;
		if (!res.too_many)
			break;
	}
	return pages;
}

/* r->mover.lock held. Adds to *moved the pages that it moved. */
static uint32_t make_run(struct swap *s, struct relocator *r, unsigned int dev,
			 unsigned int order, uint64_t *moved)
{
	struct swap_dev *sd = &s->devs[dev];
	struct move_request req = {.from = dev, .to = dev, .window_nr = 1u << order};
	uint32_t slot = 0;

	for (int i = 0; i < RELOCATE_TRIES && !slot; i++) {
		uint64_t pages;

		if (!clusters_window_open(&sd->clusters, order, CLUSTER_SLOTS, &r->window))
			break;
		req.window_slot = r->window.slot;
		pages = clear_window(s, r, &req);
		slot = clusters_window_close(&sd->clusters, &r->window);
		*moved += pages;
		/* What only moved is no more room than before. */
		atomic_fetch_sub_explicit(&sd->freed, pages, memory_order_relaxed);
		vmstat_add(VMSTAT_swap_relocated, pages);
	}
	if (!slot)
		was_in_vain(sd, order);
	return slot;
}

bool relocate_likely(struct swap_dev *sd, unsigned int order)
{
	if (order && worth_trying(sd, order) && free_slots(sd) >= 2u << order)
		return true;
	us_mutex_lock(&sd->relocate.lock);
	order = sd->relocate.nr_ready[order];
	us_mutex_unlock(&sd->relocate.lock);
	return order;
}

/* ---- in memory ---- */

uint32_t relocate_now(struct swap *s, unsigned int dev, unsigned int order)
{
	struct swap_dev *sd = &s->devs[dev];
	struct relocator *r = s->relocate_now;
	uint64_t moved = 0;
	uint32_t slot;

	if (!order || !worth_trying(sd, order) || free_slots(sd) < 1u << order)
		return 0;
	us_mutex_lock(&r->mover.lock);
	slot = make_run(s, r, dev, order, &moved);
	us_mutex_unlock(&r->mover.lock);
	return slot;
}

/* ---- in the background ---- */

void relocate_ask(struct swap *s, unsigned int dev, unsigned int order)
{
	struct swap_dev *sd = &s->devs[dev];

	if (!order || !worth_trying(sd, order))
		return;
	atomic_fetch_add_explicit(&sd->relocate.asked[order], 1, memory_order_relaxed);
	worker_wake(s);
}

void relocate_note_written(struct swap_dev *sd, uint32_t nr_pages)
{
	int64_t was = atomic_load_explicit(&sd->relocate.credit, memory_order_relaxed);

	while (was < CREDIT_PAGES &&
	       !atomic_compare_exchange_weak(&sd->relocate.credit, &was,
					     MIN(was + nr_pages, CREDIT_PAGES)))
		;
}

uint32_t relocate_take_ready(struct swap_dev *sd, unsigned int order)
{
	struct relocate_dev *rd = &sd->relocate;
	uint32_t slot = 0;

	us_mutex_lock(&rd->lock);
	if (rd->nr_ready[order]) {
		slot = rd->ready[order][--rd->nr_ready[order]];
		rd->ready_slots -= 1u << order;
	}
	us_mutex_unlock(&rd->lock);
	return slot;
}

bool relocate_drop_ready(struct swap_dev *sd)
{
	bool some = false;

	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		uint32_t slot;

		while ((slot = relocate_take_ready(sd, o))) {
			swap_dev_unalloc(sd, slot, o);
			some = true;
		}
	}
	return some;
}

uint32_t relocate_ready_slots(struct swap_dev *sd)
{
	uint32_t n;

	us_mutex_lock(&sd->relocate.lock);
	n = sd->relocate.ready_slots;
	us_mutex_unlock(&sd->relocate.lock);
	return n;
}

/* The run is ready, unless the device takes nothing any more, or enough are: it is free then. */
static void keep_ready(struct swap_dev *sd, unsigned int order, uint32_t slot)
{
	struct relocate_dev *rd = &sd->relocate;
	bool keep;

	us_mutex_lock(&rd->lock);
	keep = atomic_load(&sd->clusters.writeok) && rd->nr_ready[order] < READY_RUNS;
	if (keep) {
		rd->ready[order][rd->nr_ready[order]++] = slot;
		rd->ready_slots += 1u << order;
	}
	us_mutex_unlock(&rd->lock);
	if (!keep)
		swap_dev_unalloc(sd, slot, order);
	else /* For single pages, if they find nothing else: the device is not full any more. */
		queue_unused(sd->swap->queue, (unsigned int)(sd - sd->swap->devs));
}

/* How many runs of the order to have ready: as many as were asked for since the last time. */
static unsigned int target(struct swap_dev *sd, unsigned int order)
{
	struct relocate_dev *rd = &sd->relocate;
	unsigned int most = MIN(READY_RUNS, READY_PAGES >> order);
	uint32_t asked = atomic_exchange_explicit(&rd->asked[order], 0, memory_order_relaxed);

	if (asked)
		rd->target[order] = (uint16_t)MIN(MAX(asked, rd->target[order] / 2u), most);
	return asked ? rd->target[order] : 0;
}

static bool may_hold(struct swap_dev *sd, unsigned int order)
{
	return (uint64_t)relocate_ready_slots(sd) + (1u << order) <= free_slots(sd) / READY_SHARE;
}

static bool refill_order(struct swap *s, unsigned int dev, unsigned int order)
{
	struct swap_dev *sd = &s->devs[dev];
	struct relocate_dev *rd = &sd->relocate;
	unsigned int want = target(sd, order), have;

	for (;;) {
		uint64_t moved = 0;
		uint32_t slot;

		us_mutex_lock(&rd->lock);
		have = rd->nr_ready[order];
		us_mutex_unlock(&rd->lock);
		if (have >= want || !may_hold(sd, order) || !worth_trying(sd, order))
			return false;
		/* It may have come free by itself. */
		slot = clusters_alloc(&sd->clusters, order);
		if (!slot && atomic_load(&rd->credit) <= 0)
			return false;
		if (!slot) {
			us_mutex_lock(&s->relocate_back->mover.lock);
			slot = make_run(s, s->relocate_back, dev, order, &moved);
			us_mutex_unlock(&s->relocate_back->mover.lock);
			atomic_fetch_sub(&rd->credit, (int64_t)moved);
		}
		if (!slot)
			return false;
		keep_ready(sd, order, slot);
	}
}

void relocate_trim(struct swap *s)
{
	if (mover_bytes(&s->relocate_back->mover))
		mover_trim(&s->relocate_back->mover);
}

bool relocate_refill(struct swap *s, unsigned int dev)
{
	/* Large ones first: a small one may lie in what they are made of. */
	for (unsigned int o = MAX_ORDER; o > 0; o--)
		if (atomic_load(&s->devs[dev].relocate.asked[o]))
			(void)refill_order(s, dev, o);
	return false;
}
