/* SPDX-License-Identifier: MIT */
#include "test_dev_util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/thread.h"
#include "dev/dev_internal.h"

/* ---- counting malloc: the I/O path must not call it ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static _Atomic unsigned long mallocs;

#ifndef SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
	mallocs++;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
	mallocs++;
	return __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
	mallocs++;
	return __libc_realloc(p, n);
}
#endif

/* ---- helpers ---- */

static char *buf, *out; /* MAX_FOLIO_PAGES each */

static struct dev *zram_new(enum dev_codec codec, uint64_t bytes)
{
	struct zram_config cfg = {.bytes = bytes, .codec = codec};
	int err = 1;
	struct dev *d = dev_zram_create(&cfg, &err);

	assert_non_null(d);
	assert_int_equal(err, 0);
	return d;
}

static enum dev_codec codec_of(void **state)
{
	return *state ? CODEC_ZSTD : CODEC_LZ4;
}

static int write_flags(struct dev *d, uint32_t slot, uint32_t nr, unsigned int flags)
{
	struct gather g = {.left = 1};
	struct dev_io io = {.op = DEV_WRITE, .slot = slot, .nr_pages = nr, .buf = buf,
			    .flags = flags, .done = gather_done, .priv = &g};

	dev_submit(d, &io);
	assert_int_equal(g.left, 0); /* zram ends an io inside submit */
	return io.result;
}

static void free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	d->ops->free_slots(d, slot, nr);
}

static void assert_empty(struct dev *d)
{
	assert_int_equal(dev_pages(d), 0);
	assert_int_equal(dev_bytes(d), 0);
	/* The zpool keeps up to 256 empty pages. */
	assert_in_range(d->ops->memory_bytes(d), 0, 288 * PAGE_SIZE);
	dev_zram_check(d);
}

/* ---- tests ---- */

static void test_every_order_comes_back(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));
	uint64_t pages = 0;

	assert_true(dev_in_memory(d));
	assert_int_equal(d->max_slots, MIB(16) / PAGE_SIZE);
	assert_int_equal(d->nr_slots, d->max_slots);
	assert_null(d->ops->grow);
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		pages_fill(buf, 1u << o, o);
		assert_int_equal(dev_io_sync(d, DEV_WRITE, 1u << o, 1u << o, buf), 0);
		assert_true(pages_are(buf, 1u << o, o));
		pages += 1u << o;
	}
	assert_int_equal(dev_pages(d), pages);
	assert_in_range(dev_bytes(d), pages * 1000, pages * 3072);
	assert_true(d->ops->memory_bytes(d) >= dev_bytes(d));
	assert_true(d->ops->memory_bytes(d) < dev_bytes(d) * 9 / 8 + KIB(256));
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		assert_int_equal(dev_io_sync(d, DEV_READ, 1u << o, 1u << o, out), 0);
		assert_true(pages_are(out, 1u << o, o));
	}
	/* Lengths that are no power of two. */
	for (uint32_t nr = 1; nr < 60; nr += 7) {
		pages_fill(buf, nr, nr);
		assert_int_equal(dev_io_sync(d, DEV_WRITE, 2000, nr, buf), 0);
		assert_int_equal(dev_io_sync(d, DEV_READ, 2000, nr, out), 0);
		assert_true(pages_are(out, nr, nr));
	}
	dev_zram_check(d);
	free_slots(d, 1, d->max_slots - 1);
	assert_empty(d);
	assert_int_equal(dev_errors(d), 0);
	dev_destroy(d);
}

static void test_noise_is_refused(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));

	for (uint32_t nr = 1; nr <= 512; nr *= 8) {
		pages_fill_noise(buf, nr, nr, 1.0);
		assert_int_equal(write_flags(d, 600, nr, 0), -E2BIG);
		assert_int_equal(write_flags(d, 600, nr, DEV_IO_LAST), -E2BIG);
		assert_empty(d);
	}
	assert_int_equal(dev_io_sync(d, DEV_READ, 600, 1, out), -EIO);
	dev_destroy(d);
}

