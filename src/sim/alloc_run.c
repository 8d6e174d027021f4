/* SPDX-License-Identifier: MIT */
#include "sim/alloc_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "swap/cluster.h"

#define FULL_SLOTS CLUSTER_SLOTS
#define PRIO_FULL 20
#define PRIO_FREE 10

struct device {
	struct clusters clusters;
	bool made;
};

struct kept {
	uint32_t slot;
	uint8_t dev, order;
};

/* Of one CPU. */
struct cpu {
	struct rng rng;
	struct kept kept[ALLOC_KEPT_PAGES]; /* a ring */
	unsigned int first, nr, pages;
	uint64_t alloc_ns, free_ns, outside_ns, folios, pages_out, split;
	uint64_t given[QUEUE_MAX_DEVS];
	bool failed;
} __attribute__((aligned(64)));

struct run {
	const struct alloc_args *a;
	struct queue *queue;
	struct device dev[QUEUE_MAX_DEVS];
	struct cpu *cpu;
};

/* ---- devices ---- */

static uint32_t dev_alloc(void *dev, unsigned int order)
{
	return clusters_alloc(&((struct device *)dev)->clusters, order);
}

static bool dev_is_full(void *dev)
{
	uint32_t used, peak, usable;

	clusters_usage(&((struct device *)dev)->clusters, &used, &peak, &usable);
	return used >= usable;
}

static const struct queue_ops ops = {.alloc = dev_alloc, .is_full = dev_is_full};

/* Takes every cluster into use once, so that the run does not begin with that. */
static void warm_up(struct clusters *c, uint32_t slots)
{
	uint32_t n = 0, *slot = calloc(slots / CLUSTER_SLOTS + 1, sizeof(*slot));

	while (slot && n < slots / CLUSTER_SLOTS && (slot[n] = clusters_alloc(c, MAX_ORDER)))
		n++;
	while (n--)
		clusters_free(c, slot[n], MAX_ORDER);
	free(slot);
}

static int device_init(struct device *d, uint32_t slots, bool full)
{
	int err = clusters_init(&d->clusters, slots);

	if (err)
		return err;
	d->made = true;
	clusters_set_size(&d->clusters, slots);
	if (!full)
		warm_up(&d->clusters, slots);
	while (full && clusters_alloc(&d->clusters, 0))
		;
	return 0;
}

static int devices_init(struct run *r)
{
	const struct alloc_args *a = r->a;
	unsigned int nr_free = a->nr_devs - a->nr_full;
	/* `fill` has all on one: four times what is kept, and a cluster of each order for each CPU. */
	uint32_t slots = a->nr_cpus * (4 * ALLOC_KEPT_PAGES + 2 * CLUSTER_SLOTS) + CLUSTER_SLOTS;
	int err = 0;

	for (unsigned int i = 0; i < a->nr_devs && !err; i++) {
		bool full = i >= nr_free;
		struct queue_dev_config cfg = {
			.dev = &r->dev[i], .prio = full ? PRIO_FULL : PRIO_FREE, .node = -1};

		err = device_init(&r->dev[i], full ? FULL_SLOTS : slots, full);
		if (!err)
			err = queue_add(r->queue, i, &cfg);
	}
	return err;
}

/* ---- a CPU ---- */

/* Mean of many draws: `mean`. */
static uint64_t draw(struct cpu *c, uint64_t mean)
{
	return mean ? mean / 2 + rng_below(&c->rng, mean + 1) : 0;
}

static void free_oldest(struct run *r, struct cpu *c)
{
	struct kept *k = &c->kept[c->first];
	uint64_t begin = sim_now_ns();

	c->first = (c->first + 1) % ALLOC_KEPT_PAGES;
	c->nr--;
	c->pages -= 1u << k->order;
	clusters_free(&r->dev[k->dev].clusters, k->slot, k->order);
	if (r->a->policy != POLICY_DEFAULT)
		queue_freed(r->queue, k->dev);
	c->free_ns += sim_now_ns() - begin;
}

