/* SPDX-License-Identifier: MIT */
/*
 * Block devices, as loop devices over a file. Argument: io_uring or threads, the engine that all
 * tests here use. Exits with 77 if loop devices are not to be had. They are set up so that the
 * kernel takes them down with the last descriptor, however the test ends.
 */
#include "test_dev_util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define DEVICE_BYTES MIB(16)
#define DEVICE_PAGES (DEVICE_BYTES / PAGE_SIZE)

static bool no_io_uring;
static char dir[64], image[96], loop[32];
static int image_fd = -1, loop_fd = -1;
static char *buf, *out; /* MAX_FOLIO_PAGES each */

/* ---- helpers ---- */

/* 0 or -errno. */
static int loop_set_up(void)
{
	struct loop_config cfg = {.info.lo_flags = LO_FLAGS_AUTOCLEAR};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), r = -EBUSY;

	if (control < 0)
		return -errno;
	cfg.fd = (uint32_t)image_fd;
	/* Between the two calls another program may take the number. */
	for (int i = 0; i < 100 && r == -EBUSY; i++) {
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		snprintf(loop, sizeof(loop), "/dev/loop%d", n);
		loop_fd = n < 0 ? -1 : open(loop, O_RDWR | O_CLOEXEC);
		if (loop_fd < 0) {
			r = -errno;
			break;
		}
		r = ioctl(loop_fd, LOOP_CONFIGURE, &cfg) == 0 ? 0 : -errno;
		if (r)
			close(loop_fd);
	}
	close(control);
	return r;
}

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/var/tmp/uswap-test-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(image, sizeof(image), "%s/image", dir);
	image_fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (image_fd < 0 || ftruncate(image_fd, DEVICE_BYTES) != 0)
		return -1;
	return loop_set_up();
}

static int teardown(void **state)
{
	close(loop_fd);
	close(image_fd);
	unlink(image);
	return rmdir(dir);
}

static struct dev *make(const void *cfg, int *err, char *text, size_t len)
{
	struct block_config c = *(const struct block_config *)cfg;

	if (!c.path)
		c.path = loop;
	c.no_io_uring = no_io_uring;
	return dev_block_create(&c, err, text, len);
}

static struct dev *create(const struct block_config *cfg)
{
	return dev_made(make, cfg);
}

static void refused(const struct block_config *cfg, int want_err, const char *words)
{
	dev_refused(make, cfg, want_err, "dev", cfg->path ? cfg->path : loop, words);
}

static void put(uint64_t at, const void *bytes, size_t len)
{
	assert_int_equal(pwrite(loop_fd, bytes, len, (off_t)at), len);
	assert_int_equal(fsync(loop_fd), 0);
}

static void put_word(uint64_t at, uint32_t v)
{
	put(at, &v, sizeof(v));
}

static void put_header(uint32_t last, uint32_t nr_bad, const uint32_t *bad)
{
	put_word(1024, 1);
	put_word(1028, last);
	put_word(1032, nr_bad);
	for (uint32_t i = 0; i < nr_bad; i++)
		put_word(1536 + 4 * i, bad[i]);
	put(4086, "SWAPSPACE2", 10);
}

/* A partition table of the old kind with one partition. */
static void put_partition_table(void)
{
	unsigned char entry[16] = {[4] = 0x83};
	uint32_t first = 2048, sectors = 4096;

	memcpy(entry + 8, &first, 4);
	memcpy(entry + 12, &sectors, 4);
	put(446, entry, sizeof(entry));
	put(510, "\x55\xaa", 2);
}

static void read_page0(char page[PAGE_SIZE])
{
	assert_int_equal(pread(image_fd, page, PAGE_SIZE, 0), PAGE_SIZE);
}

static void round_trip(struct dev *d, uint32_t slot, uint32_t nr, uint64_t seed)
{
	dev_round_trip(d, slot, nr, seed, buf, out);
}

