/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/spec.h"

#define AVAILABLE GIB(8)

static struct swap_spec spec;

static const struct swap_spec *good(const char *text)
{
	struct parse_error err;

	memset(&spec, 0x55, sizeof(spec));
	if (spec_parse(text, AVAILABLE, &spec, &err))
		fail_msg("'%s': %s", text, err.text);
	return &spec;
}

static void bad(const char *text, const char *reason)
{
	struct parse_error err;

	assert_int_equal(spec_parse(text, AVAILABLE, &spec, &err), -EINVAL);
	if (!strstr(err.text, reason))
		fail_msg("'%s': '%s' does not say '%s'", text, err.text, reason);
	assert_null(strchr(err.text, '\n'));
}

static void is_file(const char *text, const char *path, uint64_t bytes)
{
	const struct swap_spec *s = good(text);

	assert_int_equal(s->type, SWAP_SPEC_FILE);
	assert_string_equal(s->path, path);
	assert_int_equal(s->bytes, bytes);
}

static void test_zram_has_an_optional_size(void **state)
{
	const struct swap_spec *s = good("zram");

	assert_int_equal(s->type, SWAP_SPEC_ZRAM);
	assert_int_equal(s->bytes, 0);
	assert_int_equal(s->prio, -1);
	assert_int_equal(s->codec, CODEC_LZ4);
	assert_false(s->force || s->keep || s->has_fault || s->has_delay);
	assert_int_equal(good("zram:64M")->bytes, MIB(64));
	assert_int_equal(good("zram:50%")->bytes, AVAILABLE / 2);
}

static void test_weight_is_a_number_from_1_to_1000(void **state)
{
	assert_int_equal(good("zram")->weight, 0);
	assert_int_equal(good("zram,weight=1")->weight, 1);
	assert_int_equal(good("file:/a:1G,weight=1000,prio=3")->weight, 1000);
	assert_int_equal(good("dev:/dev/x,weight=7")->weight, 7);
	bad("zram,weight=0", "weight '0' at position 13 is not a number from 1 to 1000");
	bad("zram,weight=1001", "weight '1001' at position 13");
	bad("zram,weight=-1", "weight '-1'");
	bad("zram,weight=", "weight ''");
	bad("zram,weight", "key 'weight' at position 6 needs a value");
	bad("zram,weight=1,weight=1", "key 'weight' at position 15 is given twice");
}

static void test_zram_takes_no_path(void **state)
{
	bad("zram:/tmp/x", "size '/tmp/x': no digit at position 6");
	bad("zram:1G:2G", "size '1G:2G': unknown unit 'G:2G' at position 7");
}

static void test_size_errors_name_the_position_in_the_spec(void **state)
{
	bad("zram:12Q", "size '12Q': unknown unit 'Q' at position 8; use k, M, G, T or %");
	bad("zram:", "empty size at position 6");
	bad("zram:0", "size '0': zero at position 6");
	bad("zram:4096", "below the smallest");
	bad("zram:-1M", "negative size at position 6");
	bad("file:/a/b:12Q,prio=1", "size '12Q': unknown unit 'Q' at position 13");
	bad("file:x:0", "size '0': zero at position 8");
	bad("file:/a:", "empty size at position 9");
	bad("file:/a:-5G", "negative size at position 9");
	bad("file:/a:0x10", "unknown unit 'x10' at position 10");
}

static void test_file_size_is_the_last_field_that_reads_as_one(void **state)
{
	is_file("file:/a/b", "/a/b", 0);
	is_file("file:/a/b:1G", "/a/b", GIB(1));
	is_file("file:rel", "rel", 0);
	is_file("file:/a:b", "/a:b", 0);
	is_file("file:/a:b:64m", "/a:b", MIB(64));
	is_file("file:/a:1G:2G", "/a:1G", GIB(2));
	is_file("file:/a:1G:b", "/a:1G:b", 0);
	is_file("file:C:/x", "C:/x", 0);
	is_file("file:./1G", "./1G", 0);
	is_file("file:/a:25%,prio=3", "/a", AVAILABLE / 4);
}

static void test_backslash_escapes_colon_comma_and_itself(void **state)
{
	is_file("file:/a\\:1G", "/a:1G", 0);
	is_file("file:/a\\:1G:2G", "/a:1G", GIB(2));
	is_file("file:/a\\,b:1M,keep", "/a,b", MIB(1));
	is_file("file:/a\\\\:1M", "/a\\", MIB(1));
	is_file("file:/a\\b", "/ab", 0);
	bad("file:/a\\", "nothing behind the backslash at position 8");
}

static void test_file_needs_a_path(void **state)
{
	bad("file", "a path is missing");
	bad("file:", "a path is missing at position 6");
	bad("file::1G", "a path is missing at position 6");
	bad("file:1G", "a path is missing at position 6");
	bad("file:,keep", "a path is missing at position 6");
}

