/* SPDX-License-Identifier: MIT */
/*
 * A window: an aligned run of slots that somebody clears by moving its owners elsewhere, so that
 * a large folio finds room although no run of its order is free.
 *
 * What is free in it at the beginning, and what is freed in it later, is *kept*: set in the
 * cluster's map, so that no allocation takes it, but neither used nor owned. At the end either all
 * of it is kept, and becomes used as the result; or the kept slots become free. So a slot is in
 * exactly one of the states free, used, kept, masked, and each change is one step under the
 * cluster's lock; the owners' content is the mover's affair.
 */
#include "swap/cluster_internal.h"

#include <string.h>

#include "swap/entry.h"

/*
 * So many clusters are looked at, from where the last call ended: at most some 100 us, each with
 * its own lock only. A device of 128 MiB is looked at whole.
 */
#define WINDOW_CLUSTERS 64
/* Moving one more owner costs as much as so many slots more: a lookup and an io of its own. */
#define OWNER_COST 2

struct candidate {
	uint32_t number;
	unsigned int at, cost;
};

/* ---- choice ---- */

/*
 * What clearing the n slots from at on costs; UINT32_MAX: it cannot be done. A run that reaches
 * beyond the n slots is aligned to more than n, so it has their buddy as well. (So may the pieces
 * of one folio that was split: passed over as well, which costs a choice, nothing else.)
 */
static unsigned int cost_of(const struct cluster *cl, unsigned int at, unsigned int n,
			    unsigned int max_owners)
{
	unsigned int used = cluster_count_range(cl->map, at, n), owners = 0;
	uint32_t last = 0;

	if (!used)
		return 0;
	if (!cl->owner)
		return UINT32_MAX;
	if (n < CLUSTER_SLOTS && cl->owner[at] && cl->owner[at] == cl->owner[at ^ n])
		return UINT32_MAX;
	for (unsigned int i = at; i < at + n; i++) {
		if (!cluster_bit(cl->map, i))
			continue;
		if (!cl->owner[i])
			return UINT32_MAX;
		owners += cl->owner[i] != last;
		last = cl->owner[i];
	}
	/* One that fills it would need such a run itself. */
	if (owners > max_owners || (owners == 1 && used == n))
		return UINT32_MAX;
	return used + OWNER_COST * owners;
}

static void choose_in(struct clusters *c, uint32_t number, unsigned int n, unsigned int max_owners,
		      struct candidate *best)
{
	struct cluster *cl = &c->tab[number];

	us_mutex_lock(&cl->lock);
	for (unsigned int at = 0; at < CLUSTER_SLOTS && cl->state != CL_DISCARD; at += n) {
		unsigned int cost = cost_of(cl, at, n, max_owners);

		if (cost < best->cost)
			*best = (struct candidate){number, at, cost};
	}
	us_mutex_unlock(&cl->lock);
}

static bool choose(struct clusters *c, unsigned int n, unsigned int max_owners,
		   struct candidate *best)
{
	uint32_t nr = atomic_load(&c->nr_touched);
	uint32_t hand = atomic_load_explicit(&c->window_hand, memory_order_relaxed);

	*best = (struct candidate){.cost = UINT32_MAX};
	for (uint32_t k = 0; k < MIN(nr, (uint32_t)WINDOW_CLUSTERS); k++) {
		hand = hand < nr ? hand : 0;
		choose_in(c, hand++, n, max_owners, best);
		/* It does not get cheaper than one owner of one slot. */
		if (best->cost <= 1 + OWNER_COST)
			break;
	}
	atomic_store_explicit(&c->window_hand, hand, memory_order_relaxed);
	return best->cost != UINT32_MAX;
}

/* ---- opening ---- */

static void add_owner(struct clusters_window *w, uint32_t owner)
{
	for (unsigned int i = 0; i < w->nr; i++)
		if (w->owner[i] == owner)
			return;
	w->owner[w->nr++] = owner;
}

/* Under the lock of cl, with busy set by the caller. */
static void keep_free_slots(struct clusters *c, struct cluster *cl, unsigned int at, unsigned int n,
			    struct clusters_window *w)
{
	unsigned int kept = n - cluster_count_range(cl->map, at, n);

