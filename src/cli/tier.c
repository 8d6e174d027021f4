/* SPDX-License-Identifier: MIT */
#include "cli/tier.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define POLICIES "queue, plist-shared, plist-percpu, node, fill, weighted or priority"

/* The word as a string of its own, or NULL if it is longer than buf. */
static const char *copy_word(const struct word *w, char *buf, size_t len)
{
	if (w->len >= len)
		return NULL;
	memcpy(buf, w->s, w->len);
	buf[w->len] = '\0';
	return buf;
}

int policy_parse(const struct word *w, enum queue_policy *out, struct parse_error *err)
{
	char buf[32];
	const char *name = copy_word(w, buf, sizeof(buf));

	*out = name ? policy_by_name(name) : POLICY_DEFAULT;
	if (*out == POLICY_DEFAULT)
		return parse_fail(err, "unknown policy '%.*s' at position %zu; use " POLICIES,
				  QUOTE(w), position(w));
	return 0;
}

/* ---- one tier ---- */

static int parse_name(const struct word *w, char name[TIER_NAME_BYTES], struct parse_error *err)
{
	if (!w->len)
		return parse_fail(err, "a tier's name is missing at position %zu", position(w));
	if (w->len >= TIER_NAME_BYTES)
		return parse_fail(err, "name '%.*s' at position %zu is longer than %u characters",
				  QUOTE(w), position(w), TIER_NAME_BYTES - 1);
	copy_word(w, name, TIER_NAME_BYTES);
	if (!strcmp(name, "all") || !strcmp(name, "default"))
		return parse_fail(err, "name '%s' at position %zu has a meaning of its own", name,
				  position(w));
	if (!tier_name_ok(name))
		return parse_fail(err, "name '%s' at position %zu has other characters than letters, "
				       "digits, '_', '-' and '.'", name, position(w));
	return 0;
}

static int parse_prio(const struct word *w, int *prio, struct parse_error *err)
{
	uint64_t n = 0;

	if (!word_is(w, "-1") && !cli_parse_uint(w->s, w->len, SWAP_PRIO_MAX, &n))
		return parse_fail(err, "priority '%.*s' at position %zu is not -1 or a number from 0 "
				       "to %d", QUOTE(w), position(w), SWAP_PRIO_MAX);
	*prio = word_is(w, "-1") ? SWAP_PRIO_MIN : (int)n;
	return 0;
}

static int parse_range(const struct word *w, struct tier_spec *out, struct parse_error *err)
{
	/* A '-' in front belongs to the first number. */
	struct word body = word_behind(w, 0);
	size_t dash = w->len ? 1 + word_find(&body, '-') : 0;
	struct word low = sub_word(w, 0, dash), high = word_behind(w, dash);

	if (!w->len)
		return parse_fail(err, "a priority is missing at position %zu; use PRIO or LOW-HIGH",
				  position(w));
	if (parse_prio(&low, &out->prio_min, err))
		return -EINVAL;
	out->prio_max = out->prio_min;
	if (dash < w->len && parse_prio(&high, &out->prio_max, err))
		return -EINVAL;
	if (out->prio_min > out->prio_max)
		return parse_fail(err, "priorities '%.*s' at position %zu: the lower one comes first",
				  QUOTE(w), position(w));
	return 0;
}

/* RANGE[,policy=P] */
static int parse_band(const struct word *w, struct tier_spec *out, struct parse_error *err)
{
	size_t comma = word_find(w, ',');
	struct word range = sub_word(w, 0, comma), key = word_behind(w, comma), policy;
	size_t eq = word_find(&key, '=');
	struct word name = sub_word(&key, 0, eq);

	out->policy = POLICY_DEFAULT;
	if (parse_range(&range, out, err))
		return -EINVAL;
	if (comma == w->len)
		return 0;
	if (!word_is(&name, "policy"))
		return parse_fail(err, "unknown key '%.*s' at position %zu; a tier has policy=",
				  QUOTE(&name), position(&name));
	policy = word_behind(&key, eq);
	return policy_parse(&policy, &out->policy, err);
}

int tier_parse(const struct word *w, struct tier_spec *out, struct parse_error *err)
{
	size_t eq = word_find(w, '=');
	struct word name = sub_word(w, 0, eq), band = word_behind(w, eq);

	memset(out, 0, sizeof(*out));
	if (parse_name(&name, out->name, err))
		return -EINVAL;
	if (eq == w->len)
		return parse_fail(err, "'%.*s' at position %zu has no priorities; use NAME=PRIO or "
				       "NAME=LOW-HIGH", QUOTE(w), position(w));
	return parse_band(&band, out, err);
}

/* ---- several names ---- */

static int add_name(struct tier_names *out, const struct word *w, struct parse_error *err)
{
	char name[TIER_NAME_BYTES] = "default";

	if (word_is(w, "all"))
		return parse_fail(err, "'all' at position %zu stands alone", position(w));
	if (!word_is(w, "default") && parse_name(w, name, err))
		return -EINVAL;
	for (unsigned int i = 0; i < out->nr; i++)
		if (!strcmp(out->name[i], name))
			return parse_fail(err, "tier '%s' at position %zu is named twice", name,
					  position(w));
	if (out->nr == MAX_TIERS)
		return parse_fail(err, "tier '%s' at position %zu: more than %u tiers", name,
				  position(w), MAX_TIERS);
	memcpy(out->name[out->nr++], name, sizeof(name));
	return 0;
}

