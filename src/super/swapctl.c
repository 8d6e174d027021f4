/* SPDX-License-Identifier: MIT */
/*
 * swapon and swapoff of a running job: a thread for the one that is under way, so that others are
 * answered meanwhile; a second one is told so.
 *
 * A client that interrupts (it shuts its side of the socket down), is killed, or loses its
 * connection ends a swapoff: the device is on then, with what has not moved. So a device is
 * draining only as long as somebody watches, and never stays in between. The end of the job does the
 * same. swapon is not interrupted: it is done in full or not at all, whoever waits for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "proto/ctl.h"
#include "super/job.h"

/* Has the client gone, or said that it has had enough? It sends nothing else. */
static bool client_left(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

	return poll(&p, 1, 0) != 0;
}

/*
 * One message, sent whole or not at all: a client that is stopped and reads nothing misses some, and
 * does not stop the work.
 */
static bool on_progress(void *host, const struct swap_off_progress *p)
{
	struct {
		struct ctl_reply r;
		struct ctl_progress p;
	} m = {.r = {.magic = CTL_MAGIC,
		     .version = CTL_VERSION,
		     .error = CTL_MORE,
		     .bytes = sizeof(m.p)},
	       .p = {.done_pages = p->done_pages,
		     .left_pages = p->left_pages,
		     .lost_pages = p->lost_pages,
		     .elapsed_ns = p->elapsed_ns}};
	struct job *j = host;

	if (atomic_load(&j->stop) || client_left(j->swapctl.fd))
		return false;
	return send(j->swapctl.fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
	       errno == EAGAIN || errno == EWOULDBLOCK;
}

static int swapon(struct job *j, const char *arg, char *text, size_t len)
{
	struct swap_spec *sp = calloc(1, sizeof(*sp));
	int err = -ENOMEM;

	snprintf(text, len, "out of memory");
	if (sp)
		err = j->cfg->parse_spec(arg, sp, text, len);
	/* A relative path would mean another file here than to who wrote it. */
	if (!err && sp->type != SWAP_SPEC_ZRAM && sp->path[0] != '/') {
		snprintf(text, len, "%s: not an absolute path", sp->path);
		err = -EINVAL;
	}
	if (!err)
		err = devices_add(j, sp, text, len);
	free(sp);
	return err;
}

static void swapctl_thread(void *arg)
{
	struct job *j = arg;
	struct swapctl *c = &j->swapctl;
	char text[8192];
	int fd = c->fd, err;

	if (c->verb == CTL_SWAPON)
		err = swapon(j, c->arg, text, sizeof(text));
	else
		err = devices_remove(j, c->arg, on_progress, j, text, sizeof(text));
	log_info("%s", text);
	free(c->arg);
	/* First: who has the answer may ask for the next one at once. */
	atomic_store(&c->busy, false);
	ctl_reply(fd, err, text);
	close(fd);
}

void swapctl_begin(struct job *j, int fd, uint32_t verb, char *arg)
{
	struct swapctl *c = &j->swapctl;
	int err = -EBUSY;

	if (!atomic_load(&c->busy)) {
		us_thread_join(&c->thread); /* it has answered, or is about to */
		c->fd = fd;
		c->verb = verb;
		c->arg = arg;
		atomic_store(&c->busy, true);
		err = us_thread_start(&c->thread, "uswap-swapctl", -1, swapctl_thread, j);
		if (!err)
			return;
		atomic_store(&c->busy, false);
	}
	ctl_reply(fd, err,
		  err == -EBUSY ? "another swapon or swapoff is under way" : strerror(-err));
	free(arg);
	close(fd);
}

void swapctl_join(struct job *j)
{
	us_thread_join(&j->swapctl.thread);
}
