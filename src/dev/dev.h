/* SPDX-License-Identifier: MIT */
/*
 * A swap device: stores folios at slots (4 KiB each) and gives them back.
 *
 * Not its job: which slot (src/swap owns allocation), what a slot means, retry on another device.
 *
 * I/O is asynchronous: dev_submit() may call io->done() before it returns (zram does) or later
 * from a thread of the device (file does). io and its buffer belong to the device until then.
 * Every submitted io is completed exactly once, with a result: a device never forgets one.
 *
 * Locking: any thread may submit. The caller guarantees that two ios in flight never touch the
 *   same slot unless both read.
 * Context: dev_submit() does not use malloc and does not wait for the disk; it may wait for a free
 *   place in a queue, which other completions make.
 */
#ifndef USWAP_DEV_DEV_H
#define USWAP_DEV_DEV_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/util.h"

struct dev;

enum dev_op { DEV_READ, DEV_WRITE };

/* dev_io.flags */
#define DEV_IO_LAST 1u /* no other device will take it: store it even if it compresses poorly */

struct dev_io {
	enum dev_op op;
	unsigned int flags;
	uint32_t slot;	   /* first slot */
	uint32_t nr_pages; /* 1..512 */
	/* nr_pages * 4096 bytes, page aligned. A write never changes it. */
	void *buf;
	/*
	 * 0, or -errno: -EIO (also: a read of a slot that holds nothing); -ENOSPC (file system
	 * full, nothing stored); -E2BIG (zram: does not compress, nothing stored); -ENOMEM (no room
	 * in memory, nothing stored); -EINVAL (slots that do not exist). After a failed write its
	 * slots hold nothing. Partial transfers are the device's to finish.
	 */
	int result;
	uint32_t stored_bytes; /* writes: bytes that the content takes on the device */
	/* Called once, from any thread, without locks held. May submit further ios. */
	void (*done)(struct dev_io *io);
	void *priv;		/* the submitter's */
	struct list_node node;	/* the device's while in flight */
	uint64_t dev_private[8]; /* the device's while in flight */
};

/* dev_ops.flags */
#define DEV_IN_MEMORY 1u /* content lives in RAM and counts in the budget: free slots eagerly */

struct dev_ops {
	const char *type; /* "zram", "file", ... as in SPEC */
	unsigned int flags;
	void (*submit)(struct dev *d, struct dev_io *io);
	/* The content of slots [slot, slot+nr) is no longer needed; at once, cannot fail. */
	void (*free_slots)(struct dev *d, uint32_t slot, uint32_t nr);
	/*
	 * Makes at least want_slots usable if the device can grow (file without SIZE). Returns the
	 * number of slots usable now; may be less. NULL: the size is fixed. May block on the disk.
	 */
	uint32_t (*grow)(struct dev *d, uint32_t want_slots);
	/*
	 * Tells what is below that the content of these free slots is not needed. 0 or -errno; after
	 * a failure the slots can be used as before. -EINVAL: slots that do not exist, or that hold
	 * content. NULL: it has nothing to tell. May block on the disk; I/O to other slots may run.
	 */
	int (*discard)(struct dev *d, uint32_t slot, uint32_t nr);
	/*
	 * Copies what slots [from, from+nr) hold to the free slots [to, to+nr), without the caller
	 * seeing it; a slot that holds nothing stays so in the copy. 0, -ENOMEM, -EIO (damaged) or
	 * -EINVAL (slots that do not exist, ranges that overlap, a target that is not free); after
	 * a failure the target holds nothing. The source may be read meanwhile, but no slot of
	 * either range be written or freed. nr is at most 512. NULL: read and write instead.
	 */
	int (*copy_slots)(struct dev *d, uint32_t from, uint32_t to, uint32_t nr);
	/*
	 * Would memory come free if what the slots [slot, slot+nr), which hold content, have in it
	 * were stored elsewhere? A hint. As for a read, nobody frees the slots meanwhile. NULL: no.
	 */
	bool (*is_sparse)(struct dev *d, uint32_t slot, uint32_t nr);
	/* Memory that counts in the budget as pool, and as metadata, in bytes. NULL: none. */
	uint64_t (*memory_bytes)(struct dev *d);
	uint64_t (*metadata_bytes)(struct dev *d);
	/* What memory_bytes may still grow by; UINT64_MAX: no limit. NULL: it takes no memory. */
	uint64_t (*memory_room)(struct dev *d);
	/* Waits for its threads and frees everything; no io may be in flight. */
	void (*destroy)(struct dev *d);
};

struct dev {
	const struct dev_ops *ops;
	char name[256];	       /* "zram0" or the path, as `uswap swaps` prints it */
	uint32_t max_slots;    /* upper bound for ever; slot 0 is never used */
	/* Constant. What the allocator must never hand out, ascending, beside slot 0. */
	const uint32_t *bad_slots;
	uint32_t nr_bad_slots;
	/* Constant. discard=pages: call ops->discard for what becomes empty. Implies the function. */
	bool discard_pages;
	/* Constant. Seeks are slow: what is written together should lie together. */
	bool rotational;
	_Atomic uint32_t nr_slots; /* usable now, including slot 0 */
	_Atomic uint64_t errors;   /* ios that ended in -EIO */
	_Atomic uint64_t stored_pages; /* pages that hold content */
	_Atomic uint64_t stored_bytes; /* bytes these take on the device */
};

static inline void dev_submit(struct dev *d, struct dev_io *io)
{
	d->ops->submit(d, io);
}

