/* SPDX-License-Identifier: MIT */
/*
 * All that a device needs is set up while nobody looks at its number. Then one step, queue_add(),
 * makes it visible: to folios that are to be written and to whoever lists devices, together. Its
 * state becomes ON after that: swap_off(), which asks for it, finds it only once the queue has it.
 * What is written there in between is loaded and freed as ever; nobody keeps older copies there, and
 * sums of figures do not have it yet.
 */
#include <errno.h>

#include "swap/internal.h"
#include "swap/relocate.h"
#include "swap/worker.h"
#include "trace/vmstat.h"

/* A number that nothing names. -ENOSPC: all are in use. */
static int take_number(struct swap *s)
{
	int n = -ENOSPC, err = 0;

	us_mutex_lock(&s->devs_lock);
	if (!s->cfg.no_worker && !s->worker.thread.running)
		err = worker_start(s);
	for (int i = 0; i < MAX_DEVS && n < 0 && !err; i++)
		if (atomic_load(&s->devs[i].state) == DEV_NONE)
			n = i;
	if (n >= 0) {
		atomic_store(&s->devs[n].state, DEV_STARTING);
		if ((uint32_t)n >= atomic_load(&s->nr_devs))
			atomic_store(&s->nr_devs, (uint32_t)n + 1);
	}
	us_mutex_unlock(&s->devs_lock);
	return err ? err : n;
}

static bool is_cached(void *host, uint32_t owner)
{
	struct swap_dev *sd = host;

	return entry_maybe_cached(sd->swap, owner);
}

static bool reclaim(void *host, uint32_t slot, uint32_t owner)
{
	struct swap_dev *sd = host;
	struct swap *s = sd->swap;

	return entry_reclaim_kept(s, owner, 0, (unsigned int)(sd - s->devs), slot);
}

static int discard(void *host, uint32_t slot, uint32_t nr)
{
	struct swap_dev *sd = host;
	int r = sd->dev->ops->discard(sd->dev, slot, nr);

	vmstat_add(r ? VMSTAT_swap_discard_fail : VMSTAT_swap_discard, r ? 1 : nr);
	return r;
}

/* Clusters and what else belongs to slots, for d in devs[n]. 0 or -errno. */
static int init_slots(struct swap *s, uint32_t n, struct dev *d)
{
	static const struct clusters_ops ops = {
		.is_cached = is_cached, .reclaim = reclaim, .discard = discard};
	struct swap_dev *sd = &s->devs[n];
	struct clusters_config cfg = {.rotational = d->rotational,
				      .discard = d->discard_pages && d->ops->discard,
				      .ops = &ops,
				      .host = sd};
	int r;

	sd->swap = s;
	sd->dev = d;
	r = clusters_init_with(&sd->clusters, d->max_slots, &cfg);
	if (r)
		return r;
	clusters_set_size(&sd->clusters, atomic_load(&d->nr_slots));
	for (uint32_t i = 0; i < d->nr_bad_slots && !r; i++) {
		r = clusters_mark_bad(&sd->clusters, d->bad_slots[i]);
		/* Beyond what is used of it. */
		if (r == -EINVAL)
			r = 0;
	}
	if (r)
		clusters_deinit(&sd->clusters);
	else
		relocate_dev_init(&sd->relocate);
	return r;
}

void swap_dev_deinit_slots(struct swap_dev *sd)
{
	clusters_deinit(&sd->clusters);
	relocate_dev_deinit(&sd->relocate);
}

static void reset(struct swap_dev *sd, int prio)
{
	sd->prio = prio;
	atomic_store(&sd->full_since_ns, 0);
	atomic_store(&sd->failed, false);
	atomic_store(&sd->write_errors, 0);
	atomic_store(&sd->read_error_logged, false);
	atomic_store(&sd->full_logged, false);
	atomic_store(&sd->grown_out_ns, 0);
	atomic_store(&sd->freed, 0);
	sd->compact = (struct compact_dev){0};
	atomic_store(&sd->reclaimed_ns, 0);
	atomic_store(&sd->reclaim_wanted, false);
}

/*
 * Turns of a disk are as short as its writes allow to be large (JOIN_PAGES, twice, so that two are in
 * flight there): what is written at one time, some hundred pages, then keeps every peer at work. What
 * follows on one disk follows there all the same, since each CPU has a cluster of its own on each
 * device. Memory works while it is called, so its turns are for the sake of the cluster alone.
 */
static uint32_t turn_pages(const struct dev *d)
{
	return dev_in_memory(d) ? 0 : 2 * JOIN_PAGES;
}

int swap_on(struct swap *s, struct dev *d, const struct swap_on_config *cfg)
{
	struct swap_dev *sd;
	int n, err;

	if (cfg->prio < SWAP_PRIO_MIN || cfg->prio > SWAP_PRIO_MAX ||
	    cfg->weight > QUEUE_MAX_WEIGHT)
		return -EINVAL;
	n = take_number(s);
	if (n < 0)
		return n;
	sd = &s->devs[n];
	err = init_slots(s, (uint32_t)n, d);
	if (!err) {
		reset(sd, cfg->prio);
		err = queue_add(s->queue, (unsigned int)n,
				&(struct queue_dev_config){.dev = sd,
							   .prio = cfg->prio,
							   .weight = cfg->weight,
							   .node = cfg->node,
							   .turn_pages = turn_pages(d)});
		if (err)
			swap_dev_deinit_slots(sd);
	}
	if (err)
		sd->dev = NULL;
	us_mutex_lock(&s->devs_lock);
	atomic_store(&sd->state, err ? DEV_NONE : DEV_ON);
	us_mutex_unlock(&s->devs_lock);
	return err;
}
