/* SPDX-License-Identifier: MIT */
/*
 * `uswap bench usemem`: what a policy makes of several equal devices, in real jobs.
 *
 * The load is that which the round robin of equal devices was judged by (linux-mm, October 2025):
 * usemem, processes that write anonymous memory, read it and free it, more of it than there is RAM, so
 * that all of it goes out and comes back. Each policy is an arm; arms take turns, one job each, and a
 * ratio is of two jobs of one round. The devices are files with a delay above them: disks that serve
 * few requests at a time, each in a given time, so that what limits the job is how many disks
 * are at work, as on the machine that the figures are of, and not this machine's CPUs.
 *
 * It cannot be passed by storing nothing, or the wrong thing: every page is checked when it is read,
 * and what has gone out is counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_usemem.h"
#include "cli/cli.h"
#include "cli/size.h"
#include "swap/policy.h"

#define MAX_ARMS (NR_POLICIES - 1)
#define MAX_RUNS 99u
#define MAX_DEVICES 16u
#define MAX_WORDS (32 + 2 * MAX_DEVICES)

static const char usage[] =
	"usage: uswap bench usemem [OPTION]...\n"
	"Processes write, read and free more memory than there is RAM, over several equal devices.\n"
	"For each policy a real job: throughput, and how evenly the devices were used.\n"
	"\n"
	"  --queue-policy P[,P]...  the arms, which take turns; default fill,node,queue\n"
	"  --runs N           of each arm; default 3\n"
	"  --processes N      default 4\n"
	"  --size SIZE        of each process; default 48M\n"
	"  --ram SIZE         of the job; default 48M\n"
	"  --devices N        files, each large enough for all; default 4\n"
	"  --nodes N          of the CPUs, and of the devices, in turn; default 2\n"
	"  --depth N          requests that a device serves at once; default 2\n"
	"  --write USEC, --read USEC   that it takes for each; default 4000 and 1000\n"
	"  --order N          of folios, 0 to 9; default 4\n"
	"  --dir DIR          where the files are; default /var/tmp\n"
	"  --json             one JSON document\n";

struct run {
	double seconds;
	double write, read, all; /* MB/s, sums over the processes */
	double free_us;		 /* of one process, on average */
	double most_to_least;	 /* peak use of the devices */
	uint64_t peak[MAX_DEVICES];
};

struct arm {
	const char *policy;
	struct run run[MAX_RUNS];
};

struct usemem {
	const char *name; /* for messages */
	struct arm arm[MAX_ARMS];
	unsigned int nr_arms;
	uint64_t runs, devices, nodes, depth, write_us, read_us, order, ram, processes;
	struct usemem_load load;
	bool json, is_load;
	const char *parent;	       /* of dir */
	char dir[PATH_MAX], exe[PATH_MAX]; /* dir: made for the files, or "" */
};

/* ---- options ---- */

static bool take_policies(struct usemem *u, const char *text)
{
	u->nr_arms = 0;
	for (;;) {
		size_t len = strcspn(text, ",");
		char word[32];
		enum queue_policy p;

		snprintf(word, sizeof(word), "%.*s", (int)MIN(len, sizeof(word) - 1), text);
		p = policy_by_name(word);
		if (p == POLICY_DEFAULT || u->nr_arms == MAX_ARMS) {
			cli_fail("%s: --queue-policy '%s': not a policy, or too many", u->name, word);
			return false;
		}
		u->arm[u->nr_arms++].policy = policy_name(p);
		if (!text[len])
			return true;
		text += len + 1;
	}
}

static bool take_size(const struct usemem *u, const char *option, const char *text, uint64_t *bytes)
{
	struct parse_error err;

	if (!size_parse(text, strlen(text), 1, 0, bytes, &err)) {
		*bytes = align_down(*bytes, PAGE_SIZE);
		if (*bytes)
			return true;
		snprintf(err.text, sizeof(err.text), "less than a page");
	}
	cli_fail("%s: --%s '%s': %s", u->name, option, text, err.text);
	return false;
}

enum { OPT_HELP = 1, OPT_POLICY, OPT_RUNS, OPT_PROCESSES, OPT_SIZE, OPT_RAM, OPT_DEVICES, OPT_NODES,
       OPT_DEPTH, OPT_WRITE, OPT_READ, OPT_ORDER, OPT_DIR, OPT_JSON, OPT_PLANT, OPT_LOAD };

