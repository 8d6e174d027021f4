/* SPDX-License-Identifier: MIT */
/*
 * What the devices share: ending an io, and the map of slots that hold content.
 *
 * Not its job: anything callers outside src/dev may use.
 * Locking: none needed; the map is atomic, and its callers own the slots they name.
 * Context: nothing here blocks or allocates, but dev_slot_map_init().
 */
#ifndef USWAP_DEV_DEV_INTERNAL_H
#define USWAP_DEV_DEV_INTERNAL_H

#include "dev/dev.h"

/* Counts -EIO and hands io back. The io may be gone afterwards. */
void dev_io_end(struct dev *d, struct dev_io *io, int result);
/* Whether the io names slots that exist; slot 0 does not. */
bool dev_io_valid(const struct dev *d, const struct dev_io *io);

/*
 * One bit a slot: holds content. It makes stored_pages right when a slot is freed that was never
 * written, or written twice, and catches a read of a slot that holds nothing.
 */
struct dev_slot_map {
	_Atomic uint64_t *words;
	uint32_t nr_slots;
};

int dev_slot_map_init(struct dev_slot_map *m, uint32_t nr_slots) __must_check;
void dev_slot_map_deinit(struct dev_slot_map *m);
/* Sets or clears the bits; returns how many changed. */
uint32_t dev_slot_map_set(struct dev_slot_map *m, uint32_t slot, uint32_t nr, bool stored);
bool dev_slot_map_all(const struct dev_slot_map *m, uint32_t slot, uint32_t nr);
bool dev_slot_map_any(const struct dev_slot_map *m, uint32_t slot, uint32_t nr);
/* Sets or clears, and keeps d's stored_pages and stored_bytes (a page takes 4096 bytes). */
void dev_mark(struct dev *d, struct dev_slot_map *m, uint32_t slot, uint32_t nr, bool stored);

/* The compressed object that a zram's slot holds, or NULL. For tests, which damage it. */
void *dev_zram_object(struct dev *d, uint32_t slot, size_t *bytes);
/* Walks a zram's tables; aborts on a broken invariant. No io may be in flight. */
void dev_zram_check(struct dev *d);

#endif
