/* SPDX-License-Identifier: MIT */
/*
 * Takes a device away from a running job: what is on it moves to the other devices, without being
 * brought into any program's memory.
 *
 * Not its job: opening and closing devices, memory limits, who asked (src/super).
 *
 * Locking: no lock may be held. Several at once, of different devices, are possible.
 * Context: blocks on the devices for as long as it takes; allocates; starts threads of its own.
 *   Nothing that a fault or reclaim waits for may wait for it.
 */
#ifndef USWAP_SWAP_SWAPOFF_H
#define USWAP_SWAP_SWAPOFF_H

#include "swap/swap.h"

struct swap_off_progress {
	uint64_t done_pages; /* not on the device any more: moved, or freed by the programs */
	uint64_t left_pages;
	uint64_t lost_pages;
	uint64_t elapsed_ns;
};

struct swap_off_request {
	const char *name; /* as swap_dev_info has it */
	/* About every SWAP_OFF_PROGRESS_NS, from the calling thread. False: stop. NULL: none. */
	bool (*progress)(void *host, const struct swap_off_progress *p);
	void *host;
	unsigned int threads; /* 0: SWAP_OFF_THREADS */
};

#define SWAP_OFF_PROGRESS_NS (100 * 1000 * 1000ull)
#define SWAP_OFF_THREADS 2u
#define SWAP_OFF_MAX_THREADS 8u

struct swap_off_result {
	uint64_t used_pages;  /* on the device when it began */
	uint64_t room_pages;  /* that the other devices could take in then, as far as known */
	/*
	 * Where the sums would do, but not for what may go to some of the others only (swap_class()):
	 * what that is, and what room it has.
	 */
	uint64_t bound_pages, bound_room_pages;
	uint64_t moved_pages; /* stored elsewhere now */
	uint64_t left_pages;  /* still on the device: 0, unless it stays on */
	uint64_t lost_pages;  /* could not be read: whoever touches them gets an error */
	uint64_t elapsed_ns;
};

/*
 * 0: the device is out, and in *gone: the caller's to destroy. Else it is as it was, but for what
 * has moved already, and takes pages in again:
 *   -ENOENT   no device has the name       -EBUSY  it is being taken away already
 *   -ENOTUNIQ several devices have it
 *   -ENOSPC   the others cannot take in what is on it: with moved_pages 0 and the numbers in res
 *             that was known before anything was touched
 *   -EINTR    progress() said so
 *   -ENOMEM, -EAGAIN  no memory or no thread for the work
 * Pages that cannot be read are tried again when all others have moved, and then given up.
 */
int swap_off(struct swap *s, const struct swap_off_request *req, struct swap_off_result *res,
	     struct dev **gone) __must_check;

#endif
