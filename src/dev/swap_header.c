/* SPDX-License-Identifier: MIT */
#include "dev/swap_header.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_AT 1024
#define LAST_PAGE_AT (VERSION_AT + 4)
#define NR_BAD_AT (VERSION_AT + 8)
#define BAD_AT (VERSION_AT + 12 + 16 + 16 + 117 * 4)
_Static_assert(BAD_AT + SWAP_HEADER_MAX_BAD * 4 + SWAP_SIGNATURE_BYTES <= PAGE_SIZE &&
		       BAD_AT + (SWAP_HEADER_MAX_BAD + 1) * 4 + SWAP_SIGNATURE_BYTES > PAGE_SIZE,
	       "the bad pages fill what is left of the page");

static const struct mark {
	const char *bytes;
	size_t len; /* of those that are compared */
	enum swap_header_kind kind;
	const char *name;
} marks[] = {
	{"SWAPSPACE2", 10, SWAP_HEADER_GOOD, "SWAPSPACE2"},
	{"SWAP-SPACE", 10, SWAP_HEADER_BAD, "SWAP-SPACE"},
	{"S1SUSPEND", 9, SWAP_HEADER_HIBERNATION, "S1SUSPEND"},
	{"S2SUSPEND", 9, SWAP_HEADER_HIBERNATION, "S2SUSPEND"},
	{"ULSUSPEND", 9, SWAP_HEADER_HIBERNATION, "ULSUSPEND"},
	{"LINHIB0001", 10, SWAP_HEADER_HIBERNATION, "LINHIB0001"},
	{"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", 8, SWAP_HEADER_HIBERNATION, "TuxOnIce"},
};

static void __printf(2, 3) bad(struct swap_header *h, const char *fmt, ...)
{
	va_list ap;

	h->kind = SWAP_HEADER_BAD;
	h->nr_bad = 0;
	va_start(ap, fmt);
	vsnprintf(h->why, sizeof(h->why), fmt, ap);
	va_end(ap);
}

static uint32_t word(const void *buf, size_t at, bool swapped)
{
	uint32_t v;

	memcpy(&v, (const char *)buf + at, sizeof(v));
	return swapped ? __builtin_bswap32(v) : v;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Takes over the list of bad pages; each must be a page of the area, and there once. */
static void parse_bad_pages(struct swap_header *h, const void *buf, bool swapped)
{
	uint32_t nr = word(buf, NR_BAD_AT, swapped);

	if (nr > SWAP_HEADER_MAX_BAD) {
		bad(h, "names %u bad pages, more than the %u there is room for", nr,
		    SWAP_HEADER_MAX_BAD);
		return;
	}
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t page = word(buf, BAD_AT + 4 * (size_t)i, swapped);

		if (!page || page > h->last_page) {
			bad(h, "names page %u as bad, but its pages are 1 to %u", page,
			    h->last_page);
			return;
		}
		h->bad[i] = page;
	}
	qsort(h->bad, nr, sizeof(h->bad[0]), by_number);
	for (uint32_t i = 1; i < nr; i++)
		if (h->bad[i] == h->bad[i - 1]) {
			bad(h, "names page %u as bad twice", h->bad[i]);
			return;
		}
	if (nr == h->last_page)
		bad(h, "has no page that is not bad");
	else
		h->nr_bad = nr;
}

static void parse_values(struct swap_header *h, const void *buf, uint64_t device_pages)
{
	uint32_t version = word(buf, VERSION_AT, false);
	bool swapped = version == __builtin_bswap32(1);

	if (version != 1 && !swapped) {
		bad(h, "has version %u, and only 1 is known", version);
		return;
	}
	h->last_page = word(buf, LAST_PAGE_AT, swapped);
	if (!h->last_page)
		bad(h, "has no page (its last page is 0)");
	else if (h->last_page >= device_pages)
		bad(h, "has %llu pages, but the device has %llu",
		    (unsigned long long)h->last_page + 1, (unsigned long long)device_pages);
	else
		parse_bad_pages(h, buf, swapped);
}

static const struct mark *find_mark(const char *at)
{
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (!memcmp(at, marks[i].bytes, marks[i].len))
			return &marks[i];
	return NULL;
}

void swap_header_parse(struct swap_header *h, const void *buf, size_t bytes, uint64_t device_pages)
{
	memset(h, 0, sizeof(*h));
	/* Pages of 4 to 64 KiB: the sizes that Linux has on any machine. */
	for (size_t page = PAGE_SIZE; page <= MIN(bytes, SWAP_HEADER_BYTES); page *= 2) {
		uint32_t at = (uint32_t)(page - SWAP_SIGNATURE_BYTES);
		const struct mark *m = find_mark((const char *)buf + at);

		if (!m)
			continue;
		h->kind = m->kind;
		h->signature_at = at;
		if (m->kind == SWAP_HEADER_HIBERNATION)
			snprintf(h->why, sizeof(h->why), "%s", m->name);
		else if (m->kind == SWAP_HEADER_BAD)
			bad(h, "is of the old kind (SWAP-SPACE), which Linux no longer uses");
		else if (page != PAGE_SIZE)
			bad(h, "was made for pages of %zu KiB, and here they have 4", page / 1024);
		else
			parse_values(h, buf, device_pages);
		return;
	}
}
