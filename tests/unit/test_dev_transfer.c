/* SPDX-License-Identifier: MIT */
/*
 * What the file device makes of short and failed transfers. A scripted engine takes the place of
 * the real ones: it returns the results of the script, in order, then does all of what is left.
 */
#include "test_dev_util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dev/file_internal.h"

static struct {
	int64_t result[16]; /* bytes to transfer, or -errno; ends with END */
	int at;
	int64_t always; /* nonzero: after the script, this error for ever */
	int calls;
} script;

#define END INT64_MIN

static char *buf, *out;

static int64_t scripted_transfer(struct file_dev *f, struct dev_io *io)
{
	struct file_rest r = file_io_rest(io);
	int64_t want = script.result[script.at];

	script.calls++;
	if (want != END)
		script.at++;
	else
		want = script.always ? script.always : (int64_t)r.bytes;
	if (want <= 0)
		return want;
	assert_true(want <= (int64_t)r.bytes);
	return io->op == DEV_READ ? pread(f->fd, r.buf, (size_t)want, (off_t)r.offset)
				  : pwrite(f->fd, r.buf, (size_t)want, (off_t)r.offset);
}

static void scripted_submit(struct file_dev *f, struct dev_io *io)
{
	while (!file_io_step(f, io, scripted_transfer(f, io)))
		;
}

static int scripted_start(struct file_dev *f)
{
	return 0;
}

static void scripted_stop(struct file_dev *f)
{
}

static const struct file_engine_ops scripted_ops = {
	.name = "scripted",
	.start = scripted_start,
	.submit = scripted_submit,
	.stop = scripted_stop,
};

/* Buffered, since the script cuts transfers at any byte. */
static struct dev *scripted_new(void)
{
	struct file_config cfg = {.path = "/var/tmp/uswap-test-transfer", .bytes = MIB(1),
				  .force = true, .no_direct = true, .no_io_uring = true};
	struct file_dev *f;
	struct dev *d;
	int err;

	d = dev_file_create(&cfg, &err, NULL, 0);
	if (!d)
		skip(); /* no disk to put a file on */
	f = container_of(d, struct file_dev, d);
	f->engine->stop(f);
	f->engine = &scripted_ops;
	return d;
}

static void set_script(const int64_t *results, int64_t always)
{
	memset(&script, 0, sizeof(script));
	for (int i = 0;; i++) {
		script.result[i] = results[i];
		if (results[i] == END)
			break;
	}
	script.always = always;
}

#define SCRIPT(always, ...) set_script((const int64_t[]){__VA_ARGS__ END}, always)

static int submit(struct dev *d, enum dev_op op, char *p)
{
	return dev_io_sync(d, op, 10, 8, p);
}

static void test_short_transfers_are_finished(void **state)
{
	struct dev *d = scripted_new();

	pages_fill(buf, 8, 1);
	SCRIPT(0, 1, 4095, 512, 20000, );
	assert_int_equal(submit(d, DEV_WRITE, buf), 0);
	assert_int_equal(script.calls, 5);
	SCRIPT(0, 5000, 1, 1, );
	assert_int_equal(submit(d, DEV_READ, out), 0);
	assert_int_equal(script.calls, 4);
	assert_true(pages_are(out, 8, 1));
	dev_destroy(d);
}

static void test_interruptions_are_retried(void **state)
{
	struct dev *d = scripted_new();

	pages_fill(buf, 8, 2);
	SCRIPT(0, -EINTR, -EAGAIN, 4096, -EINTR, -ENOMEM, -ECANCELED, );
	assert_int_equal(submit(d, DEV_WRITE, buf), 0);
	SCRIPT(0, -EAGAIN, 100, -EINTR, );
	assert_int_equal(submit(d, DEV_READ, out), 0);
	assert_true(pages_are(out, 8, 2));
	assert_int_equal(dev_errors(d), 0);
	/* But not for ever. */
	SCRIPT(-EAGAIN, );
	assert_int_equal(submit(d, DEV_READ, out), -EIO);
	assert_int_equal(dev_errors(d), 1);
	dev_destroy(d);
}

static void test_a_full_disk_is_no_device_error(void **state)
{
	static const int64_t full[] = {-ENOSPC, -EDQUOT, -EFBIG};
	struct dev *d = scripted_new();

	pages_fill(buf, 8, 3);
	for (unsigned int i = 0; i < ARRAY_SIZE(full); i++) {
		SCRIPT(0, );
		assert_int_equal(submit(d, DEV_WRITE, buf), 0);
		assert_int_equal(dev_pages(d), 8);
		SCRIPT(0, 4096, full[i], );
		assert_int_equal(submit(d, DEV_WRITE, buf), -ENOSPC);
		assert_int_equal(dev_pages(d), 0); /* half of it is new: all of it is gone */
	}
	assert_int_equal(dev_errors(d), 0);
	assert_int_equal(submit(d, DEV_READ, out), -EIO);
	dev_destroy(d);
}

static void test_other_errors_are_eio(void **state)
{
	static const int64_t errs[] = {-EIO, -EINVAL, -EBADF, -EFAULT, 0};
	struct dev *d = scripted_new();

	pages_fill(buf, 8, 4);
	SCRIPT(0, );
	assert_int_equal(submit(d, DEV_WRITE, buf), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(errs); i++) {
		SCRIPT(0, 4096, errs[i], );
		assert_int_equal(submit(d, DEV_READ, out), -EIO);
		assert_int_equal(dev_errors(d), i + 1);
	}
	/* What a read failed on is still there. */
	SCRIPT(0, );
	assert_int_equal(submit(d, DEV_READ, out), 0);
	assert_true(pages_are(out, 8, 4));
	SCRIPT(0, -EIO, );
	assert_int_equal(submit(d, DEV_WRITE, buf), -EIO);
	assert_int_equal(dev_pages(d), 0);
	/* ENOSPC means nothing on a read. */
	SCRIPT(0, );
	assert_int_equal(submit(d, DEV_WRITE, buf), 0);
	SCRIPT(0, -ENOSPC, );
	assert_int_equal(submit(d, DEV_READ, out), -EIO);
	dev_destroy(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short_transfers_are_finished),
		cmocka_unit_test(test_interruptions_are_retried),
		cmocka_unit_test(test_a_full_disk_is_no_device_error),
		cmocka_unit_test(test_other_errors_are_eio),
	};

	buf = pages_new(MAX_FOLIO_PAGES);
	out = pages_new(MAX_FOLIO_PAGES);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