static void test_path_that_is_too_long(void **state)
{
	char *text = malloc(5000);

	strcpy(text, "file:");
	memset(text + 5, 'a', 4095);
	text[5 + 4095] = '\0';
	assert_int_equal(strlen(good(text)->path), 4095);
	strcat(text, "a");
	bad(text, "is longer than 4095 bytes");
	free(text);
}

static void test_types(void **state)
{
	bad("", "unknown type '' at position 1");
	bad("disk:/x", "unknown type 'disk' at position 1");
	bad("ZRAM", "unknown type 'ZRAM' at position 1");
	bad("disk:/x", "use zram, file or dev");
	bad("nbd:nbd\\://h", "type 'nbd' at position 1 is not available in this version");
	bad("null", "type 'null' at position 1 is not available in this version");
}

static void test_priority(void **state)
{
	assert_int_equal(good("zram,prio=0")->prio, 0);
	assert_int_equal(good("zram:1G,prio=32767")->prio, 32767);
	bad("zram,prio=32768", "prio '32768' at position 11 is not a number from 0 to 32767");
	bad("zram,prio=-1", "prio '-1' at position 11");
	bad("zram,prio=", "prio '' at position 11");
	bad("zram,prio=1x", "prio '1x' at position 11");
	bad("zram,prio", "key 'prio' at position 6 needs a value");
	bad("zram,prio=1,prio=2", "key 'prio' at position 13 is given twice");
}

static void test_codec_is_for_zram(void **state)
{
	const struct swap_spec *s = good("zram,codec=lz4");

	assert_int_equal(s->codec, CODEC_LZ4);
	s = good("zram,codec=zstd");
	assert_int_equal(s->codec, CODEC_ZSTD);
	assert_int_equal(s->level, 0);
	s = good("zram:1G,codec=zstd:19,prio=1");
	assert_int_equal(s->level, 19);
	assert_int_equal(s->prio, 1);
	bad("zram,codec=zstd:0", "codec level at position 17 is not a number from 1 to 19");
	bad("zram,codec=zstd:20", "codec level at position 17");
	bad("zram,codec=zstd:", "codec level at position 17");
	bad("zram,codec=lz4:2", "unknown codec 'lz4:2' at position 12");
	bad("zram,codec=gzip", "unknown codec 'gzip' at position 12; use lz4 or zstd[:LEVEL]");
	bad("file:/a,codec=lz4", "key 'codec' at position 9 is for zram only");
}

static void test_force_and_keep_are_for_files(void **state)
{
	const struct swap_spec *s = good("file:/a:1G,force,keep");

	assert_true(s->force);
	assert_true(s->keep);
	assert_false(good("file:/a,force")->keep);
	bad("zram,force", "key 'force' at position 6 is for file and dev only");
	bad("dev:/dev/sda,keep", "key 'keep' at position 14 is for file only");
	bad("zram,keep", "key 'keep' at position 6 is for file only");
	bad("file:/a,keep=1", "key 'keep' at position 9 takes no value");
}

static void test_block_devices(void **state)
{
	const struct swap_spec *s = good("dev:/dev/sda2");

	assert_int_equal(s->type, SWAP_SPEC_DEV);
	assert_string_equal(s->path, "/dev/sda2");
	assert_int_equal(s->bytes, 0);
	assert_int_equal(s->prio, -1);
	assert_false(s->force);
	assert_int_equal(s->discard, DISCARD_NONE);
	s = good("dev:/dev/disk/by-path/a\\:b:2G,prio=5,force,discard=pages,no-io-uring");
	assert_string_equal(s->path, "/dev/disk/by-path/a:b");
	assert_int_equal(s->bytes, GIB(2));
	assert_int_equal(s->prio, 5);
	assert_true(s->force && s->no_io_uring);
	assert_int_equal(s->discard, DISCARD_PAGES);
	bad("dev:", "a path is missing at position 5; use dev:PATH[:SIZE]");
	bad("dev", "a path is missing at position 4; use dev:PATH[:SIZE]");
	bad("dev:1G", "a path is missing at position 5");
	bad("dev:/dev/sda:1Q", "size '1Q'");
	bad("dev:/dev/sda:4k", "below the smallest");
	bad("dev:/dev/sda,no-direct", "key 'no-direct' at position 14 is for zram and file only");
}

static void test_discard(void **state)
{
	assert_int_equal(good("file:/a,discard=none")->discard, DISCARD_NONE);
	assert_int_equal(good("file:/a:1G,discard=once")->discard, DISCARD_ONCE);
	assert_int_equal(good("file:/a,discard=pages")->discard, DISCARD_PAGES);
	bad("file:/a,discard", "key 'discard' at position 9 needs a value");
	bad("file:/a,discard=all", "discard 'all' at position 17 is none of none, once and pages");
	bad("zram,discard=once", "key 'discard' at position 6 is for file and dev only; zram gives");
}

static void test_unknown_keys(void **state)
{
	bad("zram,", "unknown key '' at position 6");
	bad("zram,,prio=1", "unknown key '' at position 6");
	bad("zram,foo=1", "unknown key 'foo' at position 6");
	bad("zram,foo:1", "unknown key 'foo:1' at position 6");
	bad("file:/a,b:1G", "unknown key 'b:1G' at position 9; in a path write '\\,' for a comma");
}