static void test_last_resort_takes_what_shrinks_little(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));

	for (uint32_t nr = 1; nr <= 64; nr *= 4) {
		pages_fill_noise(buf, nr, nr, 0.85);
		assert_int_equal(write_flags(d, 100, nr, 0), -E2BIG);
		assert_empty(d);
		assert_int_equal(write_flags(d, 100, nr, DEV_IO_LAST), 0);
		assert_in_range(dev_bytes(d), nr * PAGE_SIZE * 84 / 100, nr * PAGE_SIZE * 15 / 16);
		assert_int_equal(dev_io_sync(d, DEV_READ, 100, nr, out), 0);
		assert_memory_equal(buf, out, nr * PAGE_SIZE);
		free_slots(d, 100, nr);
		pages_fill_noise(buf, nr, nr, 0.70);
		assert_int_equal(write_flags(d, 100, nr, 0), 0);
		free_slots(d, 100, nr);
		pages_fill_noise(buf, nr, nr, 0.96);
		assert_int_equal(write_flags(d, 100, nr, DEV_IO_LAST), -E2BIG);
		assert_empty(d);
	}
	dev_destroy(d);
}

static void test_large_folio_keeps_a_noisy_part(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));

	pages_fill(buf, 512, 3);
	pages_fill_noise(buf + 64 * PAGE_SIZE, 20, 9, 1.0);
	assert_int_equal(write_flags(d, 512, 512, 0), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 512, 512, out), 0);
	assert_memory_equal(buf, out, 512 * PAGE_SIZE);
	assert_int_equal(dev_io_sync(d, DEV_READ, 512 + 70, 3, out), 0);
	assert_memory_equal(buf + 70 * PAGE_SIZE, out, 3 * PAGE_SIZE);
	dev_zram_check(d);
	free_slots(d, 512, 512);
	assert_empty(d);
	dev_destroy(d);
}

static void test_parts_are_read_and_freed_alone(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));
	uint64_t bytes;

	pages_fill(buf, 40, 5);
	assert_int_equal(write_flags(d, 101, 40, 0), 0);
	for (uint32_t first = 0; first < 40; first += 3)
		for (uint32_t nr = 1; first + nr <= 40; nr += 5) {
			assert_int_equal(dev_io_sync(d, DEV_READ, 101 + first, nr, out), 0);
			assert_memory_equal(buf + first * PAGE_SIZE, out, nr * PAGE_SIZE);
		}
	bytes = dev_bytes(d);
	/* All but page 7 of the first chunk: the chunk stays. */
	free_slots(d, 101, 7);
	free_slots(d, 109, 8);
	assert_int_equal(dev_pages(d), 25);
	assert_int_equal(dev_bytes(d), bytes);
	assert_int_equal(dev_io_sync(d, DEV_READ, 108, 1, out), 0);
	assert_memory_equal(buf + 7 * PAGE_SIZE, out, PAGE_SIZE);
	assert_int_equal(dev_io_sync(d, DEV_READ, 107, 1, out), -EIO);
	assert_int_equal(dev_io_sync(d, DEV_READ, 108, 2, out), -EIO);
	dev_zram_check(d);
	free_slots(d, 108, 1);
	assert_true(dev_bytes(d) < bytes);
	free_slots(d, 101, 40); /* what is free already does not matter */
	assert_empty(d);
	dev_destroy(d);
}

static void test_overwriting_frees_what_was_there(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));

	for (uint64_t i = 0; i < 50; i++) {
		pages_fill(buf, 16, i);
		assert_int_equal(write_flags(d, 32 + (uint32_t)(i % 9), 16, 0), 0);
		assert_int_equal(dev_io_sync(d, DEV_READ, 32 + (uint32_t)(i % 9), 16, out), 0);
		assert_true(pages_are(out, 16, i));
		dev_zram_check(d);
	}
	assert_in_range(dev_pages(d), 16, 24);
	/* One that fails leaves nothing, rather than what was there before. */
	pages_fill_noise(buf, 16, 1, 1.0);
	assert_int_equal(write_flags(d, 32, 16, 0), -E2BIG);
	assert_int_equal(dev_io_sync(d, DEV_READ, 32, 1, out), -EIO);
	free_slots(d, 1, 100);
	assert_empty(d);
	dev_destroy(d);
}

