/* SPDX-License-Identifier: MIT */
#include "swap/tier.h"

#include <errno.h>
#include <string.h>

void tier_table_init(struct tier_table *t)
{
	memset(t, 0, sizeof(*t));
	strcpy(t->name[TIER_UNNAMED], "default");
	t->nr_names = 1;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '.';
}

bool tier_name_ok(const char *name)
{
	size_t len = strnlen(name, TIER_NAME_BYTES);

	if (!len || len == TIER_NAME_BYTES || !strcmp(name, "default") || !strcmp(name, "all"))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_name_char(name[i]))
			return false;
	return true;
}

int tier_id(struct tier_table *t, const char *name)
{
	for (unsigned int i = 0; i < t->nr_names; i++)
		if (!strcmp(t->name[i], name))
			return (int)i;
	if (!tier_name_ok(name))
		return -EINVAL;
	if (t->nr_names == MAX_TIERS)
		return -ENOSPC;
	strcpy(t->name[t->nr_names], name);
	return (int)t->nr_names++;
}

int tier_mask(struct tier_table *t, const char *const *names, unsigned int n, uint64_t *mask)
{
	uint64_t allowed = 0;

	for (unsigned int i = 0; i < n; i++) {
		int id;

		if (!strcmp(names[i], "all")) {
			allowed = TIERS_ALL;
			continue;
		}
		id = tier_id(t, names[i]);
		if (id < 0)
			return id;
		allowed |= 1ull << id;
	}
	*mask = allowed;
	return 0;
}

static int spec_check(const struct tier_table *t, const struct tier_spec *spec)
{
	if (!tier_name_ok(spec->name) || (unsigned int)spec->policy >= NR_POLICIES)
		return -EINVAL;
	if (spec->prio_min < SWAP_PRIO_MIN || spec->prio_max > SWAP_PRIO_MAX ||
	    spec->prio_min > spec->prio_max)
		return -ERANGE;
	for (unsigned int i = 0; i < t->nr_active; i++)
		if (!strcmp(t->active[i].spec.name, spec->name))
			return -EEXIST;
	for (unsigned int i = 0; i < t->nr_active; i++) {
		const struct tier_spec *other = &t->active[i].spec;

		if (spec->prio_min <= other->prio_max && other->prio_min <= spec->prio_max)
			return -EBUSY;
	}
	return 0;
}

int tier_add(struct tier_table *t, const struct tier_spec *spec)
{
	int err = spec_check(t, spec), id;
	unsigned int at = 0;

	if (err)
		return err;
	/* There is room for as many tiers as there are names, so only the name can be refused. */
	id = tier_id(t, spec->name);
	if (id < 0)
		return id;
	while (at < t->nr_active && t->active[at].spec.prio_min > spec->prio_max)
		at++;
	memmove(&t->active[at + 1], &t->active[at], (t->nr_active - at) * sizeof(t->active[0]));
	t->active[at] = (struct tier){.spec = *spec, .id = (unsigned int)id};
	t->nr_active++;
	return 0;
}

int tier_remove(struct tier_table *t, const char *name)
{
	for (unsigned int i = 0; i < t->nr_active; i++) {
		if (strcmp(t->active[i].spec.name, name))
			continue;
		t->nr_active--;
		memmove(&t->active[i], &t->active[i + 1],
			(t->nr_active - i) * sizeof(t->active[0]));
		return 0;
	}
	return -ENOENT;
}

int tier_change(struct tier_table *t, const struct tier_spec *spec)
{
	struct tier old[MAX_TIERS];
	unsigned int nr = t->nr_active;
	int err;

	/* Names are left alone: others read them meanwhile. */
	memcpy(old, t->active, sizeof(old));
	err = tier_remove(t, spec->name);
	if (!err)
		err = tier_add(t, spec);
	if (err) {
		memcpy(t->active, old, sizeof(old));
		t->nr_active = nr;
	}
	return err;
}

const struct tier *tier_of_prio(const struct tier_table *t, int prio)
{
	for (unsigned int i = 0; i < t->nr_active; i++)
		if (prio >= t->active[i].spec.prio_min && prio <= t->active[i].spec.prio_max)
			return &t->active[i];
	return NULL;
}
