/* SPDX-License-Identifier: MIT */
/*
 * The readers' side: the walk of an allocation, and closing and opening devices.
 *
 * Why no walk misses a device or asks one twice. The set of positions that are still to be tried
 * is a word on the stack of the walk. Each one that is tried leaves it, whatever other threads do to
 * the turn that they share with this one, and however this thread is moved between CPUs; the turn
 * only decides the order.
 *
 * Why no device stays closed with room in it. Who closes it as full first closes it, then looks
 * once more whether it is full, and opens it if not. Who frees first frees, then looks whether it is
 * closed. In whichever order these four come, the second look of one of them sees what the first
 * step of the other did. Both may open it: that does no harm, nor does an open device that is full,
 * which the next walk closes. So closing for good needs a free slot nowhere, and a free that comes
 * later opens it.
 *
 * Why a device that is off gives nothing. queue_off() clears its bit, so walks that begin later do
 * not ask it, and waits for those that began before. Nothing sets the bit while QUEUE_OFF stands.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "swap/entry.h"
#include "swap/queue_internal.h"

LOCK_CLASS(writer_class, "swap_queue_writer", RANK_CACHE - 3);
LOCK_CLASS(tag_class, "swap_queue_tag", RANK_DEV - 2);

#define SPEED_SHIFT 3 /* a new measurement of speed counts an eighth */
#define MAX_SPEED (1ull << 40)

/* ---- set-up ---- */

static bool alloc_words(struct queue *q)
{
	size_t stride = align_up(MAX_RINGS * sizeof(uint64_t), 64);

	q->words_stride = stride;
	q->words_bytes = q->cfg.nr_cpus * stride;
	q->words = mem_reserve(q->words_bytes);
	q->node_of_cpu = mem_reserve(q->cfg.nr_cpus);
	return q->words && q->node_of_cpu;
}

static void free_all(struct queue *q)
{
	if (q->words)
		mem_release(q->words, q->words_bytes);
	if (q->node_of_cpu)
		mem_release(q->node_of_cpu, q->cfg.nr_cpus);
	mem_release(q, sizeof(*q));
}

struct queue *queue_create(const struct queue_config *cfg, int *err)
{
	struct queue *q = mem_reserve(sizeof(*q));

	*err = -ENOMEM;
	if (!q)
		return NULL;
	q->cfg = *cfg;
	if (!q->cfg.nr_cpus)
		q->cfg.nr_cpus = us_nr_cpus();
	if (!alloc_words(q)) {
		free_all(q);
		return NULL;
	}
	for (unsigned int c = 0; cfg->node_of_cpu && c < q->cfg.nr_cpus; c++)
		q->node_of_cpu[c] = (uint8_t)(cfg->node_of_cpu(cfg->host, c) % QUEUE_MAX_NODES);
	us_mutex_init(&q->writer_lock, &writer_class);
	us_mutex_init(&q->tag_lock, &tag_class);
	tier_table_init(&q->tiers);
	q->policy = cfg->policy == POLICY_DEFAULT ? POLICY_QUEUE : cfg->policy;
	q->views = 1u << q->policy;
	us_mutex_lock(&q->writer_lock);
	queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	*err = 0;
	return q;
}

void queue_destroy(struct queue *q)
{
	if (!q)
		return;
	for (unsigned int i = 0; i < atomic_load(&q->nr_rings); i++)
		us_mutex_deinit(&q->rings[i].list_lock);
	us_mutex_deinit(&q->tag_lock);
	us_mutex_deinit(&q->writer_lock);
	free_all(q);
}

unsigned int queue_node_of_cpu(const struct queue *q, unsigned int cpu)
{
	return cpu < q->cfg.nr_cpus ? q->node_of_cpu[cpu] : 0;
}

/* ---- closing and opening ---- */

