/* SPDX-License-Identifier: MIT */
/* A program sees the descriptors that it would have natively, and may use every number. */
#include "behave.h"

#include <dirent.h>
#include <sys/resource.h>

#define NR 128

static void list(const char *when)
{
	DIR *d = opendir("/proc/self/fd");
	bool there[1100] = {false};
	struct dirent *e;
	int nr = 0, highest = -1;

	must(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			int fd = atoi(e->d_name);

			must(fd >= 0 && fd < 1100);
			there[fd] = fd != dirfd(d);
		}
	closedir(d);
	for (int fd = 0; fd < 1100; fd++)
		if (there[fd]) {
			nr++;
			highest = fd;
		}
	printf("%s: %d, the highest is %d\n", when, nr, highest);
}

int main(void)
{
	struct rlimit limit;
	char *p = map_pages(NR);
	int fd;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 1024;
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	list("at the start");
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	fd = open("/dev/null", O_RDWR);
	printf("open: %d\n", fd);
	for (int i = 3; i < 1024; i++)
		must(dup2(fd, i) == i);
	must(close(500) == 0);
	list("with all but one");
	must(open("/dev/null", O_RDONLY) == 500);
	must(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
	check_pages(p, NR, 1, "with every number in use");
	fill_pages(p, NR, 2);
	await_eviction(p, NR);
	fflush(stdout);
	for (int round = 0; round < 2; round++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0) {
			check_pages(p, NR, 2, "a child with every number in use");
			fill_pages(p, NR, 3);
			await_eviction(p, NR);
			check_pages(p, NR, 3, "a child's own");
			must(open("/dev/null", O_RDONLY) == (round ? 3 : -1));
			_exit(0);
		}
		must(reap(pid) == 0);
		if (round == 0)
			for (int i = 3; i < 1024; i++)
				must(close(i) == 0);
	}
	list("at the end");
	check_pages(p, NR, 2, "at the end");
	return 0;
}
