/* SPDX-License-Identifier: MIT */
/*
 * Where an evicted folio lives: entries, the swap cache, the devices in order of priority.
 *
 * An *entry* (swp_t) is a reference-counted handle that names one swapped folio of 2^order pages,
 * whatever holds it:
 *   CACHED   its raw content is in a buffer of the swap cache, not yet written (second chance)
 *   FILLED   every 8-byte word of it has one value; nothing is stored
 *   DEVICE   at a slot of a device
 *   SPLIT    in several pieces on devices, since no device had room for it whole
 *   LOST     the content is gone (a device failed while nothing else had it); loads give -EIO
 *   GONE     the content was given up, since only pages that are resident still named it: see
 *            "kept references"
 * Tables of spaces hold (entry, page within the folio), never slots; each such word owns one
 * reference. A new entry starts with one reference, the creator's.
 *
 * Not its job: which page leaves and when (src/reclaim), whose address it is (src/mm).
 *
 * Locking: everything here is callable from any thread with RANK_SPACE or lower held, except
 *   swap_writeout(), its kin, and swap_destroy(), which the reclaim thread calls with no lock held.
 * Context: nothing uses malloc after swap_create(). swap_load() and swap_put() do not block on I/O.
 */
#ifndef USWAP_SWAP_SWAP_H
#define USWAP_SWAP_SWAP_H

#include "base/hash.h"
#include "base/util.h"
#include "dev/dev.h"
#include "swap/policy.h"
#include "swap/tier.h"

typedef uint32_t swp_t; /* 0: none */

struct swap;

struct swap_config {
	uint64_t cache_bytes;	/* most that the swap cache may hold, raw; >= 4 MiB */
	uint32_t max_entries;	/* 0: 2^28 (address space only) */
	bool no_worker;		/* tests: nothing happens in the background */
	/* As in queue_config: for the policy `node`. NULL: all CPUs are on node 0. */
	unsigned int (*node_of_cpu)(void *host, unsigned int cpu);
	void *host; /* for node_of_cpu */
};

struct swap *swap_create(const struct swap_config *cfg, int *err);
/* Frees all devices too. No load or write may be in flight. Takes NULL. */
void swap_destroy(struct swap *s);

struct swap_on_config {
	int prio;	     /* SWAP_PRIO_MIN..SWAP_PRIO_MAX; higher first, equal ones are peers */
	unsigned int weight; /* 1..1000, for the policy `weighted`; 0: none given */
	int node;	     /* for the policy `node`; below QUEUE_MAX_NODES; -1: no node's */
};

/*
 * Adds a device, which swap owns from now on, at any time. Waits for allocations that are under
 * way: no lock may be held that these want. 0; or -EINVAL, -ENOMEM, -ENOSPC (32 devices are
 * there): nothing has changed, and d is the caller's.
 */
int swap_on(struct swap *s, struct dev *d, const struct swap_on_config *cfg) __must_check;

/* Taking one away: swapoff.h */

/* ---- which device takes what: policy.h, tier.h ---- */

/* All of these but swap_tiers() wait for allocations that are under way, as swap_on(). */
/* The job's policy from now on. 0 or -EINVAL. */
int swap_set_policy(struct swap *s, enum queue_policy policy) __must_check;
/* As in tier.h; they hold for what is written from now on. */
int swap_tier_add(struct swap *s, const struct tier_spec *spec) __must_check;
int swap_tier_change(struct swap *s, const struct tier_spec *spec) __must_check;
int swap_tier_remove(struct swap *s, const char *name) __must_check;
/* Copies the tiers, highest first. Returns how many there are. */
unsigned int swap_tiers(struct swap *s, struct tier *tiers, unsigned int max);

#define SWAP_MAX_CLASSES 16u

/*
 * The number for swap_new() of folios that may go to the tiers of these names only, by that policy
 * where a tier names none. 0 is what everybody has from the start: all tiers (names NULL),
 * POLICY_DEFAULT. The same words give the same number; it stays good for ever. A folio never goes
 * elsewhere, also not when it is moved or stored in pieces; of equal content only copies of the
 * same class are found.
 * -EINVAL; -ENOSPC: too many different ones, or names (tier.h).
 */
int swap_class(struct swap *s, const char *const *names, unsigned int n, enum queue_policy policy)
	__must_check;

