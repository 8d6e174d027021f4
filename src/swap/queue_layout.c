/* SPDX-License-Identifier: MIT */
/*
 * The writers' side: devices, tiers and policies come and go by a new layout that replaces the old.
 *
 * Two layouts take turns. A writer builds the one that nobody reads, since the last writer has
 * waited for its readers, publishes it and waits for the readers of the other. All with writer_lock
 * held, so there is never a third.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "swap/entry.h"
#include "swap/queue_internal.h"

LOCK_CLASS(queue_list_class, "swap_queue_list", RANK_CACHE - 1);

/* ---- rings ---- */

static struct queue_ring *ring_get(struct queue *q, enum queue_policy policy, unsigned int tier,
				   int key, uint64_t serial)
{
	unsigned int nr = atomic_load(&q->nr_rings);
	struct queue_ring *unused = NULL;

	for (unsigned int i = 0; i < nr; i++) {
		struct queue_ring *r = &q->rings[i];

		if (!r->used) {
			unused = unused ? unused : r;
		} else if (r->policy == policy && r->tier == tier && r->key == key) {
			r->serial = serial;
			return r;
		}
	}
	/* Two layouts, each with at most one ring a device in each view, fill MAX_RINGS exactly. */
	if (!unused && nr == MAX_RINGS)
		swap_bug("no ring is left");
	if (!unused) {
		unused = &q->rings[nr];
		unused->index = nr;
		us_mutex_init(&unused->list_lock, &queue_list_class);
		atomic_store(&q->nr_rings, nr + 1);
	}
	unused->policy = policy;
	unused->tier = tier;
	unused->key = key;
	unused->serial = serial;
	unused->used = true;
	if (policy_ops(policy)->scope == SCOPE_LIST) {
		if (!unused->listed)
			atomic_fetch_add(&q->nr_lists, 1);
		unused->listed = true;
		plist_clear(q, unused);
	}
	return unused;
}

/* Gives back the rings that no layout has any more; nobody is in one. */
static void rings_release(struct queue *q, uint64_t serial)
{
	for (unsigned int i = 0; i < atomic_load(&q->nr_rings); i++) {
		struct queue_ring *r = &q->rings[i];

		if (!r->used || r->serial == serial)
			continue;
		for (unsigned int cpu = 0; cpu < q->cfg.nr_cpus; cpu++)
			if (atomic_load_explicit(queue_word(q, cpu, r), memory_order_relaxed))
				atomic_store_explicit(queue_word(q, cpu, r), 0,
						      memory_order_relaxed);
		atomic_store(&r->tickets, 0);
		if (policy_ops(r->policy)->scope == SCOPE_LIST)
			plist_clear(q, r);
		r->used = false;
	}
}

/* ---- building ---- */

static bool goes_before(const struct queue_dev *a, const struct queue_dev *b)
{
	return a->prio != b->prio ? a->prio > b->prio : a->serial < b->serial;
}

static void sort_devices(struct queue *q, struct queue_layout *l)
{
	l->nr = 0;
	memset(l->position, NO_POSITION, sizeof(l->position));
	memset(l->on_node, 0, sizeof(l->on_node));
	for (unsigned int d = 0; d < QUEUE_MAX_DEVS; d++) {
		unsigned int at = l->nr;

		if (!q->present[d])
			continue;
		for (; at && goes_before(&q->devs[d], &q->devs[l->number[at - 1]]); at--)
			l->number[at] = l->number[at - 1];
		l->number[at] = (uint8_t)d;
		l->nr++;
	}
	for (unsigned int p = 0; p < l->nr; p++) {
		struct queue_dev *d = &q->devs[l->number[p]];
		const struct tier *t = tier_of_prio(&q->tiers, d->prio);

		l->position[l->number[p]] = (uint8_t)p;
		l->owner[p] = d->dev;
		l->tier[p] = (uint8_t)(t ? t->id : TIER_UNNAMED);
		if (d->node >= 0)
			l->on_node[d->node] |= 1ull << p;
	}
}

static enum queue_policy policy_at(struct queue *q, const struct queue_layout *l, unsigned int pos,
				   enum queue_policy view)
{
	const struct tier *t = tier_of_prio(&q->tiers, q->devs[l->number[pos]].prio);

	return t && t->spec.policy != POLICY_DEFAULT ? t->spec.policy : view;
}