static bool take_option(struct usemem *u, int id, const char *arg)
{
	switch (id) {
	case OPT_POLICY:
		return take_policies(u, arg);
	case OPT_RUNS:
		return bench_uint(u->name, "runs", arg, 1, MAX_RUNS, &u->runs);
	case OPT_PROCESSES:
		return bench_uint(u->name, "processes", arg, 1, USEMEM_MAX_PROCESSES, &u->processes);
	case OPT_SIZE:
		return take_size(u, "size", arg, &u->load.bytes);
	case OPT_RAM:
		return take_size(u, "ram", arg, &u->ram);
	case OPT_DEVICES:
		return bench_uint(u->name, "devices", arg, 1, MAX_DEVICES, &u->devices);
	case OPT_NODES:
		return bench_uint(u->name, "nodes", arg, 1, QUEUE_MAX_NODES, &u->nodes);
	case OPT_DEPTH:
		return bench_uint(u->name, "depth", arg, 1, 1024, &u->depth);
	case OPT_WRITE:
		return bench_uint(u->name, "write", arg, 0, 1000000, &u->write_us);
	case OPT_READ:
		return bench_uint(u->name, "read", arg, 0, 1000000, &u->read_us);
	case OPT_ORDER:
		return bench_uint(u->name, "order", arg, 0, MAX_ORDER, &u->order);
	case OPT_DIR:
		u->parent = arg;
		return true;
	case OPT_JSON:
		u->json = true;
		return true;
	case OPT_PLANT: /* for tests: a page with a bit flipped */
		u->load.plant = true;
		return true;
	default: /* OPT_LOAD: what the job runs */
		u->is_load = true;
		return true;
	}
}

/* -1 to go on, or the status to exit with. */
static int parse(int argc, char **argv, struct usemem *u)
{
	static const struct cli_opt opts[] = {
		{"help", 'h', false, OPT_HELP},	  {"queue-policy", 0, true, OPT_POLICY},
		{"runs", 0, true, OPT_RUNS},	  {"processes", 0, true, OPT_PROCESSES},
		{"size", 0, true, OPT_SIZE},	  {"ram", 0, true, OPT_RAM},
		{"devices", 0, true, OPT_DEVICES}, {"nodes", 0, true, OPT_NODES},
		{"depth", 0, true, OPT_DEPTH},	  {"write", 0, true, OPT_WRITE},
		{"read", 0, true, OPT_READ},	  {"order", 0, true, OPT_ORDER},
		{"dir", 0, true, OPT_DIR},	  {"json", 0, false, OPT_JSON},
		{"plant", 0, false, OPT_PLANT},	  {"load", 0, false, OPT_LOAD},
		{NULL, 0, false, 0}};
	struct cli_args args;
	int id;

	cli_args_init(&args, argc, argv);
	while ((id = cli_next_word(&args, opts)) != CLI_OPT_END) {
		if (id == OPT_HELP)
			return cli_print(usage, strlen(usage));
		if (id == CLI_OPERAND)
			return cli_fail("%s: unexpected word '%s'; see 'uswap %s --help'", u->name,
					args.arg, u->name);
		if (id == CLI_OPT_BAD || !take_option(u, id, args.arg))
			return CLI_EXIT_FAILURE;
	}
	u->load.processes = (unsigned int)u->processes;
	if (!u->is_load && u->load.bytes * u->processes < u->ram + u->ram / 4)
		return cli_fail("%s: %u processes of %" PRIu64 " bytes nearly fit in --ram; give them "
				"more --size", u->name, u->load.processes, u->load.bytes);
	return -1;
}

/* ---- a job ---- */

/* The words of a job; malloc'ed, for the life of a child that is about to exec. */
struct words {
	char *argv[MAX_WORDS + 1];
	unsigned int n;
};

static void __printf(2, 3) add(struct words *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (w->n == MAX_WORDS || vasprintf(&w->argv[w->n], fmt, ap) < 0)
		_exit(CLI_EXIT_FAILURE);
	va_end(ap);
	w->argv[++w->n] = NULL;
}

