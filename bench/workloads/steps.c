/* SPDX-License-Identifier: MIT */
/*
 * The runner of programs that do not write a result themselves: steps one after the other, each
 * timed, each a command of the shell.
 *
 *   steps sort='sort ... >out' -check='cksum <out | cmp - expected'
 *
 * A step that begins with - is not measured; those named check are counted as checks. The first
 * that fails ends it.
 * Exit status: 0; 1 if a step failed; 2 bad usage.
 */
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "../../tests/stress/pages.h"
#include "result.h"

extern char **environ;

/* Its exit status as a shell has it. */
static int run(char *command)
{
	char *argv[] = {"sh", "-c", command, NULL};
	int status;
	pid_t pid;

	if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ)) {
		perror("steps: /bin/sh");
		return 127;
	}
	if (waitpid(pid, &status, 0) != pid)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	struct result r = {0};

	for (int i = 1; i < argc; i++) {
		bool measured = argv[i][0] != '-';
		char *name = argv[i] + !measured, *command = strchr(name, '=');
		uint64_t before;
		int status;

		if (!command || command == name || argc > RESULT_PHASES + 1) {
			fprintf(stderr, "usage: steps [-]NAME=COMMAND... (at most %d)\n",
				RESULT_PHASES);
			return 2;
		}
		*command++ = 0;
		before = clock_ns();
		status = run(command);
		result_phase(&r, name, (double)(clock_ns() - before) / 1e9, measured);
		if (status) {
			fprintf(stderr, "%s: exit status %d\n", name, status);
			return 1;
		}
		r.checked += !strcmp(name, "check");
	}
	return result_write(&r, "steps") ? 2 : 0;
}