	memset(c->window.kept, 0, sizeof(c->window.kept));
	for (unsigned int i = at; i < at + n; i++) {
		if (cluster_bit(cl->map, i)) {
			add_owner(w, cl->owner[i]);
			continue;
		}
		cluster_set_range(c->window.kept, i, 1, true);
		cluster_set_range(cl->map, i, 1, true);
	}
	atomic_store(&c->window.cluster, cluster_number(c, cl));
	c->window.at = at;
	c->window.nr = n;
	cl->kept = (uint16_t)kept;
	atomic_fetch_add(&c->reserved, kept);
	atomic_fetch_add(&c->usage, 1ull << 32);
}

/* The candidate, if it is still one. */
static bool open_at(struct clusters *c, const struct candidate *best, unsigned int max_owners,
		    struct clusters_window *w)
{
	struct cluster *cl = &c->tab[best->number];
	unsigned int n = 1u << w->order;
	uint32_t used, usable;
	bool ok;

	us_mutex_lock(&cl->lock);
	used = clusters_used(c);
	usable = clusters_usable(c);
	/* What is used in it must find as many free slots outside of it. */
	ok = atomic_load(&c->writeok) && cl->state != CL_DISCARD && used <= usable &&
	     usable - used >= n && cost_of(cl, best->at, n, max_owners) != UINT32_MAX;
	if (ok && !cl->owner)
		ok = (cl->owner = mem_pool_alloc(&c->tables)) != NULL;
	if (ok) {
		if (cluster_is_empty(cl))
			cluster_set_order(c, cl, w->order);
		keep_free_slots(c, cl, best->at, n, w);
		w->slot = cluster_first(c, cl) + best->at;
		cluster_settle(c, cl);
	}
	us_mutex_unlock(&cl->lock);
	return ok;
}

bool clusters_window_open(struct clusters *c, unsigned int order, unsigned int max_owners,
			  struct clusters_window *w)
{
	struct candidate best;

	if (order > MAX_ORDER || !atomic_load(&c->writeok) ||
	    atomic_exchange(&c->window.busy, true))
		return false;
	w->order = order;
	w->nr = 0;
	if (choose(c, 1u << order, max_owners, &best) && open_at(c, &best, max_owners, w))
		return true;
	atomic_store(&c->window.busy, false);
	return false;
}

/* ---- while it is open, and its end ---- */

unsigned int cluster_window_keep(struct clusters *c, struct cluster *cl, unsigned int at,
				 unsigned int n)
{
	unsigned int from = MAX(at, c->window.at), to = MIN(at + n, c->window.at + c->window.nr);

	if (from >= to)
		return 0;
	cluster_set_range(c->window.kept, from, to - from, true);
	cl->kept = (uint16_t)(cl->kept + to - from);
	atomic_fetch_add(&c->reserved, to - from);
	return to - from;
}

/* Cleared: used by the caller from here on. */
static void take_window(struct clusters *c, struct cluster *cl, unsigned int order)
{
	/* Nothing else was ever in it. */
	if (!cl->used && !cl->masked)
		cluster_set_order(c, cl, order);
	cluster_count_used(c, cl, 1u << order);
	cluster_settle(c, cl);
}

static void free_kept(struct clusters *c, struct cluster *cl)
{
	for (unsigned int w = 0; w < CLUSTER_WORDS; w++)
		cl->map[w] &= ~c->window.kept[w];
	cluster_set_room(c, cl, cluster_largest(cl->map));
	clusters_search_again(c, MAX_ORDER);
	cluster_settle_freed(c, cl);
}

uint32_t clusters_window_close(struct clusters *c, struct clusters_window *w)
{
	struct cluster *cl = cluster_of(c, w->slot);
	unsigned int kept;
	uint32_t slot = 0;

	us_mutex_lock(&cl->lock);
	if (!cluster_has_window(c, cl) || c->window.at != w->slot % CLUSTER_SLOTS)
		swap_bug("slot %u: a window is closed that is not open", w->slot);
	kept = cl->kept;
	cl->kept = 0;
	atomic_store(&c->window.cluster, NO_WINDOW);
	atomic_fetch_sub(&c->reserved, kept);
	/* As for an allocation: looked at under the lock. */
	if (kept == c->window.nr && atomic_load(&c->writeok)) {
		slot = w->slot;
		take_window(c, cl, w->order);
	} else {
		free_kept(c, cl);
	}
	memset(c->window.kept, 0, sizeof(c->window.kept));
	atomic_fetch_add(&c->usage, 1ull << 32);
	atomic_store(&c->window.busy, false);
	us_mutex_unlock(&cl->lock);
	return slot;
}