int tier_names_parse(const struct word *w, struct tier_names *out, struct parse_error *err)
{
	struct word rest = *w;
	size_t comma;

	memset(out, 0, sizeof(*out));
	if (word_is(w, "all"))
		return 0;
	do {
		struct word name;

		comma = word_find(&rest, ',');
		name = sub_word(&rest, 0, comma);
		if (add_name(out, &name, err))
			return -EINVAL;
		if (comma < rest.len)
			rest = word_behind(&rest, comma);
		else
			return 0;
	} while (true);
}

/* ---- the tiers of a job that is to start ---- */

int tier_set_add(struct run_config *cfg, const struct tier_spec *spec, struct parse_error *err)
{
	for (unsigned int i = 0; i < cfg->nr_tiers; i++)
		if (!strcmp(cfg->tier[i].name, spec->name))
			return parse_fail(err, "tier '%s' is given twice", spec->name);
	for (unsigned int i = 0; i < cfg->nr_tiers; i++) {
		const struct tier_spec *o = &cfg->tier[i];

		if (spec->prio_min <= o->prio_max && o->prio_min <= spec->prio_max)
			return parse_fail(err, "priorities %d-%d overlap tier '%s', %d-%d",
					  spec->prio_min, spec->prio_max, o->name, o->prio_min,
					  o->prio_max);
	}
	if (cfg->nr_tiers == SUPER_MAX_TIERS)
		return parse_fail(err, "more than %u tiers", SUPER_MAX_TIERS);
	cfg->tier[cfg->nr_tiers++] = *spec;
	return 0;
}

int tier_names_check(const struct run_config *cfg, const struct tier_names *names,
		     struct parse_error *err)
{
	for (unsigned int i = 0; i < names->nr; i++) {
		bool found = !strcmp(names->name[i], "default");

		for (unsigned int k = 0; k < cfg->nr_tiers && !found; k++)
			found = !strcmp(names->name[i], cfg->tier[k].name);
		if (!found)
			return parse_fail(err, "no --tier defines '%s'", names->name[i]);
	}
	return 0;
}

/* ---- words of `uswap set` ---- */

/* N.tiers=NAMES, N.policy=P */
static int parse_pid(const struct word *w, struct set_request *out, struct parse_error *err)
{
	size_t dot = word_find(w, '.'), eq = word_find(w, '=');
	struct word number = sub_word(w, 0, MIN(dot, eq)), key = sub_word(w, eq, 0);
	struct word value = word_behind(w, eq);
	uint64_t pid;

	if (dot < eq)
		key = sub_word(w, dot + 1, eq - dot - 1);
	if (!cli_parse_uint(number.s, number.len, INT_MAX, &pid) || !pid)
		return parse_fail(err, "'%.*s' at position %zu is not the number of a process",
				  QUOTE(&number), position(&number));
	out->pid = (int)pid;
	if (word_is(&key, "tiers")) {
		out->key = SET_PID_TIERS;
		return tier_names_parse(&value, &out->names, err);
	}
	if (!word_is(&key, "policy"))
		return parse_fail(err, "unknown key '%.*s' at position %zu; a process has tiers and "
				       "policy",
				  QUOTE(&key), position(&key));
	out->key = SET_PID_POLICY;
	out->policy = POLICY_DEFAULT;
	return word_is(&value, "default") ? 0 : policy_parse(&value, &out->policy, err);
}

static int parse_tier(const struct word *w, struct set_request *out, struct parse_error *err)
{
	size_t eq = word_find(w, '=');
	struct word name = sub_word(w, 0, eq), value = word_behind(w, eq);

	if (value.len && !word_is(&value, "none")) {
		out->key = SET_TIER;
		return tier_parse(w, &out->tier, err);
	}
	out->key = SET_NO_TIER;
	return parse_name(&name, out->tier.name, err);
}

int tier_set_parse(const struct word *w, struct set_request *out, struct parse_error *err)
{
	static const char tier[] = "tier.", pid[] = "pid.", policy[] = "queue-policy=";
	const struct {
		const char *prefix;
		size_t len;
		int (*parse)(const struct word *w, struct set_request *out, struct parse_error *err);
	} kinds[] = {{tier, sizeof(tier) - 1, parse_tier}, {pid, sizeof(pid) - 1, parse_pid}};

	memset(out, 0, sizeof(*out));
	if (word_find(w, '=') == w->len)
		return parse_fail(err, "not KEY=VALUE");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (w->len >= kinds[i].len && !memcmp(w->s, kinds[i].prefix, kinds[i].len)) {
			struct word rest = word_behind(w, kinds[i].len - 1);

			return kinds[i].parse(&rest, out, err);
		}
	if (w->len >= sizeof(policy) - 1 && !memcmp(w->s, policy, sizeof(policy) - 1)) {
		struct word value = word_behind(w, sizeof(policy) - 2);

		out->key = SET_QUEUE_POLICY;
		return policy_parse(&value, &out->policy, err);
	}
	return parse_fail(err, "unknown key '%.*s'; there are ram, queue-policy, tier.NAME, "
			       "pid.N.tiers and pid.N.policy",
			  (int)MIN(word_find(w, '='), (size_t)60), w->s);
}

int tier_set_parse_here(const char *text, struct set_request *out, char *why, size_t len)
{
	struct word w = word_of(text);
	struct parse_error err;
	int rc = tier_set_parse(&w, out, &err);

	if (rc)
		snprintf(why, len, "'%.60s': %s", text, err.text);
	return rc;
}
