/* SPDX-License-Identifier: MIT */
/*
 * The order of things:
 *   1. find the device; can the others take in what is on it? else nothing is touched
 *   2. DRAINING; queue_off(), which waits for walks that are under way there; disable the clusters;
 *      drain devs_gate: from here on no slot is given out there, and nobody relocates; what was
 *      held ready is free
 *   3. passes over its slots: owners are collected and moved, by several threads, until it is empty
 *   4. LEAVING; drain devs_gate: nobody looks at it any more; drain its own gate: the last load and
 *      the last free have left it; queue_remove(): nobody lists it, and no walk knows it
 *   5. a device that is told what is not needed is told the rest, so that the job's content does not
 *      stay on it; the tables go, the number is free; the device is handed back
 * An end before 4 puts it back: queue_on() before ON, so that another swap_off(), which looks for
 * ON, does not come in between. Nothing has to be undone: what has moved is where it is.
 *
 * Why nothing is lost or mixed up:
 *   - A folio moves as move.c says, with the entry naming a whole copy at each moment.
 *   - A write that was in flight at 2 has slots without an owner. They count as used, so 4 does not
 *     come before the write has ended; then they have an owner (before the entry names them), or
 *     are free. The same for slots that are about to be freed. So passes go on, without a limit,
 *     until used is 0; a pass that finds no owner just waits a little.
 *   - Slots are free when their entry has let go of them, in clusters_free(): so with used 0 no
 *     entry names the device, and none can again, as nothing is allocated there.
 *   - Loads, and who frees slots, are in the device's gate from before the slots can be free until
 *     they have left the device's code.
 *   - What only resident pages name is given up (kept.c), as its older copy is of no use; all else
 *     moves.
 *   - A page that cannot be read stays as it is until all others have moved; what cannot be read
 *     then either becomes LOST, which is an error for who touches it and for nobody else.
 *   - When the others do not take in what is left, at 1 or at 3, the device goes back into the
 *     queue; a folio that found no room is where it was.
 *
 * Where folios may use some of the others only, room is a matter of who takes which (room.h). It is
 * looked at 1, by class, and while they move nobody goes where others would lack what he takes: so
 * what fitted at 1 fits to the end, if nobody else writes meanwhile. That is one thread's work,
 * and only where it matters.
 */
#include "swap/swapoff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "swap/move.h"
#include "swap/relocate.h"
#include "swap/room.h"
#include "trace/vmstat.h"

LOCK_CLASS(off_class, "swap_off", RANK_CACHE - 4);

/* Below this another thread costs more than it brings. */
#define PAGES_PER_THREAD 1024u
/* A pass that moved nothing waits this long for writes and exits to end. */
#define IDLE_NS (2 * NSEC_PER_MSEC)
/* Whoever waits for a swapoff does not wait longer for discards, but for one that is under way. */
#define DISCARD_NS (5 * NSEC_PER_SEC)
/* What could not be read is tried so often in all. */
#define READ_TRIES 3
/* Batches in a row that found no room, after which a thread gives up. */
#define FULL_BATCHES 2

struct off;

struct off_worker {
	struct off *o;
	struct us_thread thread;
	struct mover mover;
	swp_t batch[MOVE_FOLIOS];
};

struct off {
	struct swap *s;
	struct swap_dev *sd;
	unsigned int dev;
	const struct swap_off_request *req;
	struct swap_off_result *res;
	uint64_t start_ns, told_ns;
	struct off_worker *workers;
	unsigned int nr_workers;
	bool lose;     /* constant during a pass */
	bool has_classes; /* constant */
	bool careful;  /* constant during a pass: one worker, which asks by class */
	struct off_room room; /* kept up to date by that worker */
	atomic_bool stop, no_room;
	struct us_mutex lock;
	struct us_cond wake;
	/* protected by lock */
	uint32_t cursor;
	unsigned int running;
	struct move_result pass;
};

/* Slots that hold something, or are about to. */
static uint32_t used_of(struct swap_dev *sd)
{
	uint32_t used, peak, usable;

	clusters_usage(&sd->clusters, &used, &peak, &usable);
	return used - MIN(used, relocate_ready_slots(sd));
}

