/* SPDX-License-Identifier: MIT */
/*
 * Opening a block device as a swap device. The order matters:
 *   open exclusively -> lock -> what kind of device is it -> what is on it -> give up an image -> direct.
 *
 * Nothing is written before it is certain that the device is ours and that nothing on it is wanted.
 * O_EXCL claims it in the kernel: of mounts, swapon, device mapper, md, loop devices and other
 * uswap jobs one at most has such a claim, on a disk or on parts of it, and it lasts as long as the
 * descriptor. So no check of who uses it can be too early; the ones here only find words. The
 * advisory lock is for those who ask for it: udev leaves a device alone that is locked.
 *
 * Page 0 is never written, as slot 0 is never used; so a swap header is there afterwards as it was.
 * The exception is a hibernation image with `force`. A boot would resume from it, and what this job
 * has stored there would become the memory of the kernel; so its signature is taken away first.
 */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev/swap_header.h"
#include "sys/blockdev.h"

/* udev holds the lock while it looks at a device that has just appeared or changed. */
#define LOCK_TRIES 100
#define LOCK_PAUSE_NS (20 * NSEC_PER_MSEC)

struct opening {
	const char *path;
	const struct block_config *cfg;
	char *errbuf;
	size_t errlen;
	int fd;
	dev_t rdev;
	uint64_t pages; /* of the device, whole ones */
	char *head;	/* its first SWAP_HEADER_BYTES */
	size_t head_bytes;
	struct swap_header header;
};

/* Sets the sentence and returns -err. */
static int __printf(3, 4) refuse(struct opening *o, int err, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!o->errbuf || !o->errlen)
		return -err;
	n = snprintf(o->errbuf, o->errlen, "dev:%s: ", o->path);
	if (n >= 0 && (size_t)n < o->errlen) {
		va_start(ap, fmt);
		vsnprintf(o->errbuf + n, o->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return -err;
}

static int refuse_kind(struct opening *o, mode_t mode)
{
	if (S_ISREG(mode))
		return refuse(o, ENOTBLK, "is a file, not a block device; use file:PATH");
	return refuse(o, ENOTBLK, "is not a block device");
}

/* Does another job have it? They lock it; an open without a claim is free to ask. */
static bool is_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool locked;

	if (fd < 0)
		return false;
	locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	(void)close(fd);
	return locked;
}

static int refuse_busy(struct opening *o)
{
	char user[320];

	if (blockdev_user("", o->rdev, user, sizeof(user)))
		return refuse(o, EBUSY, "is %s; end that use first", user);
	if (is_locked(o->path))
		return refuse(o, EBUSY, "is in use by another job; give each its own device");
	return refuse(o, EBUSY,
		      "is in use (mounted, swap, or part of another device); end that use first");
}

static int refuse_open(struct opening *o, int err)
{
	switch (err) {
	case EBUSY:
		return refuse_busy(o);
	case EACCES:
	case EPERM:
		/* The kernel's answer for a device that is read-only is the same. */
		if (access(o->path, W_OK) == 0)
			return refuse(o, EROFS, "is read-only; make it writable (blockdev --setrw)");
		return refuse(o, err, "no permission to write to it; run as root or change its "
				      "permissions");
	case EROFS:
		return refuse(o, err, "is read-only; make it writable (blockdev --setrw)");
	case ENXIO:
	case ENODEV:
	case ENOMEDIUM:
		return refuse(o, err, "there is no device or no medium behind it");
	default:
		return refuse(o, err, "cannot open it: %s", strerror(err));
	}
}

/* ---- open and claim ---- */

