/* SPDX-License-Identifier: MIT */
/*
 * Direct reads that hold pages without pinning them (rule 8 of docs/fault-states.md).
 *
 * Most file systems pin the pages that a device writes into, and UFFDIO_MOVE refuses pinned pages.
 * NFS, 9p, Ceph, OrangeFS, and FUSE before Linux 6.12, only take a reference, which MOVE does not
 * see. What can be seen from outside is that a process has a file of such a file system open with
 * O_DIRECT.
 */
#ifndef USWAP_SYS_DIRECT_H
#define USWAP_SYS_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is a file system of these kinds mounted where pid lives? Reads /proc/PID/mountinfo. */
bool direct_mounted(pid_t pid);
/*
 * Has pid a descriptor with O_DIRECT on one? 1 and the kind in fs, else 0, or -errno (-ESRCH: gone).
 * Costs a readlink-like call and a small read for each descriptor.
 */
int direct_open(pid_t pid, char *fs, size_t len);

/* The parts, for tests. Is this a kind of file system that only references? */
bool direct_fs_name(const char *fstype);
/* A file system type that is treated as such from now on, by name ("ext4"); for tests. */
void direct_add_fs(const char *fstype);

#endif
