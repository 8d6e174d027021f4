/* SPDX-License-Identifier: MIT */
/*
 * Slots whose content is cached too: where space is short the host may let go of them.
 *
 * The host is called with no lock, since it needs its own, which come before ours, and frees
 * through clusters_free(). So nothing that was seen before is relied on afterwards: the state of
 * the cluster, its order, its slots and owners are looked at as if for the first time; an owner
 * that was named to the host may be another one's number by now, which the host finds out.
 *
 * Bounded: an allocation tries two runs and one full cluster; a pass visits used/512 full clusters,
 * and each goes to the tail of its list, so it ends also where the host can free nothing.
 */
#include "swap/cluster_internal.h"

struct victims {
	unsigned int nr;
	uint32_t slot[CLUSTER_SLOTS], owner[CLUSTER_SLOTS];
};

/*
 * The owners of the n slots from at on. False: some of them are used and not cached (`all`), or
 * none is. Under the lock of cl.
 */
static bool find_victims(struct clusters *c, struct cluster *cl, unsigned int at, unsigned int n,
			 bool all, struct victims *v)
{
	uint32_t last = 0;

	v->nr = 0;
	if (!cl->owner)
		return false;
	for (unsigned int i = at; i < at + n; i++) {
		uint32_t owner = cl->owner[i];

		if (!cluster_bit(cl->map, i) || (owner && owner == last))
			continue;
		if (owner && c->cfg.ops->is_cached(c->cfg.host, owner)) {
			v->slot[v->nr] = cluster_first(c, cl) + i;
			v->owner[v->nr++] = owner;
		} else if (all) {
			return false;
		}
		last = owner;
	}
	return v->nr;
}

/* Returns how many the host freed. */
static unsigned int reclaim(struct clusters *c, const struct victims *v)
{
	unsigned int freed = 0;

	for (unsigned int i = 0; i < v->nr; i++)
		freed += c->cfg.ops->reclaim(c->cfg.host, v->slot[i], v->owner[i]);
	return freed;
}

uint32_t cluster_reclaim_run(struct clusters *c, struct scan *s, struct cluster *cl)
{
	unsigned int n = 1u << s->order, at = 0;
	struct victims v;

	while (at < CLUSTER_SLOTS && !find_victims(c, cl, at, n, true, &v))
		at += n;
	if (at == CLUSTER_SLOTS)
		return 0;
	s->reclaim_tries--;
	us_mutex_unlock(&cl->lock);
	us_mutex_unlock(&s->cpu->lock);
	reclaim(c, &v);
	us_mutex_lock(&s->cpu->lock);
	us_mutex_lock(&cl->lock);
	/* It may have been emptied, and discarded, or taken by another order. */
	return cluster_is_usable(cl, s->order) ? cluster_take(c, s, cl, at) : 0;
}

unsigned int cluster_reclaim_full(struct clusters *c, uint32_t max)
{
	unsigned int freed = 0;
	struct cluster *cl;
	struct victims v;

	while (max-- && (cl = cluster_isolate(c, &c->full))) {
		bool some = find_victims(c, cl, 0, CLUSTER_SLOTS, false, &v);

		if (some) {
			us_mutex_unlock(&cl->lock);
			freed += reclaim(c, &v);
			us_mutex_lock(&cl->lock);
		}
		/* Still isolated: nothing was freed in it, so to the tail. */
		if (cl->state == CL_NONE)
			cluster_settle(c, cl);
		us_mutex_unlock(&cl->lock);
	}
	return freed;
}

unsigned int clusters_reclaim_full(struct clusters *c)
{
	if (!c->cfg.ops || !c->cfg.ops->reclaim || !c->cfg.ops->is_cached || !clusters_half_full(c))
		return 0;
	return cluster_reclaim_full(c, clusters_used(c) / CLUSTER_SLOTS);
}
