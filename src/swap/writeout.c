/* SPDX-License-Identifier: MIT */
/*
 * Writes the oldest folios of the cache to devices.
 *
 * A batch is taken off the queue with a reference to each entry, submitted, waited for, and those
 * that a device refused go round again with the next device; so a folio is loadable from its
 * buffer until its entry says DEVICE. The reference makes sure that nobody frees the entry
 * meanwhile; if ours was the last one, dropping it frees slot or buffer, whatever it has by then.
 *
 * Single pages that were given neighbouring slots of a disk are copied together and written with
 * one io: a copy costs less than a microsecond a page, an io of its own some tens.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "swap/internal.h"
#include "swap/compact.h"
#include "swap/relocate.h"
#include "trace/vmstat.h"

LOCK_CLASS(writeout_class, "swap_writeout", RANK_CACHE - 3);
LOCK_CLASS(writeout_done_class, "swap_writeout_done", RANK_ENTRY);

int write_set_init(struct write_set *set)
{
	memset(set, 0, sizeof(*set));
	set->joined = mem_reserve(WRITE_FOLIOS * PAGE_SIZE);
	if (!set->joined)
		return -ENOMEM;
	us_mutex_init(&set->done_lock, &writeout_done_class);
	us_cond_init(&set->done);
	return 0;
}

void write_set_deinit(struct write_set *set)
{
	if (!set->joined)
		return;
	mem_release(set->joined, WRITE_FOLIOS * PAGE_SIZE);
	set->joined = NULL;
	us_mutex_deinit(&set->done_lock);
	us_cond_deinit(&set->done);
}

uint64_t write_set_bytes(struct write_set *set)
{
	return (uint64_t)atomic_load_explicit(&set->joined_peak, memory_order_relaxed) * PAGE_SIZE;
}

void write_set_trim(struct write_set *set)
{
	mem_discard(set->joined, write_set_bytes(set));
	atomic_store(&set->joined_peak, 0);
}

int writeout_init(struct writeout *w)
{
	int r = write_set_init(&w->set);

	if (!r)
		us_mutex_init(&w->lock, &writeout_class);
	return r;
}

void writeout_deinit(struct writeout *w)
{
	if (!w->lock.cls)
		return;
	write_set_deinit(&w->set);
	us_mutex_deinit(&w->lock);
}

/* ---- waiting ---- */

static void pending_put(struct write_set *set)
{
	if (atomic_fetch_sub(&set->pending, 1) != 1)
		return;
	us_mutex_lock(&set->done_lock);
	us_cond_signal(&set->done);
	us_mutex_unlock(&set->done_lock);
}

static void write_done(struct dev_io *io)
{
	struct write_io *wio = container_of(io, struct write_io, io);

	/* Before it counts as done: the slots keep the device until then. */
	if (wio->start_ns)
		queue_note_speed(wio->swap->queue, wio->dev, io->nr_pages,
				 clock_now_ns() - wio->start_ns);
	pending_put(wio->set);
}

static void wait_for_writes(struct write_set *set)
{
	pending_put(set); /* the submitter's own */
	us_mutex_lock(&set->done_lock);
	while (atomic_load(&set->pending))
		us_cond_wait(&set->done, &set->done_lock);
	us_mutex_unlock(&set->done_lock);
}

/* ---- one folio ---- */

void count_written(struct swap *s, const struct write_io *wio)
{
	/* A folio that was split has gone as single pages, whatever the pieces were. */
	struct order_stat *st = &order_stats[wio->piece ? 0 : wio->order];
	uint32_t nr = 1u << wio->order, folios = wio->piece ? nr : 1;

	if (wio->moving)
		return;
	if (dev_in_memory(s->devs[wio->dev].dev)) {
		vmstat_add(VMSTAT_zswpout, nr);
		atomic_fetch_add_explicit(&st->zswpout, folios, memory_order_relaxed);
	} else {
		relocate_note_written(&s->devs[wio->dev], nr);
		vmstat_add(VMSTAT_pswpout, nr);
		atomic_fetch_add_explicit(&st->swpout, folios, memory_order_relaxed);
	}
}

