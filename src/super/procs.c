/* SPDX-License-Identifier: MIT */
/*
 * The table of the job's processes. A process gets here by a hello of its helper, or by the scan
 * of the supervisor's descendants, which also notices what nobody says: an exec into a program
 * that does not load the agent, a child made by a raw clone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "mm/remote.h"
#include "super/job.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

/*
 * How long a new program may take until its helper has said hello. What its file says against it
 * is believed sooner than that the helper failed, which on a busy machine may only be late.
 */
#define REASON_PATIENCE_NS (40 * NSEC_PER_MSEC)
#define HELLO_PATIENCE_NS (3 * NSEC_PER_SEC)
#define SCAN_DEPTH 64
#define MAX_KIDS (2 * MAX_PROCS) /* a process of the job, and its helper */
#define DESCENT_TRIES 8
#define MAX_ORPHANS 1000 /* of one scan: as many as can have come since the last, and more */

struct proc *proc_find(struct job *j, pid_t pid)
{
	us_mutex_assert_held(&j->lock);
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		if (p->pid == pid)
			return p;
	}
	return NULL;
}

/* Notes the program that runs in p now. Returns true if it is another one than before. */
static bool note_program(struct proc *p)
{
	char path[64];
	struct stat st;
	pid_t ppid;
	char state;

	(void)proc_stat(p->pid, &ppid, &state, p->comm);
	snprintf(path, sizeof(path), "/proc/%d/exe", p->pid);
	if (stat(path, &st) != 0)
		return false;
	if (p->exe_ino == st.st_ino && p->exe_dev == st.st_dev)
		return false;
	p->exe_ino = st.st_ino;
	p->exe_dev = st.st_dev;
	return true;
}

struct proc *proc_add(struct job *j, pid_t pid, pid_t ppid)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct proc *p = proc_find(j, pid);
	int pidfd;

	if (p)
		return p;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return NULL;
	p = mem_pool_alloc(&j->proc_pool);
	if (!p) {
		close(pidfd);
		return NULL;
	}
	p->pid = p->task = pid;
	p->ppid = ppid;
	tiers_new_proc(j, p);
	p->pidfd = pidfd;
	p->helper_pidfd = -1;
	p->statm_fd = MAX(proc_open(pid, "statm"), -1);
	p->image_since_ns = clock_now_ns();
	(void)note_program(p);
	list_add_tail(&j->procs, &p->node);
	j->nr_procs++;
	keeper_add(j, p);
	ev.data.u64 = (uint64_t)(uint32_t)pid << 32 | (uint32_t)pidfd;
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, pidfd, &ev);
	return p;
}

static void end_helper(struct proc *p)
{
	if (p->helper_pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, p->helper_pidfd, SIGKILL, NULL, 0);
	p->helper_pidfd = -1;
	p->helper = 0;
}

void proc_retire_space(struct job *j, struct proc *p)
{
	struct space *s;

	us_mutex_lock(&j->lock);
	s = p->space;
	p->space = NULL;
	if (s) {
		p->swapped_pages = s->table.nr_swapped;
		p->faults += atomic_load(&s->nr_faults);
	}
	us_mutex_unlock(&j->lock);
	if (!s)
		return;
	space_kill(s);
	/* After the batch in flight, if any: it may hold what a forked child still needs. */
	end_helper(p);
	space_put(s);
}

/* Takes p out of the table and frees what it holds, but for p itself. lock held. */
static void proc_unlink(struct job *j, struct proc *p)
{
	list_del(&p->node);
	j->nr_procs--;
	keeper_remove(j, p);
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_DEL, p->pidfd, NULL);
	close(p->pidfd);
	if (p->statm_fd >= 0)
		close(p->statm_fd);
	p->pidfd = p->statm_fd = -1;
}

void proc_forget(struct job *j, pid_t pid)
{
	struct proc *p;

	us_mutex_lock(&j->lock);
	p = proc_find(j, pid);
	if (p && !p->space) {
		proc_unlink(j, p);
		mem_pool_free(&j->proc_pool, p);
	}
	us_mutex_unlock(&j->lock);
}

