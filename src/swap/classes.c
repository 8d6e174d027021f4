/* SPDX-License-Identifier: MIT */
/*
 * Policies, tiers, and classes: what folios of a process may use.
 *
 * An entry holds the number of its class for as long as it lives, so a class is never changed nor
 * forgotten, and movers heed it whenever they come. A tier that is removed and made again keeps its
 * number (tier.h), so classes go on meaning what they said.
 */
#include <errno.h>

#include "swap/internal.h"

static void used(struct swap *s, enum queue_policy policy)
{
	if (policy == POLICY_WEIGHTED)
		atomic_store_explicit(&s->measuring, true, memory_order_relaxed);
}

int swap_set_policy(struct swap *s, enum queue_policy policy)
{
	used(s, policy);
	return queue_set_policy(s->queue, policy);
}

int swap_tier_add(struct swap *s, const struct tier_spec *spec)
{
	used(s, spec->policy);
	return queue_tier_add(s->queue, spec);
}

int swap_tier_change(struct swap *s, const struct tier_spec *spec)
{
	used(s, spec->policy);
	return queue_tier_change(s->queue, spec);
}

int swap_tier_remove(struct swap *s, const char *name)
{
	return queue_tier_remove(s->queue, name);
}

unsigned int swap_tiers(struct swap *s, struct tier *tiers, unsigned int max)
{
	return queue_tiers(s->queue, tiers, max);
}

/* class_lock held. The number of the class, perhaps a new one, or -ENOSPC. */
static int number_of(struct swap *s, const struct swap_class *c)
{
	uint32_t n = atomic_load(&s->nr_classes);

	for (uint32_t i = 0; i < n; i++)
		if (s->class[i].denied == c->denied && s->class[i].policy == c->policy)
			return (int)i;
	if (n == SWAP_MAX_CLASSES)
		return -ENOSPC;
	s->class[n] = *c;
	atomic_store(&s->nr_classes, n + 1);
	return (int)n;
}

int swap_class(struct swap *s, const char *const *names, unsigned int n, enum queue_policy policy)
{
	struct swap_class c = {.policy = policy};
	uint64_t mask = TIERS_ALL;
	int err = 0;

	if (names)
		err = queue_tier_mask(s->queue, names, n, &mask);
	if (!err && policy != POLICY_DEFAULT)
		err = queue_use_policy(s->queue, policy);
	if (err)
		return err;
	used(s, policy);
	c.denied = ~mask;
	us_mutex_lock(&s->class_lock);
	err = number_of(s, &c);
	us_mutex_unlock(&s->class_lock);
	return err;
}
