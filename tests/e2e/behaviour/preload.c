/* SPDX-License-Identifier: MIT */
/*
 * Children with another environment: "add" puts a library into LD_PRELOAD, "replace" sets it to
 * that library alone, "empty" gives no environment at all. They check memory of their own.
 */
#include "behave.h"

#define NR 128

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	char *child[] = {argv[0], "child", NULL}, *none[] = {NULL}, now[4096];
	char *p = map_pages(NR);
	pid_t pid;

	fill_pages(p, NR, 1);
	if (!strcmp(how, "child")) {
		for (int i = 0; i < 20; i++)
			usleep(5000);
		check_pages(p, NR, 1, "child");
		puts(getenv("LD_PRELOAD") ? "child with" : "child without");
		return 6;
	}
	await_eviction(p, NR);
	if (!strcmp(how, "add")) {
		snprintf(now, sizeof(now), "libutil.so.1 %s",
			 getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "");
		must(setenv("LD_PRELOAD", now, 1) == 0);
	} else if (!strcmp(how, "replace")) {
		must(setenv("LD_PRELOAD", "libutil.so.1", 1) == 0);
	}
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		if (!strcmp(how, "empty"))
			execve("/proc/self/exe", child, none);
		else
			execv("/proc/self/exe", child);
		_exit(99);
	}
	must(reap(pid) == 6);
	check_pages(p, NR, 1, "parent");
	return 0;
}