static void test_stored_bytes_of_an_io_add_up(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(16));
	struct gather g = {.left = 2};
	struct dev_io io[2] = {
		{.op = DEV_WRITE, .slot = 1, .nr_pages = 1, .buf = buf},
		{.op = DEV_WRITE, .slot = 2, .nr_pages = 33, .buf = buf},
	};

	pages_fill(buf, 33, 1);
	for (int i = 0; i < 2; i++) {
		io[i].done = gather_done;
		io[i].priv = &g;
		dev_submit(d, &io[i]);
	}
	assert_int_equal(g.failed, 0);
	assert_true(io[0].stored_bytes > 0);
	assert_int_equal(io[0].stored_bytes + io[1].stored_bytes, dev_bytes(d));
	dev_destroy(d);
}

static void test_slots_that_do_not_exist(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(1));

	pages_fill(buf, 2, 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 0, 1, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 256, 1, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 255, 2, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_READ, UINT32_MAX, 2, out), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 1, 0, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 255, 1, buf), 0);
	dev_destroy(d);
}

static void test_create_refuses_nonsense(void **state)
{
	struct zram_config none = {.bytes = 0}, level = {.bytes = MIB(1), .codec = CODEC_ZSTD,
							 .level = 20};
	struct zram_config huge = {.bytes = UINT64_MAX};
	int err = 0;

	assert_null(dev_zram_create(&none, &err));
	assert_int_equal(err, -EINVAL);
	assert_null(dev_zram_create(&level, &err));
	assert_int_equal(err, -EINVAL);
	assert_null(dev_zram_create(&huge, &err));
	assert_int_equal(err, -EINVAL);
	dev_destroy(NULL);
}

/* What one has taken the other cannot, and what one gives back either can have. */
static void test_devices_of_a_group_share_its_limit(void **state)
{
	struct zram_group g = {.mem_limit = MIB(1)};
	struct zram_config cfg = {.bytes = MIB(16), .codec = CODEC_LZ4, .group = &g};
	struct dev *d[2];
	struct rng rng;
	uint32_t n = 0;
	int err;

	(void)state;
	for (int i = 0; i < 2; i++) {
		d[i] = dev_zram_create(&cfg, &err);
		assert_non_null(d[i]);
	}
	/* Half of it noise, so that it compresses to about half. */
	rng_init(&rng, 7);
	memset(buf, 0, PAGE_SIZE);
	for (unsigned int w = 0; w < PAGE_SIZE / 16; w++)
		((uint64_t *)buf)[w] = rng_next(&rng);
	do {
		err = dev_io_sync(d[n & 1], DEV_WRITE, n / 2 + 1, 1, buf);
	} while (!err && ++n < 4000);
	assert_int_equal(err, -ENOMEM);
	assert_int_equal(dev_io_sync(d[0], DEV_WRITE, 3000, 1, buf), -ENOMEM);
	assert_int_equal(dev_io_sync(d[1], DEV_WRITE, 3000, 1, buf), -ENOMEM);
	assert_in_range(atomic_load(&g.used), MIB(1), MIB(1) + KIB(64));
	assert_int_equal(d[0]->ops->memory_room(d[0]), 0);
	dev_destroy(d[0]);
	assert_in_range(atomic_load(&g.used), KIB(400), KIB(624));
	assert_int_equal(dev_io_sync(d[1], DEV_WRITE, 3000, 1, buf), 0);
	dev_destroy(d[1]);
	assert_int_equal(atomic_load(&g.used), 0);
}

