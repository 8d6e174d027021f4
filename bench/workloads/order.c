/* SPDX-License-Identifier: MIT */
#include "order.h"

#include <math.h>

#include "../../tests/stress/pages.h"

static uint64_t below(struct order *o, uint64_t n)
{
	/* The high bits of xorshift's words are its better ones. */
	return (uint64_t)(((unsigned __int128)random_next(&o->random) * n) >> 64);
}

static double unit(struct order *o)
{
	return (double)(random_next(&o->random) >> 11) * 0x1p-53;
}

/*
 * Gray et al., Quickly Generating Billion-Record Synthetic Databases (SIGMOD 1994): one draw of
 * Zipf's law without a table.
 */
static void zipf_init(struct order *o)
{
	const double n = (double)o->nr_pages, e = ZIPF_EXPONENT;

	o->zeta = 0;
	for (uint64_t i = 1; i <= o->nr_pages; i++)
		o->zeta += pow(1.0 / (double)i, e);
	o->zeta2 = 1 + pow(0.5, e);
	o->power = 1 / (1 - e);
	o->eta = (1 - pow(2 / n, 1 - e)) / (1 - o->zeta2 / o->zeta);
	for (o->mask = 1; o->mask < o->nr_pages - 1;)
		o->mask = o->mask << 1 | 1;
}

static uint64_t zipf_rank(struct order *o)
{
	double u = unit(o), uz = u * o->zeta;
	uint64_t rank;

	if (uz < 1)
		return 0;
	if (uz < o->zeta2)
		return 1;
	rank = (uint64_t)((double)o->nr_pages * pow(o->eta * u - o->eta + 1, o->power));
	return rank < o->nr_pages ? rank : o->nr_pages - 1;
}

/*
 * A permutation of the pages: a bijection of the next power of two, applied until it falls inside.
 * Frequent pages would otherwise be neighbours, and a folio of them would be hot as a whole.
 */
static uint64_t scatter(const struct order *o, uint64_t rank)
{
	do {
		for (int round = 0; round < 3; round++) {
			rank = (rank * 0x9e3779b97f4a7c15ull + 0x5851f42dull) & o->mask;
			rank ^= rank >> 7;
		}
	} while (rank >= o->nr_pages);
	return rank;
}

void order_init(struct order *o, enum order_kind kind, uint64_t nr_pages, uint64_t stride,
		uint64_t seed)
{
	*o = (struct order){.kind = kind, .nr_pages = nr_pages, .stride = stride,
			    .random = mix64(seed) | 1};
	if (kind == ORDER_ZIPF)
		zipf_init(o);
}

static uint64_t stride_next(struct order *o)
{
	uint64_t page = o->at;
	uint64_t columns = o->stride < o->nr_pages ? o->stride : o->nr_pages;

	o->at += o->stride;
	if (o->at >= o->nr_pages) /* the next column, after the last one the first */
		o->at = (o->at % o->stride + 1) % columns;
	return page;
}

static uint64_t hot_scan_next(struct order *o, uint64_t step)
{
	uint64_t hot = o->nr_pages / PARTS;

	if (step % (HOT_A_STEP + 1))
		return below(o, hot);
	if (o->at < hot || o->at >= o->nr_pages)
		o->at = hot;
	return o->at++;
}

uint64_t order_next(struct order *o)
{
	uint64_t step = o->step++, part = o->nr_pages / PARTS;

	switch (o->kind) {
	case ORDER_FORWARD:
		return step % o->nr_pages;
	case ORDER_BACKWARD:
		return o->nr_pages - 1 - step % o->nr_pages;
	case ORDER_STRIDE:
		return stride_next(o);
	case ORDER_ZIPF:
		return scatter(o, zipf_rank(o));
	case ORDER_HOT_SCAN:
		return hot_scan_next(o, step);
	case ORDER_PHASE:
		return step / o->nr_pages % PARTS * part + below(o, part);
	case ORDER_UNIFORM:
		break;
	}
	return below(o, o->nr_pages);
}
