/* SPDX-License-Identifier: MIT */
/* The ram device, and the devices that fail and delay, on top of it and of real ones. */
#include "test_dev_util.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define NR_SLOTS 2048u

static char *buf, *out; /* MAX_FOLIO_PAGES each */

static struct dev *ram_new(void)
{
	int err = 1;
	struct dev *d = dev_ram_create(NR_SLOTS, &err);

	assert_non_null(d);
	assert_int_equal(err, 0);
	return d;
}

static struct dev *fault_new(struct dev *below, struct fault_config cfg)
{
	int err = 1;
	struct dev *d = dev_fault_create(below, &cfg, &err);

	assert_non_null(d);
	assert_int_equal(err, 0);
	return d;
}

static struct dev *delay_new(struct dev *below, struct delay_config cfg)
{
	int err = 1;
	struct dev *d = dev_delay_create(below, &cfg, &err);

	assert_non_null(d);
	assert_int_equal(err, 0);
	return d;
}

/* ---- ram ---- */

static void test_ram_keeps_pages(void **state)
{
	struct dev *d = ram_new();

	assert_string_equal(d->ops->type, "ram");
	assert_false(dev_in_memory(d));
	assert_int_equal(d->max_slots, NR_SLOTS);
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		pages_fill(buf, 1u << o, o);
		assert_int_equal(dev_io_sync(d, DEV_WRITE, 1u << o, 1u << o, buf), 0);
	}
	for (uint32_t o = 0; o <= MAX_ORDER; o++) {
		assert_int_equal(dev_io_sync(d, DEV_READ, 1u << o, 1u << o, out), 0);
		assert_true(pages_are(out, 1u << o, o));
	}
	assert_int_equal(dev_pages(d), 1023);
	d->ops->free_slots(d, 512, 512);
	assert_int_equal(dev_pages(d), 511);
	assert_int_equal(dev_bytes(d), 511 * PAGE_SIZE);
	assert_int_equal(dev_io_sync(d, DEV_READ, 511, 2, out), -EIO);
	assert_int_equal(dev_errors(d), 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 0, 1, buf), -EINVAL);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, NR_SLOTS - 1, 2, buf), -EINVAL);
	dev_destroy(d);
}

/* ---- discard and what else is passed on ---- */

static uint32_t bad_slots[] = {3, 9};
static uint32_t nr_discards, discarded;

static int note_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	nr_discards++;
	discarded += nr;
	return slot == 13 ? -EOPNOTSUPP : 0;
}

/* A ram device that can discard and has what a block device may have. */
static struct dev *ram_with_everything(struct dev_ops *ops)
{
	struct dev *d = ram_new();

	*ops = *d->ops;
	ops->discard = note_discard;
	d->ops = ops;
	d->bad_slots = bad_slots;
	d->nr_bad_slots = 2;
	d->discard_pages = true;
	d->rotational = true;
	nr_discards = discarded = 0;
	return d;
}

static void test_layers_show_what_is_below(void **state)
{
	struct dev_ops ops;
	struct dev *d = delay_new(fault_new(ram_with_everything(&ops), (struct fault_config){0}),
				  (struct delay_config){0});

	assert_ptr_equal(d->bad_slots, bad_slots);
	assert_int_equal(d->nr_bad_slots, 2);
	assert_true(d->discard_pages && d->rotational);
	assert_int_equal(d->ops->discard(d, 40, 10), 0);
	assert_int_equal(d->ops->discard(d, 13, 1), -EOPNOTSUPP);
	assert_int_equal(nr_discards, 2);
	assert_int_equal(discarded, 11);
	dev_destroy(d);
	/* What is not below is not here; copies always pass as reads and writes. */
	d = delay_new(fault_new(ram_new(), (struct fault_config){.discard_eio = 1}),
		      (struct delay_config){.discard_ns = 1});
	assert_null(d->ops->discard);
	dev_destroy(d);
	{
		struct zram_config cfg = {.bytes = MIB(1)};
		int err;
		struct dev *z = dev_zram_create(&cfg, &err);

		assert_non_null(z->ops->copy_slots);
		assert_null(z->ops->discard);
		d = fault_new(z, (struct fault_config){0});
		assert_null(d->ops->copy_slots);
		dev_destroy(d);
	}
}

static void test_discards_fail_by_chance(void **state)
{
	struct dev_ops ops;
	struct dev *d = fault_new(ram_with_everything(&ops),
				  (struct fault_config){.seed = 4, .discard_eio = 0.5});
	uint32_t failed = 0;

	for (int i = 0; i < 400; i++) {
		int r = d->ops->discard(d, 1, 1);

		assert_true(r == 0 || r == -EIO);
		failed += r != 0;
	}
	assert_in_range(failed, 150, 250);
	assert_int_equal(nr_discards, 400 - failed);
	dev_destroy(d);
}

