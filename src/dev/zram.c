/* SPDX-License-Identifier: MIT */
/*
 * Compressed memory. A folio is cut into chunks of up to 16 pages; each becomes one object of the
 * zpool. The table has the object's handle for every slot, so any part of a folio can be read or
 * freed alone; a chunk of several pages counts the slots that still need it.
 *
 * An object is a small header and the compressed bytes; zpool_size() gives the length. A chunk
 * that does not compress is kept as it is when the folio as a whole shrinks enough.
 *
 * Locking: a slot's entry in the table belongs to the io that names the slot (see dev.h). The
 * count of slots in a shared object is atomic, since slots may be freed by several threads.
 */
#include "dev/dev_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dev/codec.h"
#include "zpool/zpool.h"

#define CHUNK_PAGES (CODEC_CHUNK_BYTES >> PAGE_SHIFT)
#define KIND_PAGES 0x1fu
#define KIND_RAW 0x80u

/* A copy of slots may exceed mem_limit by this (and by its own pages): what is copied is freed next. */
#define COPY_EXCESS_BYTES MIB(4)

/* The table is touched in pages of this many slots. */
#define TABLE_PAGE_SLOTS (PAGE_SIZE / sizeof(uint32_t))

/* A chunk of one page has only the first byte of this. */
struct chunk_head {
	uint8_t kind; /* pages in the chunk, KIND_RAW */
	uint8_t live; /* slots that hold it; atomic */
	uint16_t unused;
	uint32_t slot; /* of the first page; a copy without it may count from before slot 0 */
};

struct zram {
	struct dev d;
	struct zpool *pool;
	struct codec_pool codec;
	uint32_t *table; /* handles; 0 = nothing stored */
	struct dev_slot_map table_touched; /* a bit a page of the table */
	_Atomic uint64_t table_pages;
	struct zram_group *group;
	_Atomic uint64_t counted; /* of our memory, in group->used */
};

/* Progress of one write. */
struct store {
	struct codec_ctx *ctx;
	size_t room;		/* bytes that the rest of the folio may take */
	unsigned int may_raw;	/* chunks that may still be kept uncompressed */
	size_t stored;
};

static _Atomic unsigned int nr_created;

static struct zram *to_zram(struct dev *d)
{
	return container_of(d, struct zram, d);
}

static uint64_t zram_memory_bytes(struct dev *d)
{
	struct zram *z = to_zram(d);
	uint64_t all = zpool_bytes(z->pool), tables = zpool_metadata_bytes(z->pool);

	return all > tables ? all - tables : 0;
}

/*
 * Tells the group what our memory is now. Whoever takes the old figure out of `counted` takes it out
 * of the sum, so the sum is that of all `counted`, whatever the order.
 */
static void count_memory(struct zram *z)
{
	uint64_t now, old;

	if (!z->group)
		return;
	now = zram_memory_bytes(&z->d);
	old = atomic_exchange(&z->counted, now);
	if (now != old)
		atomic_fetch_add(&z->group->used, now - old);
}

/* What the group may still grow by, with `excess` more than its limit allows. */
static uint64_t memory_room(const struct zram *z, uint64_t excess)
{
	struct zram_group *g = z->group;
	uint64_t limit = g ? atomic_load_explicit(&g->mem_limit, memory_order_relaxed) : 0;

	return limit ? limit + excess - MIN(limit + excess, atomic_load(&g->used)) : UINT64_MAX;
}

static uint64_t zram_memory_room(struct dev *d)
{
	return memory_room(to_zram(d), 0);
}

static size_t head_bytes(uint32_t nr_pages)
{
	return nr_pages == 1 ? 1 : sizeof(struct chunk_head);
}

/* ---- freeing ---- */

/* nr slots no longer refer to the object. */
static void object_put(struct zram *z, uint32_t handle, uint32_t nr)
{
	struct chunk_head *h = zpool_map(z->pool, handle);
	uint64_t bytes;

	if ((h->kind & KIND_PAGES) > 1 &&
	    __atomic_sub_fetch(&h->live, (uint8_t)nr, __ATOMIC_ACQ_REL) != 0)
		return;
	bytes = zpool_size(z->pool, handle);
	zpool_free(z->pool, handle);
	atomic_fetch_sub_explicit(&z->d.stored_bytes, bytes, memory_order_relaxed);
}

