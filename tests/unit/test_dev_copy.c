/* SPDX-License-Identifier: MIT */
/* Copying slots inside a zram: what comes out, what is left behind, and who reads meanwhile. */
#include "test_dev_util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/thread.h"
#include "dev/dev_internal.h"

#define NR_SLOTS 8192u

static char *buf, *out; /* MAX_FOLIO_PAGES each */

static struct dev *zram_new(void **state, struct zram_group *group)
{
	struct zram_config cfg = {.bytes = (uint64_t)NR_SLOTS << PAGE_SHIFT, .group = group,
				  .codec = *state ? CODEC_ZSTD : CODEC_LZ4};
	int err = 1;
	struct dev *d = dev_zram_create(&cfg, &err);

	assert_non_null(d);
	return d;
}

static int copy(struct dev *d, uint32_t from, uint32_t to, uint32_t nr)
{
	int r = d->ops->copy_slots(d, from, to, nr);

	dev_zram_check(d);
	return r;
}

static void write_pages(struct dev *d, uint32_t slot, uint32_t nr, uint64_t seed)
{
	pages_fill(buf, nr, seed);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, slot, nr, buf), 0);
}

/* Page by page, so that holes elsewhere do not matter. first: of what pages_fill() made. */
static void expect_page(struct dev *d, uint32_t slot, uint64_t seed, uint32_t page)
{
	pages_fill(buf, page + 1, seed);
	assert_int_equal(dev_io_sync(d, DEV_READ, slot, 1, out), 0);
	assert_memory_equal(out, buf + ((size_t)page << PAGE_SHIFT), PAGE_SIZE);
}

static void expect_empty(struct dev *d)
{
	assert_int_equal(dev_pages(d), 0);
	assert_int_equal(dev_bytes(d), 0);
	dev_zram_check(d);
}

static void test_every_length_is_copied(void **state)
{
	struct dev *d = zram_new(state, NULL);

	for (uint32_t nr = 1; nr <= 512; nr += nr < 40 ? 1 : 59) {
		uint64_t bytes;

		write_pages(d, 1001, nr, nr);
		bytes = dev_bytes(d);
		assert_int_equal(copy(d, 1001, 3007, nr), 0);
		/* The objects as they are: not a byte more or less. */
		assert_int_equal(dev_bytes(d), 2 * bytes);
		assert_int_equal(dev_pages(d), 2 * nr);
		d->ops->free_slots(d, 1001, nr);
		assert_int_equal(dev_bytes(d), bytes);
		assert_int_equal(dev_io_sync(d, DEV_READ, 3007, nr, out), 0);
		assert_true(pages_are(out, nr, nr));
		/* Down again, to below where it was; the head counts from before its slots. */
		assert_int_equal(copy(d, 3007, 1, nr), 0);
		d->ops->free_slots(d, 3007, nr);
		assert_int_equal(dev_io_sync(d, DEV_READ, 1, nr, out), 0);
		assert_true(pages_are(out, nr, nr));
		d->ops->free_slots(d, 1, nr);
		expect_empty(d);
	}
	dev_destroy(d);
}

static void test_raw_parts_are_copied(void **state)
{
	struct dev *d = zram_new(state, NULL);

	pages_fill(buf, 512, 3);
	pages_fill_noise(buf + 64 * PAGE_SIZE, 20, 9, 1.0);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 512, 512, buf), 0);
	assert_int_equal(copy(d, 512, 1024, 512), 0);
	d->ops->free_slots(d, 512, 512);
	assert_int_equal(dev_io_sync(d, DEV_READ, 1024, 512, out), 0);
	assert_memory_equal(buf, out, MAX_FOLIO_BYTES);
	/* One noisy page alone, of a chunk that others need. */
	assert_int_equal(copy(d, 1024 + 70, 9, 1), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 9, 1, out), 0);
	assert_memory_equal(buf + 70 * PAGE_SIZE, out, PAGE_SIZE);
	d->ops->free_slots(d, 9, 1);
	d->ops->free_slots(d, 1024, 512);
	expect_empty(d);
	dev_destroy(d);
}

