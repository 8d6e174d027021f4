/* SPDX-License-Identifier: MIT */
#include "swap_world.h"

/* ---- the device ---- */

static struct watched_dev *to_watched(struct dev *d)
{
	return container_of(d, struct watched_dev, d);
}

static void step(struct watched_dev *t)
{
	/* A change, so that it is a point to switch at also where only those that meet count. */
	atomic_fetch_add(&t->steps, 1);
}

static void watched_read(struct watched_dev *t, struct dev_io *io)
{
	for (uint32_t i = io->slot; i < io->slot + io->nr_pages; i++) {
		sim_check(t->present[i] && !t->writing[i]);
		t->reading[i]++;
	}
	step(t);
	memcpy(io->buf, t->mem + (size_t)io->slot * PAGE_SIZE, io->nr_pages * PAGE_SIZE);
	for (uint32_t i = io->slot; i < io->slot + io->nr_pages; i++)
		t->reading[i]--;
}

static void watched_write(struct watched_dev *t, struct dev_io *io)
{
	for (uint32_t i = io->slot; i < io->slot + io->nr_pages; i++) {
		sim_check(!t->present[i] && !t->reading[i] && !t->writing[i]);
		t->writing[i] = 1;
	}
	step(t);
	memcpy(t->mem + (size_t)io->slot * PAGE_SIZE, io->buf, io->nr_pages * PAGE_SIZE);
	for (uint32_t i = io->slot; i < io->slot + io->nr_pages; i++) {
		t->writing[i] = 0;
		t->present[i] = 1;
	}
	io->stored_bytes = (uint32_t)(io->nr_pages * PAGE_SIZE);
}

static void watched_submit(struct dev *d, struct dev_io *io)
{
	struct watched_dev *t = to_watched(d);

	step(t);
	sim_check(io->slot && io->slot + io->nr_pages <= d->max_slots);
	if (io->op == DEV_READ)
		watched_read(t, io);
	else
		watched_write(t, io);
	io->result = 0;
	io->done(io);
}

static void watched_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct watched_dev *t = to_watched(d);

	step(t);
	for (uint32_t i = slot; i < slot + nr; i++) {
		sim_check(!t->reading[i] && !t->writing[i]);
		t->present[i] = 0;
	}
}

static void watched_destroy(struct dev *d)
{
	struct watched_dev *t = to_watched(d);

	free(t->mem);
	free(t->present);
	free(t);
}

static struct watched_dev *watched_create(uint32_t nr_slots)
{
	struct watched_dev *t = calloc(1, sizeof(*t));

	sim_check(t);
	t->ops = (struct dev_ops){.type = "watched",
				  .submit = watched_submit,
				  .free_slots = watched_free_slots,
				  .destroy = watched_destroy};
	t->d.ops = &t->ops;
	t->d.max_slots = nr_slots;
	atomic_init(&t->d.nr_slots, nr_slots);
	t->mem = calloc(nr_slots, PAGE_SIZE);
	t->present = calloc(nr_slots, 3);
	sim_check(t->mem && t->present);
	t->reading = t->present + nr_slots;
	t->writing = t->reading + nr_slots;
	return t;
}

/* ---- the world ---- */

void world_create(struct world *w, uint32_t nr_slots_0, uint32_t nr_slots_1)
{
	struct swap_config cfg = {.cache_bytes = MIB(4), .max_entries = 64, .no_worker = true};
	uint32_t nr_slots[2] = {nr_slots_0, nr_slots_1};
	int err;

	w->swap = swap_create(&cfg, &err);
	sim_check(w->swap);
	w->nr_devs = 0;
	for (unsigned int i = 0; i < 2 && nr_slots[i]; i++) {
		w->devs[i] = watched_create(nr_slots[i]);
		sim_check(swap_on(w->swap, &w->devs[i]->d,
				  &(struct swap_on_config){.prio = 10 - (int)i}) == 0);
		w->nr_devs++;
	}
}

uint32_t world_nr_present(struct world *w)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < w->nr_devs; i++)
		for (uint32_t k = 0; k < w->devs[i]->d.max_slots; k++)
			n += w->devs[i]->present[k];
	return n;
}

void world_end(struct world *w)
{
	struct swap_usage u;

	swap_check(w->swap);
	swap_usage(w->swap, &u);
	sim_check(u.nr_entries == 0);
	sim_check(u.swapped_pages == 0);
	sim_check(world_nr_present(w) == 0);
	swap_destroy(w->swap);
}

/* Two words that never are one repeated, so that a page is never taken for a filled one. */
static void fill(void *page, uint64_t seed)
{
	uint64_t *p = page;

	for (size_t i = 0; i < PAGE_SIZE / 8; i++)
		p[i] = seed * 1000 + i;
}

swp_t world_store(struct world *w, uint64_t seed)
{
	swp_t e, out;
	void *mem;

	sim_check(swap_new(w->swap, 0, 0, &e, &mem) == 0);
	fill(mem, seed);
	(void)swap_seal(w->swap, e, &out);
	return out;
}

swp_t world_store_written(struct world *w, uint64_t seed)
{
	swp_t e = world_store(w, seed);

	sim_check(swap_writeout(w->swap, 1) == 1);
	return e;
}

struct waiting_load {
	struct swap_load load;
	_Atomic int done;
};

static void load_done(struct swap_load *l)
{
	atomic_store(&container_of(l, struct waiting_load, load)->done, 1);
}

void world_load(struct world *w, swp_t e, uint64_t seed)
{
	static char expected[PAGE_SIZE];
	char page[PAGE_SIZE] __attribute__((aligned(4096)));
	struct waiting_load l = {.load = {.entry = e, .buf = page, .done = load_done}};

	swap_load(w->swap, &l.load);
	while (!atomic_load(&l.done))
		clock_sleep_ns(NSEC_PER_USEC);
	sim_check(l.load.result == 0);
	fill(expected, seed);
	sim_check(memcmp(page, expected, PAGE_SIZE) == 0);
}
