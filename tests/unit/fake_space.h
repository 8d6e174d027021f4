/* SPDX-License-Identifier: MIT */
/*
 * A space made of arrays, for the tests of src/mm: one window of addresses of a simulated program
 * with a few threads, and what the kernel does for it.
 *
 * Every page has two faces: what the program must see there (`want`, by the rules of mmap(2),
 * munmap(2), ... alone), and what the kernel has there (present, content). The engine works on the
 * second; each access of the program compares the two.
 *
 * Modelled: mappings and which of them are registered; faults that wait until they are woken;
 * events that are posted after the operation took effect, in any order between threads, and read
 * in the order of posting; the gate, closed from the operation until the thread has run again
 * after the read; MADV_DONTNEED that empties its range only then; MADV_FREE; fork with shared
 * pages; MOVE with its refusals; staging.
 *
 * Not modelled: the time that anything takes; merging of mappings.
 *
 * Locking: world.lock for everything. Callbacks are made without it.
 */
#ifndef USWAP_FAKE_SPACE_H
#define USWAP_FAKE_SPACE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "mm/mm.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

#define FAKE_PAGES 2048u		/* a window of four leaves */
#define FAKE_BASE 0x7f12c0000000ull
#define FAKE_THREADS 4u
#define MAX_FAKES 256

struct fake_page {
	/* What the program must see. */
	uint64_t want;
	bool zero_too; /* MADV_DONTNEED in progress, or MADV_FREE: zeros are right as well */
	bool lost;     /* SIGBUS is right as well: its device fails */
	uint64_t changed_at; /* written, or came to this address */
	/* What the kernel has. */
	uint64_t content; /* see fake_fill_page() */
	uint32_t vma;	  /* 0: not mapped */
	uint8_t mode;	  /* enum agent_mode; NR_AGENT_MODES: neither */
	bool registered, present, poisoned, guard;
	bool lazy;   /* MADV_FREE: the kernel may take it until it is written */
	bool shared; /* by a fork; MOVE refuses it until it was made exclusive */
	bool pinned;
};

enum fake_op {
	OP_ACCESS,
	OP_MMAP,
	OP_MUNMAP,
	OP_MREMAP,
	OP_DONTNEED,
	OP_FREE,
	OP_FORK,
};

enum fake_thread_state {
	T_IDLE,
	T_POST,	  /* the operation took effect; its next event is not posted yet */
	T_POSTED, /* waits until the event has been read */
	T_READ,	  /* it has been; the thread has not run since */
	T_EMPTY,  /* MADV_*: the event is over, the range is still to be emptied */
	T_ACCESS, /* about to touch `page` */
	T_FAULT,  /* waits; the fault has not been read */
	T_FAULT_READ,
};

struct fake_thread {
	enum fake_thread_state state;
	enum fake_op op;
	struct event ev[3]; /* of the operation, in the order of posting */
	unsigned int nr_ev, at;
	unsigned int page, nr_pages; /* of an access: the next one, and how many are left */
	bool write;
	uint64_t token;	    /* written to the next page; 0: a new one each */
	uint64_t began_at;  /* MADV_* */
	unsigned int start, end; /* MADV_*: the range; OP_MREMAP, OP_MMAP: the result */
	unsigned int left, left_end; /* OP_MREMAP, OP_MUNMAP: what it took out of the mappings */
	struct fake *child;
	/* of the last page that was read */
	uint64_t saw;
	bool sigbus, segv;
};

struct staged {
	uint64_t content;
	bool present;
};

struct fake {
	struct world *w;
	struct space *s; /* NULL until the fork event has been read */
	int index;
	bool dead, returned /* fork() has, in the parent */, visible;
	bool no_helper;
	struct fake_page page[FAKE_PAGES];
	struct fake_thread thread[FAKE_THREADS];
	unsigned int events[FAKE_THREADS], nr_events; /* posted: threads, in order */
	unsigned int faults[FAKE_THREADS], nr_faults;
	unsigned int changing; /* the gate is closed while > 0 */
	/* The helper. */
	bool hold;
	struct staged staging[NR_AGENT_MODES][STAGING_PAGES];
	const struct batch_item *batch;
	unsigned int nr_batch, next_item;
	uint16_t moved[BATCH_ITEMS];
	int move_error[BATCH_ITEMS];
	bool cancelled[BATCH_ITEMS];
	bool drop_failed;
	/* Counted. */
	uint64_t nr_copies, nr_wakes, nr_moved_pages, nr_poisoned;
};

