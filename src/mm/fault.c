/* SPDX-License-Identifier: MIT */
/*
 * Answering faults. docs/fault-states.md has the states; the argument why nothing is lost stands
 * here at each step.
 *
 * A fault says only that some thread found the page missing at some moment. By the time it is
 * looked at anything may have happened to the address, so every answer starts from the page word,
 * under the space's lock, and goes through the kernel, which refuses (EEXIST, ENOENT, EAGAIN) what
 * no longer fits. A thread that is woken without its page simply faults again: so "wake" is always
 * a safe answer, and every fault that was read is answered by a fill or a wake of its address.
 */
#include "mm/mm.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

#define TOUCH_AHEAD_PAGES 32u
#define FILLS_WARM_BYTES MIB(1)
#define READ_AHEAD_BYTES MIB(1)
#define READ_AHEAD_FILLS 16u

/* Never written, so that it takes no memory. */
static char zero_pages[TOUCH_AHEAD_PAGES * PAGE_SIZE] __attribute__((aligned(4096)));

static void fault_answered(struct space *s, uint64_t since_ns)
{
	hist_add(&fault_latency, clock_now_ns() - since_ns);
}

void fault_defer(struct space *s, uint64_t va, bool write, uint64_t since_ns)
{
	us_mutex_assert_held(&s->lock);
	for (unsigned int i = 0; i < s->nr_deferred; i++)
		if (s->deferred[i].va == va)
			return; /* one fill of the address wakes all who wait there */
	if (s->nr_deferred == MAX_DEFERRED) {
		/* The thread comes back with a new fault: slow, but nobody is forgotten. */
		s->ops->wake(s, va);
		return;
	}
	s->deferred[s->nr_deferred++] = (struct deferred){va, since_ns, write};
}

/* ---- fills in flight ---- */

/* One of those that are free, if they are more than `spare`. */
static struct fill *fill_get(struct mm *mm, unsigned int spare)
{
	struct fill *f = NULL;

	us_mutex_lock(&mm->fills_lock);
	if (mm->nr_free_fills > spare) {
		f = list_first(&mm->free_fills, struct fill, node);
		list_del(&f->node);
		mm->nr_free_fills--;
		mm->fills_warm_bytes -= f->warm_bytes;
	}
	us_mutex_unlock(&mm->fills_lock);
	return f;
}

/*
 * The memory of a buffer in use before is kept for the next fill, which takes the last one put
 * back; but idle buffers may not hold more of the budget than FILLS_WARM_BYTES.
 */
static void fill_put(struct mm *mm, struct fill *f)
{
	f->warm_bytes = MAX(f->warm_bytes, (uint32_t)PAGE_SIZE << f->order);
	us_mutex_lock(&mm->fills_lock);
	if (mm->fills_warm_bytes + f->warm_bytes > FILLS_WARM_BYTES) {
		us_mutex_unlock(&mm->fills_lock);
		mem_discard(f->buf, f->warm_bytes);
		f->warm_bytes = 0;
		us_mutex_lock(&mm->fills_lock);
	}
	mm->fills_warm_bytes += f->warm_bytes;
	list_add_head(&mm->free_fills, &f->node);
	mm->nr_free_fills++;
	us_mutex_unlock(&mm->fills_lock);
}

/* Is this entry already on its way to an address near va? lock held. */
static bool fill_in_flight(struct space *s, swp_t e, uint64_t va, unsigned int sub)
{
	list_for_each(n, &s->fills) {
		struct fill *f = list_entry(n, struct fill, node);

		if (f->load.entry == e && f->va - ((uint64_t)f->sub << PAGE_SHIFT) ==
						  va - ((uint64_t)sub << PAGE_SHIFT))
			return true;
	}
	return false;
}

/* ---- bringing a folio back ---- */

/*
 * Sets the word of a page that a fill made resident. kept: its reference has become a kept one, so
 * that an unchanged eviction costs nothing. lock held.
 */
static void set_resident_as(struct space *s, struct leaf *l, unsigned int idx, bool kept,
			    uint8_t gen)
{
	pw_t w = l->w[idx];

	if (kept) {
		table_set(&s->table, l, idx, pw_make(PW_RESIDENT, pw_entry(w), pw_sub(w), gen));
		return;
	}
	space_drop_word(s, l, idx);
	table_set(&s->table, l, idx, pw_make(PW_RESIDENT, 0, 0, gen));
}

static void set_resident(struct space *s, struct leaf *l, unsigned int idx)
{
	set_resident_as(s, l, idx, false, mm_gen(s->mm));
}