/* Writes everywhere that may be written. */
static void fill_all(struct dev *d)
{
	for (uint32_t slot = 1; slot < d->max_slots; slot += MAX_FOLIO_PAGES)
		round_trip(d, slot, MIN(MAX_FOLIO_PAGES, d->max_slots - slot), slot);
	for (uint32_t slot = 1; slot < d->max_slots; slot += MAX_FOLIO_PAGES) {
		uint32_t nr = MIN(MAX_FOLIO_PAGES, d->max_slots - slot);

		assert_int_equal(dev_io_sync(d, DEV_READ, slot, nr, out), 0);
		assert_true(pages_are(out, nr, slot));
	}
}

/* ---- use ---- */

static void test_blank_device_is_used_whole(void **state)
{
	struct block_config cfg = {0};
	struct dev *d = create(&cfg);
	bool direct = false;
	char zeros[PAGE_SIZE] = {0}, page[PAGE_SIZE];

	assert_string_equal(d->ops->type, "dev");
	assert_string_equal(d->name, loop);
	assert_string_equal(dev_file_engine(d, &direct), no_io_uring ? "threads" : "io_uring");
	assert_true(direct);
	assert_false(dev_in_memory(d));
	assert_null(d->ops->grow);
	assert_null(d->ops->copy_slots);
	assert_int_equal(d->max_slots, DEVICE_PAGES);
	assert_int_equal(d->nr_slots, DEVICE_PAGES);
	assert_int_equal(d->nr_bad_slots, 0);
	fill_all(d);
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 0, 1, buf), -EINVAL);
	assert_int_equal(dev_errors(d), 0);
	dev_destroy(d);
	read_page0(page);
	assert_memory_equal(page, zeros, PAGE_SIZE);
}

static void test_header_is_honoured_and_stays(void **state)
{
	static const uint32_t bad[] = {900, 17};
	struct block_config cfg = {0};
	char before[PAGE_SIZE], after[PAGE_SIZE];
	struct dev *d;

	put_header(1000, 2, bad);
	read_page0(before);
	assert_memory_equal(before + 4086, "SWAPSPACE2", 10);
	d = create(&cfg);
	assert_int_equal(d->max_slots, 1001);
	assert_int_equal(d->nr_bad_slots, 2);
	assert_int_equal(d->bad_slots[0], 17);
	assert_int_equal(d->bad_slots[1], 900);
	fill_all(d);
	dev_destroy(d);
	read_page0(after);
	assert_memory_equal(before, after, PAGE_SIZE);
	/* A smaller SIZE leaves out the bad pages behind it. */
	cfg.bytes = 500 * PAGE_SIZE;
	d = create(&cfg);
	assert_int_equal(d->max_slots, 500);
	assert_int_equal(d->nr_bad_slots, 1);
	dev_destroy(d);
}

static void test_size_limits_the_device(void **state)
{
	struct block_config cfg = {.bytes = MIB(2) + 5};
	struct dev *d = create(&cfg);

	assert_int_equal(d->max_slots, 512);
	fill_all(d);
	dev_destroy(d);
	cfg.bytes = DEVICE_BYTES + 1;
	refused(&cfg, ENOSPC, "give a smaller one or none");
	cfg.bytes = PAGE_SIZE;
	refused(&cfg, EINVAL, "8 KiB or more");
}

static void test_many_ios_at_once(void **state)
{
	enum { N = 600 };
	static struct dev_io io[N];
	struct block_config cfg = {0};
	struct gather g = {.left = N};
	struct dev *d = create(&cfg);

	pages_fill(buf, 1, 5);
	for (uint32_t i = 0; i < N; i++) {
		io[i] = (struct dev_io){.op = DEV_WRITE, .slot = 1 + 3 * i, .nr_pages = 1,
					.buf = buf, .done = gather_done, .priv = &g};
		dev_submit(d, &io[i]);
	}
	gather_wait(&g);
	assert_int_equal(g.failed, 0);
	assert_int_equal(dev_pages(d), N);
	dev_destroy(d);
}

