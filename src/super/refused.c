/* SPDX-License-Identifier: MIT */
/*
 * Says, once for a job, that the kernel refused one of its processes memory: such a request never
 * reaches the swap, however much room there is, and the program can only report or crash.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"
#include "sys/enomem.h"
#include "sys/proc.h"

static struct enomem watch = {.fd = -1};

void refused_watch(struct job *j)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (enomem_watch(&watch) != 0)
		return;
	ev.data.u64 = (uint32_t)watch.fd;
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, watch.fd, &ev);
}

int refused_fd(void)
{
	return watch.fd;
}

static bool has_ended(const struct proc *p)
{
	struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

/* The process that asked, if it is of this job; 0 if not. */
static pid_t find_process(struct job *j, const struct enomem_refusal *r)
{
	uint64_t tgid;
	pid_t found = 0;

	if (proc_field(r->tid, "status", "\nTgid:", &tgid) != 0)
		tgid = 0;
	us_mutex_lock(&j->lock);
	list_for_each(n, &j->procs) {
		const struct proc *p = list_entry(n, struct proc, node);

		/*
		 * A thread that is gone cannot be asked whose it was. A process of this name that
		 * ended in the same moment, and is still in the table, had it.
		 */
		if (p->pid == (tgid ? (pid_t)tgid : r->tid) ||
		    (!tgid && strcmp(p->comm, r->comm) == 0 && has_ended(p))) {
			found = p->pid;
			break;
		}
	}
	us_mutex_unlock(&j->lock);
	/* One that was not seen by a scan yet. */
	if (!found && tgid && proc_is_descendant((pid_t)tgid, getpid()))
		found = (pid_t)tgid;
	return found == getpid() ? 0 : found;
}

void refused_look(struct job *j)
{
	struct enomem_refusal r;
	char why[200], state;
	pid_t pid, ppid;

	while (enomem_poll(&watch, &r)) {
		pid = find_process(j, &r);
		if (!pid || !enomem_explain(&r, why, sizeof(why)))
			continue;
		/* Threads may have names of their own. */
		if (pid != r.tid)
			(void)proc_stat(pid, &ppid, &state, r.comm);
		log_note("pid %d (%s): a request for memory was refused by the kernel: %s", pid,
			 r.comm, why);
		/* Once is enough; closing it takes it out of the epoll set. */
		enomem_unwatch(&watch);
	}
}
