/* SPDX-License-Identifier: MIT */
/*
 * Probes of everything but userfaultfd: rights, system calls on other processes, memory calls,
 * and the settings of the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/cgroup.h"
#include "sys/check_internal.h"
#include "sys/uapi.h"

#define SANDBOX_REMEDY "run uswap outside of the sandbox whose filter takes this call away"
#define DOCKER_SECCOMP "docker run --security-opt seccomp=unconfined"

/* The number in a file of /proc, or -1. */
static long read_long(const char *path)
{
	FILE *f = fopen(path, "re");
	long v = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%ld", &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

/* Bytes of a line "KEY:  N kB" of /proc/meminfo; 0 if it is not there. */
static uint64_t read_meminfo(const char *key)
{
	FILE *f = fopen("/proc/meminfo", "re");
	size_t len = strlen(key);
	uint64_t bytes = 0;
	char line[256];

	if (!f)
		return 0;
	while (!bytes && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) && line[len] == ':')
			bytes = KIB(strtoull(line + len + 1, NULL, 10));
	fclose(f);
	return bytes;
}

/* ---- rights ---- */

static bool has_sys_ptrace(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	return !syscall(SYS_capget, &head, data) &&
	       (data[0].effective & (1u << CAP_SYS_PTRACE));
}

static void probe_rights(struct check_report *r, const struct check_place *p)
{
	struct check_item *it;

	it = check_add(r, "CAP_SYS_PTRACE", true, "fork events, reading the memory of the job");
	if (!has_sys_ptrace()) {
		check_missing(it, "%s", "");
		check_remedy_ptrace(p, it->remedy, sizeof(it->remedy));
	}
	it = check_add(r, "user namespace", true, "the capability counts in the initial one only");
	if (p->user_namespace) {
		check_detail(it, "not the initial one");
		check_missing(it, "%s", "");
		check_remedy_ptrace(p, it->remedy, sizeof(it->remedy));
	} else {
		check_detail(it, "the initial one");
	}
}

/* ---- calls on another process ---- */

static void add_call(struct check_report *r, const char *name, const char *purpose, int rc)
{
	struct check_item *it = check_add(r, name, true, purpose);

	if (!rc)
		return;
	check_detail(it, "%s", strerror(-rc));
	check_missing(it, "%s", SANDBOX_REMEDY);
}

static int try_readv(pid_t child, char *mark)
{
	char got = 0;
	struct iovec local = {&got, 1}, remote = {mark, 1};

	if (process_vm_readv(child, &local, 1, &remote, 1, 0) != 1)
		return -errno;
	return got == *mark ? 0 : -EIO;
}

static int try_getfd(int pidfd)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, 0, 0);

	/* EBADF: allowed, but the child has no descriptor 0. */
	if (fd < 0)
		return errno == EBADF ? 0 : -errno;
	close(fd);
	return 0;
}

static void probe_child(struct check_report *r)
{
	char mark = 42;
	pid_t child = fork();
	int pidfd, readv_rc, kcmp_rc, getfd_rc, signal_rc;

	if (!child) {
		for (;;)
			pause();
	}
	if (child < 0) {
		add_call(r, "fork", "starting the job", -errno);
		return;
	}
	readv_rc = try_readv(child, &mark);
	kcmp_rc = syscall(SYS_kcmp, getpid(), child, KCMP_VM, 0, 0) < 0 ? -errno : 0;
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	if (pidfd < 0)
		pidfd = -errno;
	getfd_rc = pidfd < 0 ? pidfd : try_getfd(pidfd);
	signal_rc = pidfd;
	if (pidfd >= 0) {
		signal_rc = syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) ? -errno : 0;
		close(pidfd);
	}
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	add_call(r, "process_vm_readv", "reading pages on their way out", readv_rc);
	add_call(r, "kcmp", "noticing that a program has been replaced", kcmp_rc);
	add_call(r, "pidfd_open", "noticing that a process has ended", pidfd < 0 ? pidfd : 0);
	add_call(r, "pidfd_send_signal", "ending a job without hitting a stranger", signal_rc);
	add_call(r, "pidfd_getfd", "taking over descriptors of the job", getfd_rc);
}

/* ---- memory calls ---- */

static int try_madvise(int advice)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = 0;

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, PAGE_SIZE, advice))
		rc = -errno;
	munmap(page, PAGE_SIZE);
	return rc;
}

int check_try_pagemap_scan(void)
{
	struct page_region region;
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.vec = (uintptr_t)&region,
		.vec_len = 1,
		.category_mask = PAGE_IS_PRESENT,
		.return_mask = PAGE_IS_PRESENT,
	};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), rc = 0;
	long n;

	if (fd < 0)
		return -errno;
	/* The page that holds arg itself is present. */
	arg.start = (uintptr_t)&arg & PAGE_MASK;
	arg.end = arg.start + PAGE_SIZE;
	n = ioctl(fd, PAGEMAP_SCAN, &arg);
	if (n < 0)
		rc = -errno;
	else if (n != 1)
		rc = -EIO;
	close(fd);
	return rc;
}

