/* SPDX-License-Identifier: MIT */
/*
 * The memory manager: all spaces of a job, its faults, events and eviction.
 *
 *   fault.c   answers a fault            event.c  reads and orders events
 *   evict.c   moves folios out           range.c  registers ranges of a process
 *   remote.c  a space in another process handler.c  threads that wait for faults
 *
 * Not its job: processes and their names (src/super), where content is kept (src/swap).
 */
#ifndef USWAP_MM_MM_H
#define USWAP_MM_MM_H

#include "base/thread.h"
#include "mm/space.h"
#include "reclaim/reclaim.h"
#include "swap/swap.h"

#define MAX_SPACES 16384u
#define NR_FILLS 64u

/* What the host above (src/super) does for the memory manager. Called without locks. */
struct mm_host_ops {
	/* Bytes of the budget that processes and supervisor use now, measured. */
	uint64_t (*measure)(void *host);
	/* Ends a process to make room; false: nobody to end. */
	bool (*out_of_memory)(void *host);
};

/* Leaves out a rule of docs/fault-states.md, to show that a test notices. Test builds only. */
struct mm_mutants {
	bool no_gate;		 /* 1: MOVE through another userfaultfd than the events' */
	bool no_permit;		 /* 2 */
	bool no_order;		 /* 3: apply events in the order in which they were read */
	bool no_filled_only;	 /* 4: take what is present for ours */
	bool no_whole_vma;	 /* 5: register the first half of a VMA, and do not look again */
	bool no_populate;	 /* 7 */
	bool own_staging;	 /* 4: take staging for the program's, where it is in a range */
	bool slow_reader;	 /* no rule: reads events late, so that races have time to happen */
};
extern struct mm_mutants mm_mutants;

struct fill {
	struct swap_load load;
	struct list_node node; /* mm->free_fills or space->fills */
	struct space *space;
	uint64_t va; /* page that faulted */
	uint64_t since_ns;
	unsigned int sub, order;
	bool write;
	bool ahead; /* nobody has asked for it yet */
	bool alone; /* the fault was out of sequence: the pages around it are not needed soon */
	void *buf; /* MAX_FOLIO_BYTES of address space, of which */
	uint32_t warm_bytes; /* were used before */
};

struct handler {
	struct mm *mm;
	struct us_thread thread;
	int epoll_fd;
	int cpu;
	_Atomic uint64_t passes; /* one more each time around: grace periods for dead spaces */
};

struct mm_config {
	uint64_t limit_bytes;
	int order; /* 0..9, -1: auto */
	bool evict_all; /* test mode: evict everything as fast as possible */
};

struct mm {
	struct mm_config cfg;
	struct swap *swap; /* not owned */
	const struct mm_host_ops *host_ops;
	void *host;
	struct reclaim reclaim;
	struct table_pools pools;
	struct mem_pool space_pool, remote_pool;

	struct us_mutex spaces_lock;
	/* protected by spaces_lock */
	struct list_node spaces, graveyard;
	struct space *hand; /* space that reclaim looks at next */
	uint64_t next_nonce;

	struct us_mutex fills_lock;
	/* protected by fills_lock */
	struct list_node free_fills;
	unsigned int nr_free_fills;
	uint64_t fills_warm_bytes; /* of those in free_fills */
	struct fill fill[NR_FILLS];
	char *fill_bufs;

	struct handler handler[MAX_HANDLERS];
	int nr_handlers;
	int wake_fd; /* eventfd: handlers look whether to stop */
	struct us_thread evictor; /* evict_all */
	atomic_bool stop;

	_Atomic uint64_t limit;	     /* bytes */
	_Atomic uint64_t used;	     /* estimate: last measure, plus fills, minus evictions */
	_Atomic uint64_t peak;	     /* highest measure */
	_Atomic uint64_t margin;     /* part of the last measure that is kept free, not in use */
	atomic_bool estimated;	     /* the last measure is an upper bound, not for peak */
	_Atomic uint64_t gen_fills;  /* pages filled in this generation */
	_Atomic unsigned int gen;    /* current generation, modulo 256 */
	atomic_bool short_of_memory; /* ranges are registered as they appear */
	atomic_bool out_of_room;     /* devices took nothing at the last try */
};

