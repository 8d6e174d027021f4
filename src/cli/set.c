/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "cli/size.h"
#include "super/super.h"

static const char usage[] = "usage: uswap set [--job ID] ram=SIZE\n"
			    "Changes a running job: ram is the limit that `run --ram` gave it.\n"
			    "SIZE is a number and k, M, G or T (powers of 1024).\n";

/* "ram=SIZE" to "ram=BYTES", as the supervisor takes it. */
static int translate(const char *word, char *out, size_t len)
{
	const char *eq = strchr(word, '=');
	char min[SIZE_TEXT_BYTES];
	struct parse_error err;
	uint64_t bytes;

	if (!eq)
		return cli_fail("set: '%s' is not KEY=VALUE; see 'uswap set --help'", word);
	if (strncmp(word, "ram=", 4))
		return cli_fail("set: unknown key '%.*s'; this version has ram", (int)(eq - word),
				word);
	if (size_parse(eq + 1, strlen(eq + 1), 5, 0, &bytes, &err))
		return cli_fail("set '%s': %s", word, err.text);
	if (bytes < SUPER_MIN_RAM)
		return cli_fail("set '%s': below the minimum, %s", word,
				size_to_text(SUPER_MIN_RAM, min));
	snprintf(out, len, "ram=%" PRIu64, align_down(bytes, PAGE_SIZE));
	return 0;
}

int verb_set(int argc, char **argv)
{
	enum { OPT_HELP = 1, OPT_JOB };
	static const struct cli_opt opts[] = {
		{"help", 'h', false, OPT_HELP}, {"job", 0, true, OPT_JOB}, {NULL, 0, false, 0}};
	const char *job_text = NULL, *word = NULL;
	char arg[CTL_ARG_BYTES];
	struct ctl_answer a;
	struct cli_args args;
	pid_t job;
	int id, rc;

	cli_args_init(&args, argc, argv);
	while ((id = cli_next_word(&args, opts)) != CLI_OPT_END) {
		if (id == CLI_OPT_BAD)
			return CLI_EXIT_FAILURE;
		if (id == OPT_HELP)
			return cli_print(usage, strlen(usage));
		if (id == OPT_JOB)
			job_text = args.arg;
		else if (word)
			return cli_fail("set: unexpected word '%s'; one KEY=VALUE at a time", args.arg);
		else
			word = args.arg;
	}
	if (!word)
		return cli_fail("set: nothing to set; usage: uswap set [--job ID] ram=SIZE");
	rc = translate(word, arg, sizeof(arg));
	if (!rc)
		rc = ctl_choose_job(job_text, &job);
	if (!rc)
		rc = ctl_ask(job, CTL_SET, arg, &a);
	if (rc)
		return rc;
	rc = a.len ? cli_print(a.text, a.len) : 0;
	ctl_answer_deinit(&a);
	return rc;
}