/* The room elsewhere, and what needs it, if folios of several classes may be there. As room.h. */
static void measure(struct off *o)
{
	room_look(&o->room, o->s);
	if (o->has_classes)
		room_count(&o->room, o->s);
}

static bool suffices(struct off *o)
{
	o->res->bound_pages = o->res->bound_room_pages = 0;
	return room_suffices(&o->room, &o->res->bound_pages, &o->res->bound_room_pages);
}

/*
 * Is there still room for all that is left? Memory that compresses is known by trying only, and to
 * fill it up in vain would leave the programs without: so it is asked after each batch.
 */
static bool has_room(struct off *o)
{
	unsigned int phase = gate_enter(&o->s->devs_gate);
	struct off_room now = {.dev = o->dev};
	bool ok;

	room_look(&now, o->s);
	ok = used_of(o->sd) <= room_of(&now, UINT32_MAX);
	if (ok && o->careful) {
		room_look(&o->room, o->s);
		ok = suffices(o);
		/* What the programs have freed is still counted. */
		if (!ok) {
			room_count(&o->room, o->s);
			ok = suffices(o);
		}
	}
	gate_leave(&o->s->devs_gate, phase);
	return ok;
}

/* ---- a thread ---- */

/* Given up: only resident pages name it, so it need not move. We have one reference of our own. */
static bool was_cached(struct swap *s, swp_t e)
{
	return atomic_load_explicit(&entry_of(&s->table, e)->kept, memory_order_relaxed) &&
	       swap_reclaim_kept(s, e, 1);
}

/* The next owners that are to move, with a reference to each. False: the end. */
static bool collect(struct off_worker *w, unsigned int *nr)
{
	struct off *o = w->o;
	unsigned int n;

	us_mutex_lock(&o->lock);
	n = clusters_collect(&o->sd->clusters, &o->cursor, entry_claim, &o->s->table, w->batch,
			     MOVE_FOLIOS);
	us_mutex_unlock(&o->lock);
	*nr = 0;
	for (unsigned int i = 0; i < n; i++) {
		unsigned int k = 0;

		/* One that is in several pieces is found once for each: to move it once will do. */
		while (k < *nr && w->batch[k] != w->batch[i])
			k++;
		if (k < *nr || was_cached(o->s, w->batch[i]))
			swap_put(o->s, w->batch[i], 1);
		else
			w->batch[(*nr)++] = w->batch[i];
	}
	return n;
}

/* Folios of the batch from `at` on that fit into the mover's buffer together. */
static unsigned int fitting(struct off_worker *w, unsigned int at, unsigned int n)
{
	uint32_t pages = 0;
	unsigned int i;

	for (i = at; i < n; i++) {
		pages += 1u << swap_order(w->o->s, w->batch[i]);
		if (pages > WRITE_PAGES)
			break;
	}
	return i - at;
}

static unsigned int class_of(struct off *o, swp_t e)
{
	return entry_of(&o->s->table, e)->class;
}

static uint64_t pages_of(struct off_worker *w, unsigned int at, unsigned int n)
{
	uint64_t pages = 0;

	for (unsigned int i = at; i < at + n; i++)
		pages += 1u << swap_order(w->o->s, w->batch[i]);
	return pages;
}

/* Brings those of the class of batch[at] next to it. The end of them. */
static unsigned int gather_class(struct off_worker *w, unsigned int at, unsigned int n)
{
	unsigned int class = class_of(w->o, w->batch[at]), end = at + 1;

	for (unsigned int i = at + 1; i < n; i++) {
		swp_t e = w->batch[i];

		if (class_of(w->o, e) != class)
			continue;
		w->batch[i] = w->batch[end];
		w->batch[end++] = e;
	}
	return end;
}

/*
 * The next folios from `at` on that may move together, and where not to. Where all of them are too
 * many for each single device, fewer are not: so it ends with one that finds no room only if there
 * is none.
 */
