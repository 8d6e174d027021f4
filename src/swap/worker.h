/* SPDX-License-Identifier: MIT */
/*
 * A thread of swap for what nobody waits for: letting go of cached slots on devices that are full,
 * discarding what became empty, making runs for large folios (relocate.c).
 *
 * Sleeps until it is woken; a wake for nothing costs one look at each device.
 *
 * Locking: worker.lock, RANK_ENTRY, a leaf: worker_wake() may be called with anything of lower rank
 *   held. The thread itself holds nothing of its own while it works.
 * Context: worker_wake() neither blocks nor allocates.
 */
#ifndef USWAP_SWAP_WORKER_H
#define USWAP_SWAP_WORKER_H

#include "swap/internal.h"

/* 0 or -errno. */
int worker_start(struct swap *s) __must_check;
void worker_stop(struct swap *s); /* harmless if it never started */
void worker_wake(struct swap *s);
/* No run was found on the device: what is cached on it may go. */
void worker_device_full(struct swap *s, struct swap_dev *sd);
/* Waits until it has done all that it was woken for. No lock held. */
void worker_settle(struct swap *s);

#endif
