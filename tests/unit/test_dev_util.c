/* SPDX-License-Identifier: MIT */
#include "test_dev_util.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/rng.h"

char *pages_new(uint32_t nr_pages)
{
	size_t bytes = (size_t)nr_pages << PAGE_SHIFT;
	char *p = mmap(NULL, bytes + PAGE_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + bytes, PAGE_SIZE, PROT_NONE), 0);
	return p;
}

void pages_free(char *p, uint32_t nr_pages)
{
	munmap(p, ((size_t)nr_pages << PAGE_SHIFT) + PAGE_SIZE);
}

void pages_fill(char *p, uint32_t nr_pages, uint64_t seed)
{
	uint64_t *w = (uint64_t *)(void *)p, page_seed;
	struct rng r;

	for (uint32_t i = 0; i < nr_pages; i++) {
		page_seed = seed * 1000003 + i;
		rng_init(&r, page_seed + 1);
		memset(w, 0, PAGE_SIZE);
		/* 96 bytes of noise in each 256. */
		for (size_t at = 0; at < PAGE_SIZE / 8; at += 32)
			for (size_t k = 0; k < 12; k++)
				w[at + k] = rng_next(&r);
		w += PAGE_SIZE / 8;
	}
}

bool pages_are(const char *p, uint32_t nr_pages, uint64_t seed)
{
	static _Thread_local char want[PAGE_SIZE] __attribute__((aligned(8)));
	struct rng r;

	for (uint32_t i = 0; i < nr_pages; i++) {
		uint64_t *w = (uint64_t *)(void *)want;

		rng_init(&r, seed * 1000003 + i + 1);
		memset(w, 0, PAGE_SIZE);
		for (size_t at = 0; at < PAGE_SIZE / 8; at += 32)
			for (size_t k = 0; k < 12; k++)
				w[at + k] = rng_next(&r);
		if (memcmp(want, p + ((size_t)i << PAGE_SHIFT), PAGE_SIZE) != 0)
			return false;
	}
	return true;
}

void pages_fill_noise(char *p, uint32_t nr_pages, uint64_t seed, double noise)
{
	size_t words = (size_t)(noise * (double)(PAGE_SIZE / 8));
	uint64_t *w = (uint64_t *)(void *)p;
	struct rng r;

	rng_init(&r, seed + 1);
	for (uint32_t i = 0; i < nr_pages; i++, w += PAGE_SIZE / 8) {
		memset(w, 0, PAGE_SIZE);
		for (size_t k = 0; k < words; k++)
			w[k] = rng_next(&r);
	}
}

uint64_t dev_pages(struct dev *d)
{
	return atomic_load(&d->stored_pages);
}

uint64_t dev_bytes(struct dev *d)
{
	return atomic_load(&d->stored_bytes);
}

uint64_t dev_errors(struct dev *d)
{
	return atomic_load(&d->errors);
}

char dev_sentence[512];

struct dev *dev_try(make_dev *make, const void *cfg, int *err)
{
	struct dev *d;

	*err = 1;
	memset(dev_sentence, 'x', sizeof(dev_sentence));
	d = make(cfg, err, dev_sentence, sizeof(dev_sentence));
	assert_non_null(memchr(dev_sentence, 0, sizeof(dev_sentence)));
	if (d)
		assert_int_equal(*err, 0);
	else
		assert_true(*err < 0);
	return d;
}

struct dev *dev_made(make_dev *make, const void *cfg)
{
	int err;
	struct dev *d = dev_try(make, cfg, &err);

	if (!d)
		fail_msg("%s", dev_sentence);
	return d;
}

void dev_refused(make_dev *make, const void *cfg, int err, const char *kind, const char *path,
		 const char *words)
{
	char start[256];
	int got;

	assert_null(dev_try(make, cfg, &got));
	if (!strstr(dev_sentence, words))
		fail_msg("\"%s\" does not say \"%s\"", dev_sentence, words);
	assert_int_equal(got, -err);
	snprintf(start, sizeof(start), "%s:%s: ", kind, path);
	assert_int_equal(strncmp(dev_sentence, start, strlen(start)), 0);
	assert_null(strchr(dev_sentence, '\n'));
}

void dev_round_trip(struct dev *d, uint32_t slot, uint32_t nr, uint64_t seed, char *buf, char *out)
{
	pages_fill(buf, nr, seed);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, slot, nr, buf), 0);
	assert_true(pages_are(buf, nr, seed));
	memset(out, 0, (size_t)nr << PAGE_SHIFT);
	assert_int_equal(dev_io_sync(d, DEV_READ, slot, nr, out), 0);
	assert_true(pages_are(out, nr, seed));
}

void gather_done(struct dev_io *io)
{
	struct gather *g = io->priv;

	if (io->result)
		atomic_fetch_add(&g->failed, 1);
	atomic_fetch_sub(&g->left, 1);
}

void gather_wait(struct gather *g)
{
	uint64_t end = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (atomic_load(&g->left)) {
		assert_true(clock_now_ns() < end);
		clock_sleep_ns(50 * NSEC_PER_USEC);
	}
}
