/* SPDX-License-Identifier: MIT */
#include "mm/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Levels from the root: bits 39-47, 30-38, 21-29; the leaf has bits 12-20. */
#define LEVELS 3
#define MAX_LEAVES (1ull << 21) /* 4 TiB of managed addresses */

static unsigned int level_index(uint64_t va, int level)
{
	return (unsigned int)(va >> (39 - 9 * level)) & 511;
}

int table_pools_init(struct table_pools *p)
{
	int r = mem_pool_init(&p->nodes, sizeof(struct node), MAX_LEAVES / 4);

	return r ? r : mem_pool_init(&p->leaves, sizeof(struct leaf), MAX_LEAVES);
}

void table_pools_deinit(struct table_pools *p)
{
	mem_pool_deinit(&p->nodes);
	mem_pool_deinit(&p->leaves);
}

void table_init(struct table *t, struct table_pools *pools)
{
	*t = (struct table){.pools = pools};
}

static void free_level(struct table *t, struct node *n, int level)
{
	if (!n)
		return;
	for (int i = 0; i < 512; i++) {
		if (!n->child[i])
			continue;
		if (level == LEVELS - 1)
			mem_pool_free(&t->pools->leaves, n->child[i]);
		else
			free_level(t, n->child[i], level + 1);
	}
	mem_pool_free(&t->pools->nodes, n);
}

void table_deinit(struct table *t)
{
	free_level(t, t->root, 0);
	t->root = NULL;
	atomic_store(&t->nr_resident, 0);
	atomic_store(&t->nr_swapped, 0);
}

struct leaf *table_leaf(struct table *t, uint64_t va, bool create)
{
	void **slot = (void **)&t->root;
	struct leaf *l;

	if (va >> 47)
		return NULL;
	for (int level = 0; level < LEVELS; level++) {
		if (!*slot && create)
			*slot = mem_pool_alloc(&t->pools->nodes);
		if (!*slot)
			return NULL;
		slot = &((struct node *)*slot)->child[level_index(va, level)];
	}
	if (*slot || !create)
		return *slot;
	l = *slot = mem_pool_alloc(&t->pools->leaves);
	if (l)
		l->order = ORDER_UNKNOWN;
	return l;
}

static struct leaf *next_in(struct node *n, int level, uint64_t *va, uint64_t end)
{
	uint64_t span = 1ull << (39 - 9 * level);

	for (unsigned int i = level_index(*va, level); i < 512 && *va < end; i++) {
		uint64_t base = align_down(*va, span);
		void *c = n->child[i];
		struct leaf *l = NULL;

		if (c && level == LEVELS - 1)
			return c;
		if (c)
			l = next_in(c, level + 1, va, end);
		if (l)
			return l;
		*va = base + span;
		if (*va >> 47)
			return NULL;
	}
	return NULL;
}

struct leaf *table_next_leaf(struct table *t, uint64_t *va, uint64_t end)
{
	struct leaf *l;

	if (!t->root || *va >> 47)
		return NULL;
	*va = leaf_base(*va);
	l = next_in(t->root, 0, va, end);
	return *va < end ? l : NULL;
}

pw_t table_get(struct table *t, uint64_t va)
{
	struct leaf *l = table_leaf(t, va, false);

	return l ? l->w[leaf_index(va)] : 0;
}

bool table_any(struct table *t, uint64_t start, uint64_t end)
{
	uint64_t base = start;
	struct leaf *l;

	for (; (l = table_next_leaf(t, &base, end)); base += LEAF_BYTES) {
		unsigned int a = base < start ? leaf_index(start) : 0;
		unsigned int b = base + LEAF_BYTES > end ? leaf_index(end - 1) + 1 : LEAF_PAGES;

		for (unsigned int i = a; i < b; i++)
			if (l->w[i])
				return true;
	}
	return false;
}

static int counts_resident(pw_t w)
{
	return pw_state(w) == PW_RESIDENT;
}

static int counts_swapped(pw_t w)
{
	return pw_state(w) == PW_OUT || pw_state(w) == PW_ISOLATED;
}

/* The lock makes this the only writer: no locked instruction is needed. */
static void count(_Atomic uint64_t *n, int change)
{
	uint64_t now = atomic_load_explicit(n, memory_order_relaxed);

	atomic_store_explicit(n, now + (uint64_t)(int64_t)change, memory_order_relaxed);
}

void table_set(struct table *t, struct leaf *l, unsigned int idx, pw_t w)
{
	int res = counts_resident(w) - counts_resident(l->w[idx]);
	int out = counts_swapped(w) - counts_swapped(l->w[idx]);

	if (counts_resident(w) && (!l->nr_resident || (int8_t)(pw_gen(w) - l->oldest_gen) < 0))
		l->oldest_gen = pw_gen(w);
	l->w[idx] = w;
	l->nr_resident = (uint16_t)(l->nr_resident + res);
	l->nr_swapped = (uint16_t)(l->nr_swapped + out);
	count(&t->nr_resident, res);
	count(&t->nr_swapped, out);
}

void table_check(struct table *t)
{
	uint64_t va = 0, resident = 0, swapped = 0;
	struct leaf *l;

	for (; (l = table_next_leaf(t, &va, 1ull << 47)); va += LEAF_BYTES) {
		unsigned int res = 0, out = 0;

		for (unsigned int i = 0; i < LEAF_PAGES; i++) {
			res += (unsigned int)counts_resident(l->w[i]);
			out += (unsigned int)counts_swapped(l->w[i]);
		}
		if (res != l->nr_resident || out != l->nr_swapped) {
			fprintf(stderr, "table: leaf %llx counts %u/%u, has %u/%u\n",
				(unsigned long long)va, l->nr_resident, l->nr_swapped, res, out);
			abort();
		}
		resident += res;
		swapped += out;
	}
	if (resident != t->nr_resident || swapped != t->nr_swapped) {
		fprintf(stderr, "table: counts do not add up\n");
		abort();
	}
}
