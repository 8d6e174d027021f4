/* SPDX-License-Identifier: MIT */
/*
 * Set-up, size, the lists, and freeing. docs/cluster-states.md has the table of transitions.
 *
 * The state of a cluster says on which list it is. Both change together, under the lock of the
 * cluster and that of the lists. So who holds the lock of a cluster knows its list, and who walks
 * a list knows what its members are.
 */
#include "swap/cluster_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "swap/entry.h"

LOCK_CLASS(cpu_class, "swap_cluster_cpu", RANK_CL_CPU);
LOCK_CLASS(cluster_class, "swap_cluster", RANK_CLUSTER);
LOCK_CLASS(list_class, "swap_cluster_lists", RANK_CL_LIST);

/* ---- lists ---- */

static struct cluster_list *list_of(struct clusters *c, enum cluster_state state,
				    unsigned int order)
{
	switch (state) {
	case CL_FREE:
		return &c->free;
	case CL_NONFULL:
		return &c->nonfull[order];
	case CL_FRAG:
		return &c->frag[order];
	case CL_FULL:
		return &c->full;
	default:
		return NULL;
	}
}

void cluster_list_del(struct clusters *c, struct cluster_list *l, struct cluster *cl)
{
	struct cluster_link *k = &c->links[cluster_number(c, cl)];

	if (k->prev)
		c->links[k->prev - 1].next = k->next;
	else
		l->head = k->next;
	if (k->next)
		c->links[k->next - 1].prev = k->prev;
	else
		l->tail = k->prev;
	k->next = k->prev = 0;
}

void cluster_list_add(struct clusters *c, struct cluster_list *l, struct cluster *cl)
{
	uint32_t i = cluster_number(c, cl);

	c->links[i] = (struct cluster_link){.next = 0, .prev = l->tail};
	if (l->tail)
		c->links[l->tail - 1].next = i + 1;
	else
		l->head = i + 1;
	l->tail = i + 1;
}

struct cluster *cluster_isolate(struct clusters *c, struct cluster_list *l)
{
	struct cluster *cl;

	us_mutex_lock(&c->lock);
	for (uint32_t n = l->head; n; n = c->links[n - 1].next) {
		cl = &c->tab[n - 1];
		if (!us_mutex_trylock(&cl->lock))
			continue;
		cluster_list_del(c, l, cl);
		cl->state = CL_NONE;
		us_mutex_unlock(&c->lock);
		return cl;
	}
	us_mutex_unlock(&c->lock);
	return NULL;
}

/* To the tail of the list of that state, unless it is there already. */
static void move_cluster(struct clusters *c, struct cluster *cl, enum cluster_state state)
{
	struct cluster_list *l;

	if (cl->state == state)
		return;
	us_mutex_lock(&c->lock);
	l = list_of(c, (enum cluster_state)cl->state, cl->order);
	if (l)
		cluster_list_del(c, l, cl);
	if (state == CL_FREE || state == CL_DISCARD)
		cl->order = 0;
	cl->state = (uint8_t)state;
	if (state == CL_DISCARD) {
		cluster_list_add(c, &c->discard, cl);
		atomic_fetch_add(&c->nr_discard, 1);
	} else {
		cluster_list_add(c, list_of(c, state, cl->order), cl);
	}
	us_mutex_unlock(&c->lock);
}

/* Nothing in it has an owner any more. */
static void give_table_back(struct clusters *c, struct cluster *cl)
{
	if (!cl->owner || cl->used || cl->kept)
		return;
	mem_pool_free(&c->tables, cl->owner);
	cl->owner = NULL;
}

void cluster_settle(struct clusters *c, struct cluster *cl)
{
	/* Emptied and on its way to the device since the scan let go of it. */
	if (cl->state == CL_DISCARD)
		return;
	give_table_back(c, cl);
	if (cluster_is_empty(cl)) {
		move_cluster(c, cl, CL_FREE);
	} else if (cluster_has_room(cl)) {
		move_cluster(c, cl, CL_FRAG);
	} else if (cl->state != CL_FULL) {
		cluster_set_room(c, cl, 0);
		move_cluster(c, cl, CL_FULL);
	}
}

void cluster_settle_freed(struct clusters *c, struct cluster *cl)
{
	give_table_back(c, cl);
	if (!cluster_is_empty(cl)) {
		move_cluster(c, cl, cluster_has_room(cl) ? CL_NONFULL : CL_FULL);
	} else if (c->cfg.discard && atomic_load(&c->writeok)) {
		/* Room again when that is over. */
		cluster_set_room(c, cl, 0);
		move_cluster(c, cl, CL_DISCARD);
	} else {
		move_cluster(c, cl, CL_FREE);
	}
}

