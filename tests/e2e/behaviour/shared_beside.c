/* SPDX-License-Identifier: MIT */
/* Memory shared by a memfd right beside private memory that is swapped out: parent and child see
 * each other's writes in the one, and only their own in the other. */
#include "behave.h"

#define NR 64
#define ROUNDS 12

static void step(int in, int out, bool wait)
{
	char byte = 0;

	if (!wait)
		must(write(out, &byte, 1) == 1);
	else
		must(read(in, &byte, 1) == 1);
}

int main(void)
{
	int fd = memfd_create("behaviour", 0), down[2], up[2];
	char *around = map_pages(4 * NR), *shared = around + NR * PAGE_BYTES;
	char *private_too = around + 2 * NR * PAGE_BYTES;
	pid_t pid;

	must(fd >= 0 && ftruncate(fd, NR * PAGE_BYTES) == 0);
	must(pipe(down) == 0 && pipe(up) == 0);
	must(mmap(shared, NR * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	     shared);
	/* Private over the same file: copied when it is written to. */
	must(mmap(private_too, NR * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
		  0) == private_too);
	fill_pages(around, NR, 1);
	fill_pages(shared, NR, 2);
	fill_pages(private_too, NR, 3);
	fill_pages(around + 3 * NR * PAGE_BYTES, NR, 4);
	await_eviction(around, NR);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		for (unsigned int i = 0; i < ROUNDS; i++) {
			step(down[0], up[1], true);
			check_pages(shared, NR, 100 + i, "child, shared");
			check_pages(around, NR, i ? 20 + i - 1 : 1, "child, private");
			check_pages(private_too, NR, i ? 40 + i - 1 : 3,
				    "child, private of a file");
			check_pages(around + 3 * NR * PAGE_BYTES, NR, 4, "child, behind");
			fill_pages(around, NR, 20 + i);
			fill_pages(private_too, NR, 40 + i);
			fill_pages(shared, NR, 200 + i);
			await_eviction(around, NR);
			step(down[0], up[1], false);
		}
		_exit(0);
	}
	for (unsigned int i = 0; i < ROUNDS; i++) {
		fill_pages(shared, NR, 100 + i);
		fill_pages(around, NR, 60 + i);
		await_eviction(around, NR);
		step(up[0], down[1], false);
		step(up[0], down[1], true);
		check_pages(shared, NR, 200 + i, "parent, shared");
		check_pages(around, NR, 60 + i, "parent, private");
		check_pages(private_too, NR, 3, "parent, private of a file");
		check_pages(around + 3 * NR * PAGE_BYTES, NR, 4, "parent, behind");
	}
	must(reap(pid) == 0);
	return 0;
}