static void test_rotational_is_detected_or_said(void **state)
{
	struct block_config cfg = {.rotational = ROTATIONAL_YES};
	char path[64];
	int detected = 0;
	struct dev *d;
	FILE *f;

	d = create(&cfg);
	assert_true(d->rotational);
	dev_destroy(d);
	cfg.rotational = ROTATIONAL_NO;
	d = create(&cfg);
	assert_false(d->rotational);
	dev_destroy(d);
	snprintf(path, sizeof(path), "/sys/block/%s/queue/rotational", loop + 5);
	f = fopen(path, "r");
	if (!f)
		skip();
	assert_int_equal(fscanf(f, "%d", &detected), 1);
	fclose(f);
	cfg.rotational = ROTATIONAL_DETECT;
	d = create(&cfg);
	assert_int_equal(d->rotational, detected == 1);
	dev_destroy(d);
}

/* ---- refusals ---- */

static void test_other_kinds_of_file_are_refused(void **state)
{
	struct block_config cfg = {.path = image, .force = true};

	refused(&cfg, ENOTBLK, "use file:PATH");
	cfg.path = "/dev/null";
	refused(&cfg, ENOTBLK, "not a block device");
	cfg.path = dir;
	refused(&cfg, ENOTBLK, "not a block device");
	cfg.path = "/dev/uswap-none";
	refused(&cfg, ENOENT, "does not exist");
}

static void test_read_only_is_refused(void **state)
{
	struct block_config cfg = {.force = true};
	int on = 1;

	assert_int_equal(ioctl(loop_fd, BLKROSET, &on), 0);
	refused(&cfg, EROFS, "is read-only");
	on = 0;
	assert_int_equal(ioctl(loop_fd, BLKROSET, &on), 0);
	dev_destroy(create(&cfg));
}

static void test_device_in_use_is_refused(void **state)
{
	struct block_config cfg = {.force = true};
	struct dev *d = create(&cfg);
	int fd;

	refused(&cfg, EBUSY, "is in use by another job");
	dev_destroy(d);
	fd = open(loop, O_RDWR | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0);
	refused(&cfg, EBUSY, "is in use");
	close(fd);
	/* Who has the device cannot lose it while we are there. */
	d = create(&cfg);
	assert_int_equal(open(loop, O_RDWR | O_EXCL | O_CLOEXEC), -1);
	assert_int_equal(errno, EBUSY);
	dev_destroy(d);
}

/* Not a claim in the kernel: found by the lock, after a wait. */
static void test_device_locked_for_long_is_refused(void **state)
{
	struct block_config cfg = {.force = true};
	uint64_t start = clock_now_ns();

	assert_int_equal(flock(loop_fd, LOCK_SH | LOCK_NB), 0);
	refused(&cfg, EBUSY, "is locked by another program");
	assert_in_range(clock_now_ns() - start, NSEC_PER_SEC, 15 * NSEC_PER_SEC);
	assert_int_equal(flock(loop_fd, LOCK_UN), 0);
	dev_destroy(create(&cfg));
}

static void force_overrides(const char *words, int err)
{
	struct block_config cfg = {0};
	char before[PAGE_SIZE], after[PAGE_SIZE];
	struct dev *d;

	read_page0(before);
	refused(&cfg, err, words);
	read_page0(after);
	assert_memory_equal(before, after, PAGE_SIZE);
	cfg.force = true;
	d = create(&cfg);
	fill_all(d);
	dev_destroy(d);
	read_page0(after);
	assert_memory_equal(before, after, PAGE_SIZE);
}

static void test_partition_table_is_refused_unless_forced(void **state)
{
	put_partition_table();
	force_overrides("bears dos partition table", EEXIST);
}

static void test_encrypted_volume_is_refused_unless_forced(void **state)
{
	put(0, "LUKS\xba\xbe\0\1", 8);
	force_overrides("bears crypto_LUKS", EEXIST);
}

static void test_file_system_beside_a_swap_header_is_refused(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "mkfs.ext4 -qF %s >/dev/null 2>&1", loop);
	if (system(command) != 0)
		skip();
	force_overrides("bears ext4", EEXIST);
	put(4086, "SWAPSPACE2", 10);
	{
		struct block_config cfg = {0};

		refused(&cfg, EEXIST, "bears ext4");
	}
}

