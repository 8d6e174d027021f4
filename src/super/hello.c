/* SPDX-License-Identifier: MIT */
/*
 * Handshakes with helpers, driven by the main loop; proto/agent.h has the order of messages.
 *
 * Who connects is a stranger until its process is seen to be a descendant of the supervisor: the
 * kernel says which process sends, the descriptor that comes along says which program it is for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "mm/remote.h"
#include "proto/agent.h"
#include "super/job.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

#define MAX_CONNS 256

struct conn {
	int fd; /* -1: free */
	pid_t pid, helper;
	int pidfd, helper_pidfd, ctl_fd;
	struct agent_msg hello;
	struct space *space; /* FORKED: with a reference */
};
static struct conn conns[MAX_CONNS];
static unsigned int nr_conns;

static struct conn *conn_find(int fd)
{
	for (unsigned int i = 0; i < nr_conns; i++)
		if (conns[i].fd == fd)
			return &conns[i];
	return NULL;
}

bool hello_is_helper(pid_t pid)
{
	for (unsigned int i = 0; i < nr_conns; i++)
		if (conns[i].fd >= 0 && conns[i].helper == pid)
			return true;
	return false;
}

static void conn_close(struct job *j, struct conn *c)
{
	int fds[] = {c->fd, c->pidfd, c->helper_pidfd, c->ctl_fd};

	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (c->space)
		space_put(c->space);
	*c = conns[--nr_conns];
	conns[nr_conns].fd = -1;
}

static int listen_at(const struct sockaddr_un *a, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)a, len) != 0 || listen(fd, 128) != 0) {
		int e = errno;

		close(fd);
		return -e;
	}
	return fd;
}

/*
 * By path and by an abstract name of the same text: a program in another root still reaches the
 * second, one in another network namespace the first. Programs may have other uids than ours, so
 * the path is open to all; descent is what is checked.
 */
int hello_listen(struct job *j)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct epoll_event ev = {.events = EPOLLIN};
	size_t n = strlen(j->socket_path);

	memcpy(a.sun_path, j->socket_path, n);
	j->agent_listen[0] = listen_at(&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1));
	if (j->agent_listen[0] >= 0)
		(void)chmod(j->socket_path, 0666);
	memmove(a.sun_path + 1, j->socket_path, n);
	a.sun_path[0] = 0;
	j->agent_listen[1] = listen_at(&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	for (int i = 0; i < 2; i++) {
		if (j->agent_listen[i] < 0)
			continue;
		ev.data.u64 = (uint32_t)j->agent_listen[i];
		(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, j->agent_listen[i], &ev);
	}
	return j->agent_listen[0] < 0 && j->agent_listen[1] < 0 ? j->agent_listen[1] : 0;
}

void hello_accept(struct job *j, int listen_fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct conn *c;
	int fd;

	while ((fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		if (nr_conns == MAX_CONNS ||
		    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) {
			close(fd);
			continue;
		}
		c = &conns[nr_conns++];
		*c = (struct conn){.fd = fd, .helper = cred.pid, .pidfd = -1, .ctl_fd = -1};
		c->helper_pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
		ev.data.u64 = (uint32_t)fd;
		(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
	}
}

static ssize_t receive(int fd, struct agent_msg *m, int *fds, int max, int *nr_fds)
{
	struct iovec iov = {m, sizeof(*m)};
	char control[CMSG_SPACE(4 * sizeof(int))];
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	*nr_fds = 0;
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm)) {
		int *got = (int *)CMSG_DATA(cm);
		int count = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (int i = 0; i < count; i++) {
			if (*nr_fds < max)
				fds[(*nr_fds)++] = got[i];
			else
				close(got[i]);
		}
	}
	return n;
}

