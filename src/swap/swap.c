/* SPDX-License-Identifier: MIT */
/*
 * Life of an entry:
 *
 *   swap_new                 -> FILLING   (the creator's reference)
 *   swap_seal                FILLING -> FILLED | CACHED; or the reference moves to an equal entry
 *   swap_writeout            CACHED  -> DEVICE, or SPLIT where no device has room for it whole
 *   swap_reclaim_kept        DEVICE, SPLIT -> GONE
 *   swap_explode             DEVICE  -> one DEVICE entry a page
 *   last swap_put            any     -> free
 *   swap_mark_lost           FILLING -> LOST
 *   swap_abandon             FILLING -> free, or LOST if others refer to it
 */
#include "swap/swap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "swap/internal.h"
#include "swap/relocate.h"
#include "swap/worker.h"
#include "trace/vmstat.h"

LOCK_CLASS(devs_class, "swap_devs", RANK_CACHE - 1);
LOCK_CLASS(class_class, "swap_classes", RANK_CACHE - 1);

#define MAX_ENTRIES (1u << 28)

/* ---- set-up ---- */

static int new_relocator(struct swap *s, struct relocator **r)
{
	*r = calloc(1, sizeof(**r));
	return *r ? relocator_init(*r, s) : -ENOMEM;
}

static void free_relocator(struct relocator *r)
{
	if (r)
		relocator_deinit(r);
	free(r);
}

struct swap *swap_create(const struct swap_config *cfg, int *err)
{
	struct swap *s = calloc(1, sizeof(*s));

	*err = -ENOMEM;
	if (!s)
		return NULL;
	s->cfg = *cfg;
	if (!s->cfg.max_entries)
		s->cfg.max_entries = MAX_ENTRIES;
	us_mutex_init(&s->devs_lock, &devs_class);
	us_mutex_init(&s->class_lock, &class_class);
	atomic_init(&s->nr_classes, 1); /* all zeros: everything, the job's policy */
	gate_init(&s->devs_gate);
	gate_init(&s->split_gate);
	for (unsigned int i = 0; i < MAX_DEVS; i++)
		gate_init(&s->devs[i].gate);
	s->queue = queue_create(&(struct queue_config){.ops = &swap_queue_ops,
						       .node_of_cpu = cfg->node_of_cpu,
						       .host = cfg->host}, err);
	if (!*err)
		*err = entry_table_init(&s->table, s->cfg.max_entries);
	if (!*err)
		*err = dedup_init(&s->dedup, &s->table);
	if (!*err)
		*err = cache_init(&s->cache, s->cfg.cache_bytes);
	if (!*err)
		*err = writeout_init(&s->writeout);
	if (!*err)
		*err = new_relocator(s, &s->relocate_now);
	if (!*err)
		*err = new_relocator(s, &s->relocate_back);
	if (*err) {
		swap_destroy(s);
		return NULL;
	}
	return s;
}

void swap_destroy(struct swap *s)
{
	if (!s)
		return;
	worker_stop(s);
	wait_for_loads(s);
#if USWAP_DEBUG >= 3
	if (s->writeout.lock.cls)
		swap_check(s);
#endif
	for (uint32_t i = 0; i < MAX_DEVS; i++) {
		dev_destroy(s->devs[i].dev);
		swap_dev_deinit_slots(&s->devs[i]);
		gate_deinit(&s->devs[i].gate);
	}
	gate_deinit(&s->devs_gate);
	gate_deinit(&s->split_gate);
	free_relocator(s->relocate_now);
	free_relocator(s->relocate_back);
	writeout_deinit(&s->writeout);
	cache_deinit(&s->cache);
	dedup_deinit(&s->dedup);
	entry_table_deinit(&s->table);
	queue_destroy(s->queue);
	us_mutex_deinit(&s->class_lock);
	us_mutex_deinit(&s->devs_lock);
	free(s);
}

/* ---- into the cache ---- */

void swap_set_home(struct swap *s, swp_t e, int cpu)
{
	if (cpu >= 0)
		s->cache.home[entry_of(&s->table, e)->slot] =
			(uint8_t)(1 + queue_node_of_cpu(s->queue, (unsigned int)cpu));
}

