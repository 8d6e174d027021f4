/* SPDX-License-Identifier: MIT */
#include "cli/bench_region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/mem.h"

LOCK_CLASS(load_class, "bench_load", RANK_ENTRY);

/* So many pages are put into the cache before they are written, as by an eviction of the job. */
#define BATCH_PAGES 256u
#define PAGE_WORDS (PAGE_SIZE / sizeof(uint64_t))
/* So much of a resident copy is wiped when it goes out. Drawn content is not zero there. */
#define STALE_BYTES 64
/* Others hold an entry for a moment: a load that is done, in a thread of the device; a mover. */
#define BUSY_TRIES 50
#define BUSY_TRIES_IN_MEMORY 3

/* ---- content ---- */

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Every fourth word is drawn, those behind it repeat it: lz4 stores somewhat more than a third. */
static uint64_t first_word(const struct bench_region *r, uint32_t page)
{
	return mix(mix(r->seed) ^ ((uint64_t)page << 32 | r->pages[page].version));
}

static void make_content(const struct bench_region *r, uint32_t page, uint64_t *w)
{
	uint64_t key = first_word(r, page);

	for (unsigned int i = 0; i < PAGE_WORDS; i += 4)
		w[i] = w[i + 1] = w[i + 2] = w[i + 3] = mix(key + i);
}

static bool content_is_right(const struct bench_region *r, uint32_t page, const void *mem)
{
	const uint64_t *w = mem;
	uint64_t key = first_word(r, page), wrong = 0;

	for (unsigned int i = 0; i < PAGE_WORDS; i += 4) {
		uint64_t v = mix(key + i);

		wrong |= (w[i] ^ v) | (w[i + 1] ^ v) | (w[i + 2] ^ v) | (w[i + 3] ^ v);
	}
	return !wrong;
}

/* ---- set-up ---- */

static char *page_mem(const struct bench_region *r, uint32_t page)
{
	return r->mem + (size_t)page * PAGE_SIZE;
}

static uint32_t folio_of(const struct bench_region *r, uint32_t page)
{
	return (uint32_t)align_down(page, 1u << r->order);
}

int region_init(struct bench_region *r, struct bench_engine *e, uint32_t nr_pages,
		unsigned int order, uint64_t seed)
{
	*r = (struct bench_region){
		.engine = e, .order = order, .nr_pages = nr_pages, .seed = seed};
	r->pages = calloc(nr_pages, sizeof(*r->pages));
	r->mem = mem_reserve((size_t)nr_pages * PAGE_SIZE);
	r->scratch = mem_reserve(PAGE_SIZE << order);
	if (r->pages && r->mem && r->scratch)
		return 0;
	region_deinit(r);
	return -ENOMEM;
}

/* The words of a folio that name one entry are dropped together. */
static void drop_words(struct bench_region *r, uint32_t page, uint32_t nr)
{
	for (uint32_t i = 0, n; i < nr; i += n) {
		swp_t e = r->pages[page + i].entry;

		for (n = 0; i + n < nr && r->pages[page + i + n].entry == e; n++)
			r->pages[page + i + n].entry = 0;
		if (e)
			swap_put(r->engine->swap, e, n);
	}
}

void region_deinit(struct bench_region *r)
{
	if (r->pages)
		drop_words(r, 0, r->nr_pages);
	free(r->pages);
	mem_release(r->mem, (size_t)r->nr_pages * PAGE_SIZE);
	mem_release(r->scratch, PAGE_SIZE << r->order);
	*r = (struct bench_region){0};
}

void region_rewrite(struct bench_region *r, uint32_t page)
{
	uint32_t first = folio_of(r, page);

	drop_words(r, first, 1u << r->order);
	for (uint32_t p = first; p < first + (1u << r->order); p++) {
		r->pages[p].version++;
		r->pages[p].whole = true;
		make_content(r, p, (uint64_t *)(void *)page_mem(r, p));
	}
}

/* ---- in ---- */

