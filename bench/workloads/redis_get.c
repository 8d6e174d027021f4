/* SPDX-License-Identifier: MIT */
/*
 * A redis server in the job, and GETs whose every value is checked.
 *
 *   redis_get -k KEYS -v VALUE_BYTES -g GETS -S SOCKET [-s SEED] [-c RATIO] -- redis-server ...
 *
 * With -D it prints what lz4 stores of its values, as a part of the plain size, and ends. -P, for
 * tests: key 0 gets a value with one wrong bit.
 * Starts the server, sets every key, then gets keys at random, each as likely, one at a time; the
 * time of a touch is that of one GET, there and back. A value is content like that of pattern.c,
 * cut to its length. At the end the server is told to end.
 * Exit status: 0; 1 if a value was wrong; 2 bad usage, no server.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "content.h"
#include "result.h"

#define START_TRIES 600 /* of 50 ms */
#define WINDOW 64	/* SETs under way */
#define WRONG_SHOWN 5

static uint64_t nr_keys, nr_gets, value_bytes, seed = 1;
static double stored = 0.4;
static const char *socket_path;
static struct content content;
static struct hist touch_times;
static FILE *to, *from;
static uint64_t checked, wrong;
static bool describe, plant;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "redis_get: %s\n", what);
	exit(2);
}

static pid_t start_server(char **argv)
{
	pid_t parent = getpid(), pid;

	unlink(socket_path);
	pid = fork();
	if (pid < 0)
		fail("cannot start the server");
	if (pid)
		return pid;
	/* However this program ends: no server is left. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execvp(argv[0], argv);
	perror(argv[0]);
	_exit(127);
}

static void connect_to(pid_t server)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};

	if (strlen(socket_path) >= sizeof(a.sun_path))
		fail("the socket's path is too long");
	strcpy(a.sun_path, socket_path);
	for (int i = 0; i < START_TRIES; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a))) {
			from = fdopen(fd, "r");
			to = fdopen(dup(fd), "w");
			if (!from || !to)
				fail("out of memory");
			return;
		}
		close(fd);
		if (waitpid(server, NULL, WNOHANG) == server)
			fail("the server ended at once");
		nanosleep(&pause, NULL);
	}
	fail("the server does not listen");
}

/* The pages of key k are numbered from here. */
static void make_value(char *value, uint64_t k)
{
	uint64_t each = (value_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
	char page[PAGE_BYTES];

	for (uint64_t i = 0, left = value_bytes; i < each; i++) {
		size_t n = left < PAGE_BYTES ? left : PAGE_BYTES;

		content_fill(&content, page, k * each + i, 0);
		memcpy(value + i * PAGE_BYTES, page, n);
		left -= n;
	}
}

static void expect_line(const char *want)
{
	char line[256];

	if (!fgets(line, sizeof(line), from))
		fail("the server closed the connection");
	if (strcmp(line, want)) {
		fprintf(stderr, "redis_get: the server said %s", line);
		exit(2);
	}
}

static void set_all(char *value)
{
	for (uint64_t k = 0; k < nr_keys; k++) {
		make_value(value, k);
		value[value_bytes - 1] ^= plant && !k;
		fprintf(to, "*3\r\n$3\r\nSET\r\n$16\r\n%016llx\r\n$%llu\r\n",
			(unsigned long long)k, (unsigned long long)value_bytes);
		fwrite(value, 1, value_bytes, to);
		fputs("\r\n", to);
		if ((k + 1) % WINDOW && k + 1 < nr_keys)
			continue;
		fflush(to);
		for (uint64_t i = k / WINDOW * WINDOW; i <= k; i++)
			expect_line("+OK\r\n");
	}
}

static void get(uint64_t k, char *value, char *should)
{
	uint64_t before = clock_ns();
	char header[32];

	fprintf(to, "*2\r\n$3\r\nGET\r\n$16\r\n%016llx\r\n", (unsigned long long)k);
	fflush(to);
	snprintf(header, sizeof(header), "$%llu\r\n", (unsigned long long)value_bytes);
	expect_line(header);
	if (fread(value, 1, value_bytes + 2, from) != value_bytes + 2)
		fail("the server closed the connection");
	hist_add(&touch_times, clock_ns() - before);
	make_value(should, k);
	checked++;
	if (memcmp(value, should, value_bytes) && wrong++ < WRONG_SHOWN)
		fprintf(stderr, "redis_get: the value of key %016llx is wrong\n",
			(unsigned long long)k);
}

static void take(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "+k:v:g:S:s:c:DP")) != -1) {
		if (c == 'k')
			nr_keys = strtoull(optarg, NULL, 10);
		else if (c == 'v')
			value_bytes = strtoull(optarg, NULL, 10);
		else if (c == 'g')
			nr_gets = strtoull(optarg, NULL, 10);
		else if (c == 'S')
			socket_path = optarg;
		else if (c == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (c == 'c')
			stored = strtod(optarg, NULL);
		else if (c == 'D')
			describe = true;
		else if (c == 'P')
			plant = true;
		else
			exit(2);
	}
	if (!nr_keys || !value_bytes || value_bytes > 1 << 20 || !nr_gets || !socket_path ||
	    optind == argc || stored < CONTENT_STORED_MIN || stored > 1)
		fail("usage: -k KEYS -v VALUE_BYTES -g GETS -S SOCKET [-s SEED] [-c RATIO] [-D] [-P] "
		     "-- redis-server ...");
}

int main(int argc, char **argv)
{
	struct result r = {.touch = &touch_times};
	char *value, *should;
	uint64_t mark, random;
	pid_t server;
	int status;

	take(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	content_init(&content, seed, stored, value_bytes < PAGE_BYTES ? value_bytes : PAGE_BYTES);
	if (describe) {
		printf("{\"stored\": %.3f}\n", content.stored);
		return 0;
	}
	value = malloc(value_bytes + 2 * PAGE_BYTES);
	should = malloc(value_bytes + 2 * PAGE_BYTES);
	if (!value || !should)
		fail("out of memory");
	server = start_server(argv + optind);
	connect_to(server);
	mark = clock_ns();
	set_all(value);
	result_phase(&r, "fill", (double)(clock_ns() - mark) / 1e9, false);
	mark = clock_ns();
	random = mix64(seed) | 1;
	for (uint64_t i = 0; i < nr_gets; i++)
		get((random_next(&random) >> 16) % nr_keys, value, should);
	result_phase(&r, "get", (double)(clock_ns() - mark) / 1e9, true);
	fputs("*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n", to);
	fflush(to);
	if (waitpid(server, &status, 0) != server || status)
		fail("the server did not end well");
	r.checked = checked;
	r.wrong = wrong;
	return result_write(&r, "redis_get") ? 2 : wrong != 0;
}