int swap_new(struct swap *s, unsigned int order, unsigned int class, swp_t *e, void **buf)
{
	uint32_t id;
	swp_t n;

	if (order > MAX_ORDER || class >= atomic_load(&s->nr_classes))
		return -EINVAL;
	id = cache_alloc(&s->cache, order);
	if (!id)
		return -ENOBUFS;
	n = entry_alloc(&s->table, ENTRY_FILLING, order, class);
	if (!n) {
		cache_free(&s->cache, id, order);
		return -ENOMEM;
	}
	entry_lock(&s->table, n);
	entry_of(&s->table, n)->slot = id;
	entry_unlock(&s->table, n);
	*e = n;
	*buf = cache_mem(&s->cache, id, order);
	return 0;
}

/* One 8-byte word repeated. The last word differs in most folios that are not. */
static bool same_filled(const void *buf, size_t bytes, uint64_t *value)
{
	const char *p = buf;

	memcpy(value, p, 8);
	if (memcmp(p, p + bytes - 8, 8) != 0)
		return false;
	return memcmp(p, p + 8, bytes - 8) == 0;
}

static void fill_words(void *buf, size_t bytes, uint64_t value)
{
	uint64_t *w = buf;

	for (size_t i = 0; i < bytes / 8; i++)
		w[i] = value;
}

enum swap_sealed swap_seal(struct swap *s, swp_t e, swp_t *out)
{
	struct entry *p = entry_of(&s->table, e);
	unsigned int order = p->order;
	size_t bytes = PAGE_SIZE << order;
	uint32_t id = p->slot;
	const void *mem = cache_mem(&s->cache, id, order);
	struct hash128 hash;
	uint64_t value;

	entry_assert_live(&s->table, e);
	*out = e;
	if (same_filled(mem, bytes, &value)) {
		entry_lock(&s->table, e);
		p->fill_value = value;
		p->slot = 0;
		p->kind = ENTRY_FILLED;
		entry_unlock(&s->table, e);
		atomic_fetch_add(&s->swapped_pages, 1u << order);
		/* Loads of a folio that is being filled do not pin: nobody reads the buffer. */
		cache_free(&s->cache, id, order);
		vmstat_add(VMSTAT_swpout_zero, 1u << order);
		return SWAP_SEALED_FILLED;
	}
	hash = hash_folio(mem, bytes);
	/* Before the index knows e: whoever finds it there must be able to load it. */
	entry_lock(&s->table, e);
	p->hash = hash;
	p->kind = ENTRY_CACHED;
	entry_unlock(&s->table, e);
	cache_queue(&s->cache, id, e);
	*out = dedup_find_or_insert(&s->dedup, e);
	if (*out == e)
		return SWAP_SEALED_CACHED;
	swap_put(s, e, 1);
	return SWAP_SEALED_EQUAL;
}

void swap_mark_lost(struct swap *s, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);
	uint32_t id = p->slot;

	entry_assert_live(&s->table, e);
	if (p->kind != ENTRY_FILLING)
		swap_bug("entry %u is given up after it was sealed", e);
	entry_lock(&s->table, e);
	p->kind = ENTRY_LOST;
	p->slot = 0;
	entry_unlock(&s->table, e);
	cache_free(&s->cache, id, p->order);
}

void swap_abandon(struct swap *s, swp_t e)
{
	/* If somebody does refer to it, that is answered with an error, not with a wrong page. */
	swap_mark_lost(s, e);
	swap_put(s, e, 1);
}

/* ---- references ---- */

void swap_get(struct swap *s, swp_t e, uint32_t n)
{
	entry_assert_live(&s->table, e);
	atomic_fetch_add_explicit(&entry_of(&s->table, e)->refs, n, memory_order_relaxed);
}

void swap_put(struct swap *s, swp_t e, uint32_t n)
{
	uint32_t old;

	if (!n)
		return;
	entry_assert_live(&s->table, e);
	old = atomic_fetch_sub_explicit(&entry_of(&s->table, e)->refs, n, memory_order_acq_rel);
	if (unlikely(old < n))
		swap_bug("entry %u: %u references dropped, only %u there", e, n, old);
	if (old == n)
		entry_release(s, e);
}

