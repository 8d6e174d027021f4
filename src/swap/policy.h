/* SPDX-License-Identifier: MIT */
/*
 * The policies by name: which of several devices takes the next folio.
 *
 * What each does, and how far it heeds priority. "Alone" is without tiers; "in a tier" is where a
 * band of priorities is one tier.
 *
 *   queue         (the default) peers take turns, each CPU by itself: of one cluster's worth of
 *                 pages, or of what the device says (queue_dev_config). Alone: peers are the
 *                 devices of one priority. In a tier: all of it; priority does not count.
 *   priority      the same, but priority is strict in a tier too.
 *   fill          one device after the other, higher priority first, then in order of swapon.
 *                 Alone and in a tier the same, but for large folios: within a tier one goes to
 *                 the next device rather than being split.
 *   node          devices of the node first that the folio's program runs on, one after the
 *                 other, then as fill. Alone: among devices of one priority. In a tier: priority
 *                 only breaks ties.
 *   weighted      as queue, but turns are as long as the device's weight or, where no peer has
 *                 one, its measured speed says.
 *   plist-shared  one list for all, higher priority first. Each CPU stays with a device until it
 *                 has used up a cluster; only then it takes the lock and the first of the list, which
 *                 goes behind its peers. So priority is not strict: a CPU goes on with its device
 *                 though one of higher priority may have room again.
 *   plist-percpu  the same list, looked at and rotated, under its lock, with every allocation.
 *                 Priority is strict.
 * The last two are what others are measured against: Linux before and amid the change from a list
 * to per-CPU readers.
 */
#ifndef USWAP_SWAP_POLICY_H
#define USWAP_SWAP_POLICY_H

#include "base/util.h"

#define QUEUE_MAX_NODES 64u /* NUMA nodes, for the policy `node` */

enum queue_policy {
	POLICY_DEFAULT, /* whatever holds above: the tier's, then the job's, then POLICY_QUEUE */
	POLICY_QUEUE,
	POLICY_PLIST_SHARED,
	POLICY_PLIST_PERCPU,
	POLICY_NODE,
	POLICY_FILL,
	POLICY_WEIGHTED,
	POLICY_PRIORITY,
	NR_POLICIES,
};

/* POLICY_DEFAULT if there is none of that name. */
enum queue_policy policy_by_name(const char *name);
/* "default" for POLICY_DEFAULT. */
const char *policy_name(enum queue_policy policy);

#endif
