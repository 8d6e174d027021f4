/* SPDX-License-Identifier: MIT */
/*
 * Opening a swap file. The order matters:
 *   create or open -> lock -> look at it -> unlink if we made it -> truncate -> reserve -> probe.
 * Nothing of a file that was there before is changed until it is locked and found to be a regular
 * file on a disk. A file of our own is unlinked before it gets any content, so that a crash leaves
 * nothing behind; with `keep`, and for a file that was there, that has to wait for success.
 */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

/* A growing file may take half of what is free; below this it is not worth having. */
#define MIN_GROWING_BYTES MIB(1)

struct opening {
	const char *path;
	const struct file_config *cfg;
	char *errbuf;
	size_t errlen;
	int fd;
	bool created;
};

/* Sets the sentence and returns -err. */
static int __printf(3, 4) refuse(struct opening *o, int err, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!o->errbuf || !o->errlen)
		return -err;
	n = snprintf(o->errbuf, o->errlen, "file:%s: ", o->path);
	if (n >= 0 && (size_t)n < o->errlen) {
		va_start(ap, fmt);
		vsnprintf(o->errbuf + n, o->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return -err;
}

static int refuse_dir(struct opening *o, int err)
{
	const char *slash = strrchr(o->path, '/');
	int n = slash ? (int)(slash - o->path) : 1;
	const char *dir = slash ? o->path : ".";
	char copy[4096];
	struct stat st;

	if (slash == o->path)
		n = 1;
	snprintf(copy, sizeof(copy), "%.*s", n, dir);
	if (err == ENOENT && stat(copy, &st) != 0)
		return refuse(o, err, "the directory %.*s does not exist", n, dir);
	if (err == EROFS)
		return refuse(o, err, "the file system of %.*s is read-only", n, dir);
	if (err == EACCES || err == EPERM)
		return refuse(o, err, "no permission to create a file in %.*s", n, dir);
	if (err == ENOSPC)
		return refuse(o, err, "the file system of %.*s is full", n, dir);
	return refuse(o, err, "cannot create it: %s", strerror(err));
}

static int refuse_kind(struct opening *o, mode_t mode)
{
	if (S_ISLNK(mode))
		return refuse(o, ELOOP, "is a symbolic link; name the file itself");
	if (S_ISDIR(mode))
		return refuse(o, EISDIR, "is a directory; name a file in it");
	if (S_ISBLK(mode))
		return refuse(o, EINVAL, "is a block device; use dev:PATH");
	return refuse(o, EINVAL, "is not a regular file");
}

/* ---- open and lock ---- */

static int open_existing(struct opening *o)
{
	struct stat st;

	if (lstat(o->path, &st) == 0 && !S_ISREG(st.st_mode))
		return refuse_kind(o, st.st_mode);
	if (!o->cfg->force)
		return refuse(o, EEXIST, "exists; add ,force to use it (its content is lost)");
	/* NONBLOCK: should it have become a pipe meanwhile, the open must not hang. */
	o->fd = open(o->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (o->fd < 0)
		return refuse(o, errno, "cannot open it: %s", strerror(errno));
	if (fstat(o->fd, &st) != 0)
		return refuse(o, errno, "cannot examine it: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse_kind(o, st.st_mode);
	return 0;
}

static int open_or_create(struct opening *o)
{
	o->fd = open(o->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (o->fd >= 0) {
		o->created = true;
		return 0;
	}
	return errno == EEXIST ? open_existing(o) : refuse_dir(o, errno);
}

/* Whether path still names the file that is open. */
static bool path_is_open_file(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

static void unlink_open_file(const char *path, int fd)
{
	if (path_is_open_file(path, fd))
		(void)unlink(path);
}

/*
 * Of two jobs that force the same path the later one fails here. The path is looked at again under
 * the lock: the earlier job may have unlinked the file, or ended, between our open and our lock.
 */
static int lock_file(struct opening *o)
{
	int err;

	if (flock(o->fd, LOCK_EX | LOCK_NB) != 0) {
		err = errno;
		if (err == EWOULDBLOCK) {
			/* Whoever locked it has taken it over, also if we made it. */
			o->created = false;
			return refuse(o, EBUSY, "is in use by another job; give each its own file");
		}
		/* Some file systems have no locks. A file that nobody else knows needs none. */
		if (!o->created)
			return refuse(o, err, "cannot lock it: %s", strerror(err));
	}
	if (!path_is_open_file(o->path, o->fd)) {
		o->created = false;
		return refuse(o, EBUSY, "was replaced while it was opened; try again");
	}
	return 0;
}

static int check_fs(struct opening *o)
{
	struct statfs fs;

	if (fstatfs(o->fd, &fs) != 0)
		return refuse(o, errno, "cannot examine its file system: %s", strerror(errno));
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
	    (unsigned long)fs.f_type == HUGETLBFS_MAGIC)
		return refuse(o, EINVAL,
			      "lies in memory (tmpfs), so swapping to it frees nothing; "
			      "choose a directory on a disk, such as /var/tmp");
	if (fs.f_type == BTRFS_SUPER_MAGIC) {
		int flags;

		/* Copy-on-write doubles the writes of a file that is overwritten all the time. */
		if (ioctl(o->fd, FS_IOC_GETFLAGS, &flags) == 0) {
			flags |= FS_NOCOW_FL;
			(void)ioctl(o->fd, FS_IOC_SETFLAGS, &flags);
		}
	}
	return 0;
}

/* ---- space ---- */

/* For file systems without fallocate(2): writing is the only way to get the blocks. */
static int reserve_by_writing(int fd, uint64_t from, uint64_t to)
{
	static const char zeros[KIB(64)] __attribute__((aligned(4096)));

	while (from < to) {
		ssize_t n = pwrite(fd, zeros, MIN(sizeof(zeros), to - from), (off_t)from);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += (uint64_t)n;
	}
	return 0;
}

int file_reserve(int fd, uint64_t from, uint64_t to)
{
	int r;

	do {
		r = fallocate(fd, 0, (off_t)from, (off_t)(to - from)) == 0 ? 0 : -errno;
	} while (r == -EINTR);
	if (r == -EOPNOTSUPP)
		r = reserve_by_writing(fd, from, to);
	if (r && ftruncate(fd, (off_t)from) != 0)
		return r; /* the part stays allocated; it is ours anyway */
	return r;
}

static int refuse_space(struct opening *o, int err, uint64_t want, uint64_t available)
{
	if (err == ENOSPC)
		return refuse(o, err,
			      "the disk has no room: %llu bytes wanted, %llu available; "
			      "give a smaller SIZE or another path",
			      (unsigned long long)want, (unsigned long long)available);
	if (err == EDQUOT)
		return refuse(o, err, "%llu bytes wanted, but that exceeds the disk quota",
			      (unsigned long long)want);
	if (err == EFBIG)
		return refuse(o, err,
			      "%llu bytes wanted, but a file may have %llu here "
			      "(file system or ulimit -f); give a smaller SIZE, or raise the limit",
			      (unsigned long long)want, (unsigned long long)available);
	return refuse(o, err, "cannot reserve %llu bytes: %s", (unsigned long long)want,
		      strerror(err));
}

/* Sets max_slots and nr_slots and reserves nr_slots. */
static int reserve_start(struct opening *o, struct file_dev *f)
{
	uint64_t want = align_down(o->cfg->bytes, PAGE_SIZE), start, available, limit;
	struct rlimit rl;
	struct statvfs vfs;
	int r;

	if (fstatvfs(o->fd, &vfs) != 0)
		return refuse(o, errno, "cannot examine its file system: %s", strerror(errno));
	available = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	/* To exceed this limit raises SIGXFSZ, so it must not come to that. */
	limit = getrlimit(RLIMIT_FSIZE, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY
			? rl.rlim_cur
			: (uint64_t)INT64_MAX;
	limit = align_down(MIN(limit, (uint64_t)UINT32_MAX << PAGE_SHIFT), PAGE_SIZE);
	if (o->cfg->bytes && want < 2 * PAGE_SIZE)
		return refuse(o, EINVAL, "SIZE must be 8 KiB or more");
	if (want > limit)
		return refuse_space(o, EFBIG, want, limit);
	/* Root may take what is set aside for it, so only the sum of both is a sure refusal. */
	if (want > (uint64_t)vfs.f_bfree * vfs.f_frsize)
		return refuse_space(o, ENOSPC, want, available);
	start = want;
	if (!want) {
		want = align_down(MIN(available / 2, limit), PAGE_SIZE);
		if (want < MIN_GROWING_BYTES && limit < available / 2)
			return refuse_space(o, EFBIG, MIN_GROWING_BYTES, limit);
		if (want < MIN_GROWING_BYTES)
			return refuse_space(o, ENOSPC, MIN_GROWING_BYTES * 2, available);
		start = MIN(want, FILE_GROW_BYTES);
	}
	r = file_reserve(o->fd, 0, start);
	if (r)
		return refuse_space(o, -r, start, -r == EFBIG ? limit : available);
	f->d.max_slots = (uint32_t)(want >> PAGE_SHIFT);
	atomic_init(&f->d.nr_slots, (uint32_t)(start >> PAGE_SHIFT));
	return 0;
}

/* ---- direct I/O ---- */

/*
 * Whether a page can be written and read back directly. A file system may accept O_DIRECT and
 * still want a larger alignment. Slot 0 is never used, so its page is free for this.
 */
static bool try_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	char *page = NULL;
	bool ok = false;

	if (flags < 0 || posix_memalign((void **)&page, PAGE_SIZE, 2 * PAGE_SIZE) != 0)
		return false;
	if (fcntl(fd, F_SETFL, flags | O_DIRECT) == 0) {
		memset(page, 0x5a, PAGE_SIZE);
		memset(page + PAGE_SIZE, 0, PAGE_SIZE);
		ok = pwrite(fd, page, PAGE_SIZE, 0) == (ssize_t)PAGE_SIZE &&
		     pread(fd, page + PAGE_SIZE, PAGE_SIZE, 0) == (ssize_t)PAGE_SIZE &&
		     memcmp(page, page + PAGE_SIZE, PAGE_SIZE) == 0;
		if (!ok)
			(void)fcntl(fd, F_SETFL, flags);
	}
	free(page);
	return ok;
}

static int prepare(struct opening *o, struct file_dev *f)
{
	int flags, r;

	r = open_or_create(o);
	if (!r)
		r = lock_file(o);
	if (!r)
		r = check_fs(o);
	if (r)
		return r;
	flags = fcntl(o->fd, F_GETFL);
	(void)fcntl(o->fd, F_SETFL, flags & ~O_NONBLOCK);
	if (o->created && !o->cfg->keep)
		unlink_open_file(o->path, o->fd);
	if (!o->created && ftruncate(o->fd, 0) != 0)
		return refuse(o, errno, "cannot empty it: %s", strerror(errno));
	r = reserve_start(o, f);
	if (r)
		return r;
	f->direct = !o->cfg->no_direct && try_direct(o->fd);
	return 0;
}

int file_open(struct file_dev *f, const struct file_config *cfg, char *errbuf, size_t errlen)
{
	struct opening o = {.path = cfg->path, .cfg = cfg, .errbuf = errbuf, .errlen = errlen,
			    .fd = -1};
	int r = prepare(&o, f);

	f->fd = o.fd;
	f->created = o.created;
	return r;
}

void file_open_end(struct file_dev *f, const struct file_config *cfg, bool success)
{
	if (f->fd >= 0 && (success ? !cfg->keep : f->created))
		unlink_open_file(cfg->path, f->fd);
}