static unsigned int choose(struct off_worker *w, unsigned int at, unsigned int n, uint32_t *barred)
{
	struct off *o = w->o;
	unsigned int class, nr;

	*barred = 0;
	if (!o->careful)
		return fitting(w, at, n);
	class = class_of(o, w->batch[at]);
	nr = fitting(w, at, gather_class(w, at, n));
	for (;; nr /= 2) {
		*barred = room_barred(&o->room, class, pages_of(w, at, nr));
		if (room_of(&o->room, o->room.may[class] & ~*barred))
			return nr;
		if (nr == 1)
			break;
	}
	/* In pieces, then. */
	*barred = room_barred(&o->room, class, 1);
	return nr;
}

/* Some of a class have left the device. */
static void left(struct off *o, unsigned int class, uint64_t pages)
{
	o->room.pages[class] -= MIN(o->room.pages[class], pages);
	room_look(&o->room, o->s);
}

static void move_batch(struct off_worker *w, unsigned int n, struct move_result *res)
{
	struct off *o = w->o;
	struct move_request req = {.from = o->dev, .to = MOVE_ANYWHERE,
				   .lose_unreadable = o->lose, .pieces = true};
	unsigned int nr;

	for (unsigned int at = 0; at < n; at += nr) {
		uint64_t before = res->moved_pages + res->lost_pages;
		unsigned int class = class_of(o, w->batch[at]);

		nr = choose(w, at, n, &req.barred);
		if (atomic_load(&o->stop)) {
			for (unsigned int i = at; i < n; i++)
				swap_put(o->s, w->batch[i], 1);
			return;
		}
		mover_move(&w->mover, &req, w->batch + at, nr, res);
		if (o->careful)
			left(o, class, res->moved_pages + res->lost_pages - before);
	}
}

static void add_result(struct off *o, const struct move_result *r)
{
	us_mutex_lock(&o->lock);
	o->pass.moved += r->moved;
	o->pass.moved_pages += r->moved_pages;
	o->pass.gone += r->gone;
	o->pass.unreadable += r->unreadable;
	o->pass.lost_pages += r->lost_pages;
	o->pass.no_room += r->no_room;
	us_mutex_unlock(&o->lock);
}

static void worker_main(void *arg)
{
	struct off_worker *w = arg;
	struct off *o = w->o;
	unsigned int n, full = 0;

	while (!atomic_load(&o->stop) && !atomic_load(&o->no_room) && full < FULL_BATCHES &&
	       collect(w, &n)) {
		struct move_result r = {0};

		move_batch(w, n, &r);
		add_result(o, &r);
		full = r.no_room && !r.moved ? full + 1 : 0;
		if (!has_room(o))
			atomic_store(&o->no_room, true);
	}
	us_mutex_lock(&o->lock);
	if (--o->running == 0)
		us_cond_signal(&o->wake);
	us_mutex_unlock(&o->lock);
}

/* ---- passes ---- */

/* Tells how far it is, and asks whether to go on. */
static void tell(struct off *o, uint64_t lost_now)
{
	uint64_t left = used_of(o->sd), now = clock_now_ns();
	uint64_t all = o->res->used_pages;
	struct swap_off_progress p = {.left_pages = left,
				      .done_pages = all - MIN(left, all),
				      .lost_pages = o->res->lost_pages + lost_now,
				      .elapsed_ns = now - o->start_ns};

	if (!o->req->progress || now - o->told_ns < SWAP_OFF_PROGRESS_NS)
		return;
	o->told_ns = now;
	if (!o->req->progress(o->req->host, &p))
		atomic_store(&o->stop, true);
}

static void wait_for_workers(struct off *o)
{
	us_mutex_lock(&o->lock);
	while (o->running) {
		uint64_t lost;

		(void)us_cond_timedwait(&o->wake, &o->lock, SWAP_OFF_PROGRESS_NS);
		lost = o->pass.lost_pages;
		us_mutex_unlock(&o->lock);
		tell(o, lost);
		us_mutex_lock(&o->lock);
	}
	us_mutex_unlock(&o->lock);
}