static void test_holes_stay_holes(void **state)
{
	struct dev *d = zram_new(state, NULL);
	uint64_t bytes;

	write_pages(d, 100, 48, 7);
	d->ops->free_slots(d, 100, 1);
	d->ops->free_slots(d, 105, 3);
	d->ops->free_slots(d, 116, 16); /* a whole chunk */
	d->ops->free_slots(d, 147, 1);
	bytes = dev_bytes(d);
	assert_int_equal(copy(d, 100, 2000, 48), 0);
	assert_int_equal(dev_pages(d), 2 * (48 - 1 - 3 - 16 - 1));
	/* Two pieces of one object are still one object. */
	assert_int_equal(dev_bytes(d), 2 * bytes);
	d->ops->free_slots(d, 100, 48);
	assert_int_equal(dev_bytes(d), bytes);
	for (uint32_t i = 0; i < 48; i++) {
		bool hole = !i || (i >= 5 && i < 8) || (i >= 16 && i < 32) || i == 47;

		if (hole)
			assert_int_equal(dev_io_sync(d, DEV_READ, 2000 + i, 1, out), -EIO);
		else
			expect_page(d, 2000 + i, 7, i);
	}
	d->ops->free_slots(d, 2000, 48);
	expect_empty(d);
	dev_destroy(d);
}

/* A copy of a part must not take the memory of the whole. */
static void test_parts_of_an_object_become_small_ones(void **state)
{
	struct dev *d = zram_new(state, NULL);
	uint64_t bytes;

	write_pages(d, 100, 16, 8);
	bytes = dev_bytes(d);
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t to = 3000 + i * 5;

		assert_int_equal(copy(d, 100 + i, to, 1), 0);
		d->ops->free_slots(d, 100 + i, 1);
		expect_page(d, to, 8, i);
		assert_true(dev_bytes(d) <= bytes + (i + 1) * PAGE_SIZE / 2);
	}
	for (uint32_t i = 0; i < 16; i++) {
		expect_page(d, 3000 + i * 5, 8, i);
		d->ops->free_slots(d, 3000 + i * 5, 1);
	}
	expect_empty(d);
	dev_destroy(d);
}

static void test_wrong_ranges_are_refused(void **state)
{
	struct dev *d = zram_new(state, NULL);

	write_pages(d, 100, 20, 1);
	write_pages(d, 500, 1, 2);
	assert_int_equal(copy(d, 100, 110, 20), -EINVAL);
	assert_int_equal(copy(d, 100, 81, 20), -EINVAL);
	assert_int_equal(copy(d, 100, 100, 20), -EINVAL);
	assert_int_equal(copy(d, 100, 481, 20), -EINVAL); /* its last slot is in use */
	assert_int_equal(copy(d, 0, 300, 1), -EINVAL);
	assert_int_equal(copy(d, 100, 0, 1), -EINVAL);
	assert_int_equal(copy(d, 100, 300, 0), -EINVAL);
	assert_int_equal(copy(d, 100, 1000, 513), -EINVAL);
	assert_int_equal(copy(d, 100, NR_SLOTS - 19, 20), -EINVAL);
	assert_int_equal(copy(d, NR_SLOTS - 19, 300, 20), -EINVAL);
	assert_int_equal(dev_pages(d), 21);
	expect_page(d, 500, 2, 0);
	assert_int_equal(copy(d, 100, 80, 20), 0); /* side by side */
	dev_destroy(d);
}

static void test_damaged_object_leaves_no_half_copy(void **state)
{
	struct dev *d = zram_new(state, NULL);
	unsigned char *object;
	uint64_t bytes;
	size_t len;

	write_pages(d, 100, 64, 1);
	bytes = dev_bytes(d);
	object = dev_zram_object(d, 140, &len);
	object[0] = 31; /* more pages than a chunk has */
	assert_int_equal(copy(d, 100, 1000, 64), -EIO);
	assert_int_equal(dev_pages(d), 64);
	assert_int_equal(dev_bytes(d), bytes);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(dev_io_sync(d, DEV_READ, 1000 + i, 1, out), -EIO);
	expect_page(d, 100, 1, 0);
	object[0] = 16;
	d->ops->free_slots(d, 100, 64);
	expect_empty(d);
	dev_destroy(d);
}

