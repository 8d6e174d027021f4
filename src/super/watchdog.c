/* SPDX-License-Identifier: MIT */
/*
 * The watchdog: sees that a loop of the supervisor does not go round any more, says which, and
 * after a long time has the job ended, since faults would wait for ever. Runs in the keeper.
 *
 * Only time counts in which the loop could have run: not that of a suspended machine (the clock
 * stands), of a keeper that did not come to run itself, or of a supervisor that was stopped or is
 * being debugged. A loop may rest for as long as a device does not answer, and a machine may be
 * overloaded: so the bound for the end is far above any of that, and the first one only tells.
 */
#define _GNU_SOURCE
#include "super/watchdog.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/proc.h"

uint64_t watchdog_tell_ns = 60 * NSEC_PER_SEC;
uint64_t watchdog_end_ns = 600 * NSEC_PER_SEC;

int watchdog_tick_ms(void)
{
	return (int)(MIN(NSEC_PER_SEC, watchdog_tell_ns / 4) / NSEC_PER_MSEC);
}

/* Not through the log, whose thread is the supervisor's; and nobody who reads it is waited for. */
static __printf(1, 2) void tell(const char *format, ...)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[256];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* A pipe that can be written to takes so short a line whole. */
	if (poll(&p, 1, 0) > 0 && (p.revents & POLLOUT))
		(void)!write(STDERR_FILENO, line, strlen(line));
}

static int thread_is_stopped(pid_t tid, const char *path, void *arg)
{
	char comm[16], state;
	pid_t ppid;

	(void)path;
	(void)arg;
	return proc_stat(tid, &ppid, &state, comm) == 0 && (state == 'T' || state == 't');
}

/* By SIGSTOP, or by a debugger at any of its threads. */
static bool is_stopped(pid_t supervisor)
{
	return proc_each(supervisor, "task", "", thread_is_stopped, NULL) == 1;
}

/* One loop; true: it has been still for too long. */
static bool look_at(struct watchdog *d, const struct watch *w, struct watchdog_loop *l,
		    uint64_t passed_ns)
{
	uint64_t rounds = atomic_load(&w->rounds);

	if (!atomic_load(&w->running) || rounds != l->rounds) {
		*l = (struct watchdog_loop){.rounds = rounds};
		return false;
	}
	l->still_ns += passed_ns;
	if (l->still_ns >= watchdog_tell_ns && !l->told) {
		l->told = true;
		if (!d->quiet)
			tell("uswap: the supervisor's %s has made no progress for %llu s; the job is "
			     "ended if it does not go on within %llu s\n",
			     w->name, (unsigned long long)(l->still_ns / NSEC_PER_SEC),
			     (unsigned long long)((watchdog_end_ns - watchdog_tell_ns) /
						  NSEC_PER_SEC));
	}
	if (l->still_ns < watchdog_end_ns)
		return false;
	tell("uswap: the supervisor's %s has made no progress for %llu s: the job is ended\n",
	     w->name, (unsigned long long)(l->still_ns / NSEC_PER_SEC));
	return true;
}

bool watchdog_look(struct watchdog *d)
{
	const struct watch *w = watch_table();
	uint64_t tick_ns = (uint64_t)watchdog_tick_ms() * NSEC_PER_MSEC, now = clock_now_ns();
	/* Later than that it was this process that did not run. */
	uint64_t passed_ns = d->last_ns ? MIN(now - d->last_ns, 2 * tick_ns) : 0;
	bool stopped;

	d->last_ns = now;
	if (!w)
		return false;
	stopped = is_stopped(d->supervisor);
	for (int i = 0; i < WATCH_SLOTS; i++) {
		if (stopped)
			d->loop[i].still_ns = 0;
		else if (look_at(d, &w[i], &d->loop[i], passed_ns))
			return true;
	}
	return false;
}
