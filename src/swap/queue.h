/* SPDX-License-Identifier: MIT */
/*
 * The priority queue of swap devices: which device gives the slots for the next folio.
 *
 * Devices of one priority form a *ring*. Rings are tried from the highest priority down, the
 * devices of a ring in the order that its policy says (policy.h); named bands of priorities, tiers,
 * may join several rings to one (tier.h). docs/queue.md tells the whole.
 *
 * Not its job: which slot of a device (its allocator, behind queue_ops), what is written there,
 * what becomes of a write that fails.
 *
 * Readers and writers. What is read on the way of an allocation is a *layout*, which is never
 * changed but for one word, the availability of its devices. Writers make a new one and wait until
 * the last reader has left the old (base/readers.h). A reader takes no lock: its cost is two
 * plain stores, and for a ring of several devices the word of its CPU.
 *
 * Locking, in the order of taking:
 *   swap_queue_writer  RANK_CACHE - 3  layouts, tiers; held while readers are waited for
 *   swap_queue_list    RANK_CACHE - 1  the order of a plist policy; no other policy takes it
 *   swap_queue_tag     RANK_DEV - 2    why devices are closed; only when one becomes full or free
 * queue_alloc() may be called with locks below RANK_CACHE - 1 held and calls queue_ops.alloc with
 * none of its own. queue_freed(), queue_close() and queue_retry(): with any below RANK_DEV - 2.
 * The others are writers: below RANK_CACHE - 3, and with none that an allocation may wait for.
 * Context: queue_alloc() never mallocs; it blocks only in queue_ops.alloc (and for a plist's lock).
 * Writers sleep as long as the longest allocation that is under way.
 */
#ifndef USWAP_SWAP_QUEUE_H
#define USWAP_SWAP_QUEUE_H

#include "base/util.h"
#include "swap/policy.h"
#include "swap/tier.h"

#define QUEUE_MAX_DEVS 64u  /* as many as the availability word has bits */
#define QUEUE_QUOTA_PAGES 512u /* a turn: one cluster, where the device names no other */
#define QUEUE_MAX_WEIGHT 1000u

struct queue;

struct queue_ops {
	/*
	 * First slot of a run of 2^order, or 0. May block. Called by any number of threads at once;
	 * not before queue_add(), and not any more once queue_off() has returned.
	 */
	uint32_t (*alloc)(void *dev, unsigned int order);
	/* The same with less effort, for requests that are `quick`. NULL: alloc. */
	uint32_t (*alloc_quick)(void *dev, unsigned int order);
	/*
	 * Has it no free slot at all, and can it not grow? Called without locks of the queue.
	 * It must see every free that came before: either both look under one lock, or both
	 * are sequentially consistent atomics.
	 */
	bool (*is_full)(void *dev);
};

struct queue_config {
	const struct queue_ops *ops;
	enum queue_policy policy;
	unsigned int nr_cpus; /* 0: as many as the machine has */
	/* Of a CPU, below QUEUE_MAX_NODES; NULL: all on node 0. Asked once, at the start. */
	unsigned int (*node_of_cpu)(void *host, unsigned int cpu);
	void *host; /* for node_of_cpu */
};

struct queue *queue_create(const struct queue_config *cfg, int *err);
/* Nothing may be under way. Devices are left alone. Takes NULL. */
void queue_destroy(struct queue *q);

/* As queue_config.node_of_cpu said; 0 of a CPU beyond nr_cpus. */
unsigned int queue_node_of_cpu(const struct queue *q, unsigned int cpu);

/* ---- allocation ---- */

struct queue_req {
	unsigned int order;
	uint64_t skip;	 /* bit d: not from device d, as if it were closed */
	uint64_t denied; /* bit t: not from tier t (the complement of a mask of tier.h) */
	enum queue_policy policy; /* of a process; holds where a tier names none */
	bool quick;		  /* by queue_ops.alloc_quick */
	unsigned int home;	  /* 1 + the node that it is for; 0: that of the calling CPU */
};

struct queue_got {
	unsigned int dev;
	uint32_t slot;
};

/*
 * Slots for 2^order pages from the first device that has them. 0, or
 *   -ENOENT  no device that may be used has room
 *   -E2BIG   order > 0, and none of the peers in the first ring with an open device had a run: split
 *            the folio. Rings of lower priority were not asked, so that a large folio is
 *            never sent to a slower device only because a faster one is fragmented.
 * A device that fails and is full is closed, and counts as if it had been so before.
 *
 * -ENOENT means that each device was found without room at some time during the call.
 */
int queue_alloc(struct queue *q, const struct queue_req *req, struct queue_got *got) __must_check;

/*
 * The first open device of the group that an allocation would begin with, or -1. Whose turn it is
 * among its peers is not asked, nor changed.
 */
int queue_first(struct queue *q, const struct queue_req *req);
/* Bit d: device d is open, and not skipped or denied by req. */
uint64_t queue_open(struct queue *q, const struct queue_req *req);
/* The same of those that are closed for QUEUE_FULL and nothing else. */
uint64_t queue_full(struct queue *q, const struct queue_req *req);
/* Why the device is closed; 0: it is open, or not there. */
unsigned int queue_closed(struct queue *q, unsigned int dev);

/*
 * Slots of the device have just been freed, in its allocator: opens it if it was full. Call it
 * after each free; as long as nothing is closed it costs one load.
 */
