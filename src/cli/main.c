/* SPDX-License-Identifier: MIT */
/*
 * uswap: finds the verb and calls it.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "super/super.h"

#ifdef USWAP_TEST_HOOKS
const bool super_test_hooks = true;
#else
const bool super_test_hooks = false;
#endif

static int verb_help(int argc, char **argv);
static int verb_version(int argc, char **argv);

static const struct verb {
	const char *name;
	int (*call)(int argc, char **argv);
	const char *purpose;
} verbs[] = {
	{"run", verb_run, "run a program in less RAM than it needs"},
	{"check", verb_check, "can this machine do it; if not, what to change"},
	{"stat", verb_stat, "what a running job has in RAM, compressed and on disk"},
	{"swaps", verb_swaps, "a job's swap devices, as /proc/swaps"},
	{"ps", verb_ps, "a job's processes"},
	{"jobs", verb_jobs, "your running jobs"},
	{"set", verb_set, "change a running job"},
	{"swapon", verb_swapon, "give a running job another swap device"},
	{"swapoff", verb_swapoff, "take a swap device away from a running job"},
	{"bench", verb_bench, "measure a part of uswap"},
	{"help", verb_help, "this text; 'uswap help VERB' tells more"},
	{"version", verb_version, "the version of uswap"},
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(name, verbs[i].name))
			return &verbs[i];
	return NULL;
}

static int verb_help(int argc, char **argv)
{
	char text[2048];
	char *verb_args[] = {argv[1], "--help", NULL};
	const struct verb *v = argc > 1 ? find_verb(argv[1]) : NULL;
	size_t len = 0;

	if (argc > 2)
		return cli_fail("help: unexpected word '%s'; see 'uswap help'", argv[2]);
	if (argc > 1 && !v)
		return cli_fail("unknown verb '%s'; see 'uswap help'", argv[1]);
	if (v && v->call != verb_help && v->call != verb_version)
		return v->call(2, verb_args);
	len += (size_t)snprintf(text, sizeof(text),
				"usage: uswap VERB [OPTION]...\n"
				"Runs unmodified programs in less RAM than they need.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs) && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "  %-8s %s\n", verbs[i].name,
					verbs[i].purpose);
	if (len < sizeof(text))
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"\nExample: uswap run --ram 256M -- python3 job.py\n");
	return cli_print(text, MIN(len, sizeof(text) - 1));
}

static int verb_version(int argc, char **argv)
{
	static const char text[] = "uswap " USWAP_VERSION;

	if (argc > 1)
		return cli_fail("version: unexpected word '%s'; it takes none", argv[1]);
	return cli_print(text, strlen(text));
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct verb *v;

	if (!name)
		return cli_fail("no verb given; see 'uswap help'");
	if (!strcmp(name, "--version"))
		name = "version";
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return verb_help(1, argv);
	v = find_verb(name);
	if (v)
		return v->call(argc - 1, argv + 1);
	return cli_fail("unknown verb '%s'; see 'uswap help'", name);
}