static bool is_out(struct space *s, uint64_t va, swp_t e, unsigned int sub)
{
	pw_t w = table_get(&s->table, va);

	return pw_state(w) == PW_OUT && pw_entry(w) == e && pw_sub(w) == sub;
}

/*
 * UFFDIO_COPY would overwrite a guard marker that the program installed (rule 9). The installation
 * sent no event but emptied the page, so a word under a marker is stale: it is dropped, and the
 * page is not filled. lock held.
 */
static unsigned int skip_guarded(struct space *s, uint64_t va, unsigned int nr)
{
	uint64_t pm[MAX_FOLIO_PAGES];
	unsigned int good = 0;

	if (s->ops->pagemap(s, va, pm, nr) != 0)
		return 0;
	while (good < nr && !(pm[good] & PAGEMAP_GUARD))
		good++;
	for (unsigned int i = good; i < nr && (pm[i] & PAGEMAP_GUARD); i++) {
		uint64_t a = va + ((uint64_t)i << PAGE_SHIFT);
		struct leaf *l = table_leaf(&s->table, a, false);

		if (l)
			space_drop_word(s, l, leaf_index(a));
	}
	return good;
}

/*
 * Copies pages [sub, sub+nr) of the loaded folio to va. Returns pages filled, or -errno of the
 * first one. lock held: the words of these pages are OUT(e) and stay so until they are changed
 * here, because events are applied under the same lock; if one is on its way the kernel answers
 * EAGAIN and nothing is changed.
 */
static int64_t fill_run(struct space *s, struct fill *f, uint64_t va, unsigned int sub,
			unsigned int nr)
{
	/* What nobody asked for, and what follows nothing, is the first to leave again. */
	uint8_t gen = (uint8_t)(mm_gen(s->mm) - (f->alone && va != f->va));
	const char *src = (const char *)f->buf + ((size_t)sub << PAGE_SHIFT);
	unsigned int done = 0;
	bool kept;

	while (done < nr) {
		uint64_t a = va + ((uint64_t)done << PAGE_SHIFT);
		int64_t n = s->ops->copy(s, a, src + ((size_t)done << PAGE_SHIFT), nr - done);

		if (n == -EEXIST) {
			/*
			 * Present although the word says OUT: only the program's own memory
			 * management can have put it there, so it is newer than our copy.
			 */
			s->ops->wake(s, a);
			n = 1;
		}
		if (n <= 0)
			return done ? (int64_t)done : n;
		kept = swap_keep(s->mm->swap, f->load.entry, (uint32_t)n);
		for (int64_t i = 0; i < n; i++, a += PAGE_SIZE)
			set_resident_as(s, table_leaf(&s->table, a, false), leaf_index(a), kept,
					gen);
		done += (unsigned int)n;
	}
	return done;
}

/* Fills every page of the folio that is still OUT around the faulting one. lock held. */
static int64_t fill_folio(struct space *s, struct fill *f)
{
	swp_t e = f->load.entry;
	uint64_t base = f->va - ((uint64_t)f->sub << PAGE_SHIFT);
	unsigned int nr = 1u << f->order, first, last;
	int64_t n;

	/*
	 * The faulting page first: its thread waits. It is missing, so it bears no marker. That of a
	 * fill ahead nobody has touched, so it may.
	 */
	if (f->ahead && !skip_guarded(s, f->va, 1))
		return 0;
	n = fill_run(s, f, f->va, f->sub, 1);
	if (n <= 0)
		return n;
	for (first = f->sub; first > 0; first--)
		if (!is_out(s, base + ((uint64_t)(first - 1) << PAGE_SHIFT), e, first - 1))
			break;
	for (last = f->sub + 1; last < nr; last++)
		if (!is_out(s, base + ((uint64_t)last << PAGE_SHIFT), e, last))
			break;
	for (int side = 0; side < 2; side++) {
		unsigned int a = side ? f->sub + 1 : first, b = side ? last : f->sub, good;
		int64_t got = 0;

		if (a >= b)
			continue;
		good = skip_guarded(s, base + ((uint64_t)a << PAGE_SHIFT), b - a);
		if (good)
			got = fill_run(s, f, base + ((uint64_t)a << PAGE_SHIFT), a, good);
		if (got > 0)
			n += got;
	}
	return n;
}

/*
 * The content is lost: poison every page of this space that names it here, so that the thread that
 * touches one gets SIGBUS and nobody reads wrong data. lock held.
 */
