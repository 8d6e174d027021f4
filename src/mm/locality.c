/* SPDX-License-Identifier: MIT */
#include "mm/locality.h"

#include <stddef.h>

/* Orders learnt from faults: up to 256 KiB. */
#define ORDER_MAX_LEARNT 6u
/* Before anything is known: 64 KiB. */
#define ORDER_START 4u
/* Faults over which `sequential` averages, as a shift. */
#define AVERAGE_SHIFT 5u
#define ALL_SEQUENTIAL 256u

void locality_init(struct locality *lo)
{
	*lo = (struct locality){.sequential = ALL_SEQUENTIAL};
}

/* The stream that [start, end) continues, or one that it replaces. */
static struct stream *find_stream(struct streams *ss, uint64_t start, uint64_t end, bool *found)
{
	*found = true;
	for (unsigned int i = 0; i < NR_STREAMS; i++)
		if (ss->at[i].end == start || ss->at[i].start == end)
			return &ss->at[i];
	*found = false;
	return &ss->at[ss->next++ % NR_STREAMS];
}

/* The order of memory that has no history of its own. */
static unsigned int order_of_space(const struct locality *lo)
{
	if (lo->sequential >= ALL_SEQUENTIAL / 2)
		return ORDER_START;
	return lo->sequential >= ALL_SEQUENTIAL / 4 ? ORDER_START / 2 : 0;
}

unsigned int locality_order(const struct locality *lo, const struct leaf *l)
{
	return l->order == ORDER_UNKNOWN ? order_of_space(lo) : l->order;
}

/* Two faults in a row raise the order by one; one out of sequence halves it. */
static void learn(struct leaf *l, bool sequential)
{
	if (!sequential) {
		l->order /= 2;
		l->in_sequence = 0;
	} else if (++l->in_sequence >= 2) {
		l->order = (uint8_t)MIN(l->order + 1u, ORDER_MAX_LEARNT);
		l->in_sequence = 0;
	}
}

bool locality_back(struct locality *lo, struct leaf *l, uint64_t start, uint64_t end)
{
	bool sequential;
	struct stream *st = find_stream(&lo->back, start, end, &sequential);

	*st = (struct stream){
		.start = start, .end = end, .upwards = sequential && st->end == start};
	lo->sequential = (uint16_t)(lo->sequential - (lo->sequential >> AVERAGE_SHIFT));
	if (sequential)
		lo->sequential = (uint16_t)(lo->sequential + (ALL_SEQUENTIAL >> AVERAGE_SHIFT));
	l->order = (uint8_t)locality_order(lo, l);
	learn(l, sequential);
	return sequential;
}

struct stream *locality_upwards(struct locality *lo, uint64_t va, uint64_t bytes)
{
	for (unsigned int i = 0; i < NR_STREAMS; i++) {
		struct stream *st = &lo->back.at[i];

		if (st->upwards && va >= st->start && va < st->end && st->end - va < bytes)
			return st;
	}
	return NULL;
}

unsigned int locality_ahead(struct locality *lo, uint64_t va, unsigned int max)
{
	for (unsigned int i = 0; i < NR_STREAMS; i++)
		if (lo->touch.at[i].end == va)
			return MIN(2u * lo->touch.at[i].ahead, max);
	return 1;
}

void locality_touched(struct locality *lo, uint64_t va, unsigned int nr)
{
	bool found;
	struct stream *st = find_stream(&lo->touch, va, va, &found);

	*st = (struct stream){.start = va,
			      .end = va + ((uint64_t)nr << PAGE_SHIFT),
			      .ahead = (uint16_t)nr};
}