static void add_device(struct words *w, const struct usemem *u, unsigned int i)
{
	/*
	 * All of it fits on one, as `fill` has it, with as much again: over half full it would have to
	 * give up older copies of what is back, and write more than its peers.
	 */
	uint64_t bytes = 2 * u->load.bytes * u->processes + MIB(8);
	char path[2 * PATH_MAX];
	size_t n = 0;

	for (const char *p = u->dir; *p; p++) {
		if (strchr("\\,:", *p))
			path[n++] = '\\';
		path[n++] = *p;
	}
	path[n] = '\0';
	add(w, "--swap");
	add(w, "file:%s/%u:%" PRIu64 ",node=%u,delay-write=%" PRIu64 ",delay-read=%" PRIu64
	    ",delay-depth=%" PRIu64, path, i, bytes, i % (unsigned int)u->nodes, u->write_us,
	    u->read_us, u->depth);
}

static void run_job(const struct usemem *u, const char *policy)
{
	char nodes[QUEUE_MAX_NODES * 4] = "0";
	struct words w = {.n = 0};

	for (unsigned int i = 1; i < u->nodes; i++)
		snprintf(nodes + strlen(nodes), sizeof(nodes) - strlen(nodes), ",%u", i);
	add(&w, "%s", u->exe);
	add(&w, "run");
	add(&w, "-q");
	add(&w, "--ram=%" PRIu64, u->ram);
	add(&w, "--order=%" PRIu64, u->order);
	add(&w, "--queue-policy=%s", policy);
	add(&w, "--cpu-nodes=%s", nodes);
	add(&w, "--report=%s/report.json", u->dir);
	for (unsigned int i = 0; i < u->devices; i++)
		add_device(&w, u, i);
	add(&w, "--");
	add(&w, "%s", u->exe);
	add(&w, "bench");
	add(&w, "usemem");
	add(&w, "--load");
	add(&w, "--processes=%" PRIu64, u->processes);
	add(&w, "--size=%" PRIu64, u->load.bytes);
	if (u->load.plant)
		add(&w, "--plant");
	execv(u->exe, w.argv);
	cli_fail("%s: %s: %s", u->name, u->exe, strerror(errno));
	_exit(CLI_EXIT_FAILURE);
}

