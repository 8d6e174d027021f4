/* SPDX-License-Identifier: MIT */
/*
 * Figures, and whether everything is consistent.
 *
 * The check holds one cluster's lock at a time, so it may run beside everything else. What must be
 * right at any moment is aborted on at once. What sums up over clusters is compared only if
 * `usage` says that nothing has changed meanwhile.
 */
#include "swap/cluster_internal.h"

#include "swap/entry.h"

bool clusters_order_ok(struct clusters *c, unsigned int order)
{
	uint32_t touched = atomic_load(&c->nr_touched), nr = (touched + 7) / 8;
	uint32_t hand = atomic_load_explicit(&c->hand, memory_order_relaxed);
	bool ok;

	if (!atomic_load(&c->writeok))
		return false;
	if (order == 0)
		return clusters_used(c) + atomic_load(&c->reserved) < clusters_usable(c);
	if (atomic_load(&c->nr_discard) || atomic_load(&c->nr_discarding))
		return true;
	if (clusters_is_refused(c, order))
		return false;
	us_mutex_lock(&c->lock);
	ok = c->free.head || (order < MAX_ORDER && c->nonfull[order].head) ||
	     MAX(touched, 1u) < atomic_load(&c->nr_slots) / CLUSTER_SLOTS;
	us_mutex_unlock(&c->lock);
	/* A run of the largest order is a free cluster. */
	for (uint32_t k = 0; k < nr && !ok && order < MAX_ORDER; k++)
		ok = cluster_rooms(atomic_load(&c->room[((uint64_t)hand + k) % nr]), order, false);
	return ok;
}

void clusters_usage(struct clusters *c, uint32_t *used, uint32_t *peak, uint32_t *usable)
{
	*used = clusters_used(c);
	*peak = atomic_load_explicit(&c->peak_slots, memory_order_relaxed);
	*usable = clusters_usable(c);
}

uint64_t clusters_bytes(struct clusters *c)
{
	uint64_t n = atomic_load(&c->nr_touched), bad;

	us_mutex_lock(&c->lock);
	bad = c->max_bad * sizeof(*c->bad);
	us_mutex_unlock(&c->lock);
	return align_up(n * sizeof(struct cluster), PAGE_SIZE) +
	       align_up(n * sizeof(struct cluster_link), PAGE_SIZE) + align_up(n, PAGE_SIZE) +
	       align_up(c->nr_cpus * sizeof(*c->cpus), PAGE_SIZE) +
	       align_up(mem_pool_bytes(&c->tables), PAGE_SIZE) + bad;
}

/* ---- one cluster ---- */

static void check_state(struct clusters *c, const struct cluster *cl, unsigned int bits)
{
	uint32_t i = cluster_number(c, cl);
	bool empty = cluster_is_empty(cl), good = false;

	switch ((enum cluster_state)cl->state) {
	case CL_NONE:
		good = true;
		break;
	case CL_FREE:
		good = empty && !cl->order;
		break;
	case CL_DISCARD:
		good = empty && !cl->order && c->cfg.discard;
		break;
	case CL_NONFULL:
	case CL_FRAG:
		good = !empty && bits < CLUSTER_SLOTS;
		break;
	case CL_FULL:
		good = bits == CLUSTER_SLOTS;
		break;
	}
	if (!good || cl->order > MAX_ORDER)
		swap_bug("cluster %u: state %u, order %u, %u bits", i, cl->state, cl->order, bits);
	if (cl->masked && cl->order)
		swap_bug("cluster %u: masked slots, but order %u", i, cl->order);
	if ((cl->used || cl->kept) != (cl->owner != NULL))
		swap_bug("cluster %u: %u used, %u kept, %s table of owners", i, cl->used, cl->kept,
			 cl->owner ? "a" : "no");
	if (cl->state != CL_DISCARD && cluster_room(c, i) < cluster_largest(cl->map))
		swap_bug("cluster %u: order %u is free, searches think %u", i,
			 cluster_largest(cl->map) - 1, cluster_room(c, i));
}

/* Slot 0, what is beyond the size, and bad ones. Under the lock of cl. */
static uint32_t masked_slots(struct clusters *c, const struct cluster *cl)
{
	uint64_t first = cluster_first(c, cl), end = first + CLUSTER_SLOTS;
	uint32_t size, n;

	us_mutex_lock(&c->lock);
	size = atomic_load(&c->nr_slots);
	n = (first == 0) + (end > size ? (uint32_t)(end - size) : 0);
	for (uint32_t b = 0; b < atomic_load(&c->nr_bad); b++) {
		n += c->bad[b] >= first && c->bad[b] < end;
		if (c->bad[b] >= first && c->bad[b] < end &&
		    !cluster_bit(cl->map, c->bad[b] % CLUSTER_SLOTS))
			swap_bug("slot %u is bad, but free", c->bad[b]);
	}
	us_mutex_unlock(&c->lock);
	return n;
}