static void test_bad_header_is_refused_even_if_forced(void **state)
{
	static const uint32_t zero[] = {0};
	struct block_config cfg = {.force = true};

	put_header(0, 0, NULL);
	refused(&cfg, EINVAL, "its last page is 0");
	put_header(DEVICE_PAGES, 0, NULL);
	refused(&cfg, EINVAL, "but the device has 4096; make it anew with mkswap");
	put_header(100, 1, zero);
	refused(&cfg, EINVAL, "names page 0 as bad");
	put_header(100, 0, NULL);
	put_word(1024, 7);
	refused(&cfg, EINVAL, "has version 7");
	put(4086, "SWAP-SPACE", 10);
	refused(&cfg, EINVAL, "old kind");
}

static void test_hibernation_image_is_refused_or_given_up(void **state)
{
	struct block_config cfg = {0};
	char page[PAGE_SIZE], before[PAGE_SIZE];
	struct dev *d;

	put_header(1000, 0, NULL);
	read_page0(before);
	put(4086, "S1SUSPEND\0", 10);
	refused(&cfg, EEXIST, "holds a hibernation image (S1SUSPEND)");
	read_page0(page);
	assert_memory_equal(page + 4086, "S1SUSPEND", 10);
	cfg.force = true;
	d = create(&cfg);
	/* No boot may resume from what is overwritten now: the header is swap's again. */
	read_page0(page);
	assert_memory_equal(page, before, PAGE_SIZE);
	assert_int_equal(d->max_slots, 1001);
	fill_all(d);
	dev_destroy(d);
	/* Where no good header remains, the signature goes and the device counts as blank. */
	put_header(0, 0, NULL);
	put(4086, "LINHIB0001", 10);
	d = create(&cfg);
	read_page0(page);
	memset(before, 0, 10);
	assert_memory_equal(page + 4086, before, 10);
	assert_int_equal(d->max_slots, DEVICE_PAGES);
	dev_destroy(d);
}

static void test_tiny_device_is_refused(void **state)
{
	struct block_config cfg = {0};

	assert_int_equal(ftruncate(image_fd, 4096 + 512), 0);
	assert_int_equal(ioctl(loop_fd, LOOP_SET_CAPACITY, 0), 0);
	refused(&cfg, EINVAL, "needs 8 KiB");
}

/* ---- failure ---- */

static void test_shrunk_device_gives_errors(void **state)
{
	struct block_config cfg = {0};
	struct dev *d = create(&cfg);

	round_trip(d, 100, 10, 1);
	round_trip(d, 3000, 10, 2);
	assert_int_equal(ftruncate(image_fd, MIB(4)), 0);
	assert_int_equal(ioctl(loop_fd, LOOP_SET_CAPACITY, 0), 0);
	assert_int_equal(dev_io_sync(d, DEV_READ, 3000, 10, out), -EIO);
	/* Not ENOSPC, after which it would be tried again. */
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 3000, 10, buf), -EIO);
	/* One that crosses the new end. */
	assert_int_equal(dev_io_sync(d, DEV_WRITE, 1020, 10, buf), -EIO);
	assert_int_equal(dev_io_sync(d, DEV_READ, 1020, 10, out), -EIO);
	assert_int_equal(dev_errors(d), 4);
	assert_int_equal(dev_io_sync(d, DEV_READ, 100, 10, out), 0);
	assert_true(pages_are(out, 10, 1));
	assert_int_equal(dev_pages(d), 10);
	dev_destroy(d);
}

/* ---- discard ---- */

static bool can_discard(void)
{
	uint64_t range[2] = {MIB(8), PAGE_SIZE};

	return ioctl(loop_fd, BLKDISCARD, range) == 0;
}

