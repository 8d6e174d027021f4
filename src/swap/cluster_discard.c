/* SPDX-License-Identifier: MIT */
/*
 * Devices that are told when nothing is left in a cluster.
 *
 * An emptied cluster waits on the discard list, and is free when the device has been told. While
 * the device works it is off every list, but its state stays DISCARD, and everybody who comes to it
 * by another way (a remembered place, a sweep) passes over it. So no slot of it can be given out,
 * and written, before the device has forgotten what was there. A discard that fails is counted;
 * the cluster is free then as well, since the content does not matter any more.
 */
#include "swap/cluster_internal.h"

#include <errno.h>

#include "base/clock.h"

#define WAIT_NS NSEC_PER_SEC
/* In one go, when a device is left: 256 MiB. */
#define ALL_SLOTS 65536u

bool cluster_discard_one(struct clusters *c)
{
	struct cluster *cl;

	us_mutex_lock(&c->lock);
	if (!c->discard.head) {
		us_mutex_unlock(&c->lock);
		return false;
	}
	cl = &c->tab[c->discard.head - 1];
	cluster_list_del(c, &c->discard, cl);
	atomic_fetch_add(&c->nr_discarding, 1);
	atomic_fetch_sub(&c->nr_discard, 1);
	us_mutex_unlock(&c->lock);

	if (c->cfg.ops->discard(c->cfg.host, cluster_first(c, cl), CLUSTER_SLOTS) != 0)
		atomic_fetch_add(&c->discard_errors, 1);

	us_mutex_lock(&cl->lock);
	/* Before it stops counting as being discarded: a search in vain looks at that last. */
	cluster_set_room(c, cl, MAX_ORDER + 1);
	clusters_search_again(c, MAX_ORDER);
	us_mutex_lock(&c->lock);
	cl->state = CL_FREE;
	cluster_list_add(c, &c->free, cl);
	atomic_fetch_sub(&c->nr_discarding, 1);
	us_cond_broadcast(&c->discarded);
	us_mutex_unlock(&c->lock);
	us_mutex_unlock(&cl->lock);
	return true;
}

bool cluster_discard_wait(struct clusters *c)
{
	uint32_t n;
	bool woken = false;

	us_mutex_lock(&c->lock);
	n = atomic_load(&c->nr_discarding);
	/* One that ends while another begins wakes us as well. */
	if (n)
		woken = us_cond_timedwait(&c->discarded, &c->lock, WAIT_NS);
	us_mutex_unlock(&c->lock);
	return woken;
}

unsigned int clusters_discard_some(struct clusters *c, unsigned int max)
{
	unsigned int n = 0;

	while (n < max && cluster_discard_one(c))
		n++;
	return n;
}

int clusters_discard_all(struct clusters *c, uint64_t end_ns)
{
	uint64_t touched = (uint64_t)atomic_load(&c->nr_touched) * CLUSTER_SLOTS;
	uint32_t end = (uint32_t)MIN(touched, (uint64_t)atomic_load(&c->nr_slots));
	uint32_t nr_bad = atomic_load(&c->nr_bad), bad = 0, stop;
	int err = 0;

	/* Slot 0 may be a header. */
	for (uint32_t at = 1; c->cfg.discard && at < end && !err; at = stop) {
		if (bad < nr_bad && c->bad[bad] == at) {
			bad++;
			stop = at + 1;
			continue;
		}
		if (clock_now_ns() >= end_ns)
			return -ETIME;
		stop = at + MIN(ALL_SLOTS, end - at);
		if (bad < nr_bad)
			stop = MIN(stop, c->bad[bad]);
		err = c->cfg.ops->discard(c->cfg.host, at, stop - at);
	}
	return err;
}