/* Whether the device was open before. */
static bool tag_change(struct queue *q, unsigned int dev, uint32_t set, uint32_t clear)
{
	struct queue_dev *d = &q->devs[dev];
	struct queue_layout *l;
	uint32_t old, new;
	unsigned int pos;

	us_mutex_lock(&q->tag_lock);
	old = atomic_load(&d->closed);
	new = (old | set) & ~clear;
	atomic_store(&d->closed, new);
	l = atomic_load(&q->current);
	pos = l->position[dev];
	if (pos != NO_POSITION && !new != !old) {
		if (new)
			atomic_fetch_and(&l->open, ~(1ull << pos));
		else
			atomic_fetch_or(&l->open, 1ull << pos);
	}
	us_mutex_unlock(&q->tag_lock);
	return !old;
}

/* A walk has found it full. False: it is not, after all. */
static bool close_full(struct queue *q, unsigned int dev)
{
	void *priv = q->devs[dev].dev;

	if (!q->cfg.ops->is_full(priv))
		return false;
	if (tag_change(q, dev, QUEUE_FULL, 0))
		atomic_fetch_add_explicit(&q->nr_closed, 1, memory_order_relaxed);
#ifndef USWAP_MUTANT_QUEUE_RECHECK
	/* A free between the two looks may have found it open still. */
	if (!q->cfg.ops->is_full(priv)) {
		tag_change(q, dev, 0, QUEUE_FULL);
		return false;
	}
#endif
	return true;
}

void queue_freed(struct queue *q, unsigned int dev)
{
	if (likely(!(atomic_load(&q->devs[dev].closed) & (QUEUE_FULL | QUEUE_NOSPC))))
		return;
	tag_change(q, dev, 0, QUEUE_FULL | QUEUE_NOSPC);
	atomic_fetch_add_explicit(&q->nr_reopened, 1, memory_order_relaxed);
}

void queue_unused(struct queue *q, unsigned int dev)
{
	if (likely(!(atomic_load(&q->devs[dev].closed) & QUEUE_FULL)))
		return;
	tag_change(q, dev, 0, QUEUE_FULL);
	atomic_fetch_add_explicit(&q->nr_reopened, 1, memory_order_relaxed);
}

unsigned int queue_closed(struct queue *q, unsigned int dev)
{
	return atomic_load(&q->devs[dev].closed);
}

void queue_close(struct queue *q, unsigned int dev, unsigned int why)
{
	tag_change(q, dev, why & (QUEUE_NOSPC | QUEUE_FAILED), 0);
}

void queue_retry(struct queue *q, unsigned int dev)
{
	if (atomic_load(&q->devs[dev].closed) & (QUEUE_FULL | QUEUE_NOSPC))
		tag_change(q, dev, 0, QUEUE_FULL | QUEUE_NOSPC);
}

/* ---- the walk ---- */

unsigned int queue_cpu(const struct queue *q)
{
	unsigned int cpu = us_this_cpu();

	return likely(cpu < q->cfg.nr_cpus) ? cpu : cpu % q->cfg.nr_cpus;
}

static const struct queue_view *view_for(const struct queue_layout *l, const struct queue_req *req)
{
	return &l->view[l->view_of[req->policy]];
}

/* Positions that the request leaves out. */
static uint64_t left_out(const struct queue_layout *l, const struct queue_req *req)
{
	uint64_t out = 0;

	for (uint64_t skip = req->skip; skip; skip &= skip - 1) {
		unsigned int pos = l->position[__builtin_ctzll(skip)];

		if (pos != NO_POSITION)
			out |= 1ull << pos;
	}
	for (unsigned int p = 0; req->denied && p < l->nr; p++)
		if (req->denied & 1ull << l->tier[p])
			out |= 1ull << p;
	return out;
}

static uint64_t open_for(struct queue_layout *l, const struct queue_req *req)
{
	uint64_t open = atomic_load(&l->open);

	if (unlikely(req->skip | req->denied))
		open &= ~left_out(l, req);
	return open;
}

static uint32_t take(struct queue *q, const struct queue_layout *l, unsigned int pos,
		     const struct queue_req *req)
{
	const struct queue_ops *ops = q->cfg.ops;

	return req->quick && ops->alloc_quick ? ops->alloc_quick(l->owner[pos], req->order) :
						ops->alloc(l->owner[pos], req->order);
}

