/* SPDX-License-Identifier: MIT */
#include "cluster_history.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swap/cluster.h"

#define NR_CLUSTERS 5
#define MAX_SLOTS (NR_CLUSTERS * CLUSTER_SLOTS - 100)
#define MAX_RUNS MAX_SLOTS

struct cluster_history_stats cluster_history_stats;
#define stats cluster_history_stats

enum { SLOT_FREE, SLOT_KEPT, SLOT_BAD, SLOT_USED }; /* SLOT_USED + run */

struct run {
	uint32_t slot;
	unsigned int order;
	bool live, owned, cached, pinned;
};

struct model {
	const uint8_t *at, *end;
	struct clusters c;
	struct clusters_config cfg;
	uint32_t size;
	uint32_t word[MAX_SLOTS];
	struct run runs[MAX_RUNS + 1]; /* the owner's number is the index */
	uint32_t live[MAX_RUNS], nr_live;
	uint32_t nr_used, nr_bad, peak;
	bool enabled, fail_discard, in_window;
	bool dirty[NR_CLUSTERS]; /* must be discarded before it is used */
	struct clusters_window w;
};

static struct model *m; /* the host's calls need it; histories run one after the other */

static void __attribute__((noreturn)) __printf(1, 2) wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("cluster history: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

static unsigned int draw(void)
{
	return m->at < m->end ? *m->at++ : 0;
}

/* ---- the model ---- */

static bool in_window(uint32_t slot)
{
	return m->in_window && slot >= m->w.slot && slot < m->w.slot + (1u << m->w.order);
}

/* Nothing in it that would hold it back from the free list. */
static bool is_empty(uint32_t cluster)
{
	for (uint32_t s = cluster * CLUSTER_SLOTS; s < (cluster + 1) * CLUSTER_SLOTS; s++)
		if (!s || s >= m->size || m->word[s] != SLOT_FREE)
			return false;
	return true;
}

static bool has_table(uint32_t cluster)
{
	for (uint32_t s = cluster * CLUSTER_SLOTS; s < (cluster + 1) * CLUSTER_SLOTS; s++)
		if (s < m->size && (m->word[s] >= SLOT_USED || m->word[s] == SLOT_KEPT))
			return true;
	return false;
}

/* Whether a run could be had, were there memory for one more table, or with those there are. */
static bool has_run(unsigned int order, bool with_table)
{
	uint32_t n = 1u << order;

	for (uint32_t s = 0; s + n <= m->size; s += n) {
		uint32_t k = 0;

		while (k < n && s + k && m->word[s + k] == SLOT_FREE)
			k++;
		if (k == n && (!with_table || has_table(s / CLUSTER_SLOTS)))
			return true;
	}
	return false;
}

static bool may_refuse(unsigned int order)
{
	uint32_t tables = 0;

	if (!m->enabled || !has_run(order, false))
		return true;
	for (uint32_t i = 0; i < NR_CLUSTERS; i++)
		tables += has_table(i);
	return m->cfg.max_tables && tables >= m->cfg.max_tables && !has_run(order, true);
}

static void use(uint32_t slot, unsigned int order)
{
	uint32_t id = 1, n = 1u << order;

	if (!slot || slot % n || slot + n > m->size)
		wrong("slot %u of order %u", slot, order);
	if (m->dirty[slot / CLUSTER_SLOTS])
		wrong("slot %u is used before it was discarded", slot);
	while (m->runs[id].live)
		id++;
	for (uint32_t s = slot; s < slot + n; s++) {
		if (m->word[s] != SLOT_FREE)
			wrong("slot %u is given out, but is in state %u", s, m->word[s]);
		m->word[s] = SLOT_USED + id;
	}
	m->runs[id] = (struct run){.slot = slot, .order = order, .live = true};
	m->live[m->nr_live++] = id;
	m->nr_used += n;
	m->peak = m->nr_used > m->peak ? m->nr_used : m->peak;
	/* Some are being written still, so nobody owns them. */
	if (draw() % 8) {
		m->runs[id].owned = true;
		clusters_set_owner(&m->c, slot, order, id);
	}
}

static void drop(uint32_t id)
{
	struct run *r = &m->runs[id];
	uint32_t cluster = r->slot / CLUSTER_SLOTS, i = 0;
	bool freed = false;

	for (uint32_t s = r->slot; s < r->slot + (1u << r->order); s++) {
		if (m->word[s] != SLOT_USED + id)
			wrong("the model lost slot %u", s);
		m->word[s] = in_window(s) ? SLOT_KEPT : SLOT_FREE;
		freed |= m->word[s] == SLOT_FREE;
	}
	m->nr_used -= 1u << r->order;
	while (m->live[i] != id)
		i++;
	m->live[i] = m->live[--m->nr_live];
	r->live = false;
	if (freed && m->cfg.discard && m->enabled && is_empty(cluster))
		m->dirty[cluster] = true;
	clusters_free(&m->c, r->slot, r->order);
	stats.frees++;
}

/* ---- the host ---- */

static bool is_cached(void *host, uint32_t owner)
{
	(void)host;
	if (!m->runs[owner].live || !m->runs[owner].owned)
		wrong("owner %u is asked for, which has no slots", owner);
	return m->runs[owner].cached;
}

static bool reclaim(void *host, uint32_t slot, uint32_t owner)
{
	struct run *r = &m->runs[owner];

	(void)host;
	if (!r->live || slot < r->slot || slot >= r->slot + (1u << r->order))
		wrong("slot %u does not belong to %u", slot, owner);
	/* The test is made once for several that are reclaimed. */
	if (m->nr_used + CLUSTER_SLOTS <= (m->size - 1 - m->nr_bad) / 2)
		wrong("cached slots are reclaimed while there is room");
	if (r->pinned)
		return false;
	drop(owner);
	stats.reclaimed++;
	return true;
}

static int discard(void *host, uint32_t slot, uint32_t nr)
{
	uint32_t cluster = slot / CLUSTER_SLOTS;

	(void)host;
	if (nr != CLUSTER_SLOTS || slot % CLUSTER_SLOTS || !is_empty(cluster))
		wrong("slots from %u on are discarded, but in use", slot);
	if (!m->dirty[cluster])
		wrong("cluster %u is discarded twice", cluster);
	m->dirty[cluster] = false;
	stats.discards++;
	return m->fail_discard ? -EIO : 0;
}

static const struct clusters_ops ops = {is_cached, reclaim, discard};

/* ---- calls ---- */

static void call_alloc(void)
{
	unsigned int order = draw() % (MAX_ORDER + 1);
	uint32_t slot = clusters_alloc(&m->c, order);

	if (slot) {
		if (!m->enabled)
			wrong("slot %u is given out while disabled", slot);
		use(slot, order);
		stats.allocs++;
	} else {
		if (!may_refuse(order))
			wrong("order %u is refused, but there is a run", order);
		stats.refused++;
	}
}

static uint32_t draw_run(void)
{
	unsigned int a = draw();

	return m->nr_live ? m->live[(a * 256 + draw()) % m->nr_live] : 0;
}

static void call_free(void)
{
	uint32_t id = draw_run();

	if (id)
		drop(id);
}

static void change_cached(void)
{
	unsigned int n = draw() % 32, bits = draw();

	for (unsigned int i = 0; i < n; i++) {
		uint32_t id = draw_run();

		m->runs[id].cached = bits & 1;
		m->runs[id].pinned = bits & 2;
	}
}

static void change_enabled(void)
{
	m->enabled = draw() % 4;
	if (m->enabled)
		clusters_enable(&m->c);
	else
		clusters_disable(&m->c);
}

static void call_discard(void)
{
	unsigned int want = draw() % 4, dirty = 0, n;

	m->fail_discard = draw() % 2;
	for (uint32_t i = 0; i < NR_CLUSTERS; i++)
		dirty += m->dirty[i];
	n = clusters_discard_some(&m->c, want);
	if (n != (want < dirty ? want : dirty))
		wrong("%u of %u clusters are discarded, %u wanted", n, dirty, want);
}

static void call_reclaim_full(void)
{
	uint64_t before = stats.reclaimed;

	if (clusters_reclaim_full(&m->c) != stats.reclaimed - before)
		wrong("the pass over full clusters says something else than it did");
}

static void check_window(unsigned int max_owners)
{
	uint32_t n = 1u << m->w.order, named = 0;

	if (m->w.nr > max_owners || m->w.slot % n || m->w.slot + n > m->size)
		wrong("window at %u with %u owners", m->w.slot, m->w.nr);
	for (unsigned int i = 0; i < m->w.nr; i++) {
		struct run *r = &m->runs[m->w.owner[i]];

		if (!r->live || !r->owned || r->slot < m->w.slot ||
		    r->slot + (1u << r->order) > m->w.slot + n)
			wrong("window at %u names owner %u", m->w.slot, m->w.owner[i]);
		for (unsigned int k = 0; k < i; k++)
			if (m->w.owner[k] == m->w.owner[i])
				wrong("an owner is named twice");
		named += 1u << r->order;
	}
	for (uint32_t s = m->w.slot; s < m->w.slot + n; s++) {
		if (!s || m->word[s] == SLOT_BAD)
			wrong("a window covers slot %u, which is masked", s);
		if (m->word[s] == SLOT_FREE)
			m->word[s] = SLOT_KEPT;
		named += m->word[s] == SLOT_KEPT;
	}
	if (named != n)
		wrong("window at %u does not name all that is in it", m->w.slot);
	if (m->size - 1 - m->nr_bad - m->nr_used < n)
		wrong("a window opened although its owners find no room");
}

static void call_window_open(void)
{
	unsigned int order = draw() % (MAX_ORDER + 1), max = draw() * 2 + 1;
	bool open;

	max = max > CLUSTER_SLOTS ? CLUSTER_SLOTS : max;
	open = clusters_window_open(&m->c, order, max, &m->w);
	if (open && (m->in_window || !m->enabled))
		wrong("a window opened that must not");
	if (!open)
		return;
	m->in_window = true;
	check_window(max);
	/* An empty cluster is not empty any more. */
	stats.windows++;
}

/* The mover: finds another place for an owner, and frees the slots in the window. */
static void call_move(void)
{
	unsigned int n = draw();
	struct run *r;
	uint32_t slot;

	for (; m->in_window && n; n--) {
		unsigned int i = 0;

		while (i < m->w.nr &&
		       (!m->runs[m->w.owner[i]].live || !in_window(m->runs[m->w.owner[i]].slot)))
			i++;
		if (i == m->w.nr)
			return;
		r = &m->runs[m->w.owner[i]];
		slot = clusters_alloc(&m->c, r->order);
		if (!slot)
			return;
		if (in_window(slot))
			wrong("slot %u of the window is given out", slot);
		use(slot, r->order);
		/* The owner may have been reclaimed to make room. */
		if (r->live)
			drop(m->w.owner[i]);
	}
}

static void call_window_close(void)
{
	uint32_t slot, end, kept = 0, n;
	bool freed = false;

	if (!m->in_window)
		return;
	n = 1u << m->w.order;
	end = m->w.slot + n;
	for (uint32_t s = m->w.slot; s < end; s++)
		kept += m->word[s] == SLOT_KEPT;
	slot = clusters_window_close(&m->c, &m->w);
	m->in_window = false;
	if (slot != (kept == n && m->enabled ? m->w.slot : 0))
		wrong("window at %u, %u of %u clear: closing gives %u", m->w.slot, kept, n, slot);
	for (uint32_t s = m->w.slot; s < end; s++) {
		if (m->word[s] != SLOT_KEPT)
			continue;
		m->word[s] = SLOT_FREE;
		freed = true;
	}
	if (slot) {
		use(slot, m->w.order);
		stats.cleared++;
	} else if (m->cfg.discard && m->enabled && freed && is_empty(m->w.slot / CLUSTER_SLOTS)) {
		m->dirty[m->w.slot / CLUSTER_SLOTS] = true;
	}
}

static bool claim(void *host, uint32_t owner)
{
	(void)host;
	return m->runs[owner].live && m->runs[owner].owned && owner % 7;
}

static void call_collect(void)
{
	unsigned int max = draw() + 1, n;
	uint32_t cursor = 0, out[256], found = 0, expected = 0;
	static uint8_t seen[MAX_RUNS + 1];

	memset(seen, 0, sizeof(seen));
	while ((n = clusters_collect(&m->c, &cursor, claim, NULL, out, max))) {
		for (unsigned int i = 0; i < n; i++) {
			if (seen[out[i]]++)
				wrong("owner %u is collected twice", out[i]);
			found++;
		}
	}
	for (uint32_t i = 0; i < m->nr_live; i++)
		expected += claim(NULL, m->live[i]);
	if (found != expected || cursor < m->size)
		wrong("%u owners collected, there are %u", found, expected);
	stats.collected += found;
}

static void call_grow(void)
{
	uint32_t old = m->size, size = old + draw() * 2;

	size = size > MAX_SLOTS ? MAX_SLOTS : size;
	clusters_set_size(&m->c, size);
	m->size = size > old ? size : old;
	stats.grown += size - old;
}

static void call_mark_bad(void)
{
	uint32_t slot = (draw() * 256 + draw()) % (MAX_SLOTS + 10);
	int err = clusters_mark_bad(&m->c, slot);

	if (!slot || slot >= m->size) {
		if (err != -EINVAL)
			wrong("bad slot %u outside: %d", slot, err);
	} else if (m->word[slot] == SLOT_BAD) {
		if (err != -EEXIST)
			wrong("bad slot %u twice: %d", slot, err);
	} else if (err == 0) {
		if (m->word[slot] != SLOT_FREE)
			wrong("slot %u is in use, and bad", slot);
		m->word[slot] = SLOT_BAD;
		m->nr_bad++;
	} else if (err != -EBUSY ||
		   !(has_table(slot / CLUSTER_SLOTS) || m->dirty[slot / CLUSTER_SLOTS])) {
		wrong("bad slot %u: %d", slot, err);
	}
}

static void compare(void)
{
	uint32_t used, peak, usable;

	clusters_check(&m->c);
	clusters_usage(&m->c, &used, &peak, &usable);
	if (used != m->nr_used || usable != (m->size ? m->size - 1 - m->nr_bad : 0) ||
	    peak < m->peak)
		wrong("%u used (%u), peak %u (%u), %u usable", used, m->nr_used, peak, m->peak,
		      usable);
}

static void step(void)
{
	unsigned int op = draw();

	switch (op % 32) {
	case 0 ... 10:
		call_alloc();
		break;
	case 11 ... 19:
		call_free();
		break;
	case 20 ... 21:
		change_cached();
		break;
	case 22:
		change_enabled();
		break;
	case 23:
		call_discard();
		break;
	case 24:
		call_reclaim_full();
		break;
	case 25 ... 26:
		call_window_open();
		break;
	case 27:
		call_move();
		break;
	case 28:
		call_window_close();
		break;
	case 29:
		call_collect();
		break;
	case 30:
		call_grow();
		break;
	default:
		if (op >= 128)
			call_mark_bad();
		else
			for (unsigned int n = draw(); n; n--)
				call_alloc();
		break;
	}
	compare();
}

void cluster_history_run(const uint8_t *bytes, size_t len)
{
	unsigned int kind;

	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	m->at = bytes;
	m->end = bytes + len;
	kind = draw();
	m->cfg.rotational = kind & 1;
	m->cfg.discard = kind & 2;
	m->cfg.ops = kind & 4 ? &ops : NULL;
	m->cfg.max_tables = kind & 8 ? 1 + (kind >> 6) : 0;
	m->cfg.discard = m->cfg.discard && m->cfg.ops;
	m->enabled = true;
	if (clusters_init_with(&m->c, MAX_SLOTS, &m->cfg) != 0)
		abort();
	m->size = kind & 16 ? MAX_SLOTS : draw() * 9;
	clusters_set_size(&m->c, m->size);
	while (m->at < m->end)
		step();
	if (m->in_window)
		call_window_close();
	clusters_disable(&m->c);
	m->enabled = false;
	while (m->nr_live)
		drop(m->live[0]);
	compare();
	clusters_deinit(&m->c);
	free(m);
	m = NULL;
}
