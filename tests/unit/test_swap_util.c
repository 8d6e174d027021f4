/* SPDX-License-Identifier: MIT */
#include "test_swap_util.h"

#include "base/mem.h"

LOCK_CLASS(tdev_class, "tdev", RANK_DEV);

#define TEST_BUG(...) (fprintf(stderr, "tdev: " __VA_ARGS__), fputc('\n', stderr), abort())

static struct tdev *to_tdev(struct dev *d)
{
	return container_of(d, struct tdev, d);
}

static bool chance(struct tdev *t, unsigned int per_mille)
{
	return per_mille && rng_below(&t->rng, 1000) < per_mille;
}

/* Under lock. */
static int choose_result(struct tdev *t, struct dev_io *io)
{
	if (io->op == DEV_READ && t->bad_reads && t->bad_slot >= io->slot &&
	    t->bad_slot < io->slot + io->nr_pages) {
		t->bad_reads--;
		return -EIO;
	}
	if (io->op == DEV_READ)
		return chance(t, t->read_eio) ? -EIO : 0;
	if (chance(t, t->write_eio))
		return -EIO;
	if (chance(t, t->write_enospc))
		return -ENOSPC;
	if (chance(t, t->write_enomem))
		return -ENOMEM;
	if (!(io->flags & DEV_IO_LAST) && chance(t, t->write_e2big))
		return -E2BIG;
	return 0;
}

static void claim(struct tdev *t, struct dev_io *io)
{
	for (uint32_t s = io->slot; s < io->slot + io->nr_pages; s++) {
		if (!s || s >= t->d.nr_slots)
			TEST_BUG("slot %u is outside", s);
		if (t->writing[s] || (io->op == DEV_WRITE && t->reading[s]))
			TEST_BUG("slot %u has two ios in flight", s);
		if (io->op == DEV_READ && !t->present[s])
			TEST_BUG("slot %u is read but holds nothing", s);
		if (io->op == DEV_WRITE && t->present[s])
			TEST_BUG("slot %u is written over", s);
		if (io->op == DEV_READ)
			t->reading[s]++;
		else
			t->writing[s]++;
	}
}

static void perform(struct tdev *t, struct dev_io *io)
{
	char *at;
	size_t bytes = (size_t)io->nr_pages * PAGE_SIZE;

	us_mutex_lock(&t->lock);
	at = t->mem + (size_t)io->slot * PAGE_SIZE;
	io->result = choose_result(t, io);
	if (io->op == DEV_WRITE) {
		t->nr_writes++;
		t->nr_last += io->flags & DEV_IO_LAST;
	}
	for (uint32_t s = io->slot; s < io->slot + io->nr_pages; s++) {
		if (io->op == DEV_READ) {
			t->reading[s]--;
		} else {
			t->writing[s]--;
			t->present[s] = io->result == 0 ? 1 : io->result == -EIO ? 2 : 0;
			t->dirty[s] |= io->result == 0;
		}
	}
	if (io->op == DEV_WRITE && !io->result) {
		atomic_fetch_add(&t->d.stored_pages, io->nr_pages);
		atomic_fetch_add(&t->d.stored_bytes, bytes);
	}
	if (io->result == -EIO)
		atomic_fetch_add(&t->d.errors, 1);
	if (io->result == 0 && io->op == DEV_WRITE) {
		memcpy(at, io->buf, bytes);
		io->stored_bytes = (uint32_t)bytes;
		t->max_order = MAX(t->max_order, (unsigned int)__builtin_ctz(io->nr_pages));
		if (chance(t, t->corrupt))
			at[rng_below(&t->rng, bytes)] ^= 1;
	} else if (io->result == 0) {
		memcpy(io->buf, at, bytes);
	}
	us_mutex_unlock(&t->lock);
	io->done(io);
}

static void tdev_submit(struct dev *d, struct dev_io *io)
{
	static __thread int depth;
	struct tdev *t = to_tdev(d);

	us_mutex_lock(&t->lock);
	claim(t, io);
	if (t->async) {
		list_add_tail(&t->queue, &io->node);
		us_cond_signal(&t->wake);
	}
	us_mutex_unlock(&t->lock);
	if (t->async)
		return;
	if (++depth > 2)
		TEST_BUG("completions submit more and more deeply");
	perform(t, io);
	depth--;
}

static void tdev_thread(void *arg)
{
	struct tdev *t = arg;

	us_mutex_lock(&t->lock);
	for (;;) {
		struct dev_io *io;

		while (!t->stop && (t->hold || list_empty(&t->queue)))
			us_cond_wait(&t->wake, &t->lock);
		if (list_empty(&t->queue))
			break;
		io = list_first(&t->queue, struct dev_io, node);
		list_del(&io->node);
		us_mutex_unlock(&t->lock);
		perform(t, io);
		us_mutex_lock(&t->lock);
	}
	us_mutex_unlock(&t->lock);
}

