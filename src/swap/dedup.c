/* SPDX-License-Identifier: MIT */
#include "swap/dedup.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

LOCK_CLASS(dedup_class, "swap_dedup", RANK_DEDUP);

#define DEDUP_MIN_BUCKETS 1024u

int dedup_init(struct dedup *d, struct entry_table *t)
{
	d->table = t;
	d->max_buckets = DEDUP_MIN_BUCKETS;
	while (d->max_buckets < t->max_entries && d->max_buckets < 1u << 31)
		d->max_buckets *= 2;
	d->buckets = mem_reserve((size_t)d->max_buckets * sizeof(uint32_t));
	if (!d->buckets)
		return -ENOMEM;
	us_mutex_init(&d->lock, &dedup_class);
	d->nr_entries = 0;
	d->nr_buckets = DEDUP_MIN_BUCKETS;
	d->level = DEDUP_MIN_BUCKETS;
	return 0;
}

void dedup_deinit(struct dedup *d)
{
	if (!d->buckets)
		return;
	mem_release(d->buckets, (size_t)d->max_buckets * sizeof(uint32_t));
	d->buckets = NULL;
	us_mutex_deinit(&d->lock);
}

uint64_t dedup_bytes(struct dedup *d)
{
	uint64_t n;

	us_mutex_lock(&d->lock);
	n = d->nr_buckets;
	us_mutex_unlock(&d->lock);
	return align_up(n * sizeof(uint32_t), PAGE_SIZE);
}

/* Buckets below the split point have been split in this round: one bit more tells them apart. */
static uint32_t bucket_of(const struct dedup *d, const struct entry *p)
{
	uint32_t b = (uint32_t)(p->hash.lo & (d->level - 1));

	if (b < d->nr_buckets - d->level)
		b = (uint32_t)(p->hash.lo & (2ull * d->level - 1));
	return b;
}

static swp_t next_of(const struct dedup *d, swp_t e)
{
	return entry_of(d->table, e)->chain & ~ENTRY_INDEXED;
}

static void set_next(struct dedup *d, swp_t e, swp_t next)
{
	entry_of(d->table, e)->chain = next | ENTRY_INDEXED;
}

static void split_one_bucket(struct dedup *d)
{
	uint32_t from = d->nr_buckets - d->level;
	uint32_t e = d->buckets[from];

	if (d->nr_buckets == d->max_buckets)
		return;
	d->nr_buckets++;
	d->buckets[from] = 0;
	d->buckets[from + d->level] = 0;
	while (e) {
		swp_t next = next_of(d, e);
		uint32_t b = bucket_of(d, entry_of(d->table, e));

		set_next(d, e, d->buckets[b]);
		d->buckets[b] = e;
		e = next;
	}
	if (d->nr_buckets == 2 * d->level)
		d->level *= 2;
}

swp_t dedup_find_or_insert(struct dedup *d, swp_t e)
{
	struct entry *p = entry_of(d->table, e);
	uint32_t b;

	us_mutex_lock(&d->lock);
	b = bucket_of(d, p);
	for (swp_t f = d->buckets[b]; f; f = next_of(d, f)) {
		struct entry *q = entry_of(d->table, f);

		if (q->order != p->order || q->class != p->class ||
		    !hash_equal(q->hash, p->hash) || !entry_try_get(q))
			continue;
		us_mutex_unlock(&d->lock);
		return f;
	}
	set_next(d, e, d->buckets[b]);
	d->buckets[b] = e;
	d->nr_entries++;
	if (d->nr_entries > d->nr_buckets)
		split_one_bucket(d);
	us_mutex_unlock(&d->lock);
	return e;
}

/* lock held. */
static void unlink_entry(struct dedup *d, swp_t e)
{
	struct entry *p = entry_of(d->table, e);
	swp_t prev = 0, f;
	uint32_t b;

	if (!entry_is_indexed(p))
		return;
	b = bucket_of(d, p);
	for (f = d->buckets[b]; f && f != e; f = next_of(d, f))
		prev = f;
	if (!f)
		swap_bug("entry %u is not in its bucket", e);
	if (prev)
		set_next(d, prev, next_of(d, e));
	else
		d->buckets[b] = next_of(d, e);
	p->chain = 0;
	d->nr_entries--;
}

void dedup_remove(struct dedup *d, swp_t e)
{
	us_mutex_lock(&d->lock);
	unlink_entry(d, e);
	us_mutex_unlock(&d->lock);
}

bool dedup_remove_if(struct dedup *d, swp_t e, uint32_t refs)
{
	bool exact;

	us_mutex_lock(&d->lock);
	exact = atomic_load_explicit(&entry_of(d->table, e)->refs, memory_order_acquire) == refs;
	if (exact)
		unlink_entry(d, e);
	us_mutex_unlock(&d->lock);
	return exact;
}

void dedup_check(struct dedup *d)
{
	uint32_t n = 0;

	us_mutex_lock(&d->lock);
	if (d->nr_buckets < d->level || d->nr_buckets >= 2 * d->level ||
	    d->nr_buckets > d->max_buckets)
		swap_bug("index: %u buckets at level %u", d->nr_buckets, d->level);
	for (uint32_t b = 0; b < d->nr_buckets; b++) {
		for (swp_t e = d->buckets[b]; e; e = next_of(d, e)) {
			struct entry *p = entry_of(d->table, e);

			if (!entry_is_indexed(p) || bucket_of(d, p) != b)
				swap_bug("entry %u is in bucket %u by mistake", e, b);
			if (p->kind != ENTRY_CACHED && p->kind != ENTRY_DEVICE &&
			    p->kind != ENTRY_SPLIT)
				swap_bug("entry %u of kind %u is indexed", e, p->kind);
			n++;
		}
	}
	if (n != d->nr_entries)
		swap_bug("index holds %u entries, counts %u", n, d->nr_entries);
	us_mutex_unlock(&d->lock);
}
