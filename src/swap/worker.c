/* SPDX-License-Identifier: MIT */
#include "swap/worker.h"

#include "base/clock.h"
#include "base/watch.h"
#include "swap/relocate.h"
#include "trace/vmstat.h"

LOCK_CLASS(worker_class, "swap_worker", RANK_ENTRY);

/* Clusters discarded before anything else gets its turn. */
#define DISCARD_BATCH 64
/* A device that stays full is not gone over more often than this. */
#define RECLAIM_PAUSE_NS (100 * NSEC_PER_MSEC)

void worker_wake(struct swap *s)
{
	struct swap_worker *w = &s->worker;

	if (!w->thread.running)
		return;
	/* Whoever set it will be looked for: what we want done is seen by the same look. */
	if (atomic_exchange(&w->wanted, true))
		return;
	us_mutex_lock(&w->lock);
	us_cond_broadcast(&w->wake);
	us_mutex_unlock(&w->lock);
}

void worker_device_full(struct swap *s, struct swap_dev *sd)
{
	uint64_t now = clock_now_ns();

	/* Content in memory is never kept twice. */
	if (dev_in_memory(sd->dev) ||
	    now - atomic_load_explicit(&sd->reclaimed_ns, memory_order_relaxed) < RECLAIM_PAUSE_NS)
		return;
	atomic_store_explicit(&sd->reclaimed_ns, now, memory_order_relaxed);
	atomic_store(&sd->reclaim_wanted, true);
	worker_wake(s);
}

/* True: it has more to do there. */
static bool look_at(struct swap *s, unsigned int dev)
{
	struct swap_dev *sd = &s->devs[dev];
	bool more = false;

	if (atomic_exchange(&sd->reclaim_wanted, false))
		(void)clusters_reclaim_full(&sd->clusters);
	if (atomic_load(&sd->clusters.nr_discard))
		more = clusters_discard_some(&sd->clusters, DISCARD_BATCH) == DISCARD_BATCH;
	return relocate_refill(s, dev) || more;
}

static void look_at_all(struct swap *s)
{
	bool more;

	do {
		more = false;
		for (uint32_t i = 0; i < atomic_load(&s->nr_devs); i++) {
			/* Not the gate of the device, which a mover drains while we are at it. */
			unsigned int phase = gate_enter(&s->devs_gate);

			if (atomic_load(&s->devs[i].state) == DEV_ON)
				more |= look_at(s, i);
			gate_leave(&s->devs_gate, phase);
		}
		watch_beat(s->worker.watch);
	} while (more && !atomic_load(&s->worker.stop));
	relocate_trim(s);
}

static void worker_thread(void *arg)
{
	struct swap *s = arg;
	struct swap_worker *w = &s->worker;

	w->watch = watch_start("swap worker");
	us_mutex_lock(&w->lock);
	while (!atomic_load(&w->stop)) {
		if (!atomic_load(&w->wanted)) {
			w->idle = true;
			us_cond_broadcast(&w->settled);
			watch_rest(w->watch);
			us_cond_wait(&w->wake, &w->lock);
			watch_go_on(w->watch);
			continue;
		}
		w->idle = false;
		/* Before the look: what is wanted from here on is looked for again. */
		atomic_store(&w->wanted, false);
		us_mutex_unlock(&w->lock);
		look_at_all(s);
		us_mutex_lock(&w->lock);
	}
	w->idle = true;
	us_cond_broadcast(&w->settled);
	us_mutex_unlock(&w->lock);
	watch_stop(w->watch);
}

int worker_start(struct swap *s)
{
	struct swap_worker *w = &s->worker;

	us_mutex_init(&w->lock, &worker_class);
	us_cond_init(&w->wake);
	us_cond_init(&w->settled);
	return us_thread_start(&w->thread, "uswap-swap", -1, worker_thread, s);
}

void worker_stop(struct swap *s)
{
	struct swap_worker *w = &s->worker;

	if (!w->lock.cls)
		return;
	us_mutex_lock(&w->lock);
	atomic_store(&w->stop, true);
	us_cond_broadcast(&w->wake);
	us_mutex_unlock(&w->lock);
	us_thread_join(&w->thread);
	us_cond_deinit(&w->wake);
	us_cond_deinit(&w->settled);
	us_mutex_deinit(&w->lock);
	w->lock.cls = NULL;
}

void worker_settle(struct swap *s)
{
	struct swap_worker *w = &s->worker;

	if (!w->thread.running)
		return;
	us_mutex_lock(&w->lock);
	while (!w->idle || atomic_load(&w->wanted))
		us_cond_wait(&w->settled, &w->lock);
	us_mutex_unlock(&w->lock);
}
