/* SPDX-License-Identifier: MIT */
/*
 * What queue.c, queue_layout.c and the policies share.
 *
 * A layout sorts the devices by priority, highest first, peers in order of swapon: a device's
 * place there is its *position*. Sets of devices are words with a bit for each position, so the
 * best device of a set is its lowest bit, and however many are closed before it costs nothing.
 *
 * Positions are cut into *groups*: contiguous, tried one after the other. How they are cut depends on
 * the policy, and since a process may have one of its own there is a *view* of the same positions
 * for each policy in use.
 *
 * What outlives a layout, turns and lists, lies in *rings*: a group finds the ring of the same
 * policy, tier and priority that its predecessor had.
 */
#ifndef USWAP_SWAP_QUEUE_INTERNAL_H
#define USWAP_SWAP_QUEUE_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/readers.h"
#include "swap/queue.h"

#define NO_POSITION 0xffu
/* Each view of the old and of the new layout may have one for every device. */
#define MAX_RINGS (2u * QUEUE_MAX_DEVS * (NR_POLICIES - 1))

struct queue_ring;
struct queue_walk;

enum queue_scope {
	SCOPE_BAND, /* a tier is one group; without tiers each priority is one */
	SCOPE_PRIO, /* each priority is one */
	SCOPE_LIST, /* as far as no tier begins or ends; priority is the policy's matter */
};

struct queue_policy_ops {
	const char *name;
	enum queue_scope scope;
	/* Where there is one device to try it is tried without asking. */
	bool skip_if_alone;
	/*
	 * Which of the positions in `left`, never empty, to try now. w->step tells how many were tried
	 * in this group before; each of them has left the set.
	 */
	unsigned int (*pick)(struct queue_walk *w, uint64_t left);
	/* The ring's devices are these from now on. NULL: nothing to do. Under the writers' lock. */
	void (*sync)(struct queue *q, struct queue_ring *ring, const uint8_t *numbers,
		     unsigned int nr);
};

struct queue_ring {
	/* protected by the writers' lock; constant for readers */
	bool used;
	bool listed; /* its list was used at some time */
	enum queue_policy policy;
	unsigned int tier;
	int key; /* tells apart the rings of one policy and tier */
	uint64_t serial; /* of the last layout that has it */
	unsigned int index; /* in queue.rings, and of the word of each CPU; constant */

	_Alignas(64) _Atomic uint32_t tickets; /* turns that were drawn, of all CPUs */
	_Alignas(64) struct us_mutex list_lock; /* of the ring's list, for the plist policies */
};

/*
 * A device's place in a list, or the list's head. The links are atomic for the simulation only,
 * which knows of no other accesses: what makes a list dear is that each link lies in a cache line
 * that another CPU has written.
 */
struct plist_node {
	/* protected by list_lock: numbers of devices, or PLIST_HEAD */
	_Alignas(64) _Atomic uint8_t next;
	_Atomic uint8_t prev;
	_Atomic int prio; /* constant while it is on the list */
};
#define PLIST_HEAD QUEUE_MAX_DEVS

struct plist {
	struct plist_node node[QUEUE_MAX_DEVS + 1];
};

struct queue_group {
	uint64_t mask;
	const struct queue_policy_ops *ops;
	struct queue_ring *ring;
	uint8_t first, nr; /* positions */
	uint8_t tier;
};

struct queue_view {
	unsigned int nr_groups;
	uint8_t group_of[QUEUE_MAX_DEVS];
	/* Where a large folio that failed at one level may not go on: higher is slower. */
	uint8_t level[QUEUE_MAX_DEVS];
	struct queue_group group[QUEUE_MAX_DEVS];
};

/* Constant once it is published, but for `open`. */
struct queue_layout {
	uint64_t serial;
	unsigned int nr;
	uint8_t number[QUEUE_MAX_DEVS];	  /* of the device at a position */
	uint8_t position[QUEUE_MAX_DEVS]; /* of a device, or NO_POSITION */
	uint8_t tier[QUEUE_MAX_DEVS];	  /* by position */
	/*
	 * By position: whoever must be closed for the device there to be taken without asking its
	 * policy, in whatever view. Its peers; or all, itself too, where the policy must be asked.
	 * For the commonest queue, one device, it is nobody.
	 */
	uint64_t mates[QUEUE_MAX_DEVS];
	void *owner[QUEUE_MAX_DEVS]; /* for queue_ops, by position */
	uint8_t view_of[NR_POLICIES];
	uint64_t on_node[QUEUE_MAX_NODES];
	struct queue_view view[NR_POLICIES];
	/*
	 * Bit p: the device at position p is not closed. Written under tag_lock, and while this is
	 * the current layout; what a reader of an old one sees may be old too.
	 */
	_Alignas(64) _Atomic uint64_t open;
};

/* A device, by its number. All but the atomics are constant while a layout has it. */
struct queue_dev {
	void *dev;
	int prio, node;
	uint32_t turn_pages;
	uint64_t serial;
	_Atomic uint32_t closed; /* why; written under tag_lock */
	_Atomic uint32_t weight;
	_Atomic uint64_t speed;
};

struct queue {
	struct queue_config cfg;
	_Atomic(struct queue_layout *) current;
	char *words; /* of all CPUs, words_stride bytes each */
	size_t words_stride, words_bytes;
	uint8_t *node_of_cpu;
	struct queue_dev devs[QUEUE_MAX_DEVS];

	struct us_mutex tag_lock;
	struct us_mutex writer_lock;
	/* protected by writer_lock */
	struct queue_layout layouts[2];
	struct queue_ring rings[MAX_RINGS];
	struct plist plists[MAX_RINGS]; /* of the ring with that index; only those in use are touched */
	_Atomic uint32_t nr_rings; /* that were ever used, the first ones; read without the lock */
	_Atomic uint32_t nr_lists; /* of the rings, that were ever used; likewise */
	struct tier_table tiers;
	enum queue_policy policy;
	uint32_t views; /* bit p: there is a view of policy p */
	bool present[QUEUE_MAX_DEVS];
	uint64_t last_serial; /* of layouts and devices */

	_Alignas(64) _Atomic uint64_t nr_refused;
	_Atomic uint64_t nr_closed, nr_reopened, nr_too_big;
};

/* One allocation on its way through the queue: nobody else's, so its turns are its own. */
struct queue_walk {
	struct queue *q;
	const struct queue_layout *l;
	const struct queue_group *g;
	uint32_t nr_pages;
	unsigned int step;   /* devices tried in this group */
	unsigned int cpu;    /* constant from the first step on, wherever the thread is moved to */
	unsigned int home;   /* as queue_req.home */
	unsigned int cursor; /* the ring policies: where this walk began in this group */
};

/* The word of a CPU for a ring: 0 until its first use. See policy.c. */
static inline _Atomic uint64_t *queue_word(struct queue *q, unsigned int cpu,
					   const struct queue_ring *ring)
{
	return (_Atomic uint64_t *)(q->words + cpu * q->words_stride) + ring->index;
}

unsigned int queue_cpu(const struct queue *q);

const struct queue_policy_ops *policy_ops(enum queue_policy policy);
extern const struct queue_policy_ops policy_plist_shared, policy_plist_percpu;

/* Empties the list of a ring. */
void plist_clear(struct queue *q, struct queue_ring *ring);

/* ---- queue_layout.c ---- */

/* Makes a layout of what is present and publishes it; readers of the old one are gone then. */
void queue_publish(struct queue *q);

#endif
