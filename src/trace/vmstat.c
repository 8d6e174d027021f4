/* SPDX-License-Identifier: MIT */
#include "trace/vmstat.h"

_Atomic uint64_t vmstat_counters[NR_VMSTAT_ITEMS];
const char *const vmstat_names[NR_VMSTAT_ITEMS] = {
#define VMSTAT_NAME(n) #n,
	VMSTAT_ITEMS(VMSTAT_NAME)
#undef VMSTAT_NAME
};
struct order_stat order_stats[MAX_ORDER + 1];
struct hist fault_latency;

/* Values below 8 have a bucket each; above, the three bits under the leading one choose. */
static unsigned int bucket_of(uint64_t ns)
{
	unsigned int msb;

	if (ns < 8)
		return (unsigned int)ns;
	msb = 63 - (unsigned int)__builtin_clzll(ns);
	return (msb - 2) * 8 + (unsigned int)((ns >> (msb - 3)) & 7);
}

static uint64_t bucket_upper(unsigned int b)
{
	unsigned int msb = b / 8 + 2;

	if (b < 8)
		return b;
	return ((8ull + (b & 7) + 1) << (msb - 3)) - 1;
}

void hist_add(struct hist *h, uint64_t ns)
{
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->bucket[bucket_of(ns)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
	while (ns > max && !atomic_compare_exchange_weak(&h->max_ns, &max, ns))
		;
}

uint64_t hist_percentile(struct hist *h, double p)
{
	uint64_t total = atomic_load(&h->count), want, seen = 0;

	if (!total)
		return 0;
	want = (uint64_t)(p * (double)total);
	for (unsigned int b = 0; b < HIST_BUCKETS; b++) {
		seen += atomic_load_explicit(&h->bucket[b], memory_order_relaxed);
		if (seen > want || seen == total)
			return MIN(bucket_upper(b), atomic_load(&h->max_ns));
	}
	return atomic_load(&h->max_ns);
}
