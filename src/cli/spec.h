/* SPDX-License-Identifier: MIT */
/*
 * SPEC, a swap device as --swap names it:
 *
 *   SPEC = "zram" [":" SIZE] [KEYS] | ("file" | "dev") ":" PATH [":" SIZE] [KEYS]
 *   KEYS = {"," KEY ["=" VALUE]}
 *
 * In PATH a backslash takes the special meaning from the character behind it; without one, the
 * first comma ends it. The last field is SIZE if it begins like a number, else part of PATH.
 * Keys: prio=0..32767, weight=1..1000, node=0..63, codec=lz4|zstd[:1..19] (zram), force and
 * discard=none|once|pages (file, dev), keep (file), delay-read=, delay-write=, delay-depth=, and those
 * of tests (tests/README.md). man/uswap-run.1.scd is the user's description.
 */
#ifndef USWAP_CLI_SPEC_H
#define USWAP_CLI_SPEC_H

#include <stdint.h>

#include "base/util.h"
#include "cli/size.h"
#include "super/super.h"

/* available is what 100% stands for in a SIZE. 0, or -EINVAL with *err; *out is then undefined. */
int spec_parse(const char *text, uint64_t available, struct swap_spec *out,
	       struct parse_error *err) __must_check;

/*
 * The same with the memory available now, and with the reason as text: run_config.parse_spec.
 */
int spec_parse_here(const char *text, struct swap_spec *out, char *why, size_t len) __must_check;

/*
 * The SPEC with its path made absolute, from the directory cwd; malloc'ed. NULL: no memory. Only of
 * one that spec_parse() took.
 */
char *spec_make_absolute(const char *text, const char *cwd);

#endif
