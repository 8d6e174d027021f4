/* SPDX-License-Identifier: MIT */
/*
 * A space: the managed memory of one mm, and the ops through which the engine touches it.
 *
 * The engine (fault.c, event.c, evict.c) never knows whether a space is another process (remote.c)
 * or an array in a unit test: it sees the ops below.
 *
 * Locks of a space, outermost first:
 *   batch_lock    one eviction batch at a time; owns the helper's command ring
 *   reader_lock   reading events and applying them; registering; owns `hold`
 *   lock          the table, the items of the batch, faults put aside, fills in flight
 * A fill (copy into the program + change of the word) happens under `lock`.
 */
#ifndef USWAP_MM_SPACE_H
#define USWAP_MM_SPACE_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "mm/locality.h"
#include "mm/ranges.h"
#include "mm/table.h"
#include "proto/agent.h"

#define MAX_HANDLERS 16

struct mm;
struct space;

enum event_kind { EVENT_FAULT, EVENT_FORK, EVENT_UNMAP, EVENT_REMOVE, EVENT_REMAP };

struct event {
	enum event_kind kind;
	bool write;	     /* FAULT */
	bool done;	     /* applied */
	uint64_t start, end; /* UNMAP, REMOVE; REMAP: source; FAULT: start only, page aligned */
	uint64_t to;	     /* REMAP: destination */
	int child_fd;	     /* FORK */
};

/* One folio on its way out. The supervisor's own copy: the ring is shared with the program. */
struct batch_item {
	uint64_t va;
	swp_t entry; /* being filled */
	swp_t kept;  /* older copy of exactly this folio, with nr references of ours; or 0 */
	void *buf;   /* of entry */
	uint16_t nr, staging;
	uint8_t order, mode;
};

/* nr_pages from page `first` of a staging range on. */
struct staged_read {
	void *buf;
	enum agent_mode mode;
	uint16_t first, nr_pages;
	int err;
};

struct space_ops {
	/*
	 * Reads what is there without waiting: at most max events. Returns the count, 0 for none,
	 * -ESRCH when the memory is gone.
	 */
	int (*read_events)(struct space *s, struct event *ev, int max);
	/* No event is on its way: 1 open, 0 closed, -ESRCH. */
	int (*gate_open)(struct space *s);
	/* hold(true) returns once no MOVE is in progress and none can start; see rule 2. */
	void (*hold)(struct space *s, bool on);

	/*
	 * Fill missing pages and wake who waits for them. Pages filled (>= 1) or -errno:
	 * -EAGAIN an event is unread, -EEXIST present, -ENOENT not registered, -ESRCH gone.
	 */
	int64_t (*copy)(struct space *s, uint64_t va, const void *src, uint64_t nr);
	int (*zeropage)(struct space *s, uint64_t va);
	int64_t (*poison)(struct space *s, uint64_t va, uint64_t nr);
	void (*wake)(struct space *s, uint64_t va);
	/*
	 * Is va in a registered range of the program's (not of uswap's own): 1, 0, -EAGAIN, -ESRCH.
	 */
	int (*registered)(struct space *s, uint64_t va);
	/*
	 * Page states as the kernel sees them, PAGEMAP_* of sys/proc.h; nr entries. 0 or -errno.
	 */
	int (*pagemap)(struct space *s, uint64_t va, uint64_t *entry, size_t nr);
	/* Calls fn for runs of pages of [start, end) that are present, until it returns nonzero. */
	int (*each_present)(struct space *s, uint64_t start, uint64_t end,
			    int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg);

