/* SPDX-License-Identifier: MIT */
/*
 * What /sys says of NUMA nodes.
 *
 * root is put before every path: "" for this machine, a folder of their own for tests.
 * Locking: none. Context: reads small files; for set-up.
 */
#ifndef USWAP_SYS_NODE_H
#define USWAP_SYS_NODE_H

#include <sys/types.h>

/* Of a CPU; -1: not known, or there is no such CPU. */
int node_of_cpu(const char *root, unsigned int cpu);
/*
 * That a block device is attached to, a partition where its disk is; -1: none, or not known (as of
 * what is made of several disks).
 */
int node_of_block(const char *root, dev_t dev);
/* Of the block device at path, or that the file at path is on, or would be. */
int node_of_path(const char *root, const char *path);

#endif
