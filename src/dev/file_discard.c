/* SPDX-License-Identifier: MIT */
/*
 * Discarding: a hole in a file, BLKDISCARD on a block device.
 *
 * No content is lost by it. Only slots that the map says to hold nothing are discarded, and they
 * belong to the caller meanwhile (dev.h), so no write to them can be under way. Neither call touches
 * a byte outside its range, and the kernel lets I/O to other places of the file or device through.
 * What is lost, of a file, is the reservation: dev.h says what follows from that.
 */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/log.h"
#include "sys/blockdev.h"

/* One call of the kernel for at most this: a signal can end the process in between. */
#define PIECE_BYTES GIB(1)

static int discard_piece(const struct file_dev *f, uint64_t from, uint64_t bytes)
{
	uint64_t range[2] = {from, bytes};
	int r;

	do {
		r = f->block ? ioctl(f->fd, BLKDISCARD, range)
			     : fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 (off_t)from, (off_t)bytes);
	} while (r != 0 && errno == EINTR);
	return r ? -errno : 0;
}

int file_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct file_dev *f = container_of(d, struct file_dev, d);
	uint32_t nr_slots = atomic_load_explicit(&d->nr_slots, memory_order_acquire);
	uint64_t at = (uint64_t)slot << PAGE_SHIFT, end = at + ((uint64_t)nr << PAGE_SHIFT);
	int r = 0;

	if (!slot || !nr || slot >= nr_slots || nr > nr_slots - slot ||
	    dev_slot_map_any(&f->map, slot, nr))
		return -EINVAL;
	if (!f->block && f->discard == DISCARD_NONE)
		return -EOPNOTSUPP;
	for (; at < end && !r; at += PIECE_BYTES)
		r = discard_piece(f, at, MIN(end - at, PIECE_BYTES));
	return r;
}

/* All but page 0: a header may be there. */
static int discard_once(struct file_dev *f)
{
	uint32_t nr = atomic_load(&f->d.nr_slots);
	int r = file_discard(&f->d, 1, nr - 1);

	if (r)
		log_warn("%s: discard=once has no effect: %s", f->d.name, strerror(-r));
	return f->block ? 0 : file_reserve(f->fd, 0, (uint64_t)nr << PAGE_SHIFT);
}

/*
 * Whether discards can work, so that the allocator need not try in vain. A file is asked with its
 * page 0, which is never used; a device, whose page 0 may be a header, by what it says of itself.
 */
static bool can_discard(const struct file_dev *f)
{
	if (!f->block)
		return discard_piece(f, 0, PAGE_SIZE) == 0;
	return blockdev_queue_number("", f->rdev, "discard_max_bytes") != 0;
}

int file_discard_start(struct file_dev *f)
{
	if (f->discard == DISCARD_ONCE)
		return discard_once(f);
	if (f->discard == DISCARD_PAGES) {
		f->d.discard_pages = can_discard(f);
		if (!f->d.discard_pages)
			log_warn("%s: discard=pages has no effect: not supported there", f->d.name);
	}
	return 0;
}
