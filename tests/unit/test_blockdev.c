/* SPDX-License-Identifier: MIT */
/* What /sys and /proc say of block devices, from a folder made up like them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/blockdev.h"
#include "sys/node.h"

static char root[64], text[512];

/* Writes a file below root, and makes the folders that it lies in. */
static void put(const char *name, const char *content)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *s = path + strlen(root) + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		(void)mkdir(path, 0755);
		*s = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(content, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* A disk 8:0 with a partition 8:1, as links from dev/block, and a bare device 7:3. */
static int setup(void **state)
{
	char path[256];

	snprintf(root, sizeof(root), "/tmp/uswap-test-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("sys/disk/queue/rotational", "1\n");
	put("sys/disk/queue/zoned", "none\n");
	put("sys/disk/queue/discard_max_bytes", "2147450880\n");
	put("sys/disk/dev", "8:0\n");
	put("sys/disk/part1/partition", "1\n");
	put("sys/disk/part1/dev", "8:1\n");
	put("sys/smr/queue/zoned", "host-managed\n");
	put("sys/smr/queue/rotational", "x\n");
	put("sys/dev/block/none", "");
	put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
	snprintf(path, sizeof(path), "%s/sys/dev/block/8:0", root);
	if (symlink("../../disk", path))
		return -1;
	snprintf(path, sizeof(path), "%s/sys/dev/block/8:1", root);
	if (symlink("../../disk/part1", path))
		return -1;
	snprintf(path, sizeof(path), "%s/sys/dev/block/9:9", root);
	return symlink("../../smr", path);
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void test_queue_of_disk_and_partition(void **state)
{
	for (unsigned int part = 0; part < 2; part++) {
		assert_int_equal(blockdev_queue_number(root, makedev(8, part), "rotational"), 1);
		assert_int_equal(blockdev_queue_number(root, makedev(8, part), "discard_max_bytes"),
				 2147450880);
		assert_false(blockdev_zoned(root, makedev(8, part)));
	}
	assert_true(blockdev_zoned(root, makedev(9, 9)));
	assert_int_equal(blockdev_queue_number(root, makedev(9, 9), "rotational"), -EINVAL);
	assert_int_equal(blockdev_queue_number(root, makedev(1, 1), "rotational"), -ENOENT);
	assert_false(blockdev_zoned(root, makedev(1, 1)));
}

static void test_node_is_that_of_what_the_disk_is_plugged_into(void **state)
{
	char path[256];

	(void)state;
	put("sys/devices/pci0/numa_node", "-1\n");
	put("sys/devices/pci0/1:0/numa_node", "3\n");
	put("sys/devices/pci0/1:0/nvme/nvme0n1/nvme0n1p1/dev", "259:1\n");
	put("sys/devices/virtual/dm-0/dev", "253:0\n");
	put("numa_node", "9\n"); /* above what is to be looked at */
	snprintf(path, sizeof(path), "%s/sys/dev/block/259:1", root);
	assert_int_equal(symlink("../../devices/pci0/1:0/nvme/nvme0n1/nvme0n1p1", path), 0);
	snprintf(path, sizeof(path), "%s/sys/dev/block/253:0", root);
	assert_int_equal(symlink("../../devices/virtual/dm-0", path), 0);
	assert_int_equal(node_of_block(root, makedev(259, 1)), 3);
	assert_int_equal(node_of_block(root, makedev(253, 0)), -1);
	assert_int_equal(node_of_block(root, makedev(1, 1)), -1);
	put("sys/devices/pci0/1:0/numa_node", "-1\n");
	assert_int_equal(node_of_block(root, makedev(259, 1)), -1);
}

static void test_node_of_a_file_is_that_of_its_disk(void **state)
{
	char path[256], link[256];
	struct stat st;

	(void)state;
	assert_int_equal(stat(root, &st), 0);
	put("sys/devices/pci1/numa_node", "5\n");
	put("sys/devices/pci1/vda/dev", "");
	snprintf(link, sizeof(link), "%s/sys/dev/block/%u:%u", root, major(st.st_dev),
		 minor(st.st_dev));
	assert_int_equal(symlink("../../devices/pci1/vda", link), 0);
	/* One that is there, and one that is yet to be made. */
	assert_int_equal(node_of_path(root, root), 5);
	snprintf(path, sizeof(path), "%s/no-such-file", root);
	assert_int_equal(node_of_path(root, path), 5);
	snprintf(path, sizeof(path), "%s/no-such-folder/file", root);
	assert_int_equal(node_of_path(root, path), -1);
}

static void test_node_of_a_cpu(void **state)
{
	(void)state;
	put("sys/devices/system/cpu/cpu0/node0/x", "");
	put("sys/devices/system/cpu/cpu1/node12/x", "");
	put("sys/devices/system/cpu/cpu2/topology/x", "");
	assert_int_equal(node_of_cpu(root, 0), 0);
	assert_int_equal(node_of_cpu(root, 1), 12);
	assert_int_equal(node_of_cpu(root, 2), -1);
	assert_int_equal(node_of_cpu(root, 3), -1);
}

static void is_used(dev_t dev, const char *words)
{
	assert_true(blockdev_user(root, dev, text, sizeof(text)));
	assert_string_equal(text, words);
}

static void test_users_are_named(void **state)
{
	assert_false(blockdev_user(root, makedev(8, 0), text, sizeof(text)));
	put("sys/disk/part1/holders/dm-4", "");
	is_used(makedev(8, 1), "part of dm-4");
	is_used(makedev(8, 0), "in use: its partition part1 is part of dm-4");
	put("proc/self/mountinfo",
	    "21 1 0:20 / /proc rw - proc proc rw\n"
	    "30 1 8:1 / /mnt/with\\040blank rw,noatime shared:1 master:2 - ext4 /dev/nothing rw\n");
	is_used(makedev(8, 1), "mounted on /mnt/with\\040blank");
	is_used(makedev(8, 0), "in use: its partition part1 is mounted on /mnt/with\\040blank");
	assert_false(blockdev_user(root, makedev(9, 9), text, sizeof(text)));
}

static void test_damaged_files_are_no_users(void **state)
{
	put("proc/self/mountinfo", "30 1 8:1 / - \n\n - \n30 - ext4 /dev/x rw\n30 1 8 / /a - e s\n");
	put("proc/swaps", "\n\n   \nFile");
	assert_false(blockdev_user(root, makedev(8, 1), text, sizeof(text)));
}

/* Of this machine: what holds a file on a disk has a queue. */
static void test_device_below_a_file(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), r;
	dev_t dev;

	assert_true(fd >= 0);
	r = blockdev_of_file("", fd, &dev);
	close(fd);
	if (r == -ENOENT)
		skip();
	assert_int_equal(r, 0);
	assert_in_range(blockdev_queue_number("", dev, "rotational"), 0, 1);
	fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(blockdev_of_file("", fd, &dev), -ENOENT);
	close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_node_is_that_of_what_the_disk_is_plugged_into),
		T(test_node_of_a_file_is_that_of_its_disk),
		T(test_node_of_a_cpu),
		T(test_queue_of_disk_and_partition),
		T(test_users_are_named),
		T(test_damaged_files_are_no_users),
		T(test_device_below_a_file),
	};

	return cmocka_run_group_tests_name("block devices in /sys", tests, NULL, NULL);
}
