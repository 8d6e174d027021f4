/* SPDX-License-Identifier: MIT */
/*
 * Lists mirror the state of a cluster:
 *   free        no slot used, none masked: can take any order
 *   partial[o]  of order o, has free slots
 *   frag[o]     of order o, has free slots but had no run of 2^o when last scanned
 *   none        every slot is used or masked
 * Freeing a slot moves a cluster from frag or none to partial; freeing the last one moves it to
 * free. A cluster with masked slots (the first and the last) never goes to free: it is of order 0
 * from the start.
 */
#include "swap/cluster.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "swap/entry.h"

LOCK_CLASS(cluster_class, "swap_cluster", RANK_CLUSTER);

enum cluster_state { CL_NONE, CL_FREE, CL_PARTIAL, CL_FRAG };

#define CLUSTER_WORDS (CLUSTER_SLOTS / 64)

struct cluster {
	uint64_t map[CLUSTER_WORDS]; /* 1: used or masked */
	uint32_t next, prev;	     /* as cluster_list.head */
	uint16_t used;		     /* slots given out; masked ones do not count */
	uint8_t order;
	uint8_t state;
};
_Static_assert(sizeof(struct cluster) <= 96, "metadata of a cluster");

static struct cluster_list *list_of(struct clusters *c, const struct cluster *cl)
{
	switch (cl->state) {
	case CL_FREE:
		return &c->free;
	case CL_PARTIAL:
		return &c->partial[cl->order];
	case CL_FRAG:
		return &c->frag[cl->order];
	default:
		return NULL;
	}
}

static uint32_t number_of(const struct clusters *c, const struct cluster *cl)
{
	return (uint32_t)(cl - c->tab) + 1;
}

static void unlink_cluster(struct clusters *c, struct cluster *cl)
{
	struct cluster_list *l = list_of(c, cl);

	if (!l)
		return;
	if (cl->prev)
		c->tab[cl->prev - 1].next = cl->next;
	else
		l->head = cl->next;
	if (cl->next)
		c->tab[cl->next - 1].prev = cl->prev;
	else
		l->tail = cl->prev;
	cl->next = cl->prev = 0;
	cl->state = CL_NONE;
}

static void move_cluster(struct clusters *c, struct cluster *cl, enum cluster_state state,
			 unsigned int order)
{
	struct cluster_list *l;

	if (cl->state == state && cl->order == order)
		return;
	unlink_cluster(c, cl);
	cl->state = (uint8_t)state;
	cl->order = (uint8_t)order;
	l = list_of(c, cl);
	if (!l)
		return;
	cl->prev = l->tail;
	cl->next = 0;
	if (l->tail)
		c->tab[l->tail - 1].next = number_of(c, cl);
	else
		l->head = number_of(c, cl);
	l->tail = number_of(c, cl);
}

/* ---- bits ---- */

/* For each word, the bits that start a free run of 2^order (order <= 6). */
static uint64_t run_starts(uint64_t used, unsigned int order)
{
	static const uint64_t aligned[7] = {
		UINT64_MAX,	       0x5555555555555555ull, 0x1111111111111111ull,
		0x0101010101010101ull, 0x0001000100010001ull, 0x0000000100000001ull,
		1ull,
	};
	uint64_t f = ~used;

	for (unsigned int k = 0; k < order; k++)
		f &= f >> (1u << k);
	return f & aligned[order];
}

/* First free aligned run in the cluster, as an index; -1: none. */
static int find_run(const struct cluster *cl, unsigned int order)
{
	unsigned int words = order > 6 ? 1u << (order - 6) : 1;

	for (unsigned int w = 0; w < CLUSTER_WORDS; w += words) {
		uint64_t all = 0, starts;

		if (words > 1) {
			for (unsigned int k = 0; k < words; k++)
				all |= cl->map[w + k];
			if (!all)
				return (int)(w * 64);
			continue;
		}
		starts = run_starts(cl->map[w], order);
		if (starts)
			return (int)(w * 64) + __builtin_ctzll(starts);
	}
	return -1;
}

static void set_run(struct cluster *cl, unsigned int at, unsigned int order, bool used)
{
	unsigned int n = 1u << order;

	while (n) {
		unsigned int bits = MIN(n, 64 - at % 64);
		uint64_t mask = (bits == 64 ? UINT64_MAX : (1ull << bits) - 1) << (at % 64);
		uint64_t *w = &cl->map[at / 64];

		if ((*w & mask) != (used ? 0 : mask))
			swap_bug("slots of a cluster are %s twice", used ? "allocated" : "freed");
		*w = used ? *w | mask : *w & ~mask;
		at += bits;
		n -= bits;
	}
}