void cluster_set_order(struct clusters *c, struct cluster *cl, unsigned int order)
{
	struct cluster_list *l;

	us_mutex_lock(&c->lock);
	l = list_of(c, (enum cluster_state)cl->state, cl->order);
	if (l)
		cluster_list_del(c, l, cl);
	cl->order = (uint8_t)order;
	if (l)
		cluster_list_add(c, list_of(c, (enum cluster_state)cl->state, order), cl);
	us_mutex_unlock(&c->lock);
}

/* ---- what searches may rely on ---- */

unsigned int cluster_room(struct clusters *c, uint32_t number)
{
	return (unsigned int)(atomic_load(&c->room[number / 8]) >> (number % 8 * 8)) & 0xff;
}

/* Eight clusters share a word, and each has a lock of its own. */
void cluster_set_room(struct clusters *c, const struct cluster *cl, unsigned int room)
{
	uint32_t i = cluster_number(c, cl);
	uint64_t old = atomic_load(&c->room[i / 8]), new;

	do {
		new = (old & ~(0xffull << (i % 8 * 8))) | (uint64_t)room << (i % 8 * 8);
	} while (new != old && !atomic_compare_exchange_weak(&c->room[i / 8], &old, new));
}

void clusters_search_again(struct clusters *c, unsigned int order)
{
	/* In this order: a sweep sets its bit before it leaves `searchers`. */
	bool searched = atomic_load(&c->searchers) != 0;
	uint64_t bits = (2ull << order) - 1, old = atomic_load(&c->search);

	if (!searched && !(old & bits))
		return;
	while (!atomic_compare_exchange_weak(&c->search, &old, (old & ~bits) + SEARCH_CHANGE))
		;
}

void cluster_run_freed(struct clusters *c, struct cluster *cl, unsigned int at, unsigned int order)
{
	order = cluster_free_order(cl->map, at, order);
	if (cluster_room(c, cluster_number(c, cl)) < order + 1)
		cluster_set_room(c, cl, order + 1);
	clusters_search_again(c, order);
}

/* ---- set-up and size ---- */

int clusters_init(struct clusters *c, uint32_t max_slots)
{
	return clusters_init_with(c, max_slots, &(struct clusters_config){0});
}

static size_t tab_bytes(const struct clusters *c)
{
	return MAX((size_t)c->max_clusters, 1u) * sizeof(struct cluster);
}

static size_t links_bytes(const struct clusters *c)
{
	return MAX((size_t)c->max_clusters, 1u) * sizeof(struct cluster_link);
}

static size_t room_bytes(const struct clusters *c)
{
	return align_up(MAX((size_t)c->max_clusters, 1u), 8);
}

static void release_tables(struct clusters *c)
{
	mem_release(c->tab, tab_bytes(c));
	mem_release(c->links, links_bytes(c));
	mem_release(c->room, room_bytes(c));
	mem_release(c->cpus, c->nr_cpus * sizeof(*c->cpus));
	c->tab = NULL;
}

int clusters_init_with(struct clusters *c, uint32_t max_slots, const struct clusters_config *cfg)
{
	size_t max_tables;

	memset(c, 0, sizeof(*c));
	c->cfg = *cfg;
	if (c->cfg.discard && !(cfg->ops && cfg->ops->discard))
		c->cfg.discard = false;
	c->max_clusters = (uint32_t)(((uint64_t)max_slots + CLUSTER_SLOTS - 1) / CLUSTER_SLOTS);
	c->nr_cpus = cfg->rotational ? 1 : us_nr_cpus();
	c->tab = mem_reserve(tab_bytes(c));
	c->links = mem_reserve(links_bytes(c));
	c->room = mem_reserve(room_bytes(c));
	c->cpus = mem_reserve(c->nr_cpus * sizeof(*c->cpus));
	max_tables = cfg->max_tables ? cfg->max_tables : MAX((size_t)c->max_clusters, 1u);
	if (!c->tab || !c->links || !c->room || !c->cpus ||
	    mem_pool_init(&c->tables, CLUSTER_SLOTS * sizeof(uint32_t), max_tables) != 0) {
		release_tables(c);
		return -ENOMEM;
	}
	c->tables.unaccounted = true;
	us_mutex_init(&c->lock, &list_class);
	us_cond_init(&c->discarded);
	for (unsigned int i = 0; i < c->nr_cpus; i++)
		us_mutex_init(&c->cpus[i].lock, &cpu_class);
	atomic_store(&c->window.cluster, NO_WINDOW);
	atomic_store(&c->writeok, true);
	return 0;
}

