/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/proc.h"

#define FUSE_PINS_SINCE_MAJOR 6
#define FUSE_PINS_SINCE_MINOR 12

static const char *const names[] = {"nfs", "nfs4", "9p", "ceph", "pvfs2"};
static char added[32];

static bool fuse_pins(void)
{
	static int known; /* 1 yes, -1 no; the same for whoever asks */
	struct utsname u;
	int major = 0, minor = 0;

	if (!known && uname(&u) == 0)
		known = sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
					(major > FUSE_PINS_SINCE_MAJOR ||
					 (major == FUSE_PINS_SINCE_MAJOR &&
					  minor >= FUSE_PINS_SINCE_MINOR))
				? 1
				: -1;
	return known > 0;
}

bool direct_fs_name(const char *fstype)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(fstype, names[i]) == 0)
			return true;
	if (added[0] && strcmp(fstype, added) == 0)
		return true;
	return !fuse_pins() && (strcmp(fstype, "fuse") == 0 || strcmp(fstype, "fuseblk") == 0 ||
				strncmp(fstype, "fuse.", 5) == 0 || strcmp(fstype, "virtiofs") == 0);
}

void direct_add_fs(const char *fstype)
{
	snprintf(added, sizeof(added), "%s", fstype);
}

/* Calls fn for each line of a file of /proc; a longer one than the buffer is cut. No malloc. */
static int each_line(const char *path, int (*fn)(char *line, void *arg), void *arg)
{
	char buf[4096];
	size_t have = 0;
	ssize_t n;
	int r = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	while (r == 0 && (n = read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = 0;
		while (r == 0 && (end = strchr(line, '\n'))) {
			*end = 0;
			r = fn(line, arg);
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof(buf) - 1)
			have = 0;
	}
	close(fd);
	return r;
}

struct mounts {
	int (*fn)(long id, const char *fstype, void *arg);
	void *arg;
};

/*
 * "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the type stands behind the
 * lone dash; the first number names the mount.
 */
static int mount_line(char *line, void *arg)
{
	const char *dash = strstr(line, " - ");
	struct mounts *m = arg;
	char type[64];

	if (!dash || sscanf(dash, " - %63s", type) != 1 || !direct_fs_name(type))
		return 0;
	return m->fn(strtol(line, NULL, 10), type, m->arg);
}

static int each_mount(pid_t pid, int (*fn)(long id, const char *fstype, void *arg), void *arg)
{
	struct mounts m = {fn, arg};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	return each_line(path, mount_line, &m);
}

static int is_one(long id, const char *fstype, void *arg)
{
	return 1;
}

bool direct_mounted(pid_t pid)
{
	return each_mount(pid, is_one, NULL) == 1;
}

struct wanted {
	pid_t pid;
	long mount;
	char *fs;
	size_t len;
};

static int is_wanted(long id, const char *fstype, void *arg)
{
	struct wanted *w = arg;

	if (id != w->mount)
		return 0;
	snprintf(w->fs, w->len, "%s", fstype);
	return 1;
}

struct descriptor {
	unsigned long flags;
	long mount;
};

/* "flags:\t0140002" (octal) and "mnt_id:\t36". */
static int fdinfo_line(char *line, void *arg)
{
	struct descriptor *d = arg;

	if (strncmp(line, "flags:", 6) == 0)
		d->flags = strtoul(line + 6, NULL, 8);
	else if (strncmp(line, "mnt_id:", 7) == 0)
		d->mount = strtol(line + 7, NULL, 10);
	return d->mount >= 0;
}

static int is_direct(pid_t number, const char *path, void *arg)
{
	struct descriptor fd = {.mount = -1};
	struct wanted *w = arg;

	(void)each_line(path, fdinfo_line, &fd);
	w->mount = fd.mount;
	return fd.flags & O_DIRECT ? each_mount(w->pid, is_wanted, w) : 0;
}

int direct_open(pid_t pid, char *fs, size_t len)
{
	struct wanted w = {.pid = pid, .fs = fs, .len = len};

	return proc_each(pid, "fdinfo", "", is_direct, &w);
}