/* ---- into the cache ---- */

/*
 * The CPU that the program of a folio runs on, for the policy `node`; -1: not known, it is that of
 * whoever writes the folio. Between swap_new() and swap_seal().
 */
void swap_set_home(struct swap *s, swp_t e, int cpu);

/*
 * A new CACHED entry of the given order, in state "being filled": its buffer is the caller's to
 * write until swap_seal(). *buf is page aligned. -ENOBUFS: the cache is full (write out first);
 * -ENOMEM: no entry left; -EINVAL: no such order or class.
 */
int swap_new(struct swap *s, unsigned int order, unsigned int class, swp_t *e, void **buf)
	__must_check;

/*
 * The buffer is complete. Recognises content: same-filled becomes FILLED; content equal (by hash)
 * to another live entry of the same order and class returns that entry instead. The result, in *out, bears
 * one creator's reference which the caller must swap_put() when its words are set; if *out != e
 * then e keeps the references that others took meanwhile (and stays valid, its own content kept),
 * and the creator's reference on e has been dropped: e may be gone, and its number in use again.
 * So where others can still come across e (a word that names it), the caller takes a reference
 * with swap_get() before, and drops it when no word names e any more.
 */
enum swap_sealed {
	SWAP_SEALED_CACHED, /* *out == e, will be written */
	SWAP_SEALED_FILLED, /* *out == e, nothing is stored; counted as swpout_zero */
	SWAP_SEALED_EQUAL,  /* *out != e; the caller counts swpout_unchanged or swpout_shared */
};
enum swap_sealed swap_seal(struct swap *s, swp_t e, swp_t *out);

/* An entry that was never sealed: its content cannot be had. Loads give -EIO. Frees the buffer. */
void swap_mark_lost(struct swap *s, swp_t e);

/* Gives up an entry that was never sealed and that nobody else refers to. */
void swap_abandon(struct swap *s, swp_t e);

/* ---- references ---- */

void swap_get(struct swap *s, swp_t e, uint32_t n);
/* Drops n references; at zero the content is freed. Never blocks on I/O. */
void swap_put(struct swap *s, swp_t e, uint32_t n);
unsigned int swap_order(struct swap *s, swp_t e);

/* ---- kept references ---- */

/*
 * A page that came back may keep its reference on the older copy, so that an unchanged eviction
 * costs nothing. Such a reference is *kept*: it allows no load, and swap may give the content up
 * when it wants the slots. When the page leaves again its content is sealed as a new entry; if
 * nothing changed, and the older copy still stands, sealing finds it as equal.
 *
 * Turns n plain references of the caller's into kept ones. False: not to be kept (in memory, where
 * it would be held twice; device over half full; too many), and nothing is changed.
 */
bool swap_keep(struct swap *s, swp_t e, uint32_t n) __must_check;
/* n more kept references, by who has one. False: not to be had, the copy names no entry then. */
bool swap_get_kept(struct swap *s, swp_t e, uint32_t n) __must_check;
/* Drops n kept references. */
void swap_put_kept(struct swap *s, swp_t e, uint32_t n);
/*
 * Frees the content of e if all its references are kept ones but `own` plain ones, which are the
 * caller's and stay so. False: others use it, or it is not on a device.
 */
bool swap_reclaim_kept(struct swap *s, swp_t e, uint32_t own);

/* ---- taking a folio apart ---- */

/*
 * Takes a whole folio on a device apart where it lies, without I/O: each page i that has its bit in
 * live[] becomes an entry of order 0 in out[i], with one reference, the caller's; the slots of the
 * others come free, out[i] is 0 there; e is gone. content: the folio as it was loaded. The caller
 * holds all `refs` references of e and drops them with this call.
 * -EBUSY: there are other references, or e is not on a device whole; -EINVAL: order 0;
 * -ENOMEM. Nothing is changed then.
 */
int swap_explode(struct swap *s, swp_t e, uint32_t refs, const void *content,
		 const uint64_t live[MAX_FOLIO_PAGES / 64], swp_t *out) __must_check;

/* ---- back ---- */