void queue_freed(struct queue *q, unsigned int dev);
/*
 * The same for slots that held nothing, as of a write that failed: they say nothing about the
 * device's disk, so QUEUE_NOSPC stays.
 */
void queue_unused(struct queue *q, unsigned int dev);

/* Why a device is closed. */
#define QUEUE_FULL 1u	/* no free slot; ends with queue_freed() */
#define QUEUE_NOSPC 2u	/* its disk is full; ends with queue_freed() and queue_retry() */
#define QUEUE_FAILED 4u /* it is given up */
#define QUEUE_OFF 8u	/* being removed */

/* Closes a device for QUEUE_NOSPC or QUEUE_FAILED. */
void queue_close(struct queue *q, unsigned int dev, unsigned int why);
/* It has grown, or its disk may have room again: opens what QUEUE_FULL or QUEUE_NOSPC closed. */
void queue_retry(struct queue *q, unsigned int dev);

/* A write of so many pages took so long, queueing included. For the policy `weighted`. */
void queue_note_speed(struct queue *q, unsigned int dev, uint32_t nr_pages, uint64_t ns);

/* ---- devices ---- */

struct queue_dev_config {
	void *dev; /* for queue_ops */
	int prio;  /* SWAP_PRIO_MIN..SWAP_PRIO_MAX; many of one priority are peers, also at SWAP_PRIO_MIN */
	unsigned int weight; /* 1..QUEUE_MAX_WEIGHT; 0: none given */
	int node; /* -1: no node's */
	/*
	 * How long its turn is, in pages; 0: QUEUE_QUOTA_PAGES. At least one folio in any case. Shorter
	 * for what is slow, so that peers work side by side on what is in flight at one time.
	 */
	uint32_t turn_pages;
};

/*
 * swapon: the device is ready before this is called. In one writer's section it joins its ring and
 * is open. dev is its number, the caller's to choose. 0, -EINVAL, -EEXIST (number in use).
 */
int queue_add(struct queue *q, unsigned int dev, const struct queue_dev_config *cfg) __must_check;

/*
 * swapoff is, in this order:
 *   1. queue_off()     nothing is allocated from it when this returns, or later
 *   2. the owner moves away what is there; frees go on; it may give up: queue_on()
 *   3. queue_remove()  no allocation, row or turn knows it when this returns: it can be freed
 * 0, or -ENOENT; queue_remove(): -EBUSY if it was not off.
 */
int queue_off(struct queue *q, unsigned int dev) __must_check;
int queue_on(struct queue *q, unsigned int dev) __must_check;
int queue_remove(struct queue *q, unsigned int dev) __must_check;

/* 0, -ENOENT, -EINVAL. Holds from the next turn on. */
int queue_set_weight(struct queue *q, unsigned int dev, unsigned int weight) __must_check;

/* What `swaps` shows of a device. */
struct queue_row {
	unsigned int dev;
	uint64_t serial; /* of its queue_add(): tells apart two that had the same number */
	int prio;
	unsigned int tier;   /* number of its tier */
	const char *tier_name; /* stays valid as long as the queue */
	unsigned int closed; /* QUEUE_FULL, ... */
	unsigned int weight;
	uint64_t speed; /* measured, pages a second; 0: not yet */
	void *owner;	/* queue_dev_config.dev; it stays valid until fn has returned */
};
/*
 * Calls fn for every device, highest priority first, peers in order of swapon. All are of one
 * moment: the set, its order and its tiers are what they were after one writer and before the next.
 * Not a writer: never waits. fn may block, but must not call writers or queue_alloc().
 */
void queue_each(struct queue *q, void (*fn)(void *arg, const struct queue_row *row), void *arg);

/* ---- policies and tiers ---- */

/* The job's policy from now on. 0 or -EINVAL. Turns that are under way begin anew. */
int queue_set_policy(struct queue *q, enum queue_policy policy) __must_check;
/* Lets queue_req name a policy; before that the job's is used in its place. 0 or -EINVAL. */
int queue_use_policy(struct queue *q, enum queue_policy policy) __must_check;

/* As in tier.h; they hold for every allocation that begins after the return. */
int queue_tier_add(struct queue *q, const struct tier_spec *spec) __must_check;
int queue_tier_change(struct queue *q, const struct tier_spec *spec) __must_check;
int queue_tier_remove(struct queue *q, const char *name) __must_check;
int queue_tier_mask(struct queue *q, const char *const *names, unsigned int n, uint64_t *mask)
	__must_check;
/* Copies the tiers, highest first. Returns how many there are. */
unsigned int queue_tiers(struct queue *q, struct tier *tiers, unsigned int max);
/* Name of a number as queue_row.tier or a bit of a mask, or NULL. Stays valid. */
const char *queue_tier_name(struct queue *q, unsigned int id);

/* ---- figures ---- */

struct queue_stat {
	uint64_t refused;  /* attempts that a device refused */
	uint64_t closed;   /* times that a device was found full */
	uint64_t reopened; /* times that one was opened by a free */
	uint64_t too_big;  /* -E2BIG */
};
void queue_stat(struct queue *q, struct queue_stat *st);
/* Memory that has been touched, about. */
uint64_t queue_bytes(struct queue *q);
/* Walks every invariant; aborts with a message. With nothing under way. */
void queue_check(struct queue *q);
/* "64 prio 10 tier fast full|off speed 0". Returns buf. */
char *queue_row_to_text(const struct queue_row *row, char *buf, size_t len);

#endif