/* At the limit writes fail; a copy may exceed it by 4 MiB and what one copy takes, and no more. */
static void test_copies_exceed_the_limit_a_little(void **state)
{
	struct zram_group g = {.mem_limit = 0};
	struct dev *d = zram_new(state, &g);
	uint64_t limit;
	uint32_t to = 1024;
	int r = 0;

	pages_fill(buf, 512, 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 512, 512, buf), 0);
	limit = d->ops->memory_bytes(d);
	atomic_store(&g.mem_limit, limit);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 1024, 512, buf), -ENOMEM);
	for (; to + 512 <= NR_SLOTS && !r; to += 512)
		r = copy(d, 512, to, 512);
	assert_int_equal(r, -ENOMEM);
	assert_true(d->ops->memory_bytes(d) >= limit + MIB(4));
	assert_true(d->ops->memory_bytes(d) <= limit + MIB(4) + MIB(2));
	to -= 512;
	for (uint32_t i = 0; i < 512; i += 61)
		assert_int_equal(dev_io_sync(d, DEV_READ, to + i, 1, out), -EIO);
	assert_int_equal(dev_io_sync(d, DEV_READ, to - 512, 512, out), 0);
	assert_true(pages_are(out, 512, 1));
	dev_destroy(d);
}

/* ---- threads ---- */

#define NR_READERS 3
#define NR_RUNS 8u
#define RUN_PAGES 40u

struct race {
	struct dev *d;
	_Atomic bool stop;
	_Atomic uint64_t wrong, reads;
};

/* Reads what is copied all the time, whole and in parts. */
static void reader(void *arg)
{
	struct race *r = arg;
	char *mine = pages_new(RUN_PAGES);
	uint64_t n = 0;

	while (!atomic_load(&r->stop)) {
		uint32_t run = (uint32_t)(n++ % NR_RUNS), slot = 100 + run * 64;

		if (dev_io_sync(r->d, DEV_READ, slot, RUN_PAGES, mine) ||
		    !pages_are(mine, RUN_PAGES, run))
			atomic_fetch_add(&r->wrong, 1);
		atomic_fetch_add(&r->reads, 1);
	}
	pages_free(mine, RUN_PAGES);
}

/* Copies, reads the copy, frees it; others free the neighbours of what is copied. */
static void copier(struct race *r, uint32_t area, uint32_t rounds)
{
	char *mine = pages_new(RUN_PAGES);

	for (uint32_t i = 0; i < rounds; i++) {
		uint32_t run = i % NR_RUNS, from = 100 + run * 64, skip = i % 7;
		uint32_t nr = RUN_PAGES - skip - i % 5;

		if (r->d->ops->copy_slots(r->d, from + skip, area, nr) ||
		    dev_io_sync(r->d, DEV_READ, area, nr, mine) ||
		    dev_io_sync(r->d, DEV_READ, from, skip + 1, mine + ((size_t)(nr - 1) << PAGE_SHIFT)))
			atomic_fetch_add(&r->wrong, 1);
		r->d->ops->free_slots(r->d, area, nr);
	}
	pages_free(mine, RUN_PAGES);
}

struct copier_arg {
	struct race *r;
	uint32_t area;
};

static void copier_thread(void *arg)
{
	struct copier_arg *a = arg;

	copier(a->r, a->area, 150);
}

