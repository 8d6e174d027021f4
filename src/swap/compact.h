/* SPDX-License-Identifier: MIT */
/*
 * Gives memory of devices in memory back: what is stored there leaves holes when it goes, of which
 * only whole pages return to the kernel. Where the holes add up, the folios between them are written
 * anew (copied as they are, compressed), which packs them into what is used best, and empties pages.
 *
 * Not its job: how content is packed (zpool), moving (move.c).
 *
 * Locking: under writeout.lock, which protects compact_dev; takes the mover of relocate_now.
 * Context: copies at most COMPACT_PAGES a call; nothing allocates.
 */
#ifndef USWAP_SWAP_COMPACT_H
#define USWAP_SWAP_COMPACT_H

#include "swap/internal.h"

/* Looks at every device, and moves something where it is worth it. */
void compact_some(struct swap *s);

#endif
