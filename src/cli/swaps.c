/* SPDX-License-Identifier: MIT */
#include "cli/cli.h"
#include "cli/ctl_client.h"

int verb_swaps(int argc, char **argv)
{
	return ctl_print_verb(argc, argv,
			      "usage: uswap swaps [--job ID]\n"
			      "Lists a job's swap devices, in the format of /proc/swaps.\n",
			      CTL_SWAPS);
}
