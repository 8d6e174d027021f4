/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/queue_bench.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "swap/cluster.h"
#include "swap/queue.h"

#define MAX_DEVICES QUEUE_MAX_DEVS

struct device {
	struct clusters clusters;
	bool bare, full;
};

struct bench {
	struct queue_bench_args args;
	struct queue *queue;
	struct device dev[MAX_DEVICES];
	unsigned int nr; /* of devices, the full ones first */
	_Atomic unsigned int waiting;
	atomic_bool go;
};

struct worker {
	_Alignas(64) struct bench *b;
	struct us_thread thread;
	uint64_t given[MAX_DEVICES]; /* allocations */
	uint64_t wall_ns, cpu_ns;
	bool failed;
};

/* ---- devices ---- */

static uint32_t bench_alloc(void *dev, unsigned int order)
{
	struct device *d = dev;

	if (d->full)
		return 0;
	return d->bare ? 1 : clusters_alloc(&d->clusters, order);
}

static bool bench_is_full(void *dev)
{
	const struct device *d = dev;

	return d->full;
}

static const struct queue_ops bench_ops = {.alloc = bench_alloc, .is_full = bench_is_full};

/* Takes every cluster into use once, so that no run pays for the first touch of its memory. */
static void warm_up(struct device *d, uint32_t slots)
{
	uint32_t n = slots / CLUSTER_SLOTS, got = 0;
	uint32_t *slot = calloc(n, sizeof(*slot));

	while (slot && got < n) {
		slot[got] = clusters_alloc(&d->clusters, MAX_ORDER);
		if (!slot[got])
			break;
		got++;
	}
	while (got--)
		clusters_free(&d->clusters, slot[got], MAX_ORDER);
	free(slot);
}

static int device_init(struct bench *b, unsigned int i)
{
	struct device *d = &b->dev[i];
	uint64_t slots = ((uint64_t)b->args.nr_allocs * b->args.nr_threads << b->args.order) +
			 8 * CLUSTER_SLOTS;
	int err;

	d->bare = b->args.device == BENCH_BARE;
	d->full = i < b->nr - b->args.nr_devs;
	if (d->bare || d->full)
		return 0;
	if (slots > UINT32_MAX)
		return -E2BIG;
	err = clusters_init(&d->clusters, (uint32_t)slots);
	if (err)
		return err;
	clusters_set_size(&d->clusters, (uint32_t)slots);
	warm_up(d, (uint32_t)slots);
	return 0;
}

static int prio_of(const struct bench *b, unsigned int i)
{
	if (!b->dev[i].full || b->args.full == BENCH_FULL_PEERS)
		return 10;
	return b->args.full == BENCH_FULL_ABOVE ? 20 : 20 + (int)i;
}

static int devices_init(struct bench *b)
{
	int err;

	for (unsigned int i = 0; i < b->nr; i++) {
		struct queue_dev_config cfg = {.dev = &b->dev[i], .node = -1};

		err = device_init(b, i);
		if (err)
			return err;
		cfg.prio = prio_of(b, i);
		err = queue_add(b->queue, i, &cfg);
		if (err)
			return err;
	}
	return 0;
}

/* ---- threads ---- */

static uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void through_queue(struct worker *w, uint32_t n)
{
	struct queue_req req = {.order = w->b->args.order};
	struct queue *q = w->b->queue;
	struct queue_got got;

	while (n--) {
		if (queue_alloc(q, &req, &got)) {
			w->failed = true;
			return;
		}
		w->given[got.dev]++;
	}
}

/*
 * What the queue is compared with does what the queue has done when all is said: the same call
 * through a pointer, a slot and a number, and the count.
 */
static void directly(struct worker *w, uint32_t n)
{
	const struct queue_ops *volatile ops = &bench_ops;
	void *volatile dev = &w->b->dev[0];
	struct queue_got got;

	while (n--) {
		got.slot = ops->alloc(dev, w->b->args.order);
		if (!got.slot) {
			w->failed = true;
			return;
		}
		w->given[0]++;
	}
}

static void work(void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;
	uint64_t wall, cpu;

	atomic_fetch_add(&b->waiting, 1);
	while (!atomic_load(&b->go))
		cpu_relax();
	wall = clock_now_ns();
	cpu = thread_cpu_ns();
	if (b->args.policy == POLICY_DEFAULT)
		directly(w, b->args.nr_allocs);
	else
		through_queue(w, b->args.nr_allocs);
	w->cpu_ns = thread_cpu_ns() - cpu;
	w->wall_ns = clock_now_ns() - wall;
}

