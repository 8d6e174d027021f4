/* SPDX-License-Identifier: MIT */
/*
 * Finding the directory of our own memory cgroup:
 *
 *   /proc/self/cgroup      says its path, seen from the root of the cgroup namespace (v2: the line
 *                          "0::PATH"; v1: the line that lists the controller "memory")
 *   /proc/self/mountinfo   says where the hierarchy is mounted, and which part of it: in a
 *                          container the mount's root may be our cgroup itself
 *
 * From there each level up to the mount point may have a limit, and the smallest rest counts. Both
 * hierarchies can be mounted at once (hybrid); memory is then on v1, and v2 has no memory files.
 */
#define _GNU_SOURCE
#include "sys/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* What differs between the two versions. */
struct hierarchy {
	enum cgroup_version version;
	const char *limit_files[2]; /* the smallest counts */
	const char *usage_file;
	const char *cache_key; /* in memory.stat: file cache that can be dropped */
	const char *inherited_key; /* in memory.stat: the smallest limit of all ancestors, or NULL */
};

static const struct hierarchy v1 = {
	.version = CGROUP_V1,
	.limit_files = {"memory.limit_in_bytes"},
	.usage_file = "memory.usage_in_bytes",
	.cache_key = "total_inactive_file",
	.inherited_key = "hierarchical_memory_limit",
};
static const struct hierarchy v2 = {
	.version = CGROUP_V2,
	/* At memory.high the kernel slows a process down until it is useless; so it is a limit. */
	.limit_files = {"memory.max", "memory.high"},
	.usage_file = "memory.current",
	.cache_key = "inactive_file",
};

static FILE *open_at(const char *root, const char *path)
{
	char full[PATH_BYTES * 2];

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >= sizeof(full))
		return NULL;
	return fopen(full, "re");
}

/* A number alone in a file. "max", and v1's huge values, are CGROUP_NO_LIMIT. */
static uint64_t read_number(const char *root, const char *dir, const char *file, uint64_t missing)
{
	char path[PATH_BYTES * 2 + 64], line[64], *end;
	uint64_t v = missing;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = open_at(root, path);
	if (!f)
		return missing;
	if (fgets(line, sizeof(line), f)) {
		errno = 0;
		v = strtoull(line, &end, 10);
		if (!strncmp(line, "max", 3))
			v = CGROUP_NO_LIMIT;
		else if (end == line || errno)
			v = missing;
		else if (v >= (uint64_t)INT64_MAX - (1u << 20))
			v = CGROUP_NO_LIMIT; /* v1 without a limit: LONG_MAX cut to a page */
	}
	fclose(f);
	return v;
}

/* The number behind "key " at the start of a line of memory.stat. */
static uint64_t read_stat(const char *root, const char *dir, const char *key, uint64_t missing)
{
	char path[PATH_BYTES * 2 + 64], line[256];
	size_t len = strlen(key);
	uint64_t v = missing;
	FILE *f;

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	f = open_at(root, path);
	if (!f)
		return missing;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) && line[len] == ' ') {
			v = strtoull(line + len, NULL, 10);
			break;
		}
	fclose(f);
	return v;
}

/* Is name one of the comma-separated words of list? */
static bool has_word(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, name, len) && (!p[len] || p[len] == ',' || p[len] == '\n'))
			return true;
	return false;
}

/* Our path in the hierarchy, from lines "ID:CONTROLLERS:PATH". */
static bool find_own_path(const char *root, const struct hierarchy *h, char path[PATH_BYTES])
{
	FILE *f = open_at(root, "/proc/self/cgroup");
	char line[PATH_BYTES + 256];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *p = NULL;

		if (controllers)
			p = strchr(++controllers, ':');
		if (!p)
			continue;
		*p++ = '\0';
		p[strcspn(p, "\n")] = '\0';
		found = h->version == CGROUP_V2 ? !*controllers : has_word(controllers, "memory");
		if (found)
			snprintf(path, PATH_BYTES, "%.*s", PATH_BYTES - 1, p);
	}
	fclose(f);
	return found;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* Where the hierarchy is mounted, and which of its directories is mounted there. */
static bool find_mount(const char *root, const struct hierarchy *h, char point[PATH_BYTES],
		       char mounted[PATH_BYTES])
{
	FILE *f = open_at(root, "/proc/self/mountinfo");
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	if (!f)
		return false;
	while (!found && getline(&line, &cap, f) > 0) {
		char *tail = strstr(line, " - "), type[64], options[PATH_BYTES];

		/* ID PARENT MAJ:MIN ROOT POINT OPTIONS... - TYPE SOURCE OPTIONS */
		if (!tail || sscanf(tail, " - %63s %*s %4095s", type, options) != 2 ||
		    sscanf(line, "%*s %*s %*s %4095s %4095s", mounted, point) != 2)
			continue;
		found = h->version == CGROUP_V2
				? !strcmp(type, "cgroup2")
				: !strcmp(type, "cgroup") && has_word(options, "memory");
	}
	free(line);
	fclose(f);
	if (found) {
		unescape(point);
		unescape(mounted);
	}
	return found;
}

