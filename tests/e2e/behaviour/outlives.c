/* SPDX-License-Identifier: MIT */
/*
 * Ends at once and leaves a child and a grandchild, which go on for half a second, check what was
 * evicted before, and append to the file that is named.
 */
#include "behave.h"

#define NR 256

static void live_on(char *p, int fd, int seed, const char *word)
{
	for (int i = 0; i < 10; i++) {
		usleep(50000);
		check_pages(p, NR, seed, word);
		await_eviction(p, NR);
	}
	fill_pages(p, NR, seed + 10);
	if (await_eviction(p, NR) != NR && under_uswap())
		fail("nothing of the %s goes out", word);
	check_pages(p, NR, seed + 10, word);
	must(write(fd, word, strlen(word)) == (ssize_t)strlen(word));
	_exit(0);
}

int main(int argc, char **argv)
{
	char *p = map_pages(NR);
	pid_t pid;
	int fd;

	if (argc < 2)
		return 2;
	fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
	must(fd >= 0);
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		pid = fork();
		must(pid >= 0);
		if (pid == 0)
			fill_pages(p, NR, 2);
		live_on(p, fd, pid ? 1 : 2, pid ? "child\n" : "grandchild\n");
	}
	return 3;
}
