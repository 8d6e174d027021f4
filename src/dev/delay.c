/* SPDX-License-Identifier: MIT */
/*
 * Holds each io back for a time before the device below gets it, as a slow disk would. Held ios
 * form a list in order of their deadlines; one thread submits those that are due.
 *
 * With a depth, so many are in service at once, and the others wait in the order in which they came.
 * The service of one that waited begins when that of the one before it ended, not when the thread
 * got to it: else a busy machine would make the disk slower than it says it is.
 */
#include "dev/stack.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"

struct delay {
	struct stack_dev s;
	struct delay_config cfg;
	struct us_thread thread;
	struct us_mutex lock;
	struct us_cond wake;
	/* protected by lock */
	struct list_node held;	/* in service; of stack_io by priv, the deadline */
	struct list_node queue; /* waiting for service; priv is when they came */
	unsigned int nr_held;
	struct rng rng;
	bool stop;
};

LOCK_CLASS(delay_class, "dev_delay", RANK_DEV);

static struct delay *to_delay(struct stack_dev *s)
{
	return container_of(s, struct delay, s);
}

static uint64_t draw_delay(struct delay *d, uint64_t ns)
{
	double x = (double)(rng_next(&d->rng) >> 11) / (double)(1ull << 53);

	return (uint64_t)((double)ns * (1.0 + d->cfg.jitter * (2.0 * x - 1.0)));
}

/* From `since` on it is in service. Called with the lock. */
static void serve(struct delay *d, struct stack_io *w, uint64_t since)
{
	struct list_node *at;

	w->priv = since + draw_delay(d, w->io.op == DEV_READ ? d->cfg.read_ns : d->cfg.write_ns);
	/* From the tail: without jitter it is the last. Equal deadlines keep their order. */
	for (at = d->held.prev; at != &d->held; at = at->prev)
		if (list_entry(at, struct stack_io, node)->priv <= w->priv)
			break;
	list_insert_between(&w->node, at, at->next);
	d->nr_held++;
	if (d->held.next == &w->node)
		us_cond_signal(&d->wake);
}

static void delay_pass(struct stack_dev *s, struct dev_io *io)
{
	struct delay *d = to_delay(s);
	struct stack_io *w = stack_get(s, io);

	if (!w)
		return;
	us_mutex_lock(&d->lock);
	w->priv = clock_now_ns();
	if (d->cfg.depth && d->nr_held >= d->cfg.depth)
		list_add_tail(&d->queue, &w->node);
	else
		serve(d, w, w->priv);
	us_mutex_unlock(&d->lock);
}

/* The service of w has ended. Called with the lock. */
static void leave_service(struct delay *d, struct stack_io *w)
{
	struct stack_io *next;

	list_del(&w->node);
	d->nr_held--;
	if (list_empty(&d->queue))
		return;
	next = list_first(&d->queue, struct stack_io, node);
	list_del(&next->node);
	serve(d, next, MAX(next->priv, w->priv));
}

/* The caller may block, so it is the one that waits. */
static int delay_discard(struct dev *dev, uint32_t slot, uint32_t nr)
{
	struct stack_dev *s = to_stack(dev);
	struct delay *d = to_delay(s);
	uint64_t ns;

	us_mutex_lock(&d->lock);
	ns = draw_delay(d, d->cfg.discard_ns);
	us_mutex_unlock(&d->lock);
	clock_sleep_ns(ns);
	return s->below->ops->discard(s->below, slot, nr);
}

static void delay_thread(void *arg)
{
	struct delay *d = arg;

	us_mutex_lock(&d->lock);
	for (;;) {
		struct stack_io *w;
		uint64_t now;

		if (list_empty(&d->held)) {
			if (d->stop)
				break;
			us_cond_wait(&d->wake, &d->lock);
			continue;
		}
		w = list_first(&d->held, struct stack_io, node);
		now = clock_now_ns();
		if (w->priv > now) {
			(void)us_cond_timedwait(&d->wake, &d->lock, w->priv - now);
			continue;
		}
		leave_service(d, w);
		us_mutex_unlock(&d->lock);
		dev_submit(d->s.below, &w->io);
		us_mutex_lock(&d->lock);
	}
	us_mutex_unlock(&d->lock);
}

static void delay_deinit(struct stack_dev *s)
{
	struct delay *d = to_delay(s);

	us_mutex_lock(&d->lock);
	d->stop = true;
	us_cond_signal(&d->wake);
	us_mutex_unlock(&d->lock);
	us_thread_join(&d->thread);
	us_cond_deinit(&d->wake);
	us_mutex_deinit(&d->lock);
}

struct dev *dev_delay_create(struct dev *below, const struct delay_config *cfg, int *err)
{
	struct delay *d;

	*err = -EINVAL;
	if (!(cfg->jitter >= 0 && cfg->jitter <= 1))
		return NULL;
	*err = -ENOMEM;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	if (stack_init(&d->s, below) != 0) {
		free(d);
		return NULL;
	}
	d->cfg = *cfg;
	d->s.pass = delay_pass;
	d->s.deinit = delay_deinit;
	if (below->ops->discard)
		d->s.ops.discard = delay_discard;
	us_mutex_init(&d->lock, &delay_class);
	us_cond_init(&d->wake);
	list_init(&d->held);
	list_init(&d->queue);
	rng_init(&d->rng, cfg->seed);
	*err = us_thread_start(&d->thread, "uswap-delay", -1, delay_thread, d);
	if (*err) {
		delay_deinit(&d->s);
		stack_deinit(&d->s);
		free(d);
		return NULL;
	}
	return &d->s.d;
}
