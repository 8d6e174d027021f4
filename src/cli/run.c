/* SPDX-License-Identifier: MIT */
/*
 * `uswap run`: turns words into a run_config and calls the supervisor.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/size.h"
#include "cli/spec.h"
#include "cli/tier.h"
#include "super/super.h"
#include "sys/cgroup.h"

#define DEFAULT_RAM_PERCENT 85

static const char usage[] =
	"usage: uswap run [OPTION]... [--] COMMAND [ARG]...\n"
	"Runs COMMAND, and all it starts, in a given amount of RAM.\n"
	"\n"
	"  --ram SIZE          the job's RAM (default: 85% of what is available)\n"
	"  --swap SPEC         a swap device; may be given several times:\n"
	"                        zram[:SIZE][,prio=N][,weight=N][,node=N][,codec=lz4|zstd[:LEVEL]]\n"
	"                        file:PATH[:SIZE][,prio=N][,weight=N][,node=N][,force][,keep]\n"
	"                      (default: zram above a growing file in /var/tmp)\n"
	"  --queue-policy P    which of several devices takes the next folio: queue (default),\n"
	"                      priority, weighted, fill, node, plist-shared, plist-percpu\n"
	"  --cpu-nodes N[,N]...\n"
	"                      the NUMA node of each CPU, over and over (default: as it is)\n"
	"  --tier NAME=PRIO[-PRIO][,policy=P]\n"
	"                      devices of these priorities are one tier; several times\n"
	"  --allow-tiers A,B   the tiers that COMMAND and what it starts may use (default: all)\n"
	"  --order auto|0..9   swap in units of 2^N pages\n"
	"  --strict            fail if a process of the job cannot be managed\n"
	"  --report FILE.json  write what `uswap stat --json` shows at the end\n"
	"  -v                  say more\n"
	"  -q                  say nothing but errors\n"
	"\n"
	"SIZE is a number and k, M, G or T (powers of 1024), or N% of the available memory.\n"
	"Exit status: the command's; 126 it cannot be run, 127 it is not found, 125 uswap failed,\n"
	"128+N it was killed by signal N.\n";

enum {
	OPT_RAM = 1,
	OPT_SWAP,
	OPT_ORDER,
	OPT_QUEUE_POLICY,
	OPT_CPU_NODES,
	OPT_TIER,
	OPT_ALLOW_TIERS,
	OPT_STRICT,
	OPT_REPORT,
	OPT_VERBOSE,
	OPT_QUIET,
	OPT_HELP
};

static const struct cli_opt options[] = {
	{"ram", 0, true, OPT_RAM},	   {"swap", 0, true, OPT_SWAP},
	{"order", 0, true, OPT_ORDER},	   {"strict", 0, false, OPT_STRICT},
	{"queue-policy", 0, true, OPT_QUEUE_POLICY},
	{"cpu-nodes", 0, true, OPT_CPU_NODES},
	{"tier", 0, true, OPT_TIER},
	{"allow-tiers", 0, true, OPT_ALLOW_TIERS},
	{"report", 0, true, OPT_REPORT},   {"verbose", 'v', false, OPT_VERBOSE},
	{"quiet", 'q', false, OPT_QUIET}, {"help", 'h', false, OPT_HELP},
	{NULL, 0, false, 0},
};

static int set_ram(struct run_config *cfg, const char *text, uint64_t available)
{
	struct parse_error err;

	if (size_parse(text, strlen(text), 1, available, &cfg->ram_bytes, &err))
		return cli_fail("--ram '%s': %s", text, err.text);
	return 0;
}

/*
 * What the supervisor does with a path it does from a directory of its own, and what it says about
 * it is read elsewhere. NULL: printed; else malloc'ed.
 */
static char *make_absolute(const char *option, const char *path)
{
	char *cwd, *absolute;

	if (path[0] == '/')
		return strdup(path);
	cwd = getcwd(NULL, 0);
	if (!cwd || asprintf(&absolute, "%s/%s", cwd, path) < 0) {
		cli_fail("%s '%s': current directory: %s", option, path, strerror(errno));
		absolute = NULL;
	}
	free(cwd);
	return absolute;
}

