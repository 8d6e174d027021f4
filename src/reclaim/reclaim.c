/* SPDX-License-Identifier: MIT */
/*
 * kswapd. It rests while free >= low, looking every 100 ms, or at once when poked; then it runs
 * until free >= high.
 *
 * No wake-up of a waiting fault is lost: a fault is put aside first and calls reclaim_need()
 * after, which sets `waiters`; kswapd clears `waiters` before it measures, and sets it again if
 * free is not above min. So a fault that was put aside too late for resume() to see has its
 * `waiters` still set, and the next turn of the loop deals with it.
 */
#include "reclaim/reclaim.h"

#include <string.h>

#include "base/clock.h"
#include "base/watch.h"
#include "trace/vmstat.h"

LOCK_CLASS(reclaim_class, "reclaim", RANK_RECLAIM);

#define REST_NS (100 * NSEC_PER_MSEC)
/*
 * Runs that follow each other sooner than this find the writes of the one before under way: to wait
 * for them in between would leave disks idle, and whoever faults meanwhile without an answer.
 */
#define SETTLE_NS (20 * NSEC_PER_MSEC)
#define BACKOFF_MIN_NS (5 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS (50 * NSEC_PER_MSEC)
#define BATCH_MIN_PAGES 64u
#define BATCH_MAX_PAGES 1024u

struct watermarks watermarks_of(uint64_t limit)
{
	struct watermarks wm;

	wm.high = CLAMP(limit / 64, MIB(2), MIB(64));
	wm.low = wm.high / 4 * 3;
	wm.min = wm.high / 8 * 3;
	return wm;
}

/* free < mark, where free may be negative. */
static bool is_below(uint64_t used, uint64_t limit, uint64_t mark)
{
	return used > limit || limit - used < mark;
}

static uint64_t batch_pages(uint64_t used, uint64_t limit, uint64_t high)
{
	uint64_t need = used + high > limit ? used + high - limit : 0;

	/* A batch costs two trips to the helper, whatever its size: not less than high / 4. */
	return CLAMP(MAX(bytes_to_pages(need), bytes_to_pages(high / 4)), BATCH_MIN_PAGES,
		     BATCH_MAX_PAGES);
}

/* Lets waiting faults go on if free is above min. Called and returns without the lock. */
static void serve_waiters(struct reclaim *r, uint64_t *used)
{
	bool waiters, go;

	us_mutex_lock(&r->lock);
	waiters = r->waiters;
	r->waiters = false;
	us_mutex_unlock(&r->lock);

	*used = r->ops->used(r->host);

	us_mutex_lock(&r->lock);
	go = !is_below(*used, r->limit, r->wm.min);
	if (go)
		r->no_progress_since_ns = 0;
	else if (waiters)
		r->waiters = true;
	us_mutex_unlock(&r->lock);
	if (waiters && go)
		r->ops->resume(r->host);
}

/* Sleeps for at least ns unless the limit changed or the thread has to stop; pokes do not count. */
static void back_off(struct reclaim *r, uint64_t ns)
{
	uint64_t end = clock_now_ns() + ns, now, limit;

	us_mutex_lock(&r->lock);
	limit = r->limit;
	while (!r->stop && r->limit == limit && (now = clock_now_ns()) < end)
		us_cond_timedwait(&r->wake, &r->lock, end - now);
	us_mutex_unlock(&r->lock);
}

/* Nothing was freed. Ends a process when that has lasted while faults wait. */
static void no_progress(struct reclaim *r, uint64_t *backoff_ns)
{
	uint64_t now = clock_now_ns();
	bool oom = false;

	us_mutex_lock(&r->lock);
	if (!r->waiters) {
		r->no_progress_since_ns = 0;
	} else if (!r->no_progress_since_ns) {
		r->no_progress_since_ns = now;
	} else if (now - r->no_progress_since_ns >= OOM_WAIT_NS) {
		r->no_progress_since_ns = now; /* time for the end of a process to show */
		oom = true;
	}
	us_mutex_unlock(&r->lock);
	if (oom && r->ops->out_of_memory(r->host)) {
		*backoff_ns = BACKOFF_MIN_NS;
		return;
	}
	back_off(r, *backoff_ns);
	*backoff_ns = MIN(*backoff_ns * 2, BACKOFF_MAX_NS);
}

