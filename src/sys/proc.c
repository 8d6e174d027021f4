/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/uapi.h"

static ssize_t read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t n = 0;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	while (have < len - 1 && (n = read(fd, buf + have, len - 1 - have)) > 0)
		have += (size_t)n;
	n = n < 0 && !have ? -errno : (ssize_t)have;
	close(fd);
	buf[have] = 0;
	return n;
}

int proc_open(pid_t pid, const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? (errno == ENOENT ? -ESRCH : -errno) : fd;
}

static uint64_t parse_number(const char **s)
{
	uint64_t v = 0;

	while (**s == ' ' || **s == '\t')
		(*s)++;
	while (**s >= '0' && **s <= '9')
		v = v * 10 + (uint64_t)(*(*s)++ - '0');
	return v;
}

int proc_statm(int fd, struct proc_statm *st)
{
	char b[128];
	const char *s = b;
	ssize_t n = pread(fd, b, sizeof(b) - 1, 0);

	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	b[n] = 0;
	st->size_pages = parse_number(&s);
	st->resident_pages = parse_number(&s);
	st->shared_pages = parse_number(&s);
	return 0;
}

static uint64_t parse_hex(const char **s)
{
	uint64_t v = 0;

	for (;; (*s)++) {
		char c = **s;

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (uint64_t)(c - 'a') + 10;
		else
			return v;
	}
}

/* "start-end perms offset dev inode   name" */
static void parse_vma(const char *s, struct proc_vma *v)
{
	v->start = parse_hex(&s);
	s++;
	v->end = parse_hex(&s);
	s++;
	v->read = s[0] == 'r';
	v->write = s[1] == 'w';
	v->exec = s[2] == 'x';
	v->shared = s[3] == 's';
	s += 5;
	(void)parse_hex(&s);
	s++;
	while (*s && *s != ' ')
		s++;
	v->file = parse_number(&s) != 0;
	while (*s == ' ')
		s++;
	snprintf(v->name, sizeof(v->name), "%s", s);
}

int proc_maps(pid_t pid, char *buf, size_t len, int (*fn)(const struct proc_vma *, void *),
	      void *arg)
{
	int fd = proc_open(pid, "maps"), r = 0;
	size_t have = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	while (!r && (n = read(fd, buf + have, len - 1 - have)) > 0) {
		char *line = buf, *nl;

		have += (size_t)n;
		buf[have] = 0;
		while (!r && (nl = strchr(line, '\n'))) {
			struct proc_vma v;

			*nl = 0;
			parse_vma(line, &v);
			r = fn(&v, arg);
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have >= len - 1)
			have = 0; /* a name longer than the buffer: its end parses as nothing */
	}
	close(fd);
	return r;
}

int proc_field(pid_t pid, const char *name, const char *key, uint64_t *value)
{
	char path[64], buf[8192], *s;
	ssize_t n;

	*value = 0;
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	n = read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	s = strstr(buf, key);
	if (!s)
		return -ENOENT;
	*value = strtoull(s + strlen(key), NULL, 10);
	return 0;
}

/* Calls fn with each mapping of smaps and its VmFlags line until it returns nonzero. */
static int each_vmflags(pid_t pid, int (*fn)(uint64_t start, uint64_t end, const char *flags,
					     void *arg),
			void *arg)
{
	char line[512], path[64];
	uint64_t start = 0, end = 0;
	int r = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!r && fgets(line, sizeof(line), f)) {
		const char *s = line;

		if (line[0] < 'A' || line[0] > 'Z') {
			start = parse_hex(&s);
			end = *s == '-' ? (s++, parse_hex(&s)) : 0;
		} else if (strncmp(line, "VmFlags:", 8) == 0) {
			r = fn(start, end, line + 8, arg);
		}
	}
	fclose(f);
	return r;
}

struct locked_at {
	uint64_t va;
	int locked;
};

static int look_locked(uint64_t start, uint64_t end, const char *flags, void *arg)
{
	struct locked_at *l = arg;

	if (l->va < start || l->va >= end)
		return 0;
	l->locked = strstr(flags, " lo") != NULL;
	return 1;
}

int proc_vma_locked(pid_t pid, uint64_t va)
{
	struct locked_at l = {va, -ENOENT};
	int r = each_vmflags(pid, look_locked, &l);

	return r < 0 ? r : l.locked;
}

static int look_wiped(uint64_t start, uint64_t end, const char *flags, void *arg)
{
	struct proc_wiped *w = arg;

	if (strstr(flags, " wf") && w->nr < PROC_MAX_WIPED) {
		w->start[w->nr] = start;
		w->end[w->nr++] = end;
	}
	return 0;
}

void proc_wipe_on_fork(pid_t pid, struct proc_wiped *w)
{
	w->nr = 0;
	(void)each_vmflags(pid, look_wiped, w);
}

int proc_stat(pid_t pid, pid_t *ppid, char *state, char comm[16])
{
	char path[64], buf[1024], *open_par, *close_par;
	ssize_t n;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	n = read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	open_par = strchr(buf, '(');
	close_par = strrchr(buf, ')');
	if (!open_par || !close_par || close_par < open_par)
		return -EPROTO;
	len = MIN((size_t)(close_par - open_par - 1), (size_t)15);
	memcpy(comm, open_par + 1, len);
	comm[len] = 0;
	*state = close_par[2];
	*ppid = (pid_t)strtol(close_par + 4, NULL, 10);
	return 0;
}

