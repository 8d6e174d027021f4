/* SPDX-License-Identifier: MIT */
/*
 * The feature check says the same in both its forms, whatever this machine has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "sys/check.h"
#include "sys/check_internal.h"
#include "sys/uffd.h"

static struct check_report report;

static void test_short_and_full_check_agree(void **state)
{
	char why[512] = "";
	int rc = check_required(why, sizeof(why));

	check_probe(&report);
	assert_int_equal(rc != 0, report.nr_required_missing != 0);
	if (rc) {
		assert_true(rc < 0);
		assert_true(strlen(why) > 0);
		assert_null(strchr(why, '\n'));
	}
}

static void test_what_is_missing_comes_with_a_remedy(void **state)
{
	check_probe(&report);
	assert_in_range(report.nr, 20, CHECK_MAX_ITEMS - 1);
	for (unsigned int i = 0; i < report.nr; i++) {
		assert_true(strlen(report.item[i].name) > 0);
		assert_true(strlen(report.item[i].purpose) > 0);
		if (report.item[i].state == CHECK_MISSING)
			assert_true(strlen(report.item[i].remedy) > 0);
	}
}

static void test_every_feature_that_run_asks_for_is_checked(void **state)
{
	assert_int_equal(UFFD_FEATURES_REQUIRED & ~check_required_features(), 0);
}

static void test_short_check_is_fast(void **state)
{
	uint64_t best = UINT64_MAX;
	char why[512];

	for (int i = 0; i < 10; i++) {
		uint64_t start = clock_now_ns();

		(void)!check_required(why, sizeof(why));
		best = MIN(best, clock_now_ns() - start);
	}
	assert_true(best < 3 * NSEC_PER_MSEC);
}

static void test_exit_status_follows_the_report(void **state)
{
	char *text[] = {"check", NULL}, *json[] = {"check", "--json", NULL};
	char *wrong[] = {"check", "--frob", NULL};
	int expected;

	check_probe(&report);
	expected = report.nr_required_missing ? 125 : 0;
	assert_int_equal(verb_check(1, text), expected);
	assert_int_equal(verb_check(2, json), expected);
	assert_int_equal(verb_check(2, wrong), 125);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short_and_full_check_agree),
		cmocka_unit_test(test_what_is_missing_comes_with_a_remedy),
		cmocka_unit_test(test_every_feature_that_run_asks_for_is_checked),
		cmocka_unit_test(test_short_check_is_fast),
		cmocka_unit_test(test_exit_status_follows_the_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
