/* SPDX-License-Identifier: MIT */
/*
 * The control socket: one request, one reply. A thread of its own, so that a client that does not
 * read delays nobody; what takes long, swapon and swapoff, has another one (swapctl.c).
 *
 * Only the user who runs the job, and root, may ask. That is enough, as the supervisor has that
 * user's rights and no others over files: it opens nothing that the one who asks could not open.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "proto/ctl.h"
#include "super/job.h"

void ctl_reply(int fd, int error, const char *text)
{
	struct ctl_reply r = {.magic = CTL_MAGIC,
			      .version = CTL_VERSION,
			      .error = error,
			      .bytes = (uint32_t)strlen(text)};
	size_t left = r.bytes;

	if (send(fd, &r, sizeof(r), MSG_NOSIGNAL) != sizeof(r))
		return;
	while (left) {
		ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* the time limit of the socket ran out, or the client went */
		text += n;
		left -= (size_t)n;
	}
}

static void set_ram(struct job *j, int fd, const char *value)
{
	char text[200], *end;
	unsigned long long bytes;
	uint64_t least;

	errno = 0;
	bytes = strtoull(value, &end, 10);
	if (errno || *end || end == value) {
		ctl_reply(fd, -EINVAL, "ram: not a number of bytes");
		return;
	}
	if (bytes < SUPER_MIN_RAM) {
		snprintf(text, sizeof(text), "ram=%llu: too small; the minimum is %llu MiB", bytes,
			 (unsigned long long)(SUPER_MIN_RAM >> 20));
		ctl_reply(fd, -EINVAL, text);
		return;
	}
	least = devices_least_ram(j);
	if (bytes < least && bytes < atomic_load(&j->mm.limit)) {
		snprintf(text, sizeof(text),
			 "ram=%llu: too small for what is compressed in memory now, which is not moved "
			 "to a file; at least %llu MiB",
			 bytes, (unsigned long long)(least >> 20));
		ctl_reply(fd, -EBUSY, text);
		return;
	}
	mm_set_limit(&j->mm, bytes & PAGE_MASK);
	devices_set_limits(j, bytes & PAGE_MASK, NULL);
	ctl_reply(fd, 0, "");
}

static void set_key(struct job *j, int fd, const char *arg)
{
	static struct set_request req; /* too large for the stack; of this thread alone */
	char text[600] = "";
	int err;

	if (strncmp(arg, "ram=", 4) == 0) {
		set_ram(j, fd, arg + 4);
		return;
	}
	err = j->cfg->parse_set(arg, &req, text, sizeof(text));
	if (!err)
		err = tiers_set(j, &req, text, sizeof(text));
	ctl_reply(fd, err, err ? text : "");
}

/* fd stays the caller's. */
static void answer(struct job *j, int fd, uint32_t verb, const char *arg)
{
	char *s = NULL;

	switch (verb) {
	case CTL_STAT:
		s = stat_json(j);
		break;
	case CTL_SWAPS:
		s = stat_swaps(j);
		break;
	case CTL_PS:
		s = stat_ps(j);
		break;
	case CTL_JOB:
		s = stat_job_line(j);
		break;
	case CTL_SET:
		set_key(j, fd, arg);
		return;
	default:
		ctl_reply(fd, -EOPNOTSUPP, "this job's uswap does not know the request");
		return;
	}
	ctl_reply(fd, s ? 0 : -ENOMEM, s ? s : "out of memory");
	free(s);
}

/* The whole argument; NULL: it is not to be had. */
static char *receive_arg(int fd, const struct ctl_request *q)
{
	size_t here = MIN(q->arg_bytes, CTL_ARG_BYTES), rest = q->arg_bytes - here;
	char *arg = q->arg_bytes <= CTL_ARG_MAX ? calloc(1, q->arg_bytes + 1) : NULL;

	if (!arg)
		return NULL;
	memcpy(arg, q->arg, here);
	if (rest && recv(fd, arg + here, rest, MSG_WAITALL) != (ssize_t)rest) {
		free(arg);
		return NULL;
	}
	return arg;
}

static bool may_ask(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

/* Answers and closes fd, now or in the thread of swapctl.c. */
static void serve(struct job *j, int fd)
{
	struct timeval limit = {.tv_sec = 2};
	struct ctl_request q;
	char *arg = NULL;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (!may_ask(fd) || recv(fd, &q, sizeof(q), MSG_WAITALL) != sizeof(q) ||
	    q.magic != CTL_MAGIC)
		goto out;
	if (q.version != CTL_VERSION) {
		ctl_reply(fd, -EPROTO, "this job was started by another version of uswap");
		goto out;
	}
	arg = receive_arg(fd, &q);
	if (!arg)
		goto out;
	if (q.verb == CTL_SWAPON || q.verb == CTL_SWAPOFF) {
		swapctl_begin(j, fd, q.verb, arg);
		return;
	}
	answer(j, fd, q.verb, arg);
out:
	free(arg);
	close(fd);
}

static void ctl_thread(void *arg)
{
	struct job *j = arg;

	while (!atomic_load(&j->stop)) {
		struct pollfd p[2] = {{.fd = j->ctl_listen, .events = POLLIN},
				      {.fd = j->stop_fd, .events = POLLIN}};
		int fd;

		if (poll(p, 2, -1) <= 0 || !(p[0].revents & POLLIN))
			continue;
		fd = accept4(j->ctl_listen, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		serve(j, fd);
	}
}

int ctl_start(struct job *j)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%.*s/ctl", RUNDIR_MAX, j->rundir);
	j->ctl_listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (j->ctl_listen < 0)
		return -errno;
	if (bind(j->ctl_listen, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(j->ctl_listen, 16) != 0 || chmod(a.sun_path, 0600) != 0)
		return -errno;
	return us_thread_start(&j->ctl, "uswap-ctl", -1, ctl_thread, j);
}
