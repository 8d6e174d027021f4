/* SPDX-License-Identifier: MIT */
/* Who owns a slot, and how a device is emptied: disable it, collect the owners, move them. */
#include "swap/cluster_internal.h"

#include "swap/entry.h"

void clusters_set_owner(struct clusters *c, uint32_t slot, unsigned int order, uint32_t owner)
{
	struct cluster *cl = cluster_of(c, slot);
	unsigned int at = slot % CLUSTER_SLOTS, n = 1u << order;

	us_mutex_lock(&cl->lock);
	if (!cl->owner || cluster_count_range(cl->map, at, n) != n)
		swap_bug("slot %u order %u gets owner %u but is free", slot, order, owner);
	for (unsigned int i = at; i < at + n; i++)
		cl->owner[i] = owner;
	us_mutex_unlock(&cl->lock);
}

/*
 * Clears the flag, then takes each lock that an allocation may hold since before: what it took
 * under that lock is counted, and what looks at the flag later sees it. A cluster that is touched
 * later is so under the lock of the lists, which we take after clearing the flag.
 */
void clusters_disable(struct clusters *c)
{
	uint32_t nr;

	atomic_store(&c->writeok, false);
	us_mutex_lock(&c->lock);
	nr = atomic_load(&c->nr_touched);
	us_mutex_unlock(&c->lock);
#ifdef USWAP_MUTANT_CLUSTER_DRAIN
	nr = 0;
#endif
	for (uint32_t i = 0; i < nr; i++) {
		us_mutex_lock(&c->tab[i].lock);
		us_mutex_unlock(&c->tab[i].lock);
	}
}

void clusters_enable(struct clusters *c)
{
	atomic_store(&c->writeok, true);
	clusters_search_again(c, MAX_ORDER);
}

/* Returns how many owners it wrote to out. *at moves on. Under the lock of cl. */
static unsigned int collect_cluster(struct cluster *cl, unsigned int *at,
				    bool (*claim)(void *host, uint32_t owner), void *host,
				    uint32_t *out, unsigned int max)
{
	unsigned int n = 0, i = *at;

	while (cl->owner && cl->used && i < CLUSTER_SLOTS && n < max) {
		uint32_t owner = cl->owner[i];

		if (owner && claim(host, owner))
			out[n++] = owner;
		/* The rest of its slots there, so that the next call does not name it again. */
		do {
			i++;
		} while (owner && i < CLUSTER_SLOTS && cl->owner[i] == owner);
	}
	*at = n < max ? CLUSTER_SLOTS : i;
	return n;
}

unsigned int clusters_collect(struct clusters *c, uint32_t *cursor,
			      bool (*claim)(void *host, uint32_t owner), void *host, uint32_t *out,
			      unsigned int max)
{
	uint32_t size = atomic_load(&c->nr_slots), i = *cursor / CLUSTER_SLOTS;
	unsigned int at = *cursor % CLUSTER_SLOTS, n = 0;
	uint64_t next = *cursor;

	while (n < max && next < size && i < atomic_load(&c->nr_touched)) {
		struct cluster *cl = &c->tab[i];

		us_mutex_lock(&cl->lock);
		n += collect_cluster(cl, &at, claim, host, out + n, max - n);
		us_mutex_unlock(&cl->lock);
		next = (uint64_t)i * CLUSTER_SLOTS + at;
		i = (uint32_t)(next / CLUSTER_SLOTS);
		at = (unsigned int)(next % CLUSTER_SLOTS);
	}
	if (n < max || next > size)
		next = size;
	*cursor = (uint32_t)next;
	return n;
}

void clusters_each_owner(struct clusters *c, void (*see)(void *host, uint32_t owner, uint32_t nr),
			 void *host)
{
	uint32_t nr_touched = atomic_load(&c->nr_touched);

	for (uint32_t i = 0; i < nr_touched; i++) {
		struct cluster *cl = &c->tab[i];

		us_mutex_lock(&cl->lock);
		for (unsigned int at = 0, n; cl->owner && cl->used && at < CLUSTER_SLOTS; at += n) {
			uint32_t owner = cl->owner[at];

			for (n = 1; at + n < CLUSTER_SLOTS && cl->owner[at + n] == owner; n++)
				;
			if (owner)
				see(host, owner, n);
		}
		us_mutex_unlock(&cl->lock);
	}
}