static unsigned int pick(struct queue_walk *w, uint64_t left)
{
	const struct queue_policy_ops *ops = w->g->ops;

	/* One device has no turn: neither the CPU's number nor its word is needed. */
	if (!w->step && ops->skip_if_alone && !(left & (left - 1)))
		return (unsigned int)__builtin_ctzll(left);
	if (!w->step)
		w->cpu = queue_cpu(w->q);
	return ops->pick(w, left);
}

#define NO_LEVEL 0xffffu

/* An open device gave nothing. Returns the level at which a large folio is bound, or NO_LEVEL. */
static unsigned int refused(struct queue *q, const struct queue_layout *l,
			    const struct queue_view *v, unsigned int pos, unsigned int order)
{
	atomic_fetch_add_explicit(&q->nr_refused, 1, memory_order_relaxed);
	return close_full(q, l->number[pos]) || !order ? NO_LEVEL : v->level[pos];
}

/*
 * Tries the devices `left` of the walk's group, each once. *failed is the highest level at which an
 * open device had no run. 0, -EAGAIN (none of them), -E2BIG.
 */
static int walk_group(struct queue_walk *w, uint64_t left, const struct queue_view *v,
		      const struct queue_req *req, unsigned int *failed, struct queue_got *got)
{
	for (w->step = 0; left; w->step++) {
		unsigned int pos = pick(w, left), level;

		if (v->level[pos] > *failed)
			return -E2BIG;
#ifdef USWAP_MUTANT_QUEUE_CURSOR
		if (w->step + 1 >= (unsigned int)__builtin_popcountll(left))
			left = 0;
#else
		left &= ~(1ull << pos);
#endif
		got->slot = take(w->q, w->l, pos, req);
		if (likely(got->slot)) {
			got->dev = w->l->number[pos];
			return 0;
		}
		level = refused(w->q, w->l, v, pos, req->order);
		*failed = MIN(*failed, level);
	}
	return -EAGAIN;
}

static int walk(struct queue *q, const struct queue_layout *l, uint64_t open, unsigned int failed,
		const struct queue_req *req, struct queue_got *got)
{
	const struct queue_view *v = view_for(l, req);
	struct queue_walk w = {.q = q, .l = l, .nr_pages = 1u << req->order, .home = req->home};

	while (open) {
		unsigned int best = (unsigned int)__builtin_ctzll(open);
		int err;

		if (v->level[best] > failed)
			break;
		w.g = &v->group[v->group_of[best]];
		err = walk_group(&w, open & w.g->mask, v, req, &failed, got);
		if (err != -EAGAIN)
			return err;
		open &= ~w.g->mask;
	}
	return failed == NO_LEVEL ? -ENOENT : -E2BIG;
}

/* The best open device, at pos, has no open peers. */
static int walk_from_alone(struct queue *q, const struct queue_layout *l, uint64_t open,
			   unsigned int pos, const struct queue_req *req, struct queue_got *got)
{
	unsigned int failed;

	got->slot = take(q, l, pos, req);
	if (likely(got->slot)) {
		got->dev = l->number[pos];
		return 0;
	}
	failed = refused(q, l, view_for(l, req), pos, req->order);
	return walk(q, l, open & (open - 1), failed, req, got);
}

int queue_alloc(struct queue *q, const struct queue_req *req, struct queue_got *got)
{
	struct us_reader *r = us_read_begin();
	struct queue_layout *l = atomic_load(&q->current);
	uint64_t open = open_for(l, req);
	unsigned int best = open ? (unsigned int)__builtin_ctzll(open) : 0;
	int err;

	if (open && !(open & l->mates[best]))
		err = walk_from_alone(q, l, open, best, req, got);
	else
		err = walk(q, l, open, NO_LEVEL, req, got);
	us_read_end(r);
	if (unlikely(err == -E2BIG))
		atomic_fetch_add_explicit(&q->nr_too_big, 1, memory_order_relaxed);
	return err;
}

