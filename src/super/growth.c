/* SPDX-License-Identifier: MIT */
/*
 * Measuring the budget, and acting before it is overrun.
 *
 * In use = anonymous memory of every process of the job (resident minus shared, from statm) +
 * the supervisor whole (its tables, the pool, the swap cache). Staging lies in the programs, so it
 * is in the first. Pages that processes share after a fork are counted once for each by statm;
 * their proportional share is measured now and then and taken off.
 *
 * While the job fits, this thread is all that runs: it looks again after headroom / fastest fill,
 * so the programs run at native speed and still cannot overrun. Once short it registers ranges,
 * and from then on first touches come as faults, which wait when there is no room.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/watch.h"
#include "mm/remote.h"
#include "super/job.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

/* Faster than any memory is filled here: bytes per second. */
#define FASTEST_FILL (12ull << 30)
#define SHORTEST_NS (500 * NSEC_PER_USEC)
#define LONGEST_NS (20 * NSEC_PER_MSEC)
/* Once something is registered the program may wait for a look at its mappings. */
#define LOOK_NS (2 * NSEC_PER_MSEC)
#define ADOPT_NS (250 * NSEC_PER_MSEC)
/* How often all mappings are looked at although no size changed (mprotect), at least. */
#define RESCAN_NS (25 * NSEC_PER_MSEC)
#define RESCAN_SHARE 20 /* and never more than 1/20 of the time */
/* How fast pages shared after a fork may become private between two looks, bytes per second. */
#define UNSHARE_RATE (2ull << 30)

/* Sum of anonymous memory by statm; also whether any process shares pages. lock held. */
static uint64_t sum_statm(struct job *j, bool *shared)
{
	uint64_t sum = 0;

	*shared = false;
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);
		struct proc_statm st;

		if (p->shares_memory || p->statm_fd < 0 || proc_statm(p->statm_fd, &st) != 0) {
			p->anon_pages = 0;
			continue;
		}
		p->size_pages = st.size_pages;
		p->anon_pages = st.resident_pages - MIN(st.shared_pages, st.resident_pages);
		sum += p->anon_pages;
		*shared |= p->forked;
	}
	return sum << PAGE_SHIFT;
}

/* What statm counts too often. Costs a walk of every page table, so not often. lock held. */
static void measure_shared(struct job *j, uint64_t sum)
{
	uint64_t start = clock_now_ns(), pss = 0;

	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);
		uint64_t kib;

		if (!p->shares_memory && proc_field(p->task, "smaps_rollup", "Pss_Anon:", &kib) == 0)
			pss += KIB(kib);
	}
	j->shared_bytes = sum > pss ? sum - pss : 0;
	j->shared_at_ns = clock_now_ns();
	j->shared_cost_ns = j->shared_at_ns - start;
}

uint64_t job_measure(void *job)
{
	struct job *j = job;
	struct proc_statm self = {0};
	uint64_t sum, margin, off = 0, limit = atomic_load(&j->mm.limit), now;
	bool shared, estimated = false;

	(void)proc_statm(j->self_statm_fd, &self);
	us_mutex_lock(&j->lock);
	sum = sum_statm(j, &shared);
	if (shared && sum + (self.resident_pages << PAGE_SHIFT) > limit - limit / 16) {
		now = clock_now_ns();
		estimated = true;
		if (now - j->shared_at_ns > MAX(4 * j->shared_cost_ns, 4 * NSEC_PER_MSEC)) {
			estimated = false;
			measure_shared(j, sum);
			now = clock_now_ns();
		}
		off = (now - j->shared_at_ns) * (UNSHARE_RATE >> 20) / (NSEC_PER_SEC >> 20);
		off = j->shared_bytes > off ? j->shared_bytes - off : 0;
	} else if (shared) {
		estimated = true;
	}
	us_mutex_unlock(&j->lock);
	/* Pages shared after a fork are counted twice then: no figure for the peak. */
	atomic_store(&j->mm.estimated, estimated);
	/*
	 * A page that becomes private sends no fault that could wait, so while pages are shared
	 * some of the budget is kept free for it.
	 */
	margin = shared ? MIN(limit / 16, MIB(12)) : 0;
	atomic_store(&j->mm.margin, margin);
	return sum - MIN(off, sum) + (self.resident_pages << PAGE_SHIFT) + margin;
}

