/* SPDX-License-Identifier: MIT */
/*
 * The client's side of the control socket, against jobs made of a thread each.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/cli.h"
#include "cli/ctl_client.h"
#include "super/super.h"

static char rundir[64];

void super_rundir(char *buf, size_t len)
{
	snprintf(buf, len, "%s", rundir);
}

struct fake_job {
	int listener;
	pthread_t thread;
	struct ctl_request last;
	uint32_t version;
	int error;
	const char *text;
	unsigned int more; /* messages of progress before the reply; UINT_MAX: until we shut down */
	bool shut;
	char rest[CTL_ARG_MAX];
};

static void send_progress(struct fake_job *j, int fd, unsigned int i)
{
	struct ctl_reply reply = {.magic = CTL_MAGIC, .version = j->version, .error = CTL_MORE,
				  .bytes = sizeof(struct ctl_progress)};
	struct ctl_progress p = {.done_pages = i, .left_pages = 100 - i, .elapsed_ns = 1};

	(void)!send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
	(void)!send(fd, &p, sizeof(p), MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
	struct fake_job *j = arg;
	int fd;

	while ((fd = accept(j->listener, NULL, NULL)) >= 0) {
		struct ctl_request req;
		struct ctl_reply reply = {.magic = CTL_MAGIC,
					  .version = j->version,
					  .error = j->error,
					  .bytes = (uint32_t)strlen(j->text)};

		/* A client that only looks whether somebody answers sends nothing. */
		if (recv(fd, &req, sizeof(req), MSG_WAITALL) == sizeof(req)) {
			struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

			j->last = req;
			if (req.arg_bytes > sizeof(req.arg))
				(void)!recv(fd, j->rest, req.arg_bytes - sizeof(req.arg),
					    MSG_WAITALL);
			for (unsigned int i = 0; i < j->more && !j->shut; i++) {
				send_progress(j, fd, i);
				j->shut = poll(&p, 1, j->more == UINT_MAX ? 5 : 0) > 0;
			}
			(void)!send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
			(void)!send(fd, j->text, strlen(j->text), MSG_NOSIGNAL);
		}
		close(fd);
	}
	return NULL;
}

static void job_path(char *buf, size_t len, int id, const char *name)
{
	snprintf(buf, len, "%s/%d%s", rundir, id, name);
}

static void start_job(struct fake_job *j, int id, int error, const char *text)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char dir[128];

	*j = (struct fake_job){.version = CTL_VERSION, .error = error, .text = text};
	job_path(dir, sizeof(dir), id, "");
	assert_int_equal(mkdir(dir, 0700), 0);
	job_path(addr.sun_path, sizeof(addr.sun_path), id, "/ctl");
	j->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(j->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(j->listener, 8), 0);
	assert_int_equal(pthread_create(&j->thread, NULL, serve, j), 0);
}

/* Leaves the directory, as a job that was killed does. */
static void stop_job(struct fake_job *j)
{
	shutdown(j->listener, SHUT_RDWR);
	pthread_join(j->thread, NULL);
	close(j->listener);
}

