/* SPDX-License-Identifier: MIT */
/*
 * What the files of this folder share.
 *
 * Locks, outermost first (each row is taken with no lock of a later row held):
 *   mover.lock      RANK_CACHE - 4   a mover's batch; held while its reads and writes are in flight
 *   writeout.lock   RANK_CACHE - 3   one writeout at a time; held while it waits for its writes, so
 *                                    nothing that a fault waits for takes it
 *   relocator       RANK_CACHE - 2   making room by moving: by the writeout, or by the worker
 *   queue           RANK_CACHE - 3   its writers', who wait for walks; -1 of a plist (queue.h)
 *   devs_lock       RANK_CACHE - 1   numbers of devices, and their states
 *   cache.lock      RANK_CACHE       buffers and queue
 *   entry shard     RANK_ENTRY       kind, dev, slot of an entry; pins of its buffer
 *   relocate_dev    RANK_ENTRY       runs of a device that are ready
 *   worker.lock     RANK_ENTRY       what the worker waits for
 *   dedup.lock      RANK_DEDUP       index
 *   (clusters)      RANK_CL_CPU on   slots of a device, see cluster_internal.h
 *
 * Who frees what: the content of an entry is freed by whoever drops its last reference
 * (entry_release()), who is then alone with it. Loads and writes hold a reference of their own, so
 * a slot or a buffer in use is never freed.
 */
#ifndef USWAP_SWAP_INTERNAL_H
#define USWAP_SWAP_INTERNAL_H

#include "base/lock.h"
#include "base/thread.h"
#include "swap/cache.h"
#include "swap/cluster.h"
#include "swap/dedup.h"
#include "swap/entry.h"
#include "swap/gate.h"
#include "swap/queue.h"
#include "swap/swap.h"

#define MAX_DEVS SWAP_MAX_DEVS
#define WRITE_FOLIOS 128u
#define WRITE_PIECES 64 /* of a folio that is split */
#define JOIN_PAGES 32	/* single pages that share one io: several ios stay in flight */
#define WRITE_PAGES 1024u /* 4 MiB */
#define WRITE_BATCHES 16u
/* After so many writes that failed with -EIO nothing new goes to a device. */
#define MAX_WRITE_ERRORS 8
/*
 * A device that reported -ENOSPC is asked again after this, or when slots of it are freed; one that
 * could not grow, too.
 */
#define FULL_RETRY_NS (1000 * 1000 * 1000ull)

/*
 * Life of a device number. A number is NONE again only when nothing names it: no entry, no reader of
 * the array (devs_gate), no load or free that is on its last steps (swap_dev.gate), and not the
 * queue. Whether a folio may go there is the queue's to say, not the state's.
 */
enum dev_state {
	DEV_NONE,     /* free for the next device */
	DEV_STARTING, /* taken by swap_on(), which nobody else can see yet */
	DEV_ON,
	DEV_DRAINING, /* takes nothing in; swap_off() moves elsewhere what is there */
	DEV_LEAVING,  /* empty, and not to be looked at any more */
};

#define READY_RUNS 128u /* of one order */

/* What compact.c knows of a device; under writeout.lock. */
struct compact_dev {
	uint32_t cursor;      /* slot at which the hand is */
	uint64_t moved_pages; /* in this round */
	uint64_t rest_until;  /* so many slots were freed, ever */
};

/* What relocate.c knows of a device. */
struct relocate_dev {
	_Atomic uint64_t again_at[MAX_ORDER + 1]; /* swap_dev.freed from which it may succeed */
	_Atomic uint32_t asked[MAX_ORDER + 1];	  /* in vain, since the worker last looked */
	_Atomic int64_t credit;			  /* pages that the worker may still move */
	uint16_t target[MAX_ORDER + 1];		  /* the worker's */
	struct us_mutex lock;
	/* protected by lock */
	uint32_t ready[MAX_ORDER + 1][READY_RUNS];
	uint16_t nr_ready[MAX_ORDER + 1];
	uint32_t ready_slots;
};

struct swap_dev {
	struct swap *swap;
	struct dev *dev;
	int prio;
	_Atomic int state; /* enum dev_state; written under devs_lock */
	struct clusters clusters;
	_Atomic uint64_t full_since_ns; /* 0: not full */
	atomic_bool failed;
	_Atomic uint32_t write_errors;
	atomic_bool read_error_logged, full_logged;
	_Atomic uint64_t grown_out_ns; /* when an attempt to grow gave nothing; 0: the last did */
	/* Loads of DEVICE entries that are here; and whoever calls the device or frees its slots. */
	struct gate gate;
	_Atomic uint64_t freed; /* slots, ever; those of folios that were relocated do not count */
	_Atomic uint64_t reclaimed_ns; /* when that was asked for last */
	atomic_bool reclaim_wanted; /* the worker is to let go of cached slots */
	struct relocate_dev relocate;
	struct compact_dev compact;
};

