/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/blockdev.h"

/* dev_private */
enum { IO_DONE_BYTES, IO_RETRIES };
/*
 * A transfer may be interrupted often, but not for ever. What does not pass at once is a lack of
 * kernel memory; it gets 100 ms in all.
 */
#define MAX_RETRIES 1000
#define FAST_RETRIES 10
#define RETRY_PAUSE_NS (100 * NSEC_PER_USEC)

LOCK_CLASS(grow_class, "file_grow", RANK_DEV);

static struct file_dev *to_file(const struct dev *d)
{
	return container_of(d, struct file_dev, d);
}

/* ---- one io ---- */

struct file_rest file_io_rest(const struct dev_io *io)
{
	uint64_t done = io->dev_private[IO_DONE_BYTES];

	return (struct file_rest){
		.buf = (char *)io->buf + done,
		.bytes = (unsigned int)(((uint64_t)io->nr_pages << PAGE_SHIFT) - done),
		.offset = ((uint64_t)io->slot << PAGE_SHIFT) + done,
	};
}

static void file_io_end(struct file_dev *f, struct dev_io *io, int result)
{
	if (io->op == DEV_WRITE) {
		dev_mark(&f->d, &f->map, io->slot, io->nr_pages, result == 0);
		io->stored_bytes = result ? 0 : io->nr_pages << PAGE_SHIFT;
	}
	dev_io_end(&f->d, io, result);
}

/* ECANCELED: io_uring drops what a thread submitted that has ended since. */
static bool is_transient(int64_t result)
{
	return result == -EINTR || result == -EAGAIN || result == -ENOMEM ||
	       result == -ENOBUFS || result == -ECANCELED;
}

/*
 * A block device that became smaller answers ENOSPC, as does one that is thinly provisioned and
 * full. Only of the second can it be said that there may be room again, and elsewhere on it.
 */
static bool is_beyond_end(const struct file_dev *f, const struct dev_io *io)
{
	uint64_t bytes;

	return f->block && (ioctl(f->fd, BLKGETSIZE64, &bytes) != 0 ||
			    ((uint64_t)io->slot + io->nr_pages) << PAGE_SHIFT > bytes);
}

bool file_io_step(struct file_dev *f, struct dev_io *io, int64_t result)
{
	if (result > 0) {
		io->dev_private[IO_DONE_BYTES] += (uint64_t)result;
		io->dev_private[IO_RETRIES] = 0;
		if (io->dev_private[IO_DONE_BYTES] < (uint64_t)io->nr_pages << PAGE_SHIFT)
			return false;
		file_io_end(f, io, 0);
		return true;
	}
	if (is_transient(result) && ++io->dev_private[IO_RETRIES] < MAX_RETRIES) {
		if (io->dev_private[IO_RETRIES] > FAST_RETRIES)
			clock_sleep_ns(RETRY_PAUSE_NS);
		return false;
	}
	if (io->op == DEV_WRITE && !is_beyond_end(f, io) &&
	    (result == -ENOSPC || result == -EDQUOT || result == -EFBIG))
		file_io_end(f, io, -ENOSPC);
	else
		file_io_end(f, io, -EIO); /* 0: the file was truncated */
	return true;
}

void file_submit(struct dev *d, struct dev_io *io)
{
	struct file_dev *f = to_file(d);

	if (!dev_io_valid(d, io)) {
		dev_io_end(d, io, -EINVAL);
		return;
	}
	if (io->op == DEV_READ && !dev_slot_map_all(&f->map, io->slot, io->nr_pages)) {
		dev_io_end(d, io, -EIO);
		return;
	}
	io->dev_private[IO_DONE_BYTES] = 0;
	io->dev_private[IO_RETRIES] = 0;
	f->engine->submit(f, io);
}

/* ---- the device ---- */

void file_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	dev_mark(d, &to_file(d)->map, slot, nr, false);
}

static uint32_t file_grow(struct dev *d, uint32_t want_slots)
{
	struct file_dev *f = to_file(d);
	uint64_t step = FILE_GROW_BYTES >> PAGE_SHIFT, want;
	uint32_t have;

	us_mutex_lock(&f->grow_lock);
	have = atomic_load_explicit(&d->nr_slots, memory_order_relaxed);
	want = MIN(align_up(want_slots, step), d->max_slots);
	if (want > have && want_slots > have && !f->full) {
		int r = file_reserve(f->fd, (uint64_t)have << PAGE_SHIFT, want << PAGE_SHIFT);

		f->full = r != 0;
		if (!r)
			have = (uint32_t)want;
		atomic_store_explicit(&d->nr_slots, have, memory_order_release);
	}
	us_mutex_unlock(&f->grow_lock);
	return have;
}

