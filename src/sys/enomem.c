/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/enomem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* The kernel's PROC_PID_INIT_INO: part of its interface since namespaces can be compared. */
#define FIRST_PID_NS_INO 0xEFFFFFFCu
/* The kernel gives records whole or not at all. */
#define RECORD_BYTES 8192
/* A flood in the log must not keep the caller; what is left is read the next time. */
#define MAX_RECORDS 512

int enomem_watch(struct enomem *w)
{
	struct stat st;
	int err;

	w->fd = -1;
	if (stat("/proc/self/ns/pid", &st) != 0)
		return -errno;
	if (st.st_ino != FIRST_PID_NS_INO)
		return -EOPNOTSUPP;
	w->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (w->fd < 0)
		return -errno;
	if (lseek(w->fd, 0, SEEK_END) < 0) {
		err = -errno;
		enomem_unwatch(w);
		return err;
	}
	return 0;
}

void enomem_unwatch(struct enomem *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

/* "...;__vm_enough_memory: pid: 12, comm: name, bytes: 4096 not enough memory for the ..." */
bool enomem_parse(const char *record, struct enomem_refusal *r)
{
	static const char name[] = "__vm_enough_memory: pid: ", comm[] = ", comm: ";
	const char *s = strchr(record, ';'), *end, *line_end, *bytes = NULL;
	char *after;

	/* Facility 0 is the kernel itself: programs that write to the log cannot have it. */
	if (!s || strtoul(record, NULL, 10) > 7 || strncmp(s + 1, name, sizeof(name) - 1) != 0)
		return false;
	r->tid = (pid_t)strtol(s + sizeof(name), &after, 10);
	if (r->tid <= 0 || strncmp(after, comm, sizeof(comm) - 1) != 0)
		return false;
	s = after + sizeof(comm) - 1;
	line_end = strchrnul(s, '\n');
	/* The name may hold anything, what follows it does not. */
	for (end = line_end; end > s && *end != ','; end--)
		;
	if (end > s && strncmp(end, ", bytes: ", 9) == 0)
		bytes = end + 9;
	snprintf(r->comm, sizeof(r->comm), "%.*s", (int)MIN(end - s, (ptrdiff_t)15), s);
	r->bytes = bytes ? strtoull(bytes, NULL, 10) : 0;
	return true;
}

bool enomem_poll(struct enomem *w, struct enomem_refusal *r)
{
	char record[RECORD_BYTES];

	if (w->fd < 0)
		return false;
	for (int i = 0; i < MAX_RECORDS; i++) {
		ssize_t n = read(w->fd, record, sizeof(record) - 1);

		/* Overwritten before they were read: goes on with the oldest that is there. */
		if (n < 0 && (errno == EPIPE || errno == EINTR))
			continue;
		if (n <= 0)
			return false;
		record[n] = 0;
		if (enomem_parse(record, r))
			return true;
	}
	return false;
}

bool enomem_explain(const struct enomem_refusal *r, char *buf, size_t len)
{
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
	struct sysinfo si;
	uint64_t total;
	char mode = 0;

	if (fd < 0)
		return false;
	(void)!read(fd, &mode, 1);
	close(fd);
	if (mode == '2') {
		snprintf(buf, len,
			 "vm.overcommit_memory is 2, which refuses more than the kernel's commit "
			 "limit; sysctl vm.overcommit_memory=1 allows it");
		return true;
	}
	if (mode != '0' || sysinfo(&si) != 0)
		return false;
	total = ((uint64_t)si.totalram + si.totalswap) * si.mem_unit;
	if (r->bytes && r->bytes <= total)
		return false;
	snprintf(buf, len,
		 "vm.overcommit_memory is 0, which refuses more than RAM and swap (%.1f GiB) in one "
		 "piece; sysctl vm.overcommit_memory=1 allows it",
		 (double)total / (double)GIB(1));
	return true;
}