/* Keeps the figures of the largest processes that have ended, for the report. */
static void keep_ended(struct job *j, struct proc *p)
{
	struct proc *least = NULL;

	list_add_tail(&j->ended, &p->node);
	if (++j->nr_ended <= MAX_ENDED_REPORTED)
		return;
	list_for_each(n, &j->ended) {
		struct proc *q = list_entry(n, struct proc, node);

		if (!least || q->anon_pages + q->swapped_pages <
				      least->anon_pages + least->swapped_pages)
			least = q;
	}
	list_del(&least->node);
	j->nr_ended--;
	mem_pool_free(&j->proc_pool, least);
}

/*
 * A vfork child, or another one that shares the memory, may outlive the process that said hello.
 * As long as it runs there the space must stand: it goes over to it. Main loop, no lock held.
 */
static bool hand_over(struct job *j, struct proc *p)
{
	static pid_t kids[MAX_KIDS]; /* main loop only */
	struct proc *heir = NULL;
	int n;

	if (!p->space || !p->helper)
		return false;
	n = proc_children(getpid(), kids, ARRAY_SIZE(kids));
	us_mutex_lock(&j->lock);
	for (int i = 0; i < n && !heir; i++)
		if (kids[i] != p->helper && kids[i] != p->pid &&
		    proc_same_memory(kids[i], p->helper) == 1)
			heir = proc_add(j, kids[i], getpid());
	list_for_each(node, &j->procs) {
		struct proc *q = list_entry(node, struct proc, node);

		if (!heir && q != p && !q->space && proc_same_memory(q->pid, p->helper) == 1)
			heir = q;
	}
	if (heir) {
		heir->space = p->space;
		heir->helper = p->helper;
		heir->helper_pidfd = p->helper_pidfd;
		heir->managed = heir->named = true;
		heir->shares_memory = false;
		heir->swap_class = p->swap_class;
		heir->space->owner = heir;
		p->space = NULL;
		p->helper = 0;
		p->helper_pidfd = -1;
	}
	us_mutex_unlock(&j->lock);
	if (heir)
		remote_change_pid(heir->space, heir->pid);
	return heir != NULL;
}

void proc_ended(struct job *j, pid_t pid)
{
	struct proc *p;

	us_mutex_lock(&j->lock);
	p = proc_find(j, pid);
	us_mutex_unlock(&j->lock);
	if (!p)
		return;
	if (!hand_over(j, p))
		proc_retire_space(j, p);
	us_mutex_lock(&j->lock);
	j->oom_pending = false;
	proc_unlink(j, p);
	/* One that was gone before it was known for anything may have been a helper's parent. */
	if (p->managed || p->named)
		keep_ended(j, p);
	else
		mem_pool_free(&j->proc_pool, p);
	us_mutex_unlock(&j->lock);
}

/* An ancestor may end between two looks; who it leaves has another parent then: look again. */
bool proc_is_descendant(pid_t pid, pid_t ancestor)
{
	for (int tries = 0; tries < DESCENT_TRIES; tries++) {
		pid_t at = pid, ppid;
		int depth = 0;

		for (; depth < SCAN_DEPTH && at > 1; depth++, at = ppid) {
			char comm[16], state;

			if (at == ancestor)
				return true;
			if (proc_stat(at, &ppid, &state, comm) != 0)
				break;
		}
		if (at == pid || at <= 1 || depth == SCAN_DEPTH)
			return false;
	}
	return false;
}

/* ---- the scan ---- */

/*
 * A child that came by fork without a helper: its sentinel names its space. The page is looked at
 * first, because reading a missing one would wait for a fault to be served.
 */
