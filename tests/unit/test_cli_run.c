/* SPDX-License-Identifier: MIT */
/*
 * The words of `uswap run` become a run_config: super_run() here only keeps it.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/cli.h"
#include "super/super.h"

#define MAX_WORDS 64

/* In the child that runs the verb: what to look at, and the status that says it is right. */
static bool (*expect)(const struct run_config *cfg);
#define RIGHT 42
#define WRONG 43

int super_run(const struct run_config *cfg)
{
	return expect(cfg) ? RIGHT : WRONG;
}

void super_rundir(char *buf, size_t len)
{
	snprintf(buf, len, "/nonexistent");
}

/* Runs the verb in a child, since it keeps state until exit. Gives its status and stderr. */
static int run_words(const char *words, char *err, size_t len)
{
	char *argv[MAX_WORDS + 1] = {"run"}, *copy = strdup(words), *save;
	int argc = 1, status, fds[2];
	ssize_t n;
	pid_t pid;

	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(fds[1], 2);
		_exit(verb_run(argc, argv));
	}
	close(fds[1]);
	n = read(fds[0], err, len - 1);
	err[n < 0 ? 0 : n] = '\0';
	close(fds[0]);
	waitpid(pid, &status, 0);
	free(copy);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void good(const char *words, bool (*check)(const struct run_config *cfg))
{
	char err[4096];

	expect = check;
	if (run_words(words, err, sizeof(err)) != RIGHT)
		fail_msg("'%s': %s", words, err);
}

static void bad(const char *words, const char *reason)
{
	char err[4096];

	assert_int_equal(run_words(words, err, sizeof(err)), 125);
	if (!strstr(err, reason))
		fail_msg("'%s': '%s' does not say '%s'", words, err, reason);
	assert_memory_equal(err, "uswap: ", 7);
	assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
}

static bool defaults(const struct run_config *cfg)
{
	return cfg->ram_bytes >= SUPER_MIN_RAM && !(cfg->ram_bytes % PAGE_SIZE) && !cfg->nr_swaps &&
	       cfg->order == -1 && !cfg->strict && !cfg->verbose && !cfg->report_path &&
	       !cfg->evict_all && !strcmp(cfg->argv[0], "true") && !cfg->argv[1];
}

static bool everything(const struct run_config *cfg)
{
	return cfg->ram_bytes == MIB(64) && cfg->nr_swaps == 2 &&
	       cfg->swap[0].type == SWAP_SPEC_ZRAM && cfg->swap[0].bytes == MIB(32) &&
	       cfg->swap[1].type == SWAP_SPEC_FILE && cfg->swap[1].prio == 5 && cfg->order == 4 &&
	       cfg->strict && cfg->verbose == 1 && !strcmp(cfg->report_path, "/tmp/r.json") &&
	       !strcmp(cfg->argv[0], "ls") && !strcmp(cfg->argv[1], "--ram") && !cfg->argv[2];
}

static bool has_nodes(const struct run_config *cfg)
{
	return cfg->nr_cpu_nodes == 3 && cfg->cpu_node[0] == 0 && cfg->cpu_node[1] == 63 &&
	       cfg->cpu_node[2] == 1;
}

static bool has_no_nodes(const struct run_config *cfg)
{
	return !cfg->nr_cpu_nodes;
}

static bool is_64m(const struct run_config *cfg)
{
	return cfg->ram_bytes == MIB(64) && cfg->verbose == -1 && cfg->order == -1;
}

static bool dashes(const struct run_config *cfg)
{
	return !strcmp(cfg->argv[0], "x") && !strcmp(cfg->argv[1], "--") && !cfg->argv[2];
}

static bool report_is_absolute(const struct run_config *cfg)
{
	return cfg->report_path[0] == '/' && strstr(cfg->report_path, "/r.json");
}

static bool devices_are_absolute(const struct run_config *cfg)
{
	return cfg->nr_swaps == 3 && cfg->swap[0].path[0] == '/' && strstr(cfg->swap[0].path, "/a:b") &&
	       cfg->swap[1].path[0] == '/' && strstr(cfg->swap[1].path, "/../c") &&
	       !strcmp(cfg->swap[2].path, "/d");
}

static bool evicts_all(const struct run_config *cfg)
{
	return cfg->evict_all;
}