static int setup(void **state)
{
	strcpy(rundir, "/tmp/uswap-unit-XXXXXX");
	return mkdtemp(rundir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", rundir);
	return system(command);
}

/* A number that no process has. */
static int dead_pid(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

static void test_request_and_reply(void **state)
{
	struct fake_job j;
	struct ctl_answer a;

	start_job(&j, 1, 0, "hello\n");
	assert_int_equal(ctl_call(1, CTL_SET, "ram=1", &a), 0);
	assert_string_equal(a.text, "hello");
	assert_int_equal(a.error, 0);
	ctl_answer_deinit(&a);
	assert_int_equal(j.last.magic, CTL_MAGIC);
	assert_int_equal(j.last.verb, CTL_SET);
	assert_int_equal(j.last.arg_bytes, 5);
	assert_memory_equal(j.last.arg, "ram=1", 5);
	stop_job(&j);
}

static void test_error_of_the_job_becomes_exit_125(void **state)
{
	struct fake_job j;
	struct ctl_answer a;

	start_job(&j, 1, -EINVAL, "no such key");
	assert_int_equal(ctl_ask(1, CTL_SET, "x=1", &a), 125);
	assert_null(a.text);
	stop_job(&j);
}

static void test_other_version_is_refused(void **state)
{
	struct fake_job j;
	struct ctl_answer a;

	start_job(&j, 1, 0, "");
	j.version = CTL_VERSION + 1;
	assert_int_equal(ctl_call(1, CTL_STAT, NULL, &a), -EPROTO);
	stop_job(&j);
}

static void test_job_that_is_not_there(void **state)
{
	struct ctl_answer a;

	assert_int_equal(ctl_call(4, CTL_STAT, NULL, &a), -ENOENT);
	assert_true(ctl_job_is_gone(-ENOENT));
	assert_int_equal(ctl_ask(4, CTL_STAT, NULL, &a), 125);
}

static void test_no_job_and_no_directory(void **state)
{
	struct job_list list;
	pid_t job;

	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(list.nr, 0);
	rmdir(rundir);
	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(list.nr, 0);
	assert_int_equal(ctl_choose_job(NULL, &job), 125);
	assert_int_equal(mkdir(rundir, 0700), 0);
}

static void test_only_job_is_the_default_and_several_must_be_chosen(void **state)
{
	struct fake_job a, b;
	struct job_list list;
	pid_t job = 0;

	start_job(&a, 20, 0, "");
	assert_int_equal(ctl_choose_job(NULL, &job), 0);
	assert_int_equal(job, 20);
	start_job(&b, 3, 0, "");
	assert_int_equal(ctl_choose_job(NULL, &job), 125);
	assert_int_equal(ctl_choose_job("3", &job), 0);
	assert_int_equal(job, 3);
	assert_int_equal(ctl_choose_job("3x", &job), 125);
	assert_int_equal(ctl_choose_job("0", &job), 125);
	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(list.nr, 2);
	assert_int_equal(list.job[0], 3);
	assert_int_equal(list.job[1], 20);
	job_list_deinit(&list);
	stop_job(&a);
	stop_job(&b);
}

static void test_stale_directory_is_ignored_and_removed(void **state)
{
	int dead = dead_pid();
	struct fake_job j;
	struct job_list list;
	char path[128];

	start_job(&j, dead, 0, "");
	stop_job(&j);
	job_path(path, sizeof(path), dead, "");
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(list.nr, 0);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_job_that_is_starting_keeps_its_directory(void **state)
{
	struct job_list list;
	char path[128];

	job_path(path, sizeof(path), (int)getpid(), "");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(list.nr, 0);
	assert_int_equal(access(path, F_OK), 0);
}

static void test_other_names_are_left_alone(void **state)
{
	struct job_list list;
	char path[128];

	snprintf(path, sizeof(path), "%s/notes", rundir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(ctl_list_jobs(&list), 0);
	assert_int_equal(access(path, F_OK), 0);
}

static void test_directory_that_others_can_write_is_refused(void **state)
{
	struct job_list list;

	assert_int_equal(chmod(rundir, 0777), 0);
	assert_int_equal(ctl_list_jobs(&list), -EPERM);
}

static void test_set_sends_plain_bytes(void **state)
{
	char *argv[] = {"set", "ram=1.5G", "--job", "1", NULL};
	char *percent[] = {"set", "ram=50%", NULL}, *small[] = {"set", "ram=1M", NULL};
	char *other[] = {"set", "order=3", NULL}, *none[] = {"set", NULL};
	struct fake_job j;

	start_job(&j, 1, 0, "");
	assert_int_equal(verb_set(4, argv), 0);
	assert_int_equal(j.last.verb, CTL_SET);
	assert_int_equal(j.last.arg_bytes, strlen("ram=1610612736"));
	assert_memory_equal(j.last.arg, "ram=1610612736", j.last.arg_bytes);
	j.last.verb = 0;
	assert_int_equal(verb_set(2, percent), 125);
	assert_int_equal(verb_set(2, small), 125);
	assert_int_equal(verb_set(2, other), 125);
	assert_int_equal(verb_set(1, none), 125);
	assert_int_equal(j.last.verb, 0);
	stop_job(&j);
	assert_int_equal(verb_set(4, argv), 125);
}

static void set_sends(struct fake_job *j, const char *word)
{
	char *argv[] = {"set", (char *)word, NULL};

	j->last.verb = 0;
	assert_int_equal(verb_set(2, argv), 0);
	assert_int_equal(j->last.verb, CTL_SET);
	assert_int_equal(j->last.arg_bytes, strlen(word));
	assert_memory_equal(j->last.arg, word, MIN(strlen(word), sizeof(j->last.arg)));
	if (strlen(word) > sizeof(j->last.arg))
		assert_memory_equal(j->rest, word + sizeof(j->last.arg),
				    strlen(word) - sizeof(j->last.arg));
}

static void test_set_sends_tiers_as_they_are_written(void **state)
{
	static const char *const bad[] = {"tier.a=9-5",	 "tier.all=none", "queue-policy=x",
					  "pid.x.tiers=a", "pid.5.tiers=a,all", "tier.a"};
	char many[600] = "pid.5.tiers=t0";
	struct fake_job j;

	start_job(&j, 1, 0, "");
	set_sends(&j, "queue-policy=weighted");
	set_sends(&j, "tier.fast=10-20,policy=fill");
	set_sends(&j, "tier.fast=none");
	set_sends(&j, "tier.fast=");
	set_sends(&j, "pid.5.tiers=fast,default");
	set_sends(&j, "pid.5.policy=default");
	/* More than what a request holds follows it. */
	for (unsigned int i = 1; i < MAX_TIERS; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), ",tier-%u", i);
	assert_true(strlen(many) > sizeof(j.last.arg));
	set_sends(&j, many);
	j.last.verb = 0;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *argv[] = {"set", (char *)bad[i], NULL};

		assert_int_equal(verb_set(2, argv), 125);
	}
	assert_int_equal(j.last.verb, 0);
	stop_job(&j);
}

static void test_stat_reads_the_document(void **state)
{
	static const char doc[] =
		"{\"version\":1,\"job\":\"1\",\"command\":[\"x\"],\"elapsed\":1.5,\"exit\":null,"
		"\"ram\":{\"limit\":67108864,\"resident\":1048576},\"vmstat\":{\"pswpout\":3},"
		"\"devices\":[{\"name\":\"zram0\",\"type\":\"zram\",\"prio\":100,\"size\":1,\"used\":2}],"
		"\"orders\":[{\"order\":0,\"swpout\":3}],\"processes\":[{\"pid\":1,\"managed\":true}],"
		"\"faults\":{\"count\":4,\"p50_ns\":1000}}";
	char *text[] = {"stat", NULL}, *json[] = {"stat", "--json", NULL};
	char *series[] = {"stat", "0.01", "2", NULL}, *wrong[] = {"stat", "0", NULL};
	struct fake_job j;

	start_job(&j, 1, 0, doc);
	assert_int_equal(verb_stat(1, text), 0);
	assert_int_equal(verb_stat(2, json), 0);
	assert_int_equal(verb_stat(3, series), 0);
	assert_int_equal(verb_stat(2, wrong), 125);
	j.text = "{}";
	assert_int_equal(verb_stat(1, text), 0);
	j.text = "not JSON";
	assert_int_equal(verb_stat(1, text), 125);
	stop_job(&j);
	assert_int_equal(verb_stat(1, text), 125);
}

struct followed {
	unsigned int n;
	uint64_t last;
};

static void count_progress(void *host, const struct ctl_progress *p)
{
	struct followed *f = host;

	assert_int_equal(p->done_pages, f->n);
	assert_int_equal(p->left_pages, 100 - f->n);
	f->n++;
}

static void test_progress_comes_before_the_answer(void **state)
{
	struct followed seen = {0};
	struct ctl_follower f = {.progress = count_progress, .host = &seen};
	struct ctl_answer a;
	struct fake_job j;

	start_job(&j, 1, 0, "zram0: off\n");
	j.more = 3;
	assert_int_equal(ctl_follow(1, CTL_SWAPOFF, "zram0", &f, &a), 0);
	assert_int_equal(seen.n, 3);
	assert_int_equal(a.error, 0);
	assert_string_equal(a.text, "zram0: off");
	ctl_answer_deinit(&a);
	/* Nobody who did not ask for it gets it. */
	assert_int_equal(ctl_call(1, CTL_STAT, NULL, &a), -EPROTO);
	assert_null(a.text);
	stop_job(&j);
}

static void test_argument_longer_than_the_request(void **state)
{
	struct ctl_follower f = {0};
	struct ctl_answer a;
	struct fake_job j;
	char spec[CTL_ARG_MAX + 2];

	start_job(&j, 1, 0, "on");
	memset(spec, 'x', sizeof(spec));
	spec[300] = 0;
	spec[299] = 'y';
	assert_int_equal(ctl_follow(1, CTL_SWAPON, spec, &f, &a), 0);
	ctl_answer_deinit(&a);
	assert_int_equal(j.last.arg_bytes, 300);
	assert_memory_equal(j.last.arg, spec, sizeof(j.last.arg));
	assert_memory_equal(j.rest, spec + sizeof(j.last.arg), 300 - sizeof(j.last.arg));
	spec[300] = 'x';
	spec[CTL_ARG_MAX + 1] = 0;
	assert_int_equal(ctl_follow(1, CTL_SWAPON, spec, &f, &a), -E2BIG);
	stop_job(&j);
}

static void shut_down_at_once(int fd)
{
	if (fd >= 0)
		shutdown(fd, SHUT_WR);
}

static void test_who_shuts_down_still_gets_the_answer(void **state)
{
	struct ctl_follower f = {.connected = shut_down_at_once};
	struct ctl_answer a;
	struct fake_job j;

	start_job(&j, 1, -EINTR, "zram0: stays on: interrupted");
	j.more = UINT_MAX;
	assert_int_equal(ctl_follow(1, CTL_SWAPOFF, "zram0", &f, &a), 0);
	assert_int_equal(a.error, -EINTR);
	assert_true(j.shut);
	ctl_answer_deinit(&a);
	stop_job(&j);
}

static void test_swapon_sends_an_absolute_path(void **state)
{
	char *argv[] = {"swapon", "-q", "file:some\\,where:64M,prio=3", NULL};
	char *bad[] = {"swapon", "file:x,prio=banana", NULL};
	struct fake_job j;
	char want[5000], *cwd = getcwd(NULL, 0), got[CTL_ARG_MAX] = "";

	start_job(&j, 1, 0, "on");
	assert_int_equal(verb_swapon(3, argv), 0);
	memcpy(got, j.last.arg, MIN(j.last.arg_bytes, (uint32_t)sizeof(j.last.arg)));
	strcat(got, j.rest);
	snprintf(want, sizeof(want), "file:%s/some\\,where:64M,prio=3", cwd);
	assert_string_equal(got, want);
	free(cwd);
	j.last.verb = 0;
	assert_int_equal(verb_swapon(2, bad), 125);
	assert_int_equal(j.last.verb, 0); /* nobody was asked */
	stop_job(&j);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_request_and_reply),
		T(test_error_of_the_job_becomes_exit_125),
		T(test_other_version_is_refused),
		T(test_job_that_is_not_there),
		T(test_no_job_and_no_directory),
		T(test_only_job_is_the_default_and_several_must_be_chosen),
		T(test_stale_directory_is_ignored_and_removed),
		T(test_job_that_is_starting_keeps_its_directory),
		T(test_other_names_are_left_alone),
		T(test_directory_that_others_can_write_is_refused),
		T(test_set_sends_plain_bytes),
		T(test_set_sends_tiers_as_they_are_written),
		T(test_stat_reads_the_document),
		T(test_progress_comes_before_the_answer),
		T(test_argument_longer_than_the_request),
		T(test_who_shuts_down_still_gets_the_answer),
		T(test_swapon_sends_an_absolute_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
