/* SPDX-License-Identifier: MIT */
/*
 * `uswap swapoff`: the job does the work and tells how far it is; this shows it. An interrupt (Ctrl-C,
 * SIGTERM, SIGHUP) closes our side of the socket; the job then puts the device back and says so,
 * and we end by that signal. A second one ends us at once, which the job takes the same way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/ctl_client.h"

static const char usage[] =
	"usage: uswap swapoff [--job ID] [-q] NAME\n"
	"Takes a swap device away from a running job: what is on it moves to the others, without\n"
	"being brought into RAM. NAME is what `uswap swaps` prints. Without room the device stays\n"
	"on; so it does when this is interrupted.\n"
	"  --job ID  the job (default: the only one)\n"
	"  -q        no progress, nothing but errors\n"
	"Exit status: 0 the device is off; 125 it is on; 128+N interrupted by signal N, it is on.\n";

static volatile sig_atomic_t caught, socket_fd = -1;

static void on_signal(int signo)
{
	int saved = errno;

	caught = signo;
	if (socket_fd >= 0)
		(void)shutdown(socket_fd, SHUT_WR);
	errno = saved;
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction old;

		/* What a shell ignores for us stays ignored. */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &sa, NULL);
	}
}

static void connected(int fd)
{
	socket_fd = fd;
	if (fd >= 0 && caught)
		(void)shutdown(fd, SHUT_WR);
}

struct shown {
	bool tty, any;
};

static void show(void *host, const struct ctl_progress *p)
{
	uint64_t all = p->done_pages + p->left_pages;
	struct shown *s = host;

	if (!s->tty)
		return;
	s->any = true;
	fprintf(stderr, "\ruswap: %3.0f%%, %.1f MiB left, %.0f MiB/s",
		all ? 100.0 * (double)p->done_pages / (double)all : 100.0,
		(double)p->left_pages / 256,
		p->elapsed_ns ? (double)p->done_pages / 256 * 1e9 / (double)p->elapsed_ns : 0.0);
	if (p->lost_pages)
		fprintf(stderr, ", %llu pages lost", (unsigned long long)p->lost_pages);
	fprintf(stderr, "\033[K");
	fflush(stderr);
}

static void clear_line(const struct shown *s)
{
	if (s->any)
		fprintf(stderr, "\r\033[K");
}

/* As the signal would have ended us. */
static int die_interrupted(void)
{
	signal(caught, SIG_DFL);
	raise(caught);
	return 128 + caught;
}

int verb_swapoff(int argc, char **argv)
{
	struct shown shown = {0};
	struct ctl_follower follower = {.progress = show, .connected = connected, .host = &shown};
	struct swap_words w;
	struct ctl_answer a;
	pid_t job;
	int rc = cli_parse_swap_words(argc, argv, usage, "NAME", &w);

	if (rc >= 0)
		return rc;
	rc = ctl_choose_job(w.job, &job);
	if (rc)
		return rc;
	shown.tty = !w.quiet && isatty(STDERR_FILENO);
	catch_signals();
	rc = ctl_follow(job, CTL_SWAPOFF, w.operand, &follower, &a);
	clear_line(&shown);
	if (rc)
		return ctl_fail_call(job, rc);
	if (a.error) {
		bool interrupted = a.error == -EINTR && caught;

		rc = ctl_fail_answer(job, &a);
		return interrupted ? die_interrupted() : rc;
	}
	return ctl_print_line(&a, w.quiet);
}