/* All slots once. 0, or -errno when not even one thread could be started. */
static int one_pass(struct off *o, unsigned int nr)
{
	unsigned int started = 0;
	int err = 0;

	o->cursor = 0;
	o->pass = (struct move_result){0};
	o->running = nr;
	for (unsigned int i = 0; i < nr && !err; i++) {
		err = us_thread_start(&o->workers[i].thread, "uswap-swapoff", -1, worker_main,
				      &o->workers[i]);
		started += !err;
	}
	us_mutex_lock(&o->lock);
	o->running -= nr - started;
	us_mutex_unlock(&o->lock);
	wait_for_workers(o);
	for (unsigned int i = 0; i < started; i++)
		us_thread_join(&o->workers[i].thread);
	o->res->moved_pages += o->pass.moved_pages;
	vmstat_add(VMSTAT_swapoff_moved, o->pass.moved_pages);
	o->res->lost_pages += o->pass.lost_pages;
	return started ? 0 : err;
}

/* Must it be asked by class where folios may go? */
static bool plan_pass(struct off *o)
{
	unsigned int phase;

	if (!o->has_classes)
		return false;
	phase = gate_enter(&o->s->devs_gate);
	measure(o);
	gate_leave(&o->s->devs_gate, phase);
	o->careful = !room_in_any_order(&o->room);
	return o->careful;
}

static int drain(struct off *o)
{
	unsigned int tries = 0;
	uint32_t used;
	int err;

	while ((used = used_of(o->sd))) {
		unsigned int nr = MIN(o->nr_workers, used / PAGES_PER_THREAD + 1);

		if (atomic_load(&o->stop))
			return -EINTR;
		if (plan_pass(o))
			nr = 1;
		err = one_pass(o, nr);
		if (err)
			return err;
		if (atomic_load(&o->no_room) && used_of(o->sd))
			return -ENOSPC;
		if (o->pass.moved || o->pass.lost_pages)
			continue;
		/* Nothing of this pass was moved by us. What is freed meanwhile makes a new try. */
		if (o->pass.no_room && used_of(o->sd) >= used)
			return -ENOSPC;
		if (o->pass.unreadable)
			o->lose = ++tries >= READ_TRIES - 1;
		tell(o, 0);
		clock_sleep_ns(IDLE_NS);
	}
	return 0;
}

/* ---- the device ---- */

/* The number of the device, or -errno. devs_lock held. */
static int find(struct off *o)
{
	int n = -ENOENT;

	for (int i = 0; i < MAX_DEVS; i++) {
		struct swap_dev *sd = &o->s->devs[i];

		if (!swap_dev_present(sd) || strcmp(sd->dev->name, o->req->name) != 0)
			continue;
		n = n == -ENOENT ? i : -ENOTUNIQ;
	}
	if (n >= 0 && atomic_load(&o->s->devs[n].state) != DEV_ON)
		n = -EBUSY;
	if (n < 0)
		return n;
	o->sd = &o->s->devs[n];
	o->dev = (unsigned int)n;
	o->room.dev = o->dev;
	measure(o);
	o->res->used_pages = used_of(o->sd);
	o->res->room_pages = room_of(&o->room, UINT32_MAX);
	return n;
}

/* What only resident pages name needs no room elsewhere. In devs_gate. */
static void give_up_cached(struct off *o)
{
	unsigned int nr;

	o->cursor = 0;
	while (collect(&o->workers[0], &nr))
		for (unsigned int i = 0; i < nr; i++)
			swap_put(o->s, o->workers[0].batch[i], 1);
}

/* As far as is known. */
static bool fits(struct off *o)
{
	return o->res->used_pages <= o->res->room_pages && (!o->has_classes || suffices(o));
}