static void test_discards_are_delayed(void **state)
{
	struct dev_ops ops;
	struct dev *d = delay_new(ram_with_everything(&ops),
				  (struct delay_config){.discard_ns = 20 * NSEC_PER_MSEC});
	uint64_t start = clock_now_ns();

	assert_int_equal(d->ops->discard(d, 1, 1), 0);
	assert_true(clock_now_ns() - start >= 20 * NSEC_PER_MSEC);
	assert_int_equal(nr_discards, 1);
	dev_destroy(d);
}

/* ---- fault ---- */

static void test_fault_without_chances_changes_nothing(void **state)
{
	struct zram_config cfg = {.bytes = MIB(8)};
	int err;
	struct dev *z = dev_zram_create(&cfg, &err), *d = fault_new(z, (struct fault_config){0});

	assert_string_equal(d->name, z->name);
	assert_string_equal(d->ops->type, "zram");
	assert_true(dev_in_memory(d));
	assert_null(d->ops->grow);
	assert_int_equal(d->max_slots, z->max_slots);
	assert_int_equal(d->nr_slots, z->max_slots);
	pages_fill(buf, 100, 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 5, 100, buf), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 5, 100, out), 0);
	assert_true(pages_are(out, 100, 1));
	assert_int_equal(dev_pages(d), 100);
	assert_int_equal(dev_bytes(d), dev_bytes(z));
	assert_int_equal(d->ops->memory_bytes(d), z->ops->memory_bytes(z));
	assert_int_equal(d->ops->metadata_bytes(d), z->ops->metadata_bytes(z));
	/* What below refuses is refused here. */
	pages_fill_noise(buf, 1, 1, 1.0);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 5, 1, buf), -E2BIG);
	d->ops->free_slots(d, 1, 200);
	assert_int_equal(dev_pages(d), 0);
	assert_int_equal(dev_errors(d), 0);
	dev_destroy(d);
}

/* A bit for each of 64 * n ios that failed. */
static void failures(struct fault_config cfg, enum dev_op op, int want, uint64_t *map, int n)
{
	struct dev *d = fault_new(ram_new(), cfg);

	pages_fill(buf, 1, 1);
	memset(map, 0, (size_t)n * sizeof(*map));
	if (op == DEV_READ)
		assert_int_equal(dev_io_sync(d, DEV_WRITE, 1, 1, buf), 0);
	for (int i = 0; i < 64 * n; i++) {
		int r = dev_io_sync(d, op, 1, 1, op == DEV_READ ? out : buf);

		assert_true(r == 0 || r == want);
		if (r)
			map[i / 64] |= 1ull << i % 64;
	}
	dev_destroy(d);
}

static int count(const uint64_t *map, int n)
{
	int c = 0;

	for (int i = 0; i < n; i++)
		c += __builtin_popcountll(map[i]);
	return c;
}

static void test_fault_is_the_same_for_a_seed(void **state)
{
	uint64_t a[16], b[16];
	struct fault_config cfg = {.seed = 7, .read_eio = 0.25};

	failures(cfg, DEV_READ, -EIO, a, 16);
	failures(cfg, DEV_READ, -EIO, b, 16);
	assert_memory_equal(a, b, sizeof(a));
	assert_in_range(count(a, 16), 190, 330); /* of 1024 */
	cfg.seed = 8;
	failures(cfg, DEV_READ, -EIO, b, 16);
	assert_memory_not_equal(a, b, sizeof(a));
	/* The other direction is not touched. */
	failures(cfg, DEV_WRITE, -EIO, b, 16);
	assert_int_equal(count(b, 16), 0);
	/* A second kind of fault does not move the first. */
	cfg.seed = 7;
	cfg.corrupt_read = 0.5;
	failures(cfg, DEV_READ, -EIO, b, 16);
	assert_memory_equal(a, b, sizeof(a));
	failures((struct fault_config){.seed = 7, .write_enospc = 1}, DEV_WRITE, -ENOSPC, b, 16);
	assert_int_equal(count(b, 16), 1024);
}

static void test_fault_write_leaves_nothing(void **state)
{
	struct dev *d = fault_new(ram_new(), (struct fault_config){.seed = 1, .write_eio = 1});

	assert_int_equal(dev_io_sync(d, DEV_WRITE, 5, 4, buf), -EIO);
	assert_int_equal(dev_errors(d), 1);
	assert_int_equal(dev_pages(d), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 5, 1, out), -EIO);
	assert_int_equal(dev_errors(d), 2);
	dev_destroy(d);
}