struct waited_load {
	struct swap_load load;
	struct us_mutex lock;
	struct us_cond done;
	bool is_done; /* protected by lock */
};

static void load_done(struct swap_load *l)
{
	struct waited_load *w = container_of(l, struct waited_load, load);

	us_mutex_lock(&w->lock);
	w->is_done = true;
	us_cond_signal(&w->done);
	us_mutex_unlock(&w->lock);
}

static int load(struct swap *s, swp_t e, void *buf)
{
	struct waited_load w = {.load = {.entry = e, .buf = buf, .done = load_done}};

	us_mutex_init(&w.lock, &load_class);
	us_cond_init(&w.done);
	swap_load(s, &w.load);
	us_mutex_lock(&w.lock);
	while (!w.is_done)
		us_cond_wait(&w.done, &w.lock);
	us_mutex_unlock(&w.lock);
	us_mutex_deinit(&w.lock);
	us_cond_deinit(&w.done);
	return w.load.result;
}

/*
 * Takes the folio apart that is in scratch, but for the page `sub`, whose slot comes free. All its
 * words are those of this region, since it was made for them. -EBUSY: it is not in one piece.
 */
static int explode(struct bench_region *r, uint32_t first, swp_t e, uint32_t sub)
{
	struct swap *s = r->engine->swap;
	uint32_t nr = 1u << r->order;
	swp_t out[MAX_FOLIO_PAGES];
	uint64_t live[MAX_FOLIO_PAGES / 64] = {0};
	int err;

	for (uint32_t i = 0; i < nr; i++)
		if (i != sub)
			live[i / 64] |= 1ull << (i % 64);
	err = swap_explode(s, e, nr, r->scratch, live, out);
	for (int tries = r->engine->in_memory ? BUSY_TRIES_IN_MEMORY : BUSY_TRIES;
	     err == -EBUSY && tries; tries--) {
		clock_sleep_ns(20 * NSEC_PER_USEC);
		err = swap_explode(s, e, nr, r->scratch, live, out);
	}
	if (err)
		return err;
	r->exploded++;
	for (uint32_t i = 0; i < nr; i++) {
		r->pages[first + i].entry = i == sub ? 0 : out[i];
		r->pages[first + i].sub = 0;
	}
	return 0;
}

static void make_resident(struct bench_region *r, uint32_t page, uint32_t nr, const void *content,
			  bool whole)
{
	memcpy(page_mem(r, page), content, (size_t)nr * PAGE_SIZE);
	for (uint32_t p = page; p < page + nr; p++)
		r->pages[p].whole = whole;
}

/* Do all words of the folio at first name one entry, and is that all there is of it? */
static bool is_out_whole(const struct bench_region *r, uint32_t first)
{
	swp_t e = r->pages[first].entry;

	for (uint32_t i = 0; i < 1u << r->order; i++)
		if (r->pages[first + i].entry != e || r->pages[first + i].sub != i)
			return false;
	return e && swap_order(r->engine->swap, e) == r->order;
}

/* The caller has seen that it is out whole. */
static int load_folio(struct bench_region *r, uint32_t first)
{
	int err = load(r->engine->swap, r->pages[first].entry, r->scratch);

	if (err)
		return err;
	drop_words(r, first, 1u << r->order);
	make_resident(r, first, 1u << r->order, r->scratch, true);
	return 0;
}

static int load_single(struct bench_region *r, uint32_t page)
{
	int err = load(r->engine->swap, r->pages[page].entry, r->scratch);

	if (err)
		return err;
	drop_words(r, page, 1);
	make_resident(r, page, 1, r->scratch, r->order == 0);
	return 0;
}

int region_touch(struct bench_region *r, uint32_t page)
{
	uint32_t first = folio_of(r, page), sub = page - first;
	swp_t e = r->pages[page].entry;
	int err;

	if (!e)
		return 0;
	if (!r->order || !is_out_whole(r, first))
		return load_single(r, page);
	err = load(r->engine->swap, e, r->scratch);
	if (err)
		return err;
	err = explode(r, first, e, sub);
	if (err == -EBUSY) {
		r->whole_loads++;
		return load_folio(r, first);
	}
	if (err)
		return err;
	make_resident(r, page, 1, r->scratch + (size_t)sub * PAGE_SIZE, false);
	return 0;
}

