/* SPDX-License-Identifier: MIT */
/*
 * What /sys and /proc say of block devices: what they are like, and who uses them.
 *
 * Not its job: opening devices, or claiming them; what it says of use is for messages, since it may
 *   change the next moment.
 * root is put before every path: "" for this machine, a folder of their own for tests.
 * Locking: none. Context: reads small files; for set-up, not for faults and reclaim. No malloc but
 *   the C library's for open files and folders.
 */
#ifndef USWAP_SYS_BLOCKDEV_H
#define USWAP_SYS_BLOCKDEV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/*
 * A property of the request queue of a device, or for a partition of the disk's, as in
 * /sys/block/NAME/queue/NAME: a number, or -errno (-ENOENT: no such device).
 */
int64_t blockdev_queue_number(const char *root, dev_t dev, const char *name);
/* Is it a zoned device (SMR, ZNS)? One without a queue is not. */
bool blockdev_zoned(const char *root, dev_t dev);
/*
 * Who uses the device, as words behind "is": "mounted on /home", "in use as swap", "part of dm-0",
 * or of one of its partitions. Paths are as the kernel escapes them. False: nobody is known.
 */
bool blockdev_user(const char *root, dev_t dev, char *buf, size_t len);
/* The block device that holds an open file. 0 or -errno (-ENOENT: none, as on NFS). */
int blockdev_of_file(const char *root, int fd, dev_t *dev) __must_check;

#endif
