/* SPDX-License-Identifier: MIT */
/*
 * One parent, several children and grandchildren, all larger than the budget together: each
 * writes its own half, reads the inherited half, and checks both. Prints one line at the end.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../stress/pages.h"

static char *region;
static size_t nr_pages;

static void write_half(unsigned int seed)
{
	for (size_t i = 0; i < nr_pages; i += 2)
		page_fill(region + i * PAGE_BYTES, page_tag_linear(seed, i));
}

static int check(unsigned int even_seed, unsigned int odd_seed)
{
	int bad = 0;

	for (size_t i = 0; i < nr_pages; i++)
		bad += !page_matches(region + i * PAGE_BYTES,
				     page_tag_linear(i % 2 ? odd_seed : even_seed, i));
	return bad;
}

static int child(unsigned int k)
{
	int bad = check(1, 2), status = 0;
	pid_t pid;

	write_half(10 + k);
	bad += check(10 + k, 2);
	pid = fork();
	if (pid == 0) {
		bad = check(10 + k, 2);
		write_half(100 + k);
		_exit(bad || check(100 + k, 2));
	}
	bad += check(10 + k, 2);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		bad++;
	return bad + check(10 + k, 2);
}

int main(int argc, char **argv)
{
	unsigned int nr_children = argc > 2 ? atoi(argv[2]) : 3;
	int wrong = 0, status;

	nr_pages = argc > 1 ? parse_bytes(argv[1]) / PAGE_BYTES : 0;
	if (!nr_pages)
		return 2;
	region = mmap(NULL, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED)
		return 2;
	for (size_t i = 0; i < nr_pages; i++)
		page_fill(region + i * PAGE_BYTES, page_tag_linear(i % 2 ? 2 : 1, i));
	for (unsigned int k = 0; k < nr_children; k++)
		if (fork() == 0)
			_exit(child(k) != 0);
	wrong += check(1, 2);
	while (wait(&status) > 0)
		wrong += status != 0;
	wrong += check(1, 2);
	printf("families: pages=%zu children=%u wrong=%d\n", nr_pages, nr_children, wrong);
	return wrong != 0;
}
