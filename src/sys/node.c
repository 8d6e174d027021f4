/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/node.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

int node_of_cpu(const char *root, unsigned int cpu)
{
	char path[PATH_MAX];
	struct dirent *e;
	int node = -1, n;
	DIR *d;

	snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%u", root, cpu);
	d = opendir(path);
	if (!d)
		return -1;
	while (node < 0 && (e = readdir(d)))
		if (sscanf(e->d_name, "node%d", &n) == 1 && n >= 0)
			node = n;
	(void)closedir(d);
	return node;
}

static int read_node(const char *folder)
{
	char path[PATH_MAX + 16];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/numa_node", folder);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	(void)fclose(f);
	return node;
}

/* The disk itself does not say; what it is plugged into does, some folders above. */
int node_of_block(const char *root, dev_t dev)
{
	char path[PATH_MAX], real[PATH_MAX], top[PATH_MAX], *slash;

	snprintf(path, sizeof(path), "%s/sys/dev/block/%u:%u", root, major(dev), minor(dev));
	snprintf(top, sizeof(top), "%s/sys", root);
	if (!realpath(path, real) || !realpath(top, path))
		return -1;
	while (strlen(real) > strlen(path) && (slash = strrchr(real, '/'))) {
		int node = read_node(real);

		if (node >= 0)
			return node;
		*slash = '\0';
	}
	return -1;
}

int node_of_path(const char *root, const char *path)
{
	char folder[PATH_MAX], *slash;
	struct stat st;

	if (stat(path, &st) == 0)
		return node_of_block(root, S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev);
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash)
		return -1;
	slash[slash == folder] = '\0';
	return stat(folder, &st) == 0 ? node_of_block(root, st.st_dev) : -1;
}