static void find_forked_space(struct job *j, struct proc *p, const struct proc *parent)
{
	struct agent_sentinel as = {0};
	uint64_t at = parent && parent->space ? parent->space->sentinel : 0, pm = 0;
	struct iovec local = {&as, sizeof(as)}, there = {(void *)(uintptr_t)at, sizeof(as)};
	struct space *s;
	int fd;

	if (!at || p->space)
		return;
	fd = proc_open(p->pid, "pagemap");
	if (fd < 0)
		return;
	if (proc_pagemap(fd, at, &pm, 1) == 0 && (pm & PAGEMAP_PRESENT) &&
	    process_vm_readv(p->pid, &local, 1, &there, 1, 0) == sizeof(as) && as.nonce &&
	    (s = remote_find_nonce(&j->mm, as.nonce))) {
		if (!s->owner) {
			s->owner = p;
			p->space = s; /* with the reference of the look-up */
			p->managed = p->named = true;
			p->forked = true;
			tiers_attach(j, p, s, true);
			remote_set_pid(s, p->pid);
			vmstat_add(VMSTAT_fork_unhelped, 1);
			snprintf(p->reason, sizeof(p->reason),
				 "forked without a helper: served, never evicted");
		} else {
			space_put(s);
		}
	}
	close(fd);
}

