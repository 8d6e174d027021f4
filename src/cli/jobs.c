/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"

/* One line about one job. A job that ends in between is left out. */
static int print_job(pid_t job)
{
	struct ctl_answer a;
	int rc = ctl_call(job, CTL_JOB, NULL, &a);

	if (rc)
		return ctl_job_is_gone(rc) ? 0
					   : cli_fail("job %d: %s", (int)job, strerror(-rc));
	rc = a.error ? cli_fail("job %d: %s", (int)job, a.text) : cli_print(a.text, a.len);
	ctl_answer_deinit(&a);
	return rc;
}

int verb_jobs(int argc, char **argv)
{
	struct job_list list;
	int rc;

	rc = cli_parse_simple(argc, argv,
			      "usage: uswap jobs\n"
			      "Lists your running jobs. The first number of a line is what --job takes.\n",
			      NULL, NULL);
	if (rc >= 0)
		return rc;
	rc = ctl_list_jobs(&list);
	if (rc)
		return ctl_fail_rundir(rc);
	for (size_t i = 0; i < list.nr; i++) {
		int one = print_job(list.job[i]);

		rc = rc ? rc : one;
	}
	job_list_deinit(&list);
	return rc;
}
