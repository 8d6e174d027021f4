/* SPDX-License-Identifier: MIT */
/*
 * Writes the oldest folios of the cache to devices.
 *
 * A batch is taken off the queue with a reference to each entry, submitted, waited for, and those
 * that a device refused go round again with the next device; so a folio is loadable from its
 * buffer until its entry says DEVICE. The reference makes sure that nobody frees the entry
 * meanwhile; if ours was the last one, dropping it frees slot or buffer, whatever it has by then.
 *
 * Several batches may be in flight, so that the devices of a ring all have work, and go on having it
 * while the next folios are looked for. They have nothing in common but the lock, under which they
 * are started and judged, so in which order they end does not matter. What bounds them is the cache:
 * a folio in flight has its buffer.
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
	w->batches = mem_reserve(WRITE_BATCHES * sizeof(*w->batches));
	if (!w->batches)
		return -ENOMEM;
	us_mutex_init(&w->lock, &writeout_class);
	/* The first one is always there. */
	atomic_store(&w->nr_touched, 1);
	return write_set_init(&w->batches[0].set);
}

void writeout_deinit(struct writeout *w)
{
	if (!w->lock.cls)
		return;
	for (uint32_t i = 0; i < atomic_load(&w->nr_touched); i++)
		write_set_deinit(&w->batches[i].set);
	mem_release(w->batches, WRITE_BATCHES * sizeof(*w->batches));
	us_mutex_deinit(&w->lock);
}

uint64_t writeout_bytes(struct writeout *w)
{
	uint32_t nr = atomic_load(&w->nr_touched);
	uint64_t bytes = nr * align_up(sizeof(struct write_batch), PAGE_SIZE);

	for (uint32_t i = 0; i < nr; i++)
		bytes += write_set_bytes(&w->batches[i].set);
	return bytes;
}

/* ---- waiting ---- */

/*
 * The last one counts under the lock: who waits may free the set as soon as he has it and sees none
 * pending, and must not see that while we have yet to take it.
 */