static int poison_folio(struct space *s, struct fill *f)
{
	swp_t e = f->load.entry;
	uint64_t base = f->va - ((uint64_t)f->sub << PAGE_SHIFT);

	for (unsigned int i = 0; i < 1u << f->order; i++) {
		uint64_t va = base + ((uint64_t)i << PAGE_SHIFT);
		struct leaf *l;
		int64_t r;

		if (!is_out(s, va, e, i))
			continue;
		r = s->ops->poison(s, va, 1);
		if (r == -EAGAIN && va == f->va)
			return -EAGAIN;
		if (r == -EAGAIN)
			continue; /* it comes again when it is touched */
		l = table_leaf(&s->table, va, false);
		space_drop_word(s, l, leaf_index(va));
		table_set(&s->table, l, leaf_index(va), pw_make(PW_POISONED, 0, 0, 0));
		s->ops->wake(s, va);
		vmstat_add(VMSTAT_pgpoison, 1);
	}
	return 0;
}

/* The load ended. Any thread; no lock held. */
static void fill_done(struct swap_load *load)
{
	struct fill *f = load->priv;
	struct space *s = f->space;
	struct mm *mm = s->mm;
	bool retry, unsealed = load->result == -EAGAIN, ahead = f->ahead;
	int64_t n = 0;

	us_mutex_lock(&s->lock);
	list_del(&f->node);
	if (atomic_load(&s->dead)) {
		/* nobody waits any more */
	} else if (!is_out(s, f->va, load->entry, f->sub)) {
		s->ops->wake(s, f->va); /* something newer happened to the address */
	} else if (load->result && ahead) {
		/* Who touches it will ask, and get the error. */
	} else if (load->result == -EAGAIN) {
		fault_defer(s, f->va, f->write, f->since_ns);
	} else if (load->result) {
		if (poison_folio(s, f) == -EAGAIN)
			fault_defer(s, f->va, f->write, f->since_ns);
	} else {
		n = fill_folio(s, f);
		if (n == -EAGAIN && !ahead)
			fault_defer(s, f->va, f->write, f->since_ns);
		else if (n <= 0)
			s->ops->wake(s, f->va);
		else if (!ahead)
			fault_answered(s, f->since_ns);
	}
	retry = s->nr_deferred > 0;
	us_mutex_unlock(&s->lock);
	if (n > 0)
		mm_account_filled(mm, (uint64_t)n);
	swap_put(mm->swap, load->entry, 1);
	fill_put(mm, f);
	if (retry && !unsealed)
		space_retry(s);
	space_put(s);
}

/* lock held; drops and retakes nothing: the load starts after the caller let go. */
static struct fill *fill_prepare(struct space *s, uint64_t va, pw_t w, unsigned int spare)
{
	struct fill *f = fill_get(s->mm, spare);

	if (!f)
		return NULL;
	f->space = s;
	f->va = va;
	f->sub = pw_sub(w);
	f->order = swap_order(s->mm->swap, pw_entry(w));
	f->write = f->alone = false;
	f->ahead = spare > 0;
	f->since_ns = 0;
	memset(&f->load, 0, sizeof(f->load));
	f->load.entry = pw_entry(w);
	f->load.buf = f->buf;
	f->load.done = fill_done;
	f->load.priv = f;
	list_add_tail(&s->fills, &f->node);
	space_get(s);
	/* The word may be given up as soon as the lock is; the fill keeps the entry. */
	swap_get(s->mm->swap, f->load.entry, 1);
	return f;
}

/* ---- the other states ---- */

static enum fault_result after_copy(struct space *s, uint64_t va, int64_t r)
{
	if (r == -EAGAIN)
		return FAULT_AGAIN;
	if (r < 0)
		s->ops->wake(s, va); /* present, or no longer registered: let it fault again */
	return FAULT_DONE;
}

/* Pages [va, va+nr) of l of which nothing is known, nr >= 1: how many there are from va on. */
static unsigned int count_unknown(const struct leaf *l, uint64_t va, unsigned int nr)
{
	unsigned int idx = leaf_index(va), n = 1;

	nr = MIN(nr, LEAF_PAGES - idx);
	while (n < nr && l->w[idx + n] == 0)
		n++;
	return n;
}

/*
 * How many pages to answer a first touch with. A program that goes through new memory page by page
 * gets the next ones before it asks, in growing steps; each saves it a fault. They count in the
 * budget, so only where there is room to spare. Nothing is lost by it: the kernel fills only what
 * is missing (EEXIST ends it), of one registered mapping (ENOENT), while no event is unread; a page
 * that the program gave up meanwhile would have been read as zeros all the same. lock held.
 */