void swap_dev_free_slots(struct swap *s, unsigned int dev, uint32_t slot, unsigned int order)
{
	struct swap_dev *sd = &s->devs[dev];
	/* The slots keep the device until they are free; the gate, until this call has left it. */
	unsigned int phase = gate_enter(&sd->gate);

#ifdef USWAP_MUTANT_SLOTS_BEFORE_CONTENT
	clusters_free(&sd->clusters, slot, order);
	sd->dev->ops->free_slots(sd->dev, slot, 1u << order);
#else
	/* Content first: the slots may be given out again as soon as the clusters know. */
	sd->dev->ops->free_slots(sd->dev, slot, 1u << order);
	clusters_free(&sd->clusters, slot, order);
#endif
	atomic_fetch_add_explicit(&sd->freed, 1u << order, memory_order_relaxed);
	atomic_store_explicit(&sd->full_since_ns, 0, memory_order_relaxed);
	/* After all of the above: who is let in by it must find things as they are now. */
	queue_freed(s->queue, dev);
	if (unlikely(atomic_load_explicit(&sd->clusters.nr_discard, memory_order_relaxed)))
		worker_wake(s);
	gate_leave(&sd->gate, phase);
}

void free_place(struct swap *s, enum entry_kind kind, unsigned int dev, uint32_t slot,
		unsigned int order)
{
	if (kind == ENTRY_SPLIT)
		split_free(s, slot);
	else
		swap_dev_free_slots(s, dev, slot, order);
}

void entry_release(struct swap *s, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);

	if (p->kind == ENTRY_CACHED || p->kind == ENTRY_DEVICE || p->kind == ENTRY_SPLIT)
		dedup_remove(&s->dedup, e);
	switch (p->kind) {
	case ENTRY_FILLING:
	case ENTRY_CACHED:
		cache_free(&s->cache, p->slot, p->order);
		break;
	case ENTRY_DEVICE:
		swap_dev_free_slots(s, p->dev, p->slot, p->order);
		atomic_fetch_sub(&s->swapped_pages, 1u << p->order);
		break;
	case ENTRY_SPLIT:
		split_free(s, p->slot);
		atomic_fetch_sub(&s->swapped_pages, 1u << p->order);
		break;
	case ENTRY_FILLED:
		atomic_fetch_sub(&s->swapped_pages, 1u << p->order);
		break;
	case ENTRY_LOST:
	case ENTRY_GONE:
		break;
	default:
		swap_bug("entry %u of kind %u is released", e, p->kind);
	}
	entry_free(&s->table, e);
}

unsigned int swap_order(struct swap *s, swp_t e)
{
	entry_assert_live(&s->table, e);
	return entry_of(&s->table, e)->order;
}

/* ---- back ---- */

bool swap_load_is_fast(struct swap *s, swp_t e)
{
	struct entry *p = entry_of(&s->table, e);
	bool fast;

	entry_assert_live(&s->table, e);
	entry_lock(&s->table, e);
	if (p->kind == ENTRY_DEVICE)
		fast = dev_in_memory(s->devs[p->dev].dev);
	else
		fast = p->kind != ENTRY_SPLIT;
	entry_unlock(&s->table, e);
	return fast;
}

void load_finish(struct swap_load *l, int result)
{
	struct swap *s = l->swap;
	swp_t e = l->entry;

	l->result = result;
	l->done(l); /* l may be gone from here on */
	swap_put(s, e, 1);
	atomic_fetch_sub_explicit(&s->nr_loads, 1, memory_order_release);
}

void wait_for_loads(struct swap *s)
{
	while (atomic_load_explicit(&s->nr_loads, memory_order_acquire))
		clock_sleep_ns(20 * NSEC_PER_USEC);
}

static void log_read_error(struct swap_dev *sd, const char *what)
{
	if (!atomic_exchange(&sd->read_error_logged, true))
		log_error("%s: %s; the pages concerned are lost", sd->dev->name, what);
}

/*
 * A copy that cannot be read back, or reads back wrong, must not stand in for other folios with
 * the same content: it leaves the index. The entry stays, so each use of it gets the error.
 */