static bool evicts_normally(const struct run_config *cfg)
{
	return !cfg->evict_all;
}

static void test_defaults(void **state)
{
	good("-- true", defaults);
	good("true", defaults);
}

static void test_every_option(void **state)
{
	good("--ram 64M --swap zram:32M --swap file:/a,prio=5 --order 4 --strict "
	     "--report /tmp/r.json -v -- ls --ram",
	     everything);
	good("--ram=64M -q --order=auto true", is_64m);
	good("-- x --", dashes);
	good("--cpu-nodes 0,63,1 true", has_nodes);
	good("true", has_no_nodes);
	good("--report r.json true", report_is_absolute);
	good("--swap file:a\\:b:16M --swap dev:../c --swap file:/d true", devices_are_absolute);
}

static void test_options_behind_the_command_are_the_commands(void **state)
{
	good("--ram=64M --swap=zram:32M --swap=file:/a,prio=5 --order=4 --strict "
	     "--report=/tmp/r.json -v ls --ram",
	     everything);
}

static void test_mistakes_are_one_line_and_125(void **state)
{
	bad("", "no command given");
	bad("--ram 64M", "no command given");
	bad("--ram 64M --", "no command given");
	bad("--ram", "option '--ram' needs a value");
	bad("--ram 12Q true", "--ram '12Q': unknown unit 'Q' at position 3; use k, M, G, T or %");
	bad("--ram= true", "--ram '': empty size at position 1");
	bad("--ram 0 true", "zero at position 1");
	bad("--ram 4096 true", "below the minimum, 16M");
	bad("--swap zram:12Q true", "--swap 'zram:12Q': size '12Q': unknown unit 'Q' at position 8");
	bad("--order 10 true", "--order '10': use auto or a number from 0 to 9");
	bad("--order -1 true", "--order '-1'");
	bad("--cpu-nodes 64 true", "--cpu-nodes '64': use numbers from 0 to 63");
	bad("--cpu-nodes 0, true", "--cpu-nodes '0,'");
	bad("--cpu-nodes= true", "--cpu-nodes ''");
	bad("--cpu-nodes 0-1 true", "--cpu-nodes '0-1'");
	bad("--report x.html true", "must end in .json");
	bad("--report .json true", "must end in .json");
	bad("--report a.json --report b.json true", "only one report");
	bad("--report /nowhere/r.json true", "--report '/nowhere/r.json': cannot be written there");
	bad("--report nowhere/r.json true", "No such file or directory");
	bad("--strict=1 true", "option '--strict' takes no value");
	bad("-v -q true", "exclude each other");
	bad("--swap zram:\n12 true", "--swap 'zram:?12'");
}

static void test_options_of_later_versions_are_unknown(void **state)
{
	bad("--zswap off true", "unknown option '--zswap'");
	bad("--kswapd auto true", "unknown option '--kswapd'");
	bad("--web true", "unknown option '--web'");
	bad("--encrypt on true", "unknown option '--encrypt'");
	bad("--ra 64M true", "unknown option '--ra'");
	bad("--swaps zram true", "unknown option '--swaps'");
	bad("-x true", "unknown option '-x'");
	bad("-vq true", "unknown option '-vq'");
}

static void test_number_of_swaps_is_bounded(void **state)
{
	char words[SUPER_MAX_SWAPS * 16 + 64] = "";

	for (int i = 0; i < SUPER_MAX_SWAPS + 1; i++)
		strcat(words, "--swap=zram ");
	strcat(words, "true");
	bad(words, "more than 32 devices");
}

static void test_evict_all_is_a_word_of_the_environment(void **state)
{
	setenv("USWAP_TEST", "other,evict-all", 1);
	good("true", evicts_all);
	setenv("USWAP_TEST", "evict-all-not,", 1);
	good("true", evicts_normally);
	unsetenv("USWAP_TEST");
	good("true", evicts_normally);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_every_option),
		cmocka_unit_test(test_options_behind_the_command_are_the_commands),
		cmocka_unit_test(test_mistakes_are_one_line_and_125),
		cmocka_unit_test(test_options_of_later_versions_are_unknown),
		cmocka_unit_test(test_number_of_swaps_is_bounded),
		cmocka_unit_test(test_evict_all_is_a_word_of_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