static void zram_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct zram *z = to_zram(d);
	uint32_t end = slot + nr;
	bool freed = false;

	while (slot < end) {
		uint32_t handle = z->table[slot], n = 0;

		if (!handle) {
			slot++;
			continue;
		}
		for (; slot < end && z->table[slot] == handle; slot++, n++)
			z->table[slot] = 0;
		object_put(z, handle, n);
		atomic_fetch_sub_explicit(&d->stored_pages, n, memory_order_relaxed);
		freed = true;
	}
	/* A write begins with a free, mostly of nothing. */
	if (freed)
		count_memory(z);
}

/* ---- writing ---- */

static void table_set(struct zram *z, uint32_t slot, uint32_t nr, uint32_t handle)
{
	uint32_t first = slot / TABLE_PAGE_SLOTS, last = (slot + nr - 1) / TABLE_PAGE_SLOTS;

	if (!dev_slot_map_all(&z->table_touched, first, last - first + 1))
		atomic_fetch_add_explicit(
			&z->table_pages,
			dev_slot_map_set(&z->table_touched, first, last - first + 1, true),
			memory_order_relaxed);
	for (uint32_t i = 0; i < nr; i++)
		z->table[slot + i] = handle;
}

/* An object for a chunk of nr pages; no slot refers to it yet. Its handle, or 0. */
static uint32_t object_new(struct zram *z, const struct chunk_head *h, uint32_t nr,
			   const char *data, size_t len)
{
	size_t head = head_bytes(nr);
	uint32_t handle = zpool_alloc(z->pool, head + len);
	char *obj;

	if (!handle)
		return 0;
	obj = zpool_map(z->pool, handle);
	memcpy(obj, h, head);
	memcpy(obj + head, data, len);
	atomic_fetch_add_explicit(&z->d.stored_bytes, head + len, memory_order_relaxed);
	return handle;
}

static int chunk_write(struct zram *z, struct store *s, uint32_t slot, uint32_t nr,
		       const char *src)
{
	size_t head = head_bytes(nr), bytes = (size_t)nr << PAGE_SHIFT, len = 0;
	size_t room = MIN(s->room, bytes);
	struct chunk_head h = {.kind = (uint8_t)nr, .live = (uint8_t)nr, .slot = slot};
	const char *from = s->ctx->buf;
	uint32_t handle;

	if (room > head)
		len = codec_compress(&z->codec, s->ctx, src, bytes, s->ctx->buf, room - head);
	if (!len) {
		if (!s->may_raw || s->room < head + bytes)
			return -E2BIG;
		s->may_raw--;
		h.kind |= KIND_RAW;
		from = src;
		len = bytes;
	}
	handle = object_new(z, &h, nr, from, len);
	if (!handle)
		return -ENOMEM;
	table_set(z, slot, nr, handle);
	s->room -= head + len;
	s->stored += head + len;
	atomic_fetch_add_explicit(&z->d.stored_pages, nr, memory_order_relaxed);
	return 0;
}

static int zram_write(struct zram *z, struct dev_io *io)
{
	size_t bytes = (size_t)io->nr_pages << PAGE_SHIFT;
	uint32_t chunks = (io->nr_pages + CHUNK_PAGES - 1) / CHUNK_PAGES;
	struct store s = {
		.room = io->flags & DEV_IO_LAST ? bytes / 16 * 15 : bytes / 4 * 3,
		/* Half noise is probably all noise: do not store most of it to find out. */
		.may_raw = io->flags & DEV_IO_LAST ? chunks : chunks / 2,
	};
	int r = 0;

	zram_free_slots(&z->d, io->slot, io->nr_pages);
	if (!memory_room(z, 0))
		return -ENOMEM;
	s.ctx = codec_get(&z->codec);
	for (uint32_t at = 0; at < io->nr_pages && !r; at += CHUNK_PAGES)
		r = chunk_write(z, &s, io->slot + at, MIN(CHUNK_PAGES, io->nr_pages - at),
				(const char *)io->buf + ((size_t)at << PAGE_SHIFT));
	codec_put(&z->codec, s.ctx);
	if (r)
		zram_free_slots(&z->d, io->slot, io->nr_pages);
	else
		io->stored_bytes = (uint32_t)s.stored;
	count_memory(z);
	return r;
}

/* ---- reading ---- */

/*
 * A view of the object that slot holds, taken with suspicion: its memory may have been
 * overwritten, which must end in -EIO, not in a crash.
 */
struct chunk {
	const char *data;
	size_t len;
	uint32_t nr_pages, skip; /* pages of the chunk before slot */
	bool raw;
};