int queue_first(struct queue *q, const struct queue_req *req)
{
	struct us_reader *r = us_read_begin();
	struct queue_layout *l = atomic_load(&q->current);
	uint64_t open = open_for(l, req);
	int dev = open ? l->number[__builtin_ctzll(open)] : -1;

	us_read_end(r);
	return dev;
}

uint64_t queue_open(struct queue *q, const struct queue_req *req)
{
	struct us_reader *r = us_read_begin();
	struct queue_layout *l = atomic_load(&q->current);
	uint64_t devs = 0;

	for (uint64_t open = open_for(l, req); open; open &= open - 1)
		devs |= 1ull << l->number[__builtin_ctzll(open)];
	us_read_end(r);
	return devs;
}

uint64_t queue_full(struct queue *q, const struct queue_req *req)
{
	struct us_reader *r = us_read_begin();
	const struct queue_layout *l = atomic_load(&q->current);
	uint64_t devs = 0, out = left_out(l, req);

	for (unsigned int p = 0; p < l->nr; p++) {
		uint32_t closed = atomic_load(&q->devs[l->number[p]].closed);

		if (closed == QUEUE_FULL && !(out & 1ull << p))
			devs |= 1ull << l->number[p];
	}
	us_read_end(r);
	return devs;
}

void queue_each(struct queue *q, void (*fn)(void *arg, const struct queue_row *row), void *arg)
{
	struct us_reader *r = us_read_begin();
	const struct queue_layout *l = atomic_load(&q->current);

	for (unsigned int p = 0; p < l->nr; p++) {
		struct queue_dev *d = &q->devs[l->number[p]];
		struct queue_row row = {
			.dev = l->number[p],
			.serial = d->serial,
			.prio = d->prio,
			.tier = l->tier[p],
			/* Names never change, and were there before the layout. */
			.tier_name = q->tiers.name[l->tier[p]],
			.closed = atomic_load(&d->closed),
			.weight = atomic_load_explicit(&d->weight, memory_order_relaxed),
			.speed = atomic_load_explicit(&d->speed, memory_order_relaxed),
			.owner = d->dev,
		};

		fn(arg, &row);
	}
	us_read_end(r);
}

/* Two notes at the same time may make one of them count for nothing: it is an estimate. */
void queue_note_speed(struct queue *q, unsigned int dev, uint32_t nr_pages, uint64_t ns)
{
	_Atomic uint64_t *speed = &q->devs[dev].speed;
	uint64_t old = atomic_load_explicit(speed, memory_order_relaxed);
	uint64_t new = MIN(nr_pages * NSEC_PER_SEC / MAX(ns, (uint64_t)1), MAX_SPEED);

	if (old)
		new = old - (old >> SPEED_SHIFT) + (new >> SPEED_SHIFT);
	atomic_store_explicit(speed, MAX(new, (uint64_t)1), memory_order_relaxed);
}

void queue_stat(struct queue *q, struct queue_stat *st)
{
	*st = (struct queue_stat){
		.refused = atomic_load_explicit(&q->nr_refused, memory_order_relaxed),
		.closed = atomic_load_explicit(&q->nr_closed, memory_order_relaxed),
		.reopened = atomic_load_explicit(&q->nr_reopened, memory_order_relaxed),
		.too_big = atomic_load_explicit(&q->nr_too_big, memory_order_relaxed),
	};
}

char *queue_row_to_text(const struct queue_row *row, char *buf, size_t len)
{
	snprintf(buf, len, "%u prio %d tier %u%s%s%s%s weight %u speed %llu", row->dev, row->prio,
		 row->tier, row->closed & QUEUE_FULL ? " full" : "",
		 row->closed & QUEUE_NOSPC ? " nospc" : "",
		 row->closed & QUEUE_FAILED ? " failed" : "",
		 row->closed & QUEUE_OFF ? " off" : "", row->weight,
		 (unsigned long long)row->speed);
	return buf;
}
