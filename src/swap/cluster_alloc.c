/* SPDX-License-Identifier: MIT */
/*
 * The search for a free run.
 *
 * First the lists, in the order that docs/cluster-states.md gives reasons for; they only ever try
 * a cluster's lock, so they can miss a run while others hold it. Therefore, before a run is
 * refused, sweep() goes over all clusters by number and waits for each lock. It looks at room[]
 * first, which says what a cluster can have at best, so it only visits clusters that may have a
 * run, and each visit in vain lowers that bound.
 *
 * A sweep that found nothing is remembered in `search`, so that calls on a crowded device do not
 * sweep each time. It must not be remembered if a run came free behind the sweep:
 *   sweep                                free
 *   searchers++                          map, room[] (a cluster's lock is held)
 *   s = search                           if (searchers || failed bits in search)
 *   look at room[], map of each              search = changed, these bits cleared
 *   if search is still s: set the bit
 * All of these are sequentially consistent. Either the sweep sees the free slots; or the free came
 * later than the sweep looked, so it sees `searchers`, or the bit, and changes `search` behind s.
 * A bound in room[] that is too low does not exist: it is lowered under the cluster's lock only.
 */
#include "swap/cluster_internal.h"

#include "base/thread.h"

#define SEARCH_TRIES 4 /* sweeps in vain while others free */
#define ALLOC_TRIES 8
#define RECLAIM_TRIES 2 /* runs that an allocation lets the host free while it scans */

#define EVERY_BYTE 0x0101010101010101ull

/* ---- one cluster ---- */

uint32_t cluster_take(struct clusters *c, struct scan *s, struct cluster *cl, unsigned int from)
{
	unsigned int n = 1u << s->order;
	int at;

	/* Looked at under the lock of the cluster: clusters_disable() takes each once. */
	if (!atomic_load(&c->writeok)) {
		s->disabled = true;
		return 0;
	}
	at = cluster_find_run(cl->map, s->order, from);
	if (at < 0) {
		if (cluster_room(c, cluster_number(c, cl)) > s->order)
			cluster_set_room(c, cl, s->order);
		return 0;
	}
	if (!cl->owner)
		cl->owner = mem_pool_alloc(&c->tables);
	if (!cl->owner) {
		s->no_table = true;
		return 0;
	}
	if (cluster_is_empty(cl))
		cluster_set_order(c, cl, s->order);
	cluster_set_range(cl->map, (unsigned int)at, n, true);
	cluster_count_used(c, cl, n);
	return cluster_first(c, cl) + (uint32_t)at;
}

/* cl is locked, and unlocked at the end. */
static uint32_t scan_cluster(struct clusters *c, struct scan *s, struct cluster *cl,
			     unsigned int from)
{
	uint32_t slot = cluster_take(c, s, cl, from);

	if (!slot && s->reclaim_tries && !s->disabled && !s->no_table && clusters_half_full(c))
		slot = cluster_reclaim_run(c, s, cl);
	cluster_settle(c, cl);
	us_mutex_unlock(&cl->lock);
	return slot;
}

/* ---- the lists ---- */

static uint32_t from_here(struct clusters *c, struct scan *s)
{
	uint32_t next = s->cpu->next[s->order];
	struct cluster *cl = cluster_of(c, next);

	if (!next)
		return 0;
	us_mutex_lock(&cl->lock);
	if (cluster_is_usable(cl, s->order))
		return scan_cluster(c, s, cl, cluster_is_empty(cl) ? 0 : next % CLUSTER_SLOTS);
	us_mutex_unlock(&cl->lock);
	return 0;
}

/* At most nr clusters of a list. Each goes to another list, or to the tail of this one. */
static uint32_t from_list(struct clusters *c, struct scan *s, struct cluster_list *l, uint32_t nr)
{
	struct cluster *cl;
	uint32_t slot = 0;

	while (!slot && nr-- && !s->disabled) {
		cl = cluster_isolate(c, l);
		if (!cl)
			break;
		slot = scan_cluster(c, s, cl, 0);
	}
	return slot;
}

