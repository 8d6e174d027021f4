/* SPDX-License-Identifier: MIT */
/*
 * xorshift64*: a small, seedable generator for placement decisions and tests.
 * Not for keys: those come from getrandom(2), see base/hash.h.
 */
#ifndef USWAP_BASE_RNG_H
#define USWAP_BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline void rng_init(struct rng *r, uint64_t seed)
{
	r->state = seed ? seed : 0x9e3779b97f4a7c15ull;
}

static inline uint64_t rng_next(struct rng *r)
{
	r->state ^= r->state >> 12;
	r->state ^= r->state << 25;
	r->state ^= r->state >> 27;
	return r->state * 0x2545f4914f6cdd1dull;
}

static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return n ? rng_next(r) % n : 0;
}

#endif