struct world {
	struct mm mm;
	struct swap *swap;
	struct us_mutex lock;
	struct fake *fake[MAX_FAKES];
	int nr_fakes;
	uint64_t now, next_token;
	uint32_t next_vma;
	uint64_t used_bytes; /* what the host says is in use */
	unsigned int ooms;
	/*
	 * Called inside each op of the space, for what the program does meanwhile; engine_too: only
	 * the batch lock is held, so events may be served as well. NULL: where the engine waits for
	 * the gate, threads run on in order of number.
	 */
	void (*meanwhile)(struct world *w, struct fake *f, bool engine_too);
	void *meanwhile_arg;
	bool real_threads; /* the program runs on in a thread of its own */
	/* A wrong page ends the test, unless it is expected: then it is counted. */
	bool expect_wrong;
	unsigned int wrong;
	uint64_t visits;
	const char *what; /* printed with a wrong page */
	uint64_t seed;
	bool trace; /* prints all that happens */
};

/* A job with one device; order as in mm_config. Ends the test on failure. */
struct world *world_create(int order, struct dev *d, uint64_t limit);
struct world *world_on_ram(int order);
/* Ends all spaces, looks that no entry is left, and frees everything. */
void world_destroy(struct world *w);
/* swap_check(), and table_check() of every space. Nothing may be in flight. */
void world_check(struct world *w);
uint64_t world_nr_entries(struct world *w);

struct fake *fake_create(struct world *w);
static inline uint64_t fake_va(unsigned int page)
{
	return FAKE_BASE + ((uint64_t)page << PAGE_SHIFT);
}
static inline pw_t fake_word(struct fake *f, unsigned int page)
{
	return table_get(&f->s->table, fake_va(page));
}
/* Content of one page as a function of content. */
void fake_fill_page(uint64_t content, void *page);
uint64_t fake_new_token(struct world *w, unsigned int kind); /* kind 0..3: how it compresses */

/* ---- the program: the part of an operation that holds the mmap lock ---- */

/* False: the thread is busy, or the operation is refused. */
bool fake_mmap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, uint8_t mode);
bool fake_munmap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr);
bool fake_mremap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr,
		 unsigned int to, unsigned int new_nr);
bool fake_madvise(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, bool free_it);
struct fake *fake_fork(struct fake *f, unsigned int t);
bool fake_access(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, bool write,
		 uint64_t token);
/* One step of a thread. False: it waits or is idle. */
bool fake_run(struct fake *f, unsigned int t);
/* Runs threads that have read events, else posts the next one. False: nothing to do. */
bool fake_run_any(struct fake *f);
/* Maps, and registers at once. */
void fake_map(struct fake *f, unsigned int page, unsigned int nr);
/* The supervisor registers what is mapped (range.c in small). Returns pages registered. */
unsigned int fake_register(struct fake *f);
void fake_guard(struct fake *f, unsigned int page, unsigned int nr);

/* ---- until it is done ---- */

/* Runs and serves everything until all threads of all programs are idle. */
void world_settle(struct world *w);
/* One access by the last thread, to its end. */
void fake_write(struct fake *f, unsigned int page, uint64_t token);
uint64_t fake_read(struct fake *f, unsigned int page);
bool fake_read_is_sigbus(struct fake *f, unsigned int page);
/* Writes a new token to each page, or reads each page: contents are compared on the way. */
void fake_write_range(struct fake *f, unsigned int page, unsigned int nr);
void fake_read_range(struct fake *f, unsigned int page, unsigned int nr);
/* Evicts until nothing moves any more. Returns pages moved. */
uint64_t fake_evict_all(struct fake *f);
/* Everything that is cached goes to the device. */
void world_write_all(struct world *w);
/* Makes noted removes a second older, and adopts. */
void fake_adopt(struct fake *f);

#endif
