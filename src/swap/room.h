/* SPDX-License-Identifier: MIT */
/*
 * Can what is on a device go to the others? Folios of a class may use some tiers only, so the sums
 * do not tell: each set of classes needs the room of the devices that any of them may use, and if
 * each set has it, all of it fits (Hall's theorem, with amounts).
 *
 * The same rule tells who must keep away from where: room that a set of classes needs to the last
 * page is no room for the others, though they would come to it first.
 *
 * Not its job: what room a device has (place.c), moving (move.c). Others that write meanwhile take
 * room that is counted here.
 *
 * Locking: the caller's. room_look() and room_count(): in devs_gate or with devs_lock.
 * Context: never blocks, never allocates. At most 2^SWAP_MAX_CLASSES sets are looked at, and as a
 *   rule two or three: classes that may use the same devices are one.
 */
#ifndef USWAP_SWAP_ROOM_H
#define USWAP_SWAP_ROOM_H

#include "swap/internal.h"

struct off_room {
	unsigned int dev; /* that is to be emptied */
	uint64_t pages[SWAP_MAX_CLASSES]; /* on it, by class */
	uint32_t may[SWAP_MAX_CLASSES];	  /* bit d: the class may go to device d */
	uint64_t room[MAX_DEVS];	  /* pages; 0 for `dev` */
};

/* Who may go where, and what room is there now. */
void room_look(struct off_room *r, struct swap *s);
/* Counts pages[]. What is being written there, and has no owner yet, is in none. */
void room_count(struct off_room *r, struct swap *s);

/* What the devices of the mask can take in together. */
uint64_t room_of(const struct off_room *r, uint32_t devices);

/* Does all of it fit? If not: what the set of classes has that lacks most, and what room for it. */
bool room_suffices(const struct off_room *r, uint64_t *pages, uint64_t *room) __must_check;
/* Does it, in whatever order and wherever to it moves? Then room_barred() need not be asked. */
bool room_in_any_order(const struct off_room *r) __must_check;
/*
 * Bit d: if that many pages of the class went to device d, others might not find room any more that
 * find it now.
 */
uint32_t room_barred(const struct off_room *r, unsigned int class, uint64_t nr_pages);

#endif
