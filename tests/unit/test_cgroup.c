/* SPDX-License-Identifier: MIT */
/*
 * Memory available under the limits of cgroups, on made-up trees of /proc and /sys.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/cgroup.h"

static char root[64];

/* Writes text to root/path and makes the directories above it. */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	strcpy(root, "/tmp/uswap-unit-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1000 kB\nMemAvailable:    8388608 kB\n");
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static struct memory_available get(void)
{
	struct memory_available m;

	assert_int_equal(memory_available_read(root, &m), 0);
	return m;
}

static void mount_v2(const char *own, const char *mounted)
{
	char line[512];

	snprintf(line, sizeof(line), "0::%s\n", own);
	put("proc/self/cgroup", line);
	snprintf(line, sizeof(line),
		 "20 1 0:5 / / rw - ext4 /dev/sda rw\n"
		 "31 20 0:26 %s /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
		 mounted);
	put("proc/self/mountinfo", line);
	put("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
}

static void mount_v1(const char *own, const char *mounted)
{
	char line[512];

	snprintf(line, sizeof(line), "5:cpu,cpuacct:/\n4:memory:%s\n0::/\n", own);
	put("proc/self/cgroup", line);
	snprintf(line, sizeof(line),
		 "31 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		 "32 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
		 "33 20 0:28 %s /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
		 mounted);
	put("proc/self/mountinfo", line);
}

static void test_no_cgroup_means_what_the_machine_has(void **state)
{
	struct memory_available m = get();

	assert_int_equal(m.bytes, GIB(8));
	assert_int_equal(m.version, CGROUP_NONE);
	assert_true(m.cgroup_bytes == CGROUP_NO_LIMIT);
}

static void test_no_meminfo_is_an_error(void **state)
{
	struct memory_available m;

	assert_int_equal(memory_available_read("/nonexistent", &m), -ENOENT);
	put("proc/meminfo", "nothing\n");
	assert_int_equal(memory_available_read(root, &m), -ENODATA);
	put("proc/meminfo", "MemFree: 1024 kB\n");
	assert_int_equal(get().bytes, MIB(1));
}

static void test_v2_limit_minus_use_plus_cache(void **state)
{
	struct memory_available m;

	mount_v2("/job", "/");
	put("sys/fs/cgroup/job/memory.max", "1073741824\n");
	put("sys/fs/cgroup/job/memory.current", "536870912\n");
	put("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 134217728\nactive_file 9\n");
	m = get();
	assert_int_equal(m.version, CGROUP_V2);
	assert_int_equal(m.cgroup_limit, GIB(1));
	assert_int_equal(m.cgroup_bytes, MIB(512 + 128));
	assert_int_equal(m.bytes, MIB(512 + 128));
}

static void test_v2_ancestor_may_be_tighter(void **state)
{
	mount_v2("/a/b/c", "/");
	put("sys/fs/cgroup/a/b/c/memory.max", "max\n");
	put("sys/fs/cgroup/a/b/memory.max", "2147483648\n");
	put("sys/fs/cgroup/a/b/memory.current", "0\n");
	put("sys/fs/cgroup/a/memory.max", "4294967296\n");
	put("sys/fs/cgroup/a/memory.current", "3758096384\n");
	assert_int_equal(get().bytes, MIB(512));
	assert_int_equal(get().cgroup_limit, GIB(4));
}

static void test_v2_high_is_a_limit(void **state)
{
	mount_v2("/job", "/");
	put("sys/fs/cgroup/job/memory.max", "max\n");
	put("sys/fs/cgroup/job/memory.high", "268435456\n");
	assert_int_equal(get().bytes, MIB(256));
}

static void test_v2_in_a_container_the_mount_is_our_cgroup(void **state)
{
	mount_v2("/", "/");
	put("sys/fs/cgroup/memory.max", "536870912\n");
	assert_int_equal(get().bytes, MIB(512));
	/* The host's path, seen through a mount of it. */
	mount_v2("/docker/abc", "/docker/abc");
	assert_int_equal(get().bytes, MIB(512));
	/* A path that leads out of the namespace, or that does not exist here. */
	mount_v2("/../other", "/");
	assert_int_equal(get().bytes, MIB(512));
	mount_v2("/gone", "/");
	assert_int_equal(get().bytes, MIB(512));
}

static void test_use_beyond_the_limit_leaves_nothing(void **state)
{
	mount_v2("/job", "/");
	put("sys/fs/cgroup/job/memory.max", "1048576\n");
	put("sys/fs/cgroup/job/memory.current", "2097152\n");
	assert_int_equal(get().bytes, 0);
}

static void test_v1_limit_and_ancestors(void **state)
{
	struct memory_available m;

	mount_v1("/a/b", "/");
	put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
	put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "805306368\n");
	put("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 268435456\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	m = get();
	assert_int_equal(m.version, CGROUP_V1);
	assert_int_equal(m.bytes, MIB(512));
}

static void test_v1_without_limit(void **state)
{
	mount_v1("/a", "/");
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(get().version, CGROUP_V1);
	assert_int_equal(get().bytes, GIB(8));
}

static void test_v1_limit_of_an_ancestor_that_is_not_mounted(void **state)
{
	mount_v1("/docker/abc", "/docker/abc");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
	put("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 134217728\n");
	assert_int_equal(get().bytes, MIB(128));
}

static void test_mount_point_with_a_space(void **state)
{
	mount_v2("/job", "/");
	put("proc/self/mountinfo", "31 20 0:26 / /sys/fs/c\\040g rw - cgroup2 cgroup2 rw\n");
	put("sys/fs/c g/cgroup.controllers", "memory\n");
	put("sys/fs/c g/job/memory.max", "67108864\n");
	assert_int_equal(get().bytes, MIB(64));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_no_cgroup_means_what_the_machine_has),
		T(test_no_meminfo_is_an_error),
		T(test_v2_limit_minus_use_plus_cache),
		T(test_v2_ancestor_may_be_tighter),
		T(test_v2_high_is_a_limit),
		T(test_v2_in_a_container_the_mount_is_our_cgroup),
		T(test_use_beyond_the_limit_leaves_nothing),
		T(test_v1_limit_and_ancestors),
		T(test_v1_without_limit),
		T(test_v1_limit_of_an_ancestor_that_is_not_mounted),
		T(test_mount_point_with_a_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
