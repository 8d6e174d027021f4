/* SPDX-License-Identifier: MIT */
/*
 * Moving folios out of a space (design: docs/fault-states.md, "a page on its way out").
 *
 * A batch: choose pages that are RESIDENT and old, as folios; make an entry for each; the words
 * become ISOLATED; the helper MOVEs the pages to staging; the supervisor reads staging into the
 * entries' buffers, which makes them part of the swap cache; the words that are still ISOLATED
 * become OUT; staging is emptied.
 *
 * Why no write is lost: UFFDIO_MOVE takes the page out of the page table atomically, so a write
 * comes either before (and is in the page) or after (and faults). Why no DMA is lost: MOVE refuses
 * a pinned page. Why no other memory is taken for ours: rules 1 and 2 close the gate or hold the
 * helper whenever the meaning of an address changes, and event.c settles each ISOLATED word while
 * the helper is held. Only pages that MOVE reported are ever read from staging.
 */
#include "mm/mm.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "trace/vmstat.h"

static uint8_t age_of(struct space *s, pw_t w)
{
	return (uint8_t)(mm_gen(s->mm) - pw_gen(w));
}

static bool eligible(struct space *s, pw_t w, unsigned int min_age)
{
	return pw_state(w) == PW_RESIDENT && age_of(s, w) >= min_age;
}

/* The largest order <= max at idx of which every page is eligible. */
static unsigned int order_at(struct space *s, struct leaf *l, unsigned int idx, unsigned int max,
			     unsigned int min_age)
{
	unsigned int order = idx ? MIN((unsigned int)__builtin_ctz(idx), max) : max;
	unsigned int good = 0;

	while (good < 1u << order && eligible(s, l->w[idx + good], min_age))
		good++;
	while (order && 1u << order > good)
		order--;
	return order;
}

/* The older copy that all pages of the folio still name, page by page; else 0. */
static swp_t kept_copy(struct space *s, struct leaf *l, unsigned int idx, unsigned int order)
{
	swp_t e = pw_entry(l->w[idx]);

	if (!e || swap_order(s->mm->swap, e) != order)
		return 0;
	for (unsigned int i = 0; i < 1u << order; i++)
		if (pw_entry(l->w[idx + i]) != e || pw_sub(l->w[idx + i]) != i)
			return 0;
	return e;
}

/* Makes an item of the folio at (l, idx). 0 or -errno of swap_new(). lock held. */
static int isolate(struct space *s, struct leaf *l, unsigned int idx, uint64_t va,
		   unsigned int order, uint32_t used[NR_AGENT_MODES])
{
	struct batch_item *it = &s->item[s->nr_items];
	swp_t e;
	unsigned int class = atomic_load_explicit(&s->swap_class, memory_order_relaxed);
	int r = swap_new(s->mm->swap, order, class, &e, &it->buf);

	if (r)
		return r;
	swap_set_home(s->mm->swap, e, atomic_load_explicit(&s->cpu, memory_order_relaxed));
	it->va = va;
	it->entry = e;
	it->nr = (uint16_t)(1u << order);
	it->order = (uint8_t)order;
	it->mode = l->mode;
	it->staging = (uint16_t)used[l->mode];
	it->kept = kept_copy(s, l, idx, order);
	used[l->mode] += it->nr;
	for (unsigned int i = 0; i < it->nr; i++) {
		pw_t w = l->w[idx + i];

		/*
		 * With kept, the words' references pass to the item, and stay kept ones: swap may
		 * give the older copy up meanwhile. Then sealing does not find it, and the
		 * content is stored anew.
		 */
		if (!it->kept && pw_entry(w))
			swap_put_kept(s->mm->swap, pw_entry(w), 1);
		table_set(&s->table, l, idx + i, pw_make(PW_ISOLATED, e, i, 0));
	}
	s->nr_items++;
	return 0;
}

struct pick {
	uint64_t want;
	unsigned int min_age;
	uint32_t used[NR_AGENT_MODES];
	int error; /* why it ended early */
};

static bool pick_full(struct space *s, const struct pick *p, unsigned int order)
{
	return s->nr_items == BATCH_ITEMS || p->used[0] + p->used[1] >= p->want ||
	       p->used[0] + (1u << order) > STAGING_PAGES ||
	       p->used[1] + (1u << order) > STAGING_PAGES;
}

/*
 * The order of the folio to make at idx. One that came back from a disk and is there still goes as
 * the same folio, if all of it may go: when it is unchanged it need not be written.
 */
static unsigned int choose_order(struct space *s, struct leaf *l, unsigned int idx,
				 unsigned int max, unsigned int min_age)
{
	swp_t kept = pw_entry(l->w[idx]);
	unsigned int order;

	if (kept && pw_sub(l->w[idx]) == 0) {
		order = swap_order(s->mm->swap, kept);
		if (order < max && order_at(s, l, idx, order, min_age) == order &&
		    kept_copy(s, l, idx, order))
			return order;
	}
	return order_at(s, l, idx, max, min_age);
}

