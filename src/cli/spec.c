/* SPDX-License-Identifier: MIT */
#include "cli/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/word.h"
#include "sys/cgroup.h"

#define MAX_ZSTD_LEVEL 19
#define MAX_WEIGHT 1000u
#define MAX_DELAY_DEPTH 1024u
/* Slot 0 is never used, so one page is not enough. */
#define MIN_SWAP_BYTES (2 * PAGE_SIZE)

/* The index of the first `stop` without a backslash before it, or len. */
static size_t find_plain(const struct word *w, char stop)
{
	for (size_t i = 0; i < w->len; i++) {
		if (w->s[i] == '\\')
			i++;
		else if (w->s[i] == stop)
			return i;
	}
	return w->len;
}

/* ---- keys ---- */

static int parse_prio(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	uint64_t prio;

	if (!cli_parse_uint(v->s, v->len, SWAP_PRIO_MAX, &prio))
		return parse_fail(err, "prio '%.*s' at position %zu is not a number from 0 to %d",
				  QUOTE(v), position(v), SWAP_PRIO_MAX);
	out->prio = (int)prio;
	return 0;
}

static int parse_weight(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	uint64_t weight;

	if (!cli_parse_uint(v->s, v->len, MAX_WEIGHT, &weight) || !weight)
		return parse_fail(err, "weight '%.*s' at position %zu is not a number from 1 to %u",
				  QUOTE(v), position(v), MAX_WEIGHT);
	out->weight = (unsigned int)weight;
	return 0;
}

static int parse_node(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	uint64_t node;

	if (!cli_parse_uint(v->s, v->len, QUEUE_MAX_NODES - 1, &node))
		return parse_fail(err, "node '%.*s' at position %zu is not a number from 0 to %u",
				  QUOTE(v), position(v), QUEUE_MAX_NODES - 1);
	out->node = (int)node;
	return 0;
}

static int parse_codec(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	size_t colon = find_plain(v, ':');
	struct word name = sub_word(v, 0, colon);
	uint64_t level;

	if (word_is(v, "lz4")) {
		out->codec = CODEC_LZ4;
		return 0;
	}
	if (!word_is(&name, "zstd"))
		return parse_fail(err, "unknown codec '%.*s' at position %zu; use lz4 or zstd[:LEVEL]",
				  QUOTE(v), position(v));
	out->codec = CODEC_ZSTD;
	if (colon == v->len)
		return 0;
	if (!cli_parse_uint(v->s + colon + 1, v->len - colon - 1, MAX_ZSTD_LEVEL, &level) || !level)
		return parse_fail(err, "codec level at position %zu is not a number from 1 to %d",
				  position(v) + colon + 1, MAX_ZSTD_LEVEL);
	out->level = (int)level;
	return 0;
}

static int parse_force(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	out->force = true;
	return 0;
}

static int parse_keep(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	out->keep = true;
	return 0;
}