/* Handlers start; reclaim starts. 0 or -errno. */
int mm_start(struct mm *mm, const struct mm_config *cfg, struct swap *swap,
	     const struct mm_host_ops *ops, void *host) __must_check;
/* All spaces must be dead. Stops every thread. */
void mm_stop(struct mm *mm);
void mm_set_limit(struct mm *mm, uint64_t bytes);
/* A new measure of what is in use; wakes kswapd if needed. Returns free bytes (may be < 0). */
int64_t mm_measured(struct mm *mm, uint64_t used_bytes);
/* Frees dead spaces that no thread can still see, retries faults put aside. ~ every millisecond. */
void mm_tick(struct mm *mm);

/* ---- spaces ---- */

/* A space that nobody knows yet, or NULL. */
struct space *space_create(struct mm *mm, const struct space_ops *ops, void *impl);
/* From here on reclaim and others see it: what is constant in it must be set. */
void space_publish(struct space *s);
void space_get(struct space *s);
void space_put(struct space *s);
/*
 * The memory is gone or left: no more faults, batches or registrations; all entries are dropped.
 * Waits for a batch in flight (bounded). Idempotent. No lock held.
 */
void space_kill(struct space *s);

/* Gives up the word at (l, idx): its reference on an entry goes. lock held. */
void space_drop_word(struct space *s, struct leaf *l, unsigned int idx);
/* The same for all words in [start, end). lock held. */
void space_drop_range(struct space *s, uint64_t start, uint64_t end);

/* Takes what can be read from the space and answers it. Any thread, no lock held. */
void space_service(struct space *s);
/* Tries the faults that were put aside again. */
void space_retry(struct space *s);
/* Registers and scans ranges of a process that are large enough. In range.c; remote spaces only. */
void space_scan_ranges(struct space *s, bool force);

/*
 * Moves about nr_pages pages of age >= min_age (generations) into the swap cache. Returns pages
 * moved, -EAGAIN if no batch could be made now, -ENOBUFS when the swap cache is full.
 */
int64_t space_evict(struct space *s, uint64_t nr_pages, unsigned int min_age);

/* ---- between the files of this folder ---- */

/* May another folio be filled? urgent: always, over budget if need be. */
bool mm_room(struct mm *mm, bool urgent);
/* Is there room for nr_pages that nobody waits for? */
bool mm_room_ahead(struct mm *mm, uint64_t nr_pages);
void mm_account_filled(struct mm *mm, uint64_t pages);
void mm_account_moved(struct mm *mm, uint64_t pages);
static inline uint8_t mm_gen(struct mm *mm)
{
	return (uint8_t)atomic_load_explicit(&mm->gen, memory_order_relaxed);
}
/* Index of the batch item that covers va with this entry, or -1. lock held. */
int space_find_item(struct space *s, uint64_t va, swp_t entry);
/* Answers one fault; returns false if it must be put aside. lock NOT held. held: hold is on. */
enum fault_result { FAULT_DONE, FAULT_AGAIN, FAULT_NEED_HOLD };
enum fault_result fault_try(struct space *s, uint64_t va, bool write, uint64_t since_ns, bool held);
/* Puts a fault aside, to be tried again by space_retry(). lock held. */
void fault_defer(struct space *s, uint64_t va, bool write, uint64_t since_ns);

/* ---- adopt.c: pages that are present without our having filled them ---- */

/* What of [start, end) is present becomes RESIDENT; all of it is registered. 0 or -errno. lock held. */
int space_take_present(struct space *s, uint64_t start, uint64_t end) __must_check;
/* Does so a second after a REMOVE, when MADV_DONTNEED has run (rule 4). lock held. */
void space_adopt_later(struct space *s, uint64_t start, uint64_t end);
/* Does so when the gate is open, for what of it is registered then. lock held. */
void space_adopt_soon(struct space *s, uint64_t start, uint64_t end);
/* Does a part of [start, end) wait for the end of a madvise()? lock held. */
bool space_adopt_waits(const struct space *s, uint64_t start, uint64_t end);
/* A child that is being built is to look where its parent is. lock of the parent held. */
void space_adopt_inherit(struct space *child, const struct space *parent);
/* Looks at the ranges whose time has come. reader_lock held, hold off. */
void space_adopt(struct space *s);

#endif
