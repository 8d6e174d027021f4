/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/blockdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000u
#endif

#define MAX_PATH 512

/* The folder of a device below /sys, and a path in it. */
static void device_path(char path[MAX_PATH], const char *root, dev_t dev, const char *rest)
{
	snprintf(path, MAX_PATH, "%s/sys/dev/block/%u:%u/%s", root, major(dev), minor(dev), rest);
}

/* The first line of a small file, without its end. 0 or -errno. */
static int read_line(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	if (n < 0)
		n = -errno;
	(void)close(fd);
	if (n < 0)
		return (int)n;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/* A partition has no queue of its own; its folder lies in that of the disk. */
static int read_queue(const char *root, dev_t dev, const char *name, char *buf, size_t len)
{
	char path[MAX_PATH], rest[128];
	int r;

	snprintf(rest, sizeof(rest), "queue/%s", name);
	device_path(path, root, dev, rest);
	r = read_line(path, buf, len);
	if (r != -ENOENT)
		return r;
	snprintf(rest, sizeof(rest), "../queue/%s", name);
	device_path(path, root, dev, rest);
	return read_line(path, buf, len);
}

int64_t blockdev_queue_number(const char *root, dev_t dev, const char *name)
{
	char buf[64], *end;
	long long n;
	int r = read_queue(root, dev, name, buf, sizeof(buf));

	if (r)
		return r;
	errno = 0;
	n = strtoll(buf, &end, 10);
	return errno || end == buf || *end || n < 0 ? -EINVAL : n;
}

bool blockdev_zoned(const char *root, dev_t dev)
{
	char buf[64];

	return read_queue(root, dev, "zoned", buf, sizeof(buf)) == 0 && strcmp(buf, "none") != 0;
}

/* ---- use ---- */

static bool is_swap(const char *root, dev_t dev)
{
	char path[MAX_PATH], *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/swaps", root);
	f = fopen(path, "re");
	while (f && !found && getline(&line, &room, f) > 0) {
		struct stat st;

		line[strcspn(line, " \t\n")] = '\0';
		found = line[0] == '/' && stat(line, &st) == 0 && S_ISBLK(st.st_mode) &&
			st.st_rdev == dev;
	}
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

/* ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS... - TYPE SOURCE OPTIONS, of mountinfo. */
struct mount_line {
	uint64_t id;
	dev_t dev;
	const char *point, *source;
};

static bool parse_mount(char *line, struct mount_line *m)
{
	char *save, *word, *dash = strstr(line, " - ");
	unsigned int maj, min;

	if (!dash)
		return false;
	*dash = '\0';
	word = strtok_r(dash + 3, " \n", &save);
	m->source = word ? strtok_r(NULL, " \n", &save) : NULL;
	word = strtok_r(line, " ", &save);
	if (!word || !m->source)
		return false;
	m->id = strtoull(word, NULL, 10);
	if (!strtok_r(NULL, " ", &save))
		return false;
	word = strtok_r(NULL, " ", &save);
	if (!word || sscanf(word, "%u:%u", &maj, &min) != 2)
		return false;
	m->dev = makedev(maj, min);
	if (!strtok_r(NULL, " ", &save))
		return false;
	m->point = strtok_r(NULL, " ", &save);
	return m->point != NULL;
}

/* Calls fn for each mount until it returns true, which is returned. */
static bool each_mount(const char *root, bool (*fn)(const struct mount_line *, void *), void *arg)
{
	char path[MAX_PATH], *line = NULL;
	size_t room = 0;
	bool found = false;
	struct mount_line m;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	f = fopen(path, "re");
	while (f && !found && getline(&line, &room, f) > 0)
		if (parse_mount(line, &m))
			found = fn(&m, arg);
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

struct find_mount {
	dev_t dev;
	uint64_t id;
	char *buf;
	size_t len;
};

/* btrfs has devices of its own invention there, so the source counts too. */
static bool source_is(const char *source, dev_t dev)
{
	struct stat st;

	return source[0] == '/' && stat(source, &st) == 0 && S_ISBLK(st.st_mode) &&
	       st.st_rdev == dev;
}

static bool mount_of_device(const struct mount_line *m, void *arg)
{
	struct find_mount *f = arg;

	if (m->dev != f->dev && !source_is(m->source, f->dev))
		return false;
	snprintf(f->buf, f->len, "mounted on %.200s", m->point);
	return true;
}

static bool has_holder(const char *root, dev_t dev, char *buf, size_t len)
{
	char path[MAX_PATH];
	bool found = false;
	struct dirent *e;
	DIR *d;

	device_path(path, root, dev, "holders");
	d = opendir(path);
	while (d && !found && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(buf, len, "part of %.64s", e->d_name);
			found = true;
		}
	if (d)
		(void)closedir(d);
	return found;
}

static bool user_of_one(const char *root, dev_t dev, char *buf, size_t len)
{
	struct find_mount f = {.dev = dev, .buf = buf, .len = len};

	if (is_swap(root, dev)) {
		snprintf(buf, len, "in use as swap");
		return true;
	}
	return each_mount(root, mount_of_device, &f) || has_holder(root, dev, buf, len);
}

bool blockdev_user(const char *root, dev_t dev, char *buf, size_t len)
{
	char path[MAX_PATH], line[64], what[256], rest[300];
	unsigned int maj, min;
	bool found = user_of_one(root, dev, buf, len);
	struct dirent *e;
	DIR *d = NULL;

	if (!found) {
		device_path(path, root, dev, "");
		d = opendir(path);
	}
	/* A partition is a folder with a device number. */
	while (d && !found && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(rest, sizeof(rest), "%s/partition", e->d_name);
		device_path(path, root, dev, rest);
		if (access(path, F_OK) != 0)
			continue;
		snprintf(rest, sizeof(rest), "%s/dev", e->d_name);
		device_path(path, root, dev, rest);
		if (read_line(path, line, sizeof(line)) ||
		    sscanf(line, "%u:%u", &maj, &min) != 2)
			continue;
		found = user_of_one(root, makedev(maj, min), what, sizeof(what));
		if (found)
			snprintf(buf, len, "in use: its partition %.64s is %s", e->d_name, what);
	}
	if (d)
		(void)closedir(d);
	return found;
}

/* ---- below a file ---- */

static bool source_of_mount(const struct mount_line *m, void *arg)
{
	struct find_mount *f = arg;
	struct stat st;

	if (m->id != f->id || m->source[0] != '/' || stat(m->source, &st) != 0 ||
	    !S_ISBLK(st.st_mode))
		return false;
	f->dev = st.st_rdev;
	return true;
}

int blockdev_of_file(const char *root, int fd, dev_t *dev)
{
	struct find_mount f = {0};
	struct statx st;
	char path[MAX_PATH];

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) != 0)
		return -errno;
	*dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	device_path(path, root, *dev, "");
	if (access(path, F_OK) == 0)
		return 0;
	/* A file system with device numbers of its own, as btrfs: what was it mounted from? */
	if (!(st.stx_mask & STATX_MNT_ID))
		return -ENOENT;
	f.id = st.stx_mnt_id;
	if (!each_mount(root, source_of_mount, &f))
		return -ENOENT;
	*dev = f.dev;
	return 0;
}