static void test_readers_are_not_disturbed(void **state)
{
	struct race r = {.d = zram_new(state, NULL)};
	struct us_thread readers[NR_READERS], copiers[2];
	struct copier_arg arg[2] = {{&r, 2000}, {&r, 3000}};

	for (uint32_t run = 0; run < NR_RUNS; run++)
		write_pages(r.d, 100 + run * 64, RUN_PAGES, run);
	for (int i = 0; i < NR_READERS; i++)
		assert_int_equal(us_thread_start(&readers[i], "reader", -1, reader, &r), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(us_thread_start(&copiers[i], "copier", -1, copier_thread, &arg[i]), 0);
	for (int i = 0; i < 2; i++)
		us_thread_join(&copiers[i]);
	while (atomic_load(&r.reads) < 100)
		;
	atomic_store(&r.stop, true);
	for (int i = 0; i < NR_READERS; i++)
		us_thread_join(&readers[i]);
	assert_int_equal(r.wrong, 0);
	assert_int_equal(dev_pages(r.d), NR_RUNS * RUN_PAGES);
	dev_zram_check(r.d);
	dev_destroy(r.d);
}

/*
 * Two owners of parts of the same objects: each copies its part, frees the source, and so on, while
 * the other does the same. Who comes last has the object alone.
 */
struct owner {
	struct dev *d;
	uint32_t parity, wrong;
};

static void owner_thread(void *arg)
{
	struct owner *o = arg;
	char *mine = pages_new(1), *want = pages_new(16);

	for (uint32_t chunk = 0; chunk < 64; chunk++) {
		pages_fill(want, 16, chunk);
		for (uint32_t i = o->parity; i < 16; i += 2) {
			uint32_t from = 64 + chunk * 16 + i, to = from + 4096;

			if (o->d->ops->copy_slots(o->d, from, to, 1))
				o->wrong++;
			o->d->ops->free_slots(o->d, from, 1);
			if (dev_io_sync(o->d, DEV_READ, to, 1, mine) ||
			    memcmp(mine, want + ((size_t)i << PAGE_SHIFT), PAGE_SIZE) != 0)
				o->wrong++;
		}
	}
	pages_free(mine, 1);
	pages_free(want, 16);
}

static void test_owners_of_one_object_move_apart(void **state)
{
	struct dev *d = zram_new(state, NULL);
	struct owner o[2] = {{.d = d, .parity = 0}, {.d = d, .parity = 1}};
	struct us_thread t[2];

	for (uint32_t chunk = 0; chunk < 64; chunk++)
		write_pages(d, 64 + chunk * 16, 16, chunk);
	for (int i = 0; i < 2; i++)
		assert_int_equal(us_thread_start(&t[i], "owner", -1, owner_thread, &o[i]), 0);
	for (int i = 0; i < 2; i++)
		us_thread_join(&t[i]);
	assert_int_equal(o[0].wrong + o[1].wrong, 0);
	assert_int_equal(dev_pages(d), 64 * 16);
	dev_zram_check(d);
	d->ops->free_slots(d, 4096 + 64, 64 * 16);
	expect_empty(d);
	dev_destroy(d);
}

/* A model: what each slot should hold, under random writes, copies and frees. */
static void test_random_histories(void **state)
{
	enum { N = 512 };
	static uint64_t seed[N], page[N]; /* seed 0: nothing */
	struct dev *d = zram_new(state, NULL);
	struct rng r;
	uint32_t copies = 0;

	memset(seed, 0, sizeof(seed));
	rng_init(&r, 3);
	for (uint64_t step = 1; step < 1500; step++) {
		uint32_t nr = 1 + (uint32_t)(rng_next(&r) % (step % 3 ? 20 : 60));
		uint32_t a = 1 + (uint32_t)(rng_next(&r) % (N - nr));
		uint32_t b = 1 + (uint32_t)(rng_next(&r) % (N - nr));
		unsigned int what = rng_next(&r) % 4;

		if (what == 0) {
			write_pages(d, a, nr, step);
			for (uint32_t i = 0; i < nr; i++)
				seed[a + i] = step, page[a + i] = i;
		} else if (what == 1) {
			d->ops->free_slots(d, a, nr);
			memset(seed + a, 0, nr * sizeof(*seed));
		} else if ((a < b ? b - a : a - b) >= nr) {
			d->ops->free_slots(d, b, nr);
			assert_int_equal(d->ops->copy_slots(d, a, b, nr), 0);
			memcpy(seed + b, seed + a, nr * sizeof(*seed));
			memcpy(page + b, page + a, nr * sizeof(*page));
			copies++;
		}
		if (step % 75 == 0) {
			dev_zram_check(d);
			for (uint32_t i = 1; i < N; i++) {
				int want = seed[i] ? 0 : -EIO;

				assert_int_equal(dev_io_sync(d, DEV_READ, i, 1, out), want);
				if (seed[i])
					expect_page(d, i, seed[i], (uint32_t)page[i]);
			}
		}
	}
	assert_true(copies > 250);
	d->ops->free_slots(d, 1, N - 1);
	expect_empty(d);
	dev_destroy(d);
}

static int lz4(void **state)
{
	*state = NULL;
	return 0;
}

static int zstd(void **state)
{
	static int yes;

	*state = &yes;
	return 0;
}

#define T(f) cmocka_unit_test_setup(f, lz4), cmocka_unit_test_setup(f, zstd)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_every_length_is_copied),
		T(test_raw_parts_are_copied),
		T(test_holes_stay_holes),
		T(test_parts_of_an_object_become_small_ones),
		T(test_wrong_ranges_are_refused),
		T(test_damaged_object_leaves_no_half_copy),
		T(test_copies_exceed_the_limit_a_little),
		T(test_readers_are_not_disturbed),
		T(test_owners_of_one_object_move_apart),
		T(test_random_histories),
	};

	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests_name("copies", tests, NULL, NULL);
}