uint64_t file_metadata_bytes(struct dev *d)
{
	return align_up(atomic_load_explicit(&d->nr_slots, memory_order_relaxed) / 8 + 1,
			PAGE_SIZE);
}

void file_destroy(struct dev *d)
{
	struct file_dev *f = to_file(d);

	if (f->engine_data)
		f->engine->stop(f);
	if (f->fd >= 0)
		(void)close(f->fd);
	if (f->map.words)
		dev_slot_map_deinit(&f->map);
	us_mutex_deinit(&f->grow_lock);
	free(f->bad_slots);
	free(f);
}

#define FILE_OPS                                                                                   \
	.type = "file", .submit = file_submit, .free_slots = file_free_slots,                      \
	.discard = file_discard, .metadata_bytes = file_metadata_bytes, .destroy = file_destroy

static const struct dev_ops file_fixed_ops = {FILE_OPS};
static const struct dev_ops file_growing_ops = {FILE_OPS, .grow = file_grow};

static int engine_start(struct file_dev *f, bool no_io_uring)
{
	int r = -ENOSYS;

	f->engine = &file_uring_ops;
	if (!no_io_uring)
		r = f->engine->start(f);
	/* Whatever the reason is (EPERM, ENOSYS, ENOMEM): threads do the same job. */
	if (r) {
		f->engine = &file_threads_ops;
		r = f->engine->start(f);
	}
	return r;
}

struct file_dev *file_new(const struct dev_ops *ops, const char *path)
{
	struct file_dev *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fd = -1;
	f->d.ops = ops;
	us_mutex_init(&f->grow_lock, &grow_class);
	snprintf(f->d.name, sizeof(f->d.name), "%s", path);
	return f;
}

int file_start(struct file_dev *f, bool no_io_uring)
{
	int r = dev_slot_map_init(&f->map, f->d.max_slots);

	return r ? r : engine_start(f, no_io_uring);
}

/* As far as it can be found out; on a disk that nobody knows of seeks are taken to be fast. */
static bool is_rotational(int fd, enum dev_rotational said)
{
	dev_t dev;

	if (said != ROTATIONAL_DETECT)
		return said == ROTATIONAL_YES;
	return blockdev_of_file("", fd, &dev) == 0 &&
	       blockdev_queue_number("", dev, "rotational") == 1;
}

struct dev *dev_file_create(const struct file_config *cfg, int *err, char *errbuf, size_t errlen)
{
	struct file_dev *f = file_new(cfg->bytes ? &file_fixed_ops : &file_growing_ops, cfg->path);

	*err = -ENOMEM;
	if (errbuf && errlen)
		snprintf(errbuf, errlen, "file:%s: out of memory", cfg->path);
	if (!f)
		return NULL;
	*err = file_open(f, cfg, errbuf, errlen);
	if (!*err) {
		f->discard = cfg->discard;
		f->d.rotational = is_rotational(f->fd, cfg->rotational);
		*err = file_start(f, cfg->no_io_uring);
		if (*err && errbuf && errlen)
			snprintf(errbuf, errlen, "file:%s: cannot start its I/O: %s", cfg->path,
				 strerror(-*err));
	}
	if (!*err) {
		*err = file_discard_start(f);
		if (*err && errbuf && errlen)
			snprintf(errbuf, errlen,
				 "file:%s: cannot reserve its space again after a discard: %s; "
				 "give a smaller SIZE or no discard=", cfg->path, strerror(-*err));
	}
	file_open_end(f, cfg, !*err);
	if (*err) {
		file_destroy(&f->d);
		return NULL;
	}
	if (errbuf && errlen)
		errbuf[0] = '\0';
	return &f->d;
}

const char *dev_file_engine(const struct dev *d, bool *direct)
{
	struct file_dev *f;

	if (d->ops->submit != file_submit)
		return NULL;
	f = to_file(d);
	if (direct)
		*direct = f->direct;
	return f->engine->name;
}
