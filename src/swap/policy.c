/* SPDX-License-Identifier: MIT */
/*
 * The policies without locks, and the table of all.
 *
 * A turn is a word for each CPU and ring: which peer, and how many pages it may still give. The
 * word belongs to the CPU by custom only. Threads that share a CPU, and one that is moved to another
 * between reading the word and writing it, write plainly over each other. What that can break: a
 * turn may be longer by what the other took, or go back to the peer that had it before, once for each
 * such event. What it cannot break: which devices this walk asks (queue.c), each at most
 * once, and that the word names a peer: whoever reads it checks it against the ring as it is.
 */
#include <string.h>

#include "swap/queue_internal.h"

/* ---- the word ---- */

#define TURN_SET (1ull << 63) /* else it has never been used */
#define MAX_TURNS 16u
#define TICKET_CPUS_PER_PEER 4u

struct turn_word {
	uint32_t at;   /* position - first of the group */
	uint32_t left; /* pages */
};

static struct turn_word turn_load(_Atomic uint64_t *word, unsigned int cpu, unsigned int nr,
				  bool *is_new)
{
	uint64_t v = atomic_load_explicit(word, memory_order_relaxed);

	*is_new = !(v & TURN_SET);
	/* Where they do not draw tickets CPUs begin at different peers all the same. */
	if (*is_new)
		return (struct turn_word){.at = cpu % nr};
	return (struct turn_word){.at = v & 0xff, .left = (uint32_t)(v >> 8)};
}

static void turn_store(_Atomic uint64_t *word, struct turn_word t)
{
	atomic_store_explicit(word, TURN_SET | (uint64_t)t.left << 8 | t.at, memory_order_relaxed);
}

/* ---- rings ---- */

/* The first of `left` at or after position `at`, or else the first of all. */
static unsigned int next_round(uint64_t left, unsigned int at)
{
	uint64_t ahead = left & (~0ull << at);

	return (unsigned int)__builtin_ctzll(ahead ? ahead : left);
}

/*
 * Which peer is next. Where CPUs are few, they draw from one counter, as tickets: else two that
 * go round by themselves at the same speed, once they share a peer, go on sharing it turn after turn
 * (up to a quarter slower with 2 CPUs on 8 devices). One locked instruction a turn, 512 pages, is cheap
 * then. Where CPUs are many every peer is shared anyway, and each goes round by itself.
 */
static unsigned int next_turn(struct queue_walk *w, unsigned int at, bool is_first)
{
	unsigned int nr = w->g->nr, nr_cpus = w->q->cfg.nr_cpus;

	if (nr_cpus > 1 && nr_cpus <= TICKET_CPUS_PER_PEER * nr)
		return atomic_fetch_add_explicit(&w->g->ring->tickets, 1, memory_order_relaxed) %
		       nr;
	if (is_first)
		return at; /* the CPU's own start */
	return at + 1 < nr ? at + 1 : 0;
}

/* Nearly always: whose turn it is has pages left and is open. The same as below, in fewer steps. */
static bool turn_goes_on(struct queue_walk *w, _Atomic uint64_t *word, uint64_t left,
			 uint32_t need_pages, unsigned int *pos)
{
	uint64_t v = atomic_load_explicit(word, memory_order_relaxed);
	uint32_t at = v & 0xff, pages = (uint32_t)(v >> 8);

	*pos = w->g->first + at;
	if (!(v & TURN_SET) || pages < MAX(need_pages, w->nr_pages) || at >= w->g->nr ||
	    !(left & 1ull << *pos))
		return false;
	w->cursor = at;
	atomic_store_explicit(word, v - ((uint64_t)w->nr_pages << 8), memory_order_relaxed);
	return true;
}

/*
 * The walk takes the turn over as it finds it and keeps its place for itself (w->cursor), so that
 * it goes round the ring from there however others move the turn meanwhile. `turn_pages` tells how
 * long the turn of a peer is; need_pages, how much of one must be left for this request.
 */
static unsigned int pick_in_turn(struct queue_walk *w, uint64_t left, uint32_t need_pages,
				 uint32_t (*turn_pages)(struct queue_walk *w, unsigned int pos))
{
	_Atomic uint64_t *word = queue_word(w->q, w->cpu, w->g->ring);
	unsigned int first = w->g->first, nr = w->g->nr, pos;
	struct turn_word t;
	bool is_new;

	if (likely(!w->step) && turn_goes_on(w, word, left, need_pages, &pos))
		return pos;
	t = turn_load(word, w->cpu, nr, &is_new);
	if (w->step == 0) {
		if (is_new || t.at >= nr || t.left < need_pages) {
			t.at = next_turn(w, t.at, is_new);
			is_new = true;
		}
		w->cursor = t.at;
	}
#ifdef USWAP_MUTANT_QUEUE_CURSOR
	w->cursor = w->step ? (t.at + 1) % nr : t.at;
#endif
	pos = next_round(left, first + w->cursor);
	/* Whoever it is now has the turn, also if the ones before are closed or had no run. */
	if (is_new || pos != first + t.at)
		t = (struct turn_word){.at = pos - first, .left = turn_pages(w, pos)};
	/* Charged before it is known whether it has a run: a peer without one must not keep it. */
	t.left -= MIN(t.left, w->nr_pages);
	turn_store(word, t);
	return pos;
}