static uint32_t from_free(struct clusters *c, struct scan *s)
{
	struct cluster *cl;

	while (!(cl = cluster_isolate(c, &c->free))) {
		if (!cluster_touch(c))
			return 0;
		/* The first and the last one, and those with bad slots. */
		if (s->order == 0) {
			cl = cluster_isolate(c, &c->nonfull[0]);
			if (cl)
				break;
		}
	}
	return scan_cluster(c, s, cl, 0);
}

/* For order 0 anything will do, so take from where larger runs are rather gone already. */
static uint32_t steal_slot(struct clusters *c, struct scan *s)
{
	uint32_t slot = 0, nr = atomic_load(&c->nr_touched);

	for (unsigned int o = 1; o <= MAX_ORDER && !slot; o++)
		slot = from_list(c, s, &c->frag[o], nr);
	for (unsigned int o = 1; o <= MAX_ORDER && !slot; o++)
		slot = from_list(c, s, &c->nonfull[o], nr);
	return slot;
}

/* ---- all clusters ---- */

uint64_t cluster_rooms(uint64_t room, unsigned int order, bool exact)
{
	uint64_t above = (room + (127 - order) * EVERY_BYTE) & 0x80 * EVERY_BYTE;
	uint64_t more = (room + (126 - order) * EVERY_BYTE) & 0x80 * EVERY_BYTE;

	return exact ? above & ~more : above;
}

static uint32_t visit(struct clusters *c, struct scan *s, uint32_t number)
{
	struct cluster *cl = &c->tab[number];
	uint32_t slot = 0;

	us_mutex_lock(&cl->lock);
	if (cl->state != CL_DISCARD)
		slot = cluster_take(c, s, cl, 0);
	if (slot)
		cluster_settle(c, cl);
	us_mutex_unlock(&cl->lock);
	return slot;
}

/* First clusters that have nothing larger, then any. */
static uint32_t sweep(struct clusters *c, struct scan *s)
{
	uint32_t nr = (atomic_load(&c->nr_touched) + 7) / 8;
	uint32_t hand = atomic_load_explicit(&c->hand, memory_order_relaxed);

	for (int exact = 1; exact >= 0; exact--) {
		for (uint32_t k = 0; k < nr; k++) {
			uint32_t w = (uint32_t)(((uint64_t)hand + k) % nr), slot;
			uint64_t found = cluster_rooms(atomic_load(&c->room[w]), s->order, exact);

			for (; found; found &= found - 1) {
				slot = visit(c, s, w * 8 + (uint32_t)__builtin_ctzll(found) / 8);
				if (!slot && !s->disabled)
					continue;
				atomic_store_explicit(&c->hand, w, memory_order_relaxed);
				return slot;
			}
		}
	}
	return 0;
}

static uint32_t search_all(struct clusters *c, struct scan *s)
{
	uint32_t slot = 0;

	atomic_fetch_add(&c->searchers, 1);
	for (int i = 0; i < SEARCH_TRIES; i++) {
		uint64_t seen = atomic_load(&c->search), old = seen;

		slot = sweep(c, s);
		if (slot || s->disabled || s->no_table)
			break;
		while (old / SEARCH_CHANGE == seen / SEARCH_CHANGE &&
		       !atomic_compare_exchange_weak(&c->search, &old, old | 1ull << s->order))
			;
		if (old / SEARCH_CHANGE == seen / SEARCH_CHANGE)
			break;
	}
	atomic_fetch_sub(&c->searchers, 1);
	return slot;
}

/* ---- the whole ---- */

/* What could turn a search in vain into a success; each at most once an allocation. */
static bool discard_and_retry(struct clusters *c, struct scan *s)
{
	if (s->discarded || !atomic_load(&c->nr_discard))
		return false;
	s->discarded = true;
	us_mutex_unlock(&s->cpu->lock);
	cluster_discard_one(c);
	us_mutex_lock(&s->cpu->lock);
	return true;
}

