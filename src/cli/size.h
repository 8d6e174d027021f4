/* SPDX-License-Identifier: MIT */
/*
 * SIZE, the one grammar of amounts of memory:
 *
 *   SIZE   = NUMBER [UNIT ["iB"]] | NUMBER "%"
 *   NUMBER = DIGITS ["." DIGITS]
 *   UNIT   = k | M | G | T, either case: 2^10, 2^20, 2^30, 2^40 bytes
 *
 * Without a unit it is bytes, and then has no point. Zero is refused. A fraction of a byte that
 * remains is cut off. "MB" is refused, since some read it as 10^6.
 */
#ifndef USWAP_CLI_SIZE_H
#define USWAP_CLI_SIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* What is wrong with a word, in one sentence that names the position. */
struct parse_error {
	char text[256];
};

/* Sets err->text and returns -EINVAL. */
int parse_fail(struct parse_error *err, const char *fmt, ...) __printf(2, 3);

/*
 * Reads s[0..len). first is the position that errors give to s[0] (1: it is the whole word).
 * whole is what 100% stands for; 0: a percentage is refused. 0, or -EINVAL with *err.
 */
int size_parse(const char *s, size_t len, size_t first, uint64_t whole, uint64_t *bytes,
	       struct parse_error *err) __must_check;

/* Writes bytes in the largest unit that it fills, with one decimal if needed: "1.5G", "40K". */
#define SIZE_TEXT_BYTES 24
const char *size_to_text(uint64_t bytes, char buf[SIZE_TEXT_BYTES]);

#endif