static int add_swap(struct run_config *cfg, const char *text, uint64_t available)
{
	struct swap_spec *sp = &cfg->swap[cfg->nr_swaps];
	struct parse_error err;
	size_t len;
	char *path;

	if (cfg->nr_swaps == SUPER_MAX_SWAPS)
		return cli_fail("--swap '%s': more than %d devices", text, SUPER_MAX_SWAPS);
	if (spec_parse(text, available, sp, &err))
		return cli_fail("--swap '%s': %s", text, err.text);
	cfg->nr_swaps++;
	if (sp->type == SWAP_SPEC_ZRAM)
		return 0;
	path = make_absolute("--swap", sp->path);
	if (!path)
		return CLI_EXIT_FAILURE;
	len = (size_t)snprintf(sp->path, sizeof(sp->path), "%s", path);
	free(path);
	return len < sizeof(sp->path) ? 0 : cli_fail("--swap '%.60s...': the path is too long", text);
}

static int set_order(struct run_config *cfg, const char *text)
{
	uint64_t order;

	if (!strcmp(text, "auto")) {
		cfg->order = -1;
		return 0;
	}
	if (!cli_parse_uint(text, strlen(text), MAX_ORDER, &order))
		return cli_fail("--order '%s': use auto or a number from 0 to %d", text, MAX_ORDER);
	cfg->order = (int)order;
	return 0;
}

static int set_queue_policy(struct run_config *cfg, const char *text)
{
	struct word w = word_of(text);
	struct parse_error err;

	if (policy_parse(&w, &cfg->queue_policy, &err))
		return cli_fail("--queue-policy: %s", err.text);
	return 0;
}

static int set_cpu_nodes(struct run_config *cfg, const char *text)
{
	const char *from = text;

	for (unsigned int n = 0; n < SUPER_MAX_CPU_NODES; n++) {
		size_t len = strcspn(from, ",");
		uint64_t node;

		if (!cli_parse_uint(from, len, QUEUE_MAX_NODES - 1, &node))
			break;
		cfg->cpu_node[n] = (uint8_t)node;
		cfg->nr_cpu_nodes = n + 1;
		if (!from[len])
			return 0;
		from += len + 1;
	}
	return cli_fail("--cpu-nodes '%s': use numbers from 0 to %u, at most %u, with commas between "
			"them", text, QUEUE_MAX_NODES - 1, SUPER_MAX_CPU_NODES);
}

static int add_tier(struct run_config *cfg, const char *text)
{
	struct word w = word_of(text);
	struct parse_error err;
	struct tier_spec spec;

	if (tier_parse(&w, &spec, &err) || tier_set_add(cfg, &spec, &err))
		return cli_fail("--tier '%s': %s", text, err.text);
	return 0;
}

static int set_allow_tiers(struct run_config *cfg, const char *text)
{
	struct word w = word_of(text);
	struct parse_error err;

	if (tier_names_parse(&w, &cfg->allow_tiers, &err))
		return cli_fail("--allow-tiers '%s': %s", text, err.text);
	return 0;
}

