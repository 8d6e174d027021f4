/* SPDX-License-Identifier: MIT */
/*
 * The keeper: a process that shares the supervisor's descriptor table and waits for its death, or
 * causes it when its loops have stopped (watchdog.c).
 *
 * When the last descriptor of a userfaultfd is closed, missing pages of its memory silently read
 * as zeros. So somebody must hold them until every process of the job is dead, however the
 * supervisor ends. The helpers hold their own; this process covers those without a helper, and it
 * is the one that ends the job quickly.
 *
 * It is a copy of the supervisor from before any table was filled (no CLONE_VM: whatever kills the
 * supervisor for its memory must not take the keeper along).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "super/job.h"
#include "super/watchdog.h"

#define DEATH_MS 1000

static int kill_all(struct keeper_table *t, int sig)
{
	int alive = 0;

	for (int i = 0; i < KEEPER_SLOTS; i++) {
		int fd = atomic_load(&t->pidfd[i]) - 1;

		if (fd < 0)
			continue;
		if (syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0) {
			struct pollfd p = {.fd = fd, .events = POLLIN};

			if (poll(&p, 1, 0) == 0)
				alive++;
		}
	}
	return alive;
}

static void keeper_main(struct job *j, int sup_pidfd)
{
	struct pollfd p = {.fd = sup_pidfd, .events = POLLIN};
	struct watchdog dog = {.supervisor = getppid(), .quiet = j->cfg->verbose < 0};
	int n;

	(void)setsid(); /* as the supervisor */
	prctl(PR_SET_NAME, "uswap-keeper");
	while (poll(&p, 1, watchdog_tick_ms()) <= 0) {
		if (!watchdog_look(&dog))
			continue;
		(void)syscall(SYS_pidfd_send_signal, sup_pidfd, SIGKILL, NULL, 0);
		/* One of its threads may be in a call that cannot be interrupted. */
		(void)poll(&p, 1, DEATH_MS);
		break;
	}
	n = kill_all(j->keeper_table, SIGKILL);
	for (int i = 0; i < 5000 && kill_all(j->keeper_table, 0); i++)
		usleep(1000);
	if (n)
		dprintf(STDERR_FILENO,
			"uswap: the supervisor died: %d processes of the job were ended, because "
			"their memory could not be brought back\n",
			n);
	_exit(0);
}

int keeper_start(struct job *j)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	long pid;
	int err;

	if (self < 0)
		return -errno;
	err = watch_init();
	if (err)
		return err;
	j->keeper_table = mmap(NULL, sizeof(*j->keeper_table), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (j->keeper_table == MAP_FAILED)
		return -errno;
	pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		keeper_main(j, self);
	j->keeper = (pid_t)pid;
	return 0;
}

void keeper_stop(struct job *j)
{
	if (j->keeper <= 0)
		return;
	kill(j->keeper, SIGKILL);
	(void)waitpid(j->keeper, NULL, 0);
	j->keeper = 0;
}

void keeper_add(struct job *j, struct proc *p)
{
	for (int i = 0; i < KEEPER_SLOTS; i++) {
		int free_slot = 0;

		if (atomic_compare_exchange_strong(&j->keeper_table->pidfd[i], &free_slot,
						   p->pidfd + 1))
			return;
	}
}

void keeper_remove(struct job *j, struct proc *p)
{
	for (int i = 0; i < KEEPER_SLOTS; i++) {
		int mine = p->pidfd + 1;

		if (atomic_compare_exchange_strong(&j->keeper_table->pidfd[i], &mine, 0))
			return;
	}
}