static uint32_t plain_turn(struct queue_walk *w, unsigned int pos)
{
	return w->q->devs[w->l->number[pos]].turn_pages;
}

static unsigned int ring_pick(struct queue_walk *w, uint64_t left)
{
	return pick_in_turn(w, left, w->nr_pages, plain_turn);
}

/* ---- weighted ---- */

/*
 * What a peer's share is measured by: weights, where any peer has one (those without count 1),
 * else speeds (those not measured yet count as the mean of the others), else nothing.
 */
struct shares {
	bool weights;
	uint64_t mean_speed;
};

static struct shares shares_of(struct queue_walk *w)
{
	uint64_t sum = 0, measured = 0;
	struct shares s = {0};

	for (unsigned int i = 0; i < w->g->nr; i++) {
		struct queue_dev *d = &w->q->devs[w->l->number[w->g->first + i]];
		uint64_t speed = atomic_load_explicit(&d->speed, memory_order_relaxed);

		s.weights |= atomic_load_explicit(&d->weight, memory_order_relaxed) != 0;
		sum += speed;
		measured += speed != 0;
	}
	s.mean_speed = measured ? MAX(sum / measured, (uint64_t)1) : 1;
	return s;
}

static uint64_t share(struct queue_walk *w, const struct shares *s, unsigned int pos)
{
	struct queue_dev *d = &w->q->devs[w->l->number[pos]];
	uint64_t value = s->weights ? atomic_load_explicit(&d->weight, memory_order_relaxed) :
				      atomic_load_explicit(&d->speed, memory_order_relaxed);

	return value ? value : s->weights ? 1 : s->mean_speed;
}

/*
 * The smallest share gets one plain turn, the others in proportion, up to MAX_TURNS of them: so a
 * device whose speed was measured wrongly is still used, and measured again. What is plain is what
 * the shortest of the peers is.
 */
static uint32_t weighted_turn(struct queue_walk *w, unsigned int pos)
{
	struct shares s = shares_of(w);
	uint64_t own = share(w, &s, pos), least = own;
	uint32_t plain = QUEUE_QUOTA_PAGES;

	for (unsigned int i = 0; i < w->g->nr; i++) {
		least = MIN(least, share(w, &s, w->g->first + i));
		plain = MIN(plain, plain_turn(w, w->g->first + i));
	}
	/* own <= least * MAX is asked first, so that nothing overflows. */
	if (own / MAX_TURNS >= least)
		return MAX_TURNS * plain;
	return (uint32_t)(own * plain / least);
}

/* A turn need not be a multiple of the request: half of it left is enough, to be right on average. */
static unsigned int weighted_pick(struct queue_walk *w, uint64_t left)
{
	return pick_in_turn(w, left, (w->nr_pages + 1) / 2, weighted_turn);
}

/* ---- one after the other ---- */

static unsigned int fill_pick(struct queue_walk *w, uint64_t left)
{
	return (unsigned int)__builtin_ctzll(left);
}

static unsigned int node_pick(struct queue_walk *w, uint64_t left)
{
	unsigned int node = w->home ? w->home - 1 : w->q->node_of_cpu[w->cpu];
	uint64_t near = left & w->l->on_node[node];

	return (unsigned int)__builtin_ctzll(near ? near : left);
}

/* ---- the table ---- */

static const struct queue_policy_ops policy_queue = {
	.name = "queue", .scope = SCOPE_BAND, .skip_if_alone = true, .pick = ring_pick};
static const struct queue_policy_ops policy_priority = {
	.name = "priority", .scope = SCOPE_PRIO, .skip_if_alone = true, .pick = ring_pick};
static const struct queue_policy_ops policy_weighted = {
	.name = "weighted", .scope = SCOPE_BAND, .skip_if_alone = true, .pick = weighted_pick};
static const struct queue_policy_ops policy_node = {
	.name = "node", .scope = SCOPE_BAND, .skip_if_alone = true, .pick = node_pick};
static const struct queue_policy_ops policy_fill = {
	.name = "fill", .scope = SCOPE_BAND, .skip_if_alone = true, .pick = fill_pick};

static const struct queue_policy_ops *const policies[NR_POLICIES] = {
	[POLICY_QUEUE] = &policy_queue,
	[POLICY_PLIST_SHARED] = &policy_plist_shared,
	[POLICY_PLIST_PERCPU] = &policy_plist_percpu,
	[POLICY_NODE] = &policy_node,
	[POLICY_FILL] = &policy_fill,
	[POLICY_WEIGHTED] = &policy_weighted,
	[POLICY_PRIORITY] = &policy_priority,
};

const struct queue_policy_ops *policy_ops(enum queue_policy policy)
{
	return policies[policy];
}

enum queue_policy policy_by_name(const char *name)
{
	for (unsigned int p = POLICY_QUEUE; p < NR_POLICIES; p++)
		if (!strcmp(policies[p]->name, name))
			return (enum queue_policy)p;
	return POLICY_DEFAULT;
}

const char *policy_name(enum queue_policy policy)
{
	return policy == POLICY_DEFAULT ? "default" : policies[policy]->name;
}