struct lock_sums {
	uint64_t acquired, contended, wait_ns;
};

static struct lock_sums sum_locks(const char *prefix)
{
	struct lock_sums s = {0};

	for (struct lock_class *c = lock_class_first(); c; c = c->next) {
		if (strncmp(c->name, prefix, strlen(prefix)))
			continue;
		s.acquired += lock_class_acquired(c);
		s.contended += atomic_load(&c->contended);
		s.wait_ns += atomic_load(&c->wait_ns);
	}
	return s;
}

/* The n-th CPU that this process may use, or -1 if it has fewer. */
static int nth_cpu(unsigned int n)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -1;
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &set) && !n--)
			return c;
	return -1;
}

static int run_workers(struct bench *b, struct worker *w)
{
	unsigned int started = 0;
	int err = 0;

	while (!err && started < b->args.nr_threads) {
		w[started].b = b;
		err = us_thread_start(&w[started].thread, "bench", nth_cpu(started), work,
				      &w[started]);
		started += !err;
	}
	while (atomic_load(&b->waiting) < started)
		cpu_relax();
	atomic_store(&b->go, true);
	for (unsigned int i = 0; i < started; i++) {
		us_thread_join(&w[i].thread);
		if (!err && w[i].failed)
			err = -ENOSPC;
	}
	return err;
}

static void sum_up(const struct bench *b, const struct worker *w, struct queue_bench_result *res)
{
	double allocs = (double)b->args.nr_allocs * b->args.nr_threads;

	res->least = UINT64_MAX;
	for (unsigned int i = 0; i < b->args.nr_threads; i++) {
		res->wall_ns += (double)w[i].wall_ns / allocs;
		res->cpu_ns += (double)w[i].cpu_ns / allocs;
	}
	for (unsigned int d = 0; d < b->nr; d++) {
		uint64_t given = 0;

		for (unsigned int i = 0; i < b->args.nr_threads; i++)
			given += w[i].given[d];
		if (b->dev[d].full)
			continue;
		res->least = MIN(res->least, given << b->args.order);
		res->most = MAX(res->most, given << b->args.order);
	}
}

static void set_locks(const struct lock_sums *from, const struct lock_sums *to, uint64_t *acquired,
		      uint64_t *contended, uint64_t *wait_ns)
{
	*acquired = to->acquired - from->acquired;
	*contended = to->contended - from->contended;
	*wait_ns = to->wait_ns - from->wait_ns;
}

static int measure(struct bench *b, struct queue_bench_result *res)
{
	struct worker *w = aligned_alloc(64, b->args.nr_threads * sizeof(*w));
	struct lock_sums list, device, now;
	struct queue_got got;
	struct queue_req req = {.order = b->args.order};
	int err;

	if (!w)
		return -ENOMEM;
	memset(w, 0, b->args.nr_threads * sizeof(*w));
	/* The first one finds the full devices full; from then on they are closed. */
	err = queue_alloc(b->queue, &req, &got);
	list = sum_locks("swap_queue_list");
	device = sum_locks("swap_cluster");
	if (!err)
		err = run_workers(b, w);
	now = sum_locks("swap_queue_list");
	set_locks(&list, &now, &res->list_acquired, &res->list_contended, &res->list_wait_ns);
	now = sum_locks("swap_cluster");
	set_locks(&device, &now, &res->device_acquired, &res->device_contended,
		  &res->device_wait_ns);
	sum_up(b, w, res);
	free(w);
	return err;
}

int queue_bench(const struct queue_bench_args *args, struct queue_bench_result *res)
{
	struct queue_config cfg = {.ops = &bench_ops, .policy = args->policy};
	struct bench *b;
	int err;

	*res = (struct queue_bench_result){0};
	if (!args->nr_devs || args->nr_devs + args->nr_full > MAX_DEVICES || !args->nr_threads ||
	    args->nr_threads > BENCH_MAX_THREADS || args->order > MAX_ORDER || !args->nr_allocs)
		return -EINVAL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->args = *args;
	b->nr = args->nr_devs + args->nr_full;
	b->queue = queue_create(&cfg, &err);
	if (!err)
		err = devices_init(b);
	if (!err)
		err = measure(b, res);
	queue_destroy(b->queue);
	for (unsigned int i = 0; i < b->nr; i++)
		clusters_deinit(&b->dev[i].clusters);
	free(b);
	return err;
}
