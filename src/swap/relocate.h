/* SPDX-License-Identifier: MIT */
/*
 * Makes room for large folios on devices where enough slots are free but no run is: moves what is
 * in the way to other slots of the same device.
 *
 *   memory   by relocate_now(), in the allocation itself: a copy costs about as much as storing
 *   others   by relocate_refill(), in the worker: it keeps a few runs ready of the orders that
 *            were asked for in vain, for the next folios of that order
 *
 * Not its job: moving (move.c), choosing the run (cluster_window.c), when (place.c, worker.c).
 *
 * Locking: relocator.mover.lock (RANK_CACHE - 2) for as long as a window is open; relocate_dev.lock
 *   (RANK_ENTRY) for the runs that are ready.
 * Context: relocate_now() and relocate_refill() block on the device. Nothing allocates.
 */
#ifndef USWAP_SWAP_RELOCATE_H
#define USWAP_SWAP_RELOCATE_H

#include "swap/move.h"

struct relocator {
	struct mover mover;
	/* protected by mover.lock */
	struct clusters_window window;
	swp_t claimed[CLUSTER_SLOTS];
};

int relocator_init(struct relocator *r, struct swap *s) __must_check;
void relocator_deinit(struct relocator *r); /* takes one that was never initialised, all zeros */

void relocate_dev_init(struct relocate_dev *rd);
void relocate_dev_deinit(struct relocate_dev *rd);

/*
 * A run of 2^order slots on a device in memory, as from clusters_alloc(), or 0. Clears at most
 * RELOCATE_TRIES windows: so it copies at most that many times 2^order pages.
 */
uint32_t relocate_now(struct swap *s, unsigned int dev, unsigned int order) __must_check;

/* No run of that order was found on the device: the worker is to make some. Never blocks. */
void relocate_ask(struct swap *s, unsigned int dev, unsigned int order);
/* A run that was made ready, or 0. Never blocks. */
uint32_t relocate_take_ready(struct swap_dev *sd, unsigned int order) __must_check;
/*
 * Gives all ready runs up: for single pages that find no other room, and for a device that is to
 * be emptied, after clusters_disable(): no more become ready then. True: there were some.
 */
bool relocate_drop_ready(struct swap_dev *sd);
/* Slots in them: used, but with no content. */
uint32_t relocate_ready_slots(struct swap_dev *sd);
/* Makes runs, if some were asked for; the worker's. True: something is left to do. */
bool relocate_refill(struct swap *s, unsigned int dev);
/* The worker has nothing to do: gives the memory back. */
void relocate_trim(struct swap *s);
/* So many pages were written to the device: so many may be moved in the background. */
void relocate_note_written(struct swap_dev *sd, uint32_t nr_pages);

/* Is a run of that order to be had by moving, as far as one can tell? */
bool relocate_likely(struct swap_dev *sd, unsigned int order);

#endif
