/* SPDX-License-Identifier: MIT */
#include "sim/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/alloc_run.h"

struct key {
	const char *name;
	size_t offset;
};

static const struct key cost_keys[] = {
#define KEY(k) {#k, offsetof(struct sim_costs, k)}
	KEY(cpus_near),	   KEY(cpus_socket),	KEY(load_ns),	 KEY(atomic_ns),
	KEY(line_near_ns), KEY(line_far_ns),	KEY(line_remote_ns), KEY(lock_ns),
	KEY(handoff_ns),   KEY(spin_ns),	KEY(wake_ns),	 KEY(waker_ns),
	KEY(switch_ns),
#undef KEY
};

static const struct key load_keys[] = {
#define KEY(k) {#k, offsetof(struct alloc_load, k)}
	KEY(work_ns), KEY(outside_ns), KEY(batch_folios), KEY(in_batch_ns), KEY(large_permille),
	KEY(large_order),
#undef KEY
};

/* What a file of one kind fills in. */
struct target {
	const char *suffix;
	const struct key *keys;
	unsigned int nr_keys;
	void *to;
};

/* "key = number", with blanks where one likes them. False: it is not. */
static bool parse_line(char *line, char **key, uint64_t *value)
{
	char *eq = strchr(line, '='), *end;

	if (!eq)
		return false;
	*key = line + strspn(line, " \t");
	*eq = '\0';
	(*key)[strcspn(*key, " \t")] = '\0';
	eq++;
	eq += strspn(eq, " \t");
	if (*eq < '0' || *eq > '9')
		return false;
	errno = 0;
	*value = strtoull(eq, &end, 10);
	return !errno && end[strspn(end, " \t\r\n")] == '\0';
}

static int set_key(const struct target *t, const char *key, uint64_t value, uint32_t *seen)
{
	for (unsigned int i = 0; i < t->nr_keys; i++) {
		if (strcmp(key, t->keys[i].name) != 0)
			continue;
		if (*seen & 1u << i)
			return -EEXIST;
		*seen |= 1u << i;
		*(uint64_t *)(void *)((char *)t->to + t->keys[i].offset) = value;
		return 0;
	}
	return -ENOENT;
}

static int read_keys(const struct target *t, FILE *f, const char *path, char *err, size_t errlen)
{
	char line[512], *key;
	uint32_t seen = 0;
	uint64_t value;
	int r;

	for (unsigned int n = 1; fgets(line, sizeof(line), f); n++) {
		line[strcspn(line, "#;\n")] = '\0';
		if (line[strspn(line, " \t\r")] == '\0')
			continue;
		r = parse_line(line, &key, &value) ? set_key(t, key, value, &seen) : -EINVAL;
		if (r) {
			snprintf(err, errlen, "%s:%u: %s", path, n,
				 r == -EEXIST	? "the key is there twice"
				 : r == -ENOENT ? "there is no such key"
						: "expected KEY = NUMBER");
			return -EINVAL;
		}
	}
	for (unsigned int i = 0; i < t->nr_keys; i++) {
		if (seen & 1u << i)
			continue;
		snprintf(err, errlen, "%s: %s is missing", path, t->keys[i].name);
		return -EINVAL;
	}
	return 0;
}

static int read_file(const struct target *t, const char *name, char *err, size_t errlen)
{
	const char *dir = getenv("USWAP_SIM_PRESETS");
	char path[4096];
	FILE *f;
	int r;

	if (strchr(name, '/'))
		snprintf(path, sizeof(path), "%s", name);
	else
		snprintf(path, sizeof(path), "%s/%s%s", dir ? dir : USWAP_SIM_PRESET_DIR, name,
			 t->suffix);
	f = fopen(path, "re");
	if (!f) {
		r = -errno;
		snprintf(err, errlen, "%s: %s", path, strerror(errno));
		return r;
	}
	r = read_keys(t, f, path, err, errlen);
	fclose(f);
	return r;
}

int sim_costs_load(struct sim_costs *c, const char *name, char *err, size_t errlen)
{
	struct target t = {".conf", cost_keys, ARRAY_SIZE(cost_keys), c};
	int r = read_file(&t, name, err, errlen);

	if (!r && (!c->cpus_near || !c->cpus_socket || c->cpus_socket % c->cpus_near)) {
		snprintf(err, errlen, "%s: a socket is made of whole groups of CPUs", name);
		r = -EINVAL;
	}
	return r;
}

int alloc_load_read(struct alloc_load *l, const char *name, char *err, size_t errlen)
{
	struct target t = {".load", load_keys, ARRAY_SIZE(load_keys), l};
	int r = read_file(&t, name, err, errlen);

	if (!r && (l->large_order > MAX_ORDER || l->large_permille > 1000)) {
		snprintf(err, errlen, "%s: at most 1000 of 1000 folios, of order 9", name);
		r = -EINVAL;
	}
	return r;
}