int load_check(struct swap *s, struct swap_load *l, struct hash128 expected)
{
	struct swap_dev *sd = l->io.priv;
	uint32_t nr = l->io.nr_pages;

	/* What a mover cannot read it may read again, and says itself what is lost. */
	if (l->io.result) {
		dedup_remove(&s->dedup, l->entry);
		vmstat_add(VMSTAT_swap_io_error, 1);
		if (!l->moving)
			log_read_error(sd, "a read failed");
		return -EIO;
	}
	if (!hash_equal(hash_folio(l->io.buf, nr * PAGE_SIZE), expected)) {
		dedup_remove(&s->dedup, l->entry);
		vmstat_add(VMSTAT_swap_corrupt, 1);
		if (!l->moving)
			log_read_error(sd, "returned content that differs from what was written");
		return -EBADMSG;
	}
	if (!l->moving)
		vmstat_add(dev_in_memory(sd->dev) ? VMSTAT_zswpin : VMSTAT_pswpin, nr);
	return 0;
}

static void device_load_done(struct dev_io *io)
{
	struct swap_load *l = container_of(io, struct swap_load, io);
	struct swap_dev *sd = io->priv;
	struct entry *p = entry_of(&l->swap->table, l->entry);
	int err = load_check(l->swap, l, p->hash);

	gate_leave(&sd->gate, l->gate_phase);
	if (!err && !l->moving)
		atomic_fetch_add_explicit(&order_stats[p->order].swpin, 1, memory_order_relaxed);
	load_finish(l, err);
}

static void load_from_device(struct swap_load *l, struct swap_dev *sd, uint32_t slot,
			     unsigned int order)
{
	/* l may be over, its folio moved and the device empty before dev_submit() has returned. */
	unsigned int phase = gate_enter(&sd->gate);

	l->io = (struct dev_io){
		.op = DEV_READ,
		.slot = slot,
		.nr_pages = 1u << order,
		.buf = l->buf,
		.done = device_load_done,
		.priv = sd,
	};
	dev_submit(sd->dev, &l->io);
	gate_leave(&sd->gate, phase);
}

/* The pin keeps the buffer while the copy runs without a lock, even if e goes to a device. */
static void load_from_buffer(struct swap *s, struct swap_load *l, uint32_t id, unsigned int order)
{
	struct buf *b = &s->cache.bufs[id];
	bool last;

	memcpy(l->buf, cache_mem(&s->cache, id, order), PAGE_SIZE << order);
	entry_lock(&s->table, l->entry);
	b->pins--;
	last = !b->pins && b->flags & BUF_ORPHAN;
	entry_unlock(&s->table, l->entry);
	if (last)
		cache_free(&s->cache, id, order);
	vmstat_add(VMSTAT_swpin_cached, 1u << order);
	load_finish(l, 0);
}

void swap_load(struct swap *s, struct swap_load *l)
{
	struct entry *p = entry_of(&s->table, l->entry);
	enum entry_kind kind;
	uint64_t value;
	uint32_t slot;
	uint8_t dev;

	l->swap = s;
	l->start_ns = clock_now_ns();
	atomic_fetch_add_explicit(&s->nr_loads, 1, memory_order_relaxed);
	swap_get(s, l->entry, 1);

	entry_lock(&s->table, l->entry);
	kind = p->kind;
	slot = p->slot;
	dev = p->dev;
	value = p->fill_value;
	if (kind == ENTRY_CACHED) {
		struct buf *b = &s->cache.bufs[slot];

		b->pins++;
		b->flags |= BUF_REFERENCED;
	} else if (kind == ENTRY_DEVICE) {
		l->gate_phase = gate_enter(&s->devs[dev].gate);
	} else if (kind == ENTRY_SPLIT) {
		l->gate_phase = gate_enter(&s->split_gate);
	}
	entry_unlock(&s->table, l->entry);

	switch (kind) {
	case ENTRY_FILLING:
		load_finish(l, -EAGAIN);
		break;
	case ENTRY_CACHED:
		load_from_buffer(s, l, slot, p->order);
		break;
	case ENTRY_FILLED:
		fill_words(l->buf, PAGE_SIZE << p->order, value);
		vmstat_add(VMSTAT_swpin_zero, 1u << p->order);
		load_finish(l, 0);
		break;
	case ENTRY_DEVICE:
		load_from_device(l, &s->devs[dev], slot, p->order);
		break;
	case ENTRY_SPLIT:
		split_load(l, slot);
		break;
	default:
		load_finish(l, -EIO);
	}
}
