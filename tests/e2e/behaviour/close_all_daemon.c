/* SPDX-License-Identifier: MIT */
/*
 * A daemon as the book has it: two forks, a session of its own, every descriptor closed, and only
 * then its evicted memory checked. What it finds comes through a file.
 */
#include "behave.h"

#include <sys/stat.h>

#define NR 256

static void be_daemon(char *p, const char *path)
{
	if (fork())
		_exit(0);
	must(setsid() > 0);
	if (fork())
		_exit(0);
	must(chdir("/") == 0);
	umask(0);
	must(syscall(SYS_close_range, 0, ~0u, 0) == 0);
	if (open(path, O_WRONLY | O_APPEND) != 0 || dup(0) != 1 || dup(0) != 2)
		_exit(1);
	check_pages(p, NR, 1, "the daemon");
	fill_pages(p, NR, 2);
	await_eviction(p, NR);
	check_pages(p, NR, 2, "the daemon's own");
	must(syscall(SYS_close_range, 3, ~0u, 0) == 0);
	must(write(1, "right\n", 6) == 6);
	_exit(0);
}

int main(void)
{
	char path[] = "/tmp/behaviour-XXXXXX", text[256] = "";
	int fd = mkstemp(path);
	char *p = map_pages(NR);
	pid_t pid;

	must(fd >= 0);
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0)
		be_daemon(p, path);
	must(reap(pid) == 0);
	for (int i = 0; i < 1000 && pread(fd, text, sizeof(text) - 1, 0) == 0; i++)
		usleep(5000);
	unlink(path);
	if (strcmp(text, "right\n"))
		fail("the daemon says: %s", text);
	check_pages(p, NR, 1, "who started it");
	return 0;
}
