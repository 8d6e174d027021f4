/* SPDX-License-Identifier: MIT */
/*
 * Moves swapped folios from one place on a device to another: to other devices (swapoff), or to
 * other slots of the same one (relocation, so that a larger run comes free). Nobody who names the
 * entry notices: tables of spaces hold entries, not slots.
 *
 * Not its job: which folios, and why (swapoff.c, relocate.c).
 *
 * Locking: mover.lock (RANK_CACHE - 4; of those that relocate RANK_CACHE - 2) for the length of a
 *   batch. Called with no lock held, or with locks of lower rank than it; several movers may run at
 *   once, also on the same folio.
 * Context: blocks on the devices; nothing that a fault waits for may wait for it.
 */
#ifndef USWAP_SWAP_MOVE_H
#define USWAP_SWAP_MOVE_H

#include "swap/internal.h"

#define MOVE_FOLIOS WRITE_FOLIOS
#define MOVE_ANYWHERE MAX_DEVS /* any device but the one that is left */

struct move_result {
	uint64_t moved_pages;
	uint32_t moved;
	uint32_t gone;	     /* not there any more: freed, or moved by somebody else */
	uint32_t unreadable; /* counted as swap_io_error */
	uint64_t lost_pages; /* of these, with lose_unreadable: given up now */
	uint32_t no_room;    /* stay where they were */
	uint32_t too_many;   /* not looked at, at least in part: folios in very many pieces */
};

struct move_item {
	struct swap_load load; /* its buf and result, however it was read */
	struct mover *m;
	swp_t entry;
	unsigned int order;
	/* where it was: DEVICE or SPLIT */
	enum entry_kind kind;
	unsigned int dev;
	uint32_t slot;
	/* Only one piece of a SPLIT folio moves: order and slot are the piece's then. 0: all of it. */
	swp_t piece;
	swp_t first; /* of its pieces */
	struct gate *gate; /* that was entered when it was looked at, or NULL */
	unsigned int phase;
	int result; /* of the copy or the read */
	bool again;   /* is to be read alone */
	/* where it goes */
	enum entry_kind new_kind; /* ENTRY_FREE: nowhere yet */
	unsigned int new_dev;
	uint32_t new_slot;
	bool freeing; /* the old place is to be freed */
};

/* Folios in neighbouring slots, which are read with one io. */
struct move_run {
	struct dev_io io;
	struct mover *m;
	unsigned int first, nr; /* items */
};

struct mover {
	struct swap *swap;
	struct us_mutex lock;
	/* protected by lock */
	struct write_set set;
	struct move_item items[MOVE_FOLIOS];
	struct write_io ios[MOVE_FOLIOS];
	struct move_run runs[MOVE_FOLIOS];
	char *buf; /* WRITE_PAGES pages */
	struct us_mutex done_lock;
	struct us_cond done;
	uint32_t pending; /* protected by done_lock */
	_Atomic uint32_t peak_pages; /* of buf, since mover_trim() */
};

/* 0 or -ENOMEM. Address space only, until it is used; up to 4.5 MiB then. */
int mover_init(struct mover *m, struct swap *s) __must_check;
/* The same for relocate.c, which moves while a writeout waits. */
int mover_init_inner(struct mover *m, struct swap *s) __must_check;
void mover_deinit(struct mover *m);
/* Memory that it holds; and gives it back. Trim: by who alone uses it. */
uint64_t mover_bytes(struct mover *m);
void mover_trim(struct mover *m);

struct move_request {
	unsigned int from;    /* folios that have nothing on this device are left alone */
	unsigned int to;      /* a device, perhaps the same one, or MOVE_ANYWHERE */
	bool lose_unreadable; /* else what cannot be read stays as it is */
	bool pieces;	      /* a folio that finds no run may be stored in pieces */
	uint32_t barred;      /* bit d: not to device d either (MOVE_ANYWHERE) */
	bool copy; /* whole folios only, copied by the device itself (to == from) */
	/*
	 * If set: only what lies in these slots moves, elsewhere on the same device (to == from); of
	 * a folio in pieces only the pieces that do. Nobody may be given a slot of them meanwhile: a
	 * window of the clusters is open there.
	 */
	uint32_t window_slot, window_nr;
};

/*
 * Moves n <= MOVE_FOLIOS folios of at most WRITE_PAGES pages together, and drops the caller's
 * reference to each. A folio that cannot be moved is as it was. Adds to *res.
 */
void mover_move(struct mover *m, const struct move_request *req, const swp_t *e, unsigned int n,
		struct move_result *res);
/* The same by who holds m->lock. */
void mover_move_locked(struct mover *m, const struct move_request *req, const swp_t *e,
		       unsigned int n, struct move_result *res);

/* move_read.c: reads the first n items into buf and judges them; leaves their gates. */
void mover_read(struct mover *m, unsigned int n);
void mover_leave_gate(struct move_item *it);

#endif
