/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "explorer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strategy.h"
#include "trace/vmstat.h"

#define MAX_STEPS 20000
#define MAX_DEPTH (1u << 20)

/* Of the linker: the pointers that SCENARIO() left. */
extern const struct scenario *const __start_scenarios[], *const __stop_scenarios[];

const struct scenario *scenario_nth(unsigned int i)
{
	return __start_scenarios + i < __stop_scenarios ? __start_scenarios[i] : NULL;
}

const struct scenario *scenario_find(const char *name)
{
	const struct scenario *sc;

	for (unsigned int i = 0; (sc = scenario_nth(i)); i++)
		if (strcmp(sc->name, name) == 0)
			return sc;
	return NULL;
}

/* ---- in the child ---- */

static struct explore_outcome *outcome; /* shared with the parent */
static struct strategy strategy;

/* The last word of the child: also from a signal handler, when nothing can be trusted much. */
static void failed(void *priv, enum sim_failure kind, const char *message)
{
	static bool already;

	(void)priv;
	if (already)
		_exit(2);
	already = true;
	outcome->kind = strategy.unstable ? SIM_UNSTABLE : kind;
	snprintf(outcome->message, sizeof(outcome->message), "%s",
		 strategy.unstable ? "the same choices led elsewhere: the scenario depends on "
				     "something else, such as what an earlier run has left"
				   : message);
	outcome->nr_choices = strategy.nr_chosen;
	outcome->seed = strategy.run ? strategy.opt.seed + strategy.run - 1 : 0;
	sim_trace_to_text(outcome->steps_text, sizeof(outcome->steps_text));
	_exit(1);
}

static void on_signal(int sig)
{
	char text[64];

	snprintf(text, sizeof(text), "signal %d (%s)", sig, sigabbrev_np(sig));
	failed(NULL, SIM_ABORT, text);
}

static void catch_signals(void)
{
	static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	static char stack[64 << 10];
	stack_t ss = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	struct rlimit none = {0, 0};

	sigaltstack(&ss, NULL);
	for (unsigned int i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &sa, NULL);
	(void)setrlimit(RLIMIT_CORE, &none);
}

static unsigned int choose(void *priv, const struct sim_choice *c)
{
	(void)priv;
	return strategy_choose(&strategy, c);
}

static void passed(void *priv)
{
	(void)priv;
	strategy_pass(&strategy);
}

static void run_scenario(void *arg)
{
	const struct scenario *sc = arg;

	sc->run();
}

static void quiet_counters(void)
{
	sim_quiet(vmstat_counters, sizeof(vmstat_counters));
	sim_quiet(order_stats, sizeof(order_stats));
	sim_quiet(&fault_latency, sizeof(fault_latency));
}

static void *zeroed(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void child(const struct scenario *sc, const struct explore_options *opt)
{
	struct branch *path = zeroed(MAX_DEPTH * sizeof(*path));
	struct sim_explore_config cfg = {
		.choose = choose,
		.passed = passed,
		.failed = failed,
		.max_steps = sc->max_steps ? sc->max_steps : MAX_STEPS,
		.nr_cpus = sc->nr_cpus ? sc->nr_cpus : 8,
		.spurious = sc->spurious,
		.after_unlock = sc->after_unlock,
		.only_shared = opt->only_shared && opt->how == EXPLORE_EXHAUSTIVE,
	};
	unsigned int known = 0;
	bool more;

	if (!path)
		_exit(2);
	catch_signals();
	quiet_counters();
	strategy_init(&strategy, opt, path, MAX_DEPTH, outcome->choices, EXPLORE_MAX_CHOICES);
	do {
		strategy_begin_run(&strategy);
		sim_explore(&cfg, run_scenario, (void *)(uintptr_t)sc);
		outcome->runs++;
		outcome->steps += sim_nr_steps();
		more = strategy_next_run(&strategy);
		if (sim_nr_shared_places() != known) {
			/* There are points that were passed so far. */
			known = sim_nr_shared_places();
			outcome->discarded = outcome->runs;
			strategy_init(&strategy, opt, path, MAX_DEPTH, outcome->choices,
				      EXPLORE_MAX_CHOICES);
			more = true;
		}
	} while (more && (opt->how != EXPLORE_EXHAUSTIVE || !opt->runs ||
			  outcome->runs < opt->runs));
	if (strategy.unstable)
		failed(NULL, SIM_UNSTABLE, "");
	outcome->complete = opt->how == EXPLORE_EXHAUSTIVE && !more;
	_exit(0);
}

/* ---- in the parent ---- */

static void read_said(struct explore_outcome *o, int fd)
{
	ssize_t n = pread(fd, o->said, sizeof(o->said) - 1, 0);

	o->said[n > 0 ? n : 0] = '\0';
}

struct explore_outcome *explore(const struct scenario *sc, const struct explore_options *opt)
{
	struct explore_outcome *o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int said, status = 0;
	pid_t pid;

	if (o == MAP_FAILED)
		return NULL;
	said = memfd_create("stderr", MFD_CLOEXEC);
	fflush(NULL);
	pid = said < 0 ? -1 : fork();
	if (pid < 0) {
		explore_free(o);
		return NULL;
	}
	if (!pid) {
		outcome = o;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(said, STDERR_FILENO);
		setvbuf(stderr, NULL, _IONBF, 0);
		child(sc, opt);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	read_said(o, said);
	close(said);
	if (o->kind == SIM_OK && status) {
		o->kind = SIM_ABORT;
		snprintf(o->message, sizeof(o->message), "the child ended with status %#x",
			 (unsigned int)status);
	}
	return o;
}

void explore_free(struct explore_outcome *o)
{
	if (o)
		munmap(o, sizeof(*o));
}

/*
 * First halves, then quarters, ... then single choices are left out. Points after one that is left
 * out may mean something else then, so this is a search, which ends when nothing helps.
 */
struct explore_outcome *explore_shrink(const struct scenario *sc, struct explore_outcome *found)
{
	uint32_t part = found->nr_choices;
	struct explore_choice *list = calloc(found->nr_choices + 1, sizeof(*list));
	unsigned int tries = 0;

	while (list && part && tries < 400) {
		bool better = false;

		for (uint32_t from = 0; from < found->nr_choices && tries < 400; from += part) {
			uint32_t upto = MIN(from + part, found->nr_choices), n = 0;
			struct explore_outcome *o;
			struct explore_options opt = {.how = EXPLORE_REPLAY, .replay = list};

			for (uint32_t i = 0; i < found->nr_choices; i++)
				if (i < from || i >= upto)
					list[n++] = found->choices[i];
			opt.nr_replay = n;
			o = explore(sc, &opt);
			tries++;
			if (o && o->kind == found->kind && o->nr_choices < found->nr_choices) {
				o->runs = found->runs;
				o->seed = found->seed;
				explore_free(found);
				found = o;
				better = true;
				break;
			}
			explore_free(o);
		}
		if (!better)
			part = part > 1 ? (part + 1) / 2 : 0;
		part = MIN(part, found->nr_choices);
	}
	free(list);
	return found;
}