/* One run: until free >= high and nobody waits, or the thread has to stop. */
static void run(struct reclaim *r)
{
	uint64_t backoff_ns = BACKOFF_MIN_NS;

	vmstat_add(VMSTAT_pageoutrun, 1);
	for (;;) {
		uint64_t used, nr_pages;
		bool more;

		watch_beat(r->watch);
		serve_waiters(r, &used);
		us_mutex_lock(&r->lock);
		more = !r->stop && (r->waiters || is_below(used, r->limit, r->wm.high));
		nr_pages = batch_pages(used, r->limit, r->wm.high);
		us_mutex_unlock(&r->lock);
		if (!more)
			return;
		if (r->ops->shrink(r->host, nr_pages) > 0) {
			us_mutex_lock(&r->lock);
			r->no_progress_since_ns = 0;
			us_mutex_unlock(&r->lock);
			backoff_ns = BACKOFF_MIN_NS;
		} else {
			no_progress(r, &backoff_ns);
		}
	}
}

static void settle(struct reclaim *r)
{
	if (r->ops->settle)
		r->ops->settle(r->host);
}

/* Until there may be something to do. What is under way goes on a little before it is settled. */
static void rest(struct reclaim *r, bool *under_way)
{
	if (r->kick || r->waiters)
		return;
	us_cond_timedwait(&r->wake, &r->lock, *under_way ? SETTLE_NS : REST_NS);
	if (!*under_way || r->kick || r->waiters || r->stop)
		return;
	*under_way = false;
	us_mutex_unlock(&r->lock);
	settle(r);
	us_mutex_lock(&r->lock);
}

static void kswapd(void *arg)
{
	struct reclaim *r = arg;
	bool under_way = false;

	r->watch = watch_start("kswapd");
	us_mutex_lock(&r->lock);
	while (!r->stop) {
		uint64_t used;
		bool start;

		rest(r, &under_way);
		r->kick = false;
		start = r->waiters;
		us_mutex_unlock(&r->lock);
		watch_beat(r->watch);
		used = r->ops->used(r->host);
		us_mutex_lock(&r->lock);
		start = !r->stop && (start || is_below(used, r->limit, r->wm.low));
		if (!start)
			continue;
		us_mutex_unlock(&r->lock);
		run(r);
		under_way = true;
		us_mutex_lock(&r->lock);
	}
	us_mutex_unlock(&r->lock);
	settle(r);
	watch_stop(r->watch);
}

int reclaim_start(struct reclaim *r, const struct reclaim_ops *ops, void *host, uint64_t limit)
{
	int err;

	memset(r, 0, sizeof(*r));
	r->ops = ops;
	r->host = host;
	r->limit = limit;
	r->wm = watermarks_of(limit);
	us_mutex_init(&r->lock, &reclaim_class);
	us_cond_init(&r->wake);
	err = us_thread_start(&r->thread, "kswapd0", -1, kswapd, r);
	if (err) {
		us_cond_deinit(&r->wake);
		us_mutex_deinit(&r->lock);
		r->ops = NULL;
	}
	return err;
}

void reclaim_stop(struct reclaim *r)
{
	if (!r->ops)
		return;
	us_mutex_lock(&r->lock);
	r->stop = true;
	us_cond_signal(&r->wake);
	us_mutex_unlock(&r->lock);
	us_thread_join(&r->thread);
	us_cond_deinit(&r->wake);
	us_mutex_deinit(&r->lock);
	r->ops = NULL;
}

void reclaim_set_limit(struct reclaim *r, uint64_t limit)
{
	us_mutex_lock(&r->lock);
	r->limit = limit;
	r->wm = watermarks_of(limit);
	r->kick = true;
	us_cond_signal(&r->wake);
	us_mutex_unlock(&r->lock);
}

void reclaim_poke(struct reclaim *r, uint64_t used)
{
	us_mutex_lock(&r->lock);
	if (!r->kick && is_below(used, r->limit, r->wm.low)) {
		r->kick = true;
		us_cond_signal(&r->wake);
	}
	us_mutex_unlock(&r->lock);
}

void reclaim_need(struct reclaim *r)
{
	us_mutex_lock(&r->lock);
	if (!r->waiters) {
		r->waiters = true;
		us_cond_signal(&r->wake);
	}
	us_mutex_unlock(&r->lock);
}

uint64_t reclaim_limit(struct reclaim *r, struct watermarks *wm)
{
	uint64_t limit;

	us_mutex_lock(&r->lock);
	limit = r->limit;
	if (wm)
		*wm = r->wm;
	us_mutex_unlock(&r->lock);
	return limit;
}
