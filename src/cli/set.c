/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "cli/size.h"
#include "cli/tier.h"
#include "super/super.h"

static const char usage[] =
	"usage: uswap set [--job ID] KEY=VALUE\n"
	"Changes a running job:\n"
	"  ram=SIZE              the limit that `run --ram` gave it\n"
	"  queue-policy=P        which of several devices takes the next folio\n"
	"  tier.NAME=PRIO[-PRIO][,policy=P]\n"
	"                        makes a tier, or gives it other priorities\n"
	"  tier.NAME=none        takes it away; its devices are then in no tier\n"
	"  pid.N.tiers=A,B|all   the tiers that process N, and what it starts from now on, may use\n"
	"  pid.N.policy=P        its policy where a tier names none; default: the job's\n"
	"SIZE is a number and k, M, G or T (powers of 1024). Policies: see uswap-run(1).\n";

/* "ram=SIZE" to "ram=BYTES", as the supervisor takes it. */
static int translate_ram(const char *word, char *out, size_t len)
{
	const char *eq = strchr(word, '=');
	char min[SIZE_TEXT_BYTES];
	struct parse_error err;
	uint64_t bytes;

	if (size_parse(eq + 1, strlen(eq + 1), 5, 0, &bytes, &err))
		return cli_fail("set '%s': %s", word, err.text);
	if (bytes < SUPER_MIN_RAM)
		return cli_fail("set '%s': below the minimum, %s", word,
				size_to_text(SUPER_MIN_RAM, min));
	snprintf(out, len, "ram=%" PRIu64, align_down(bytes, PAGE_SIZE));
	return 0;
}

/* The word as it goes to the job; what can be wrong with it alone is said here. */
static int translate(const char *word, char *out, size_t len)
{
	struct word w = word_of(word);
	static struct set_request req; /* too large for the stack */
	struct parse_error err;

	if (!strncmp(word, "ram=", 4))
		return translate_ram(word, out, len);
	if (tier_set_parse(&w, &req, &err))
		return cli_fail("set '%.100s': %s", word, err.text);
	if ((size_t)snprintf(out, len, "%s", word) >= len)
		return cli_fail("set '%.60s...': longer than %zu characters", word, len - 1);
	return 0;
}

struct set_words {
	const char *job, *word;
};

static bool take_job(void *host, const char *verb, int id, const char *arg)
{
	((struct set_words *)host)->job = arg;
	return true;
}

static bool take_word(void *host, const char *verb, const char *word)
{
	struct set_words *w = host;

	if (w->word) {
		cli_fail("set: unexpected word '%s'; one KEY=VALUE at a time", word);
		return false;
	}
	w->word = word;
	return true;
}

int verb_set(int argc, char **argv)
{
	static const struct cli_opt opts[] = {CLI_HELP, {"job", 0, true, 1}, {NULL, 0, false, 0}};
	static const struct cli_grammar grammar = {
		.usage = usage, .opts = opts, .option = take_job, .operand = take_word};
	struct set_words w = {0};
	char arg[CTL_ARG_MAX];
	struct ctl_answer a;
	pid_t job;
	int rc = cli_parse(argc, argv, &grammar, &w);

	if (rc >= 0)
		return rc;
	if (!w.word)
		return cli_fail("set: nothing to set; usage: uswap set [--job ID] KEY=VALUE");
	rc = translate(w.word, arg, sizeof(arg));
	if (!rc)
		rc = ctl_choose_job(w.job, &job);
	if (!rc)
		rc = ctl_ask(job, CTL_SET, arg, &a);
	if (rc)
		return rc;
	return ctl_print_line(&a, false);
}