enum write_state {
	WRITE_IDLE,
	WRITE_PLACED, /* has slots */
	WRITE_SUBMITTED,
	WRITE_STORED,
	WRITE_FAILED, /* nobody takes it */
};

struct write_set;

/* One folio on its way to a device. */
struct write_io {
	struct dev_io io;
	struct swap *swap;
	struct write_set *set; /* where it is waited for */
	swp_t entry;
	uint32_t buf; /* of a folio of the cache; not set for a piece or a folio that moves */
	void *mem;
	unsigned int order;
	uint32_t tried;	     /* bit d: device d did not take it */
	uint32_t tried_last; /* the same with DEV_IO_LAST */
	uint32_t refused;    /* bit d: because it compresses poorly there */
	uint32_t barred;     /* bit d: device d is not to take it, nor pieces of it */
	unsigned int class;  /* which tiers may take it */
	unsigned int home;   /* as queue_req.home */
	unsigned int dev;    /* where it is being written; of one that stays there, always */
	uint64_t start_ns;   /* 0: not measured */
	uint32_t slot;
	struct write_io *lead; /* the one whose io writes this folio too; often itself */
	enum write_state state;
	bool last;   /* with DEV_IO_LAST */
	bool no_run; /* some device had no run of that order */
	bool stays;  /* on `dev`, at other slots */
	bool moving; /* from another place on a device: counted there, not as swapped out */
	bool piece;  /* of a folio that is split: counted as the kernel does, as single pages */
};

/* What a batch of writes needs. One thread at a time uses it, under the lock of its owner. */
struct write_set {
	struct write_io pieces[WRITE_PIECES];
	char *joined; /* WRITE_FOLIOS pages: neighbours are copied here to be written at once */
	uint32_t joined_used;
	_Atomic uint32_t joined_peak;
	struct us_mutex done_lock;
	struct us_cond done;
	_Atomic uint32_t pending;
};

struct watch;

/* Folios that were taken off the queue together, from then until their writes are judged. */
struct write_batch {
	struct write_set set;
	struct write_io ios[WRITE_FOLIOS];
	unsigned int nr;
	uint32_t pages;
};

struct writeout {
	struct us_mutex lock;
	/* protected by lock */
	struct write_batch *batches; /* WRITE_BATCHES of them; memory comes with the first use */
	struct write_batch *flying[WRITE_BATCHES]; /* in flight, in order of their start */
	unsigned int nr_flying;
	uint64_t flying_pages;
	swp_t oldest[WRITE_FOLIOS];
	_Atomic uint32_t nr_touched; /* of batches, the first ones; written under lock */
};

/* What a class of folios may use. Constant once its number is given out. */
struct swap_class {
	uint64_t denied; /* tiers, as queue_req has it */
	enum queue_policy policy;
};

struct swap_worker {
	struct us_thread thread;
	struct watch *watch;
	atomic_bool wanted, stop;
	struct us_mutex lock;
	/* protected by lock */
	struct us_cond wake, settled;
	bool idle;
};

struct relocator;

struct swap {
	struct swap_config cfg;
	struct entry_table table;
	struct dedup dedup;
	struct cache cache;
	_Atomic uint64_t swapped_pages;
	_Atomic uint32_t nr_loads; /* from swap_load() until their reference is dropped */
	_Atomic uint32_t nr_pieces; /* entries that only hold a part of another one */

	struct queue *queue; /* which device takes the next folio */
	/* Does a policy want to know how fast devices are? */
	atomic_bool measuring;
	struct us_mutex class_lock;
	_Atomic uint32_t nr_classes; /* written under class_lock, as is the last of class[] */
	struct swap_class class[SWAP_MAX_CLASSES];

	struct swap_dev devs[MAX_DEVS]; /* by number, which entries hold */
	_Atomic uint32_t nr_devs;	/* numbers that were ever used; only grows */
	/*
	 * Whoever goes through devs[] without an entry on the device that he looks at is in here, and
	 * looks at state first. swap_off() changes the state, then drains this gate: nobody is left
	 * who took the device for what it was. It may be held over the growth of a file. Walks of
	 * the queue and queue_each() need it not: queue_off() and queue_remove() wait for them.
	 */
	struct gate devs_gate;
	struct us_mutex devs_lock; /* who takes or gives back a number; changes of states */

	struct writeout writeout;
	struct gate split_gate; /* loads of SPLIT entries */
	struct swap_worker worker;
	struct relocator *relocate_now, *relocate_back; /* the writeout's, the worker's */
};

/* ---- swap.c ---- */

/* refs of e have just become 0: frees what it holds, and e. */
void entry_release(struct swap *s, swp_t e);
void swap_dev_free_slots(struct swap *s, unsigned int dev, uint32_t slot, unsigned int order);

