/* SPDX-License-Identifier: MIT */
#include "cli/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_FRACTION_DIGITS 15 /* further ones are below a byte even for T */

int parse_fail(struct parse_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* NUMBER, as whole + numerator / denominator. */
struct number {
	uint64_t whole, numerator, denominator;
	size_t len;   /* characters */
	size_t point; /* index of the point, or 0 */
};

static int parse_number(const char *s, size_t len, size_t first, struct number *n,
			struct parse_error *err)
{
	size_t i = 0;

	*n = (struct number){.denominator = 1};
	for (; i < len && is_digit(s[i]); i++)
		if (__builtin_mul_overflow(n->whole, 10u, &n->whole) ||
		    __builtin_add_overflow(n->whole, (uint64_t)(s[i] - '0'), &n->whole))
			return parse_fail(err, "too large at position %zu", first);
	if (i < len && s[i] == '.') {
		size_t digits = 0;

		n->point = i++;
		for (; i < len && is_digit(s[i]); i++) {
			if (digits++ >= MAX_FRACTION_DIGITS)
				continue;
			n->numerator = n->numerator * 10 + (uint64_t)(s[i] - '0');
			n->denominator *= 10;
		}
		if (!digits)
			return parse_fail(err, "no digit after the point at position %zu",
					  first + n->point);
		if (i < len && s[i] == '.')
			return parse_fail(err, "second decimal point at position %zu", first + i);
	}
	n->len = i;
	return 0;
}

/* The shift of UNIT ["iB"], or -1. */
static int unit_shift(const char *s, size_t len)
{
	int shift;

	if (!len)
		return 0;
	switch (s[0]) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	case 't':
	case 'T':
		shift = 40;
		break;
	default:
		return -1;
	}
	return len == 1 || (len == 3 && s[1] == 'i' && s[2] == 'B') ? shift : -1;
}

/* n * scale / divisor, cut off. */
static int scale_number(const struct number *n, uint64_t scale, unsigned int divisor, size_t first,
			uint64_t *bytes, struct parse_error *err)
{
	unsigned __int128 v = (unsigned __int128)n->whole * scale +
			      (unsigned __int128)n->numerator * scale / n->denominator;

	v /= divisor;
	if (v > INT64_MAX)
		return parse_fail(err, "too large at position %zu", first);
	if (!v)
		return parse_fail(err, "zero at position %zu; it must be more than 0", first);
	*bytes = (uint64_t)v;
	return 0;
}

int size_parse(const char *s, size_t len, size_t first, uint64_t whole, uint64_t *bytes,
	       struct parse_error *err)
{
	struct number n;
	size_t unit_len;
	int shift, rc;

	if (!len)
		return parse_fail(err, "empty size at position %zu", first);
	if (s[0] == '-')
		return parse_fail(err, "negative size at position %zu", first);
	if (!is_digit(s[0]))
		return parse_fail(err, "no digit at position %zu; a size is a number and k, M, G, T "
				       "or %%", first);
	rc = parse_number(s, len, first, &n, err);
	if (rc)
		return rc;
	unit_len = len - n.len;
	if (unit_len == 1 && s[n.len] == '%') {
		if (!whole)
			return parse_fail(err, "'%%' at position %zu has no meaning here; "
					       "use k, M, G or T", first + n.len);
		return scale_number(&n, whole, 100, first, bytes, err);
	}
	shift = unit_shift(s + n.len, unit_len);
	if (shift < 0)
		return parse_fail(err, "unknown unit '%.*s' at position %zu; use k, M, G%s",
				  (int)MIN(unit_len, 40u), s + n.len, first + n.len,
				  whole ? ", T or %" : " or T");
	if (n.point && !shift)
		return parse_fail(err, "part of a byte at position %zu; use k, M, G or T",
				  first + n.point);
	return scale_number(&n, 1ull << shift, 1, first, bytes, err);
}

const char *size_to_text(uint64_t bytes, char buf[SIZE_TEXT_BYTES])
{
	static const char units[] = "KMGT";
	uint64_t unit = KIB(1);
	size_t i = 0;
	uint64_t tenths;

	if (bytes < KIB(1)) {
		snprintf(buf, SIZE_TEXT_BYTES, "%" PRIu64, bytes);
		return buf;
	}
	while (i + 1 < sizeof(units) - 1 && bytes / unit >= 1024) {
		unit <<= 10;
		i++;
	}
	tenths = bytes / unit * 10 + bytes % unit * 10 / unit;
	if (tenths % 10)
		snprintf(buf, SIZE_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 "%c", tenths / 10, tenths % 10,
			 units[i]);
	else
		snprintf(buf, SIZE_TEXT_BYTES, "%" PRIu64 "%c", tenths / 10, units[i]);
	return buf;
}