/* The order of the largest free aligned run around a free run of 2^order at `at`. */
static unsigned int free_order_at(const struct cluster *cl, unsigned int at, unsigned int order)
{
	while (order < MAX_ORDER) {
		unsigned int n = 1u << order, buddy = at ^ n;
		uint64_t used = 0;

		if (n < 64)
			used = cl->map[buddy / 64] & (((1ull << n) - 1) << (buddy % 64));
		for (unsigned int w = 0; w < n / 64; w++)
			used |= cl->map[buddy / 64 + w];
		if (used)
			break;
		at &= ~n;
		order++;
	}
	return order;
}

static bool has_room(const struct cluster *cl)
{
	for (unsigned int w = 0; w < CLUSTER_WORDS; w++)
		if (cl->map[w] != UINT64_MAX)
			return true;
	return false;
}

/* Whether slots of it are masked: the first cluster, and the last unless it is whole. */
static bool is_holed(const struct clusters *c, const struct cluster *cl)
{
	uint32_t i = (uint32_t)(cl - c->tab);

	return i == 0 || ((uint64_t)i + 1) * CLUSTER_SLOTS > c->nr_slots;
}

/* ---- set-up and size ---- */

static size_t owners_bytes(const struct clusters *c)
{
	return MAX((size_t)c->max_clusters, 1u) * CLUSTER_SLOTS * sizeof(uint32_t);
}

int clusters_init(struct clusters *c, uint32_t max_slots)
{
	memset(c, 0, sizeof(*c));
	c->max_clusters = (uint32_t)(((uint64_t)max_slots + CLUSTER_SLOTS - 1) / CLUSTER_SLOTS);
	c->tab = mem_reserve(MAX((size_t)c->max_clusters, 1u) * sizeof(struct cluster));
	c->owners = mem_reserve(owners_bytes(c));
	if (!c->tab || !c->owners) {
		mem_release(c->tab, MAX((size_t)c->max_clusters, 1u) * sizeof(struct cluster));
		mem_release(c->owners, owners_bytes(c));
		c->tab = NULL;
		return -ENOMEM;
	}
	us_mutex_init(&c->lock, &cluster_class);
	return 0;
}

void clusters_deinit(struct clusters *c)
{
	if (!c->tab)
		return;
	mem_release(c->tab, MAX((size_t)c->max_clusters, 1u) * sizeof(struct cluster));
	mem_release(c->owners, owners_bytes(c));
	c->tab = NULL;
	us_mutex_deinit(&c->lock);
}

void clusters_set_size(struct clusters *c, uint32_t nr_slots)
{
	uint32_t old, last;

	us_mutex_lock(&c->lock);
	old = c->nr_slots;
	nr_slots = (uint32_t)MIN((uint64_t)nr_slots, (uint64_t)c->max_clusters * CLUSTER_SLOTS);
	if (nr_slots > old) {
		c->nr_slots = nr_slots;
		c->search_failed = 0;
		last = old / CLUSTER_SLOTS;
		/* The cluster that the old end cut, if it is in use already. */
		if (old % CLUSTER_SLOTS && last < c->nr_touched) {
			struct cluster *cl = &c->tab[last];
			uint64_t end = MIN(((uint64_t)last + 1) * CLUSTER_SLOTS, nr_slots);

			for (uint64_t s = old; s < end; s++)
				set_run(cl, s % CLUSTER_SLOTS, 0, false);
			if (!cl->used && !is_holed(c, cl))
				move_cluster(c, cl, CL_FREE, 0);
			else
				move_cluster(c, cl, CL_PARTIAL, cl->order);
		}
	}
	us_mutex_unlock(&c->lock);
}

/* Brings the next never used cluster into play. */
static bool touch_cluster(struct clusters *c)
{
	uint64_t first = (uint64_t)c->nr_touched * CLUSTER_SLOTS;
	struct cluster *cl;

	if (first >= c->nr_slots)
		return false;
	cl = &c->tab[c->nr_touched++];
	if (first == 0)
		set_run(cl, 0, 0, true);
	for (uint64_t s = MAX(first, c->nr_slots); s < first + CLUSTER_SLOTS; s++)
		set_run(cl, s % CLUSTER_SLOTS, 0, true);
	if (is_holed(c, cl)) {
		if (has_room(cl))
			move_cluster(c, cl, CL_PARTIAL, 0);
	} else {
		move_cluster(c, cl, CL_FREE, 0);
	}
	return true;
}