static int open_device(struct opening *o)
{
	struct stat st;

	if (stat(o->path, &st) != 0) {
		if (errno == ENOENT)
			return refuse(o, errno, "does not exist; name a device, as lsblk shows them");
		return refuse(o, errno, "cannot examine it: %s", strerror(errno));
	}
	if (!S_ISBLK(st.st_mode))
		return refuse_kind(o, st.st_mode);
	o->rdev = st.st_rdev;
	o->fd = open(o->path, O_RDWR | O_EXCL | O_CLOEXEC | O_NONBLOCK);
	if (o->fd < 0)
		return refuse_open(o, errno);
	if (fstat(o->fd, &st) != 0)
		return refuse(o, errno, "cannot examine it: %s", strerror(errno));
	if (!S_ISBLK(st.st_mode) || st.st_rdev != o->rdev)
		return refuse(o, EBUSY, "was replaced while it was opened; try again");
	return 0;
}

static int lock_device(struct opening *o)
{
	for (int i = 0; flock(o->fd, LOCK_EX | LOCK_NB) != 0; i++) {
		if (errno != EWOULDBLOCK)
			return refuse(o, errno, "cannot lock it: %s", strerror(errno));
		if (i == LOCK_TRIES)
			return refuse(o, EBUSY, "is locked by another program (flock); end that first");
		clock_sleep_ns(LOCK_PAUSE_NS);
	}
	return 0;
}

/* ---- what kind of device ---- */

static int check_device(struct opening *o)
{
	uint64_t bytes = 0;
	int read_only = 0, sector = 0;

	if (ioctl(o->fd, BLKROGET, &read_only) == 0 && read_only)
		return refuse(o, EROFS, "is read-only; make it writable (blockdev --setrw)");
	if (blockdev_zoned("", o->rdev))
		return refuse(o, EINVAL,
			      "is a zoned device, which takes no writes at any place; use another");
	if (ioctl(o->fd, BLKSSZGET, &sector) != 0 || sector > (int)PAGE_SIZE)
		return refuse(o, EINVAL, "has sectors of %d bytes, more than a page; use another",
			      sector);
	if (ioctl(o->fd, BLKGETSIZE64, &bytes) != 0)
		return refuse(o, errno, "cannot read its size: %s", strerror(errno));
	o->pages = bytes >> PAGE_SHIFT;
	if (o->pages < 2)
		return refuse(o, EINVAL, "has %llu bytes, and a swap device needs 8 KiB",
			      (unsigned long long)bytes);
	if (o->cfg->bytes && o->cfg->bytes < 2 * PAGE_SIZE)
		return refuse(o, EINVAL, "SIZE must be 8 KiB or more");
	if (o->cfg->bytes > bytes)
		return refuse(o, ENOSPC,
			      "has %llu bytes, and SIZE is %llu; give a smaller one or none",
			      (unsigned long long)bytes, (unsigned long long)o->cfg->bytes);
	return 0;
}

/* ---- what is on it ---- */

