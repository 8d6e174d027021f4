/* SPDX-License-Identifier: MIT */
/*
 * super_run(): two processes.
 *
 * The front process is the one that the user started. It keeps its place in the terminal's
 * process group, follows the command's stops and its end, and passes signals on. The supervisor
 * is its child, in a process group of its own, so that Ctrl-Z and Ctrl-C never stop the thread
 * that a program's fault is waiting for. The command is the supervisor's child, but in the front's
 * process group.
 */
#define _GNU_SOURCE
#include "super/super.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"
#include "sys/check.h"

void super_rundir(char *buf, size_t len)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	if (geteuid() == 0)
		snprintf(buf, len, "/run/uswap");
	else if (xdg && xdg[0] == '/')
		snprintf(buf, len, "%s/uswap", xdg);
	else
		snprintf(buf, len, "/tmp/uswap-%u", (unsigned int)geteuid());
}

/*
 * Descriptors 0 to 2 that the user closed get something harmless, so that none of ours lands on
 * one. Close-on-exec: the command finds them closed, as natively.
 */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", O_RDWR | O_CLOEXEC);
}

int super_run(const struct run_config *cfg)
{
	sigset_t all, orig;
	char why[512];
	int pair[2];
	pid_t sup, front = getpid();

	fill_standard_fds();
	if (check_required(why, sizeof(why)) != 0) {
		log_error("%s", why);
		return SUPER_EXIT_FAILURE;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		log_error("socketpair: %s", strerror(errno));
		return SUPER_EXIT_FAILURE;
	}
	/* What the supervisor leaves behind when it dies comes here, to be ended. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &orig);
	sup = fork();
	if (sup < 0) {
		log_error("fork: %s", strerror(errno));
		return SUPER_EXIT_FAILURE;
	}
	if (sup == 0) {
		close(pair[0]);
		super_orig_mask = orig;
		_exit(supervisor_main(cfg, pair[1], front));
	}
	close(pair[1]);
	return front_main(pair[0], sup, &orig);
}