static void test_names_count_up(void **state)
{
	struct dev *a = zram_new(CODEC_LZ4, MIB(1)), *b = zram_new(CODEC_LZ4, MIB(1));
	unsigned int na, nb;

	assert_string_equal(a->ops->type, "zram");
	assert_int_equal(sscanf(a->name, "zram%u", &na), 1);
	assert_int_equal(sscanf(b->name, "zram%u", &nb), 1);
	assert_int_equal(nb, na + 1);
	dev_destroy(a);
	dev_destroy(b);
}

static void test_a_tebibyte_costs_nothing_up_front(void **state)
{
	struct dev *d = zram_new(codec_of(state), GIB(1024));
	uint64_t before = d->ops->metadata_bytes(d);

	assert_true(before < KIB(64));
	assert_int_equal(d->ops->memory_bytes(d), 0);
	pages_fill(buf, 16, 4);
	for (uint32_t i = 1; i <= 100; i++)
		assert_int_equal(write_flags(d, d->max_slots - i * 16, 16, 0), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, d->max_slots - 16, 16, out), 0);
	assert_true(pages_are(out, 16, 4));
	/* A context, and 4 bytes a slot. */
	assert_true(d->ops->metadata_bytes(d) < before + MIB(2));
	dev_destroy(d);
}

static void test_tables_cost_five_bytes_a_slot(void **state)
{
	struct dev *d = zram_new(CODEC_LZ4, GIB(1));
	uint64_t before;
	enum { N = 20000 };

	pages_fill(buf, 1, 4);
	assert_int_equal(write_flags(d, 1, 1, 0), 0);
	before = d->ops->metadata_bytes(d);
	for (uint32_t i = 1; i <= N; i++)
		assert_int_equal(write_flags(d, i, 1, 0), 0);
	assert_true(d->ops->metadata_bytes(d) - before <= N * 5 + 2 * PAGE_SIZE);
	dev_destroy(d);
}

static void damage(struct rng *r, unsigned char *obj, size_t bytes)
{
	switch (rng_below(r, 4)) {
	case 0:
		obj[rng_below(r, MIN(bytes, 9u))] = (unsigned char)rng_next(r);
		break;
	case 1:
		memset(obj, (int)rng_below(r, 256), bytes);
		break;
	case 2:
		for (size_t i = 0; i < bytes; i++)
			obj[i] = (unsigned char)rng_next(r);
		break;
	default:
		for (int i = 0; i < 8; i++)
			obj[rng_below(r, bytes)] ^= (unsigned char)(1u << rng_below(r, 8));
	}
}

/* The buffer ends at an inaccessible page, so a decompressor that runs away crashes the test. */
static void test_a_damaged_object_gives_an_error_at_worst(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(1));
	static unsigned char copy[70000];
	unsigned int bad = 0;
	struct rng r;

	rng_init(&r, 5);
	for (uint32_t nr = 1; nr <= 16; nr += 15) {
		char *exact = pages_new(nr);
		unsigned char *obj;
		size_t bytes;

		pages_fill(buf, nr, 6);
		assert_int_equal(write_flags(d, 20, nr, 0), 0);
		obj = dev_zram_object(d, 20, &bytes);
		assert_non_null(obj);
		assert_true(bytes + 2 <= sizeof(copy));
		memcpy(copy, obj, bytes);
		for (int i = 0; i < 600; i++) {
			int res;

			damage(&r, obj, bytes);
			res = dev_io_sync(d, DEV_READ, 20, nr, exact);
			assert_true(res == 0 || res == -EIO);
			bad += res == -EIO;
			if (nr > 1)
				(void)dev_io_sync(d, DEV_READ, 27, 3, exact);
			memcpy(obj, copy, bytes);
		}
		assert_int_equal(dev_io_sync(d, DEV_READ, 20, nr, exact), 0);
		assert_true(pages_are(exact, nr, 6));
		free_slots(d, 20, nr);
		pages_free(exact, nr);
	}
	assert_true(bad > 300);
	assert_true(dev_errors(d) >= bad);
	dev_destroy(d);
}

static void test_io_path_does_not_allocate(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(64));
	struct dev_io io = {.done = gather_done};
	struct gather g = {.left = 100000};
	unsigned long before;
	char *p;

	io.priv = &g;
	io.buf = buf;
	pages_fill(buf, 512, 6);
