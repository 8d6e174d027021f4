/* SPDX-License-Identifier: MIT */
/*
 * Event counters with the kernel's names, and one latency histogram.
 * Any thread, relaxed atomics; reading gives a value that is at most a few events old.
 * Nothing here changes behaviour.
 */
#ifndef USWAP_TRACE_VMSTAT_H
#define USWAP_TRACE_VMSTAT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/util.h"

/* Pages unless said otherwise. The kernel's meaning: proc(5), Documentation/mm. */
#define VMSTAT_ITEMS(X)                                                                            \
	X(pswpin)	       /* read from a disk-like device */                                  \
	X(pswpout)	       /* written to a disk-like device */                                 \
	X(zswpin)	       /* read from compressed memory (zram, later zswap) */               \
	X(zswpout)	       /* stored into compressed memory */                                 \
	X(swpin_zero)	       /* filled from a zero or same-filled entry */                       \
	X(swpout_zero)	       /* found zero or same-filled, nothing stored */                     \
	X(swpout_unchanged)    /* evicted again unchanged: the old copy was kept */                \
	X(swpout_shared)       /* same content as another entry: stored once */                    \
	X(swpin_cached)	       /* brought back from the swap cache (second chance) */              \
	X(swap_ra)	       /* pages whose load was started before they were asked for */          \
	X(swapoff_moved)       /* moved to another device by swapoff */                            \
	X(swap_slot_reclaimed) /* given up: only resident pages still named the older copy */       \
	X(swap_relocated)      /* moved on their device to make a larger run free */               \
	X(swap_compacted)      /* stored anew in memory, so that the pool gives memory back */     \
	X(swap_relocate_fail)  /* runs that could not be made so, events */                        \
	X(swap_discard)	       /* slots whose device was told that they are free */                \
	X(swap_discard_fail)   /* discards that failed, events */                                  \
	X(swap_corrupt)	       /* folios whose hash did not match */                               \
	X(swap_io_error)       /* folios that a device did not give back or take */                \
	X(pgpoison)	       /* pages poisoned */                                                \
	X(pgfault)	       /* faults that reached the supervisor, events */                    \
	X(pgmajfault)	       /* of these, answered from an entry, events */                      \
	X(pgzerofill)	       /* of these, first touches, events */                               \
	X(pgscan_kswapd)       /* pages looked at by reclaim */                                    \
	X(pgsteal_kswapd)      /* pages taken out of programs */                                   \
	X(pgactivate)	       /* pages that came back from the swap cache */                      \
	X(pgmove_busy)	       /* MOVE refused: pinned or shared */                                \
	X(pgmove_again)	       /* MOVE refused: an event was unread */                             \
	X(pgmove_unevictable)  /* MOVE refused: protection or lock */                              \
	X(pgmove_hole)	       /* MOVE found no page: the kernel took it after MADV_FREE */          \
	X(pgmove_cancelled)    /* taken back because of an event */                                \
	X(allocstall)	       /* faults that waited for reclaim, events */                        \
	X(pageoutrun)	       /* runs of kswapd, events */                                        \
	X(oom_kill)	       /* processes ended for want of room, events */                      \
	X(uffd_fork)	       /* fork events */                                                   \
	X(uffd_unmap)	       /* unmap events */                                                  \
	X(uffd_remove)	       /* remove events (MADV_DONTNEED, ...) */                            \
	X(uffd_remap)	       /* mremap events */                                                 \
	X(uffd_register)       /* ranges registered */                                             \
	X(uffd_register_undone) /* an event came while being registered: taken in later */         \
	X(fork_unhelped)       /* forked children that are served but cannot be evicted */         \
	X(exec_managed)        /* programs that said hello */                                      \
	X(exec_unmanaged)      /* programs that run unmanaged */

enum vmstat_item {
#define VMSTAT_ENUM(n) VMSTAT_##n,
	VMSTAT_ITEMS(VMSTAT_ENUM)
#undef VMSTAT_ENUM
	NR_VMSTAT_ITEMS
};

extern _Atomic uint64_t vmstat_counters[NR_VMSTAT_ITEMS];
extern const char *const vmstat_names[NR_VMSTAT_ITEMS];

static inline void vmstat_add(enum vmstat_item i, uint64_t n)
{
	atomic_fetch_add_explicit(&vmstat_counters[i], n, memory_order_relaxed);
}

static inline uint64_t vmstat_get(enum vmstat_item i)
{
	return atomic_load_explicit(&vmstat_counters[i], memory_order_relaxed);
}

/* Per order, in folios: the kernel's hugepages-<N>kB/stats. */
struct order_stat {
	_Atomic uint64_t swpout, swpout_fallback, swpin, zswpout;
};
extern struct order_stat order_stats[MAX_ORDER + 1];

/* Log-linear histogram of nanoseconds: 8 buckets a doubling, so a percentile errs by < 13 %. */
#define HIST_BUCKETS (64 * 8)
struct hist {
	_Atomic uint64_t bucket[HIST_BUCKETS];
	_Atomic uint64_t count, max_ns;
};
extern struct hist fault_latency;

void hist_add(struct hist *h, uint64_t ns);
/* The smallest bound that a fraction p (0..1) of the samples does not exceed; 0 if empty. */
uint64_t hist_percentile(struct hist *h, double p);

#endif