static void check_window(struct clusters *c, const struct cluster *cl)
{
	uint32_t i = cluster_number(c, cl);

	if (!cluster_has_window(c, cl)) {
		if (cl->kept)
			swap_bug("cluster %u: %u slots kept, but no window", i, cl->kept);
		return;
	}
	if (cluster_count(c->window.kept) != cl->kept ||
	    cluster_count_range(c->window.kept, c->window.at, c->window.nr) != cl->kept ||
	    cluster_count_range(cl->map, c->window.at, c->window.nr) > c->window.nr)
		swap_bug("cluster %u: %u slots kept, the window has others", i, cl->kept);
	for (unsigned int w = 0; w < CLUSTER_WORDS; w++)
		if (c->window.kept[w] & ~cl->map[w])
			swap_bug("cluster %u: a kept slot is free", i);
}

static void check_cluster(struct clusters *c, struct cluster *cl, uint64_t *used, uint64_t *kept)
{
	uint32_t i = cluster_number(c, cl), masked;
	unsigned int bits;

	us_mutex_lock(&cl->lock);
	bits = cluster_count(cl->map);
	masked = masked_slots(c, cl);
	if (cl->masked != masked || bits != (unsigned int)cl->used + cl->masked + cl->kept)
		swap_bug("cluster %u: %u bits, %u used, %u kept, %u masked (%u)", i, bits, cl->used,
			 cl->kept, cl->masked, masked);
	check_state(c, cl, bits);
	check_window(c, cl);
	for (unsigned int k = 0; cl->owner && k < CLUSTER_SLOTS; k++) {
		bool free = !cluster_bit(cl->map, k) ||
			    (cluster_has_window(c, cl) && cluster_bit(c->window.kept, k));

		if (cl->owner[k] && free)
			swap_bug("cluster %u: slot %u is free but has owner %u", i, k,
				 cl->owner[k]);
	}
	*used += cl->used;
	*kept += cl->kept;
	us_mutex_unlock(&cl->lock);
}

/* ---- lists ---- */

static uint32_t check_list(struct clusters *c, const struct cluster_list *l,
			   enum cluster_state state, int order)
{
	uint32_t n = 0, prev = 0;

	for (uint32_t i = l->head; i; prev = i, i = c->links[i - 1].next, n++) {
		struct cluster *cl = &c->tab[i - 1];

		if (i > atomic_load(&c->nr_touched) || cl->state != state ||
		    c->links[i - 1].prev != prev || (order >= 0 && cl->order != order))
			swap_bug("cluster %u is on a list by mistake", i - 1);
	}
	if (l->tail != prev)
		swap_bug("a list of clusters has the wrong tail");
	return n;
}

static void check_lists(struct clusters *c)
{
	uint32_t on_lists, discard, with_state = 0;

	us_mutex_lock(&c->lock);
	discard = check_list(c, &c->discard, CL_DISCARD, -1);
	if (discard != atomic_load(&c->nr_discard))
		swap_bug("%u clusters to discard, %u counted", discard,
			 atomic_load(&c->nr_discard));
	on_lists = check_list(c, &c->free, CL_FREE, -1) + check_list(c, &c->full, CL_FULL, -1) +
		   discard + atomic_load(&c->nr_discarding);
	for (int o = 0; o <= MAX_ORDER; o++)
		on_lists += check_list(c, &c->nonfull[o], CL_NONFULL, o) +
			    check_list(c, &c->frag[o], CL_FRAG, o);
	for (uint32_t i = 0; i < atomic_load(&c->nr_touched); i++)
		with_state += c->tab[i].state != CL_NONE;
	if (on_lists != with_state)
		swap_bug("clusters: %u on lists, %u should be", on_lists, with_state);
	us_mutex_unlock(&c->lock);
}

void clusters_check(struct clusters *c)
{
	uint64_t before = atomic_load(&c->usage), used = 0, kept = 0;
	uint32_t reserved = atomic_load(&c->reserved);

	check_lists(c);
	for (uint32_t i = 0; i < atomic_load(&c->nr_touched); i++)
		check_cluster(c, &c->tab[i], &used, &kept);
	if (atomic_load(&c->usage) != before)
		return;
	if (used != (uint32_t)before || kept != reserved)
		swap_bug("clusters: %llu slots used, %u counted; %llu kept, %u counted",
			 (unsigned long long)used, (uint32_t)before, (unsigned long long)kept,
			 reserved);
	if ((uint64_t)(uint32_t)before + reserved > clusters_usable(c))
		swap_bug("clusters: %u used and %u kept of %u", (uint32_t)before, reserved,
			 clusters_usable(c));
}