/* Does the device at pos belong to the group of the one before it? */
static bool joins(struct queue *q, const struct queue_layout *l, unsigned int pos,
		  enum queue_scope scope)
{
	bool same_prio = q->devs[l->number[pos]].prio == q->devs[l->number[pos - 1]].prio;
	bool same_tier = l->tier[pos] == l->tier[pos - 1];

	if (scope == SCOPE_PRIO || (scope == SCOPE_BAND && l->tier[pos] == TIER_UNNAMED))
		return same_prio;
	return same_tier;
}

static int ring_key(const struct queue *q, const struct queue_layout *l, unsigned int first,
		    enum queue_scope scope, int *run)
{
	if (scope == SCOPE_PRIO || (scope == SCOPE_BAND && l->tier[first] == TIER_UNNAMED))
		return q->devs[l->number[first]].prio;
	/* Unnamed devices above and below a tier are two lists. */
	return l->tier[first] == TIER_UNNAMED ? (*run)++ : 0;
}

static void build_view(struct queue *q, struct queue_layout *l, enum queue_policy view)
{
	struct queue_view *v = &l->view[view];
	unsigned int level = 0;
	int run = 0;

	v->nr_groups = 0;
	for (unsigned int first = 0, end; first < l->nr; first = end) {
		enum queue_policy policy = policy_at(q, l, first, view);
		const struct queue_policy_ops *ops = policy_ops(policy);
		struct queue_group *g = &v->group[v->nr_groups];
		int key = ring_key(q, l, first, ops->scope, &run);

		*g = (struct queue_group){.ops = ops, .first = (uint8_t)first,
					  .tier = l->tier[first]};
		for (end = first; end < l->nr; end++) {
			if (end > first && !joins(q, l, end, ops->scope))
				break;
			if (end > first && ops->scope == SCOPE_LIST &&
			    q->devs[l->number[end]].prio != q->devs[l->number[end - 1]].prio)
				level++;
			v->group_of[end] = (uint8_t)v->nr_groups;
			v->level[end] = (uint8_t)level;
			g->mask |= 1ull << end;
			g->nr++;
		}
		for (unsigned int p = first; p < end; p++)
			l->mates[p] |= ops->skip_if_alone ? g->mask & ~(1ull << p) : UINT64_MAX;
		g->ring = ring_get(q, policy, g->tier, key, l->serial);
		if (ops->sync)
			ops->sync(q, g->ring, &l->number[first], g->nr);
		v->nr_groups++;
		level++;
	}
}

void queue_publish(struct queue *q)
{
	struct queue_layout *old = atomic_load(&q->current);
	struct queue_layout *l = old == &q->layouts[0] ? &q->layouts[1] : &q->layouts[0];
	uint64_t open = 0;

	l->serial = ++q->last_serial;
	sort_devices(q, l);
	memset(l->mates, 0, sizeof(l->mates));
	for (unsigned int p = POLICY_QUEUE; p < NR_POLICIES; p++)
		if (q->views & 1u << p)
			build_view(q, l, (enum queue_policy)p);
	for (unsigned int p = 0; p < NR_POLICIES; p++)
		l->view_of[p] = (uint8_t)(q->views & 1u << p ? p : q->policy);

	/* With the lock, so that nothing is opened or closed in the old one only. */
	us_mutex_lock(&q->tag_lock);
	for (unsigned int p = 0; p < l->nr; p++)
		if (!atomic_load(&q->devs[l->number[p]].closed))
			open |= 1ull << p;
	atomic_store(&l->open, open);
	atomic_store(&q->current, l);
	us_mutex_unlock(&q->tag_lock);
#ifndef USWAP_MUTANT_QUEUE_GRACE
	us_read_wait();
#endif
	rings_release(q, l->serial);
}

/* ---- devices ---- */

static bool config_ok(const struct queue_dev_config *cfg)
{
	return cfg->prio >= SWAP_PRIO_MIN && cfg->prio <= SWAP_PRIO_MAX &&
	       cfg->weight <= QUEUE_MAX_WEIGHT && cfg->node < (int)QUEUE_MAX_NODES &&
	       cfg->turn_pages <= QUEUE_QUOTA_PAGES;
}

