/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static void print_line(const char *fmt, va_list ap)
{
	char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		return;
	log_make_plain(text);
	fprintf(stderr, "uswap: %s\n", text);
	free(text);
}

int cli_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
	return CLI_EXIT_FAILURE;
}

void cli_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(fmt, ap);
	va_end(ap);
}

void cli_put_plain(const char *s)
{
	for (; *s; s++)
		putchar(log_is_control(*s) ? ' ' : *s);
}

int cli_print(const char *text, size_t len)
{
	bool newline = len && text[len - 1] == '\n';

	if (fwrite(text, 1, len, stdout) != len || (!newline && putchar('\n') == EOF) ||
	    fflush(stdout))
		return cli_fail("standard output: %s", strerror(errno));
	return 0;
}

void cli_args_init(struct cli_args *a, int argc, char **argv)
{
	*a = (struct cli_args){.argc = argc, .argv = argv, .next = 1};
}

static const struct cli_opt *find_option(const struct cli_opt *opts, const char *word,
					 size_t *name_len)
{
	if (word[1] != '-') {
		*name_len = 2;
		for (; opts->name; opts++)
			if (opts->letter && word[1] == opts->letter && !word[2])
				return opts;
		return NULL;
	}
	*name_len = strcspn(word, "=");
	for (; opts->name; opts++)
		if (strlen(opts->name) == *name_len - 2 &&
		    !strncmp(opts->name, word + 2, *name_len - 2))
			return opts;
	return NULL;
}

/* The option that word spells, with its value in a->arg; or CLI_OPT_BAD. */
static int take_option(struct cli_args *a, const struct cli_opt *opts, const char *word)
{
	size_t name_len;
	const struct cli_opt *opt = find_option(opts, word, &name_len);

	if (!opt) {
		cli_fail("%s: unknown option '%s'; see 'uswap %s --help'", a->argv[0], word,
			 a->argv[0]);
		return CLI_OPT_BAD;
	}
	if (!opt->takes_arg) {
		if (!word[name_len])
			return opt->id;
		cli_fail("%s: option '--%s' takes no value", a->argv[0], opt->name);
		return CLI_OPT_BAD;
	}
	if (word[name_len]) {
		a->arg = word + name_len + 1;
	} else if (a->next < a->argc) {
		a->arg = a->argv[a->next++];
	} else {
		cli_fail("%s: option '--%s' needs a value", a->argv[0], opt->name);
		return CLI_OPT_BAD;
	}
	return opt->id;
}

int cli_next_word(struct cli_args *a, const struct cli_opt *opts)
{
	const char *word;

	a->arg = NULL;
	if (a->next >= a->argc)
		return CLI_OPT_END;
	word = a->argv[a->next++];
	if (!a->only_operands && !strcmp(word, "--")) {
		a->only_operands = true;
		if (a->next >= a->argc)
			return CLI_OPT_END;
		word = a->argv[a->next++];
	}
	if (!a->only_operands && word[0] == '-' && word[1])
		return take_option(a, opts, word);
	a->arg = word;
	return CLI_OPERAND;
}

int cli_parse(int argc, char **argv, const struct cli_grammar *g, void *host)
{
	const char *verb = argv[0];
	struct cli_args args;
	int id;

	cli_args_init(&args, argc, argv);
	while ((id = cli_next_word(&args, g->opts)) != CLI_OPT_END) {
		if (id == CLI_OPT_HELP)
			return cli_print(g->usage, strlen(g->usage));
		if (id == CLI_OPERAND && !g->operand)
			return cli_fail("%s: unexpected word '%s'; see 'uswap %s --help'", verb, args.arg,
					verb);
		if (id == CLI_OPT_BAD || (id == CLI_OPERAND ? !g->operand(host, verb, args.arg)
							    : !g->option(host, verb, id, args.arg)))
			return CLI_EXIT_FAILURE;
	}
	return -1;
}

enum { OPT_JOB = 1, OPT_JSON, OPT_QUIET };

struct simple {
	const char **job;
	bool *json;
};

static bool take_simple(void *host, const char *verb, int id, const char *arg)
{
	struct simple *w = host;

	if (id == OPT_JOB)
		*w->job = arg;
	else
		*w->json = true;
	return true;
}

int cli_parse_simple(int argc, char **argv, const char *usage, const char **job, bool *json)
{
	struct simple words = {.job = job, .json = json};
	struct cli_opt opts[4] = {CLI_HELP};
	struct cli_grammar g = {.usage = usage, .opts = opts, .option = take_simple};
	int n = 1;

	if (job)
		opts[n++] = (struct cli_opt){"job", 0, true, OPT_JOB};
	if (json)
		opts[n++] = (struct cli_opt){"json", 0, false, OPT_JSON};
	return cli_parse(argc, argv, &g, &words);
}

struct swap_parse {
	struct swap_words *w;
	const char *operand; /* what it is called */
};

static bool take_swap_option(void *host, const char *verb, int id, const char *arg)
{
	struct swap_parse *p = host;

	if (id == OPT_JOB)
		p->w->job = arg;
	else
		p->w->quiet = true;
	return true;
}

static bool take_swap_operand(void *host, const char *verb, const char *word)
{
	struct swap_parse *p = host;

	if (p->w->operand) {
		cli_fail("%s: unexpected word '%s'; one %s at a time", verb, word, p->operand);
		return false;
	}
	p->w->operand = word;
	return true;
}

int cli_parse_swap_words(int argc, char **argv, const char *usage, const char *operand,
			 struct swap_words *w)
{
	static const struct cli_opt opts[] = {
		CLI_HELP, {"job", 0, true, OPT_JOB}, {"quiet", 'q', false, OPT_QUIET}, {NULL, 0, false, 0}};
	struct cli_grammar g = {.usage = usage,
				.opts = opts,
				.option = take_swap_option,
				.operand = take_swap_operand};
	struct swap_parse p = {.w = w, .operand = operand};
	int rc;

	*w = (struct swap_words){0};
	rc = cli_parse(argc, argv, &g, &p);
	if (rc < 0 && (!w->operand || !w->operand[0]))
		return cli_fail("%s: no %s given; see 'uswap %s --help'", argv[0], operand, argv[0]);
	return rc;
}

bool cli_parse_uint(const char *s, size_t len, uint64_t max, uint64_t *value)
{
	uint64_t v = 0;

	if (!len)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v) || v > max)
			return false;
	}
	*value = v;
	return true;
}

bool cli_parse_seconds(const char *s, uint64_t *ns)
{
	const char *point = strchr(s, '.');
	size_t whole_len = point ? (size_t)(point - s) : strlen(s);
	uint64_t whole, part = 0, unit = NSEC_PER_SEC;

	if (!cli_parse_uint(s, whole_len, 1000000, &whole))
		return false;
	if (point) {
		size_t len = strlen(point + 1);

		if (len > 9 || !cli_parse_uint(point + 1, len, NSEC_PER_SEC, &part))
			return false;
		while (len--)
			unit /= 10;
		part *= unit;
	}
	*ns = whole * NSEC_PER_SEC + part;
	return *ns >= 10 * NSEC_PER_MSEC;
}
