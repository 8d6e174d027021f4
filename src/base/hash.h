/* SPDX-License-Identifier: MIT */
/*
 * Keyed 128-bit content hash (XXH3 with a random secret per process).
 *
 * The secret comes from getrandom(2), so that a program cannot craft two pages that collide.
 * It is a checksum with a secret, not an authentication code.
 * Locking: hash_init() once before any thread; hash_folio() needs none.
 */
#ifndef USWAP_BASE_HASH_H
#define USWAP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct hash128 {
	uint64_t lo, hi;
};

/* Draws the secret. 0, or -errno of getrandom(2). */
int hash_init(void) __must_check;
struct hash128 hash_folio(const void *data, size_t bytes);

static inline bool hash_equal(struct hash128 a, struct hash128 b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

#endif
