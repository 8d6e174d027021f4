/* SPDX-License-Identifier: MIT */
/*
 * Memory of an imagined program, whose pages `uswap bench` takes out and brings back through the
 * engine: a small page table of words (entry, page within the folio), and the resident copies.
 *
 * The content of a page follows from the region's seed, the page's number and how often it was
 * written, so no two pages are alike, and a page that is lost, stale, mixed up or damaged is found.
 * The copy of what is out is spoilt, so that it cannot stand in.
 *
 * Not its job: which pages come and go (bench_thp.c).
 * Locking: none; one thread. Blocks on devices. Returns 0 or -errno unless said otherwise.
 */
#ifndef USWAP_CLI_BENCH_REGION_H
#define USWAP_CLI_BENCH_REGION_H

#include "base/util.h"
#include "swap/swap.h"

/* Regions share it with others of the same engine. */
struct bench_engine {
	struct swap *swap;
	bool in_memory; /* its device: loads are over when the call returns */
	uint64_t cached_pages; /* sealed, not written yet */
	bool plant;	       /* flip a bit of the next page that goes out; for tests */
};

struct bench_page {
	swp_t entry;	  /* 0: resident */
	uint32_t version; /* 0: never written, reads as nothing */
	uint16_t sub;	  /* page within the folio of entry */
	bool whole;	  /* resident: goes out with the folio that it is in */
};

struct bench_region {
	struct bench_engine *engine;
	unsigned int order; /* of its folios */
	uint32_t nr_pages;
	uint64_t seed;
	struct bench_page *pages;
	char *mem;     /* resident copies */
	char *scratch; /* one folio */
	uint64_t exploded; /* folios that were taken apart for one of their pages */
	uint64_t whole_loads; /* folios that had to come back whole, since they lay in pieces */
};

/* Nothing is written yet. Order 0 to 9; nr_pages is a multiple of the folio. */
int region_init(struct bench_region *r, struct bench_engine *e, uint32_t nr_pages,
		unsigned int order, uint64_t seed) __must_check;
/* Drops what is out. */
void region_deinit(struct bench_region *r);

/* MADV_DONTNEED and a new content, for the folio that page is in: it is resident and whole. */
void region_rewrite(struct bench_region *r, uint32_t page);
/*
 * A read that faults: brings this page back alone. Where it was in a larger folio, that folio is
 * taken apart: its other pages stay out, as single ones. One that lies in pieces already cannot be,
 * and comes back whole.
 */
int region_touch(struct bench_region *r, uint32_t page) __must_check;
/* The same, but brings back all of the folio that page is in. */
int region_touch_folio(struct bench_region *r, uint32_t page) __must_check;

/*
 * MADV_PAGEOUT for all of it, in order of addresses: whole folios as folios, other resident pages
 * as single ones. They are written when it returns. -ENOSPC: some found no room.
 */
int region_page_out(struct bench_region *r) __must_check;

/* Reads every page without a change to where it is. The number of wrong ones; -errno. */
int64_t region_check(struct bench_region *r) __must_check;

#endif
