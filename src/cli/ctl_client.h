/* SPDX-License-Identifier: MIT */
/*
 * Talking to running jobs over the control socket of each (proto/ctl.h).
 *
 * A job's directory is super_rundir()/JOB, JOB being the pid of its `uswap run`. A directory whose
 * socket nobody answers and whose process is gone is removed.
 *
 * Context: may block, each call for at most CTL_TIMEOUT_SEC (ctl_follow: as long as the job works);
 *   allocates.
 */
#ifndef USWAP_CLI_CTL_CLIENT_H
#define USWAP_CLI_CTL_CLIENT_H

#include <stddef.h>
#include <sys/types.h>

#include "base/util.h"
#include "cli/cli.h"
#include "proto/ctl.h"

#define CTL_TIMEOUT_SEC 10

struct ctl_answer {
	int error;  /* 0, or what the supervisor says: -errno; text is then its reason */
	char *text; /* without newlines at its end, NUL-terminated; the caller frees it with ctl_answer_deinit() */
	size_t len;
};

struct job_list {
	pid_t *job;
	size_t nr;
};

/* The jobs that answer, by number. 0 or -errno; a missing directory is an empty list. */
int ctl_list_jobs(struct job_list *list) __must_check;
void job_list_deinit(struct job_list *list);

/*
 * One request and its reply. 0, and *a is set; or -errno: -ECONNREFUSED, -ENOENT (the job is not
 * running), -ETIMEDOUT, -EPROTO (not a uswap of this version).
 */
int ctl_call(pid_t job, enum ctl_verb verb, const char *arg, struct ctl_answer *a) __must_check;
void ctl_answer_deinit(struct ctl_answer *a);

struct ctl_follower {
	void (*progress)(void *host, const struct ctl_progress *p); /* NULL: none */
	/*
	 * The request is sent: shutdown(fd, SHUT_WR) interrupts what was asked for; the answer still
	 * comes. -1: it is over. NULL: none.
	 */
	void (*connected)(int fd);
	void *host;
};
/* As ctl_call(), for CTL_SWAPON and CTL_SWAPOFF. */
int ctl_follow(pid_t job, enum ctl_verb verb, const char *arg, const struct ctl_follower *f,
	       struct ctl_answer *a) __must_check;

/* The job that --job names, or, if text is NULL, the only one. 0, or an exit status (printed). */
int ctl_choose_job(const char *text, pid_t *job) __must_check;
/* Does this error of ctl_call() mean that the job is not there (any more)? */
bool ctl_job_is_gone(int error);
/* Prints why a call failed, or what an answer with an error says. Return an exit status. */
int ctl_fail_call(pid_t job, int error);
int ctl_fail_answer(pid_t job, struct ctl_answer *a);
/*
 * Prints an answer of one line on stdout, control characters in it as '?', unless quiet; and drops
 * it. Returns an exit status.
 */
int ctl_print_line(struct ctl_answer *a, bool quiet);
/* ctl_call(), with every failure printed. 0, or an exit status. */
int ctl_ask(pid_t job, enum ctl_verb verb, const char *arg, struct ctl_answer *a) __must_check;
/* A whole verb "[--job ID]" that prints the reply to `verb`. Returns the exit status. */
int ctl_print_verb(int argc, char **argv, const char *usage, enum ctl_verb verb);
/* Prints why the directory of jobs cannot be read. Returns an exit status. */
int ctl_fail_rundir(int error);

#endif