int queue_add(struct queue *q, unsigned int dev, const struct queue_dev_config *cfg)
{
	struct queue_dev *d = &q->devs[dev];

	if (dev >= QUEUE_MAX_DEVS || !config_ok(cfg))
		return -EINVAL;
	us_mutex_lock(&q->writer_lock);
	if (q->present[dev]) {
		us_mutex_unlock(&q->writer_lock);
		return -EEXIST;
	}
	/* No layout has the number, so nobody reads these. */
	d->dev = cfg->dev;
	d->prio = cfg->prio;
	d->node = cfg->node;
	d->turn_pages = cfg->turn_pages ? cfg->turn_pages : QUEUE_QUOTA_PAGES;
	d->serial = ++q->last_serial;
	atomic_store(&d->closed, 0);
	atomic_store(&d->weight, cfg->weight);
	atomic_store(&d->speed, 0);
	q->present[dev] = true;
	queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	return 0;
}

/* Sets or clears QUEUE_OFF in the current layout. Under writer_lock. */
static void mark_off(struct queue *q, unsigned int dev, bool off)
{
	struct queue_layout *l;
	uint64_t bit;
	uint32_t closed;

	us_mutex_lock(&q->tag_lock);
	l = atomic_load(&q->current);
	bit = 1ull << l->position[dev];
	closed = atomic_load(&q->devs[dev].closed);
	closed = off ? closed | QUEUE_OFF : closed & ~QUEUE_OFF;
	atomic_store(&q->devs[dev].closed, closed);
	if (closed)
		atomic_fetch_and(&l->open, ~bit);
	else
		atomic_fetch_or(&l->open, bit);
	us_mutex_unlock(&q->tag_lock);
}

static int set_off(struct queue *q, unsigned int dev, bool off)
{
	int err = -ENOENT;

	us_mutex_lock(&q->writer_lock);
	if (dev < QUEUE_MAX_DEVS && q->present[dev]) {
		mark_off(q, dev, off);
		err = 0;
	}
	us_mutex_unlock(&q->writer_lock);
	return err;
}

int queue_off(struct queue *q, unsigned int dev)
{
	int err = set_off(q, dev, true);

#ifndef USWAP_MUTANT_QUEUE_DRAIN
	/* Walks that found it open may be inside its allocator. */
	if (!err)
		us_read_wait();
#endif
	return err;
}

int queue_on(struct queue *q, unsigned int dev)
{
	return set_off(q, dev, false);
}

int queue_remove(struct queue *q, unsigned int dev)
{
	int err = 0;

	us_mutex_lock(&q->writer_lock);
	if (dev >= QUEUE_MAX_DEVS || !q->present[dev])
		err = -ENOENT;
	else if (!(atomic_load(&q->devs[dev].closed) & QUEUE_OFF))
		err = -EBUSY;
	if (!err) {
		q->present[dev] = false;
		queue_publish(q);
	}
	us_mutex_unlock(&q->writer_lock);
	return err;
}

int queue_set_weight(struct queue *q, unsigned int dev, unsigned int weight)
{
	int err = 0;

	if (weight > QUEUE_MAX_WEIGHT)
		return -EINVAL;
	us_mutex_lock(&q->writer_lock);
	if (dev < QUEUE_MAX_DEVS && q->present[dev])
		atomic_store(&q->devs[dev].weight, weight);
	else
		err = -ENOENT;
	us_mutex_unlock(&q->writer_lock);
	return err;
}

/* ---- policies and tiers ---- */

static bool is_policy(enum queue_policy policy)
{
	return policy > POLICY_DEFAULT && policy < NR_POLICIES;
}

int queue_set_policy(struct queue *q, enum queue_policy policy)
{
	if (!is_policy(policy))
		return -EINVAL;
	us_mutex_lock(&q->writer_lock);
	q->policy = policy;
	q->views |= 1u << policy;
	queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	return 0;
}

int queue_use_policy(struct queue *q, enum queue_policy policy)
{
	if (!is_policy(policy))
		return -EINVAL;
	us_mutex_lock(&q->writer_lock);
	if (!(q->views & 1u << policy)) {
		q->views |= 1u << policy;
		queue_publish(q);
	}
	us_mutex_unlock(&q->writer_lock);
	return 0;
}

int queue_tier_add(struct queue *q, const struct tier_spec *spec)
{
	int err;

	us_mutex_lock(&q->writer_lock);
	err = tier_add(&q->tiers, spec);
	if (!err)
		queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	return err;
}

int queue_tier_change(struct queue *q, const struct tier_spec *spec)
{
	int err;

	us_mutex_lock(&q->writer_lock);
	err = tier_change(&q->tiers, spec);
	if (!err)
		queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	return err;
}