static unsigned int touch_ahead(struct space *s, const struct leaf *l, uint64_t va)
{
	unsigned int nr = locality_ahead(&s->locality, va, TOUCH_AHEAD_PAGES), known;

	nr = count_unknown(l, va, nr);
	if (nr == 1 || !mm_room_ahead(s->mm, nr))
		return 1;
	known = skip_guarded(s, va + PAGE_SIZE, nr - 1);
	return 1 + known;
}

/* A page that has never been filled by us. Returns pages filled in *filled. lock held. */
static enum fault_result first_touch(struct space *s, uint64_t va, bool write, uint64_t *filled)
{
	struct leaf *l = table_leaf(&s->table, va, true);
	unsigned int nr = 1;
	int64_t r;

	if (!l)
		return FAULT_AGAIN; /* no memory for tables; kswapd may make some */
	if (write) {
		nr = touch_ahead(s, l, va);
		r = s->ops->copy(s, va, zero_pages, nr);
		/* The mapping may end before: then the kernel fills none of them. */
		if (r < 0 && nr > 1)
			r = s->ops->copy(s, va, zero_pages, 1);
	} else {
		r = s->ops->zeropage(s, va);
	}
	if (r >= 0) {
		nr = write ? (unsigned int)r : 1;
		for (unsigned int i = 0; i < nr; i++)
			set_resident(s, l, leaf_index(va) + i);
		locality_touched(&s->locality, va, nr);
		vmstat_add(VMSTAT_pgzerofill, nr);
		*filled = nr;
	}
	return after_copy(s, va, r);
}

/*
 * The word says RESIDENT, yet a thread found the page missing. Either another fault filled it since
 * (EEXIST: wake), or the kernel took it back after MADV_FREE: then zeros are right, and an older
 * copy of ours must not come back. lock held.
 */
static enum fault_result refill_resident(struct space *s, uint64_t va)
{
	struct leaf *l = table_leaf(&s->table, va, false);
	int64_t r = s->ops->copy(s, va, zero_pages, 1);

	if (r > 0)
		set_resident(s, l, leaf_index(va));
	return after_copy(s, va, r);
}

/*
 * Chosen for eviction. With hold on, `moved` is exact: below it the page lies in staging and
 * nowhere else, so it is read from there; at or above it the page was not moved, and with the item
 * cancelled it will not be. Staging is not dropped before the end of the batch has changed every
 * ISOLATED word, which takes the lock held here. lock held.
 */
static enum fault_result fault_isolated(struct space *s, uint64_t va, pw_t w, bool held)
{
	char page[PAGE_SIZE] __attribute__((aligned(4096)));
	struct leaf *l = table_leaf(&s->table, va, false);
	int i = space_find_item(s, va, pw_entry(w));
	struct staged_read rd = {.buf = page, .nr_pages = 1};
	unsigned int sub;
	int64_t r;

	if (!held)
		return FAULT_NEED_HOLD;
	if (i < 0) /* cannot be: every ISOLATED word belongs to an item of the batch */
		return FAULT_AGAIN;
	sub = (unsigned int)((va - s->item[i].va) >> PAGE_SHIFT);
	if (sub >= s->ops->moved(s, (unsigned int)i)) {
		s->ops->cancel(s, (unsigned int)i);
		r = s->ops->copy(s, va, zero_pages, 1);
		if (r >= 0 || r == -EEXIST)
			set_resident(s, l, leaf_index(va));
		return after_copy(s, va, r);
	}
	rd.mode = s->item[i].mode;
	rd.first = (uint16_t)(s->item[i].staging + sub);
	s->ops->read_staged(s, &rd, 1);
	if (rd.err)
		return FAULT_AGAIN;
	r = s->ops->copy(s, va, page, 1);
	if (r >= 0) {
		/* The entry being filled loses this word: the batch holds its own reference. */
		set_resident(s, l, leaf_index(va));
		vmstat_add(VMSTAT_pgactivate, 1);
	}
	return after_copy(s, va, r);
}

/*
 * Reads ahead of a program that goes upwards through memory that is on a disk: folios that follow
 * are on their way before it asks for them, up to READ_AHEAD_BYTES. Called at a fault that starts
 * a load and at one that has caught up with what is on its way, so there is always something on
 * the way. Fills ahead are as safe as others: fill_run() says why. lock held.
 */
