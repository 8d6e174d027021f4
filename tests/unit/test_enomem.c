/* SPDX-License-Identifier: MIT */
/*
 * What the kernel's log says of a refused request for memory.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sys/enomem.h"

#define LINE "4,1020,5164409770,-;__vm_enough_memory: pid: 17260, comm: "
#define TAIL " not enough memory for the allocation\n"

static void test_thread_name_and_size(void **state)
{
	struct enomem_refusal r;

	(void)state;
	assert_true(enomem_parse(LINE "python3, bytes: 35184372092928" TAIL, &r));
	assert_int_equal(r.tid, 17260);
	assert_string_equal(r.comm, "python3");
	assert_true(r.bytes == 35184372092928);
	/* With the caller, and with a dictionary below. */
	assert_true(enomem_parse("4,1,2,-,caller=T12;__vm_enough_memory: pid: 12, comm: a, "
				 "bytes: 4096" TAIL " SUBSYSTEM=x, bytes: 5\n",
				 &r));
	assert_int_equal(r.tid, 12);
	assert_true(r.bytes == 4096);
}

static void test_names_of_any_kind(void **state)
{
	struct enomem_refusal r;

	(void)state;
	assert_true(enomem_parse(LINE "a, bytes: 1;\\x0a, bytes: 8192" TAIL, &r));
	assert_string_equal(r.comm, "a, bytes: 1;\\x0");
	assert_true(r.bytes == 8192);
	assert_true(enomem_parse(LINE ", bytes: 8192" TAIL, &r));
	assert_string_equal(r.comm, "");
}

static void test_without_a_size(void **state)
{
	struct enomem_refusal r;

	(void)state;
	assert_true(enomem_parse(LINE "name, no enough memory for the allocation\n", &r));
	assert_string_equal(r.comm, "name");
	assert_true(r.bytes == 0);
}

static void test_other_records(void **state)
{
	struct enomem_refusal r;

	(void)state;
	assert_false(enomem_parse("", &r));
	assert_false(enomem_parse("4,1,2,-;", &r));
	assert_false(enomem_parse("6,1,2,-;EXT4-fs (loop0): mounted filesystem\n", &r));
	assert_false(enomem_parse("4,1,2,-;__vm_enough_memory: pid: 1", &r));
	assert_false(enomem_parse("4,1,2,-;__vm_enough_memory: pid: 0, comm: a, bytes: 1" TAIL, &r));
	/* Written by a program: facility 1. */
	assert_false(enomem_parse("12,1,2,-;__vm_enough_memory: pid: 7, comm: a, bytes: 1" TAIL, &r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread_name_and_size),
		cmocka_unit_test(test_names_of_any_kind),
		cmocka_unit_test(test_without_a_size),
		cmocka_unit_test(test_other_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
