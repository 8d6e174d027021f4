/* SPDX-License-Identifier: MIT */
/*
 * Tiers and policies as the command line names them:
 *
 *   TIER   = NAME "=" RANGE [",policy=" POLICY]      RANGE = PRIO ["-" PRIO]
 *   NAMES  = "all" | NAME {"," NAME}                 PRIO = "-1" | 0..32767
 *
 * What names may be and what policies there are: swap/tier.h, swap/policy.h. NAMES may have
 * "default", the devices that are in no tier.
 *
 * Not its job: whether tiers overlap or exist, but for tier_set_add().
 * Context: allocates nothing. 0, or -EINVAL with *err; what is put out is then undefined.
 */
#ifndef USWAP_CLI_TIER_H
#define USWAP_CLI_TIER_H

#include "base/util.h"
#include "cli/size.h"
#include "cli/word.h"
#include "super/super.h"

int policy_parse(const struct word *w, enum queue_policy *out, struct parse_error *err)
	__must_check;
int tier_parse(const struct word *w, struct tier_spec *out, struct parse_error *err) __must_check;
int tier_names_parse(const struct word *w, struct tier_names *out, struct parse_error *err)
	__must_check;

/* Adds it to the tiers of a job that is to start: -EINVAL if it does not fit in beside them. */
int tier_set_add(struct run_config *cfg, const struct tier_spec *spec, struct parse_error *err)
	__must_check;
/* Does a tier of the job to start bear each name? */
int tier_names_check(const struct run_config *cfg, const struct tier_names *names,
		     struct parse_error *err) __must_check;

/*
 * A word of `uswap set`: queue-policy=POLICY, tier.TIER, tier.NAME=[none], pid.N.tiers=NAMES,
 * pid.N.policy=POLICY|default. For the client, which finds mistakes before it asks, and for
 * the job: run_config.parse_set.
 */
int tier_set_parse(const struct word *w, struct set_request *out, struct parse_error *err)
	__must_check;
/* The same with the reason as text. */
int tier_set_parse_here(const char *text, struct set_request *out, char *why, size_t len)
	__must_check;

#endif
