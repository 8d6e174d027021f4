/* SPDX-License-Identifier: MIT */
/*
 * Reading /proc/PID. Every function takes what it needs from one read and returns 0 or -errno
 * (-ESRCH when the process is gone). No locking; no malloc. May wait for the mmap lock of the
 * process, so nothing that serves faults calls proc_maps().
 */
#ifndef USWAP_SYS_PROC_H
#define USWAP_SYS_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct proc_statm {
	uint64_t size_pages, resident_pages, shared_pages;
};
/* fd: /proc/PID/statm, kept open. */
int proc_statm(int fd, struct proc_statm *s);

struct proc_vma {
	uint64_t start, end;
	bool read, write, exec, shared;
	bool file;	      /* has an inode */
	char name[64];	      /* "[heap]", "[stack]", "" ... truncated */
};
/*
 * Calls fn for each mapping in order of address until it returns nonzero, which is returned.
 * buf is scratch space of at least 8 KiB.
 */
int proc_maps(pid_t pid, char *buf, size_t len, int (*fn)(const struct proc_vma *, void *),
	      void *arg);

/* Opens /proc/PID/NAME read-only and close-on-exec. A descriptor or -errno. */
int proc_open(pid_t pid, const char *name);
/* A number of kB from a "Key:   N kB" line of /proc/PID/NAME; 0 with -ENOENT if it is missing. */
int proc_field(pid_t pid, const char *name, const char *key, uint64_t *value);
#define PROC_MAX_WIPED 64
struct proc_wiped {
	unsigned int nr;
	uint64_t start[PROC_MAX_WIPED], end[PROC_MAX_WIPED];
};
/* Finds the mappings that are wiped in a forked child (VmFlags "wf"). Walks smaps: slow. */
void proc_wipe_on_fork(pid_t pid, struct proc_wiped *w);
/* Is the mapping that holds va locked (VmFlags "lo")? 1, 0 or -errno. Walks smaps: slow. */
int proc_vma_locked(pid_t pid, uint64_t va);
/* Parent and state of a process ('Z': zombie), and its name. */
int proc_stat(pid_t pid, pid_t *ppid, char *state, char comm[16]);
/*
 * Calls fn with the number of each entry of /proc/PID/DIR, and its path with NAME behind it, until
 * it returns nonzero, which is returned. -ESRCH of fn: the entry is gone, the others go on. -ESRCH
 * if pid is gone, another -errno if DIR cannot be read.
 */
int proc_each(pid_t pid, const char *dir, const char *name,
	      int (*fn)(pid_t number, const char *path, void *arg), void *arg);
/*
 * Children of all threads of pid, at most max. Returns how many. Falls back to nothing (0) where
 * the kernel has no "children" file.
 */
int proc_children(pid_t pid, pid_t *out, int max);
/* Do two processes share one memory? 1, 0 or -errno; -ESRCH also while one of them ends. */
int proc_same_memory(pid_t a, pid_t b);
/*
 * The task whose /proc files tell of the memory of process pid: pid itself, or where its first thread
 * has ended (whose files say nothing) one of the others; -ESRCH if none lives.
 */
pid_t proc_memory_task(pid_t pid);
/* The pid that a pidfd names in this process' pid namespace, or -errno. */
pid_t proc_pid_of_pidfd(int pidfd);
/* Has any thread of pid a seccomp filter? 1, 0 or -errno. */
int proc_has_seccomp(pid_t pid);
/* Is any thread of pid inside madvise(2) or process_madvise(2)? 1, 0 or -errno. */
int proc_in_madvise(pid_t pid);

#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_GUARD (1ull << 58)
/*
 * Calls fn for each run of present pages in [start, end) of an open /proc/PID/pagemap, until it
 * returns nonzero, which is returned. Costs what is mapped, not what is reserved, where the kernel
 * has PAGEMAP_SCAN.
 */
int proc_each_present(int fd, uint64_t start, uint64_t end,
		      int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg);
/* Reads nr entries of an open /proc/PID/pagemap. */
int proc_pagemap(int fd, uint64_t va, uint64_t *entry, size_t nr);

#endif
