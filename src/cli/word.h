/* SPDX-License-Identifier: MIT */
/*
 * Parts of a text that is being read, whose position in it a message can name.
 *
 * Locking, context: none; nothing is copied, so a word is valid as long as its text.
 */
#ifndef USWAP_CLI_WORD_H
#define USWAP_CLI_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"

struct word {
	const char *start; /* of the whole text */
	const char *s;
	size_t len;
};

/* For "%.*s", so that a very long word cannot push the reason out of the message. */
#define QUOTE(w) (int)MIN((w)->len, (size_t)60), (w)->s

static inline struct word word_of(const char *text)
{
	return (struct word){.start = text, .s = text, .len = strlen(text)};
}

/* Counted from 1, as people do. */
static inline size_t position(const struct word *w)
{
	return (size_t)(w->s - w->start) + 1;
}

static inline bool word_is(const struct word *w, const char *s)
{
	return w->len == strlen(s) && !memcmp(w->s, s, w->len);
}

static inline struct word sub_word(const struct word *w, size_t from, size_t len)
{
	return (struct word){.start = w->start, .s = w->s + from, .len = len};
}

/* Index of the first `stop`, or len. */
static inline size_t word_find(const struct word *w, char stop)
{
	const char *at = w->len ? memchr(w->s, stop, w->len) : NULL;

	return at ? (size_t)(at - w->s) : w->len;
}

/* What is behind the index `at` of a separator; empty, at the end, if there was none. */
static inline struct word word_behind(const struct word *w, size_t at)
{
	size_t from = MIN(at + 1, w->len);

	return sub_word(w, from, w->len - from);
}

#endif