static int parse_discard(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	static const char *const names[] = {
		[DISCARD_NONE] = "none", [DISCARD_ONCE] = "once", [DISCARD_PAGES] = "pages"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (word_is(v, names[i])) {
			out->discard = (enum dev_discard)i;
			return 0;
		}
	return parse_fail(err, "discard '%.*s' at position %zu is none of none, once and pages",
			  QUOTE(v), position(v));
}

/* ---- keys of tests ---- */

static int parse_number_word(const struct word *v, uint64_t max, uint64_t *n,
			     struct parse_error *err)
{
	if (!cli_parse_uint(v->s, v->len, max, n))
		return parse_fail(err, "'%.*s' at position %zu is not a number up to %llu", QUOTE(v),
				  position(v), (unsigned long long)max);
	return 0;
}

/* A chance per io: 0..1, as a plain decimal. */
static int parse_chance(struct swap_spec *out, const struct word *v, double *chance,
			struct parse_error *err)
{
	char buf[32], *end;

	out->has_fault = true;
	if (v->len && v->len < sizeof(buf) && strspn(v->s, "0123456789.") >= v->len) {
		memcpy(buf, v->s, v->len);
		buf[v->len] = '\0';
		*chance = strtod(buf, &end);
		if (!*end && end != buf && *chance <= 1)
			return 0;
	}
	return parse_fail(err, "'%.*s' at position %zu is not a chance from 0 to 1", QUOTE(v),
			  position(v));
}

#define CHANCE_KEY(fn, field)                                                                      \
	static int fn(struct swap_spec *out, const struct word *v, struct parse_error *err)        \
	{                                                                                          \
		return parse_chance(out, v, &out->fault.field, err);                               \
	}
CHANCE_KEY(parse_fault_read, read_eio)
CHANCE_KEY(parse_fault_write, write_eio)
CHANCE_KEY(parse_fault_enospc, write_enospc)
CHANCE_KEY(parse_corrupt_read, corrupt_read)
CHANCE_KEY(parse_corrupt_write, corrupt_write)
CHANCE_KEY(parse_fault_discard, discard_eio)

static int parse_fault_seed(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	int rc = parse_number_word(v, UINT64_MAX, &out->fault.seed, err);

	out->has_fault = true;
	out->delay.seed = out->fault.seed;
	return rc;
}

static int parse_fault_slot(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	uint64_t slot = 0;
	int rc = parse_number_word(v, UINT32_MAX, &slot, err);

	out->has_fault = true;
	out->fault.bad_slot = (uint32_t)slot;
	return rc;
}

static int parse_delay(struct swap_spec *out, const struct word *v, uint64_t *ns,
		       struct parse_error *err)
{
	uint64_t usec = 0;
	int rc = parse_number_word(v, 1000000000, &usec, err);

	out->has_delay = true;
	*ns = usec * 1000;
	return rc;
}

static int parse_delay_read(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	return parse_delay(out, v, &out->delay.read_ns, err);
}

static int parse_delay_write(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	return parse_delay(out, v, &out->delay.write_ns, err);
}

static int parse_delay_discard(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	return parse_delay(out, v, &out->delay.discard_ns, err);
}

static int parse_delay_depth(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	uint64_t depth;

	if (!cli_parse_uint(v->s, v->len, MAX_DELAY_DEPTH, &depth) || !depth)
		return parse_fail(err,
				  "delay-depth '%.*s' at position %zu is not a number from 1 to %u",
				  QUOTE(v), position(v), MAX_DELAY_DEPTH);
	out->has_delay = true;
	out->delay.depth = (unsigned int)depth;
	return 0;
}

static int parse_no_io_uring(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	out->no_io_uring = true;
	return 0;
}

static int parse_no_direct(struct swap_spec *out, const struct word *v, struct parse_error *err)
{
	out->no_direct = true;
	return 0;
}

/* ---- the table ---- */

#define ON_ZRAM 1u
#define ON_FILE 2u
#define ON_DEV 4u
#define ON_DISK (ON_FILE | ON_DEV)
#define ON_ALL (ON_ZRAM | ON_FILE | ON_DEV)

/* What a key is for, and why not for others; by its types. */
static const char *key_is_for(unsigned int types)
{
	if (types == ON_ZRAM)
		return "zram only";
	if (types == ON_DISK)
		return "file and dev only";
	return types == ON_FILE ? "file only" : "zram and file only";
}

static const struct key {
	const char *name;
	unsigned int types;
	bool has_value;
	/* NULL: a key of a later version */
	int (*parse)(struct swap_spec *out, const struct word *value, struct parse_error *err);
} keys[] = {
	{"prio", ON_ALL, true, parse_prio},
	{"codec", ON_ZRAM, true, parse_codec},
	{"force", ON_DISK, false, parse_force},
	{"keep", ON_FILE, false, parse_keep},
	{"discard", ON_DISK, true, parse_discard},
	{"weight", ON_ALL, true, parse_weight},
	{"node", ON_ALL, true, parse_node},
	{"no-io-uring", ON_ALL, false, parse_no_io_uring},
	{"no-direct", ON_ZRAM | ON_FILE, false, parse_no_direct},
	{"fault-read", ON_ALL, true, parse_fault_read},
	{"fault-write", ON_ALL, true, parse_fault_write},
	{"fault-enospc", ON_ALL, true, parse_fault_enospc},
	{"fault-corrupt-read", ON_ALL, true, parse_corrupt_read},
	{"fault-corrupt-write", ON_ALL, true, parse_corrupt_write},
	{"fault-seed", ON_ALL, true, parse_fault_seed},
	{"fault-slot", ON_ALL, true, parse_fault_slot},
	{"fault-discard", ON_DISK, true, parse_fault_discard},
	{"delay-read", ON_ALL, true, parse_delay_read},
	{"delay-write", ON_ALL, true, parse_delay_write},
	{"delay-discard", ON_DISK, true, parse_delay_discard},
	{"delay-depth", ON_ALL, true, parse_delay_depth},
};
_Static_assert(ARRAY_SIZE(keys) <= 32, "seen is a bit per key");

static unsigned int type_bit(const struct swap_spec *sp)
{
	if (sp->type == SWAP_SPEC_ZRAM)
		return ON_ZRAM;
	return sp->type == SWAP_SPEC_FILE ? ON_FILE : ON_DEV;
}

static int parse_key(struct swap_spec *out, const struct word *w, uint32_t *seen,
		     struct parse_error *err)
{
	const char *eq = memchr(w->s, '=', w->len);
	struct word name = sub_word(w, 0, eq ? (size_t)(eq - w->s) : w->len);
	struct word value = sub_word(w, eq ? name.len + 1 : w->len, eq ? w->len - name.len - 1 : 0);
	unsigned int type = type_bit(out);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (word_is(&name, keys[i].name))
			break;
	if (i == ARRAY_SIZE(keys))
		return parse_fail(err, "unknown key '%.*s' at position %zu%s", QUOTE(&name),
				  position(&name),
				  type != ON_ZRAM ? "; in a path write '\\,' for a comma" : "");
	if (!keys[i].parse)
		return parse_fail(err, "key '%s' at position %zu is not available in this version",
				  keys[i].name, position(&name));
	if (!(keys[i].types & type))
		return parse_fail(err, "key '%s' at position %zu is for %s%s", keys[i].name,
				  position(&name), key_is_for(keys[i].types),
				  keys[i].parse == parse_discard
					  ? "; zram gives back by itself what is not needed"
					  : "");
	if (*seen & 1u << i)
		return parse_fail(err, "key '%s' at position %zu is given twice", keys[i].name,
				  position(&name));
	*seen |= 1u << i;
	if (keys[i].has_value && !eq)
		return parse_fail(err, "key '%s' at position %zu needs a value", keys[i].name,
				  position(&name));
	if (!keys[i].has_value && eq)
		return parse_fail(err, "key '%s' at position %zu takes no value", keys[i].name,
				  position(&name));
	return keys[i].parse(out, &value, err);
}

/* ---- fields ---- */

static int parse_spec_size(struct swap_spec *out, const struct word *w, uint64_t available,
			   struct parse_error *err)
{
	struct parse_error why;
	int rc = size_parse(w->s, w->len, position(w), available, &out->bytes, &why);

	if (rc && !w->len)
		return parse_fail(err, "%s", why.text);
	if (rc)
		return parse_fail(err, "size '%.*s': %s%s", QUOTE(w), why.text,
				  out->type != SWAP_SPEC_ZRAM ? "; in a path write '\\:' for a colon"
							      : "");
	if (out->bytes < MIN_SWAP_BYTES)
		return parse_fail(err, "size '%.*s' at position %zu is below the smallest, %lu",
				  QUOTE(w), position(w), MIN_SWAP_BYTES);
	return 0;
}

static int copy_path(struct swap_spec *out, const struct word *w, struct parse_error *err)
{
	size_t n = 0;

	for (size_t i = 0; i < w->len; i++) {
		if (w->s[i] == '\\' && ++i == w->len)
			return parse_fail(err, "nothing behind the backslash at position %zu",
					  position(w) + i - 1);
		if (n + 1 >= sizeof(out->path))
			return parse_fail(err, "the path at position %zu is longer than %zu bytes",
					  position(w), sizeof(out->path) - 1);
		out->path[n++] = w->s[i];
	}
	out->path[n] = '\0';
	return 0;
}

/* Where the field behind the last plain colon begins; 0: there is no such colon. */
static size_t find_last_field(const struct word *w)
{
	size_t from = 0;

	for (;;) {
		struct word rest = sub_word(w, from, w->len - from);
		size_t colon = find_plain(&rest, ':');

		if (colon == rest.len)
			return from;
		from += colon + 1;
	}
}

static bool looks_like_size(const struct word *w)
{
	return !w->len || memchr("0123456789-+", w->s[0], 12);
}

/* PATH [":" SIZE] */
static int parse_path(struct swap_spec *out, const struct word *w, uint64_t available,
		      struct parse_error *err)
{
	size_t last = find_last_field(w);
	struct word path = *w, size = sub_word(w, last, w->len - last);
	struct parse_error ignored;
	uint64_t bytes;

	if (last && looks_like_size(&size)) {
		int rc = parse_spec_size(out, &size, available, err);

		if (rc)
			return rc;
		path.len = last - 1;
	} else if (!last && !size_parse(w->s, w->len, 1, available, &bytes, &ignored)) {
		path.len = 0; /* file:1G means a size; a file of that name is file:./1G */
	}
	if (!path.len)
		return parse_fail(err, "a path is missing at position %zu; use %s:PATH[:SIZE]",
				  position(&path), out->type == SWAP_SPEC_FILE ? "file" : "dev");
	return copy_path(out, &path, err);
}

static int parse_type(struct swap_spec *out, const struct word *type, struct parse_error *err)
{
	static const char *const now[] = {
		[SWAP_SPEC_ZRAM] = "zram", [SWAP_SPEC_FILE] = "file", [SWAP_SPEC_DEV] = "dev"};
	static const char *const later[] = {"nbd", "null"};

	for (size_t i = 0; i < ARRAY_SIZE(now); i++)
		if (word_is(type, now[i])) {
			out->type = i;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (word_is(type, later[i]))
			return parse_fail(err, "type '%s' at position 1 is not available in this "
					       "version; use zram, file or dev", later[i]);
	return parse_fail(err, "unknown type '%.*s' at position 1; use zram, file or dev",
			  QUOTE(type));
}

/* zram[:SIZE], file:PATH[:SIZE] or dev:PATH[:SIZE], up to the first plain comma. */
static int parse_fields(struct swap_spec *out, const struct word *fields, uint64_t available,
			struct parse_error *err)
{
	size_t colon = find_plain(fields, ':');
	struct word type = sub_word(fields, 0, colon);
	struct word rest = sub_word(fields, colon == fields->len ? colon : colon + 1,
				    colon == fields->len ? 0 : fields->len - colon - 1);
	int rc = parse_type(out, &type, err);

	if (rc)
		return rc;
	if (out->type != SWAP_SPEC_ZRAM)
		return parse_path(out, &rest, available, err);
	return colon == fields->len ? 0 : parse_spec_size(out, &rest, available, err);
}

int spec_parse(const char *text, uint64_t available, struct swap_spec *out,
	       struct parse_error *err)
{
	struct word all = word_of(text);
	size_t from = find_plain(&all, ',');
	struct word fields = sub_word(&all, 0, from);
	uint32_t seen = 0;
	int rc;

	memset(out, 0, sizeof(*out));
	out->prio = -1;
	out->node = -1;
	rc = parse_fields(out, &fields, available, err);
	while (!rc && from < all.len) {
		struct word rest = sub_word(&all, from + 1, all.len - from - 1);
		struct word key = sub_word(&rest, 0, find_plain(&rest, ','));

		rc = parse_key(out, &key, &seen, err);
		from += 1 + key.len;
	}
	return rc;
}

int spec_parse_here(const char *text, struct swap_spec *out, char *why, size_t len)
{
	struct memory_available mem;
	struct parse_error err;
	int rc = memory_available_read("", &mem);

	if (rc) {
		snprintf(why, len, "/proc/meminfo: %s", strerror(-rc));
		return rc;
	}
	rc = spec_parse(text, mem.bytes, out, &err);
	if (rc)
		snprintf(why, len, "'%.60s': %s", text, err.text);
	return rc;
}

char *spec_make_absolute(const char *text, const char *cwd)
{
	const char *path = strchr(text, ':');
	char *out = malloc(strlen(text) + 2 * strlen(cwd) + 2), *to = out;

	if (!out)
		return NULL;
	/* zram has no path, though it may have a colon. */
	if (!path || strncmp(text, "zram", 4) == 0 || path[1] == '/' ||
	    (path[1] == '\\' && path[2] == '/')) {
		strcpy(out, text);
		return out;
	}
	path++;
	memcpy(to, text, (size_t)(path - text));
	to += path - text;
	for (const char *p = cwd; *p; p++) {
		if (strchr("\\,:", *p))
			*to++ = '\\';
		*to++ = *p;
	}
	*to++ = '/';
	strcpy(to, path);
	return out;
}