int proc_each(pid_t pid, const char *dir, const char *name,
	      int (*fn)(pid_t number, const char *path, void *arg), void *arg)
{
	char path[300];
	struct dirent *e;
	int r = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, dir);
	d = opendir(path);
	if (!d)
		return errno == ENOENT ? -ESRCH : -errno;
	while (r == 0 && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/%s/%s%s", pid, dir, e->d_name, name);
		r = fn(atoi(e->d_name), path, arg);
		if (r == -ESRCH)
			r = 0;
	}
	closedir(d);
	return r;
}

struct children {
	pid_t *out;
	int nr, max;
};

/* "123 456 ": in parts, since a process may have thousands. */
static int read_children(pid_t tid, const char *path, void *arg)
{
	struct children *c = arg;
	char buf[4096];
	ssize_t n;
	pid_t p = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] >= '0' && buf[i] <= '9') {
				p = p * 10 + (buf[i] - '0');
				continue;
			}
			if (p && c->nr < c->max)
				c->out[c->nr++] = p;
			p = 0;
		}
	}
	close(fd);
	return 0;
}

int proc_children(pid_t pid, pid_t *out, int max)
{
	struct children c = {.out = out, .max = max};

	(void)proc_each(pid, "task", "/children", read_children, &c);
	return c.nr;
}

/* Is a task ending, or gone? From then on it may have no memory; field 9 of stat has PF_EXITING. */
static bool task_ending(pid_t pid)
{
	char path[64], buf[1024], *p;
	unsigned int flags;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_file(path, buf, sizeof(buf)) < 0)
		return true;
	p = strrchr(buf, ')');
	return !p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || flags & 4;
}

int proc_same_memory(pid_t a, pid_t b)
{
	long r = syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0);

	if (r < 0)
		return -errno;
	/* One that is ending differs from every other: its memory is no other one, it is none. */
	if (r != 0 && (task_ending(a) || task_ending(b)))
		return -ESRCH;
	return r == 0;
}

static int living(pid_t tid, const char *path, void *arg)
{
	return task_ending(tid) ? 0 : tid;
}

pid_t proc_memory_task(pid_t pid)
{
	pid_t found;

	if (!task_ending(pid))
		return pid;
	found = proc_each(pid, "task", "", living, NULL);
	return found > 0 ? found : -ESRCH;
}

pid_t proc_pid_of_pidfd(int pidfd)
{
	char path[64], buf[1024], *s;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	n = read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (pid_t)n;
	s = strstr(buf, "\nPid:");
	if (!s)
		return -EBADF;
	n = strtol(s + 5, NULL, 10);
	return n > 0 ? (pid_t)n : -ESRCH;
}


static int status_has_seccomp(pid_t tid, const char *path, void *arg)
{
	char text[4096];
	const char *s;
	ssize_t n = read_file(path, text, sizeof(text));

	if (n < 0)
		return (int)n;
	s = strstr(text, "\nSeccomp:");
	return s && strtol(s + 9, NULL, 10) != 0;
}

int proc_has_seccomp(pid_t pid)
{
	return proc_each(pid, "task", "/status", status_has_seccomp, NULL);
}

static int syscall_is_madvise(pid_t tid, const char *path, void *arg)
{
	char text[256];
	ssize_t n = read_file(path, text, sizeof(text));
	long nr;

	if (n < 0)
		return (int)n;
	if (text[0] < '0' || text[0] > '9')
		return 0; /* "running", or -1: outside any call */
	nr = strtol(text, NULL, 10);
	return nr == SYS_madvise || nr == SYS_process_madvise;
}

int proc_in_madvise(pid_t pid)
{
	return proc_each(pid, "task", "/syscall", syscall_is_madvise, NULL);
}

int proc_pagemap(int fd, uint64_t va, uint64_t *entry, size_t nr)
{
	size_t want = nr * sizeof(uint64_t), have = 0;

	while (have < want) {
		ssize_t n = pread(fd, (char *)entry + have, want - have,
				  (off_t)((va >> PAGE_SHIFT) * 8 + have));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESRCH;
		have += (size_t)n;
	}
	return 0;
}

/* Page by page, where there is no PAGEMAP_SCAN (before Linux 6.7). */
static int each_present_slow(int fd, uint64_t start, uint64_t end,
			     int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg)
{
	uint64_t pm[512];

	while (start < end) {
		size_t nr = MIN((end - start) >> PAGE_SHIFT, ARRAY_SIZE(pm));
		int r = proc_pagemap(fd, start, pm, nr);

		for (size_t i = 0; i < nr && !r; i++, start += PAGE_SIZE)
			if (pm[i] & PAGEMAP_PRESENT)
				r = fn(start, start + PAGE_SIZE, arg);
		if (r)
			return r;
	}
	return 0;
}

int proc_each_present(int fd, uint64_t start, uint64_t end,
		      int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg)
{
	struct page_region region[64];

	while (start < end) {
		struct pm_scan_arg a = {.size = sizeof(a),
					.start = start,
					.end = end,
					.vec = (uint64_t)(uintptr_t)region,
					.vec_len = ARRAY_SIZE(region),
					.category_mask = PAGE_IS_PRESENT,
					.return_mask = PAGE_IS_PRESENT};
		int n = ioctl(fd, PAGEMAP_SCAN, &a);

		if (n < 0 && (errno == ENOTTY || errno == EINVAL))
			return each_present_slow(fd, start, end, fn, arg);
		if (n < 0)
			return -errno;
		for (int i = 0; i < n; i++) {
			int r = fn(region[i].start, region[i].end, arg);

			if (r)
				return r;
		}
		if (a.walk_end <= start)
			return -EIO;
		start = a.walk_end;
	}
	return 0;
}