static int allocate(struct run *r, unsigned int order, struct queue_got *got)
{
	struct queue_req req = {.order = order};

	if (r->a->policy != POLICY_DEFAULT)
		return queue_alloc(r->queue, &req, got);
	got->dev = 0;
	got->slot = dev_alloc(&r->dev[0], order);
	return got->slot ? 0 : -ENOENT;
}

static int swap_out(struct run *r, struct cpu *c, unsigned int order)
{
	uint64_t begin = sim_now_ns();
	struct queue_got got;
	int err = allocate(r, order, &got);

	c->alloc_ns += sim_now_ns() - begin;
	c->folios++;
	if (err)
		return err;
	c->pages_out += 1u << order;
	c->given[got.dev] += 1u << order;
	while (c->nr && c->pages + (1u << order) > ALLOC_KEPT_PAGES)
		free_oldest(r, c);
	c->kept[(c->first + c->nr) % ALLOC_KEPT_PAGES] =
		(struct kept){.slot = got.slot, .dev = (uint8_t)got.dev, .order = (uint8_t)order};
	c->nr++;
	c->pages += 1u << order;
	return 0;
}

/* The folio, or what it is split into. */
static void swap_out_folio(struct run *r, struct cpu *c, unsigned int order)
{
	c->failed = swap_out(r, c, order) != 0;
	if (!c->failed || !order)
		return;
	c->failed = false;
	c->split++;
	for (unsigned int n = 0; n < 1u << order && !c->failed; n++)
		c->failed = swap_out(r, c, 0) != 0;
}

static void stay_outside(struct cpu *c, uint64_t ns)
{
	sim_work(ns);
	c->outside_ns += ns;
}

static void on_cpu(unsigned int cpu, void *arg)
{
	struct run *r = arg;
	const struct alloc_load *l = &r->a->load;
	struct cpu *c = &r->cpu[cpu];
	uint64_t batch = MAX(l->batch_folios, (uint64_t)1), in_batch, pages = 0;

	in_batch = batch > 1 ? MIN(l->in_batch_ns, l->work_ns) : 0;
	/* So that not all begin with a batch. */
	stay_outside(c, rng_below(&c->rng, batch * (l->work_ns + l->outside_ns) + 1));
	for (uint64_t i = 1; i <= r->a->folios && !c->failed; i++) {
		bool large = rng_below(&c->rng, 1000) < l->large_permille;
		unsigned int order = large ? (unsigned int)l->large_order : 0;

		swap_out_folio(r, c, order);
		sim_work(draw(c, in_batch << order));
		pages += 1u << order;
		if (i % batch && i < r->a->folios)
			continue;
		sim_work(draw(c, pages * (l->work_ns - in_batch)));
		stay_outside(c, draw(c, pages * l->outside_ns));
		pages = 0;
	}
}

/* ---- a run ---- */

static int sum_up(const struct run *r, struct alloc_result *res)
{
	unsigned int nr_free = r->a->nr_devs - r->a->nr_full;

	for (unsigned int i = 0; i < r->a->nr_cpus; i++) {
		const struct cpu *c = &r->cpu[i];

		if (c->failed) {
			snprintf(res->sim.error, sizeof(res->sim.error), "no device has room");
			return -ENOSPC;
		}
		res->folios += c->folios;
		res->pages += c->pages_out;
		res->split += c->split;
		res->alloc_ns += c->alloc_ns;
		res->free_ns += c->free_ns;
		res->outside_ns += c->outside_ns;
		for (unsigned int d = 0; d < r->a->nr_devs; d++)
			res->given[d] += c->given[d];
	}
	res->least = UINT64_MAX;
	for (unsigned int d = 0; d < nr_free; d++) {
		res->least = MIN(res->least, res->given[d]);
		res->most = MAX(res->most, res->given[d]);
	}
	return 0;
}