/* ---- allocation ---- */

/* Takes a run out of cl if there is one. */
static uint32_t take(struct clusters *c, struct cluster *cl, unsigned int order)
{
	int at = find_run(cl, order);

	if (at < 0)
		return 0;
	set_run(cl, (unsigned int)at, order, true);
	cl->used = (uint16_t)(cl->used + (1u << order));
	c->used_slots += 1u << order;
	c->peak_slots = MAX(c->peak_slots, c->used_slots);
	if (!has_room(cl))
		unlink_cluster(c, cl);
	return (uint32_t)(cl - c->tab) * CLUSTER_SLOTS + (uint32_t)at;
}

static uint32_t take_from_own(struct clusters *c, unsigned int order)
{
	while (c->partial[order].head) {
		struct cluster *cl = &c->tab[c->partial[order].head - 1];
		uint32_t slot = take(c, cl, order);

		if (slot)
			return slot;
		move_cluster(c, cl, CL_FRAG, order);
	}
	return 0;
}

static uint32_t take_from_free(struct clusters *c, unsigned int order)
{
	struct cluster *cl;

	while (!c->free.head) {
		if (!touch_cluster(c))
			return 0;
		/* The first and the last cluster go to partial[0] instead. */
		if (order == 0 && c->partial[0].head)
			return take_from_own(c, 0);
	}
	cl = &c->tab[c->free.head - 1];
	move_cluster(c, cl, CL_PARTIAL, order);
	return take(c, cl, order);
}

/* For order 0 anything will do, so take from where larger runs are gone already. */
static uint32_t steal_slot(struct clusters *c)
{
	for (unsigned int o = 1; o <= MAX_ORDER; o++)
		if (c->frag[o].head)
			return take(c, &c->tab[c->frag[o].head - 1], 0);
	for (unsigned int o = 1; o <= MAX_ORDER; o++)
		if (c->partial[o].head)
			return take(c, &c->tab[c->partial[o].head - 1], 0);
	return 0;
}

static uint32_t search_list(struct clusters *c, const struct cluster_list *l, unsigned int order)
{
	for (uint32_t n = l->head; n;) {
		struct cluster *cl = &c->tab[n - 1];
		uint32_t slot;

		n = cl->next;
		slot = take(c, cl, order);
		if (slot)
			return slot;
	}
	return 0;
}

/*
 * Looks into clusters of every other order. A search that failed is not repeated before a run of
 * that order came free, so most calls on a crowded device do not search. A run of the largest
 * order is a whole cluster, which would be on the free list.
 */
static uint32_t search_all(struct clusters *c, unsigned int order)
{
	uint32_t slot;

	if (order == MAX_ORDER || c->search_failed & 1u << order)
		return 0;
	for (unsigned int o = 0; o <= MAX_ORDER; o++) {
		if (o == order)
			continue;
		slot = search_list(c, &c->partial[o], order);
		if (!slot)
			slot = search_list(c, &c->frag[o], order);
		if (slot)
			return slot;
	}
	c->search_failed |= 1u << order;
	return 0;
}

uint32_t clusters_alloc(struct clusters *c, unsigned int order)
{
	uint32_t slot;

	us_mutex_lock(&c->lock);
	slot = take_from_own(c, order);
	if (!slot)
		slot = take_from_free(c, order);
	if (!slot)
		slot = order ? search_all(c, order) : steal_slot(c);
	us_mutex_unlock(&c->lock);
	return slot;
}

void clusters_free(struct clusters *c, uint32_t slot, unsigned int order)
{
	struct cluster *cl = &c->tab[slot / CLUSTER_SLOTS];

	us_mutex_lock(&c->lock);
	set_run(cl, slot % CLUSTER_SLOTS, order, false);
	memset(&c->owners[slot], 0, sizeof(uint32_t) << order);
	cl->used = (uint16_t)(cl->used - (1u << order));
	c->used_slots -= 1u << order;
	c->search_failed &= ~((2u << free_order_at(cl, slot % CLUSTER_SLOTS, order)) - 1);
	if (cl->used)
		move_cluster(c, cl, CL_PARTIAL, cl->order);
	else if (is_holed(c, cl))
		move_cluster(c, cl, CL_PARTIAL, 0);
	else
		move_cluster(c, cl, CL_FREE, 0);
	us_mutex_unlock(&c->lock);
}

/* ---- owners ---- */

void clusters_set_owner(struct clusters *c, uint32_t slot, unsigned int order, uint32_t owner)
{
	us_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < 1u << order; i++)
		c->owners[slot + i] = owner;
	us_mutex_unlock(&c->lock);
}