static bool chunk_open(struct zram *z, uint32_t slot, struct chunk *c)
{
	uint32_t handle = z->table[slot];
	struct chunk_head h = {0};
	size_t size, head;
	uint8_t kind;

	if (!handle)
		return false;
	size = zpool_size(z->pool, handle);
	c->data = zpool_map(z->pool, handle);
	kind = (uint8_t)c->data[0];
	c->raw = kind & KIND_RAW;
	c->nr_pages = kind & KIND_PAGES;
	if (!c->nr_pages || c->nr_pages > CHUNK_PAGES)
		return false;
	head = head_bytes(c->nr_pages);
	if (size <= head)
		return false;
	c->skip = 0;
	if (c->nr_pages > 1) {
		memcpy(&h.slot, c->data + offsetof(struct chunk_head, slot), sizeof(h.slot));
		c->skip = slot - h.slot;
	}
	c->data += head;
	c->len = size - head;
	return c->skip < c->nr_pages &&
	       (!c->raw || c->len == (size_t)c->nr_pages << PAGE_SHIFT);
}

/* Part of a chunk: by way of a context's buffer. */
static bool chunk_read_part(struct zram *z, const struct chunk *c, uint32_t nr, char *dst)
{
	struct codec_ctx *ctx = codec_get(&z->codec);
	bool ok = codec_decompress(&z->codec, ctx, c->data, c->len, ctx->buf,
				   (size_t)c->nr_pages << PAGE_SHIFT);

	if (ok)
		memcpy(dst, ctx->buf + ((size_t)c->skip << PAGE_SHIFT), (size_t)nr << PAGE_SHIFT);
	codec_put(&z->codec, ctx);
	return ok;
}

static bool chunk_read_whole(struct zram *z, const struct chunk *c, char *dst)
{
	bool need = codec_needs_ctx(&z->codec);
	struct codec_ctx *ctx = need ? codec_get(&z->codec) : NULL;
	bool ok = codec_decompress(&z->codec, ctx, c->data, c->len, dst,
				   (size_t)c->nr_pages << PAGE_SHIFT);

	if (need)
		codec_put(&z->codec, ctx);
	return ok;
}

static int slots_read(struct zram *z, uint32_t first, uint32_t nr_pages, char *buf)
{
	uint32_t at = 0;

	while (at < nr_pages) {
		char *dst = buf + ((size_t)at << PAGE_SHIFT);
		uint32_t slot = first + at, nr;
		struct chunk c;
		bool ok;

		if (!chunk_open(z, slot, &c))
			return -EIO;
		nr = MIN(c.nr_pages - c.skip, nr_pages - at);
		for (uint32_t i = 1; i < nr; i++)
			if (z->table[slot + i] != z->table[slot])
				return -EIO;
		if (c.raw) {
			memcpy(dst, c.data + ((size_t)c.skip << PAGE_SHIFT),
			       (size_t)nr << PAGE_SHIFT);
			ok = true;
		} else if (nr == c.nr_pages) {
			ok = chunk_read_whole(z, &c, dst);
		} else {
			ok = chunk_read_part(z, &c, nr, dst);
		}
		if (!ok)
			return -EIO;
		at += nr;
	}
	return 0;
}

/* ---- copying ---- */

/*
 * Why a copy disturbs nobody. The source's entries of the table and its objects are only read, and
 * stay, since the caller lets nobody write or free them; readers of the source do the same. The
 * target's entries are the caller's alone until it tells somebody of them. An object of several
 * pages that slots outside the range refer to as well may lose those meanwhile, which changes
 * `live` in its head and nothing else: of the head only what never changes is copied.
 */
struct copy {
	uint32_t from, to, nr;
};

/* Of the source's slots: those that hold handle. A bit each, counted from slot. */
static uint32_t copy_sharers(const struct zram *z, const struct copy *c, uint32_t slot,
			     const struct chunk *k)
{
	uint32_t left = MIN(k->nr_pages - k->skip, c->from + c->nr - slot), bits = 0;

	for (uint32_t i = 0; i < left; i++)
		if (z->table[slot + i] == z->table[slot])
			bits |= 1u << i;
	return bits;
}