int region_touch_folio(struct bench_region *r, uint32_t page)
{
	uint32_t first = folio_of(r, page);
	int err = 0;

	if (is_out_whole(r, first))
		return load_folio(r, first);
	for (uint32_t i = 0; i < 1u << r->order && !err; i++)
		err = region_touch(r, first + i);
	return err;
}

/* ---- out ---- */

static int write_cached(struct bench_engine *e)
{
	while (e->cached_pages) {
		int64_t left = swap_writeout(e->swap, e->cached_pages);

		if (left < 0)
			return (int)left;
		if (!left)
			return -EIO;
		e->cached_pages -= MIN(e->cached_pages, (uint64_t)left);
	}
	return 0;
}

static int new_entry(struct bench_engine *e, unsigned int order, swp_t *out, void **buf)
{
	int err = swap_new(e->swap, order, 0, out, buf);

	if (err != -ENOBUFS)
		return err;
	err = write_cached(e);
	return err ? err : swap_new(e->swap, order, 0, out, buf);
}

/* -EEXIST: the content is not what this benchmark is about (same-filled, or there already). */
static int put_out(struct bench_region *r, uint32_t page, unsigned int order)
{
	struct bench_engine *eng = r->engine;
	uint32_t nr = 1u << order;
	swp_t e, sealed;
	char *buf;
	int err = new_entry(eng, order, &e, (void **)&buf);

	if (err)
		return err;
	memcpy(buf, page_mem(r, page), (size_t)nr * PAGE_SIZE);
	if (eng->plant)
		buf[PAGE_SIZE / 2] ^= 1;
	eng->plant = false;
	if (swap_seal(eng->swap, e, &sealed) != SWAP_SEALED_CACHED) {
		swap_put(eng->swap, sealed, 1);
		return -EEXIST;
	}
	/* The copy here must not stand in for what is out. */
	for (uint32_t i = 0; i < nr; i++)
		memset(page_mem(r, page + i), 0, STALE_BYTES);
	/* The creator's reference becomes that of the first word. */
	swap_get(eng->swap, e, nr - 1);
	for (uint32_t i = 0; i < nr; i++) {
		r->pages[page + i].entry = e;
		r->pages[page + i].sub = (uint16_t)i;
	}
	eng->cached_pages += nr;
	return eng->cached_pages >= BATCH_PAGES ? write_cached(eng) : 0;
}

static bool is_resident_whole(const struct bench_region *r, uint32_t first)
{
	for (uint32_t i = 0; i < 1u << r->order; i++)
		if (r->pages[first + i].entry || !r->pages[first + i].whole)
			return false;
	return true;
}

int region_page_out(struct bench_region *r)
{
	int err = 0;

	for (uint32_t first = 0; first < r->nr_pages && !err; first += 1u << r->order) {
		if (is_resident_whole(r, first)) {
			err = put_out(r, first, r->order);
			continue;
		}
		for (uint32_t p = first; p < first + (1u << r->order) && !err; p++)
			if (!r->pages[p].entry)
				err = put_out(r, p, 0);
	}
	return err ? err : write_cached(r->engine);
}

/* ---- check ---- */

int64_t region_check(struct bench_region *r)
{
	swp_t loaded = 0;
	int64_t wrong = 0;

	for (uint32_t page = 0; page < r->nr_pages; page++) {
		const struct bench_page *p = &r->pages[page];
		const char *mem = page_mem(r, page);

		if (p->entry) {
			if (p->entry != loaded) {
				int err = load(r->engine->swap, p->entry, r->scratch);

				if (err)
					return err;
				loaded = p->entry;
			}
			mem = r->scratch + (size_t)p->sub * PAGE_SIZE;
		}
		wrong += !content_is_right(r, page, mem);
	}
	return wrong;
}
