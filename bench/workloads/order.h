/* SPDX-License-Identifier: MIT */
/*
 * In which order pages are visited. Each order has its own state and belongs to one thread.
 *
 * forward, backward   every page once a pass
 * stride              every page once a pass, as a matrix stored by rows is read by columns
 * uniform             any page, each as likely
 * zipf                ranks by Zipf's law (exponent 0.99, as YCSB has it), scattered over the pages
 * hot_scan            a quarter of the pages visited at random, between the steps of a scan over
 *                     the others: HOT_A_STEP visits to one
 * phase               uniform within a quarter of the pages, another quarter each pass
 */
#ifndef USWAP_BENCH_ORDER_H
#define USWAP_BENCH_ORDER_H

#include <stdint.h>

#define HOT_A_STEP 4
#define PARTS 4 /* the hot part, and that of a phase: one of so many */
#define ZIPF_EXPONENT 0.99

enum order_kind {
	ORDER_FORWARD,
	ORDER_BACKWARD,
	ORDER_STRIDE,
	ORDER_UNIFORM,
	ORDER_ZIPF,
	ORDER_HOT_SCAN,
	ORDER_PHASE,
};

struct order {
	enum order_kind kind;
	uint64_t nr_pages, stride;
	uint64_t step; /* visits so far */
	uint64_t at;   /* of a stride and of a scan: the next page */
	uint64_t random;
	uint64_t mask;		    /* zipf: of the permutation */
	double zeta, zeta2, power, eta; /* zipf */
};

/* nr_pages: at least PARTS. stride: in pages; only for ORDER_STRIDE. O(nr_pages) for zipf. */
void order_init(struct order *o, enum order_kind kind, uint64_t nr_pages, uint64_t stride,
		uint64_t seed);

/* The number of the page to visit next. */
uint64_t order_next(struct order *o);

#endif
