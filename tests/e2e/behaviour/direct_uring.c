/* SPDX-License-Identifier: MIT */
/* io_uring with O_DIRECT: reads, writes and vectors of memory that is swapped out, some of them by
 * the kernel's own workers. */
#include "direct.h"

#define NR 128
#define REQUESTS 32
#define EACH (NR / REQUESTS)

static void run(struct ring *r, int fd, bool write, char *p, int flags, bool late)
{
	struct iovec *vec = (struct iovec *)(p + NR * PAGE_BYTES);
	struct io_uring_sqe *sqe;

	/* Half of them as vectors that are swapped out themselves. */
	for (int i = 0; i < REQUESTS; i++)
		vec[i] = (struct iovec){p + i * EACH * PAGE_BYTES, EACH * PAGE_BYTES};
	await_eviction(p, NR + 1);
	for (int i = 0; i < REQUESTS; i++) {
		char *at = p + i * EACH * PAGE_BYTES;

		if (i & 1) {
			sqe = ring_add(r, write ? IORING_OP_WRITEV : IORING_OP_READV, fd, &vec[i],
				       1, i * EACH * PAGE_BYTES);
			sqe->user_data = EACH * PAGE_BYTES;
		} else {
			sqe = ring_add(r, write ? IORING_OP_WRITE : IORING_OP_READ, fd, at,
				       EACH * PAGE_BYTES, i * EACH * PAGE_BYTES);
		}
		sqe->flags = flags;
	}
	ring_enter(r, REQUESTS, 0);
	if (late)
		await_eviction(p, NR);
	ring_reap(r, REQUESTS);
}

int main(void)
{
	char *from = map_pages(NR + 1), *to = map_pages(NR + 1);
	int fd = direct_file(NR * PAGE_BYTES);
	struct ring r;

	ring_open(&r, REQUESTS);
	for (unsigned int round = 0; round < 8; round++) {
		int flags = round & 2 ? IOSQE_ASYNC : 0;

		fill_pages(from, NR, 10 + round);
		fill_pages(to, NR, 20 + round);
		run(&r, fd, true, from, flags, round & 1);
		run(&r, fd, false, to, flags, round & 1);
		check_pages(to, NR, 10 + round, "read by io_uring");
		check_pages(from, NR, 10 + round, "written by io_uring");
	}
	return 0;
}