static void test_fault_bad_slot_fails_every_read(void **state)
{
	struct dev *d = fault_new(ram_new(), (struct fault_config){.seed = 1, .bad_slot = 70});

	pages_fill(buf, 64, 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 64, 64, buf), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(dev_io_sync(d, DEV_READ, 70, 1, out), -EIO);
		assert_int_equal(dev_io_sync(d, DEV_READ, 64, 7, out), -EIO);
		assert_int_equal(dev_io_sync(d, DEV_READ, 64, 6, out), 0);
		assert_int_equal(dev_io_sync(d, DEV_READ, 71, 50, out), 0);
	}
	assert_int_equal(dev_errors(d), 40);
	dev_destroy(d);
}

static int bits_that_differ(const char *a, const char *b, size_t n)
{
	int c = 0;

	for (size_t i = 0; i < n; i++)
		c += __builtin_popcount((unsigned char)(a[i] ^ b[i]));
	return c;
}

static void test_fault_corrupts_one_bit_of_a_read(void **state)
{
	struct dev *ram = ram_new();
	struct dev *d = fault_new(ram, (struct fault_config){.seed = 3, .corrupt_read = 1});

	pages_fill(buf, 8, 1);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 8, 8, buf), 0);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(dev_io_sync(d, DEV_READ, 8, 8, out), 0);
		assert_int_equal(bits_that_differ(buf, out, 8 * PAGE_SIZE), 1);
	}
	/* What is stored is whole. */
	assert_int_equal(dev_io_sync(ram, DEV_READ, 8, 8, out), 0);
	assert_int_equal(bits_that_differ(buf, out, 8 * PAGE_SIZE), 0);
	dev_destroy(d);
}

static void test_fault_corrupts_one_bit_of_what_is_stored(void **state)
{
	struct dev *d = fault_new(ram_new(), (struct fault_config){.seed = 3, .corrupt_write = 1});

	/* More often than there are bounce buffers. */
	for (uint64_t i = 0; i < 200; i++) {
		pages_fill(buf, 8, i);
		assert_int_equal(dev_io_sync(d, DEV_WRITE, 8, 8, buf), 0);
		assert_true(pages_are(buf, 8, i)); /* the caller's buffer stays */
		assert_int_equal(dev_io_sync(d, DEV_READ, 8, 8, out), 0);
		assert_int_equal(bits_that_differ(buf, out, 8 * PAGE_SIZE), 1);
	}
	assert_int_equal(dev_errors(d), 0);
	dev_destroy(d);
}

/* ---- delay ---- */

static void test_delay_waits_and_does_not_block_the_submitter(void **state)
{
	enum { N = 100 };
	static struct dev_io io[N];
	struct dev *d = delay_new(ram_new(), (struct delay_config){.write_ns = 30 * NSEC_PER_MSEC});
	struct gather g = {.left = N};
	uint64_t t0, submitted, ended;

	pages_fill(buf, 1, 1);
	t0 = clock_now_ns();
	for (uint32_t i = 0; i < N; i++) {
		io[i] = (struct dev_io){.op = DEV_WRITE, .slot = i + 1, .nr_pages = 1, .buf = buf,
					.done = gather_done, .priv = &g};
		dev_submit(d, &io[i]);
	}
	submitted = clock_now_ns() - t0;
	gather_wait(&g);
	ended = clock_now_ns() - t0;
	assert_int_equal(g.failed, 0);
	assert_true(ended >= 30 * NSEC_PER_MSEC);
	assert_true(submitted < ended);
	/* They wait side by side: one after the other would take 3 s. */
	assert_true(ended < NSEC_PER_SEC);
	assert_int_equal(dev_pages(d), N);
	/* Reads have no delay here. */
	t0 = clock_now_ns();
	assert_int_equal(dev_io_sync(d, DEV_READ, 1, 1, out), 0);
	assert_true(pages_are(out, 1, 1));
	dev_destroy(d);
}

struct order {
	struct dev_io io;
	uint64_t ended_ns;
};

static void order_done(struct dev_io *io)
{
	container_of(io, struct order, io)->ended_ns = clock_now_ns();
	gather_done(io);
}

/* As a disk that serves two at a time: six take as long as three, in the order of their coming. */
static void test_delay_serves_no_more_than_its_depth(void **state)
{
	enum { N = 6 };
	static struct dev_io io[N];
	const uint64_t each = 20 * NSEC_PER_MSEC;
	struct dev *d = delay_new(ram_new(), (struct delay_config){.write_ns = each, .depth = 2});
	struct gather g = {.left = N};
	uint64_t t0, ended;

	(void)state;
	pages_fill(buf, 1, 1);
	t0 = clock_now_ns();
	for (uint32_t i = 0; i < N; i++) {
		io[i] = (struct dev_io){.op = DEV_WRITE, .slot = i + 1, .nr_pages = 1, .buf = buf,
					.done = gather_done, .priv = &g};
		dev_submit(d, &io[i]);
	}
	assert_true(clock_now_ns() - t0 < NSEC_PER_SEC); /* who submits does not wait */
	gather_wait(&g);
	ended = clock_now_ns() - t0;
	assert_int_equal(g.failed, 0);
	assert_int_equal(dev_pages(d), N);
	assert_true(ended >= N / 2 * each);
	assert_true(ended < N / 2 * each + NSEC_PER_SEC);
	/* The places are free again: one alone waits for nobody. */
	t0 = clock_now_ns();
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 1, 1, buf), 0);
	ended = clock_now_ns() - t0;
	assert_true(ended >= each);
	assert_true(ended < each + NSEC_PER_SEC);
	/* All that waits is served before the end. */
	g = (struct gather){.left = N};
	for (uint32_t i = 0; i < N; i++)
		dev_submit(d, &io[i]);
	gather_wait(&g);
	dev_destroy(d);
}