static void refused(struct swap *s, struct write_io *wio, int err)
{
	struct swap_dev *sd = &s->devs[wio->dev];
	/* The device is needed for a moment longer than the slots that hold it. */
	unsigned int phase = gate_enter(&s->devs_gate);

	if (err == -E2BIG)
		wio->refused |= 1u << wio->dev;
	if (err == -EIO) {
		vmstat_add(VMSTAT_swap_io_error, 1);
		/* Some of it may have been stored. */
		sd->dev->ops->free_slots(sd->dev, wio->slot, 1u << wio->order);
	}
	swap_dev_unalloc(sd, wio->slot, wio->order);
	if (wio->lead == wio)
		swap_dev_write_failed(sd, err);
	gate_leave(&s->devs_gate, phase);
	wio->state = WRITE_IDLE;
}

/* Whether the folio may share an io with its neighbours. */
static bool is_joinable(struct swap *s, const struct write_io *wio)
{
	return wio->state == WRITE_PLACED && !wio->order && !dev_in_memory(s->devs[wio->dev].dev);
}

/* Lets ios[at] write the folios behind it whose slots follow its own. Returns the pages. */
static uint32_t join(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n,
		     unsigned int at)
{
	struct write_io *lead = &ios[at];
	char *mem = set->joined + set->joined_used * PAGE_SIZE;
	uint32_t nr = 1;

	for (unsigned int i = at + 1; i < n && nr < JOIN_PAGES; i++) {
		if (!is_joinable(s, &ios[i]) || ios[i].dev != lead->dev ||
		    ios[i].slot != lead->slot + nr)
			continue;
		memcpy(mem + nr * PAGE_SIZE, ios[i].mem, PAGE_SIZE);
		ios[i].lead = lead;
		ios[i].state = WRITE_SUBMITTED;
		nr++;
	}
	if (nr == 1)
		return 1;
	memcpy(mem, lead->mem, PAGE_SIZE);
	set->joined_used += nr;
	if (set->joined_used > atomic_load_explicit(&set->joined_peak, memory_order_relaxed))
		atomic_store_explicit(&set->joined_peak, set->joined_used, memory_order_relaxed);
	return nr;
}

static void submit_placed(struct swap *s, struct write_set *set, struct write_io *ios,
			  unsigned int n)
{
	bool measuring = atomic_load_explicit(&s->measuring, memory_order_relaxed);

	set->joined_used = 0;
	for (unsigned int i = 0; i < n; i++) {
		struct write_io *wio = &ios[i];
		uint32_t nr = 1u << wio->order;
		void *mem = wio->mem;

		if (wio->state != WRITE_PLACED)
			continue;
		if (is_joinable(s, wio)) {
			char *joined = set->joined + set->joined_used * PAGE_SIZE;

			nr = join(s, set, ios, n, i);
			mem = nr > 1 ? joined : wio->mem;
		}
		wio->state = WRITE_SUBMITTED;
		wio->io = (struct dev_io){
			.op = DEV_WRITE,
			.flags = wio->last ? DEV_IO_LAST : 0,
			.slot = wio->slot,
			.nr_pages = nr,
			.buf = mem,
			.done = write_done,
		};
		wio->set = set;
		wio->start_ns = measuring ? clock_now_ns() : 0;
		atomic_fetch_add(&set->pending, 1);
		dev_submit(s->devs[wio->dev].dev, &wio->io);
	}
}

void write_ios(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n)
{
	bool again;
	int err;

	swap_devs_look_again(s);
	do {
		again = false;
		atomic_store(&set->pending, 1);
		for (unsigned int i = 0; i < n; i++)
			if (ios[i].state == WRITE_IDLE && !swap_place(s, &ios[i]))
				ios[i].state = WRITE_FAILED;
		submit_placed(s, set, ios, n);
		wait_for_writes(set);
		for (unsigned int i = 0; i < n; i++) {
			if (ios[i].state != WRITE_SUBMITTED)
				continue;
			err = ios[i].lead->io.result;
			if (err) {
				refused(s, &ios[i], err);
				again = true;
			} else {
				ios[i].state = WRITE_STORED;
				count_written(s, &ios[i]);
			}
		}
	} while (again);
}

/* ---- batches ---- */

static void prepare(struct swap *s, struct write_io *wio, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);

	entry_lock(&s->table, e);
	if (p->kind != ENTRY_CACHED)
		swap_bug("entry %u of kind %u is on the queue", e, p->kind);
	*wio = (struct write_io){.swap = s,
				 .entry = e,
				 .buf = p->slot,
				 .mem = cache_mem(&s->cache, p->slot, p->order),
				 .order = p->order,
				 .class = p->class};
	entry_unlock(&s->table, e);
}