static void probe_memory_calls(struct check_report *r)
{
	struct check_item *it;
	int rc;

	it = check_add(r, "PAGEMAP_SCAN", true, "seeing which pages are present");
	rc = check_try_pagemap_scan();
	if (rc) {
		check_detail(it, "%s", strerror(-rc));
		check_missing(it, "%s", CHECK_REMEDY_KERNEL);
	}
	it = check_add(r, "MADV_POPULATE_WRITE", false, "evicting pages that a fork has shared");
	rc = try_madvise(MADV_POPULATE_WRITE);
	if (rc) {
		check_detail(it, "%s; such pages stay in RAM", strerror(-rc));
		check_missing(it, "boot Linux 5.14 or later");
	}
	it = check_add(r, "MADV_GUARD_INSTALL", false, "emptying the staging area quickly");
	rc = try_madvise(MADV_GUARD_INSTALL);
	if (rc) {
		check_detail(it, "%s; a slower way is taken", strerror(-rc));
		check_missing(it, "boot Linux 6.13 or later");
	}
}

static void probe_io_uring(struct check_report *r, const struct check_place *p)
{
	struct check_item *it = check_add(r, "io_uring", false, "fast swap files");
	struct io_uring_params params = {0};
	int fd = (int)syscall(SYS_io_uring_setup, 4, &params), error = errno;
	long disabled = read_long("/proc/sys/kernel/io_uring_disabled");

	if (fd >= 0) {
		close(fd);
		return;
	}
	check_detail(it, "%s; threads are used instead", strerror(error));
	if (disabled > 0)
		check_missing(it, "%ssysctl kernel.io_uring_disabled=0", p->root ? "" : "sudo ");
	else if (p->container)
		check_missing(it, "start the container with: " DOCKER_SECCOMP " IMAGE");
	else if (error == ENOMEM)
		check_missing(it, "ulimit -l unlimited");
	else
		check_missing(it, "%s", SANDBOX_REMEDY);
}

void check_probe_calls(struct check_report *r, const struct check_place *p)
{
	probe_rights(r, p);
	probe_child(r);
	probe_memory_calls(r);
	probe_io_uring(r, p);
}

/* ---- the machine ---- */

static void probe_cgroup(struct check_report *r)
{
	struct check_item *it = check_add(r, "memory cgroup", false, "the default of --ram");
	struct memory_available m;

	if (memory_available_read("", &m)) {
		it->state = CHECK_NOTE;
		check_detail(it, "/proc/meminfo cannot be read; give --ram");
	} else if (m.version == CGROUP_NONE) {
		check_detail(it, "none; %llu MiB available", (unsigned long long)(m.bytes >> 20));
	} else if (m.cgroup_limit == CGROUP_NO_LIMIT) {
		check_detail(it, "version %d, no limit; %llu MiB available", (int)m.version,
			     (unsigned long long)(m.bytes >> 20));
	} else {
		check_detail(it, "version %d, limit %llu MiB; %llu MiB available", (int)m.version,
			     (unsigned long long)(m.cgroup_limit >> 20),
			     (unsigned long long)(m.bytes >> 20));
	}
}

static void probe_overcommit(struct check_report *r, const struct check_place *p)
{
	struct check_item *it = check_add(r, "vm.overcommit_memory", false,
					  "large requests of a program");
	long mode = read_long("/proc/sys/vm/overcommit_memory");
	uint64_t total = read_meminfo("MemTotal") + read_meminfo("SwapTotal");

	if (mode == 1)
		return;
	it->state = CHECK_NOTE;
	if (mode == 0)
		check_detail(it, "0: a single request larger than RAM+swap (%.1f GiB) fails",
			     (double)total / (double)GIB(1));
	else if (mode == 2)
		check_detail(it, "2: requests beyond the kernel's commit limit fail");
	else
		check_detail(it, "cannot be read");
	snprintf(it->remedy, sizeof(it->remedy), "%ssysctl vm.overcommit_memory=1%s",
		 p->root ? "" : "sudo ", p->container ? " (on the host)" : "");
}

static void probe_map_count(struct check_report *r, const struct check_place *p)
{
	struct check_item *it = check_add(r, "vm.max_map_count", false,
					  "programs with very many mappings");
	long count = read_long("/proc/sys/vm/max_map_count");

	check_detail(it, "%ld", count);
	if (count >= 65530)
		return;
	it->state = CHECK_NOTE;
	snprintf(it->remedy, sizeof(it->remedy), "%ssysctl vm.max_map_count=1048576%s",
		 p->root ? "" : "sudo ", p->container ? " (on the host)" : "");
}

static void probe_swap_directory(struct check_report *r)
{
	struct check_item *it = check_add(r, "/var/tmp", false, "the default swap file");
	struct statvfs st;
	uint64_t left;

	if (access("/var/tmp", W_OK) || statvfs("/var/tmp", &st)) {
		check_detail(it, "%s", strerror(errno));
		check_missing(it, "give a place yourself: uswap run --swap file:PATH");
		return;
	}
	left = (uint64_t)st.f_bavail * st.f_frsize;
	check_detail(it, "%llu MiB free", (unsigned long long)(left >> 20));
	if (left >= GIB(1))
		return;
	it->state = CHECK_NOTE;
	snprintf(it->remedy, sizeof(it->remedy),
		 "make room, or give another place: uswap run --swap file:PATH");
}

void check_probe_machine(struct check_report *r, const struct check_place *p)
{
	struct check_item *it = check_add(r, "x86-64, 4 KiB pages", true, "all of it");

	if (sysconf(_SC_PAGESIZE) != (long)PAGE_SIZE) {
		check_detail(it, "the page size is %ld", sysconf(_SC_PAGESIZE));
		check_missing(it, "use another machine");
	}
	probe_cgroup(r);
	probe_overcommit(r, p);
	probe_map_count(r, p);
	probe_swap_directory(r);
}
