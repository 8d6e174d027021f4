/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sys/check_internal.h"
#include "sys/uapi.h"

/* ---- where we are ---- */

static size_t read_file(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, len - 1);

	if (fd >= 0)
		close(fd);
	n = MAX(n, 0);
	buf[n] = '\0';
	return (size_t)n;
}

static bool in_container(void)
{
	char env[8192];
	size_t len;

	if (!access("/.dockerenv", F_OK) || !access("/run/.containerenv", F_OK))
		return true;
	len = read_file("/proc/1/environ", env, sizeof(env));
	for (size_t i = 0; i < len; i += strlen(env + i) + 1)
		if (!strncmp(env + i, "container=", 10))
			return true;
	return false;
}

/* Only the initial user namespace maps all 2^32 - 1 ids to themselves. */
static bool in_user_namespace(void)
{
	unsigned long inside, outside, count;
	char map[256];

	return read_file("/proc/self/uid_map", map, sizeof(map)) &&
	       (sscanf(map, "%lu %lu %lu", &inside, &outside, &count) != 3 || inside || outside ||
		count != UINT32_MAX);
}

void check_find_place(struct check_place *p)
{
	p->container = in_container();
	p->user_namespace = in_user_namespace();
	p->root = !geteuid();
}

/* ---- remedies ---- */

static void remedy_container(const struct check_place *p, char *buf, size_t len)
{
	snprintf(buf, len, "start the container with: docker run %s--device /dev/userfaultfd "
			   "--cap-add SYS_PTRACE IMAGE", p->root ? "" : "--user 0 ");
}

void check_remedy_device(const struct check_place *p, char *buf, size_t len)
{
	if (p->container)
		remedy_container(p, buf, len);
	else if (access("/dev/userfaultfd", F_OK))
		snprintf(buf, len, "%s", CHECK_REMEDY_KERNEL);
	else if (p->root)
		snprintf(buf, len, "run it outside of what takes root's rights away (sandbox, device "
				   "cgroup)");
	else
		snprintf(buf, len, "run uswap as root, or: sudo chgrp %u /dev/userfaultfd && "
				   "sudo chmod 660 /dev/userfaultfd", (unsigned int)getegid());
}