static int welcome(struct conn *c, int ctl_fd, int second_fd, uint64_t flags)
{
	struct agent_msg m = {.magic = AGENT_MAGIC,
			      .version = AGENT_VERSION,
			      .type = AGENT_WELCOME,
			      .flags = flags};
	struct iovec iov = {&m, sizeof(m)};
	char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
	int fds[2] = {ctl_fd, second_fd};

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cm), fds, sizeof(fds));
	return sendmsg(c->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* The space of a forked child: its sentinel, which its helper has seen, bears the space's nonce. */
static struct space *space_of_child(struct job *j, const struct conn *c)
{
	struct agent_sentinel as = {0};
	struct iovec local = {&as, sizeof(as)};
	struct iovec there = {(void *)(uintptr_t)c->hello.sentinel, sizeof(as)};

	if (process_vm_readv(c->helper, &local, 1, &there, 1, 0) != sizeof(as) || !as.nonce)
		return NULL;
	return remote_find_nonce(&j->mm, as.nonce);
}

static bool has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static int on_hello(struct job *j, struct conn *c, int pidfd)
{
	int second = j->uffd_dev;
	uint64_t flags = 0;

	c->pidfd = pidfd;
	c->pid = proc_pid_of_pidfd(pidfd);
	if (c->pid <= 0 || c->helper_pidfd < 0)
		return -ESRCH;
	if (!proc_is_descendant(c->pid, getpid())) {
		if (has_ended(pidfd))
			return -ESRCH; /* and was reaped: it descends from nobody any more */
		log_warn("pid %d asked to be managed but is not of this job", c->pid);
		return -EPERM;
	}
	proc_forget(j, c->helper);
	c->ctl_fd = remote_ctl_create();
	if (c->ctl_fd < 0)
		return c->ctl_fd;
	if (c->hello.kind == AGENT_FORKED) {
		c->space = space_of_child(j, c);
		if (!c->space)
			return -ENOENT;
		second = space_remote(c->space)->uffd;
	} else if (mm_mutants.no_gate) {
		flags |= AGENT_F_SECOND_UFFD;
	}
	return welcome(c, c->ctl_fd, second, flags);
}

/* The old memory of a process that exec'ed without our noticing, or of a reused pid. */
static void replace_old(struct job *j, struct proc *p)
{
	if (p->space)
		proc_retire_space(j, p);
	us_mutex_lock(&j->lock);
	p->forked = p->shares_memory = false;
	us_mutex_unlock(&j->lock);
}

static int on_ready(struct job *j, struct conn *c, const struct agent_msg *m, const int *fds,
		    int nr_fds)
{
	struct remote_config rc = {.pid = c->pid,
				   .helper = c->helper,
				   .uffd = nr_fds > 0 ? fds[0] : -1,
				   .second_uffd = nr_fds > 1 ? fds[1] : -1,
				   .ctl_fd = c->ctl_fd,
				   .helper_pidfd = c->helper_pidfd,
				   .sentinel = c->hello.sentinel,
				   .agent_start = c->hello.own_start,
				   .agent_end = c->hello.own_end,
				   .staging = {c->hello.staging_rw, c->hello.staging_rwx}};
	bool forked = c->hello.kind == AGENT_FORKED;
	struct space *s = c->space;
	struct proc *p;
	char comm[16], state;
	pid_t ppid = 0;
	int err = m->error;

	if (err || (!forked && nr_fds < 1))
		return err ? err : -EPROTO;
	/*
	 * A child that execs at once may be another program by now, whose helper was faster: that
	 * one's memory must not be given up for this one, which is nobody's any more.
	 */
	if (proc_same_memory(c->pid, c->helper) == 0)
		return -ESRCH;
	(void)proc_stat(c->pid, &ppid, &state, comm);
	us_mutex_lock(&j->lock);
	p = proc_add(j, c->pid, ppid);
	us_mutex_unlock(&j->lock);
	if (!p)
		return -ESRCH;
	if (!forked || p->space != s)
		replace_old(j, p);
	if (forked) {
		err = remote_adopt(s, &rc);
	} else {
		s = remote_create(&j->mm, &rc, &err);
		if (s)
			space_get(s);
	}
	if (err)
		return err;
	/* These descriptors belong to the space now. */
	c->ctl_fd = c->helper_pidfd = -1;
	c->space = NULL;
	us_mutex_lock(&j->lock);
	if (p->space == s)
		space_put(s); /* the scan had found it: one reference is enough */
	s->owner = p;
	p->space = s;
	p->helper = c->helper;
	p->helper_pidfd = rc.helper_pidfd;
	p->managed = p->named = true;
	p->forked = forked;
	tiers_attach(j, p, s, forked);
	p->reason[0] = 0;
	p->image_since_ns = clock_now_ns();
	memcpy(p->comm, comm, sizeof(p->comm));
	us_mutex_unlock(&j->lock);
	remote_run(s);
	if (!forked)
		vmstat_add(VMSTAT_exec_managed, 1);
	return 0;
}

void hello_readable(struct job *j, int fd)
{
	struct conn *c = conn_find(fd);
	struct agent_msg m;
	int fds[2], nr_fds, err = -EPROTO;
	ssize_t n;

	if (!c)
		return;
	n = receive(fd, &m, fds, 2, &nr_fds);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n == sizeof(m) && m.magic == AGENT_MAGIC && m.version == AGENT_VERSION) {
		if (m.type == AGENT_HELLO && c->pidfd < 0 && nr_fds == 1) {
			c->hello = m;
			err = on_hello(j, c, fds[0]);
			if (!err)
				return; /* READY follows */
			nr_fds = 0;
		} else if (m.type == AGENT_READY && c->pidfd >= 0) {
			err = on_ready(j, c, &m, fds, nr_fds);
			if (!err)
				nr_fds = 0;
		}
	} else if (n == 0) {
		err = 0; /* the program ended meanwhile */
	}
	if (err)
		log_info("pid %d: handshake failed: %s", c->pid, strerror(-err));
	for (int i = 0; i < nr_fds; i++)
		close(fds[i]);
	conn_close(j, c);
}