static unsigned int prepare_ahead(struct space *s, uint64_t va, struct fill **fills)
{
	struct stream *st = locality_upwards(&s->locality, va, READ_AHEAD_BYTES);
	unsigned int nr = 0;

	while (st && nr < READ_AHEAD_FILLS && st->end - va < READ_AHEAD_BYTES) {
		pw_t w = table_get(&s->table, st->end);
		uint64_t pages;

		if (pw_state(w) != PW_OUT || pw_sub(w) ||
		    fill_in_flight(s, pw_entry(w), st->end, 0))
			break;
		pages = 1ull << swap_order(s->mm->swap, pw_entry(w));
		if (!mm_room_ahead(s->mm, pages))
			break;
		fills[nr] = fill_prepare(s, st->end, w, NR_FILLS / 2);
		if (!fills[nr])
			break;
		st->end += pages << PAGE_SHIFT;
		nr++;
		vmstat_add(VMSTAT_swap_ra, pages);
	}
	return nr;
}

static void start_load(struct fill *f)
{
	swap_load(f->space->mm->swap, &f->load);
}

/* Room for a folio, or word to kswapd that a fault waits. */
static bool need_room(struct space *s, uint64_t va)
{
	/*
	 * A fault inside the batch's own ranges may be the helper's: it must not wait for reclaim,
	 * which waits for the helper.
	 */
	bool urgent = false;

	for (unsigned int i = 0; i < s->nr_items && !urgent; i++)
		urgent = va >= s->item[i].va &&
			 va < s->item[i].va + ((uint64_t)s->item[i].nr << PAGE_SHIFT);
	if (mm_room(s->mm, urgent))
		return true;
	if (s->start_faults) {
		s->start_faults--;
		return true;
	}
	vmstat_add(VMSTAT_allocstall, 1);
	return false;
}

enum fault_result fault_try(struct space *s, uint64_t va, bool write, uint64_t since_ns, bool held)
{
	enum fault_result r = FAULT_DONE;
	struct fill *f = NULL, *ahead[READ_AHEAD_FILLS];
	unsigned int nr_ahead = 0;
	bool major = false;
	uint64_t filled = 0, base;
	struct leaf *l;
	pw_t w;

	us_mutex_lock(&s->lock);
	if (atomic_load(&s->dead)) {
		us_mutex_unlock(&s->lock);
		return FAULT_DONE;
	}
	if (va == s->sentinel && va) {
		r = after_copy(s, va, s->ops->copy(s, va, s->sentinel_page, 1));
		us_mutex_unlock(&s->lock);
		return r;
	}
	w = table_get(&s->table, va);
	if (held && pw_state(w) != PW_ISOLATED) {
		/* A load may end at once and take the reader's lock: not while it is held. */
		us_mutex_unlock(&s->lock);
		return FAULT_AGAIN;
	}
	switch (pw_state(w)) {
	case PW_NONE:
		r = need_room(s, va) ? first_touch(s, va, write, &filled) : FAULT_AGAIN;
		break;
	case PW_RESIDENT:
		r = refill_resident(s, va);
		break;
	case PW_ISOLATED:
		r = fault_isolated(s, va, w, held);
		break;
	case PW_OUT:
		if (fill_in_flight(s, pw_entry(w), va, pw_sub(w))) {
			nr_ahead = prepare_ahead(s, va, ahead);
			r = FAULT_AGAIN;
			break;
		}
		if (!need_room(s, va) || !(f = fill_prepare(s, va, w, 0))) {
			r = FAULT_AGAIN;
			break;
		}
		f->write = write;
		f->since_ns = since_ns;
		major = true;
		l = table_leaf(&s->table, va, false);
		base = va - ((uint64_t)f->sub << PAGE_SHIFT);
		f->alone = !locality_back(&s->locality, l, base, base + (PAGE_SIZE << f->order));
		if (!f->alone && !swap_load_is_fast(s->mm->swap, pw_entry(w)))
			nr_ahead = prepare_ahead(s, va, ahead);
		break;
	case PW_POISONED:
		(void)s->ops->poison(s, va, 1);
		s->ops->wake(s, va);
		break;
	}
	us_mutex_unlock(&s->lock);
	if (filled)
		mm_account_filled(s->mm, filled);
	if (f)
		start_load(f); /* its end is the answer */
	else if (r == FAULT_DONE)
		fault_answered(s, since_ns);
	for (unsigned int i = 0; i < nr_ahead; i++)
		start_load(ahead[i]);
	if (major)
		vmstat_add(VMSTAT_pgmajfault, 1);
	return r;
}