static void test_delay_jitter_reorders(void **state)
{
	enum { N = 64 };
	static struct order o[N];
	struct dev *d = delay_new(ram_new(), (struct delay_config){.write_ns = 20 * NSEC_PER_MSEC,
								   .seed = 4, .jitter = 0.9});
	struct gather g = {.left = N};
	uint64_t t0 = clock_now_ns();
	int reordered = 0;

	for (uint32_t i = 0; i < N; i++) {
		o[i].io = (struct dev_io){.op = DEV_WRITE, .slot = i + 1, .nr_pages = 1,
					  .buf = buf, .done = order_done, .priv = &g};
		dev_submit(d, &o[i].io);
	}
	gather_wait(&g);
	dev_destroy(d);
	for (int i = 0; i < N; i++) {
		assert_true(o[i].ended_ns - t0 >= 2 * NSEC_PER_MSEC);
		reordered += i && o[i].ended_ns < o[i - 1].ended_ns;
	}
	assert_true(reordered > N / 8);
}

static void test_delay_refuses_jitter_out_of_range(void **state)
{
	struct dev *ram = ram_new();
	int err = 0;

	assert_null(dev_delay_create(ram, &(struct delay_config){.jitter = 1.5}, &err));
	assert_int_equal(err, -EINVAL);
	assert_null(dev_delay_create(ram, &(struct delay_config){.jitter = -1}, &err));
	dev_destroy(ram); /* still ours */
}

/* ---- both ---- */

static void test_layers_stack(void **state)
{
	enum { N = 300 };
	static struct dev_io io[N];
	struct file_config cfg = {.path = "/var/tmp/uswap-test-stack", .force = true};
	char sentence[300];
	struct dev *file, *d;
	struct gather g = {.left = N};
	uint32_t have;
	int err;

	file = dev_file_create(&cfg, &err, sentence, sizeof(sentence));
	if (!file)
		skip(); /* no disk to put a file on */
	d = delay_new(fault_new(file, (struct fault_config){.seed = 1, .write_eio = 0.2}),
		      (struct delay_config){.write_ns = NSEC_PER_MSEC, .seed = 2, .jitter = 1});
	assert_string_equal(d->name, cfg.path);
	assert_null(dev_file_engine(d, NULL));
	have = d->nr_slots;
	assert_non_null(d->ops->grow);
	assert_int_equal(d->ops->grow(d, have), have);
	pages_fill(buf, 1, 1);
	for (uint32_t i = 0; i < N; i++) {
		io[i] = (struct dev_io){.op = DEV_WRITE, .slot = i + 1, .nr_pages = 1, .buf = buf,
					.done = gather_done, .priv = &g};
		dev_submit(d, &io[i]);
	}
	gather_wait(&g);
	assert_in_range(g.failed, N / 10, N * 3 / 10);
	assert_int_equal(dev_errors(d), g.failed);
	assert_int_equal(dev_pages(d), N - g.failed);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(dev_io_sync(d, DEV_READ, i + 1, 1, out), io[i].result);
	dev_destroy(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers_show_what_is_below),
		cmocka_unit_test(test_discards_fail_by_chance),
		cmocka_unit_test(test_discards_are_delayed),
		cmocka_unit_test(test_ram_keeps_pages),
		cmocka_unit_test(test_fault_without_chances_changes_nothing),
		cmocka_unit_test(test_fault_is_the_same_for_a_seed),
		cmocka_unit_test(test_fault_write_leaves_nothing),
		cmocka_unit_test(test_fault_bad_slot_fails_every_read),
		cmocka_unit_test(test_fault_corrupts_one_bit_of_a_read),
		cmocka_unit_test(test_fault_corrupts_one_bit_of_what_is_stored),
		cmocka_unit_test(test_delay_waits_and_does_not_block_the_submitter),
		cmocka_unit_test(test_delay_serves_no_more_than_its_depth),
		cmocka_unit_test(test_delay_jitter_reorders),
		cmocka_unit_test(test_delay_refuses_jitter_out_of_range),
		cmocka_unit_test(test_layers_stack),
	};

	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
