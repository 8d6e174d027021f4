/* SPDX-License-Identifier: MIT */
/*
 * Three generations below the program, each of which changes memory that its parent evicted. Once
 * every child ends before its parent, once every parent ends first and the orphans check.
 */
#include "behave.h"

#define NR 128
#define DEPTH 3

/* One process after the other of the line, the first one's child and below. */
static void descend(char *p, bool child_first, int report)
{
	/* Number `depth` comes here in the memory that the one before it wrote with seed depth - 1. */
	for (int depth = 1;; depth++) {
		int gone[2];
		char byte;
		pid_t pid;

		check_pages(p, NR, depth - 1, "what the parent wrote");
		fill_pages(p, NR / 2, depth + 100);
		fill_pages(p, NR, depth);
		await_eviction(p, NR);
		if (depth < DEPTH) {
			must(pipe(gone) == 0);
			pid = fork();
			must(pid >= 0);
			if (pid == 0) {
				close(gone[1]);
				if (!child_first)
					must(read(gone[0], &byte, 1) == 0);
				close(gone[0]);
				continue;
			}
			close(gone[0]);
			if (child_first)
				must(reap(pid) == 0);
			else
				check_pages(p, NR / 4, depth, "before it leaves");
		}
		if (child_first || depth == DEPTH) {
			await_eviction(p, NR);
			check_pages(p, NR, depth, "at the end");
		}
		byte = '0' + depth;
		must(write(report, &byte, 1) == 1);
		_exit(0);
	}
}

static void one_line(bool child_first)
{
	char *p = map_pages(NR), got[DEPTH + 2], *end = got;
	int report[2];
	pid_t pid;
	ssize_t n;

	fill_pages(p, NR, 0);
	await_eviction(p, NR);
	must(pipe(report) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		close(report[0]);
		descend(p, child_first, report[1]);
	}
	close(report[1]);
	while ((n = read(report[0], end, got + sizeof(got) - end)) > 0)
		end += n;
	must(n == 0);
	must(reap(pid) == 0);
	close(report[0]);
	*end = 0;
	must(!strcmp(got, child_first ? "321" : "123"));
	check_pages(p, NR, 0, "the first");
	munmap(p, NR * PAGE_BYTES);
}

int main(void)
{
	one_line(true);
	one_line(false);
	return 0;
}