static void name_unmanaged(struct job *j, struct proc *p)
{
	static struct {
		uint64_t ino, dev;
	} seen[256];
	static unsigned int nr_seen;
	char exe[512], path[64];
	ssize_t n;

	if (!unmanaged_reason_pid(j, p->pid, p->reason, sizeof(p->reason)) &&
	    clock_now_ns() - p->image_since_ns < HELLO_PATIENCE_NS) {
		p->reason[0] = 0;
		return;
	}
	p->named = true;
	vmstat_add(VMSTAT_exec_unmanaged, 1);
	snprintf(path, sizeof(path), "/proc/%d/exe", p->pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = 0;
	if (j->cfg->strict) {
		log_error("pid %d (%s) is not managed: %s; --strict: ended", p->pid,
			  n > 0 ? exe : p->comm, p->reason);
		(void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
		return;
	}
	for (unsigned int i = 0; i < MIN(nr_seen, 256u); i++)
		if (seen[i].ino == p->exe_ino && seen[i].dev == p->exe_dev)
			return;
	seen[nr_seen % 256].ino = p->exe_ino;
	seen[nr_seen++ % 256].dev = p->exe_dev;
	log_note("pid %d (%s) is not managed: %s", p->pid, n > 0 ? exe : p->comm, p->reason);
}

/*
 * Has p another memory than its helper? Only a living helper can say so: of one that was killed the
 * number may be another process' by now, and its program runs on in the memory that is served.
 */
static bool left_memory(struct proc *p)
{
	struct pollfd helper = {.fd = p->helper_pidfd, .events = POLLIN};

	return proc_same_memory(p->pid, p->helper) == 0 && poll(&helper, 1, 0) == 0;
}

/*
 * The first thread may end before the others: then its memory is seen through one of those, until
 * that ends too, or execs and so becomes the first. NULL: not known, or nothing of it lives. Main
 * loop.
 */
static struct proc *follow_memory(struct job *j, pid_t pid)
{
	struct proc *p;
	pid_t task;
	int old;

	us_mutex_lock(&j->lock);
	p = proc_find(j, pid);
	us_mutex_unlock(&j->lock);
	task = proc_memory_task(pid);
	if (!p || task < 0)
		return NULL;
	if (p->task == task || (task != pid && proc_memory_task(p->task) == p->task &&
				proc_same_memory(p->task, task) == 1))
		return p;
	us_mutex_lock(&j->lock);
	old = p->statm_fd;
	p->task = task;
	p->statm_fd = MAX(proc_open(task, "statm"), -1);
	us_mutex_unlock(&j->lock);
	if (old >= 0)
		close(old);
	if (p->space)
		remote_change_pid(p->space, task);
	return p;
}

/* A process that is in the table. Main loop; lock not held. */
static void check_known(struct job *j, struct proc *p, struct proc *parent)
{
	uint64_t now = clock_now_ns();

	if (p->shares_memory) {
		if (proc_same_memory(p->pid, p->ppid) == 1)
			return;
		p->shares_memory = false;
		p->image_since_ns = now;
	}
	if (p->space) {
		/* After an exec the helper keeps the old memory; a new program says hello itself. */
		if (p->helper && left_memory(p)) {
			proc_retire_space(j, p);
			p->image_since_ns = now;
			p->named = p->managed = false;
			p->forked = false;
			(void)note_program(p);
		} else if (!p->helper && note_program(p)) {
			proc_retire_space(j, p);
			p->named = p->managed = false;
			p->forked = false;
			p->image_since_ns = now;
		}
		return;
	}
	if (note_program(p)) {
		p->image_since_ns = now;
		p->named = false;
	}
	if (p->named || now - p->image_since_ns < REASON_PATIENCE_NS)
		return;
	us_mutex_lock(&j->lock);
	find_forked_space(j, p, parent);
	us_mutex_unlock(&j->lock);
	if (!p->space)
		name_unmanaged(j, p);
}

/*
 * A child of the supervisor itself that was not there at the last scan may be a helper that has
 * not said its name yet. An orphan of the job is known already, or can wait for the next scan.
 */
static bool seen_before(pid_t kid)
{
	static pid_t last[64];
	static unsigned int next;

	for (unsigned int i = 0; i < ARRAY_SIZE(last); i++)
		if (last[i] == kid)
			return true;
	last[next++ % ARRAY_SIZE(last)] = kid;
	return false;
}

static void scan_below(struct job *j, pid_t pid, struct proc *parent, int depth, bool thorough)
{
	/* Of all levels above, one after the other. Main loop only. */
	static pid_t kids[MAX_KIDS];
	static int used;
	int first = used, n;

	if (depth >= SCAN_DEPTH)
		return;
	n = proc_children(pid, kids + used, MAX_KIDS - used);
	used += n;
	for (int i = first; i < first + n; i++) {
		pid_t kid = kids[i];
		struct proc *p;
		char comm[16], state = 0;
		pid_t ppid;

		if (kid == j->keeper || hello_is_helper(kid))
			continue;
		if (proc_stat(kid, &ppid, &state, comm) != 0)
			continue;
		if (state == 'Z') {
			p = follow_memory(j, kid);
			if (p)
				scan_below(j, kid, p, depth + 1, thorough);
			continue;
		}
		if (strcmp(comm, "uswap-helper") == 0) {
			proc_forget(j, kid);
			continue;
		}
		us_mutex_lock(&j->lock);
		p = proc_find(j, kid);
		if (!p && (depth || seen_before(kid) || thorough)) {
			p = proc_add(j, kid, pid);
			if (p && parent)
				p->shares_memory = proc_same_memory(kid, pid) == 1;
		}
		if (p && p->ppid != ppid && !p->shares_memory)
			p->ppid = ppid;
		us_mutex_unlock(&j->lock);
		if (!p)
			continue;
		if (p->task != kid)
			(void)follow_memory(j, kid);
		check_known(j, p, parent);
		scan_below(j, kid, p, depth + 1, thorough);
	}
	used = first;
}

/*
 * The space of one forked child that died before anybody saw its process goes. Returns false if
 * there is none.
 */
static bool reap_orphan_space(struct job *j)
{
	struct space *gone = NULL;

	us_mutex_lock(&j->mm.spaces_lock);
	list_for_each(n, &j->mm.spaces) {
		struct space *s = list_entry(n, struct space, node);

		if (!s->owner && remote_is_gone(s)) {
			space_get(s);
			gone = s;
			break;
		}
	}
	us_mutex_unlock(&j->mm.spaces_lock);
	if (!gone)
		return false;
	space_kill(gone);
	space_put(gone);
	return true;
}

bool procs_space_without_owner(struct job *j)
{
	bool found = false;

	us_mutex_lock(&j->mm.spaces_lock);
	list_for_each(n, &j->mm.spaces) {
		struct space *s = list_entry(n, struct space, node);

		found |= !s->owner && !remote_is_gone(s);
	}
	us_mutex_unlock(&j->mm.spaces_lock);
	return found;
}

void procs_scan(struct job *j, bool thorough)
{
	scan_below(j, getpid(), NULL, 0, thorough);
	for (int i = 0; i < MAX_ORPHANS && reap_orphan_space(j); i++)
		;
}