void check_remedy_ptrace(const struct check_place *p, char *buf, size_t len)
{
	char exe[256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (p->user_namespace) {
		snprintf(buf, len, "run uswap outside of the user namespace (for podman: as root)");
	} else if (p->container) {
		remedy_container(p, buf, len);
	} else if (p->root) {
		snprintf(buf, len, "run uswap with CAP_SYS_PTRACE: whatever started it has taken the "
				   "capability away");
	} else {
		exe[MAX(n, 0)] = '\0';
		snprintf(buf, len, "run uswap as root, or: sudo setcap cap_sys_ptrace+ep '%s'", exe);
	}
}

/* ---- items ---- */

struct check_item *check_add(struct check_report *r, const char *name, bool required,
			     const char *purpose)
{
	/* The number of items is fixed by the code; a full table would be a mistake there. */
	struct check_item *it = &r->item[MIN(r->nr, (unsigned int)CHECK_MAX_ITEMS - 1)];

	r->nr = MIN(r->nr + 1, (unsigned int)CHECK_MAX_ITEMS);
	*it = (struct check_item){.name = name, .required = required, .purpose = purpose};
	return it;
}

void check_detail(struct check_item *it, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(it->detail, sizeof(it->detail), fmt, ap);
	va_end(ap);
}

void check_missing(struct check_item *it, const char *fmt, ...)
{
	va_list ap;

	it->state = CHECK_MISSING;
	va_start(ap, fmt);
	vsnprintf(it->remedy, sizeof(it->remedy), fmt, ap);
	va_end(ap);
}

void check_probe(struct check_report *r)
{
	struct check_place place;

	memset(r, 0, sizeof(*r));
	check_find_place(&place);
	r->container = place.container;
	check_probe_uffd(r, &place);
	check_probe_calls(r, &place);
	check_probe_machine(r, &place);
	for (unsigned int i = 0; i < r->nr; i++)
		r->nr_required_missing += r->item[i].required && r->item[i].state == CHECK_MISSING;
}

/* ---- only what is required ---- */

static int why_open(int error, char *why, size_t len)
{
	struct check_place place;
	char remedy[384];

	check_find_place(&place);
	check_remedy_device(&place, remedy, sizeof(remedy));
	snprintf(why, len, "/dev/userfaultfd cannot be opened: %s; %s", strerror(-error), remedy);
	return error;
}

static int why_handshake(int error, uint64_t known, char *why, size_t len)
{
	uint64_t missing = check_required_features() & ~known;
	struct check_place place;
	char remedy[384];

	for (unsigned int i = 0; i < nr_check_features; i++)
		if (missing & check_features[i].bit) {
			snprintf(why, len, "the kernel's userfaultfd has no %s; %s",
				 check_features[i].name, CHECK_REMEDY_KERNEL);
			return -EOPNOTSUPP;
		}
	check_find_place(&place);
	check_remedy_ptrace(&place, remedy, sizeof(remedy));
	if (error == -EPERM)
		snprintf(why, len, "no CAP_SYS_PTRACE%s, which fork events need; %s",
			 place.user_namespace ? " in the initial user namespace" : "", remedy);
	else
		snprintf(why, len, "the handshake with userfaultfd fails: %s; %s", strerror(-error),
			 CHECK_REMEDY_KERNEL);
	return error;
}

static int required_uffd(char *why, size_t len)
{
	uint64_t known = 0;
	int fd, rc;

	fd = check_open_uffd();
	if (fd < 0)
		return why_open(fd, why, len);
	rc = check_handshake(fd, check_required_features(), NULL);
	if (!rc) {
		rc = check_move_page(fd);
		if (rc)
			snprintf(why, len, "UFFDIO_MOVE fails: %s; %s", strerror(-rc),
				 CHECK_REMEDY_KERNEL);
		return rc;
	}
	close(fd);
	/* A descriptor whose handshake failed is spent; a fresh one tells what the kernel knows. */
	fd = check_open_uffd();
	if (fd >= 0) {
		(void)check_handshake(fd, 0, &known);
		close(fd);
	}
	return why_handshake(rc, known, why, len);
}

/* These fail only where a sandbox's filter or an odd kernel takes the call away. */
static int required_calls(char *why, size_t len)
{
	pid_t self = getpid();
	char from = 1, to = 0;
	struct iovec local = {&to, 1}, remote = {&from, 1};
	const char *call = NULL;
	int fd, rc = 0;

	fd = (int)syscall(SYS_pidfd_open, self, 0);
	if (fd < 0) {
		rc = -errno;
		call = "pidfd_open";
	} else {
		close(fd);
	}
	if (!rc && process_vm_readv(self, &local, 1, &remote, 1, 0) != 1) {
		rc = -errno;
		call = "process_vm_readv";
	}
	if (!rc && syscall(SYS_kcmp, self, self, KCMP_VM, 0, 0)) {
		rc = -errno;
		call = "kcmp";
	}
	if (!rc) {
		rc = check_try_pagemap_scan();
		call = "PAGEMAP_SCAN";
	}
	if (rc)
		snprintf(why, len, "%s does not work here: %s", call, strerror(-rc));
	return rc;
}

static void point_to_check(char *why, size_t len)
{
	size_t used = strlen(why);

	snprintf(why + used, len - used, " ('uswap check' shows all)");
}

int check_required(char *why, size_t len)
{
	int rc;

	if (sysconf(_SC_PAGESIZE) != (long)PAGE_SIZE) {
		snprintf(why, len, "the page size is %ld; uswap needs 4096", sysconf(_SC_PAGESIZE));
		return -EOPNOTSUPP;
	}
	rc = required_uffd(why, len);
	if (!rc)
		rc = required_calls(why, len);
	if (rc)
		point_to_check(why, len);
	return rc;
}