void load_finish(struct swap_load *l, int result);
/*
 * Waits for loads that have called done already but still hold their reference, in a thread of a
 * device: the caller of swap_load() cannot see these.
 */
void wait_for_loads(struct swap *s);
/* 0, -EIO or -EBADMSG for the part of l that l->io has read, whose hash is expected. */
int load_check(struct swap *s, struct swap_load *l, struct hash128 expected);

/* The content of a DEVICE or SPLIT entry, which nothing names any more. */
void free_place(struct swap *s, enum entry_kind kind, unsigned int dev, uint32_t slot,
		unsigned int order);

/* ---- kept.c ---- */

/* Are all references kept ones? A hint, of any number that was an entry once; takes no lock. */
bool entry_maybe_cached(struct swap *s, swp_t e);
/*
 * swap_reclaim_kept() of an entry that may be free or another one by now: only if it holds that
 * slot of that device (0: any place).
 */
bool entry_reclaim_kept(struct swap *s, swp_t e, uint32_t own, unsigned int dev, uint32_t slot);

/* ---- split.c ---- */

/* A piece's slot may change while it is read (relocate.c); the gate keeps the old one valid. */
static inline uint32_t piece_slot(const struct entry *p)
{
	return __atomic_load_n(&p->slot, __ATOMIC_ACQUIRE);
}

/*
 * Stores a folio in pieces of smaller orders, wherever these fit. Returns the first piece, or 0
 * when even single pages found no place. Blocks.
 */
swp_t split_write(struct swap *s, struct write_set *set, const struct write_io *wio);
/* The pieces' slots belong to folio e from now on. */
void split_set_owner(struct swap *s, swp_t first, swp_t e);
/* The caller has entered split_gate. */
void split_load(struct swap_load *l, swp_t first);
/* Frees the pieces and their slots. */
void split_free(struct swap *s, swp_t first);

/* ---- swapon.c ---- */

/* What swap_on() made for the slots of a device; takes one that has none, all zeros. */
void swap_dev_deinit_slots(struct swap_dev *sd);

/* ---- place.c ---- */

/* False while nothing should be written to it. In devs_gate, or with slots on it. */
bool swap_dev_usable(struct swap_dev *sd);
/* Is there a device to look at (figures, not allocation)? In devs_gate or with devs_lock. */
bool swap_dev_present(struct swap_dev *sd);
/* For the queue: no free slot at all, none held ready, and it cannot grow. */
bool swap_dev_is_full(struct swap_dev *sd);
extern const struct queue_ops swap_queue_ops;
/*
 * What time has changed about closed devices: disks that were full are asked again, cached slots of
 * full devices are wanted. Before each batch of writes; cheap while all are open.
 */
void swap_devs_look_again(struct swap *s);
/* Pages that it can still take in, as far as known. */
uint64_t swap_dev_room(struct swap_dev *sd);
/*
 * Slots for 2^order pages; grows the device if it can. Blocks on the disk then. 0: none. In a walk
 * of the queue, or in devs_gate since before the device was found ON.
 */
uint32_t swap_dev_alloc(struct swap_dev *sd, unsigned int order);
/* The same for a whole folio that is swapped out: by moving others, if need be (relocate.h). */
uint32_t swap_dev_alloc_folio(struct swap_dev *sd, unsigned int order);
/* Gives back slots that hold nothing. The caller keeps the device there. */
void swap_dev_unalloc(struct swap_dev *sd, uint32_t slot, unsigned int order);
/*
 * Slots for wio on the first device that has room among those that it has not tried. False: nobody
 * takes it.
 */
bool swap_place(struct swap *s, struct write_io *wio) __must_check;
/* Slots that the device may have in all, slot 0 included, as far as known. */
uint32_t swap_dev_max_slots(struct swap_dev *sd);
/* What a write that failed says about the device. */
void swap_dev_write_failed(struct swap_dev *sd, int err);

/* ---- writeout.c ---- */

int writeout_init(struct writeout *w) __must_check;
void writeout_deinit(struct writeout *w);
/* Memory of its batches, and of what is copied together for them. */
uint64_t writeout_bytes(struct writeout *w);
int write_set_init(struct write_set *set) __must_check;
void write_set_deinit(struct write_set *set);
/*
 * Writes each of ios that is WRITE_IDLE to the first device that takes it, and waits for all. They
 * are WRITE_STORED or WRITE_FAILED then; slots of refused writes are free again.
 */
void write_ios(struct swap *s, struct write_set *set, struct write_io *ios, unsigned int n);
uint64_t write_set_bytes(struct write_set *set);
/* Gives that memory back; no write of it is in flight. */
void write_set_trim(struct write_set *set);
void count_written(struct swap *s, const struct write_io *wio);

#endif
