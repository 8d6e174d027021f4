/* SPDX-License-Identifier: MIT */
#include "sim/bench_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_number(const char *text, uint64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int complain(const char *verb, const char *what, const char *about)
{
	fprintf(stderr, "uswap-sim: bench %s: %s%s\n", verb, what, about);
	return 2;
}

/* Is argv[*i] the option of that name? Its value is then in *value: behind an = or the next word. */
static bool option_is(const char *name, int argc, char **argv, int *i, const char **value)
{
	const char *word = argv[*i];
	size_t len = strlen(name);

	if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, len) != 0)
		return false;
	*value = NULL;
	if (word[2 + len] == '=')
		*value = word + 3 + len;
	else if (word[2 + len])
		return false;
	else if (*i + 1 < argc)
		*value = argv[++*i];
	return true;
}

static int parse_own(const struct bench_number *own, int argc, char **argv, int *i)
{
	const char *value;

	for (; own && own->name; own++) {
		if (!option_is(own->name, argc, argv, i, &value))
			continue;
		if (own->word && value)
			*own->word = value;
		else if (own->word || !value || !parse_number(value, own->value))
			return complain(argv[0],
					own->word ? "expected a word after --" :
						    "expected a number after --",
					own->name);
		return 0;
	}
	return complain(argv[0], "there is no option ", argv[*i]);
}

int bench_parse(struct bench_options *o, const struct bench_number *own, int argc, char **argv)
{
	const char *value;
	char err[512];
	uint64_t n;
	int r;

	*o = (struct bench_options){.nr_cpus = 2, .preset = "measured"};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			o->json = true;
		} else if (option_is("cpus", argc, argv, &i, &value)) {
			if (!value || !parse_number(value, &n) || !n || n > SIM_MAX_CPUS)
				return complain(argv[0], "--cpus takes 1 to 256", "");
			o->nr_cpus = (unsigned int)n;
		} else if (option_is("preset", argc, argv, &i, &value)) {
			if (!value)
				return complain(argv[0], "--preset takes a name or a path", "");
			o->preset = value;
		} else {
			r = parse_own(own, argc, argv, &i);
			if (r)
				return r;
		}
	}
	if (sim_costs_load(&o->costs, o->preset, err, sizeof(err)) != 0)
		return complain(argv[0], err, "");
	return 0;
}

static struct sim_cpu_result sum_cpus(const struct sim_result *r)
{
	struct sim_cpu_result sum = {0};

	for (unsigned int i = 0; i < r->nr_cpus; i++) {
		sum.busy_ns += r->cpu[i].busy_ns;
		sum.stall_ns += r->cpu[i].stall_ns;
		sum.wait_ns += r->cpu[i].wait_ns;
	}
	return sum;
}

json_t *bench_result_json(const struct sim_result *r)
{
	struct sim_cpu_result sum = sum_cpus(r);
	json_t *locks = json_array();

	for (unsigned int i = 0; i < r->nr_locks; i++)
		json_array_append_new(locks,
				      json_pack("{s:s, s:I, s:I, s:I}", "name", r->lock[i].name,
						"acquired", (json_int_t)r->lock[i].acquired,
						"contended", (json_int_t)r->lock[i].contended,
						"wait_ns", (json_int_t)r->lock[i].wait_ns));
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "cpus", (json_int_t)r->nr_cpus,
			 "elapsed_ns", (json_int_t)r->elapsed_ns, "busy_ns",
			 (json_int_t)sum.busy_ns, "stall_ns", (json_int_t)sum.stall_ns, "wait_ns",
			 (json_int_t)sum.wait_ns, "operations", (json_int_t)r->operations,
			 "line_moves", (json_int_t)r->line_moves, "locks", locks);
}

static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

void bench_result_print(const char *arm, uint64_t acquisitions, const struct sim_result *r)
{
	struct sim_cpu_result sum = sum_cpus(r);
	uint64_t all = r->elapsed_ns * r->nr_cpus;

	printf("%-12s %10.3f M/s  %8.1f ns each  works %5.1f %%  stalls %5.1f %%  waits %5.1f %%\n",
	       arm,
	       r->elapsed_ns ? (double)acquisitions * 1e3 / (double)r->elapsed_ns : 0,
	       acquisitions ? (double)r->elapsed_ns / (double)acquisitions : 0, 
	       percent(sum.busy_ns - sum.stall_ns, all), percent(sum.stall_ns, all),
	       percent(sum.wait_ns, all));
	for (unsigned int i = 0; i < r->nr_locks; i++)
		printf("         lock %-20s acquired %" PRIu64 "  contended %" PRIu64
		       "  wait_ns %" PRIu64 "\n",
		       r->lock[i].name, r->lock[i].acquired, r->lock[i].contended,
		       r->lock[i].wait_ns);
}

int bench_print_json(json_t *j)
{
	int r = j ? json_dumpf(j, stdout, JSON_INDENT(1)) : -1;

	json_decref(j);
	printf("\n");
	return r || ferror(stdout) ? 1 : 0;
}