static void pending_put(struct write_set *set)
{
	uint32_t n = atomic_load(&set->pending);

	while (n > 1)
		if (atomic_compare_exchange_weak(&set->pending, &n, n - 1))
			return;
	us_mutex_lock(&set->done_lock);
	if (atomic_fetch_sub(&set->pending, 1) == 1)
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

/* Places and submits those that are WRITE_IDLE. */
static void start_ios(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n)
{
	atomic_store(&set->pending, 1);
	for (unsigned int i = 0; i < n; i++)
		if (ios[i].state == WRITE_IDLE && !swap_place(s, &ios[i]))
			ios[i].state = WRITE_FAILED;
	submit_placed(s, set, ios, n);
}

/* Waits and judges. True: some were refused, and are WRITE_IDLE again. */
static bool end_ios(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n)
{
	bool again = false;

	wait_for_writes(set);
	for (unsigned int i = 0; i < n; i++) {
		int err;

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
	return again;
}

void write_ios(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n)
{
	swap_devs_look_again(s);
	do
		start_ios(s, set, ios, n);
	while (end_ios(s, set, ios, n));
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
				 .class = p->class,
				 .home = s->cache.home[p->slot]};
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
static bool store_in_pieces(struct swap *s, struct write_set *set, struct write_io *wio)
{
	swp_t first;

	if (!wio->order || !wio->no_run)
		return false;
	atomic_fetch_add_explicit(&order_stats[wio->order].swpout_fallback, 1,
				  memory_order_relaxed);
	first = split_write(s, set, wio);
	if (first) {
		split_set_owner(s, first, wio->entry);
		leave_cache(s, wio, ENTRY_SPLIT, first);
	}
	return first;
}

/* What has become of one folio. Returns the pages that left the cache. */
static uint64_t settle_folio(struct swap *s, struct write_set *set, struct write_io *wio)
{
	uint64_t left = 1u << wio->order;

	if (wio->state == WRITE_STORED) {
		/*
		 * The owner first: as soon as the entry names the slots somebody may move it
		 * and free them. Who finds it by its owner too early sees that it is cached.
		 */
		clusters_set_owner(&s->devs[wio->dev].clusters, wio->slot, wio->order, wio->entry);
		leave_cache(s, wio, ENTRY_DEVICE, wio->slot);
	} else if (!store_in_pieces(s, set, wio)) {
		cache_queue(&s->cache, wio->buf, wio->entry);
		left = 0;
	}
	swap_put(s, wio->entry, 1);
	return left;
}

/* One that is not in flight; there is one. */
static struct write_batch *free_batch(struct writeout *w)
{
	uint32_t nr = atomic_load(&w->nr_touched);

	for (uint32_t i = 0; i < nr; i++)
		if (!w->batches[i].nr)
			return &w->batches[i];
	if (write_set_init(&w->batches[nr].set))
		return NULL;
	atomic_store(&w->nr_touched, nr + 1);
	return &w->batches[nr];
}

/* Submits about nr_pages of the oldest folios. Returns how many folios. */
static unsigned int start_batch(struct swap *s, uint64_t nr_pages, uint64_t *scan)
{
	struct writeout *w = &s->writeout;
	struct write_batch *b = free_batch(w);

	if (!b)
		return 0;
	b->nr = cache_take_oldest(&s->cache, &s->table, w->oldest, WRITE_FOLIOS, nr_pages, scan);
	if (!b->nr)
		return 0;
	b->pages = 0;
	for (unsigned int i = 0; i < b->nr; i++) {
		prepare(s, &b->ios[i], w->oldest[i]);
		b->pages += 1u << b->ios[i].order;
	}
	swap_devs_look_again(s);
	start_ios(s, &b->set, b->ios, b->nr);
	w->flying[w->nr_flying++] = b;
	w->flying_pages += b->pages;
	return b->nr;
}

/* Waits for flying[at], and writes elsewhere what was refused. Returns the pages that left. */
static uint64_t end_batch(struct swap *s, unsigned int at)
{
	struct writeout *w = &s->writeout;
	struct write_batch *b = w->flying[at];
	uint64_t left = 0;

	if (end_ios(s, &b->set, b->ios, b->nr))
		write_ios(s, &b->set, b->ios, b->nr);
	for (unsigned int i = 0; i < b->nr; i++)
		left += settle_folio(s, &b->set, &b->ios[i]);
	memmove(&w->flying[at], &w->flying[at + 1],
		(--w->nr_flying - at) * sizeof(w->flying[0]));
	w->flying_pages -= b->pages;
	b->nr = 0;
	return left;
}

static uint64_t end_all_batches(struct swap *s)
{
	uint64_t left = 0;

	while (s->writeout.nr_flying)
		left += end_batch(s, 0);
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

/* May another batch be started? One always, others as long as they are ahead. */
static uint64_t startable(struct writeout *w, uint64_t want, uint64_t ahead)
{
	want = MIN(want, WRITE_PAGES);
	if (!w->nr_flying)
		return want;
	if (w->nr_flying == WRITE_BATCHES || w->flying_pages >= ahead)
		return 0;
	return MIN(want, ahead - w->flying_pages);
}

/* Once through the queue. *attempted counts folios. Returns the pages that left the cache. */
static uint64_t write_queued(struct swap *s, uint64_t nr_pages, uint64_t ahead, uint64_t queued,
			     uint64_t *attempted)
{
	struct writeout *w = &s->writeout;
	uint64_t left = 0, scan = queued;

	for (;;) {
		uint64_t have = left + w->flying_pages, goal = nr_pages + ahead, pages = 0;
		unsigned int n = 0;

		if (have < goal && scan)
			pages = startable(w, goal - have, ahead);
		if (pages)
			n = start_batch(s, pages, &scan);
		*attempted += n;
		if (n)
			continue;
		if (!w->nr_flying || (left >= nr_pages && w->flying_pages <= ahead))
			return left;
		left += end_batch(s, 0);
		if (pages)
			scan = 0; /* the queue has no more for us */
	}
}

int64_t swap_writeout_ahead(struct swap *s, uint64_t nr_pages, uint64_t ahead)
{
	struct writeout *w = &s->writeout;
	uint64_t left = 0, attempted, queued;

	us_mutex_lock(&w->lock);
	queued = cache_nr_queued(&s->cache);
	if (queued && !any_usable(s)) {
		left = end_all_batches(s);
		us_mutex_unlock(&w->lock);
		return left ? (int64_t)left : -ENOSPC;
	}
	attempted = w->nr_flying;
	/* The second pass is for when every folio got its second chance in the first. */
	for (int pass = 0; pass < 2 && (!pass || !attempted); pass++)
		left += write_queued(s, nr_pages - MIN(nr_pages, left), ahead, queued, &attempted);
	if (left)
		compact_some(s);
	us_mutex_unlock(&w->lock);
#if USWAP_DEBUG >= 3
	check_clusters(s);
#endif
	return !left && attempted ? -ENOSPC : (int64_t)left;
}

int64_t swap_writeout(struct swap *s, uint64_t nr_pages)
{
	return swap_writeout_ahead(s, nr_pages, 0);
}

uint64_t swap_writeout_settle(struct swap *s)
{
	uint64_t left;

	us_mutex_lock(&s->writeout.lock);
	left = end_all_batches(s);
	us_mutex_unlock(&s->writeout.lock);
	return left;
}