/* Everything that was given out and not freed is counted as used, and nothing else. */
static int check_use(const struct run *r, struct alloc_result *res)
{
	for (unsigned int d = 0; d < r->a->nr_devs - r->a->nr_full; d++) {
		uint32_t used, peak, usable, kept = 0;

		for (unsigned int i = 0; i < r->a->nr_cpus; i++)
			for (unsigned int k = 0; k < r->cpu[i].nr; k++) {
				const struct cpu *c = &r->cpu[i];
				const struct kept *p =
					&c->kept[(c->first + k) % ALLOC_KEPT_PAGES];

				kept += p->dev == d ? 1u << p->order : 0;
			}
		clusters_usage((struct clusters *)&r->dev[d].clusters, &used, &peak, &usable);
		if (used == kept)
			continue;
		snprintf(res->sim.error, sizeof(res->sim.error),
			 "device %u: %u slots are used, %u were given out", d, used, kept);
		return -EIO;
	}
	return 0;
}

static int run_all(struct run *r, struct alloc_result *res)
{
	int err = devices_init(r);
	struct queue_got got;

	if (err)
		return err;
	/* The first one finds the full devices full; from then on they are closed. */
	if (r->a->policy != POLICY_DEFAULT) {
		err = allocate(r, 0, &got);
		if (err)
			return err;
		clusters_free(&r->dev[got.dev].clusters, got.slot, 0);
	}
	err = sim_run(r->a->nr_cpus, &r->a->costs, on_cpu, r, &res->sim);
	if (!err)
		err = sum_up(r, res);
	return err ? err : check_use(r, res);
}

int alloc_run(const struct alloc_args *a, struct alloc_result *res)
{
	struct queue_config cfg = {.ops = &ops, .policy = a->policy, .nr_cpus = a->nr_cpus};
	struct run *r;
	int err = -ENOMEM;

	memset(res, 0, sizeof(*res));
	if (!a->nr_cpus || a->nr_cpus > SIM_MAX_CPUS || !a->nr_devs ||
	    a->nr_devs > QUEUE_MAX_DEVS || a->nr_full >= a->nr_devs || !a->folios ||
	    a->load.large_order > MAX_ORDER || a->load.large_permille > 1000)
		return -EINVAL;
	sim_set_nr_cpus(a->nr_cpus);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->a = a;
	r->cpu = aligned_alloc(64, a->nr_cpus * sizeof(*r->cpu));
	if (r->cpu) {
		memset(r->cpu, 0, a->nr_cpus * sizeof(*r->cpu));
		for (unsigned int i = 0; i < a->nr_cpus; i++)
			rng_init(&r->cpu[i].rng, (i + 1) * 0x9e3779b97f4a7c15ull);
		r->queue = queue_create(&cfg, &err);
	}
	if (r->queue)
		err = run_all(r, res);
	queue_destroy(r->queue);
	for (unsigned int i = 0; i < a->nr_devs; i++)
		if (r->dev[i].made)
			clusters_deinit(&r->dev[i].clusters);
	free(r->cpu);
	free(r);
	if (err && !res->sim.error[0])
		snprintf(res->sim.error, sizeof(res->sim.error), "%s", strerror(-err));
	return err;
}

/* ---- figures ---- */

uint64_t alloc_system_ns(const struct alloc_result *r)
{
	uint64_t ns = 0;

	for (unsigned int i = 0; i < r->sim.nr_cpus; i++)
		ns += r->sim.cpu[i].busy_ns + r->sim.cpu[i].wait_ns;
	return ns - r->outside_ns;
}

double alloc_system_a_page(const struct alloc_result *r)
{
	return r->pages ? (double)alloc_system_ns(r) / (double)r->pages : 0;
}

double alloc_wait_share(const struct alloc_result *r)
{
	uint64_t wait = 0;

	for (unsigned int i = 0; i < r->sim.nr_cpus; i++)
		wait += r->sim.cpu[i].wait_ns;
	return r->sim.elapsed_ns ?
		       (double)wait / ((double)r->sim.elapsed_ns * r->sim.nr_cpus) : 0;
}