static int read_head(struct opening *o)
{
	o->head_bytes = 0;
	while (o->head_bytes < SWAP_HEADER_BYTES) {
		ssize_t n = pread(o->fd, o->head + o->head_bytes,
				  SWAP_HEADER_BYTES - o->head_bytes, (off_t)o->head_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return refuse(o, errno, "cannot read it: %s", strerror(errno));
		if (n == 0)
			break;
		o->head_bytes += (size_t)n;
	}
	swap_header_parse(&o->header, o->head, o->head_bytes, o->pages);
	return 0;
}

/*
 * The signature becomes the one that hibernation replaced, if a good header remains, else nothing.
 * It is on the disk before anything else is written there.
 */
static int give_up_image(struct opening *o)
{
	static const char swap[SWAP_SIGNATURE_BYTES + 1] = "SWAPSPACE2";
	static const char nothing[SWAP_SIGNATURE_BYTES];
	uint32_t at = o->header.signature_at;
	const char *mark = nothing;
	struct swap_header h;

	memcpy(o->head + at, swap, SWAP_SIGNATURE_BYTES);
	swap_header_parse(&h, o->head, o->head_bytes, o->pages);
	if (h.kind == SWAP_HEADER_GOOD && h.signature_at == at)
		mark = swap;
	if (pwrite(o->fd, mark, SWAP_SIGNATURE_BYTES, at) != SWAP_SIGNATURE_BYTES ||
	    fdatasync(o->fd) != 0)
		return refuse(o, EIO, "cannot take away its hibernation image: %s", strerror(errno));
	return read_head(o);
}

static int check_content(struct opening *o)
{
	char what[160];
	int r = read_head(o);

	if (r)
		return r;
	if (o->header.kind == SWAP_HEADER_HIBERNATION && !o->cfg->force)
		return refuse(o, EEXIST,
			      "holds a hibernation image (%s); resume from it, or give it up with "
			      ",force", o->header.why);
	r = block_probe(o->fd, what, sizeof(what));
	if (r < 0)
		return refuse(o, -r, "cannot find out what is on it: %s", strerror(-r));
	if (r && !o->cfg->force)
		return refuse(o, EEXIST,
			      "bears %s; if that may be lost, use wipefs or mkswap, or add ,force",
			      what);
	if (o->header.kind == SWAP_HEADER_HIBERNATION) {
		r = give_up_image(o);
		if (r)
			return r;
	}
	if (o->header.kind == SWAP_HEADER_BAD)
		return refuse(o, EINVAL, "is a swap area that %s; make it anew with mkswap",
			      o->header.why);
	return 0;
}

/* ---- taking it over ---- */

static int take_header(struct opening *o, struct file_dev *f)
{
	uint64_t slots = MIN(o->pages, (uint64_t)UINT32_MAX);
	uint32_t nr = 0;

	if (o->cfg->bytes)
		slots = MIN(slots, o->cfg->bytes >> PAGE_SHIFT);
	if (o->header.kind == SWAP_HEADER_GOOD)
		slots = MIN(slots, (uint64_t)o->header.last_page + 1);
	while (nr < o->header.nr_bad && o->header.bad[nr] < slots)
		nr++;
	if (slots < 2 || nr == slots - 1)
		return refuse(o, EINVAL, "has no page that can be used; make it anew with mkswap");
	if (nr) {
		f->bad_slots = malloc(nr * sizeof(*f->bad_slots));
		if (!f->bad_slots)
			return refuse(o, ENOMEM, "out of memory");
		memcpy(f->bad_slots, o->header.bad, nr * sizeof(*f->bad_slots));
	}
	f->d.bad_slots = f->bad_slots;
	f->d.nr_bad_slots = nr;
	f->d.max_slots = (uint32_t)slots;
	atomic_init(&f->d.nr_slots, (uint32_t)slots);
	return 0;
}

/* From here on its pages are not cached, and a write that has ended is with the device. */
static int make_direct(struct opening *o, struct file_dev *f)
{
	int flags = fcntl(o->fd, F_GETFL);

	if (flags < 0 || fcntl(o->fd, F_SETFL, (flags & ~O_NONBLOCK) | O_DIRECT) != 0)
		return refuse(o, errno, "cannot use it directly (O_DIRECT): %s", strerror(errno));
	f->direct = true;
	return 0;
}

int block_open(struct file_dev *f, const struct block_config *cfg, char *errbuf, size_t errlen)
{
	struct opening o = {.path = cfg->path, .cfg = cfg, .errbuf = errbuf, .errlen = errlen,
			    .fd = -1};
	int r;

	o.head = malloc(SWAP_HEADER_BYTES);
	if (!o.head)
		return refuse(&o, ENOMEM, "out of memory");
	r = open_device(&o);
	if (!r)
		r = lock_device(&o);
	if (!r)
		r = check_device(&o);
	if (!r)
		r = check_content(&o);
	if (!r)
		r = take_header(&o, f);
	if (!r)
		r = make_direct(&o, f);
	free(o.head);
	f->fd = o.fd;
	f->rdev = o.rdev;
	return r;
}