static inline bool dev_in_memory(const struct dev *d)
{
	return d->ops->flags & DEV_IN_MEMORY;
}

void dev_destroy(struct dev *d); /* takes NULL */

/*
 * Submits and waits for the end. Returns io's result. Blocks; for set-up and tests, not for the
 * fault path.
 */
int dev_io_sync(struct dev *d, enum dev_op op, uint32_t slot, uint32_t nr_pages, void *buf);

/* ---- the devices ---- */

enum dev_codec { CODEC_LZ4, CODEC_ZSTD };

/*
 * What one or several zram devices may take together. It outlives them; any thread may change the
 * limit at any time, and what is stored already stays.
 */
struct zram_group {
	/*
	 * Most bytes of memory that their content may take; 0: no limit. A write that finds it
	 * reached fails with -ENOMEM (the kernel's mem_limit). A copy of slots, which is followed by
	 * a free, does so only at 4 MiB more.
	 */
	_Atomic uint64_t mem_limit;
	_Atomic uint64_t used; /* what they take, kept by them */
};

struct zram_config {
	uint64_t bytes; /* uncompressed size, as zram's disksize */
	struct zram_group *group; /* whose limit it is under; NULL: no limit */
	enum dev_codec codec;
	int level; /* zstd: 1..19, 0 = default (3 is zstd's) ; lz4: acceleration, 0 = default */
};
/*
 * Compresses in memory; each io completes inside submit. A write that does not shrink to 3/4
 * (15/16 with DEV_IO_LAST) fails with -E2BIG. NULL with *err = -errno.
 */
struct dev *dev_zram_create(const struct zram_config *cfg, int *err);

/*
 * When a device is told that content is no longer needed. ONCE: all of it at the start. PAGES: what
 * becomes empty, by way of dev.discard_pages.
 */
enum dev_discard { DISCARD_NONE, DISCARD_ONCE, DISCARD_PAGES };

/* Whether dev.rotational is found out (from the disk below) or said (tests). */
enum dev_rotational { ROTATIONAL_DETECT, ROTATIONAL_NO, ROTATIONAL_YES };

/*
 * A hole that a discard has made in a file is no longer reserved: where the disk is full by the
 * time that it is written again, the write fails with -ENOSPC, and the page stays where it is. So
 * with DISCARD_NONE ops->discard fails with -EOPNOTSUPP and reserves stay reserved. DISCARD_ONCE
 * reserves anew at once.
 */
struct file_config {
	const char *path;
	uint64_t bytes;	   /* reserved at start; 0: grows in steps up to half of what is free */
	bool force;	   /* a path that exists may be used (regular file only) */
	bool keep;	   /* do not unlink */
	enum dev_discard discard;
	enum dev_rotational rotational;
	bool no_io_uring;  /* use the thread pool (tests; else found out by itself) */
	bool no_direct;	   /* buffered I/O (tests; else found out by itself) */
};
/*
 * A file. NULL with *err = -errno and, in errbuf, a sentence that names the path, the reason and
 * the remedy (no prefix, no newline).
 */
struct dev *dev_file_create(const struct file_config *cfg, int *err, char *errbuf, size_t errlen);

struct block_config {
	const char *path;
	uint64_t bytes; /* use no more than this; 0: the whole device */
	/*
	 * It may bear a signature other than swap's, which then stays, or a hibernation image, which
	 * is given up first. Never overridden: in use, read-only, zoned, a swap header that makes no
	 * sense.
	 */
	bool force;
	enum dev_discard discard;
	enum dev_rotational rotational;
	bool no_io_uring; /* use the thread pool (tests; else found out by itself) */
};
/*
 * A block device, opened exclusively, so that nobody else can mount or swap on it meanwhile. Page 0
 * is not written (but to give up a hibernation image), and a swap header there is honoured. NULL as
 * dev_file_create(). Its I/O is direct: what a buffered write loses, nobody would hear of.
 */
struct dev *dev_block_create(const struct block_config *cfg, int *err, char *errbuf, size_t errlen);

/*
 * How a file or block device does its I/O: "io_uring" or "threads", and whether direct. NULL: it
 * is neither.
 */
const char *dev_file_engine(const struct dev *d, bool *direct);

/* ---- stackable, for tests ---- */

struct fault_config {
	uint64_t seed;
	/* Each 0..1, the chance per io. */
	double read_eio, write_eio, write_enospc, corrupt_read, corrupt_write;
	double discard_eio; /* per discard */
	/* If nonzero: every read of this slot fails with -EIO. */
	uint32_t bad_slot;
};
/* Owns below. `corrupt_write` flips a bit in what is stored without saying so. */
struct dev *dev_fault_create(struct dev *below, const struct fault_config *cfg, int *err);

struct delay_config {
	uint64_t read_ns, write_ns; /* added to each io */
	uint64_t discard_ns;	    /* and to each discard */
	uint64_t seed;
	double jitter; /* 0..1: each delay is multiplied by 1 ± jitter */
	/*
	 * So many reads and writes are delayed at once, as by a disk that serves no more; others wait
	 * for their turn. 0: any number. Discards neither wait nor count.
	 */
	unsigned int depth;
};
/* Owns below; a thread of its own completes ios later. */
struct dev *dev_delay_create(struct dev *below, const struct delay_config *cfg, int *err);

/*
 * Memory without compression, for unit tests of upper layers: max nr_slots pages. It stands for a
 * disk, so DEV_IN_MEMORY is not set; each io completes inside submit.
 */
struct dev *dev_ram_create(uint32_t nr_slots, int *err);

#endif
