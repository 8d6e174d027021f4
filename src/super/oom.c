/* SPDX-License-Identifier: MIT */
/*
 * Who is ended when faults wait and nothing more can be moved out.
 *
 * One process gets SIGKILL: where devices are full the largest, else who holds most of what cannot
 * be moved out. It may not come to its end: one that is traced stops there for its tracer, and the
 * tracer may be who waits for room. So what it holds is taken from it, and if that is not enough
 * the next one is ended.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

/* How often in vain it is looked for room, OOM_WAIT_NS each, until the next process is ended. */
#define VICTIM_ROUNDS 3

/*
 * The largest process that was not ended yet, by what it holds in RAM, and if swapped on devices.
 * lock held.
 */
static struct proc *largest(struct job *j, bool swapped, uint64_t *most)
{
	struct proc *best = NULL;

	*most = 0;
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);
		uint64_t pages = p->anon_pages;

		if (swapped && p->space)
			pages += p->space->table.nr_swapped;
		if (!p->oom_victim && pages > *most) {
			*most = pages;
			best = p;
		}
	}
	return best;
}

/*
 * Where devices take more and yet nothing could be moved for OOM_WAIT_NS, what is resident is what
 * cannot be moved: its holder is ended, and not one whose memory did move out, which would make no
 * room. Unless nobody holds enough of it that kswapd would come to rest: then the budget is full of
 * what the supervisor keeps for those who are out. lock held.
 */
static struct proc *choose_victim(struct job *j)
{
	uint64_t most;
	struct watermarks wm;
	struct proc *p = NULL;

	(void)reclaim_limit(&j->mm.reclaim, &wm);
	if (!atomic_load(&j->mm.out_of_room)) {
		p = largest(j, false, &most);
		if (most < bytes_to_pages(wm.high))
			p = NULL;
	}
	return p ? p : largest(j, true, &most);
}

/* "": it can be moved. lock held. */
static const char *why_not_movable(const struct proc *p)
{
	if (p->space && p->space->ops->can_move(p->space))
		return "";
	if (p->reason[0])
		return p->reason;
	return p->space ? "cannot be moved now" : "not managed";
}

/* What holds the budget, for who runs with -v. lock held. */
static void describe_memory(struct job *j)
{
	struct proc_statm self = {0};
	struct swap_usage u;

	(void)proc_statm(j->self_statm_fd, &self);
	swap_usage(j->swap, &u);
	log_info("in use %llu of %llu KiB: supervisor %llu KiB (swap cache %llu, compressed %llu, "
		 "tables %llu), shared after fork %llu KiB counted twice",
		 (unsigned long long)(atomic_load(&j->mm.used) >> 10),
		 (unsigned long long)(atomic_load(&j->mm.limit) >> 10),
		 (unsigned long long)(self.resident_pages << (PAGE_SHIFT - 10)),
		 (unsigned long long)(u.cached_bytes >> 10),
		 (unsigned long long)(u.pool_bytes >> 10),
		 (unsigned long long)(u.metadata_bytes >> 10),
		 (unsigned long long)(j->shared_bytes >> 10));
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);
		struct space *s = p->space;
		const char *why = why_not_movable(p);

		log_info("pid %d (%s): %llu KiB resident, of it %llu KiB known and movable%s%s%s; "
			 "%llu KiB swapped; %u faults wait",
			 p->pid, p->comm, (unsigned long long)(p->anon_pages << (PAGE_SHIFT - 10)),
			 (unsigned long long)((s ? s->table.nr_resident : 0) << (PAGE_SHIFT - 10)),
			 *why ? " (" : "", why, *why ? ")" : "",
			 (unsigned long long)((s ? s->table.nr_swapped : 0) << (PAGE_SHIFT - 10)),
			 s ? s->nr_deferred : 0);
	}
}

/* Does a process of the job that is not being ended run in p's memory? lock held. */
static bool shared_with_survivor(struct job *j, const struct proc *p)
{
	list_for_each(n, &j->procs) {
		struct proc *q = list_entry(n, struct proc, node);

		if (!q->oom_victim && proc_same_memory(q->pid, p->pid) == 1)
			return true;
	}
	return false;
}

/*
 * Takes their memory from those that were ended and are still there: what is resident, and what is
 * out, which takes room where it is compressed. The kernel does the first only if all who share the
 * memory are ending, so the helper must be ended, too; and then no thread runs in it any more that
 * could miss the second (one that faults on its way out is woken by its SIGKILL, and who looks at
 * it from outside by the end of the userfaultfd). The caller is kswapd, so no batch is in flight
 * that space_kill() would have to wait for. lock held.
 */
static void reap_victims(struct job *j)
{
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		if (!p->oom_victim || shared_with_survivor(j, p))
			continue;
		if (p->helper_pidfd >= 0)
			(void)syscall(SYS_pidfd_send_signal, p->helper_pidfd, SIGKILL, NULL, 0);
		if (syscall(SYS_process_mrelease, p->pidfd, 0) == 0 && p->space)
			space_kill(p->space);
	}
}

static void end_victim(struct job *j, struct proc *p)
{
	bool full = atomic_load(&j->mm.out_of_room);
	uint64_t swapped = p->space ? p->space->table.nr_swapped : 0;

	p->oom_victim = true;
	j->oom_pending = true;
	j->oom_rounds = 0;
	log_error("out of room: %s the budget of %llu MiB %s full: ended "
		  "pid %d (%s), with %llu MiB resident and %llu MiB swapped; %s",
		  !full		  ? "nothing more can be moved out and"
		  : p->swap_class ? "all swap devices of the tiers that it may use and"
				  : "all swap devices and",
		  (unsigned long long)(atomic_load(&j->mm.limit) >> 20), full ? "are" : "is",
		  p->pid, p->comm, (unsigned long long)(p->anon_pages >> 8),
		  (unsigned long long)(swapped >> 8),
		  full && p->swap_class ? "add a --swap device to these, allow it others (uswap set "
					  "pid.N.tiers=) or raise --ram"
		  : full		? "add a --swap device or raise --ram"
					: "raise --ram (locked, pinned and unmanaged memory stays in RAM)");
	(void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	describe_memory(j);
	vmstat_add(VMSTAT_oom_kill, 1);
}

bool job_out_of_memory(void *job)
{
	struct job *j = job;
	struct proc *p = NULL;
	bool waits;

	us_mutex_lock(&j->lock);
	/* One at a time: the room that the last one leaves must be counted first. */
	waits = j->oom_pending && ++j->oom_rounds < VICTIM_ROUNDS;
	if (j->oom_pending)
		reap_victims(j);
	if (!waits)
		p = choose_victim(j);
	if (p)
		end_victim(j, p);
	us_mutex_unlock(&j->lock);
	return p != NULL;
}
