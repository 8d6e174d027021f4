/* SPDX-License-Identifier: MIT */
/* Pages that are evicted while a pipe holds them by vmsplice, and splice from there to a file. */
#include "behave.h"

#include <sys/uio.h>

#define NR 64

static void give(int pipe_end, char *p, size_t nr)
{
	struct iovec vec = {p, nr * PAGE_BYTES};

	while (vec.iov_len) {
		ssize_t n = vmsplice(pipe_end, &vec, 1, 0);

		must(n > 0);
		vec.iov_base = (char *)vec.iov_base + n;
		vec.iov_len -= n;
	}
}

static void take(int pipe_end, char *p, size_t bytes)
{
	while (bytes) {
		ssize_t n = read(pipe_end, p, bytes);

		must(n > 0);
		p += n;
		bytes -= n;
	}
}

int main(void)
{
	char *from = map_pages(NR), *to = map_pages(NR);
	int end[2], file = memfd_create("behaviour", 0);
	struct iovec vec = {to, NR * PAGE_BYTES};
	size_t left;

	must(file >= 0 && pipe(end) == 0);
	must(fcntl(end[1], F_SETPIPE_SZ, 2 * NR * PAGE_BYTES) >= (int)(NR * PAGE_BYTES));
	for (unsigned int round = 0; round < 4; round++) {
		/* In the pipe, evicted, read. */
		fill_pages(from, NR, 1 + round);
		await_eviction(from, NR);
		give(end[1], from, NR);
		await_eviction(from, NR);
		fill_pages(to, NR, 9);
		await_eviction(to, NR);
		take(end[0], to, NR * PAGE_BYTES);
		check_pages(to, NR, 1 + round, "read from the pipe");
		check_pages(from, NR, 1 + round, "given to the pipe");

		/* In the pipe, unmapped; what is mapped there next is not in the pipe. */
		give(end[1], from, NR);
		await_eviction(from, NR);
		must(mmap(from, NR * PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from);
		fill_pages(from, NR, 77);
		await_eviction(from, NR);
		left = NR * PAGE_BYTES;
		must(lseek(file, 0, SEEK_SET) == 0);
		while (left) {
			ssize_t n = splice(end[0], NULL, file, NULL, left, SPLICE_F_MOVE);

			must(n > 0);
			left -= n;
		}
		must(pread(file, to, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		check_pages(to, NR, 1 + round, "spliced to a file");
		check_pages(from, NR, 77, "mapped over what the pipe holds");

		/* The other way: a file by the pipe into memory. */
		fill_pages(from, NR, 40 + round);
		must(pwrite(file, from, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		must(lseek(file, 0, SEEK_SET) == 0);
		must(splice(file, NULL, end[1], NULL, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		vec = (struct iovec){to, NR * PAGE_BYTES};
		fill_pages(to, NR, 9);
		await_eviction(to, NR);
		while (vec.iov_len) {
			ssize_t n = vmsplice(end[0], &vec, 1, 0);

			must(n > 0);
			vec.iov_base = (char *)vec.iov_base + n;
			vec.iov_len -= n;
		}
		check_pages(to, NR, 40 + round, "vmspliced from the pipe");
	}
	return 0;
}
