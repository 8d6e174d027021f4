/* SPDX-License-Identifier: MIT */
/*
 * The parts of the file device: opening (file_open.c), two engines that transfer
 * (file_uring.c, file_threads.c), and the device itself (file.c), which the engines call back.
 *
 * Locking: grow_lock and an engine's lock are RANK_DEV and never nest.
 * Context: an engine's submit() neither allocates nor waits for the disk.
 */
#ifndef USWAP_DEV_FILE_INTERNAL_H
#define USWAP_DEV_FILE_INTERNAL_H

#include "base/lock.h"
#include "dev/dev_internal.h"

struct file_dev;
struct file_engine;

struct file_engine_ops {
	const char *name;
	/* 0 or -errno. */
	int (*start)(struct file_dev *f);
	/* Transfers what file_io_rest() says; then file_io_step() decides. */
	void (*submit)(struct file_dev *f, struct dev_io *io);
	/* Joins the threads. No io is in flight. */
	void (*stop)(struct file_dev *f);
};

extern const struct file_engine_ops file_uring_ops, file_threads_ops;

struct file_dev {
	struct dev d;
	int fd;
	bool direct, created; /* created: by us, so ours to remove */
	const struct file_engine_ops *engine;
	void *engine_data;
	struct dev_slot_map map;
	struct us_mutex grow_lock;
	bool full; /* protected by grow_lock: the file system refused a reservation */
};

/* The part of an io that is still to be transferred. */
struct file_rest {
	char *buf;
	unsigned int bytes;
	uint64_t offset;
};

struct file_rest file_io_rest(const struct dev_io *io);
/*
 * Takes the result of one transfer (bytes, or -errno). True: the io has ended and is gone. False:
 * transfer what file_io_rest() now says.
 */
bool file_io_step(struct file_dev *f, struct dev_io *io, int64_t result);

/*
 * Opens and reserves as dev_file_create() promises; sets fd, direct, created, max_slots, nr_slots.
 * 0 or -errno with a sentence in errbuf. To be followed by file_open_end() in either case.
 */
int file_open(struct file_dev *f, const struct file_config *cfg, char *errbuf, size_t errlen)
	__must_check;
/* Unlinks what success (unless cfg->keep) or failure (if we created it) must not leave behind. */
void file_open_end(struct file_dev *f, const struct file_config *cfg, bool success);
/* Makes the file system promise the bytes [from, to). 0 or -errno; gives back a part on failure. */
int file_reserve(int fd, uint64_t from, uint64_t to) __must_check;

/* A file without SIZE grows in steps of this. */
#define FILE_GROW_BYTES MIB(64)

#endif