/* Made as it will be at the end (report_write()), so that hours of work do not end in an error. */
static int try_report(const char *text, const char *path)
{
	struct stat st;
	char *tmp;
	int fd, err = 0;

	if (asprintf(&tmp, "%s.%d.tmp", path, (int)getpid()) < 0)
		return cli_fail("--report '%s': out of memory", text);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		err = errno;
	else if (unlink(tmp) || close(fd))
		err = errno;
	if (!err && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		err = EISDIR;
	free(tmp);
	return err ? cli_fail("--report '%s': cannot be written there: %s", text, strerror(err)) : 0;
}

static int set_report(struct run_config *cfg, const char *text)
{
	const char *base = strrchr(text, '/');
	size_t len = strlen(text);

	base = base ? base + 1 : text;
	if (len < 5 || strcmp(text + len - 5, ".json") || !strcmp(base, ".json"))
		return cli_fail("--report '%s': the name must end in .json", text);
	if (cfg->report_path)
		return cli_fail("--report '%s': only one report is written", text);
	cfg->report_path = make_absolute("--report", text);
	return cfg->report_path ? try_report(text, cfg->report_path) : CLI_EXIT_FAILURE;
}

static int set_verbosity(struct run_config *cfg, int verbose)
{
	if (cfg->verbose == -verbose)
		return cli_fail("run: -v and -q exclude each other");
	cfg->verbose = verbose;
	return 0;
}

static int apply_option(struct run_config *cfg, int id, const char *arg, uint64_t available)
{
	switch (id) {
	case OPT_RAM:
		return set_ram(cfg, arg, available);
	case OPT_SWAP:
		return add_swap(cfg, arg, available);
	case OPT_ORDER:
		return set_order(cfg, arg);
	case OPT_QUEUE_POLICY:
		return set_queue_policy(cfg, arg);
	case OPT_CPU_NODES:
		return set_cpu_nodes(cfg, arg);
	case OPT_TIER:
		return add_tier(cfg, arg);
	case OPT_ALLOW_TIERS:
		return set_allow_tiers(cfg, arg);
	case OPT_REPORT:
		return set_report(cfg, arg);
	case OPT_VERBOSE:
		return set_verbosity(cfg, 1);
	case OPT_QUIET:
		return set_verbosity(cfg, -1);
	case OPT_STRICT:
		cfg->strict = true;
		return 0;
	default:
		return CLI_EXIT_FAILURE; /* printed */
	}
}

/* The limit in bytes, from --ram or the default. */
static int finish_ram(struct run_config *cfg, const struct memory_available *mem)
{
	char min[SIZE_TEXT_BYTES], got[SIZE_TEXT_BYTES], has[SIZE_TEXT_BYTES];
	bool given = cfg->ram_bytes;

	if (!given)
		cfg->ram_bytes = mem->bytes / 100 * DEFAULT_RAM_PERCENT;
	cfg->ram_bytes = align_down(cfg->ram_bytes, PAGE_SIZE);
	size_to_text(SUPER_MIN_RAM, min);
	size_to_text(cfg->ram_bytes, got);
	size_to_text(mem->bytes, has);
	if (cfg->ram_bytes < SUPER_MIN_RAM && given)
		return cli_fail("--ram: %s is below the minimum, %s", got, min);
	if (cfg->ram_bytes < SUPER_MIN_RAM)
		return cli_fail("%s of memory is available; %d%% of it is below the minimum, %s", has,
				DEFAULT_RAM_PERCENT, min);
	if (given && cfg->ram_bytes > mem->bytes && cfg->verbose >= 0)
		cli_warn("--ram: %s is more than the %s available here%s", got, has,
			 mem->cgroup_bytes < mem->machine_bytes ? " (limit of the memory cgroup)" : "");
	return 0;
}

/* Modes for tests only: see tests/README.md. */
static bool test_mode(const char *name)
{
	const char *modes = getenv("USWAP_TEST");
	size_t len = strlen(name);

	for (const char *p = modes; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
		if (strcspn(p, ",") == len && !strncmp(p, name, len))
			return true;
	return false;
}

int verb_run(int argc, char **argv)
{
	/* Too large for the stack of a program that may be short of memory; lives until exit. */
	static struct run_config cfg = {.order = -1};
	struct memory_available mem;
	struct parse_error err;
	struct cli_args args;
	int id, rc;

	rc = memory_available_read("", &mem);
	if (rc)
		return cli_fail("/proc/meminfo: %s", strerror(-rc));
	cli_args_init(&args, argc, argv);
	while ((id = cli_next_word(&args, options)) != CLI_OPT_END && id != CLI_OPERAND) {
		if (id == OPT_HELP)
			return cli_print(usage, strlen(usage));
		rc = apply_option(&cfg, id, args.arg, mem.bytes);
		if (rc)
			return rc;
	}
	if (id != CLI_OPERAND)
		return cli_fail("run: no command given; usage: uswap run [OPTION]... -- COMMAND [ARG]...");
	rc = finish_ram(&cfg, &mem);
	if (rc)
		return rc;
	if (tier_names_check(&cfg, &cfg.allow_tiers, &err))
		return cli_fail("--allow-tiers: %s", err.text);
	cfg.argv = argv + args.next - 1;
	cfg.evict_all = test_mode("evict-all");
	cfg.parse_spec = spec_parse_here;
	cfg.parse_set = tier_set_parse_here;
	return super_run(&cfg);
}
