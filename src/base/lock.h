/* SPDX-License-Identifier: MIT */
/*
 * Ranked mutexes and condition variables: the only locks outside the agent.
 *
 * Every mutex belongs to a lock class, which carries its name, its rank and its statistics. A
 * thread may only take a lock whose rank is higher than that of each lock it holds; debug builds
 * (USWAP_DEBUG >= 1) assert it. docs/locking.md has the table of what each lock protects.
 *
 * Context: us_mutex_lock() may block; nothing here allocates.
 */
#ifndef USWAP_BASE_LOCK_H
#define USWAP_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Outermost first. A gap between two values leaves room for a later lock. */
enum lock_rank {
	RANK_JOB = 10,	   /* super: table of processes */
	RANK_BATCH = 25,   /* mm: one eviction batch of a space at a time */
	RANK_READER = 30,  /* mm: reading events of a space */
	RANK_SPACE = 40,   /* mm: table of a space */
	RANK_SPACES = 45,  /* mm: list of spaces; free fills */
	RANK_RECLAIM = 46, /* reclaim: kswapd's state; asked for room under RANK_SPACE */
	RANK_CACHE = 50,   /* swap: list of cached folios */
	RANK_ENTRY = 55,   /* swap: one shard of entries */
	RANK_DEDUP = 58,   /* swap: hash index */
	RANK_CL_CPU = 59,  /* swap: where a CPU goes on allocating on a device */
	RANK_CLUSTER = 60, /* swap: one cluster of a device */
	RANK_CL_LIST = 61, /* swap: lists of clusters of a device */
	RANK_DEV = 70,	   /* dev: private state of a device */
	RANK_ZPOOL = 80,   /* zpool */
	RANK_MEM = 85,	   /* base: slabs */
	RANK_LOG = 90,	   /* base: log ring */
};

/* Of a thread with a number below LOCK_OWN_COUNTS, the last one of all others. */
#define LOCK_OWN_COUNTS 15u
struct lock_count {
	_Alignas(64) _Atomic uint64_t acquired;
};

struct lock_class {
	const char *name;
	int rank;
	bool inherits;		 /* see LOCK_CLASS_INHERITS */
	struct lock_class *next; /* list of all classes, see lock_class_first() */
	_Atomic uint64_t contended, wait_ns;
	atomic_bool listed;
	/* Apart, since threads that share no lock of a class must not share its count either. */
	struct lock_count count[LOCK_OWN_COUNTS + 1];
};

#define LOCK_CLASS(var, lock_name, lock_rank)                                                      \
	static struct lock_class var = {.name = (lock_name), .rank = (lock_rank)}

/*
 * A lock that the real-time thread takes: while it waits, the holder runs with its priority.
 * Otherwise a holder that lost its CPU to the programs would keep it waiting for whole time slices.
 */
#define LOCK_CLASS_INHERITS(var, lock_name, lock_rank)                                             \
	static struct lock_class var = {.name = (lock_name), .rank = (lock_rank), .inherits = true}

struct us_mutex {
	pthread_mutex_t m;
	struct lock_class *cls;
};

struct us_cond {
	pthread_cond_t c;
};

void us_mutex_init(struct us_mutex *l, struct lock_class *cls);
void us_mutex_deinit(struct us_mutex *l);
void us_mutex_lock(struct us_mutex *l);
bool us_mutex_trylock(struct us_mutex *l);
void us_mutex_unlock(struct us_mutex *l);
/* Aborts in debug builds if the calling thread does not hold a lock of this class. */
void us_mutex_assert_held(struct us_mutex *l);

void us_cond_init(struct us_cond *c);
void us_cond_deinit(struct us_cond *c);
void us_cond_signal(struct us_cond *c);
void us_cond_broadcast(struct us_cond *c);
void us_cond_wait(struct us_cond *c, struct us_mutex *l);
/* Waits at most timeout_ns; returns false when the time ran out. Monotonic clock. */
bool us_cond_timedwait(struct us_cond *c, struct us_mutex *l, uint64_t timeout_ns);

/* Walks every class that was ever used, for statistics; the list only grows. */
struct lock_class *lock_class_first(void);

/* How often locks of the class were taken. */
static inline uint64_t lock_class_acquired(struct lock_class *c)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i <= LOCK_OWN_COUNTS; i++)
		n += atomic_load_explicit(&c->count[i].acquired, memory_order_relaxed);
	return n;
}

#endif
