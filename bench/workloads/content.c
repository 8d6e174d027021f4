/* SPDX-License-Identifier: MIT */
#include "content.h"

#include <lz4.h>

#define UNIT_PAGES_MAX 16
#define SAMPLE_PAGES 64
#define BISECTIONS 14
#define TRIES 32

static uint64_t tag_of(const struct content *c, uint64_t index, uint8_t version)
{
	return mix64(mix64(c->seed) ^ (index << 8 | version));
}

static void fill_tagged(const struct content *c, uint64_t *w, uint64_t tag)
{
	for (size_t i = 0; i < PAGE_WORDS; i++)
		w[i] = tag ^ c->layout[i];
}

static bool is_tagged(const struct content *c, const uint64_t *w, uint64_t tag)
{
	uint64_t difference = 0;

	for (size_t i = 0; i < PAGE_WORDS; i++)
		difference |= w[i] ^ tag ^ c->layout[i];
	return difference == 0;
}

/*
 * literals: the part of steps that add a random word; the others copy 2 to 6 words from earlier in
 * the page. Short runs of both, as a compressor finds them in real memory: half a page of noise and
 * half a page of zeros would have the same ratio and cost it far less time.
 */
static void make_layout(struct content *c, double literals, uint64_t salt)
{
	uint64_t random = mix64(c->seed ^ salt << 48) | 1;
	size_t i = 0;

	while (i < PAGE_WORDS) {
		if (i < 2 || (double)(random_next(&random) >> 11) * 0x1p-53 < literals) {
			c->layout[i++] = mix64(random_next(&random));
			continue;
		}
		size_t from = random_next(&random) % i;
		size_t n = 2 + random_next(&random) % 5;

		for (; n && i < PAGE_WORDS; n--)
			c->layout[i++] = c->layout[from++];
	}
}

static void fill_pieces(const struct content *c, char *to, size_t bytes, uint64_t *index)
{
	uint64_t page[PAGE_WORDS];

	while (bytes) {
		size_t n = c->piece_bytes < bytes ? c->piece_bytes : bytes;

		fill_tagged(c, page, tag_of(c, (*index)++, 0));
		memcpy(to, page, n);
		to += n;
		bytes -= n;
	}
}

double content_measure(const struct content *c, size_t unit_pages)
{
	static char packed[LZ4_COMPRESSBOUND(UNIT_PAGES_MAX * PAGE_BYTES)];
	static uint64_t plain[UNIT_PAGES_MAX * PAGE_WORDS];
	size_t bytes = unit_pages * PAGE_BYTES, stored = 0;

	for (uint64_t at = 0, index = 0; at < SAMPLE_PAGES; at += unit_pages) {
		fill_pieces(c, (char *)plain, bytes, &index);
		size_t n = (size_t)LZ4_compress_default((char *)plain, packed, (int)bytes,
							(int)sizeof(packed));

		stored += n < bytes ? n : bytes;
	}
	return (double)stored / (SAMPLE_PAGES * PAGE_BYTES);
}

/* How far a layout is from the wanted ratio; c->stored becomes what it has. */
static double try_layout(struct content *c, double literals, uint64_t salt, double stored)
{
	make_layout(c, literals, salt);
	c->stored = content_measure(c, 1);
	return c->stored > stored ? c->stored - stored : stored - c->stored;
}

void content_init(struct content *c, uint64_t seed, double stored, size_t piece_bytes)
{
	double low = 0, high = 1, literals = 0.5, nearest = 2, off;
	uint64_t salt = 0;

	c->seed = seed;
	c->piece_bytes = piece_bytes;
	for (int i = 0; i < BISECTIONS; i++) {
		literals = (low + high) / 2;
		try_layout(c, literals, 0, stored);
		if (c->stored > stored)
			high = literals;
		else
			low = literals;
	}
	/* One random word more or less changes all that follow it: the nearest of several. */
	for (uint64_t i = 0; i < TRIES; i++) {
		off = try_layout(c, literals, i, stored);
		if (off < nearest) {
			nearest = off;
			salt = i;
		}
	}
	try_layout(c, literals, salt, stored);
}

void content_fill(const struct content *c, void *page, uint64_t index, uint8_t version)
{
	fill_tagged(c, page, tag_of(c, index, version));
}

bool content_is(const struct content *c, const void *page, uint64_t index, uint8_t version)
{
	return is_tagged(c, page, tag_of(c, index, version));
}

const char *content_judge(const struct content *c, const void *page, uint64_t index,
			  uint8_t version)
{
	const uint64_t *w = page;

	if (content_is(c, page, index, version))
		return "right when read again";
	if (page_is_zero(page))
		return "all zeros";
	for (unsigned int v = 0; v < 256; v++)
		if (content_is(c, page, index, (uint8_t)v))
			return "another version of it";
	if (is_tagged(c, w, w[0] ^ c->layout[0]))
		return "the content of another page";
	return "damaged";
}
