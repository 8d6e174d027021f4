/* SPDX-License-Identifier: MIT */
/* Tiers and policies as `run` and `set` take them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cli/tier.h"

static struct tier_spec spec;
static struct tier_names names;
static struct set_request req;

static void tier(const char *text, const char *name, int min, int max, enum queue_policy policy)
{
	struct word w = word_of(text);
	struct parse_error err;

	memset(&spec, 0x55, sizeof(spec));
	if (tier_parse(&w, &spec, &err))
		fail_msg("'%s': %s", text, err.text);
	assert_string_equal(spec.name, name);
	assert_int_equal(spec.prio_min, min);
	assert_int_equal(spec.prio_max, max);
	assert_int_equal(spec.policy, policy);
}

static void says(const char *text, const struct parse_error *err, const char *reason)
{
	if (!strstr(err->text, reason))
		fail_msg("'%s': '%s' does not say '%s'", text, err->text, reason);
	assert_null(strchr(err->text, '\n'));
}

static void bad_tier(const char *text, const char *reason)
{
	struct word w = word_of(text);
	struct parse_error err;

	assert_int_equal(tier_parse(&w, &spec, &err), -EINVAL);
	says(text, &err, reason);
}

static void test_tier_is_a_name_and_a_band_of_priorities(void **state)
{
	tier("fast=10", "fast", 10, 10, POLICY_DEFAULT);
	tier("fast=10-20", "fast", 10, 20, POLICY_DEFAULT);
	tier("a.b_C-9=0-32767", "a.b_C-9", 0, 32767, POLICY_DEFAULT);
	tier("slow=-1", "slow", -1, -1, POLICY_DEFAULT);
	tier("slow=-1-9", "slow", -1, 9, POLICY_DEFAULT);
	tier("slow=-1--1", "slow", -1, -1, POLICY_DEFAULT);
	tier("x=1,policy=fill", "x", 1, 1, POLICY_FILL);
	tier("x=1-2,policy=plist-percpu", "x", 1, 2, POLICY_PLIST_PERCPU);
	tier("abcdefghijabcdefghijabcdefghija=1", "abcdefghijabcdefghijabcdefghija", 1, 1,
	     POLICY_DEFAULT);
}

static void test_tier_mistakes_are_named_with_their_position(void **state)
{
	bad_tier("", "name is missing at position 1");
	bad_tier("=5", "name is missing at position 1");
	bad_tier("a", "'a' at position 1 has no priorities");
	bad_tier("a=", "priority is missing at position 3");
	bad_tier("all=5", "'all' at position 1 has a meaning of its own");
	bad_tier("default=5", "'default' at position 1 has a meaning of its own");
	bad_tier("a b=5", "'a b' at position 1 has other characters");
	bad_tier("a/b=5", "other characters");
	bad_tier("a,b=5", "other characters");
	bad_tier("abcdefghijabcdefghijabcdefghijab=1", "longer than 31 characters");
	bad_tier("a=x", "priority 'x' at position 3 is not");
	bad_tier("a=-2", "priority '-2' at position 3");
	bad_tier("a=-", "priority '-' at position 3");
	bad_tier("a=1-", "priority '' at position 5");
	bad_tier("a=1-2-3", "priority '2-3' at position 5");
	bad_tier("a=32768", "priority '32768' at position 3 is not -1 or a number from 0 to 32767");
	bad_tier("a=1-99999999999999999999", "at position 5");
	bad_tier("a=+1", "priority '+1'");
	bad_tier("a= 1", "priority ' 1'");
	bad_tier("a=9-5", "priorities '9-5' at position 3: the lower one comes first");
	bad_tier("a=1,", "unknown key '' at position 5");
	bad_tier("a=1,foo=2", "unknown key 'foo' at position 5");
	bad_tier("a=1,policy", "unknown policy '' at position 11");
	bad_tier("a=1,policy=", "unknown policy '' at position 12");
	bad_tier("a=1,policy=default", "unknown policy 'default' at position 12");
	bad_tier("a=1,policy=fill,policy=fill", "unknown policy 'fill,policy=fill' at position 12");
}

static void test_each_policy_has_a_name(void **state)
{
	struct parse_error err;

	for (int p = POLICY_QUEUE; p < NR_POLICIES; p++) {
		struct word w = word_of(policy_name((enum queue_policy)p));
		enum queue_policy got;

		assert_int_equal(policy_parse(&w, &got, &err), 0);
		assert_int_equal(got, p);
	}
}

static int parse_names(const char *text, struct parse_error *err)
{
	struct word w = word_of(text);

	memset(&names, 0x55, sizeof(names));
	return tier_names_parse(&w, &names, err);
}

static void bad_names(const char *text, const char *reason)
{
	struct parse_error err;

	assert_int_equal(parse_names(text, &err), -EINVAL);
	says(text, &err, reason);
}

static void test_names_of_tiers(void **state)
{
	struct parse_error err;

	assert_int_equal(parse_names("all", &err), 0);
	assert_int_equal(names.nr, 0);
	assert_int_equal(parse_names("a", &err), 0);
	assert_int_equal(names.nr, 1);
	assert_string_equal(names.name[0], "a");
	assert_int_equal(parse_names("b,default,a", &err), 0);
	assert_int_equal(names.nr, 3);
	assert_string_equal(names.name[1], "default");
	bad_names("", "missing at position 1");
	bad_names("a,,b", "missing at position 3");
	bad_names("a,", "missing at position 3");
	bad_names("a,all", "'all' at position 3 stands alone");
	bad_names("a,b,a", "tier 'a' at position 5 is named twice");
	bad_names("a b", "other characters");
}

static void test_as_many_names_as_a_mask_has_bits(void **state)
{
	char text[1024] = "";
	struct parse_error err;

	for (unsigned int i = 0; i < MAX_TIERS; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%st%u", i ? "," : "", i);
	assert_int_equal(parse_names(text, &err), 0);
	assert_int_equal(names.nr, MAX_TIERS);
	strcat(text, ",x");
	bad_names(text, "more than 64 tiers");
}

static int add(struct run_config *cfg, const char *text, struct parse_error *err)
{
	struct word w = word_of(text);

	assert_int_equal(tier_parse(&w, &spec, err), 0);
	return tier_set_add(cfg, &spec, err);
}

static void test_tiers_of_a_job_fit_in_beside_each_other(void **state)
{
	static struct run_config cfg;
	struct parse_error err;
	char text[64];

	assert_int_equal(add(&cfg, "a=10-20", &err), 0);
	assert_int_equal(add(&cfg, "b=21", &err), 0);
	assert_int_equal(add(&cfg, "c=-1-9", &err), 0);
	assert_int_equal(add(&cfg, "d=20-30", &err), -EINVAL);
	says("d", &err, "priorities 20-30 overlap tier 'a', 10-20");
	assert_int_equal(add(&cfg, "d=0-100", &err), -EINVAL);
	assert_int_equal(add(&cfg, "a=50", &err), -EINVAL);
	says("a", &err, "tier 'a' is given twice");
	assert_int_equal(cfg.nr_tiers, 3);
	assert_int_equal(parse_names("c,default", &err), 0);
	assert_int_equal(tier_names_check(&cfg, &names, &err), 0);
	assert_int_equal(parse_names("c,d", &err), 0);
	assert_int_equal(tier_names_check(&cfg, &names, &err), -EINVAL);
	says("c,d", &err, "no --tier defines 'd'");
	while (cfg.nr_tiers < SUPER_MAX_TIERS) {
		snprintf(text, sizeof(text), "t%u=%u", cfg.nr_tiers, 100 + cfg.nr_tiers);
		assert_int_equal(add(&cfg, text, &err), 0);
	}
	assert_int_equal(add(&cfg, "last=99", &err), -EINVAL);
	says("last", &err, "more than 63 tiers");
}

static void set(const char *text)
{
	struct word w = word_of(text);
	struct parse_error err;

	if (tier_set_parse(&w, &req, &err))
		fail_msg("'%s': %s", text, err.text);
}

static void bad_set(const char *text, const char *reason)
{
	struct word w = word_of(text);
	struct parse_error err;
	char why[400];

	assert_int_equal(tier_set_parse(&w, &req, &err), -EINVAL);
	says(text, &err, reason);
	assert_int_equal(tier_set_parse_here(text, &req, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, reason));
}

static void test_words_of_set(void **state)
{
	set("queue-policy=node");
	assert_int_equal(req.key, SET_QUEUE_POLICY);
	assert_int_equal(req.policy, POLICY_NODE);
	set("tier.fast=3-5,policy=weighted");
	assert_int_equal(req.key, SET_TIER);
	assert_string_equal(req.tier.name, "fast");
	assert_int_equal(req.tier.prio_max, 5);
	assert_int_equal(req.tier.policy, POLICY_WEIGHTED);
	set("tier.a.b=3");
	assert_string_equal(req.tier.name, "a.b");
	set("tier.fast=none");
	assert_int_equal(req.key, SET_NO_TIER);
	assert_string_equal(req.tier.name, "fast");
	set("tier.fast=");
	assert_int_equal(req.key, SET_NO_TIER);
	set("pid.12.tiers=a,default");
	assert_int_equal(req.key, SET_PID_TIERS);
	assert_int_equal(req.pid, 12);
	assert_int_equal(req.names.nr, 2);
	set("pid.12.tiers=all");
	assert_int_equal(req.names.nr, 0);
	set("pid.12.policy=fill");
	assert_int_equal(req.key, SET_PID_POLICY);
	assert_int_equal(req.policy, POLICY_FILL);
	set("pid.12.policy=default");
	assert_int_equal(req.policy, POLICY_DEFAULT);
}

static void test_mistakes_in_words_of_set(void **state)
{
	bad_set("", "not KEY=VALUE");
	bad_set("tier.a", "not KEY=VALUE");
	bad_set("order=3", "unknown key 'order'");
	bad_set("queue-policy=x", "unknown policy 'x' at position 14");
	bad_set("queue-policy=default", "unknown policy 'default'");
	bad_set("tier.=3", "name is missing at position 6");
	bad_set("tier.all=none", "'all' at position 6 has a meaning of its own");
	bad_set("tier.a=9-3", "at position 8: the lower one comes first");
	bad_set("pid.x.tiers=a", "'x' at position 5 is not the number of a process");
	bad_set("pid.0.tiers=a", "'0' at position 5");
	bad_set("pid.-1.tiers=a", "'-1' at position 5");
	bad_set("pid.99999999999.tiers=a", "at position 5");
	bad_set("pid.5=a", "unknown key '' at position 6");
	bad_set("pid.5.=a", "unknown key '' at position 7");
	bad_set("pid.5.ram=a", "unknown key 'ram' at position 7");
	bad_set("pid.5.tiers=", "missing at position 13");
	bad_set("pid.5.tiers=none=", "other characters");
	bad_set("pid.5.policy=x", "unknown policy 'x' at position 14");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tier_is_a_name_and_a_band_of_priorities),
		cmocka_unit_test(test_tier_mistakes_are_named_with_their_position),
		cmocka_unit_test(test_each_policy_has_a_name),
		cmocka_unit_test(test_names_of_tiers),
		cmocka_unit_test(test_as_many_names_as_a_mask_has_bits),
		cmocka_unit_test(test_tiers_of_a_job_fit_in_beside_each_other),
		cmocka_unit_test(test_words_of_set),
		cmocka_unit_test(test_mistakes_in_words_of_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