/* The object as it is, under the target's slots: nobody else needs the old one. */
static int copy_whole(struct zram *z, const struct copy *c, uint32_t slot, const struct chunk *k,
		      uint32_t bits)
{
	uint32_t to = c->to + (slot - c->from), nr = (uint32_t)__builtin_popcount(bits), handle;
	struct chunk_head h = {.kind = (uint8_t)(k->nr_pages | (k->raw ? KIND_RAW : 0)),
			       .live = (uint8_t)nr,
			       .slot = to - k->skip};

	handle = object_new(z, &h, k->nr_pages, k->data, k->len);
	if (!handle)
		return -ENOMEM;
	for (uint32_t i = 0; bits >> i; i++)
		if (bits >> i & 1)
			table_set(z, to + i, 1, handle);
	atomic_fetch_add_explicit(&z->d.stored_pages, nr, memory_order_relaxed);
	return 0;
}

/*
 * Pages of an object that others need too: each as an object of its own. To copy the whole one for
 * each part that moves would multiply the memory.
 */
static int copy_pages(struct zram *z, const struct copy *c, uint32_t slot, uint32_t bits)
{
	char page[PAGE_SIZE] __attribute__((aligned(8)));
	int r = 0;

	for (uint32_t i = 0; bits >> i && !r; i++) {
		struct store s = {.room = 2 * PAGE_SIZE, .may_raw = 1};

		if (!(bits >> i & 1))
			continue;
		r = slots_read(z, slot + i, 1, page);
		if (r)
			break;
		s.ctx = codec_get(&z->codec);
		r = chunk_write(z, &s, c->to + (slot + i - c->from), 1, page);
		codec_put(&z->codec, s.ctx);
	}
	return r;
}

/* What the source's slot holds, with all others of the source that share its object. */
static int copy_object(struct zram *z, const struct copy *c, uint32_t slot)
{
	struct chunk k;
	uint32_t bits, live = 1;

	if (!chunk_open(z, slot, &k))
		return -EIO;
	bits = copy_sharers(z, c, slot, &k);
	if (k.nr_pages > 1) {
		const struct chunk_head *h = zpool_map(z->pool, z->table[slot]);

		/* It can only fall, and not below what the source holds. */
		live = __atomic_load_n(&h->live, __ATOMIC_ACQUIRE);
	}
	if (live == (uint32_t)__builtin_popcount(bits))
		return copy_whole(z, c, slot, &k, bits);
	return copy_pages(z, c, slot, bits);
}

static bool ranges_valid(const struct zram *z, const struct copy *c)
{
	uint32_t max = z->d.max_slots;

	if (!c->nr || c->nr > MAX_FOLIO_PAGES || !c->from || !c->to || c->from >= max ||
	    c->to >= max || c->nr > max - c->from || c->nr > max - c->to)
		return false;
	if (c->from < c->to ? c->to - c->from < c->nr : c->from - c->to < c->nr)
		return false;
	for (uint32_t i = 0; i < c->nr; i++)
		if (z->table[c->to + i])
			return false;
	return true;
}

static int zram_copy_slots(struct dev *d, uint32_t from, uint32_t to, uint32_t nr)
{
	struct zram *z = to_zram(d);
	struct copy c = {.from = from, .to = to, .nr = nr};
	int r = 0;

	if (!ranges_valid(z, &c))
		return -EINVAL;
	if (!memory_room(z, COPY_EXCESS_BYTES))
		return -ENOMEM;
	/* A target that is set was copied with an earlier slot of its object. */
	for (uint32_t i = 0; i < nr && !r; i++)
		if (z->table[from + i] && !z->table[to + i])
			r = copy_object(z, &c, from + i);
	if (r)
		zram_free_slots(d, to, nr);
	count_memory(z);
	return r;
}

static void zram_submit(struct dev *d, struct dev_io *io)
{
	struct zram *z = to_zram(d);

	if (!dev_io_valid(d, io))
		dev_io_end(d, io, -EINVAL);
	else
		dev_io_end(d, io, io->op == DEV_READ
					? slots_read(z, io->slot, io->nr_pages, io->buf)
					: zram_write(z, io));
}

/* Most of its objects lie among holes, or have pages in them that nobody needs any more. */
static bool zram_is_sparse(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct zram *z = to_zram(d);
	uint32_t end = slot + nr, objects = 0, sparse = 0, n;

	for (; slot < end; slot += n) {
		uint32_t handle = z->table[slot];
		uint8_t kind;

		for (n = 1; slot + n < end && z->table[slot + n] == handle; n++)
			;
		if (!handle)
			continue;
		kind = *(const uint8_t *)zpool_map(z->pool, handle) & KIND_PAGES;
		objects++;
		sparse += n * 2 <= kind || zpool_is_sparse(z->pool, handle);
	}
	return sparse * 2 > objects;
}