static void tdev_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct tdev *t = to_tdev(d);

	us_mutex_lock(&t->lock);
	for (uint32_t s = slot; s < slot + nr; s++) {
		if (t->reading[s] || t->writing[s])
			TEST_BUG("slot %u is freed while in use", s);
		if (t->present[s] == 1) {
			atomic_fetch_sub(&t->d.stored_pages, 1);
			atomic_fetch_sub(&t->d.stored_bytes, PAGE_SIZE);
		}
		t->present[s] = 0;
	}
	us_mutex_unlock(&t->lock);
}

static int tdev_copy_slots(struct dev *d, uint32_t from, uint32_t to, uint32_t nr)
{
	struct tdev *t = to_tdev(d);
	int r = 0;

	us_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < nr; i++) {
		if (!from || !to || from + i >= d->nr_slots || to + i >= d->nr_slots)
			TEST_BUG("slots %u, %u are outside", from + i, to + i);
		if (!t->present[from + i] || t->writing[from + i])
			TEST_BUG("slot %u is copied but holds nothing", from + i);
		if (t->present[to + i] || t->writing[to + i] || t->reading[to + i])
			TEST_BUG("slot %u is copied to but in use", to + i);
		t->reading[from + i]++;
		t->writing[to + i]++;
	}
	us_mutex_unlock(&t->lock);
	memcpy(t->mem + (size_t)to * PAGE_SIZE, t->mem + (size_t)from * PAGE_SIZE,
	       (size_t)nr * PAGE_SIZE);
	us_mutex_lock(&t->lock);
	if (chance(t, t->write_enomem))
		r = -ENOMEM;
	else if (chance(t, t->write_eio))
		r = -EIO;
	t->nr_copies++;
	for (uint32_t i = 0; i < nr; i++) {
		t->reading[from + i]--;
		t->writing[to + i]--;
		t->present[to + i] = r == 0;
		t->dirty[to + i] |= r == 0;
	}
	us_mutex_unlock(&t->lock);
	return r;
}

void tdev_can_copy(struct tdev *t)
{
	t->ops.copy_slots = tdev_copy_slots;
}

static int tdev_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct tdev *t = to_tdev(d);

	us_mutex_lock(&t->lock);
	if (!slot || !nr || slot + nr > d->nr_slots)
		TEST_BUG("slots %u, %u of them, are outside", slot, nr);
	for (uint32_t s = slot; s < slot + nr; s++) {
		if (t->present[s] || t->reading[s] || t->writing[s])
			TEST_BUG("slot %u is discarded while in use", s);
		t->dirty[s] &= t->discard_result != 0;
	}
	us_mutex_unlock(&t->lock);
	return t->discard_result;
}

void tdev_discards(struct tdev *t, int result)
{
	t->ops.discard = tdev_discard;
	t->d.discard_pages = true;
	t->discard_result = result;
}

static uint32_t tdev_grow(struct dev *d, uint32_t want)
{
	struct tdev *t = to_tdev(d);
	uint32_t now = atomic_load(&d->nr_slots);

	uint32_t limit = t->grow_limit ? t->grow_limit : d->max_slots;

	while (now < want && now < limit)
		now = MIN(now + t->grow_step, limit);
	atomic_store(&d->nr_slots, now);
	return now;
}

static void tdev_destroy(struct dev *d)
{
	struct tdev *t = to_tdev(d);

	us_mutex_lock(&t->lock);
	t->stop = true;
	us_cond_signal(&t->wake);
	us_mutex_unlock(&t->lock);
	us_thread_join(&t->thread);
	us_mutex_deinit(&t->lock);
	us_cond_deinit(&t->wake);
	mem_release(t->mem, (size_t)d->max_slots * PAGE_SIZE);
	free(t->present);
	free(t->reading);
	free(t->writing);
	free(t->dirty);
	free(t);
}

static struct tdev *create(uint32_t nr_slots, uint32_t max_slots, unsigned int flags, bool async)
{
	static int number;
	struct tdev *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->ops = (struct dev_ops){.type = "test",
				  .flags = flags,
				  .submit = tdev_submit,
				  .free_slots = tdev_free_slots,
				  .destroy = tdev_destroy};
	t->d.ops = &t->ops;
	t->d.max_slots = max_slots;
	atomic_init(&t->d.nr_slots, nr_slots);
	snprintf(t->d.name, sizeof(t->d.name), "test%d", number++);
	t->mem = mem_reserve((size_t)max_slots * PAGE_SIZE);
	t->present = calloc(max_slots, 1);
	t->reading = calloc(max_slots, 1);
	t->writing = calloc(max_slots, 1);
	t->dirty = calloc(max_slots, 1);
	us_mutex_init(&t->lock, &tdev_class);
	us_cond_init(&t->wake);
	list_init(&t->queue);
	rng_init(&t->rng, 42);
	t->async = async;
	if (async)
		assert_int_equal(us_thread_start(&t->thread, "tdev", -1, tdev_thread, t), 0);
	return t;
}

struct tdev *tdev_create(uint32_t nr_slots, unsigned int flags, bool async)
{
	return create(nr_slots, nr_slots, flags, async);
}

struct tdev *tdev_create_growing(uint32_t nr_slots, uint32_t max_slots, uint32_t step)
{
	struct tdev *t = create(nr_slots, max_slots, 0, false);

