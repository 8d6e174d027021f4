/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/ctl_client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "super/super.h"

/* ---- one call ---- */

static int transfer(int fd, void *buf, size_t bytes, bool out)
{
	for (size_t done = 0; done < bytes;) {
		char *p = (char *)buf + done;
		ssize_t n = out ? send(fd, p, bytes - done, MSG_NOSIGNAL)
				: recv(fd, p, bytes - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
		if (!n)
			return -ECONNRESET; /* it ended while we were talking */
		done += (size_t)n;
	}
	return 0;
}

/*
 * The directory of run-time files, if it is there and really ours: in /tmp anyone may have made
 * one of that name to catch our requests.
 */
static int open_rundir(char *path, size_t len)
{
	struct stat st;
	int fd, rc = 0;

	super_rundir(path, len);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		rc = -EPERM;
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static int connect_job(int rundir, pid_t job)
{
	struct timeval limit = {.tv_sec = CTL_TIMEOUT_SEC};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, rc;

	/* Through the descriptor, since the whole path may not fit into an address. */
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%d/ctl", rundir, (int)job);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		rc = errno == EAGAIN ? -ETIMEDOUT : -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static int send_request(int fd, enum ctl_verb verb, const char *arg)
{
	struct ctl_request req = {.magic = CTL_MAGIC, .version = CTL_VERSION, .verb = verb};
	size_t len = arg ? strlen(arg) : 0, here = MIN(len, sizeof(req.arg));
	int rc;

	if (len > CTL_ARG_MAX)
		return -E2BIG;
	if (len)
		memcpy(req.arg, arg, here);
	req.arg_bytes = (uint32_t)len;
	rc = transfer(fd, &req, sizeof(req), true);
	if (!rc && len > here)
		rc = transfer(fd, (char *)arg + here, len - here, true);
	return rc;
}

/* The next message: a->error may be CTL_MORE. */
static int receive(int fd, struct ctl_answer *a)
{
	struct ctl_reply reply;
	int rc = transfer(fd, &reply, sizeof(reply), false);

	if (rc)
		return rc;
	if (reply.magic != CTL_MAGIC || reply.version != CTL_VERSION || reply.bytes > CTL_REPLY_MAX)
		return -EPROTO;
	a->text = malloc((size_t)reply.bytes + 1);
	if (!a->text)
		return -ENOMEM;
	rc = transfer(fd, a->text, reply.bytes, false);
	a->len = reply.bytes;
	a->error = reply.error;
	if (rc)
		ctl_answer_deinit(a);
	return rc;
}

static void trim(struct ctl_answer *a)
{
	while (a->len && a->text[a->len - 1] == '\n')
		a->len--;
	a->text[a->len] = '\0';
}

static int exchange(int fd, enum ctl_verb verb, const char *arg, struct ctl_answer *a)
{
	int rc = send_request(fd, verb, arg);

	if (!rc)
		rc = receive(fd, a);
	if (!rc && a->error == CTL_MORE) {
		ctl_answer_deinit(a);
		rc = -EPROTO;
	}
	if (!rc)
		trim(a);
	return rc;
}

static int open_job(pid_t job)
{
	char path[PATH_MAX];
	int rundir = open_rundir(path, sizeof(path)), fd;

	if (rundir < 0)
		return rundir;
	fd = connect_job(rundir, job);
	close(rundir);
	return fd;
}

int ctl_call(pid_t job, enum ctl_verb verb, const char *arg, struct ctl_answer *a)
{
	int fd, rc;

	*a = (struct ctl_answer){0};
	fd = open_job(job);
	if (fd < 0)
		return fd;
	rc = exchange(fd, verb, arg, a);
	close(fd);
	return rc;
}

int ctl_follow(pid_t job, enum ctl_verb verb, const char *arg, const struct ctl_follower *f,
	       struct ctl_answer *a)
{
	struct timeval none = {0};
	int fd, rc;

	*a = (struct ctl_answer){0};
	fd = open_job(job);
	if (fd < 0)
		return fd;
	rc = send_request(fd, verb, arg);
	/* It takes as long as it takes; if the job ends the socket says so. */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	if (!rc && f->connected)
		f->connected(fd);
	while (!rc) {
		rc = receive(fd, a);
		if (rc || a->error != CTL_MORE)
			break;
		if (a->len >= sizeof(struct ctl_progress) && f->progress) {
			struct ctl_progress p;

			memcpy(&p, a->text, sizeof(p));
			f->progress(f->host, &p);
		}
		ctl_answer_deinit(a);
	}
	if (!rc)
		trim(a);
	if (f->connected)
		f->connected(-1);
	close(fd);
	return rc;
}

void ctl_answer_deinit(struct ctl_answer *a)
{
	free(a->text);
	*a = (struct ctl_answer){0};
}

/* ---- the jobs there are ---- */

bool ctl_job_is_gone(int error)
{
	return error == -ECONNREFUSED || error == -ENOENT || error == -ECONNRESET || error == -EPIPE;
}

/* Removes the directory of a job that has ended without cleaning up. */
static void remove_stale(int rundir, const char *name)
{
	int fd = openat(rundir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			(void)unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	(void)unlinkat(rundir, name, AT_REMOVEDIR);
}

static int add_job(struct job_list *list, pid_t job)
{
	pid_t *more = realloc(list->job, (list->nr + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	list->job = more;
	list->job[list->nr++] = job;
	return 0;
}

static int compare_jobs(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* One entry of the directory: a job that answers, a stale one, or something else. */
static int list_entry_job(int rundir, const char *name, struct job_list *list)
{
	uint64_t pid;
	int fd;

	if (!cli_parse_uint(name, strlen(name), INT_MAX, &pid) || !pid)
		return 0;
	fd = connect_job(rundir, (pid_t)pid);
	if (fd >= 0) {
		close(fd);
		return add_job(list, (pid_t)pid);
	}
	/* A job that is just starting has its directory before its socket: its process is there. */
	if (ctl_job_is_gone(fd) && kill((pid_t)pid, 0) && errno == ESRCH)
		remove_stale(rundir, name);
	return 0;
}

int ctl_list_jobs(struct job_list *list)
{
	char path[PATH_MAX];
	int rundir, rc = 0;
	DIR *d;

	*list = (struct job_list){0};
	rundir = open_rundir(path, sizeof(path));
	if (rundir < 0)
		return rundir == -ENOENT ? 0 : rundir;
	d = fdopendir(rundir);
	if (!d) {
		close(rundir);
		return -ENOMEM;
	}
	for (struct dirent *e; !rc && (e = readdir(d));)
		rc = list_entry_job(dirfd(d), e->d_name, list);
	closedir(d);
	if (rc) {
		job_list_deinit(list);
		return rc;
	}
	if (list->nr)
		qsort(list->job, list->nr, sizeof(*list->job), compare_jobs);
	return 0;
}

void job_list_deinit(struct job_list *list)
{
	free(list->job);
	*list = (struct job_list){0};
}

/* ---- for verbs ---- */

int ctl_fail_rundir(int error)
{
	char path[PATH_MAX];

	super_rundir(path, sizeof(path));
	return cli_fail("%s: %s", path,
			error == -EPERM ? "belongs to someone else or is writable by others"
					: strerror(-error));
}

int ctl_choose_job(const char *text, pid_t *job)
{
	struct job_list list;
	uint64_t pid;
	int rc;

	if (text) {
		if (!cli_parse_uint(text, strlen(text), INT_MAX, &pid) || !pid)
			return cli_fail("--job '%s': not the number of a job; see 'uswap jobs'", text);
		*job = (pid_t)pid;
		return 0;
	}
	rc = ctl_list_jobs(&list);
	if (rc)
		return ctl_fail_rundir(rc);
	if (!list.nr) {
		rc = cli_fail("no job is running");
	} else if (list.nr == 1) {
		*job = list.job[0];
	} else {
		char ids[512] = "";
		size_t len = 0;

		for (size_t i = 0; i < list.nr && len + 16 < sizeof(ids); i++)
			len += (size_t)snprintf(ids + len, sizeof(ids) - len, " %d", (int)list.job[i]);
		rc = cli_fail("%zu jobs are running:%s; choose one with --job ID", list.nr, ids);
	}
	job_list_deinit(&list);
	return rc;
}

int ctl_fail_call(pid_t job, int rc)
{
	if (rc == -EPERM)
		return ctl_fail_rundir(rc);
	if (ctl_job_is_gone(rc))
		return cli_fail("job %d is not running", (int)job);
	if (rc == -ETIMEDOUT)
		return cli_fail("job %d does not answer within %d s", (int)job, CTL_TIMEOUT_SEC);
	if (rc == -EPROTO)
		return cli_fail("job %d runs under another version of uswap", (int)job);
	return cli_fail("job %d: %s", (int)job, strerror(-rc));
}

int ctl_fail_answer(pid_t job, struct ctl_answer *a)
{
	int rc = cli_fail("job %d: %s", (int)job, a->len ? a->text : strerror(-a->error));

	ctl_answer_deinit(a);
	return rc;
}

int ctl_print_line(struct ctl_answer *a, bool quiet)
{
	int rc = 0;

	log_make_plain(a->text);
	if (!quiet && a->len)
		rc = cli_print(a->text, a->len);
	ctl_answer_deinit(a);
	return rc;
}

int ctl_ask(pid_t job, enum ctl_verb verb, const char *arg, struct ctl_answer *a)
{
	int rc = ctl_call(job, verb, arg, a);

	if (rc)
		return ctl_fail_call(job, rc);
	return a->error ? ctl_fail_answer(job, a) : 0;
}

int ctl_print_verb(int argc, char **argv, const char *usage, enum ctl_verb verb)
{
	const char *job_text = NULL;
	struct ctl_answer a;
	pid_t job;
	int rc;

	rc = cli_parse_simple(argc, argv, usage, &job_text, NULL);
	if (rc >= 0)
		return rc;
	rc = ctl_choose_job(job_text, &job);
	if (!rc)
		rc = ctl_ask(job, verb, NULL, &a);
	if (rc)
		return rc;
	rc = cli_print(a.text, a.len);
	ctl_answer_deinit(&a);
	return rc;
}