static uint64_t image_bytes(void)
{
	struct stat st;

	assert_int_equal(fsync(image_fd), 0);
	assert_int_equal(fstat(image_fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void test_discard_gives_back_and_touches_nothing_else(void **state)
{
	struct block_config cfg = {.discard = DISCARD_PAGES};
	uint64_t before;
	struct dev *d;

	if (!can_discard())
		skip();
	put_header(DEVICE_PAGES - 1, 0, NULL);
	d = create(&cfg);
	assert_true(d->discard_pages);
	round_trip(d, 511, 1, 1);
	round_trip(d, 512, 512, 2);
	round_trip(d, 1024, 1, 3);
	before = image_bytes();
	assert_int_equal(d->ops->discard(d, 512, 512), -EINVAL);
	assert_int_equal(d->ops->discard(d, 1, 511), -EINVAL);
	assert_int_equal(d->ops->discard(d, 0, 1), -EINVAL);
	assert_int_equal(d->ops->discard(d, 1500, 0), -EINVAL);
	assert_int_equal(d->ops->discard(d, DEVICE_PAGES - 1, 2), -EINVAL);
	assert_true(image_bytes() >= before);
	d->ops->free_slots(d, 512, 512);
	assert_int_equal(d->ops->discard(d, 512, 512), 0);
	assert_true(image_bytes() <= before - MIB(2) + KIB(64));
	assert_int_equal(dev_io_sync(d, DEV_READ, 511, 1, out), 0);
	assert_true(pages_are(out, 1, 1));
	assert_int_equal(dev_io_sync(d, DEV_READ, 1024, 1, out), 0);
	assert_true(pages_are(out, 1, 3));
	round_trip(d, 512, 512, 4);
	dev_destroy(d);
}

static void test_discard_once_spares_the_header(void **state)
{
	struct block_config cfg = {.discard = DISCARD_ONCE};
	char before[PAGE_SIZE], after[PAGE_SIZE];
	struct dev *d;

	if (!can_discard())
		skip();
	memset(buf, 0xa5, MAX_FOLIO_BYTES);
	for (uint64_t at = 0; at < DEVICE_BYTES; at += MAX_FOLIO_BYTES)
		put(at, buf, MAX_FOLIO_BYTES);
	memset(buf, 0, PAGE_SIZE);
	put(0, buf, PAGE_SIZE);
	put_header(DEVICE_PAGES - 1, 0, NULL);
	read_page0(before);
	assert_true(image_bytes() >= DEVICE_BYTES);
	d = create(&cfg);
	assert_false(d->discard_pages);
	assert_true(image_bytes() <= KIB(128));
	read_page0(after);
	assert_memory_equal(before, after, PAGE_SIZE);
	fill_all(d);
	dev_destroy(d);
}

/* ---- main ---- */

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_blank_device_is_used_whole),
		T(test_header_is_honoured_and_stays),
		T(test_size_limits_the_device),
		T(test_many_ios_at_once),
		T(test_rotational_is_detected_or_said),
		T(test_other_kinds_of_file_are_refused),
		T(test_read_only_is_refused),
		T(test_device_in_use_is_refused),
		T(test_device_locked_for_long_is_refused),
		T(test_partition_table_is_refused_unless_forced),
		T(test_encrypted_volume_is_refused_unless_forced),
		T(test_file_system_beside_a_swap_header_is_refused),
		T(test_bad_header_is_refused_even_if_forced),
		T(test_hibernation_image_is_refused_or_given_up),
		T(test_tiny_device_is_refused),
		T(test_shrunk_device_gives_errors),
		T(test_discard_gives_back_and_touches_nothing_else),
		T(test_discard_once_spares_the_header),
	};
	int r;

	no_io_uring = argc > 1 && strcmp(argv[1], "threads") == 0;
	r = setup(NULL);
	if (r) {
		printf("skipped: no loop devices: %s\n", r < -1 ? strerror(-r) : "/var/tmp");
		if (image_fd >= 0)
			unlink(image);
		(void)rmdir(dir);
		return 77;
	}
	assert_int_equal(teardown(NULL), 0);
	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests_name(no_io_uring ? "dev, threads" : "dev, io_uring", tests, NULL,
					   NULL);
}
