/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "cli/size.h"

/* The supervisor's line (tabs between: id, limit, resident, swapped, processes, command). */
static int print_line(const char *line)
{
	char id[16], limit[SIZE_TEXT_BYTES], resident[SIZE_TEXT_BYTES], swapped[SIZE_TEXT_BYTES];
	uint64_t l, r, s;
	unsigned int processes;
	int command = 0;

	if (sscanf(line, "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %u %n", id, &l, &r, &s, &processes,
		   &command) != 5 || !command)
		return cli_print(line, strlen(line));
	printf("%-7s limit %s, resident %s, swapped %s, %u process%s: ", id,
	       size_to_text(l, limit), size_to_text(r, resident), size_to_text(s, swapped), processes,
	       processes == 1 ? "" : "es");
	cli_put_plain(line + command);
	putchar('\n');
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

/* A job that ends in between is left out. */
static int print_job(pid_t job)
{
	struct ctl_answer a;
	int rc = ctl_call(job, CTL_JOB, NULL, &a);

	if (rc)
		return ctl_job_is_gone(rc) ? 0
					   : cli_fail("job %d: %s", (int)job, strerror(-rc));
	rc = a.error ? cli_fail("job %d: %s", (int)job, a.text) : print_line(a.text);
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