/* Runs the job and gives what the load prints. 0, or the status to exit with (printed). */
static int run_and_read(const struct usemem *u, const char *policy, char *out, size_t len)
{
	int p[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(p) != 0)
		return cli_fail("%s: %s", u->name, strerror(errno));
	pid = fork();
	if (!pid) {
		signal(SIGINT, SIG_DFL);
		(void)dup2(p[1], STDOUT_FILENO);
		(void)close(p[0]);
		(void)close(p[1]);
		run_job(u, policy);
	}
	(void)close(p[1]);
	while (pid > 0 && n + 1 < len && (got = read(p[0], out + n, len - 1 - n)) > 0)
		n += (size_t)got;
	out[n] = '\0';
	(void)close(p[0]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return cli_fail("%s: %s", u->name, strerror(errno));
	if (status)
		return cli_fail("%s: %s: the job ended with status %d", u->name, policy,
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return 0;
}

/* ---- its figures ---- */

static double mb_per_s(uint64_t bytes, uint64_t ns)
{
	return (double)bytes * 1e3 / (double)MAX(ns, (uint64_t)1);
}

static int take_figures(const struct usemem *u, const char *out, struct run *r)
{
	uint64_t bytes = u->load.bytes, wrong = 0;

	for (unsigned int i = 0; i < u->processes; i++) {
		struct usemem_result p;
		int used = 0;

		if (sscanf(out, "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "\n%n", &p.write_ns,
			   &p.read_ns, &p.free_ns, &p.wrong_pages, &used) != 4)
			return cli_fail("%s: the load told of %u processes only", u->name, i);
		out += used;
		r->write += mb_per_s(bytes, p.write_ns);
		r->read += mb_per_s(bytes, p.read_ns);
		r->all += mb_per_s(2 * bytes, p.write_ns + p.read_ns);
		r->free_us += (double)p.free_ns / 1e3 / (double)u->processes;
		wrong += p.wrong_pages;
	}
	return wrong ? cli_fail("%s: %" PRIu64 " pages had wrong content", u->name, wrong) : 0;
}

/* What the job itself reports: use of the devices, and whether the load has really been out. */
static int take_report(const struct usemem *u, struct run *r)
{
	uint64_t least = UINT64_MAX, most = 0, out, must;
	char path[PATH_MAX + 16];
	json_t *doc, *devs;
	bool ok;

	snprintf(path, sizeof(path), "%s/report.json", u->dir);
	doc = json_load_file(path, 0, NULL);
	devs = json_object_get(doc, "devices");
	for (unsigned int i = 0; i < u->devices; i++) {
		r->peak[i] = (uint64_t)json_integer_value(
			json_object_get(json_array_get(devs, i), "peak"));
		least = MIN(least, r->peak[i]);
		most = MAX(most, r->peak[i]);
	}
	r->most_to_least = (double)most / (double)MAX(least, (uint64_t)PAGE_SIZE);
	out = (uint64_t)json_integer_value(
		json_object_get(json_object_get(doc, "vmstat"), "pswpout")) << PAGE_SHIFT;
	must = u->load.bytes * u->processes - u->ram;
	ok = json_array_size(devs) == u->devices;
	json_decref(doc);
	if (!ok)
		return cli_fail("%s: %s: not the report of such a job", u->name, path);
	if (out < must)
		return cli_fail("%s: only %" PRIu64 " bytes went out, of at least %" PRIu64, u->name,
				out, must);
	return 0;
}

static int one_run(const struct usemem *u, const char *policy, struct run *r)
{
	char out[USEMEM_MAX_PROCESSES * 96];
	uint64_t from = clock_now_ns();
	int rc = run_and_read(u, policy, out, sizeof(out));

	r->seconds = (double)(clock_now_ns() - from) / 1e9;
	if (!rc)
		rc = take_figures(u, out, r);
	return rc ? rc : take_report(u, r);
}

/* ---- what is printed ---- */

enum figure { ALL, RATIO, WRITE, READ, PROCESS, FREE_US, MOST_TO_LEAST, SECONDS, NR_FIGURES };
static const char *const figure_names[NR_FIGURES] = {
	"throughput", "ratio", "write", "read", "process_throughput", "free_us", "most_to_least",
	"elapsed_s"};

static double figure(const struct usemem *u, const struct arm *a, unsigned int run, enum figure f)
{
	const struct run *r = &a->run[run];
	const double values[NR_FIGURES] = {
		[ALL] = r->all,
		[RATIO] = r->all / u->arm[0].run[run].all,
		[WRITE] = r->write,
		[READ] = r->read,
		[PROCESS] = r->all / (double)u->processes,
		[FREE_US] = r->free_us,
		[MOST_TO_LEAST] = r->most_to_least,
		[SECONDS] = r->seconds,
	};

	return values[f];
}

static struct bench_spread spread(const struct usemem *u, const struct arm *a, enum figure f)
{
	double v[MAX_RUNS];

	for (unsigned int i = 0; i < u->runs; i++)
		v[i] = figure(u, a, i, f);
	return bench_spread_of(v, (unsigned int)u->runs);
}

static json_t *arm_json(const struct usemem *u, const struct arm *a)
{
	json_t *j = json_pack("{s:s}", "policy", a->policy), *peaks = json_array();

	for (unsigned int f = 0; f < NR_FIGURES; f++) {
		struct bench_spread s = spread(u, a, (enum figure)f);

		json_object_set_new(j, figure_names[f],
				    json_pack("{s:f, s:f, s:f}", "median", s.median, "low", s.low,
					      "high", s.high));
	}
	for (unsigned int i = 0; i < u->runs; i++) {
		json_t *list = json_array();

		for (unsigned int d = 0; d < u->devices; d++)
			json_array_append_new(list, json_integer((json_int_t)a->run[i].peak[d]));
		json_array_append_new(peaks, list);
	}
	json_object_set_new(j, "peaks", peaks);
	return j;
}

static int print_json(const struct usemem *u)
{
	json_t *arms = json_array();

	for (unsigned int i = 0; i < u->nr_arms; i++)
		json_array_append_new(arms, arm_json(u, &u->arm[i]));
	return bench_print_json(
		u->name,
		json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			  "version", 1, "bench", "usemem", "processes", (json_int_t)u->processes,
			  "size", (json_int_t)u->load.bytes, "ram", (json_int_t)u->ram, "devices",
			  (json_int_t)u->devices, "nodes", (json_int_t)u->nodes, "depth",
			  (json_int_t)u->depth, "write_us", (json_int_t)u->write_us, "read_us",
			  (json_int_t)u->read_us, "order", (json_int_t)u->order, "runs",
			  (json_int_t)u->runs, "arms", arms));
}

static int print_table(const struct usemem *u)
{
	char size[SIZE_TEXT_BYTES], ram[SIZE_TEXT_BYTES];

	printf("%" PRIu64 " processes of %s in %s, %" PRIu64 " devices (%" PRIu64 " at once; %" PRIu64
	       " us a write, %" PRIu64 " us a read), %" PRIu64 " nodes:\n"
	       "median (lowest to highest) of %" PRIu64 " runs; MB/s\n"
	       "%-12s %24s %22s %8s %8s %9s %9s\n", u->processes,
	       size_to_text(u->load.bytes, size), size_to_text(u->ram, ram), u->devices, u->depth,
	       u->write_us, u->read_us, u->nodes, u->runs, "policy", "all processes", "ratio",
	       "writing", "reading", "free us", "max/min");
	for (unsigned int i = 0; i < u->nr_arms; i++) {
		const struct arm *a = &u->arm[i];
		struct bench_spread all = spread(u, a, ALL), ratio = spread(u, a, RATIO);

		printf("%-12s %8.1f (%.1f to %.1f) %6.2f (%.2f to %.2f) %8.1f %8.1f %9.0f %9.3f\n",
		       a->policy, all.median, all.low, all.high, ratio.median, ratio.low, ratio.high,
		       spread(u, a, WRITE).median, spread(u, a, READ).median,
		       spread(u, a, FREE_US).median, spread(u, a, MOST_TO_LEAST).median);
	}
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}

/* ---- all of it ---- */

static int set_up(struct usemem *u)
{
	char parent[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", u->exe, sizeof(u->exe) - 1);

	if (n <= 0)
		return cli_fail("%s: /proc/self/exe: %s", u->name, strerror(errno));
	u->exe[n] = '\0';
	if (!realpath(u->parent, parent) || strlen(parent) > PATH_MAX / 2)
		return cli_fail("%s: --dir '%s': %s", u->name, u->parent, strerror(errno));
	snprintf(u->dir, sizeof(u->dir), "%.*s/uswap-bench-XXXXXX", PATH_MAX / 2, parent);
	if (mkdtemp(u->dir))
		return 0;
	u->dir[0] = '\0';
	return cli_fail("%s: --dir '%s': %s", u->name, u->parent, strerror(errno));
}

static void tear_down(const struct usemem *u)
{
	char path[PATH_MAX + 16];

	if (!u->dir[0])
		return;
	snprintf(path, sizeof(path), "%s/report.json", u->dir);
	(void)unlink(path);
	(void)rmdir(u->dir);
}

/* A round begins with another arm each time, so that none always runs first. */
static int run_arms(struct usemem *u)
{
	int rc = 0;

	for (unsigned int run = 0; run < u->runs && !rc; run++)
		for (unsigned int i = 0; i < u->nr_arms && !rc; i++) {
			struct arm *a = &u->arm[(run + i) % u->nr_arms];

			rc = one_run(u, a->policy, &a->run[run]);
		}
	return rc;
}

int bench_usemem(int argc, char **argv)
{
	struct usemem *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return cli_fail("%s: out of memory", argv[0]);
	*u = (struct usemem){.name = argv[0], .runs = 3, .devices = 4, .nodes = 2, .depth = 2,
			     .write_us = 4000, .read_us = 1000, .order = 4, .ram = MIB(48),
			     .processes = 4, .load.bytes = MIB(48), .parent = "/var/tmp"};
	(void)take_policies(u, "fill,node,queue");
	rc = parse(argc, argv, u);
	if (rc < 0 && u->is_load) {
		rc = usemem_run_load(argv[0], &u->load);
	} else if (rc < 0) {
		/* The job in front of us ends by it, and we clean up behind it. */
		signal(SIGINT, SIG_IGN);
		rc = set_up(u);
		if (!rc)
			rc = run_arms(u);
		tear_down(u);
		if (!rc)
			rc = u->json ? print_json(u) : print_table(u);
	}
	free(u);
	return rc;
}
