/* SPDX-License-Identifier: MIT */
/*
 * The front process: what the shell sees.
 *
 * Signals from the terminal reach the command directly, since it is in the same process group, and
 * are ignored here; those that somebody sends to this process alone are passed on. It stops when
 * the command stops, so that the shell takes the terminal back, and ends as the command ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"
#include "sys/proc.h"

struct front {
	int sup_fd, sup_pidfd, sig_fd;
	pid_t sup, command;
	bool have_status, final;
	int status; /* exit status */
};

static int exit_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static bool holds_userfaultfds(pid_t pid)
{
	char comm[16], state;
	pid_t ppid;

	return proc_stat(pid, &ppid, &state, comm) == 0 &&
	       (strcmp(comm, "uswap-helper") == 0 || strcmp(comm, "uswap-keeper") == 0);
}

static int kill_below(pid_t pid, bool holders, int depth)
{
	static pid_t kids[8][256];
	int n, alive = 0;

	if (depth == 8)
		return 0;
	n = proc_children(pid, kids[depth], 256);
	for (int i = 0; i < n; i++) {
		pid_t kid = kids[depth][i];

		if (!holders && holds_userfaultfds(kid))
			continue;
		kill(kid, SIGKILL);
		alive += 1 + kill_below(kid, holders, depth + 1);
	}
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		;
	return alive;
}

/*
 * What is left below this process, which is a subreaper, gets SIGKILL. Programs first, and only
 * when the last of them is gone the helpers and the keeper: these hold the userfaultfds, and
 * without them a program that still runs would read missing pages as zeros.
 */
static int kill_descendants(void)
{
	int total = 0;

	for (int holders = 0; holders < 2; holders++)
		for (int round = 0, quiet = 0; round < 2500 && quiet < 3; round++) {
			int n = kill_below(getpid(), holders, 0);

			if (!holders)
				total = n > total ? n : total;
			quiet = n ? 0 : quiet + 1;
			usleep(2000);
		}
	return total;
}

/* The supervisor could not do it itself. Its directory bears this process' pid. */
static void remove_rundir(void)
{
	char top[160], path[256];
	static const char *const names[] = {"/ctl", "/agent", ""};

	super_rundir(top, sizeof(top));
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%d%s", top, (int)getpid(), names[i]);
		(void)remove(path);
	}
}

static void pass_on(struct front *f, const struct signalfd_siginfo *si)
{
	int sig = (int)si->ssi_signo;

	if (!f->command)
		return;
	/* From the terminal or the kernel: the command got it as well. SIGCONT cannot harm. */
	if (si->ssi_code == SI_KERNEL && sig != SIGCONT)
		return;
	/* A process of the job that signals its whole group means its own, not us. */
	if (si->ssi_pid && proc_is_descendant((pid_t)si->ssi_pid, f->sup))
		return;
	(void)kill(f->command, sig);
}

static void read_signals(struct front *f)
{
	struct signalfd_siginfo si;

	while (read(f->sig_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			int st;
			pid_t p;

			while ((p = waitpid(-1, &st, WNOHANG | __WALL)) > 0)
				;
			continue;
		}
		pass_on(f, &si);
	}
}

/* Returns false when the supervisor's end of the socket is closed. */
static bool read_supervisor(struct front *f)
{
	struct front_msg m;
	ssize_t n = recv(f->sup_fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n != sizeof(m))
		return false;
	switch (m.kind) {
	case FRONT_STARTED:
		f->command = m.value;
		break;
	case FRONT_STOPPED:
		/*
		 * SIGSTOP, not m.value: this process blocks the others. `fg` continues the group.
		 * A later word is there already: the command goes on or has ended.
		 */
		if (recv(f->sup_fd, &m, sizeof(m), MSG_PEEK | MSG_DONTWAIT) < 0)
			kill(getpid(), SIGSTOP);
		(void)send(f->sup_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		break;
	case FRONT_CONTINUED:
		break;
	case FRONT_ENDED:
	case FRONT_FAILED:
		f->have_status = true;
		f->final = m.final;
		f->status = m.kind == FRONT_ENDED ? exit_status(m.value) : m.value;
		break;
	}
	return true;
}

static void detach_stdio(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* A pipe must end when the command ends with it, not when we do. */
	if (null < 0)
		return;
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	close(null);
}

int front_main(int sup_fd, pid_t sup, const sigset_t *orig_mask)
{
	struct front f = {.sup_fd = sup_fd, .sup = sup};
	struct pollfd p[3];
	sigset_t set;
	int killed;

	(void)orig_mask;
	detach_stdio();
	sigfillset(&set);
	f.sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	f.sup_pidfd = (int)syscall(SYS_pidfd_open, sup, 0);
	p[0] = (struct pollfd){.fd = f.sig_fd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = f.sup_fd, .events = POLLIN};
	p[2] = (struct pollfd){.fd = f.sup_pidfd, .events = POLLIN};
	for (;;) {
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			break;
		read_signals(&f);
		if (p[1].fd >= 0 && (p[1].revents & (POLLIN | POLLHUP)) && !read_supervisor(&f))
			p[1].fd = -1;
		if (f.have_status && !f.final)
			return f.status; /* others of the job live on; the supervisor stays */
		if (p[2].revents & POLLIN)
			break;
	}
	while (p[1].fd >= 0 && !f.have_status && read_supervisor(&f) &&
	       recv(f.sup_fd, &(struct front_msg){0}, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		;
	if (f.have_status)
		return f.status;
	killed = kill_descendants();
	remove_rundir();
	log_error("the supervisor died; what was left of the job (%d processes) was ended", killed);
	return SUPER_EXIT_FAILURE;
}