unsigned int clusters_collect(struct clusters *c, uint32_t *cursor,
			      bool (*claim)(void *host, uint32_t owner), void *host,
			      uint32_t *out, unsigned int max)
{
	uint32_t last = 0, slot = *cursor, end;
	unsigned int n = 0;

	us_mutex_lock(&c->lock);
	end = (uint32_t)MIN((uint64_t)c->nr_touched * CLUSTER_SLOTS, c->nr_slots);
	for (; slot < end && n < max; slot++) {
		uint32_t owner = c->owners[slot];

		if (owner && owner != last && claim(host, owner))
			out[n++] = owner;
		last = owner;
	}
	*cursor = slot;
	us_mutex_unlock(&c->lock);
	return n;
}

/* ---- figures ---- */

bool clusters_order_ok(struct clusters *c, unsigned int order)
{
	bool ok;

	us_mutex_lock(&c->lock);
	if (order == 0) {
		ok = c->nr_slots > 1 && c->used_slots < c->nr_slots - 1;
	} else {
		uint64_t whole = c->nr_slots / CLUSTER_SLOTS;

		ok = c->free.head || c->partial[order].head || MAX(c->nr_touched, 1u) < whole;
	}
	us_mutex_unlock(&c->lock);
	return ok;
}

void clusters_usage(struct clusters *c, uint32_t *used, uint32_t *peak, uint32_t *usable)
{
	us_mutex_lock(&c->lock);
	*used = c->used_slots;
	*peak = c->peak_slots;
	*usable = c->nr_slots ? c->nr_slots - 1 : 0;
	us_mutex_unlock(&c->lock);
}

uint64_t clusters_bytes(struct clusters *c)
{
	uint64_t n;

	us_mutex_lock(&c->lock);
	n = c->nr_touched;
	us_mutex_unlock(&c->lock);
	return align_up(n * (sizeof(struct cluster) + CLUSTER_SLOTS * sizeof(uint32_t)), PAGE_SIZE);
}

static uint32_t count_list(struct clusters *c, const struct cluster_list *l,
			   enum cluster_state state, int order)
{
	uint32_t n = 0, prev = 0;

	for (uint32_t i = l->head; i; prev = i, i = c->tab[i - 1].next, n++) {
		struct cluster *cl = &c->tab[i - 1];

		if (cl->state != state || cl->prev != prev || (order >= 0 && cl->order != order))
			swap_bug("cluster %u is on a list by mistake", i - 1);
	}
	if (l->tail != prev)
		swap_bug("a list of clusters has the wrong tail");
	return n;
}

static void check_cluster(struct clusters *c, const struct cluster *cl)
{
	uint32_t i = (uint32_t)(cl - c->tab);
	uint64_t first = (uint64_t)i * CLUSTER_SLOTS;
	uint64_t end = first + CLUSTER_SLOTS;
	uint64_t past = end > c->nr_slots ? end - c->nr_slots : 0;
	uint32_t bits = 0, masked = (i == 0) + (uint32_t)past;

	for (unsigned int w = 0; w < CLUSTER_WORDS; w++)
		bits += (uint32_t)__builtin_popcountll(cl->map[w]);
	if (bits != cl->used + masked)
		swap_bug("cluster %u: %u bits, %u used, %u masked", i, bits, cl->used, masked);
	if ((cl->state == CL_NONE) != (bits == CLUSTER_SLOTS))
		swap_bug("cluster %u: state %u with %u bits", i, cl->state, bits);
	if (cl->state == CL_FREE && bits)
		swap_bug("cluster %u is on the free list with %u bits", i, bits);
}

void clusters_check(struct clusters *c)
{
	uint32_t on_lists, with_state = 0;
	uint64_t used = 0;

	us_mutex_lock(&c->lock);
	on_lists = count_list(c, &c->free, CL_FREE, -1);
	for (int o = 0; o <= MAX_ORDER; o++)
		on_lists += count_list(c, &c->partial[o], CL_PARTIAL, o) +
			    count_list(c, &c->frag[o], CL_FRAG, o);
	for (uint32_t i = 0; i < c->nr_touched; i++) {
		check_cluster(c, &c->tab[i]);
		used += c->tab[i].used;
		with_state += c->tab[i].state != CL_NONE;
	}
	if (on_lists != with_state || used != c->used_slots)
		swap_bug("clusters: %u on lists, %u should be; %llu slots used, %u counted",
			 on_lists, with_state, (unsigned long long)used, c->used_slots);
	us_mutex_unlock(&c->lock);
}