/* Takes what is eligible of one leaf from idx on. Returns false when the batch is full. */
static bool pick_leaf(struct space *s, struct leaf *l, uint64_t base, unsigned int idx,
		      struct pick *p)
{
	unsigned int max = s->mm->cfg.order < 0 ? locality_order(&s->locality, l)
						 : (unsigned int)s->mm->cfg.order;
	bool whole = !idx;
	uint8_t oldest = 0; /* age of the oldest page that stays */

	vmstat_add(VMSTAT_pgscan_kswapd, l->nr_resident);
	while (idx < LEAF_PAGES) {
		uint64_t va = base + ((uint64_t)idx << PAGE_SHIFT);
		unsigned int order;

		if (!eligible(s, l->w[idx], p->min_age)) {
			if (pw_state(l->w[idx]) == PW_RESIDENT)
				oldest = MAX(oldest, age_of(s, l->w[idx]));
			idx++;
			continue;
		}
		order = choose_order(s, l, idx, max, p->min_age);
		if (pick_full(s, p, order)) {
			s->hand = va;
			return false;
		}
		p->error = isolate(s, l, idx, va, order, p->used);
		if (p->error) {
			s->hand = va;
			return false;
		}
		idx += 1u << order;
	}
	if (whole)
		l->oldest_gen = (uint8_t)(mm_gen(s->mm) - oldest);
	s->hand = base + LEAF_BYTES;
	return true;
}

/* One turn of the hand around the table, at most. lock held. */
static void pick(struct space *s, struct pick *p)
{
	uint64_t start = leaf_base(s->hand), va = s->hand, end = 1ull << 47;
	bool wrapped = false;

	while (s->table.nr_resident) {
		uint64_t base = va;
		struct leaf *l = table_next_leaf(&s->table, &base, end);
		unsigned int idx;

		if (!l) {
			if (wrapped)
				return;
			wrapped = true;
			va = 0;
			end = start + LEAF_BYTES;
			continue;
		}
		idx = base == leaf_base(va) ? leaf_index(va) : 0;
		if (l->nr_resident && (uint8_t)(mm_gen(s->mm) - l->oldest_gen) >= p->min_age &&
		    !pick_leaf(s, l, base, idx, p))
			return;
		va = base + LEAF_BYTES;
		s->hand = va;
		if (wrapped && va > start)
			return;
	}
}

/* ---- the end of a batch ---- */

/*
 * What a refusal teaches. EINVAL: the folio spans two mappings (try smaller ones), or the
 * protection is not that of the staging range (try the other). EBUSY: pinned; EAGAIN: an event.
 * ENOENT: no page is there, though we thought so: MADV_FREE took it.
 * All items of a leaf in a batch have the same mode, so each of them says which to try next; were
 * each to change it, an even number of refusals would come to nothing.
 */
static void learn_refusal(struct space *s, struct leaf *l, const struct batch_item *it, int err)
{
	switch (err) {
	case -EINVAL:
		vmstat_add(VMSTAT_pgmove_unevictable, it->nr);
		if (it->order && l->order)
			l->order = it->order - 1;
		else
			l->mode = it->mode ^ 1;
		break;
	case -EBUSY:
		vmstat_add(VMSTAT_pgmove_busy, it->nr);
		if (l->order && it->order)
			l->order = it->order - 1;
		break;
	case -EAGAIN:
		vmstat_add(VMSTAT_pgmove_again, it->nr);
		break;
	default:
		break;
	}
}

/* Settles the words of one item. out: what swap_seal() made of it, or 0. lock held. */
static void finish_item(struct space *s, unsigned int i, unsigned int moved, swp_t out)
{
	struct batch_item *it = &s->item[i];
	struct leaf *l = table_leaf(&s->table, it->va, false);
	int err = moved < it->nr ? s->ops->move_error(s, i) : 0;
	uint32_t refs = 0;

	for (unsigned int k = 0; l && k < it->nr; k++) {
		unsigned int idx = leaf_index(it->va) + k;
		pw_t w = l->w[idx];

		/* Else the page was brought back, given up or moved meanwhile: not ours any more. */
		if (pw_state(w) != PW_ISOLATED || pw_entry(w) != it->entry || pw_sub(w) != k)
			continue;
		if (k < moved) {
			table_set(&s->table, l, idx, pw_make(PW_OUT, out, k, 0));
			refs++;
		} else if (k == moved && err == -ENOENT) {
			table_set(&s->table, l, idx, 0);
			vmstat_add(VMSTAT_pgmove_hole, 1);
		} else {
			table_set(&s->table, l, idx, pw_make(PW_RESIDENT, 0, 0, mm_gen(s->mm)));
		}
	}
	if (refs)
		swap_get(s->mm->swap, out, refs);
	if (refs && out != it->entry && out != it->kept)
		vmstat_add(VMSTAT_swpout_shared, refs);
	if (l && err)
		learn_refusal(s, l, it, err);
	if (it->kept) {
		if (out == it->kept)
			vmstat_add(VMSTAT_swpout_unchanged, moved);
		swap_put_kept(s->mm->swap, it->kept, it->nr);
	}
}