/* From here on the entry is where it was written to. */
static void leave_cache(struct swap *s, struct write_io *wio, enum entry_kind kind, uint32_t slot)
{
	struct entry *p = entry_of(&s->table, wio->entry);
	struct buf *b = &s->cache.bufs[wio->buf];
	bool pinned;

	entry_lock(&s->table, wio->entry);
	p->kind = kind & 7u;
	p->dev = wio->dev & 31u;
	p->slot = slot;
	pinned = b->pins;
#ifdef USWAP_MUTANT_WRITEOUT_NO_PIN
	pinned = false;
#endif
	if (pinned)
		b->flags |= BUF_ORPHAN;
	entry_unlock(&s->table, wio->entry);
	/* No load can pin it any more, so an unpinned buffer is ours. */
	if (!pinned)
		cache_free(&s->cache, wio->buf, wio->order);
	atomic_fetch_add(&s->swapped_pages, 1u << wio->order);
}

/* Nobody took the folio whole. Returns true if it was stored in pieces. */
static bool store_in_pieces(struct swap *s, struct write_io *wio)
{
	swp_t first;

	if (!wio->order || !wio->no_run)
		return false;
	atomic_fetch_add_explicit(&order_stats[wio->order].swpout_fallback, 1,
				  memory_order_relaxed);
	first = split_write(s, &s->writeout.set, wio);
	if (first) {
		split_set_owner(s, first, wio->entry);
		leave_cache(s, wio, ENTRY_SPLIT, first);
	}
	return first;
}

/* Returns the pages that left the cache. */
static uint64_t write_batch(struct swap *s, unsigned int n)
{
	struct writeout *w = &s->writeout;
	uint64_t left = 0;

	for (unsigned int i = 0; i < n; i++)
		prepare(s, &w->ios[i], w->batch[i]);
	write_ios(s, &w->set, w->ios, n);
	for (unsigned int i = 0; i < n; i++) {
		struct write_io *wio = &w->ios[i];

		if (wio->state == WRITE_STORED) {
			/*
			 * The owner first: as soon as the entry names the slots somebody may move it
			 * and free them. Who finds it by its owner too early sees that it is cached.
			 */
			clusters_set_owner(&s->devs[wio->dev].clusters, wio->slot, wio->order,
					   wio->entry);
			leave_cache(s, wio, ENTRY_DEVICE, wio->slot);
			left += 1u << wio->order;
		} else if (store_in_pieces(s, wio)) {
			left += 1u << wio->order;
		} else {
			cache_queue(&s->cache, wio->buf, wio->entry);
		}
		swap_put(s, wio->entry, 1);
	}
	return left;
}

/* Full ones count: cached slots may come free there. */
static bool any_usable(struct swap *s)
{
	const struct queue_req any = {0};

	swap_devs_look_again(s);
	return queue_open(s->queue, &any) || queue_full(s->queue, &any);
}

#if USWAP_DEBUG >= 3
static void check_clusters(struct swap *s)
{
	unsigned int phase = gate_enter(&s->devs_gate);

	for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++)
		if (swap_dev_present(&s->devs[i]))
			clusters_check(&s->devs[i].clusters);
	gate_leave(&s->devs_gate, phase);
}
#endif

int64_t swap_writeout(struct swap *s, uint64_t nr_pages)
{
	struct writeout *w = &s->writeout;
	uint64_t left = 0, attempted = 0, queued;

	us_mutex_lock(&w->lock);
	queued = cache_nr_queued(&s->cache);
	if (queued && !any_usable(s)) {
		us_mutex_unlock(&w->lock);
		return -ENOSPC;
	}
	/* The second pass is for when every folio got its second chance in the first. */
	for (int pass = 0; pass < 2 && !attempted; pass++) {
		uint64_t scan = queued;

		while (left < nr_pages && scan) {
			uint64_t want = MIN(nr_pages - left, WRITE_PAGES);
			unsigned int n = cache_take_oldest(&s->cache, &s->table, w->batch,
							   WRITE_FOLIOS, want, &scan);

			if (!n)
				break;
			attempted += n;
			left += write_batch(s, n);
		}
	}
	if (left)
		compact_some(s);
	us_mutex_unlock(&w->lock);
#if USWAP_DEBUG >= 3
	check_clusters(s);
#endif
	return !left && attempted ? -ENOSPC : (int64_t)left;
}