void clusters_deinit(struct clusters *c)
{
	if (!c->tab)
		return;
	for (uint32_t i = 0; i < atomic_load(&c->nr_touched); i++) {
		/* Who freed the last slot counts it before he lets go of the lock. */
		us_mutex_lock(&c->tab[i].lock);
		us_mutex_unlock(&c->tab[i].lock);
		us_mutex_deinit(&c->tab[i].lock);
	}
	for (unsigned int i = 0; i < c->nr_cpus; i++)
		us_mutex_deinit(&c->cpus[i].lock);
	us_cond_deinit(&c->discarded);
	us_mutex_deinit(&c->lock);
	mem_pool_deinit(&c->tables);
	release_tables(c);
	free(c->bad);
	c->bad = NULL;
}

/* Index of the first bad slot that is not below slot. Under the list lock. */
static uint32_t bad_at_or_after(const struct clusters *c, uint64_t slot)
{
	uint32_t lo = 0, hi = atomic_load(&c->nr_bad);

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (c->bad[mid] < slot)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void mask(struct cluster *cl, unsigned int at, unsigned int n)
{
	cluster_set_range(cl->map, at, n, true);
	cl->masked = (uint16_t)(cl->masked + n);
}

bool cluster_touch(struct clusters *c)
{
	uint32_t i, size;
	uint64_t first, end;
	struct cluster *cl;

	us_mutex_lock(&c->lock);
	i = atomic_load(&c->nr_touched);
	size = atomic_load(&c->nr_slots);
	first = (uint64_t)i * CLUSTER_SLOTS;
	end = first + CLUSTER_SLOTS;
	if (first >= size) {
		us_mutex_unlock(&c->lock);
		return false;
	}
	/* Nobody else can have come to it: it is on no list and beyond nr_touched. */
	cl = &c->tab[i];
	us_mutex_init(&cl->lock, &cluster_class);
	if (i == 0)
		mask(cl, 0, 1);
	if (end > size)
		mask(cl, (unsigned int)(size - first), (unsigned int)(end - size));
	for (uint32_t b = bad_at_or_after(c, first);
	     b < atomic_load(&c->nr_bad) && c->bad[b] < MIN(end, (uint64_t)size); b++)
		mask(cl, c->bad[b] % CLUSTER_SLOTS, 1);
	cl->state = !cl->masked ? CL_FREE : cluster_has_room(cl) ? CL_NONFULL : CL_FULL;
	cluster_list_add(c, list_of(c, (enum cluster_state)cl->state, 0), cl);
	cluster_set_room(c, cl, cluster_largest(cl->map));
	atomic_store(&c->nr_touched, i + 1);
	us_mutex_unlock(&c->lock);
	return true;
}

/* The old end cut a cluster that is in use: what is below the new end is free now. */
static void unmask_tail(struct clusters *c, struct cluster *cl, uint32_t old, uint32_t new)
{
	uint64_t first = cluster_first(c, cl);
	unsigned int at = (unsigned int)(old - first);
	unsigned int n = (unsigned int)(MIN(first + CLUSTER_SLOTS, (uint64_t) new) - first) - at;

	cluster_set_range(cl->map, at, n, false);
	cl->masked = (uint16_t)(cl->masked - n);
	cluster_set_room(c, cl, cluster_largest(cl->map));
	/* Never used, so there is nothing to discard. */
	give_table_back(c, cl);
	move_cluster(c, cl, cluster_is_empty(cl) ? CL_FREE : CL_NONFULL);
}

void clusters_set_size(struct clusters *c, uint32_t nr_slots)
{
	bool done = false;

	nr_slots = (uint32_t)MIN((uint64_t)nr_slots, (uint64_t)c->max_clusters * CLUSTER_SLOTS);
	while (!done) {
		uint32_t old = atomic_load(&c->nr_slots), last = old / CLUSTER_SLOTS;
		struct cluster *cl = NULL;

		if (nr_slots <= old)
			return;
		if (old % CLUSTER_SLOTS && last < atomic_load(&c->nr_touched)) {
			cl = &c->tab[last];
			us_mutex_lock(&cl->lock);
		}
		us_mutex_lock(&c->lock);
		/* Nobody else grew it, or touched its last cluster, before we had the locks. */
		done = atomic_load(&c->nr_slots) == old &&
		       (cl || !(old % CLUSTER_SLOTS) || last >= atomic_load(&c->nr_touched));
		if (done)
			atomic_store(&c->nr_slots, nr_slots);
		us_mutex_unlock(&c->lock);
		if (cl && done)
			unmask_tail(c, cl, old, nr_slots);
		if (cl)
			us_mutex_unlock(&cl->lock);
	}
	clusters_search_again(c, MAX_ORDER);
}

/* Under the list lock. */
static int bad_insert(struct clusters *c, uint32_t at, uint32_t slot)
{
	uint32_t nr = atomic_load(&c->nr_bad);

	if (nr == c->max_bad) {
		uint32_t max = MAX(2 * c->max_bad, 64u);
		uint32_t *bad = realloc(c->bad, max * sizeof(*bad));

		if (!bad)
			return -ENOMEM;
		c->bad = bad;
		c->max_bad = max;
	}
	memmove(c->bad + at + 1, c->bad + at, (nr - at) * sizeof(*c->bad));
	c->bad[at] = slot;
	atomic_store(&c->nr_bad, nr + 1);
	return 0;
}

/* cl is the slot's cluster, locked, or NULL if it was never touched, which holds on. */
static int mark_bad(struct clusters *c, struct cluster *cl, uint32_t slot)
{
	uint32_t at = bad_at_or_after(c, slot);

	if (at < atomic_load(&c->nr_bad) && c->bad[at] == slot)
		return -EEXIST;
	/* One that is being discarded will be on the free list. */
	if (cl && (cl->used || cl->kept || cl->state == CL_DISCARD))
		return -EBUSY;
	return bad_insert(c, at, slot);
}

int clusters_mark_bad(struct clusters *c, uint32_t slot)
{
	uint32_t number = slot / CLUSTER_SLOTS;
	struct cluster *cl = NULL;
	int err;

	if (!slot || slot >= atomic_load(&c->nr_slots))
		return -EINVAL;
	for (;;) {
		if (number < atomic_load(&c->nr_touched)) {
			cl = &c->tab[number];
			us_mutex_lock(&cl->lock);
		}
		us_mutex_lock(&c->lock);
		if (cl || number >= atomic_load(&c->nr_touched))
			break;
		us_mutex_unlock(&c->lock);
	}
	err = mark_bad(c, cl, slot);
	us_mutex_unlock(&c->lock);
	if (!cl)
		return err;
	if (!err) {
		/* No longer empty, so it stays of order 0 for good. */
		mask(cl, slot % CLUSTER_SLOTS, 1);
		move_cluster(c, cl, cluster_has_room(cl) ? CL_NONFULL : CL_FULL);
	}
	us_mutex_unlock(&cl->lock);
	return err;
}

/* ---- using and freeing ---- */

void cluster_count_used(struct clusters *c, struct cluster *cl, uint32_t nr)
{
	uint32_t peak = atomic_load_explicit(&c->peak_slots, memory_order_relaxed), used;

	cl->used = (uint16_t)(cl->used + nr);
	used = (uint32_t)atomic_fetch_add(&c->usage, (1ull << 32) + nr) + nr;
	while (used > peak && !atomic_compare_exchange_weak(&c->peak_slots, &peak, used))
		;
}

/* The window lies inside of what is freed: the parts before and behind it. */
static void free_around_window(struct clusters *c, struct cluster *cl, unsigned int at,
			       unsigned int n)
{
	unsigned int end = c->window.at + c->window.nr;

	if (c->window.at > at)
		cluster_set_range(cl->map, at, c->window.at - at, false);
	if (at + n > end)
		cluster_set_range(cl->map, end, at + n - end, false);
	cluster_set_room(c, cl, cluster_largest(cl->map));
	clusters_search_again(c, MAX_ORDER);
}

/*
 * Nothing is lost or given out twice: the slots stay set in the map until here, under the lock of
 * their cluster, which everybody who sets them holds. The caller has made sure before that nobody
 * reads or writes them any longer. The count goes down last, but still under the lock: who sees it
 * reach 0 and then takes each cluster's lock once knows that everybody is out.
 */
void clusters_free(struct clusters *c, uint32_t slot, unsigned int order)
{
	struct cluster *cl = cluster_of(c, slot);
	unsigned int at = slot % CLUSTER_SLOTS, n = 1u << order, kept = 0;

	us_mutex_lock(&cl->lock);
	if (cl->used < n || !cl->owner || at + n > CLUSTER_SLOTS)
		swap_bug("slot %u order %u is freed, its cluster has %u used", slot, order,
			 cl->used);
	if (cluster_has_window(c, cl))
		kept = cluster_window_keep(c, cl, at, n);
	memset(cl->owner + at, 0, n * sizeof(*cl->owner));
	cl->used = (uint16_t)(cl->used - n);
	if (!kept) {
		cluster_set_range(cl->map, at, n, false);
		cluster_run_freed(c, cl, at, order);
		cluster_settle_freed(c, cl);
	} else if (kept < n) {
		free_around_window(c, cl, at, n);
		cluster_settle_freed(c, cl);
	}
	atomic_fetch_add(&c->usage, (1ull << 32) - n);
	us_mutex_unlock(&cl->lock);
}
