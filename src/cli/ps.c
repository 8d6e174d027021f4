/* SPDX-License-Identifier: MIT */
#include "cli/cli.h"
#include "cli/ctl_client.h"

int verb_ps(int argc, char **argv)
{
	return ctl_print_verb(argc, argv,
			      "usage: uswap ps [--job ID]\n"
			      "Lists a job's processes: what each has in RAM and swapped out, and which\n"
			      "ones are not managed, and why.\n",
			      CTL_PS);
}