static bool dir_exists(const char *root, const char *dir)
{
	char full[PATH_BYTES * 2];

	return (size_t)snprintf(full, sizeof(full), "%s%s", root, dir) < sizeof(full) &&
	       !access(full, F_OK);
}

/* The rest that one level leaves; updates out if it is the smallest so far. */
static void take_level(const char *root, const struct hierarchy *h, const char *dir, bool own,
		       struct memory_available *out)
{
	uint64_t limit = CGROUP_NO_LIMIT, used, cache, left;

	for (size_t i = 0; i < ARRAY_SIZE(h->limit_files) && h->limit_files[i]; i++)
		limit = MIN(limit, read_number(root, dir, h->limit_files[i], CGROUP_NO_LIMIT));
	/* Ancestors above the mount point cannot be seen, but v1 reports their limit here. */
	if (own && h->inherited_key) {
		uint64_t inherited = read_stat(root, dir, h->inherited_key, CGROUP_NO_LIMIT);

		if (inherited < (uint64_t)INT64_MAX - (1u << 20))
			limit = MIN(limit, inherited);
	}
	if (limit == CGROUP_NO_LIMIT)
		return;
	used = read_number(root, dir, h->usage_file, 0);
	cache = MIN(read_stat(root, dir, h->cache_key, 0), used);
	used -= cache;
	left = limit > used ? limit - used : 0;
	if (left < out->cgroup_bytes) {
		out->cgroup_bytes = left;
		out->cgroup_limit = limit;
	}
}

/* False: this hierarchy does not control memory here. */
static bool read_hierarchy(const char *root, const struct hierarchy *h,
			   struct memory_available *out)
{
	char point[PATH_BYTES], mounted[PATH_BYTES], own[PATH_BYTES], dir[PATH_BYTES * 2 + 1];
	const char *below;
	size_t len, point_len;
	bool first = true;

	if (!find_own_path(root, h, own) || !find_mount(root, h, point, mounted))
		return false;
	len = !strcmp(mounted, "/") ? 0 : strlen(mounted);
	below = !strncmp(own, mounted, len) && (!own[len] || own[len] == '/') ? own + len : "";
	/* "/.." leads out of our cgroup namespace, to what the mount does not show. */
	if (!strcmp(below, "/") || !strncmp(below, "/..", 3))
		below = "";
	point_len = strlen(point);
	snprintf(dir, sizeof(dir), "%s%s", point, below);
	/* Mounted from a place that our path does not lead to: the mount's root is all we see. */
	if (!dir_exists(root, dir))
		snprintf(dir, sizeof(dir), "%s", point);
	for (;;) {
		char *slash;

		take_level(root, h, dir, first, out);
		first = false;
		if (strlen(dir) <= point_len)
			break;
		slash = strrchr(dir, '/');
		*slash = '\0';
	}
	return true;
}

static bool v2_has_memory(const char *root)
{
	char point[PATH_BYTES], mounted[PATH_BYTES], path[PATH_BYTES + 64], line[512];
	bool has = false;
	FILE *f;

	if (!find_mount(root, &v2, point, mounted))
		return false;
	snprintf(path, sizeof(path), "%s/cgroup.controllers", point);
	f = open_at(root, path);
	if (!f)
		return false;
	if (fgets(line, sizeof(line), f))
		for (char *save, *w = strtok_r(line, " \n", &save); w;
		     w = strtok_r(NULL, " \n", &save))
			has |= !strcmp(w, "memory");
	fclose(f);
	return has;
}

static int read_machine(const char *root, uint64_t *bytes)
{
	FILE *f = open_at(root, "/proc/meminfo");
	unsigned long long kib, free_kib = 0;
	char line[256];
	int rc = -ENODATA;

	if (!f)
		return -errno;
	while (rc && fgets(line, sizeof(line), f)) {
		sscanf(line, "MemFree: %llu kB", &free_kib);
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
			*bytes = KIB(kib);
			rc = 0;
		}
	}
	fclose(f);
	if (rc && free_kib) {
		*bytes = KIB(free_kib);
		rc = 0;
	}
	return rc;
}

int memory_available_read(const char *root, struct memory_available *out)
{
	int rc;

	*out = (struct memory_available){.cgroup_bytes = CGROUP_NO_LIMIT,
					 .cgroup_limit = CGROUP_NO_LIMIT};
	rc = read_machine(root, &out->machine_bytes);
	if (rc)
		return rc;
	if (v2_has_memory(root) && read_hierarchy(root, &v2, out))
		out->version = CGROUP_V2;
	else if (read_hierarchy(root, &v1, out))
		out->version = CGROUP_V1;
	out->bytes = MIN(out->machine_bytes, out->cgroup_bytes);
	return 0;
}
