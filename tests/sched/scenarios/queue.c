/* SPDX-License-Identifier: MIT */
/*
 * The queue of devices: no device stays closed with room in it, no walk misses a device that has
 * a run, and what swapoff has taken out gives nothing and is looked at by nobody.
 */
#include <errno.h>

#include "base/readers.h"
#include "scenario.h"
#include "swap/queue.h"

LOCK_CLASS(counted_class, "counted_dev", RANK_CLUSTER);

/* Counts slots, and knows whether it may be asked. */
struct counted {
	struct us_mutex lock;
	uint32_t size, used; /* pages */
	bool runs;	     /* has room for large folios */
	bool off, gone;
	_Atomic int step;
};

static struct queue *q;
static struct counted devs[2];
static struct counted *last; /* the one that queue_end() has to count */

static uint32_t counted_alloc(void *dev, unsigned int order)
{
	struct counted *d = dev;
	uint32_t slot = 0;

	sim_check(!d->gone && !d->off);
	(void)atomic_load(&d->step);
	us_mutex_lock(&d->lock);
	if ((!order || d->runs) && d->size - d->used >= 1u << order) {
		d->used += 1u << order;
		slot = d->used;
	}
	us_mutex_unlock(&d->lock);
	sim_check(!d->gone && !(d->off && slot));
	return slot;
}

static bool counted_is_full(void *dev)
{
	struct counted *d = dev;
	bool full;

	sim_check(!d->gone);
	us_mutex_lock(&d->lock);
	full = d->used == d->size;
	us_mutex_unlock(&d->lock);
	return full;
}

static const struct queue_ops ops = {.alloc = counted_alloc, .is_full = counted_is_full};

/* Of one CPU, so that threads share turns. */
static void begin(enum queue_policy policy, unsigned int nr_devs, uint32_t size)
{
	struct queue_config cfg = {.ops = &ops, .policy = policy, .nr_cpus = 1};
	int err;

	/* Of threads that there are not: nothing can happen between two looks at them. */
	sim_quiet(&us_readers[MAX_PARTS + 1],
		  sizeof(us_readers) - (MAX_PARTS + 1) * sizeof(us_readers[0]));
	/* The first section ever finds out what the kernel can: not in one run and not in another. */
	us_read_end(us_read_begin());
	q = queue_create(&cfg, &err);
	sim_check(q);
	memset(devs, 0, sizeof(devs));
	for (unsigned int i = 0; i < nr_devs; i++) {
		struct queue_dev_config dc = {.dev = &devs[i], .prio = 10, .node = -1};

		us_mutex_init(&devs[i].lock, &counted_class);
		devs[i].size = size;
		devs[i].runs = true;
		sim_check(queue_add(q, i, &dc) == 0);
	}
	last = &devs[nr_devs - 1];
}

static void end(void)
{
	queue_check(q);
	queue_destroy(q);
}

static int alloc(unsigned int order)
{
	struct queue_req req = {.order = order};
	struct queue_got got;
	int err = queue_alloc(q, &req, &got);

	return err ? err : (int)got.dev;
}

/* ---- the tag re-check on free ---- */

static void alloc_one(void *arg)
{
	int got = alloc(0);

	(void)arg;
	sim_check(got >= 0 || got == -ENOENT);
}

static void free_one(void *arg)
{
	us_mutex_lock(&last->lock);
	last->used--;
	us_mutex_unlock(&last->lock);
	queue_freed(q, (unsigned int)(last - devs));
	(void)arg;
}

/* However the free and the search in vain lie: a device with room is open afterwards. */
static void check_found(void)
{
	struct queue_req req = {0};

	if (last->used < last->size) {
		sim_check(queue_open(q, &req));
		sim_check(alloc(0) >= 0);
	}
	sim_check(last->used == last->size);
}

static void run_free(void)
{
	begin(POLICY_QUEUE, 1, 2);
	sim_check(alloc(0) == 0 && alloc(0) == 0);
	RUN_PARTS(PART(alloc_one, NULL), PART(free_one, NULL));
	check_found();
	end();
}

static void run_free_two(void)
{
	begin(POLICY_QUEUE, 1, 2);
	sim_check(alloc(0) == 0 && alloc(0) == 0);
	RUN_PARTS(PART(alloc_one, NULL), PART(alloc_one, NULL), PART(free_one, NULL));
	check_found();
	end();
}

/* ---- the cursor ---- */

/* One of the two has no runs: the other has, so a walk that asks both finds it. */
static void alloc_large(void *arg)
{
	(void)arg;
	sim_check(alloc(9) == 1);
}

static void run_cursor(void)
{
	begin(POLICY_QUEUE, 2, 4096);
	devs[0].runs = false;
	RUN_PARTS(PART(alloc_large, NULL), PART(alloc_large, NULL));
	end();
}

/* ---- swapoff ---- */

static void swap_off(void *arg)
{
	(void)arg;
	sim_check(queue_off(q, 0) == 0);
	devs[0].off = true;
	devs[0].used = 0;
	sim_check(queue_remove(q, 0) == 0);
	devs[0].gone = true;
}

static void run_off(void)
{
	begin(POLICY_QUEUE, 2, 8);
	RUN_PARTS(PART(alloc_one, NULL), PART(swap_off, NULL));
	sim_check(alloc(0) == 1);
	end();
}

/* ---- what is shown ---- */

static void count_row(void *arg, const struct queue_row *row)
{
	unsigned int *n = arg;

	sim_check(!((struct counted *)row->owner)->gone);
	(*n)++;
}

static void show(void *arg)
{
	unsigned int n = 0;

	(void)arg;
	queue_each(q, count_row, &n);
	sim_check(n == 1 || n == 2);
}

static void run_show(void)
{
	begin(POLICY_QUEUE, 2, 8);
	RUN_PARTS(PART(show, NULL), PART(swap_off, NULL));
	end();
}

SCENARIO(queue_free, .what = "a free while an allocation finds the device full", .run = run_free);
SCENARIO(queue_free_two, .what = "the same with two allocations", .run = run_free_two);
SCENARIO(queue_cursor, .what = "two walks of one ring, where one device has no runs",
	 .run = run_cursor);
SCENARIO(queue_off, .what = "a device is taken out while it is asked", .run = run_off);
SCENARIO(queue_show, .what = "a device is taken out while the devices are listed",
	 .run = run_show);
