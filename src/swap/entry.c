/* SPDX-License-Identifier: MIT */
#include "swap/entry.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

LOCK_CLASS(entry_class, "swap_entry", RANK_ENTRY);
LOCK_CLASS(entry_free_class, "swap_entry_free", RANK_ENTRY);

/* Far below the wrap-around, so that racing readers cannot get past it. */
#define REFS_MAX 0x80000000u

void swap_bug(const char *fmt, ...)
{
	va_list ap;

	fputs("uswap: swap: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

int entry_table_init(struct entry_table *t, uint32_t max_entries)
{
	t->max_entries = max_entries;
	t->entries = mem_reserve((size_t)max_entries * sizeof(struct entry));
	if (!t->entries)
		return -ENOMEM;
	for (int i = 0; i < ENTRY_SHARDS; i++)
		us_mutex_init(&t->shards[i].lock, &entry_class);
	us_mutex_init(&t->free_lock, &entry_free_class);
	t->free_head = 0;
	atomic_init(&t->next_unused, 1);
	atomic_init(&t->nr_live, 0);
	return 0;
}

void entry_table_deinit(struct entry_table *t)
{
	if (!t->entries)
		return;
	mem_release(t->entries, (size_t)t->max_entries * sizeof(struct entry));
	t->entries = NULL;
	for (int i = 0; i < ENTRY_SHARDS; i++)
		us_mutex_deinit(&t->shards[i].lock);
	us_mutex_deinit(&t->free_lock);
}

uint64_t entry_table_bytes(const struct entry_table *t)
{
	return align_up((uint64_t)atomic_load(&t->next_unused) * sizeof(struct entry), PAGE_SIZE);
}

swp_t entry_alloc(struct entry_table *t, enum entry_kind kind, unsigned int order,
		  unsigned int class)
{
	struct entry *p;
	swp_t e = 0;

	us_mutex_lock(&t->free_lock);
	if (t->free_head) {
		e = t->free_head;
		t->free_head = t->entries[e].chain;
	} else if (atomic_load(&t->next_unused) < t->max_entries) {
		e = atomic_fetch_add(&t->next_unused, 1);
	}
	us_mutex_unlock(&t->free_lock);
	if (!e)
		return 0;
	p = entry_of(t, e);
	p->slot = 0;
	p->chain = 0;
	p->kind = kind & 7u;
	p->order = order & 15u;
	p->class = class & 15u;
	p->dev = 0;
	atomic_store_explicit(&p->kept, 0, memory_order_relaxed);
	p->hash = (struct hash128){0, 0};
	atomic_fetch_add_explicit(&t->nr_live, 1, memory_order_relaxed);
	atomic_store_explicit(&p->refs, 1, memory_order_release);
	return e;
}

void entry_free(struct entry_table *t, swp_t e)
{
	struct entry *p = entry_of(t, e);

	p->kind = ENTRY_FREE;
	us_mutex_lock(&t->free_lock);
	p->chain = t->free_head;
	t->free_head = e;
	us_mutex_unlock(&t->free_lock);
	atomic_fetch_sub_explicit(&t->nr_live, 1, memory_order_relaxed);
}

bool entry_try_get(struct entry *p)
{
	uint32_t refs = atomic_load_explicit(&p->refs, memory_order_relaxed);

	do {
#ifndef USWAP_MUTANT_GET_DYING
		if (refs == 0 || refs >= REFS_MAX)
			return false;
#endif
	} while (!atomic_compare_exchange_weak_explicit(&p->refs, &refs, refs + 1,
							memory_order_acquire,
							memory_order_relaxed));
	return true;
}

bool entry_claim(void *host, uint32_t owner)
{
	return entry_try_get(entry_of(host, owner));
}

void entry_assert_live(const struct entry_table *t, swp_t e)
{
	if (unlikely(e == 0 || e >= atomic_load_explicit(&t->next_unused, memory_order_relaxed)))
		swap_bug("entry %u does not exist", e);
	if (unlikely(atomic_load_explicit(&entry_of(t, e)->refs, memory_order_relaxed) == 0))
		swap_bug("entry %u is used after it was freed", e);
}