static void seal_item(struct space *s, struct batch_item *it, const struct staged_read *rd,
		      swp_t *out)
{
	unsigned int moved = rd->nr_pages;

	/*
	 * Until its words are settled an event may still turn one of them into a reference to this
	 * very entry, even if sealing finds an equal one and lets go of it.
	 */
	swap_get(s->mm->swap, it->entry, 1);
	if (rd->err) {
		/*
		 * The memory is gone, and with it whoever could have touched the page; a forked
		 * child that shares the entry gets it as lost.
		 */
		swap_mark_lost(s->mm->swap, it->entry);
		*out = it->entry;
		return;
	}
	if (moved < it->nr)
		memset((char *)it->buf + ((size_t)moved << PAGE_SHIFT), 0,
		       (size_t)(it->nr - moved) << PAGE_SHIFT);
	swap_seal(s->mm->swap, it->entry, out);
}

/* out[i] is 0 where nothing was moved. */
static void read_and_seal(struct space *s, const unsigned int *moved, swp_t *out)
{
	struct staged_read rd[BATCH_ITEMS];
	unsigned int nr = 0, k = 0;

	for (unsigned int i = 0; i < s->nr_items; i++) {
		const struct batch_item *it = &s->item[i];

		if (moved[i])
			rd[nr++] = (struct staged_read){.buf = it->buf,
							.mode = it->mode,
							.first = it->staging,
							.nr_pages = (uint16_t)moved[i]};
	}
	s->ops->read_staged(s, rd, nr);
	for (unsigned int i = 0; i < s->nr_items; i++) {
		out[i] = 0;
		if (moved[i])
			seal_item(s, &s->item[i], &rd[k++], &out[i]);
	}
}

/* Runs the batch in s->item. batch_lock held. Returns pages moved. */
static int64_t run_batch(struct space *s)
{
	unsigned int moved[BATCH_ITEMS];
	swp_t out[BATCH_ITEMS];
	uint32_t used[NR_AGENT_MODES] = {0};
	int64_t total = 0;
	bool drop = false;
	int r = s->ops->move(s, s->item, s->nr_items);

	for (unsigned int i = 0; i < s->nr_items; i++) {
		moved[i] = s->ops->moved(s, i);
		total += moved[i];
		/* EEXIST: staging was not empty, as after mlockall(). */
		drop |= moved[i] || s->ops->move_error(s, i) == -EEXIST;
		used[s->item[i].mode] = MAX(used[s->item[i].mode],
					    (uint32_t)s->item[i].staging + s->item[i].nr);
	}
	read_and_seal(s, moved, out);
	us_mutex_lock(&s->lock);
	for (unsigned int i = 0; i < s->nr_items; i++)
		finish_item(s, i, moved[i], out[i]);
	for (unsigned int i = 0; i < s->nr_items; i++) {
		if (out[i]) {
			swap_put(s->mm->swap, out[i], 1);
			swap_put(s->mm->swap, s->item[i].entry, 1);
		} else {
			swap_abandon(s->mm->swap, s->item[i].entry);
		}
	}
	s->nr_items = 0;
	us_mutex_unlock(&s->lock);
	if (r == 0 && drop)
		r = s->ops->drop_staged(s, used);
	if (r)
		log_info("a batch ended early: %s", strerror(-r));
	mm_account_moved(s->mm, (uint64_t)total);
	vmstat_add(VMSTAT_pgsteal_kswapd, (uint64_t)total);
	space_retry(s);
	return total;
}

int64_t space_evict(struct space *s, uint64_t nr_pages, unsigned int min_age)
{
	struct pick p = {.want = nr_pages, .min_age = min_age};
	int64_t r = 0;

	us_mutex_lock(&s->batch_lock);
	if (atomic_load(&s->dead) || !s->ops->can_move(s)) {
		us_mutex_unlock(&s->batch_lock);
		return -EAGAIN;
	}
	us_mutex_lock(&s->lock);
	s->ops->prepare(s);
	pick(s, &p);
	us_mutex_unlock(&s->lock);
	if (s->nr_items)
		r = run_batch(s);
	us_mutex_unlock(&s->batch_lock);
	return r || !p.error ? r : p.error;
}
