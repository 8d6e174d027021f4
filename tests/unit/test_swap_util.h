/* SPDX-License-Identifier: MIT */
/*
 * For the tests of src/swap: a device that fails as told and watches its caller, folio content
 * that can be made again from a key, and loads that wait.
 */
#ifndef USWAP_TEST_SWAP_UTIL_H
#define USWAP_TEST_SWAP_UTIL_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "swap/internal.h"
#include "trace/vmstat.h"

/*
 * Keeps folios in memory. Aborts if a slot is read that holds nothing, or is written or freed
 * while something else is in flight there.
 */
struct tdev {
	struct dev d;
	struct dev_ops ops;
	char *mem;
	/* by slot, under lock; present: 2 after a write that failed */
	uint8_t *present, *reading, *writing, *dirty; /* dirty: written, and not discarded since */
	struct us_mutex lock;
	struct us_cond wake;
	struct us_thread thread;
	struct list_node queue;
	struct rng rng;
	bool async, hold, stop;
	/* Chances per io, in 1/1000. */
	unsigned int read_eio, write_eio, write_enospc, write_e2big, write_enomem, corrupt;
	/* Reads of this slot fail, so often; under lock. */
	uint32_t bad_slot, bad_reads;
	uint32_t grow_step, grow_limit; /* limit 0: max_slots */
	uint64_t nr_writes, nr_last, nr_copies;
	int discard_result;
	unsigned int max_order; /* largest folio that was written */
};

struct tdev *tdev_create(uint32_t nr_slots, unsigned int flags, bool async);
/* A device that has nr_slots now and grows by step up to max_slots. */
struct tdev *tdev_create_growing(uint32_t nr_slots, uint32_t max_slots, uint32_t step);
/* Gives it a copy_slots(), which fails by write_enomem and write_eio. */
void tdev_can_copy(struct tdev *t);
/* It is told what becomes empty, and says `result` to that. */
void tdev_discards(struct tdev *t, int result);
/* Slots with content that was not discarded, whether it is needed or not. */
uint32_t tdev_nr_dirty(struct tdev *t);
/* Async only: keeps ios back until released. */
void tdev_hold(struct tdev *t, bool hold);
uint32_t tdev_nr_present(struct tdev *t);

/* Content of a folio, as a function of key. */
enum content { CONTENT_ZERO, CONTENT_SAME, CONTENT_RANDOM, CONTENT_TEXT, NR_CONTENTS };
struct key {
	enum content content;
	unsigned int order;
	uint64_t seed;
};
void key_fill(const struct key *k, void *buf);
bool key_matches(const struct key *k, const void *buf);

struct swap *test_swap(uint64_t cache_bytes);
/* Adds t, which must succeed. */
void test_swap_on(struct swap *s, struct tdev *t, int prio);
/* With a device of priority 10 and one of priority 0. */
struct swap *test_swap_on_two(uint64_t cache_bytes, struct tdev *high, struct tdev *low);
/* Checks it and ends it. */
void test_end(struct swap *s);
/* swap_new, fill, swap_seal. Must succeed. */
swp_t test_store(struct swap *s, const struct key *k, enum swap_sealed *how);
/* Loads into buf and waits. */
int test_load(struct swap *s, swp_t e, void *buf);
/* Loads and compares: 0, or what the load said. */
int test_load_matches(struct swap *s, swp_t e, const struct key *k);
/* Content that no other seed and order have. */
struct key test_key(uint64_t seed, unsigned int order);
/* Stores n folios of keys (seed, order), (seed + 1, order)..., and writes all of them out. */
void test_store_written(struct swap *s, swp_t *e, unsigned int n, unsigned int order,
			uint64_t seed);
/* What test_store_written() has stored: loads, compares and drops each; and checks s. */
void test_check_and_put(struct swap *s, const swp_t *e, unsigned int n, unsigned int order,
			uint64_t seed);
enum entry_kind test_kind(struct swap *s, swp_t e);

#endif