/* ---- the rest ---- */

static uint64_t zram_metadata_bytes(struct dev *d)
{
	struct zram *z = to_zram(d);

	return (atomic_load_explicit(&z->table_pages, memory_order_relaxed) << PAGE_SHIFT) +
	       zpool_metadata_bytes(z->pool) + codec_pool_bytes(&z->codec);
}

static size_t table_bytes(const struct zram *z)
{
	return (size_t)z->d.max_slots * sizeof(*z->table);
}

static void zram_destroy(struct dev *d)
{
	struct zram *z = to_zram(d);

	if (z->group)
		atomic_fetch_sub(&z->group->used, atomic_load(&z->counted));
	zpool_destroy(z->pool);
	codec_pool_deinit(&z->codec);
	mem_release(z->table, table_bytes(z));
	dev_slot_map_deinit(&z->table_touched);
	free(z);
}

static const struct dev_ops zram_ops = {
	.type = "zram",
	.flags = DEV_IN_MEMORY,
	.submit = zram_submit,
	.free_slots = zram_free_slots,
	.copy_slots = zram_copy_slots,
	.is_sparse = zram_is_sparse,
	.memory_bytes = zram_memory_bytes,
	.metadata_bytes = zram_metadata_bytes,
	.memory_room = zram_memory_room,
	.destroy = zram_destroy,
};

void *dev_zram_object(struct dev *d, uint32_t slot, size_t *bytes)
{
	struct zram *z = to_zram(d);
	uint32_t handle = z->table[slot];

	if (!handle)
		return NULL;
	*bytes = zpool_size(z->pool, handle);
	return zpool_map(z->pool, handle);
}

void dev_zram_check(struct dev *d)
{
	struct zram *z = to_zram(d);
	uint64_t pages = 0, bytes = 0;

	zpool_check(z->pool);
	for (uint32_t slot = 1; slot < d->max_slots; slot++) {
		uint32_t handle = z->table[slot];

		pages += handle != 0;
		if (handle && handle != z->table[slot - 1])
			bytes += zpool_size(z->pool, handle);
	}
	/* A chunk with a hole is met twice above, so bytes may only be too high. */
	if (pages != atomic_load(&d->stored_pages) || bytes < atomic_load(&d->stored_bytes) ||
	    zpool_stored_bytes(z->pool) != atomic_load(&d->stored_bytes)) {
		fprintf(stderr, "uswap: %s: counters and table differ\n", d->name);
		abort();
	}
}

/*
 * Twice the size, and a run for each class: address space is cheap, and runs have holes. Where it
 * is not to be had (RLIMIT_AS), less will do until the pool is full: -ENOMEM then.
 */
static struct zpool *pool_create(uint64_t disk_bytes)
{
	struct zpool *pool = NULL;

	for (uint64_t bytes = 2 * disk_bytes; !pool && bytes >= disk_bytes / 4; bytes /= 2)
		pool = zpool_create(bytes + MIB(32));
	return pool;
}

struct dev *dev_zram_create(const struct zram_config *cfg, int *err)
{
	uint64_t slots = cfg->bytes >> PAGE_SHIFT;
	struct zram *z;

	*err = -EINVAL;
	if (slots < 2 || slots > UINT32_MAX)
		return NULL;
	*err = -ENOMEM;
	z = calloc(1, sizeof(*z));
	if (!z)
		return NULL;
	z->d.ops = &zram_ops;
	z->d.max_slots = (uint32_t)slots;
	atomic_init(&z->d.nr_slots, (uint32_t)slots);
	z->group = cfg->group;
	*err = codec_pool_init(&z->codec, cfg->codec, cfg->level);
	if (!*err)
		*err = dev_slot_map_init(&z->table_touched,
					 (uint32_t)(slots / TABLE_PAGE_SLOTS + 1));
	if (!*err) {
		z->table = mem_reserve(table_bytes(z));
		z->pool = pool_create(cfg->bytes);
		if (!z->table || !z->pool)
			*err = -ENOMEM;
	}
	if (*err) {
		zram_destroy(&z->d);
		return NULL;
	}
	snprintf(z->d.name, sizeof(z->d.name), "zram%u", atomic_fetch_add(&nr_created, 1));
	return &z->d;
}