enum scan_what {
	SCAN_ASKED,   /* only who asked for it */
	SCAN_CHANGED, /* and whose size has changed */
	SCAN_EACH,
};

static bool scan_is_due(const struct proc *p, enum scan_what what)
{
	uint32_t wanted;

	return what == SCAN_EACH || (what == SCAN_CHANGED && p->size_pages != p->scanned_pages) ||
	       remote_look_wanted(p->space, &wanted);
}

/* Registers what is new. */
static void scan_all(struct job *j, enum scan_what what)
{
	j->scan_round++;
	for (;;) {
		struct space *s = NULL;

		us_mutex_lock(&j->lock);
		list_for_each(n, &j->procs) {
			struct proc *p = list_entry(n, struct proc, node);

			if (!p->space || p->scan_round == j->scan_round || !scan_is_due(p, what))
				continue;
			p->scan_round = j->scan_round;
			p->scanned_pages = p->size_pages;
			s = p->space;
			space_get(s);
			break;
		}
		us_mutex_unlock(&j->lock);
		if (!s)
			return;
		space_scan_ranges(s, what == SCAN_EACH);
		space_put(s);
	}
}

/* Takes in what MADV_FREE left behind in each space. */
static void adopt_all(struct job *j)
{
	uint64_t round = ++j->scan_round;

	for (;;) {
		struct space *s = NULL;

		us_mutex_lock(&j->lock);
		list_for_each(n, &j->procs) {
			struct proc *p = list_entry(n, struct proc, node);

			if (!p->space || p->scan_round == round || !p->space->nr_adopt)
				continue;
			p->scan_round = round;
			s = p->space;
			space_get(s);
			break;
		}
		us_mutex_unlock(&j->lock);
		if (!s)
			return;
		us_mutex_lock(&s->reader_lock);
		if (!atomic_load(&s->dead))
			space_adopt(s);
		us_mutex_unlock(&s->reader_lock);
		space_put(s);
	}
}

static void growth_thread(void *arg)
{
	struct job *j = arg;
	struct pollfd stop = {.fd = j->stop_fd, .events = POLLIN};
	struct watch *watch = watch_start("growth thread");
	struct timespec ts = {0};
	uint64_t last_full = 0, last_adopt = 0, full_cost = 0;
	bool was_short = false, ever_short = false;

	/* It runs for microseconds, and being late costs the budget. */
	us_thread_urgent();
	for (; !atomic_load(&j->stop); watch_beat(watch)) {
		int64_t free_bytes = mm_measured(&j->mm, job_measure(j));
		bool is_short = atomic_load(&j->mm.short_of_memory);
		uint64_t now = clock_now_ns(), wait;

		if (is_short && (now - last_adopt > ADOPT_NS || mm_mutants.no_filled_only)) {
			last_adopt = now;
			adopt_all(j);
		}
		if (is_short) {
			bool full = !was_short ||
				    now - last_full > MAX(RESCAN_NS, RESCAN_SHARE * full_cost);

			scan_all(j, full ? SCAN_EACH : SCAN_CHANGED);
			if (full) {
				last_full = clock_now_ns();
				full_cost = last_full - now;
			}
		} else {
			scan_all(j, SCAN_ASKED);
		}
		was_short = is_short;
		ever_short |= is_short;
		mm_tick(&j->mm);
		wait = free_bytes > 0 ? (uint64_t)free_bytes / (FASTEST_FILL / NSEC_PER_SEC) : 0;
		if (is_short)
			wait = mm_mutants.no_filled_only ? SHORTEST_NS : NSEC_PER_MSEC;
		wait = CLAMP(wait, SHORTEST_NS, ever_short ? LOOK_NS : LONGEST_NS);
		ts.tv_nsec = (long)wait;
		(void)ppoll(&stop, 1, &ts, NULL);
	}
	watch_stop(watch);
}

int growth_start(struct job *j)
{
	return us_thread_start(&j->growth, "uswap-growth", -1, growth_thread, j);
}