static bool reclaim_and_retry(struct clusters *c, struct scan *s)
{
	bool some;

	if (s->reclaimed_full || !c->cfg.ops || !c->cfg.ops->reclaim || !clusters_half_full(c))
		return false;
	s->reclaimed_full = true;
	us_mutex_unlock(&s->cpu->lock);
	some = cluster_reclaim_full(c, 1);
	us_mutex_lock(&s->cpu->lock);
	return some;
}

static bool wait_and_retry(struct clusters *c, struct scan *s)
{
	bool some;

	if (s->waited || !atomic_load(&c->nr_discarding))
		return false;
	s->waited = true;
	us_mutex_unlock(&s->cpu->lock);
	some = cluster_discard_wait(c);
	us_mutex_lock(&s->cpu->lock);
	return some;
}

/* Sets *again if the search should begin anew. */
static uint32_t search_once(struct clusters *c, struct scan *s, bool *again)
{
	bool refused = clusters_is_refused(c, s->order);
	uint32_t slot = 0, nr = atomic_load(&c->nr_touched);

	if (c->cfg.discard && !refused)
		slot = from_free(c, s);
	if (c->cfg.discard && !slot && !s->disabled && discard_and_retry(c, s)) {
		*again = true;
		return 0;
	}
	/* A cluster of the largest order with room is an empty one. */
	if (!slot && !refused && s->order < MAX_ORDER)
		slot = from_list(c, s, &c->nonfull[s->order], nr);
	if (!slot && !refused && !c->cfg.discard && !s->disabled)
		slot = from_free(c, s);
	if (slot || s->disabled)
		return slot;
	if (reclaim_and_retry(c, s)) {
		*again = true;
		return 0;
	}
	if (refused)
		return 0;
	if (s->order < MAX_ORDER)
		slot = from_list(c, s, &c->frag[s->order], 1);
	if (!slot && s->order == 0)
		slot = steal_slot(c, s);
	if (!slot && !s->disabled)
		slot = search_all(c, s);
	return slot;
}

/* Under the lock of s->cpu, but for calls of the host. */
static uint32_t search(struct clusters *c, struct scan *s)
{
	for (int tries = 0; tries < ALLOC_TRIES; tries++) {
		bool again = false;
		uint32_t slot;

		s->no_table = false;
		slot = from_here(c, s);
		if (!slot && !s->disabled)
			slot = search_once(c, s, &again);
		if (slot || s->disabled)
			return slot;
		if (again)
			continue;
		if (s->no_table)
			return 0;
		/* Not refused: something came free while we looked elsewhere. */
		if (clusters_is_refused(c, s->order) && !wait_and_retry(c, s) &&
		    clusters_is_refused(c, s->order))
			return 0;
	}
	return 0;
}

/*
 * A thread that is moved to another CPU on the way goes on with the one that it began with: the
 * lock is what excludes others, the number only spreads them.
 */
uint32_t clusters_alloc(struct clusters *c, unsigned int order)
{
	struct scan s = {.order = order, .cpu = &c->cpus[us_this_cpu() % c->nr_cpus]};
	uint32_t slot, next;

	if (c->cfg.ops && c->cfg.ops->reclaim && c->cfg.ops->is_cached)
		s.reclaim_tries = RECLAIM_TRIES;
	us_mutex_lock(&s.cpu->lock);
	slot = search(c, &s);
	if (slot) {
		/* At the end of the cluster: from its beginning, where something may come free. */
		next = slot % CLUSTER_SLOTS + (1u << order);
		s.cpu->next[order] = slot - slot % CLUSTER_SLOTS + next % CLUSTER_SLOTS;
	}
	us_mutex_unlock(&s.cpu->lock);
	return slot;
}