	/* Can pages be moved out at all (a helper lives)? */
	bool (*can_move)(struct space *s);
	/* Opens a batch: nothing of it is moved yet. lock held, before any word becomes ISOLATED. */
	void (*prepare)(struct space *s);
	/*
	 * Posts the items and waits for the end. Afterwards each item's moved count is final.
	 * 0, or -errno when the helper is gone (moved counts are right even then).
	 */
	int (*move)(struct space *s, const struct batch_item *items, unsigned int nr);
	/* Of an item of the current batch: pages moved so far. Exact while held. */
	unsigned int (*moved)(struct space *s, unsigned int item);
	/* Why the first page not moved was refused: -errno. Valid after move(). */
	int (*move_error)(struct space *s, unsigned int item);
	/* Forbids the item; takes effect at once while held. */
	void (*cancel)(struct space *s, unsigned int item);
	/* Reads staged pages; each one's err becomes 0 or -errno. */
	void (*read_staged)(struct space *s, struct staged_read *rd, unsigned int nr);
	/* Empties the first nr[mode] pages of each staging range and waits. 0 or -errno. */
	int (*drop_staged)(struct space *s, const uint32_t nr[NR_AGENT_MODES]);

	/* Is a thread of the program seen inside madvise(2)? May be NULL. Slow. */
	bool (*in_madvise)(struct space *s);
	/* The CPU on which a thread of the program ran last, or -1. May be NULL. */
	int (*program_cpu)(struct space *s);

	/* Makes the space of a forked child around child_fd, not published. NULL: not to be had. */
	struct space *(*fork)(struct space *parent, int child_fd);
	/* Tells the child's sentinel that the space stands (and whether it may have a helper). */
	void (*forked)(struct space *child, struct space *parent);
	/* Frees what the ops own. */
	void (*destroy)(struct space *s);
};

/*
 * Faults of a forked child that need not wait for room before its helper runs: a thread that
 * forked needs its stack, and what its fork handlers touch, to start it. Were it made to wait,
 * it would wait for itself where its own memory is what fills the budget.
 * The C library's fork() also writes to what it keeps of each other thread of the parent: at the
 * top of the thread's stack, over at most two pages, and in its arena of malloc.
 *
 * Nobody waits for ever then: the child's helper is started without a fault that waits, and runs
 * on memory that is not managed; the main loop answers it without touching managed memory. With
 * the helper the child's memory can be moved out, so what the child touches later may wait.
 */
#define START_FAULTS 64u
#define START_FAULTS_A_THREAD 3u

#define MAX_DEFERRED 256u
struct deferred {
	uint64_t va;
	uint64_t since_ns;
	bool write;
};

#define MAX_ADOPT 64
struct adopt_range {
	uint64_t start, end;
	uint64_t since_ns; /* the last REMOVE that was read; 0: none, it need not wait */
};

struct space {
	const struct space_ops *ops;
	void *impl; /* the ops' own */
	/*
	 * A page that holds what the supervisor tells the memory, see struct agent_sentinel; 0:
	 * none. Its content never goes through the table.
	 */
	uint64_t sentinel;
	char *sentinel_page;
	struct mm *mm;
	struct list_node node; /* mm->spaces; protected by mm->spaces_lock */
	atomic_int refs;
	atomic_bool dead; /* no fault of it can be served any more */

	struct us_mutex batch_lock;
	struct us_mutex reader_lock;
	struct us_mutex lock;

	/* protected by lock */
	struct table table;
	struct batch_item item[BATCH_ITEMS];
	unsigned int nr_items;
	struct deferred deferred[MAX_DEFERRED];
	_Atomic unsigned int nr_deferred;
	struct list_node fills; /* struct fill in flight */
	uint64_t hand;		/* where reclaim goes on */
	struct locality locality;
	struct adopt_range adopt[MAX_ADOPT];
	_Atomic unsigned int nr_adopt;
	unsigned int start_faults; /* left, see START_FAULTS */
	struct ranges registered; /* of what is registered, as far as seen (range.c) */

	/* protected by reader_lock */
	int fd;	     /* what handlers wait for; -1: nothing */
	int handler; /* which one serves it; -1: none */

	_Atomic uint8_t swap_class; /* what its folios may use: swap_class(); the host's to set */
	_Atomic int cpu; /* where its program was seen to run last, or -1 */
	/* The serving handler's: how often it served, and when it looks where the program runs. */
	unsigned int services, sample_in, sample_every;
	uint64_t grace[MAX_HANDLERS]; /* after death; protected by mm->spaces_lock */
	_Atomic uint64_t nr_faults;
	void *owner; /* the host's: its process, or NULL */
};

#endif
