/* SPDX-License-Identifier: MIT */
#include "mm/ranges.h"

#include <string.h>

#include "base/mem.h"

#define BYTES (MAX_RANGES * sizeof(struct addr_range))

void ranges_deinit(struct ranges *s)
{
	if (s->r)
		mem_release(s->r, BYTES);
	*s = (struct ranges){0};
}

/* The first range that ends above (or, with touching, at) addr. */
static unsigned int first_at(const struct ranges *s, uint64_t addr, bool touching)
{
	unsigned int low = 0, high = s->nr;

	while (low < high) {
		unsigned int mid = (low + high) / 2;

		if (s->r[mid].end > addr || (touching && s->r[mid].end == addr))
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Replaces ranges [from, to) by nr_new ones, which are at most two. */
static void replace(struct ranges *s, unsigned int from, unsigned int to,
		    const struct addr_range *new_range, unsigned int nr_new)
{
	if (s->nr - (to - from) + nr_new > MAX_RANGES) {
		s->nr = 0; /* forgets all */
		return;
	}
	memmove(&s->r[from + nr_new], &s->r[to], (s->nr - to) * sizeof(s->r[0]));
	memcpy(&s->r[from], new_range, nr_new * sizeof(s->r[0]));
	s->nr = s->nr - (to - from) + nr_new;
}

void ranges_add(struct ranges *s, uint64_t start, uint64_t end)
{
	struct addr_range r = {start, end};
	unsigned int from, to;

	if (!s->r)
		s->r = mem_reserve(BYTES);
	if (!s->r)
		return;
	from = to = first_at(s, start, true);
	for (; to < s->nr && s->r[to].start <= end; to++) {
		r.start = MIN(r.start, s->r[to].start);
		r.end = MAX(r.end, s->r[to].end);
	}
	replace(s, from, to, &r, 1);
}

void ranges_remove(struct ranges *s, uint64_t start, uint64_t end)
{
	struct addr_range rest[2];
	unsigned int from, to, n = 0;

	from = to = first_at(s, start, false);
	while (to < s->nr && s->r[to].start < end)
		to++;
	if (from == to)
		return;
	if (s->r[from].start < start)
		rest[n++] = (struct addr_range){s->r[from].start, start};
	if (s->r[to - 1].end > end)
		rest[n++] = (struct addr_range){end, s->r[to - 1].end};
	replace(s, from, to, rest, n);
}

bool ranges_overlap(const struct ranges *s, uint64_t start, uint64_t end)
{
	unsigned int i = first_at(s, start, false);

	return i < s->nr && s->r[i].start < end;
}
