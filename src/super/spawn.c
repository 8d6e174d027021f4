/* SPDX-License-Identifier: MIT */
/*
 * Starting the command: environment, process group, signal state as the user left them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "proto/agent.h"
#include "super/job.h"

#ifndef USWAP_LIBEXECDIR
#define USWAP_LIBEXECDIR "/usr/local/libexec/uswap"
#endif
#define AGENT_FILE "libuswap-agent.so"

extern char **environ;
sigset_t super_orig_mask;

/* Beside the binary, in the build tree, or where it was installed. */
int find_agent(char *buf, size_t len)
{
	static const char *const dirs[] = {"%s/" AGENT_FILE, "%s/../agent/" AGENT_FILE,
					   "%s/../src/agent/" AGENT_FILE,
					   "%s/../libexec/uswap/" AGENT_FILE};
	char exe[PATH_MAX], try[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return -errno;
	exe[n] = 0;
	slash = strrchr(exe, '/');
	if (slash)
		*slash = 0;
	for (unsigned int i = 0; i <= ARRAY_SIZE(dirs); i++) {
		char real[PATH_MAX];

		if (i < ARRAY_SIZE(dirs))
			snprintf(try, sizeof(try), dirs[i], exe);
		else
			snprintf(try, sizeof(try), "%s/%s", USWAP_LIBEXECDIR, AGENT_FILE);
		if (access(try, R_OK) != 0 || !realpath(try, real))
			continue;
		/* The loader splits LD_PRELOAD at both, and has no way to quote them. */
		if (strpbrk(real, ": ")) {
			log_error("%s: the agent's path holds a blank or a colon, which LD_PRELOAD "
				  "cannot name; install uswap elsewhere",
				  real);
			return -EINVAL;
		}
		snprintf(buf, len, "%s", real);
		return 0;
	}
	log_error("%s not found beside %s nor in %s; reinstall uswap", AGENT_FILE, exe,
		  USWAP_LIBEXECDIR);
	return -ENOENT;
}

/* The user's environment, with the agent after what LD_PRELOAD already names. */
static char **make_environment(struct job *j)
{
	static char preload[2 * PATH_MAX + 4096], sock[128], asan[4096];
	const char *old = getenv("LD_PRELOAD"), *opts = getenv("ASAN_OPTIONS");
	size_t n = 0, out = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 4, sizeof(*env));
	if (!env)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) &&
		    strncmp(environ[i], AGENT_ENV_SOCKET "=", strlen(AGENT_ENV_SOCKET) + 1) &&
		    strncmp(environ[i], "ASAN_OPTIONS=", 13))
			env[out++] = environ[i];
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s%s%s", old ? old : "",
		 old && *old ? ":" : "", j->agent_path);
	snprintf(sock, sizeof(sock), "%s=%s", AGENT_ENV_SOCKET, j->socket_path);
	/* AddressSanitizer refuses to start when any library comes before it. First: others win. */
	snprintf(asan, sizeof(asan), "ASAN_OPTIONS=verify_asan_link_order=0%s%s", opts ? ":" : "",
		 opts ? opts : "");
	env[out++] = asan;
	env[out++] = preload;
	env[out++] = sock;
	return env;
}

static void child(struct job *j, char **env, int err_fd, pid_t group)
{
	int e;

	(void)setpgid(0, group);
	signal(SIGTTOU, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	limits_restore();
	sigprocmask(SIG_SETMASK, &super_orig_mask, NULL);
	execvpe(j->cfg->argv[0], j->cfg->argv, env);
	e = errno;
	(void)!write(err_fd, &e, sizeof(e));
	_exit(127);
}

pid_t spawn_command(struct job *j, int *failure)
{
	char **env = make_environment(j);
	pid_t group = getpgid(j->front), pid;
	int p[2], e = 0;
	ssize_t n;

	*failure = SUPER_EXIT_FAILURE;
	if (!env || pipe2(p, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		child(j, env, p[1], group);
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		return -errno;
	}
	do
		n = read(p[0], &e, sizeof(e));
	while (n < 0 && errno == EINTR);
	close(p[0]);
	free(env);
	if (n != sizeof(e))
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*failure = e == ENOENT ? 127 : 126;
	log_error("%s: %s", j->cfg->argv[0], e == ENOENT ? "command not found" : strerror(e));
	return -e;
}