#ifndef SANITIZED
	p = malloc(1);
	assert_true(mallocs > 0);
	free(p);
#else
	(void)p;
#endif
	before = mallocs;
	/* Small ones after large ones, many times: what makes zstd shrink its tables. */
	for (uint32_t i = 0; i < 200; i++) {
		io.op = DEV_WRITE;
		io.nr_pages = i == 100 ? 512 : 1u << (i % 5);
		io.slot = 1 + i * 16;
		dev_submit(d, &io);
		io.op = DEV_READ;
		dev_submit(d, &io);
		io.nr_pages = 1;
		dev_submit(d, &io);
	}
	d->ops->free_slots(d, 1, 4000);
	assert_int_equal(mallocs, before);
	assert_int_equal(g.failed, 0);
	dev_destroy(d);
}

/* Four threads on slots of their own; a folio shared by all is freed by all. */
struct worker {
	struct us_thread t;
	struct dev *d;
	uint32_t base;
	unsigned int wrong;
};

static void worker_run(void *arg)
{
	struct worker *w = arg;
	char *in = pages_new(32), *back = pages_new(32);

	for (uint32_t i = 0; i < 150; i++) {
		uint32_t nr = 1u << (i % 6), slot = w->base + i % 13 * 32;

		pages_fill(in, nr, w->base + i);
		if (dev_io_sync(w->d, DEV_WRITE, slot, nr, in) != 0)
			w->wrong++;
		if (dev_io_sync(w->d, DEV_READ, slot, nr, back) != 0 ||
		    !pages_are(back, nr, w->base + i))
			w->wrong++;
		if (i % 3 == 0)
			w->d->ops->free_slots(w->d, slot, nr);
	}
	for (uint32_t i = 0; i < 4; i++)
		w->d->ops->free_slots(w->d, 1 + (w->base >> 12) * 4 + i, 1);
	pages_free(in, 32);
	pages_free(back, 32);
}

static void test_four_threads_at_once(void **state)
{
	struct dev *d = zram_new(codec_of(state), MIB(128));
	static struct worker w[4];

	pages_fill(buf, 16, 1);
	assert_int_equal(write_flags(d, 1, 16, 0), 0);
	for (uint32_t i = 0; i < 4; i++) {
		w[i] = (struct worker){.d = d, .base = i << 12};
		if (!i)
			w[i].base = 64;
		assert_int_equal(us_thread_start(&w[i].t, "worker", -1, worker_run, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		us_thread_join(&w[i].t);
		assert_int_equal(w[i].wrong, 0);
	}
	dev_zram_check(d);
	assert_int_equal(dev_io_sync(d, DEV_READ, 1, 1, out), -EIO);
	free_slots(d, 1, d->max_slots - 1);
	assert_empty(d);
	dev_destroy(d);
}

#define BOTH(f) {#f "(lz4)", f, NULL, NULL, NULL}, {#f "(zstd)", f, NULL, NULL, (void *)1}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_every_order_comes_back),
		BOTH(test_noise_is_refused),
		BOTH(test_last_resort_takes_what_shrinks_little),
		BOTH(test_large_folio_keeps_a_noisy_part),
		BOTH(test_parts_are_read_and_freed_alone),
		BOTH(test_overwriting_frees_what_was_there),
		BOTH(test_stored_bytes_of_an_io_add_up),
		BOTH(test_slots_that_do_not_exist),
		cmocka_unit_test(test_create_refuses_nonsense),
		cmocka_unit_test(test_devices_of_a_group_share_its_limit),
		cmocka_unit_test(test_names_count_up),
		BOTH(test_a_tebibyte_costs_nothing_up_front),
		cmocka_unit_test(test_tables_cost_five_bytes_a_slot),
		BOTH(test_a_damaged_object_gives_an_error_at_worst),
		BOTH(test_io_path_does_not_allocate),
		BOTH(test_four_threads_at_once),
	};

	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