static void test_node_is_a_number_from_0_to_63(void **state)
{
	assert_int_equal(good("zram")->node, -1);
	assert_int_equal(good("zram,node=0")->node, 0);
	assert_int_equal(good("file:/a:1M,node=63")->node, 63);
	assert_int_equal(good("dev:/a,node=7")->node, 7);
	bad("zram,node=64", "node '64' at position 11 is not a number from 0 to 63");
	bad("zram,node=-1", "node '-1' at position 11");
	bad("zram,node=", "node '' at position 11");
}

static void test_keys_of_tests(void **state)
{
	const struct swap_spec *s =
		good("file:/a,fault-read=0.5,fault-write=1,fault-enospc=.25,fault-corrupt-read=0,"
		     "fault-corrupt-write=0.125,fault-seed=9,fault-slot=7,no-io-uring,no-direct");

	assert_true(s->has_fault);
	assert_false(s->has_delay);
	assert_true(s->fault.read_eio == 0.5 && s->fault.write_eio == 1.0);
	assert_true(s->fault.write_enospc == 0.25 && s->fault.corrupt_read == 0.0);
	assert_true(s->fault.corrupt_write == 0.125);
	assert_int_equal(s->fault.seed, 9);
	assert_int_equal(s->fault.bad_slot, 7);
	assert_true(s->no_io_uring && s->no_direct);
	s = good("zram,delay-read=100,delay-write=2000");
	assert_true(s->has_delay);
	assert_false(s->has_fault);
	assert_int_equal(s->delay.read_ns, 100000);
	assert_int_equal(s->delay.write_ns, 2000000);
	s = good("dev:/a,fault-discard=0.5,delay-discard=7");
	assert_true(s->has_fault && s->has_delay);
	assert_true(s->fault.discard_eio == 0.5);
	assert_int_equal(s->delay.discard_ns, 7000);
	bad("zram,fault-read=1.5", "'1.5' at position 17 is not a chance from 0 to 1");
	bad("zram,fault-read=nan", "'nan' at position 17");
	bad("zram,fault-read=1.2.3", "'1.2.3' at position 17");
	bad("zram,fault-read=", "'' at position 17");
	assert_int_equal(s->delay.depth, 0);
	s = good("file:/a,delay-write=100,delay-depth=3");
	assert_int_equal(s->delay.depth, 3);
	s = good("zram,delay-depth=1024");
	assert_true(s->has_delay);
	bad("zram,delay-depth=0", "delay-depth '0' at position 18 is not a number from 1 to 1024");
	bad("zram,delay-depth=1025", "from 1 to 1024");
	bad("zram,delay-depth=", "delay-depth '' at position 18");
	bad("zram,delay-depth=1.5", "delay-depth '1.5'");
	bad("zram,delay-depth", "needs a value");
	bad("zram,delay-read=x", "'x' at position 17 is not a number");
	bad("zram,fault-slot=4294967296", "is not a number up to 4294967295");
}

static void expect_absolute(const char *text, const char *cwd, const char *want)
{
	char *got = spec_make_absolute(text, cwd);
	struct parse_error err;
	struct swap_spec sp;

	assert_string_equal(got, want);
	assert_int_equal(spec_parse(got, GIB(1), &sp, &err), 0);
	if (sp.type == SWAP_SPEC_FILE)
		assert_int_equal(sp.path[0], '/');
	free(got);
}

static void test_relative_paths_become_absolute(void **state)
{
	expect_absolute("file:swap", "/home/a", "file:/home/a/swap");
	expect_absolute("file:./swap:1G,prio=3", "/", "file://./swap:1G,prio=3");
	expect_absolute("file:/x:1G", "/home/a", "file:/x:1G");
	expect_absolute("file:a\\,b:2M", "/c,d:e\\f", "file:/c\\,d\\:e\\\\f/a\\,b:2M");
	expect_absolute("zram:64M,prio=7", "/home/a", "zram:64M,prio=7");
	expect_absolute("zram", "/home/a", "zram");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zram_has_an_optional_size),
		cmocka_unit_test(test_weight_is_a_number_from_1_to_1000),
		cmocka_unit_test(test_zram_takes_no_path),
		cmocka_unit_test(test_size_errors_name_the_position_in_the_spec),
		cmocka_unit_test(test_file_size_is_the_last_field_that_reads_as_one),
		cmocka_unit_test(test_backslash_escapes_colon_comma_and_itself),
		cmocka_unit_test(test_file_needs_a_path),
		cmocka_unit_test(test_path_that_is_too_long),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_priority),
		cmocka_unit_test(test_codec_is_for_zram),
		cmocka_unit_test(test_force_and_keep_are_for_files),
		cmocka_unit_test(test_block_devices),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_node_is_a_number_from_0_to_63),
		cmocka_unit_test(test_keys_of_tests),
		cmocka_unit_test(test_relative_paths_become_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
