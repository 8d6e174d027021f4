/* SPDX-License-Identifier: MIT */
/*
 * What the verbs of the command line share: the table's entry, errors, options.
 *
 * A verb is called with argv[0] = its name and returns the exit status. Single-threaded; may
 * allocate and block.
 */
#ifndef USWAP_CLI_CLI_H
#define USWAP_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define CLI_EXIT_FAILURE 125

int verb_run(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_stat(int argc, char **argv);
int verb_swaps(int argc, char **argv);
int verb_ps(int argc, char **argv);
int verb_jobs(int argc, char **argv);
int verb_set(int argc, char **argv);
int verb_swapon(int argc, char **argv);
int verb_swapoff(int argc, char **argv);
int verb_bench(int argc, char **argv);

/*
 * Prints one line "uswap: ..." on stderr, with control characters replaced by '?', and returns
 * CLI_EXIT_FAILURE.
 */
int cli_fail(const char *fmt, ...) __printf(1, 2);
/* The same line, but the verb goes on. */
void cli_warn(const char *fmt, ...) __printf(1, 2);
/* Prints text and a newline on stdout. 0, or CLI_EXIT_FAILURE (printed) if it cannot be written. */
int cli_print(const char *text, size_t len);
/*
 * Puts a name, or words of a command, on stdout with spaces for control characters: it stays on one
 * line, and does not drive the terminal.
 */
void cli_put_plain(const char *s);

/*
 * Options: --NAME, --NAME ARG, --NAME=ARG, -L. No abbreviations: a name that a later version
 * gives a meaning must be an error now.
 */
struct cli_opt {
	const char *name; /* without dashes; NULL ends a table */
	char letter;	  /* 0: none */
	bool takes_arg;
	int id; /* > 0 */
};

struct cli_args {
	int argc;
	char **argv;
	int next;	 /* index of the next word */
	const char *arg; /* the option's, if it takes one; or the operand */
	bool only_operands; /* "--" was there */
};

#define CLI_OPT_END 0
#define CLI_OPT_BAD (-1) /* printed */
#define CLI_OPERAND (-2) /* a word that is no option, in a->arg */

/* Starts behind argv[0]. */
void cli_args_init(struct cli_args *a, int argc, char **argv);
/* The id of the next option, or one of the above. Operands and options may be mixed. */
int cli_next_word(struct cli_args *a, const struct cli_opt *opts);
/*
 * All words of a verb that may come in any order. Tables have CLI_HELP, which is dealt with here, as
 * are words that fit nowhere. Returns -1 to go on, or the status to exit with.
 */
struct cli_grammar {
	const char *usage;
	const struct cli_opt *opts;
	/* False: it is wrong (printed). arg: of an option that takes one. */
	bool (*option)(void *host, const char *verb, int id, const char *arg);
	bool (*operand)(void *host, const char *verb, const char *word); /* NULL: there is none */
};
#define CLI_OPT_HELP 1000
#define CLI_HELP {"help", 'h', false, CLI_OPT_HELP}
int cli_parse(int argc, char **argv, const struct cli_grammar *g, void *host);

/*
 * For a verb without operands besides --job ID (*job; NULL if not given), --json (*json; NULL:
 * no such option) and --help. As cli_parse().
 */
int cli_parse_simple(int argc, char **argv, const char *usage, const char **job, bool *json);

/* The words of swapon and swapoff: one operand, --job ID, -q. As cli_parse(). */
struct swap_words {
	const char *job, *operand;
	bool quiet;
};
int cli_parse_swap_words(int argc, char **argv, const char *usage, const char *operand,
			 struct swap_words *w);

/* An integer of decimal digits only, at most max. False: it is none. */
bool cli_parse_uint(const char *s, size_t len, uint64_t max, uint64_t *value);
/* A number of seconds, 0.01 to 1000000, with at most one decimal point. False: it is none. */
bool cli_parse_seconds(const char *s, uint64_t *ns);

#endif