/* Step 1 and 2. 0 or -errno. */
static int begin(struct off *o)
{
	struct swap *s = o->s;
	int n;

	for (int try = 0;; try++) {
		unsigned int phase;

		us_mutex_lock(&s->devs_lock);
		n = find(o);
		if (n >= 0 && !fits(o))
			n = -ENOSPC;
		if (n != -ENOSPC || try)
			break;
		phase = gate_enter(&s->devs_gate);
		us_mutex_unlock(&s->devs_lock);
		give_up_cached(o);
		gate_leave(&s->devs_gate, phase);
	}
	if (n >= 0)
		atomic_store(&o->sd->state, DEV_DRAINING);
	us_mutex_unlock(&s->devs_lock);
	if (n < 0)
		return n;
	if (queue_off(s->queue, o->dev))
		swap_bug("device %u is not in the queue", o->dev);
	/* The worker, which may be at work there, finds that nothing is to be had, and leaves. */
	clusters_disable(&o->sd->clusters);
	gate_drain(&s->devs_gate);
	(void)relocate_drop_ready(o->sd);
	return 0;
}

static void put_back(struct off *o)
{
	clusters_enable(&o->sd->clusters);
	if (queue_on(o->s->queue, o->dev))
		swap_bug("device %u is not in the queue", o->dev);
	us_mutex_lock(&o->s->devs_lock);
	atomic_store(&o->sd->state, DEV_ON);
	us_mutex_unlock(&o->s->devs_lock);
}

static void discard_rest(struct swap_dev *sd)
{
	int err = clusters_discard_all(&sd->clusters, clock_now_ns() + DISCARD_NS);

	if (err)
		log_warn("%s: some of what was on it has not been discarded: %s", sd->dev->name,
			 err == -ETIME ? "it takes too long" : strerror(-err));
}

static struct dev *take_out(struct off *o)
{
	struct swap *s = o->s;
	struct dev *d = o->sd->dev;

	us_mutex_lock(&s->devs_lock);
	atomic_store(&o->sd->state, DEV_LEAVING);
	us_mutex_unlock(&s->devs_lock);
	gate_drain(&s->devs_gate);
	gate_drain(&o->sd->gate);
	if (queue_remove(s->queue, o->dev))
		swap_bug("device %u is not off in the queue", o->dev);
	discard_rest(o->sd);
	swap_dev_deinit_slots(o->sd);
	o->sd->dev = NULL;
	us_mutex_lock(&s->devs_lock);
	atomic_store(&o->sd->state, DEV_NONE);
	us_mutex_unlock(&s->devs_lock);
	return d;
}

/* ---- set-up ---- */

static int create_workers(struct off *o)
{
	unsigned int want = o->req->threads ? o->req->threads : SWAP_OFF_THREADS;
	int err = 0;

	want = MIN(want, SWAP_OFF_MAX_THREADS);
	o->workers = calloc(want, sizeof(*o->workers));
	if (!o->workers)
		return -ENOMEM;
	for (; o->nr_workers < want && !err; o->nr_workers += !err) {
		o->workers[o->nr_workers].o = o;
		err = mover_init(&o->workers[o->nr_workers].mover, o->s);
	}
	return o->nr_workers ? 0 : err;
}

static void destroy_workers(struct off *o)
{
	for (unsigned int i = 0; i < o->nr_workers; i++)
		mover_deinit(&o->workers[i].mover);
	free(o->workers);
}

int swap_off(struct swap *s, const struct swap_off_request *req, struct swap_off_result *res,
	     struct dev **gone)
{
	struct off o = {.s = s, .req = req, .res = res, .start_ns = clock_now_ns()};
	int err;

	*res = (struct swap_off_result){0};
	*gone = NULL;
	o.told_ns = o.start_ns;
	o.has_classes = atomic_load(&s->nr_classes) > 1;
	us_mutex_init(&o.lock, &off_class);
	us_cond_init(&o.wake);
	err = create_workers(&o);
	if (!err)
		err = begin(&o);
	if (!err) {
		err = drain(&o);
		res->left_pages = used_of(o.sd);
		if (err)
			put_back(&o);
		else
			*gone = take_out(&o);
	}
	res->elapsed_ns = clock_now_ns() - o.start_ns;
	destroy_workers(&o);
	us_cond_deinit(&o.wake);
	us_mutex_deinit(&o.lock);
	return err;
}
