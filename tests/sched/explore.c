/* SPDX-License-Identifier: MIT */
/*
 * usage: explore --list
 *        explore TEST [--seed N] [--runs N]               random schedules; 1000 by default
 *        explore TEST --exhaustive [--preemptions K] [--only-shared] [--runs N]
 *        explore TEST --replay POINT:ALTERNATIVE[,...]    or "-": no choice at all
 *   --expect KIND   succeed only if a failure of this kind is found (or "any")
 *   --count N       exhaustive: succeed only if there are exactly N schedules
 *   --trace         print the steps also where --expect is met
 *   --no-shrink     print the schedule as it was found
 *
 * Exit status: 0; 1: a schedule fails (it is printed, with what replays it); 2: usage.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explorer.h"

struct arguments {
	const struct scenario *sc;
	struct explore_options opt;
	enum sim_failure expect;
	uint64_t count;
	bool has_count, has_runs, trace, no_shrink;
};

static void usage(const char *wrong)
{
	fprintf(stderr, "explore: %s\nusage: explore --list | TEST [--seed N] [--runs N] | TEST "
			"--exhaustive [--preemptions K] [--only-shared] [--runs N] | TEST --replay SEQUENCE\n"
			"       [--expect deadlock|livelock|locking|check|abort|any] [--count N] [--trace] "
			"[--no-shrink]\n",
		wrong);
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end)
		usage("not a number");
	return n;
}

static void parse_sequence(struct explore_options *opt, const char *text)
{
	static struct explore_choice list[EXPLORE_MAX_CHOICES];
	int used = 0;

	opt->how = EXPLORE_REPLAY;
	opt->replay = list;
	if (strcmp(text, "-") == 0)
		return;
	for (; *text; text += used) {
		struct explore_choice *c = &list[opt->nr_replay % EXPLORE_MAX_CHOICES];

		if (opt->nr_replay == EXPLORE_MAX_CHOICES ||
		    sscanf(text, "%" SCNu32 ":%" SCNu32 "%n", &c->point, &c->alternative, &used) != 2)
			usage("a sequence is POINT:ALTERNATIVE[,...]");
		opt->nr_replay++;
		if (text[used] == ',')
			used++;
	}
}

static enum sim_failure parse_kind(const char *text)
{
	for (int i = SIM_OK + 1; i < NR_SIM_FAILURES; i++)
		if (strcmp(text, sim_failure_names[i]) == 0)
			return (enum sim_failure)i;
	if (strcmp(text, "any") == 0)
		return NR_SIM_FAILURES;
	usage("there is no such kind of failure");
	return SIM_OK;
}

static void list(void)
{
	const struct scenario *sc;

	for (unsigned int i = 0; (sc = scenario_nth(i)); i++)
		printf("%-28s %s\n", sc->name, sc->what);
}

static void parse(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},	  {"runs", required_argument, NULL, 'r'},
		{"exhaustive", no_argument, NULL, 'x'},	  {"preemptions", required_argument, NULL, 'p'},
		{"replay", required_argument, NULL, 'R'}, {"expect", required_argument, NULL, 'e'},
		{"count", required_argument, NULL, 'c'},  {"trace", no_argument, NULL, 't'},
		{"only-shared", no_argument, NULL, 'o'},
		{"no-shrink", no_argument, NULL, 'n'},	  {"list", no_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	int o;

	a->opt = (struct explore_options){.seed = 1, .preemptions = 2};
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 's': a->opt.seed = number(optarg); break;
		case 'r': a->opt.runs = number(optarg); a->has_runs = true; break;
		case 'x': a->opt.how = EXPLORE_EXHAUSTIVE; break;
		case 'p': a->opt.preemptions = (unsigned int)number(optarg); break;
		case 'R': parse_sequence(&a->opt, optarg); break;
		case 'e': a->expect = parse_kind(optarg); break;
		case 'c': a->count = number(optarg); a->has_count = true; break;
		case 't': a->trace = true; break;
		case 'o': a->opt.only_shared = true; break;
		case 'n': a->no_shrink = true; break;
		case 'l': list(); exit(0);
		default: usage("no such option");
		}
	}
	if (optind + 1 != argc)
		usage("which test?");
	a->sc = scenario_find(argv[optind]);
	if (!a->sc)
		usage("there is no such test; --list");
	if (!a->has_runs && a->opt.how == EXPLORE_RANDOM)
		a->opt.runs = 1000;
	if ((a->has_count || a->opt.only_shared) && a->opt.how != EXPLORE_EXHAUSTIVE)
		usage("--count and --only-shared go with --exhaustive");
	if (a->has_count && a->opt.only_shared)
		usage("--count counts all schedules");
}

static void print_sequence(const struct explore_outcome *o)
{
	for (uint32_t i = 0; i < o->nr_choices; i++)
		printf("%s%" PRIu32 ":%" PRIu32, i ? "," : "", o->choices[i].point,
		       o->choices[i].alternative);
	if (!o->nr_choices)
		printf("-");
}

static void print_failure(const struct arguments *a, const struct explore_outcome *o, bool steps)
{
	printf("%s: %s: %s\n", a->sc->name, sim_failure_names[o->kind], o->message);
	if (a->opt.how == EXPLORE_RANDOM)
		printf("  found in run %" PRIu64 " (--seed %" PRIu64 " --runs 1)\n", o->runs, o->seed);
	else
		printf("  found in run %" PRIu64 "\n", o->runs);
	printf("  again: explore %s --replay ", a->sc->name);
	print_sequence(o);
	printf("\n");
	if (o->said[0])
		printf("  it said:\n%s\n", o->said);
	if (steps)
		printf("  the steps (> another thread goes on):\n%s", o->steps_text);
}

static bool end_is_good(const struct arguments *a, const struct explore_outcome *o)
{
	if (a->expect == NR_SIM_FAILURES)
		return o->kind != SIM_OK && o->kind != SIM_UNSTABLE;
	if (o->kind != a->expect)
		return false;
	if (o->kind != SIM_OK || a->opt.how != EXPLORE_EXHAUSTIVE)
		return true;
	return !a->has_count || (o->complete && o->runs == a->count);
}

int main(int argc, char **argv)
{
	struct arguments a = {0};
	struct explore_outcome *o;
	bool good;

	parse(&a, argc, argv);
	o = explore(a.sc, &a.opt);
	if (!o) {
		perror("explore");
		return 2;
	}
	if (o->kind != SIM_OK && o->kind != SIM_UNSTABLE && a.opt.how != EXPLORE_REPLAY &&
	    !a.no_shrink)
		o = explore_shrink(a.sc, o);
	good = end_is_good(&a, o);
	if (o->kind != SIM_OK)
		print_failure(&a, o, !good || a.trace);
	else
		printf("%s: %" PRIu64 " schedules, %" PRIu64 " steps, no failure%s\n", a.sc->name,
		       o->runs, o->steps,
		       a.opt.how != EXPLORE_EXHAUSTIVE ? ""
		       : o->complete ? "; there are no others"
				     : "; there are others");
	if (!good && o->kind == SIM_OK && a.expect != SIM_OK)
		printf("%s: a failure was expected\n", a.sc->name);
	if (!good && a.has_count && o->kind == SIM_OK)
		printf("%s: expected %" PRIu64 " schedules\n", a.sc->name, a.count);
	explore_free(o);
	return good ? 0 : 1;
}
