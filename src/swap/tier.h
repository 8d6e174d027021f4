/* SPDX-License-Identifier: MIT */
/*
 * Tiers: named bands of priorities, and masks of them.
 *
 * A band is PRIO-PRIO, both ends included; bands do not overlap, and priorities may lie in none.
 * Since bands are disjoint, the order of tiers is the order of their priorities: everything in a
 * faster one is tried before anything in a slower one. What happens inside is the policy's.
 *
 * Masks name tiers by *identity*: bit i of a mask is the tier whose name has the number i. A name
 * gets its number when it is first used, in a tier or in a mask, and keeps it for the life of the
 * table. So what a mask says survives that a tier is removed: while it is gone the bit means
 * nothing, and a tier made again under that name, even with other priorities, is the same tier. A
 * number is never given to another name, which is why there are at most MAX_TIERS names, and
 * not only at most so many tiers at a time.
 *
 * Number 0 is TIER_UNNAMED, for devices whose priority no band holds. Its name is "default".
 *
 * Not its job: parsing NAME=PRIO-PRIO (the command line's), devices (queue.h).
 * Locking: the caller's (in a queue: its writers). tier_name_ok(), tier_mask_child(): none.
 * Context: never blocks, never allocates.
 */
#ifndef USWAP_SWAP_TIER_H
#define USWAP_SWAP_TIER_H

#include "base/util.h"
#include "swap/policy.h"

#define MAX_TIERS 64u /* names, "default" among them: as many as a mask has bits */
#define TIER_UNNAMED 0u
#define TIER_NAME_BYTES 32u /* with the 0 at the end */
#define TIERS_ALL UINT64_MAX

#define SWAP_PRIO_MIN (-1) /* what a device has whose user says nothing */
#define SWAP_PRIO_MAX 32767

struct tier_spec {
	char name[TIER_NAME_BYTES];
	int prio_min, prio_max;
	enum queue_policy policy; /* POLICY_DEFAULT: the one that holds where no tier says */
};

struct tier {
	struct tier_spec spec;
	unsigned int id;
};

struct tier_table {
	char name[MAX_TIERS][TIER_NAME_BYTES];
	unsigned int nr_names;
	struct tier active[MAX_TIERS]; /* by priority, highest first */
	unsigned int nr_active;
};

void tier_table_init(struct tier_table *t);

/* Letters, digits, '_', '-', '.'; 1 to 31 of them; neither "default" nor "all". */
bool tier_name_ok(const char *name);
/*
 * 0; -EINVAL: name, or no such policy; -ERANGE: priorities, or the wrong way round; -EEXIST: there
 * is a tier of that name; -EBUSY: it overlaps another one; -ENOSPC: too many names.
 */
int tier_add(struct tier_table *t, const struct tier_spec *spec) __must_check;
/*
 * Gives the tier of that name other priorities and another policy, in one step: its devices are
 * never in no tier in between. As tier_add(), but -ENOENT where that says -EEXIST.
 */
int tier_change(struct tier_table *t, const struct tier_spec *spec) __must_check;
/* 0 or -ENOENT. */
int tier_remove(struct tier_table *t, const char *name) __must_check;
/* The tier that holds the priority, or NULL. */
const struct tier *tier_of_prio(const struct tier_table *t, int prio);

/* The number of a name, given to it now if it has none; -EINVAL, -ENOSPC. "default" is 0. */
int tier_id(struct tier_table *t, const char *name) __must_check;
/*
 * The mask that allows the tiers of these names, whether they exist at the time or not ("all":
 * every tier, of today and later). 0, or -errno as tier_id(); *mask is unchanged then.
 */
int tier_mask(struct tier_table *t, const char *const *names, unsigned int n, uint64_t *mask)
	__must_check;

/* What a child may use: never more than its parent, whatever it asks for. */
static inline uint64_t tier_mask_child(uint64_t parent, uint64_t own)
{
	return parent & own;
}

#endif
