/* SPDX-License-Identifier: MIT */
/* The bitmap of one cluster: 512 slots in 8 words. The lock is the caller's. */
#include "swap/cluster_internal.h"
#include "swap/entry.h"

/* The bits of a word that start a free run of 2^order (order <= 6). */
static uint64_t run_starts(uint64_t used, unsigned int order)
{
	static const uint64_t aligned[7] = {
		UINT64_MAX,
		0x5555555555555555ull,
		0x1111111111111111ull,
		0x0101010101010101ull,
		0x0001000100010001ull,
		0x0000000100000001ull,
		1ull,
	};
	uint64_t f = ~used;

	for (unsigned int k = 0; k < order; k++)
		f &= f >> (1u << k);
	return f & aligned[order];
}

static int find_in_words(const uint64_t *map, unsigned int order, unsigned int from)
{
	unsigned int w = from / 64;
	uint64_t starts = run_starts(map[w], order) & (UINT64_MAX << (from % 64));

	for (unsigned int k = 0; k <= CLUSTER_WORDS; k++) {
		if (starts)
			return (int)(w * 64) + __builtin_ctzll(starts);
		w = (w + 1) % CLUSTER_WORDS;
		starts = run_starts(map[w], order);
	}
	return -1;
}

/* Runs of more than a word. */
static int find_words(const uint64_t *map, unsigned int order, unsigned int from)
{
	unsigned int len = 1u << (order - 6), nr = CLUSTER_WORDS / len;
	unsigned int first = (from + len * 64 - 1) / (len * 64);

	for (unsigned int k = 0; k < nr; k++) {
		unsigned int w = (first + k) % nr * len;
		uint64_t all = 0;

		for (unsigned int i = 0; i < len; i++)
			all |= map[w + i];
		if (!all)
			return (int)(w * 64);
	}
	return -1;
}

int cluster_find_run(const uint64_t *map, unsigned int order, unsigned int from)
{
	return order > 6 ? find_words(map, order, from) : find_in_words(map, order, from);
}

static uint64_t range_mask(unsigned int at, unsigned int n)
{
	return (n == 64 ? UINT64_MAX : (1ull << n) - 1) << (at % 64);
}

unsigned int cluster_count_range(const uint64_t *map, unsigned int at, unsigned int n)
{
	unsigned int count = 0;

	while (n) {
		unsigned int bits = MIN(n, 64 - at % 64);

		count += (unsigned int)__builtin_popcountll(map[at / 64] & range_mask(at, bits));
		at += bits;
		n -= bits;
	}
	return count;
}

unsigned int cluster_count(const uint64_t *map)
{
	return cluster_count_range(map, 0, CLUSTER_SLOTS);
}

void cluster_set_range(uint64_t *map, unsigned int at, unsigned int n, bool on)
{
	while (n) {
		unsigned int bits = MIN(n, 64 - at % 64);
		uint64_t mask = range_mask(at, bits);
		uint64_t *w = &map[at / 64];

		if ((*w & mask) != (on ? 0 : mask))
			swap_bug("slots of a cluster are %s twice", on ? "allocated" : "freed");
		*w = on ? *w | mask : *w & ~mask;
		at += bits;
		n -= bits;
	}
}

unsigned int cluster_free_order(const uint64_t *map, unsigned int at, unsigned int order)
{
	while (order < MAX_ORDER) {
		unsigned int n = 1u << order, buddy = at ^ n;

		if (cluster_count_range(map, buddy, n))
			break;
		at &= ~n;
		order++;
	}
	return order;
}

unsigned int cluster_largest(const uint64_t *map)
{
	unsigned int order = MAX_ORDER + 1;

	while (order && cluster_find_run(map, order - 1, 0) < 0)
		order--;
	return order;
}
