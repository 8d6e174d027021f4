/* SPDX-License-Identifier: MIT */
#include "swap/room.h"

#include <string.h>

/* Classes that may use the same devices. */
struct group {
	uint32_t may;
	uint64_t pages;
};

struct looking {
	struct off_room *r;
	struct swap *s;
	uint32_t nr_classes;
};

/* Devices that are closed for a while are looked at, too: whether they have room is another thing. */
static void look_at(void *arg, const struct queue_row *row)
{
	struct looking *l = arg;

	for (uint32_t c = 0; c < l->nr_classes; c++)
		if (row->dev != l->r->dev && !(l->s->class[c].denied >> row->tier & 1))
			l->r->may[c] |= 1u << row->dev;
}

void room_look(struct off_room *r, struct swap *s)
{
	struct looking l = {.r = r, .s = s, .nr_classes = atomic_load(&s->nr_classes)};

	memset(r->may, 0, sizeof(r->may));
	queue_each(s->queue, look_at, &l);
	for (unsigned int d = 0; d < MAX_DEVS; d++)
		r->room[d] = d != r->dev && swap_dev_usable(&s->devs[d]) ?
				     swap_dev_room(&s->devs[d]) : 0;
}

struct counting {
	struct off_room *r;
	struct swap *s;
};

/* The owner lives: its slots are here, and cannot be freed meanwhile. */
static void count(void *host, uint32_t owner, uint32_t nr)
{
	struct counting *c = host;

	c->r->pages[entry_of(&c->s->table, owner)->class] += nr;
}

void room_count(struct off_room *r, struct swap *s)
{
	struct counting c = {.r = r, .s = s};

	memset(r->pages, 0, sizeof(r->pages));
	clusters_each_owner(&s->devs[r->dev].clusters, count, &c);
}

uint64_t room_of(const struct off_room *r, uint32_t devices)
{
	uint64_t sum = 0;

	for (; devices; devices &= devices - 1)
		sum += r->room[__builtin_ctz(devices)];
	return sum;
}

/* Those with pages that may not use just the devices `but`. Returns how many. */
static unsigned int make_groups(const struct off_room *r, uint32_t but, struct group *g)
{
	unsigned int nr = 0, i;

	for (unsigned int c = 0; c < SWAP_MAX_CLASSES; c++) {
		if (!r->pages[c] || r->may[c] == but)
			continue;
		for (i = 0; i < nr && g[i].may != r->may[c]; i++)
			;
		if (i == nr)
			g[nr++] = (struct group){.may = r->may[c]};
		g[i].pages += r->pages[c];
	}
	return nr;
}

/* The groups whose bit is set in `set`, together. */
static struct group join(const struct group *g, uint32_t set)
{
	struct group sum = {0};

	for (; set; set &= set - 1) {
		sum.may |= g[__builtin_ctz(set)].may;
		sum.pages += g[__builtin_ctz(set)].pages;
	}
	return sum;
}

/* No mask of devices: nobody is left out. */
#define NOBODY UINT32_MAX

bool room_suffices(const struct off_room *r, uint64_t *pages, uint64_t *room)
{
	struct group g[SWAP_MAX_CLASSES];
	unsigned int nr = make_groups(r, NOBODY, g);
	uint64_t worst = 0;

	for (uint32_t set = 1; set < 1u << nr; set++) {
		struct group sum = join(g, set);
		uint64_t has = room_of(r, sum.may);

		if (sum.pages <= has || sum.pages - has <= worst)
			continue;
		worst = sum.pages - has;
		*pages = sum.pages;
		*room = has;
	}
	return !worst;
}

bool room_in_any_order(const struct off_room *r)
{
	struct group g[SWAP_MAX_CLASSES];
	unsigned int nr = make_groups(r, NOBODY, g);
	uint64_t all = join(g, (1u << nr) - 1).pages;

	for (unsigned int i = 0; i < nr; i++)
		if (all > room_of(r, g[i].may))
			return false;
	return true;
}

uint32_t room_barred(const struct off_room *r, unsigned int class, uint64_t nr_pages)
{
	struct group g[SWAP_MAX_CLASSES];
	unsigned int nr = make_groups(r, r->may[class], g);
	uint32_t barred = 0;

	for (uint32_t set = 1; set < 1u << nr; set++) {
		struct group sum = join(g, set);

		if (sum.pages + nr_pages > room_of(r, sum.may))
			barred |= sum.may;
	}
	return barred & r->may[class];
}