struct swap_load {
	swp_t entry;
	void *buf; /* 2^order pages, page aligned; the caller's */
	/* Called once, perhaps inside swap_load(), from any thread, without locks of src/swap. */
	void (*done)(struct swap_load *l);
	void *priv;
	bool moving; /* src/swap's own: to store it elsewhere, not counted as swapped in */
	/*
	 * 0; -EIO (device) ; -EBADMSG (hash mismatch: content is wrong); -EAGAIN (the entry is still
	 * being filled: ask again once it is sealed).
	 */
	int result;
	/* private */
	struct swap *swap;
	struct dev_io io;
	uint64_t start_ns;
	uint32_t piece; /* SPLIT: the piece that is being read, and its first page in the folio */
	uint32_t piece_page;
	_Atomic int turn;
	unsigned int gate_phase;
};

/*
 * Loads the whole folio, checks its hash, calls done. The load holds a reference of its own until
 * done has returned. From CACHED it copies, and marks the folio as referenced.
 */
void swap_load(struct swap *s, struct swap_load *l);
/* True when a load would complete inside the call (CACHED, FILLED, or a device in memory). */
bool swap_load_is_fast(struct swap *s, swp_t e);

/* ---- out of the cache ---- */

/* Does a folio that is written now go to memory? False where no device takes any. */
bool swap_first_in_memory(struct swap *s);

/*
 * Writes cached folios, oldest first, until about nr_pages pages have left the cache (written or
 * found unreferenced) and waits for these writes. Returns the number of pages that left the cache;
 * -ENOSPC if nothing could be written because no device takes any folio that is there (all full,
 * or incompressible with only compressing devices). A folio that no device takes stays CACHED and
 * goes to the tail.
 */
int64_t swap_writeout(struct swap *s, uint64_t nr_pages);
/*
 * The same, but leaves writes of up to `ahead` more pages in flight, so that devices go on working
 * while the caller finds the next folios: what such writes have stored is counted by the call that
 * comes to know of it. A folio in flight stays in the cache, and can be loaded, until then; so who
 * calls this calls it again soon, or swap_writeout_settle() when he has no more. 0 and errors as
 * above; nothing is in flight then.
 */
int64_t swap_writeout_ahead(struct swap *s, uint64_t nr_pages, uint64_t ahead);
/* Waits for all that is in flight. Returns the pages that left the cache. */
uint64_t swap_writeout_settle(struct swap *s);

/*
 * False when folios of that order are likely to find no aligned run on any device: make smaller
 * ones. A folio that finds none is stored in pieces, which makes it slower to load.
 */
bool swap_order_ok(struct swap *s, unsigned int order);

/* ---- figures ---- */

struct swap_usage {
	uint64_t cached_bytes;	 /* raw folios in the cache */
	uint64_t pool_bytes;	 /* memory of in-memory devices */
	uint64_t metadata_bytes; /* entries, indexes, clusters, devices' tables */
	uint64_t swapped_pages;	 /* pages named by live entries other than CACHED, once per entry */
	uint64_t nr_entries;
};
void swap_usage(struct swap *s, struct swap_usage *u);
/* Pages that devices can still take in, as far as known (growing files by what they may become). */
uint64_t swap_free_pages(struct swap *s);

#define SWAP_MAX_DEVS 32

struct swap_dev_info {
	char name[256];
	const char *type; /* constant */
	int prio;
	const char *tier;    /* name; "default": in none. Stays valid */
	unsigned int weight; /* 0: none given */
	bool in_memory;
	bool draining; /* swap_off() is emptying it */
	uint64_t size_bytes; /* usable (a growing file: what it is now) */
	uint64_t used_bytes, peak_bytes;
	bool full;
	uint64_t errors, stored_bytes, compressed_bytes; /* raw bytes of content; bytes they take */
};
/*
 * All devices, by number, as they are at one moment: never one twice, one half set up, or one left
 * out that was there all the time. Fills at most SWAP_MAX_DEVS, returns how many.
 */
unsigned int swap_list_devs(struct swap *s, struct swap_dev_info *info);
/* Numbers that were ever used; one by one. False: no device has the number now. */
unsigned int swap_nr_devs(struct swap *s);
bool swap_dev_info(struct swap *s, unsigned int i, struct swap_dev_info *info);

/* Walks every invariant; aborts with a message. Call with nothing in flight. */
void swap_check(struct swap *s);
/* "entry 17: DEVICE file0 slot 512 order 4 refs 16". Returns buf. */
char *swap_entry_to_text(struct swap *s, swp_t e, char *buf, size_t len);

#endif
