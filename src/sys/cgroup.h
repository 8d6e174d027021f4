/* SPDX-License-Identifier: MIT */
/*
 * How much memory this process may still take: what the machine has available, and what the limits
 * of its memory cgroup and of every ancestor leave.
 *
 * Not its job: to watch it change.
 * Locking: none needed. Context: reads files; does not allocate memory that outlives the call.
 */
#ifndef USWAP_SYS_CGROUP_H
#define USWAP_SYS_CGROUP_H

#include <stdint.h>

#include "base/util.h"

#define CGROUP_NO_LIMIT UINT64_MAX

enum cgroup_version { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };

struct memory_available {
	uint64_t machine_bytes; /* MemAvailable of /proc/meminfo */
	/* The tightest level's limit minus use plus the file cache that it can drop at once. */
	uint64_t cgroup_bytes; /* CGROUP_NO_LIMIT: none */
	uint64_t cgroup_limit; /* that level's limit; CGROUP_NO_LIMIT: none */
	enum cgroup_version version; /* of the memory controller; NONE: not mounted */
	uint64_t bytes;	       /* the smaller of machine_bytes and cgroup_bytes */
};

/*
 * root: "" for this machine; a test gives a directory that holds proc/ and sys/ as it wants them.
 * 0, or -errno if /proc/meminfo cannot be read. What cannot be read of cgroups is no limit.
 */
int memory_available_read(const char *root, struct memory_available *out) __must_check;

#endif
