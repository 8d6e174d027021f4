/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cli/size.h"

#define WHOLE (1000ull << 20)

static uint64_t good(const char *s)
{
	struct parse_error err;
	uint64_t bytes = 0;
	int rc = size_parse(s, strlen(s), 1, WHOLE, &bytes, &err);

	if (rc)
		fail_msg("'%s': %s", s, err.text);
	return bytes;
}

static void bad(const char *s, const char *reason)
{
	struct parse_error err;
	uint64_t bytes = 77;

	assert_int_equal(size_parse(s, strlen(s), 1, WHOLE, &bytes, &err), -EINVAL);
	if (!strstr(err.text, reason))
		fail_msg("'%s': '%s' does not say '%s'", s, err.text, reason);
	assert_int_equal(bytes, 77);
}

static void test_units_are_binary_in_either_case(void **state)
{
	assert_int_equal(good("4096"), 4096);
	assert_int_equal(good("1"), 1);
	assert_int_equal(good("3k"), 3 << 10);
	assert_int_equal(good("3K"), 3 << 10);
	assert_int_equal(good("4m"), 4 << 20);
	assert_int_equal(good("4MiB"), 4 << 20);
	assert_int_equal(good("4g"), 4ull << 30);
	assert_int_equal(good("4GiB"), 4ull << 30);
	assert_int_equal(good("2T"), 2ull << 40);
	assert_int_equal(good("2tiB"), 2ull << 40);
	assert_int_equal(good("007k"), 7 << 10);
}

static void test_fraction_of_a_unit(void **state)
{
	assert_int_equal(good("1.5G"), 3ull << 29);
	assert_int_equal(good("0.5k"), 512);
	assert_int_equal(good("1.3k"), 1331);
	assert_int_equal(good("0.1000000000000000000000000000001M"), 104857);
}

static void test_percentage_of_the_whole(void **state)
{
	assert_int_equal(good("25%"), WHOLE / 4);
	assert_int_equal(good("100%"), WHOLE);
	assert_int_equal(good("12.5%"), WHOLE / 8);
	bad("0%", "zero at position 1");
	bad("50%%", "unknown unit '%%' at position 3");
}

static void test_percentage_refused_without_a_whole(void **state)
{
	struct parse_error err;
	uint64_t bytes;

	assert_int_equal(size_parse("50%", 3, 1, 0, &bytes, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'%' at position 3 has no meaning here"));
	assert_int_equal(size_parse("5x", 2, 1, 0, &bytes, &err), -EINVAL);
	assert_null(strchr(err.text, '%'));
}

static void test_bad_words_name_their_position(void **state)
{
	bad("", "empty size at position 1");
	bad("12Q", "unknown unit 'Q' at position 3; use k, M, G, T or %");
	bad("0x10", "unknown unit 'x10' at position 2");
	bad("-5M", "negative size at position 1");
	bad("+5M", "no digit at position 1");
	bad(" 5M", "no digit at position 1");
	bad("5M ", "unknown unit 'M ' at position 2");
	bad("M", "no digit at position 1");
	bad(".5M", "no digit at position 1");
	bad("1.M", "no digit after the point at position 2");
	bad("1.5.2M", "second decimal point at position 4");
	bad("1.5", "part of a byte at position 2");
	bad("4MB", "unknown unit 'MB' at position 2");
	bad("4Mi", "unknown unit 'Mi' at position 2");
	bad("4iB", "unknown unit 'iB' at position 2");
	bad("1e3", "unknown unit 'e3' at position 2");
}

static void test_zero_is_refused_however_it_is_written(void **state)
{
	bad("0", "zero at position 1");
	bad("000", "zero at position 1");
	bad("0G", "zero at position 1");
	bad("0.0G", "zero at position 1");
	bad("0.0001k", "zero at position 1");
}

static void test_overflow_is_refused(void **state)
{
	assert_int_equal(good("9223372036854775807"), INT64_MAX);
	bad("9223372036854775808", "too large at position 1");
	bad("18446744073709551616", "too large at position 1");
	bad("99999999999999999999999999", "too large at position 1");
	assert_int_equal(good("8388607T"), 8388607ull << 40);
	bad("8388608T", "too large at position 1");
	bad("9999999999999%", "too large at position 1");
}

static void test_only_the_given_length_is_read(void **state)
{
	struct parse_error err;
	uint64_t bytes;

	assert_int_equal(size_parse("64Mgarbage", 3, 1, WHOLE, &bytes, &err), 0);
	assert_int_equal(bytes, 64 << 20);
	assert_int_equal(size_parse("6Q4", 2, 10, WHOLE, &bytes, &err), -EINVAL);
	assert_non_null(strstr(err.text, "unknown unit 'Q' at position 11;"));
}

static void test_text_uses_the_largest_unit(void **state)
{
	char buf[SIZE_TEXT_BYTES];

	assert_string_equal(size_to_text(0, buf), "0");
	assert_string_equal(size_to_text(1023, buf), "1023");
	assert_string_equal(size_to_text(4096, buf), "4K");
	assert_string_equal(size_to_text(3ull << 29, buf), "1.5G");
	assert_string_equal(size_to_text(256ull << 20, buf), "256M");
	assert_string_equal(size_to_text(UINT64_MAX, buf), "16777215.9T");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units_are_binary_in_either_case),
		cmocka_unit_test(test_fraction_of_a_unit),
		cmocka_unit_test(test_percentage_of_the_whole),
		cmocka_unit_test(test_percentage_refused_without_a_whole),
		cmocka_unit_test(test_bad_words_name_their_position),
		cmocka_unit_test(test_zero_is_refused_however_it_is_written),
		cmocka_unit_test(test_overflow_is_refused),
		cmocka_unit_test(test_only_the_given_length_is_read),
		cmocka_unit_test(test_text_uses_the_largest_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
