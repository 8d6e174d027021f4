/* SPDX-License-Identifier: MIT */
#include "fake_queue_dev.h"

LOCK_CLASS(fake_class, "fake_queue_dev", RANK_CLUSTER);

static uint32_t fake_take(void *dev, unsigned int order)
{
	struct fake_dev *d = dev;
	uint32_t pages = 1u << order, slot = 0;

	if (d->magic != FAKE_MAGIC)
		abort();
	atomic_fetch_add(&d->attempts, 1);
	if (d->on_alloc)
		d->on_alloc(d, order);
	us_mutex_lock(&d->lock);
	if (d->runs[order] && d->size - d->used >= pages) {
		d->runs[order] -= d->runs[order] != AS_ROOM;
		d->used += pages;
		d->peak = MAX(d->peak, d->used);
		slot = ++d->next_slot;
	}
	us_mutex_unlock(&d->lock);
	if (d->magic != FAKE_MAGIC)
		abort();
	atomic_fetch_add(&d->given, slot != 0);
	return slot;
}

static bool fake_is_full(void *dev)
{
	struct fake_dev *d = dev;
	bool full;

	us_mutex_lock(&d->lock);
	full = d->used == d->size;
	us_mutex_unlock(&d->lock);
	if (d->on_is_full)
		d->on_is_full(d, full);
	return full;
}

const struct queue_ops fake_queue_ops = {.alloc = fake_take, .is_full = fake_is_full};

struct queue *fake_queue(enum queue_policy policy, unsigned int nr_cpus)
{
	struct queue_config cfg = {.ops = &fake_queue_ops, .policy = policy, .nr_cpus = nr_cpus};
	struct queue *q;
	int err;

	q = queue_create(&cfg, &err);
	assert_non_null(q);
	return q;
}

struct fake_dev *fake_dev_create(unsigned int number, uint32_t pages)
{
	struct fake_dev *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	d->magic = FAKE_MAGIC;
	d->number = number;
	d->size = pages;
	for (unsigned int o = 0; o <= MAX_ORDER; o++)
		d->runs[o] = AS_ROOM;
	us_mutex_init(&d->lock, &fake_class);
	return d;
}

void fake_dev_destroy(struct fake_dev *d)
{
	us_mutex_deinit(&d->lock);
	d->magic = 0;
	free(d);
}

struct fake_dev *fake_dev_on(struct queue *q, unsigned int number, uint32_t pages, int prio)
{
	struct fake_dev *d = fake_dev_create(number, pages);
	struct queue_dev_config cfg = {.dev = d, .prio = prio, .node = -1};

	assert_int_equal(queue_add(q, number, &cfg), 0);
	return d;
}

void fake_dev_off(struct queue *q, struct fake_dev *d)
{
	assert_int_equal(queue_off(q, d->number), 0);
	fake_free(q, d, fake_used(d));
	assert_int_equal(queue_remove(q, d->number), 0);
	fake_dev_destroy(d);
}

void fake_end(struct queue *q, struct fake_dev **devs, unsigned int n)
{
	queue_check(q);
	queue_destroy(q);
	for (unsigned int i = 0; i < n; i++)
		if (devs[i])
			fake_dev_destroy(devs[i]);
}

void fake_free(struct queue *q, struct fake_dev *d, uint32_t pages)
{
	if (!pages)
		return;
	us_mutex_lock(&d->lock);
	if (d->used < pages)
		abort();
	d->used -= pages;
	us_mutex_unlock(&d->lock);
	queue_freed(q, d->number);
}

uint32_t fake_used(struct fake_dev *d)
{
	uint32_t used;

	us_mutex_lock(&d->lock);
	used = d->used;
	us_mutex_unlock(&d->lock);
	return used;
}

void fake_set_runs(struct fake_dev *d, unsigned int order, uint32_t runs)
{
	us_mutex_lock(&d->lock);
	d->runs[order] = runs;
	us_mutex_unlock(&d->lock);
}

int fake_alloc_req(struct queue *q, const struct queue_req *req)
{
	struct queue_got got;
	int err = queue_alloc(q, req, &got);

	return err ? err : (int)got.dev;
}

int fake_alloc(struct queue *q, unsigned int order)
{
	struct queue_req req = {.order = order};

	return fake_alloc_req(q, &req);
}
