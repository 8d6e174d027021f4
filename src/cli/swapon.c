/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "cli/spec.h"

static const char usage[] =
	"usage: uswap swapon [--job ID] [-q] SPEC\n"
	"Gives a running job another swap device. SPEC is that of `uswap run --swap`; a path in it\n"
	"is relative to the current directory, and the job opens it with its user's rights.\n"
	"  --job ID  the job (default: the only one)\n"
	"  -q        say nothing but errors\n";

/* Checked here, so that a mistake is found before anybody is asked; NULL: printed. */
static char *prepare(const char *text)
{
	static struct swap_spec spec; /* too large for the stack */
	char why[300], *cwd, *absolute;

	if (spec_parse_here(text, &spec, why, sizeof(why))) {
		(void)cli_fail("swapon %s", why);
		return NULL;
	}
	cwd = getcwd(NULL, 0);
	if (!cwd) {
		(void)cli_fail("swapon: current directory: %s", strerror(errno));
		return NULL;
	}
	absolute = spec_make_absolute(text, cwd);
	free(cwd);
	if (!absolute)
		(void)cli_fail("swapon: out of memory");
	return absolute;
}

int verb_swapon(int argc, char **argv)
{
	struct ctl_follower follower = {0};
	struct swap_words w;
	struct ctl_answer a;
	char *spec;
	pid_t job;
	int rc = cli_parse_swap_words(argc, argv, usage, "SPEC", &w);

	if (rc >= 0)
		return rc;
	spec = prepare(w.operand);
	if (!spec)
		return CLI_EXIT_FAILURE;
	rc = ctl_choose_job(w.job, &job);
	if (!rc) {
		rc = ctl_follow(job, CTL_SWAPON, spec, &follower, &a);
		if (rc)
			rc = ctl_fail_call(job, rc);
		else if (a.error)
			rc = ctl_fail_answer(job, &a);
		else
			rc = ctl_print_line(&a, w.quiet);
	}
	free(spec);
	return rc;
}