	t->grow_step = step;
	t->ops.grow = tdev_grow;
	return t;
}

void tdev_hold(struct tdev *t, bool hold)
{
	us_mutex_lock(&t->lock);
	t->hold = hold;
	us_cond_signal(&t->wake);
	us_mutex_unlock(&t->lock);
}

uint32_t tdev_nr_present(struct tdev *t)
{
	uint32_t n = 0;

	us_mutex_lock(&t->lock);
	for (uint32_t s = 0; s < t->d.max_slots; s++)
		n += t->present[s] != 0;
	us_mutex_unlock(&t->lock);
	return n;
}

uint32_t tdev_nr_dirty(struct tdev *t)
{
	uint32_t n = 0;

	us_mutex_lock(&t->lock);
	for (uint32_t s = 0; s < t->d.max_slots; s++)
		n += t->dirty[s];
	us_mutex_unlock(&t->lock);
	return n;
}

/* ---- content ---- */

void key_fill(const struct key *k, void *buf)
{
	size_t words = (PAGE_SIZE << k->order) / 8;
	uint64_t *w = buf;
	struct rng r;

	rng_init(&r, k->seed * 2 + 1);
	for (size_t i = 0; i < words; i++) {
		switch (k->content) {
		case CONTENT_ZERO:
			w[i] = 0;
			break;
		case CONTENT_SAME:
			w[i] = k->seed;
			break;
		case CONTENT_RANDOM:
			w[i] = rng_next(&r);
			break;
		default:
			w[i] = i % 16 ? 0x2020202020202020ull : rng_next(&r);
		}
	}
}

bool key_matches(const struct key *k, const void *buf)
{
	char *want = malloc(PAGE_SIZE << k->order);
	bool same;

	key_fill(k, want);
	same = memcmp(want, buf, PAGE_SIZE << k->order) == 0;
	free(want);
	return same;
}

/* ---- swap ---- */

struct swap *test_swap(uint64_t cache_bytes)
{
	struct swap_config cfg = {.cache_bytes = cache_bytes, .max_entries = 1u << 16};
	static bool hash_ready;
	struct swap *s;
	int err;

	if (!hash_ready)
		assert_int_equal(hash_init(), 0);
	hash_ready = true;
	s = swap_create(&cfg, &err);
	assert_non_null(s);
	return s;
}

void test_swap_on(struct swap *s, struct tdev *t, int prio)
{
	assert_int_equal(swap_on(s, &t->d, &(struct swap_on_config){.prio = prio}), 0);
}

swp_t test_store(struct swap *s, const struct key *k, enum swap_sealed *how)
{
	enum swap_sealed sealed;
	swp_t e, out;
	void *buf;

	assert_int_equal(swap_new(s, k->order, 0, &e, &buf), 0);
	key_fill(k, buf);
	sealed = swap_seal(s, e, &out);
	if (how)
		*how = sealed;
	return out;
}

static void note_loaded(struct swap_load *l)
{
	atomic_store((atomic_int *)l->priv, 1);
}

int test_load(struct swap *s, swp_t e, void *buf)
{
	atomic_int done = 0;
	struct swap_load l = {.entry = e, .buf = buf, .done = note_loaded, .priv = &done};

	swap_load(s, &l);
	while (!atomic_load(&done))
		clock_sleep_ns(10 * NSEC_PER_USEC);
	return l.result;
}

int test_load_matches(struct swap *s, swp_t e, const struct key *k)
{
	char *buf = aligned_alloc(PAGE_SIZE, PAGE_SIZE << k->order);
	int err = test_load(s, e, buf);

	if (!err && !key_matches(k, buf))
		TEST_BUG("entry %u of order %u came back wrong", e, k->order);
	free(buf);
	return err;
}

enum entry_kind test_kind(struct swap *s, swp_t e)
{
	enum entry_kind kind;

	entry_lock(&s->table, e);
	kind = entry_of(&s->table, e)->kind;
	entry_unlock(&s->table, e);
	return kind;
}

struct key test_key(uint64_t seed, unsigned int order)
{
	return (struct key){CONTENT_RANDOM, order, seed};
}

struct swap *test_swap_on_two(uint64_t cache_bytes, struct tdev *high, struct tdev *low)
{
	struct swap *s = test_swap(cache_bytes);

	test_swap_on(s, high, 10);
	test_swap_on(s, low, 0);
	return s;
}

void test_end(struct swap *s)
{
	swap_check(s);
	swap_destroy(s);
}

void test_check_and_put(struct swap *s, const swp_t *e, unsigned int n, unsigned int order,
			uint64_t seed)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(seed + i, order);

		assert_int_equal(test_load_matches(s, e[i], &k), 0);
		swap_put(s, e[i], 1);
	}
	swap_check(s);
}

void test_store_written(struct swap *s, swp_t *e, unsigned int n, unsigned int order,
			uint64_t seed)
{
	for (unsigned int i = 0; i < n; i++) {
		struct key k = test_key(seed + i, order);

		e[i] = test_store(s, &k, NULL);
	}
	assert_int_equal(swap_writeout(s, (uint64_t)n << order), (int64_t)n << order);
}