int queue_tier_remove(struct queue *q, const char *name)
{
	int err;

	us_mutex_lock(&q->writer_lock);
	err = tier_remove(&q->tiers, name);
	if (!err)
		queue_publish(q);
	us_mutex_unlock(&q->writer_lock);
	return err;
}

int queue_tier_mask(struct queue *q, const char *const *names, unsigned int n, uint64_t *mask)
{
	int err;

	us_mutex_lock(&q->writer_lock);
	err = tier_mask(&q->tiers, names, n, mask);
	us_mutex_unlock(&q->writer_lock);
	return err;
}

unsigned int queue_tiers(struct queue *q, struct tier *tiers, unsigned int max)
{
	unsigned int n;

	us_mutex_lock(&q->writer_lock);
	n = q->tiers.nr_active;
	memcpy(tiers, q->tiers.active, MIN(n, max) * sizeof(*tiers));
	us_mutex_unlock(&q->writer_lock);
	return n;
}

const char *queue_tier_name(struct queue *q, unsigned int id)
{
	const char *name = NULL;

	us_mutex_lock(&q->writer_lock);
	if (id < q->tiers.nr_names)
		name = q->tiers.name[id];
	us_mutex_unlock(&q->writer_lock);
	return name;
}

/* ---- checks and figures ---- */

static void check_view(struct queue *q, const struct queue_layout *l, enum queue_policy view)
{
	const struct queue_view *v = &l->view[view];
	uint64_t all = 0;

	for (unsigned int i = 0; i < v->nr_groups; i++) {
		const struct queue_group *g = &v->group[i];

		if (g->mask & all || !g->nr || g->first != __builtin_ctzll(g->mask))
			swap_bug("view %u, group %u: wrong positions", view, i);
		if (!g->ring->used || g->ring->serial != l->serial)
			swap_bug("view %u, group %u: its ring is another's", view, i);
		all |= g->mask;
	}
	if (all != (l->nr == 64 ? UINT64_MAX : (1ull << l->nr) - 1))
		swap_bug("view %u: not every device is in a group", view);
	for (unsigned int p = 1; p < l->nr; p++)
		if (v->level[p] < v->level[p - 1] || v->group_of[p] < v->group_of[p - 1])
			swap_bug("view %u: position %u is out of order", view, p);
}

static void check_positions(struct queue *q, const struct queue_layout *l)
{
	uint64_t open = atomic_load(&q->current->open);

	for (unsigned int p = 0; p < l->nr; p++) {
		const struct queue_dev *d = &q->devs[l->number[p]];
		bool is_open = open & 1ull << p;

		if (l->position[l->number[p]] != p || !q->present[l->number[p]])
			swap_bug("device %u is not at position %u", l->number[p], p);
		if (p && !goes_before(&q->devs[l->number[p - 1]], d))
			swap_bug("device %u has the wrong place", l->number[p]);
		if (is_open != !atomic_load(&d->closed))
			swap_bug("device %u is open: %d, closed: %u", l->number[p], is_open,
				 atomic_load(&d->closed));
		/* The one state that would lose room for good. */
		if (atomic_load(&d->closed) == QUEUE_FULL && !q->cfg.ops->is_full(d->dev))
			swap_bug("device %u is closed as full and has room", l->number[p]);
	}
}

void queue_check(struct queue *q)
{
	const struct queue_layout *l;
	unsigned int present = 0;

	us_mutex_lock(&q->writer_lock);
	l = atomic_load(&q->current);
	for (unsigned int d = 0; d < QUEUE_MAX_DEVS; d++)
		present += q->present[d];
	if (present != l->nr)
		swap_bug("%u devices, %u in the layout", present, l->nr);
	check_positions(q, l);
	for (unsigned int p = POLICY_QUEUE; p < NR_POLICIES; p++)
		if (q->views & 1u << p)
			check_view(q, l, (enum queue_policy)p);
	us_mutex_unlock(&q->writer_lock);
}

uint64_t queue_bytes(struct queue *q)
{
	uint64_t rings = atomic_load(&q->nr_rings), lists = atomic_load(&q->nr_lists);

	/* Of the rings, and of the words of a CPU, only those that were ever used are touched. */
	return sizeof(struct queue) - (MAX_RINGS - rings) * sizeof(struct queue_ring) -
	       (MAX_RINGS - lists) * sizeof(struct plist) +
	       q->cfg.nr_cpus * align_up(rings * sizeof(uint64_t), PAGE_SIZE);
}
