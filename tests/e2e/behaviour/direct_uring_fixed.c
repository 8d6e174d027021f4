/* SPDX-License-Identifier: MIT */
/* io_uring with registered buffers: they are pinned, so what is written through the pin and what is
 * written by the program must be the same page however hard the evictor tries. */
#include "bait.h"
#include "direct.h"

#define NR 64
#define REQUESTS 16
#define EACH (NR / REQUESTS)

static void run(struct ring *r, int fd, int op, char *p, int index)
{
	for (int i = 0; i < REQUESTS; i++)
		ring_add(r, op, fd, p + i * EACH * PAGE_BYTES, EACH * PAGE_BYTES,
			 i * EACH * PAGE_BYTES)
			->buf_index = index;
	ring_enter(r, REQUESTS, 0);
	ring_reap(r, REQUESTS);
}

int main(void)
{
	char *from = map_pages(NR), *to = map_pages(NR);
	struct iovec vec[2] = {{from, NR * PAGE_BYTES}, {to, NR * PAGE_BYTES}};
	int fd = direct_file(NR * PAGE_BYTES);
	struct ring r;

	ring_open(&r, REQUESTS);
	for (unsigned int again = 0; again < 3; again++) {
		fill_pages(from, NR, 1 + again);
		fill_pages(to, NR, 2 + again);
		await_eviction(from, NR);
		await_eviction(to, NR);
		if (syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_BUFFERS, vec, 2)) {
			if (errno == ENOMEM)
				skip("may not lock so much");
			must(!"register");
		}
		check_pages(from, NR, 1 + again, "registered");
		for (unsigned int round = 0; round < 4; round++) {
			fill_pages(from, NR, 10 + round);
			let_evict();
			run(&r, fd, IORING_OP_WRITE_FIXED, from, 0);
			let_evict();
			run(&r, fd, IORING_OP_READ_FIXED, to, 1);
			check_pages(to, NR, 10 + round, "read into a registered buffer");
			fill_pages(to, NR, 20 + round);
			let_evict();
			run(&r, fd, IORING_OP_WRITE_FIXED, to, 1);
			run(&r, fd, IORING_OP_READ_FIXED, from, 0);
			check_pages(from, NR, 20 + round, "the way back");
		}
		must(syscall(SYS_io_uring_register, r.fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
		await_eviction(from, NR);
		await_eviction(to, NR);
		check_pages(from, NR, 23, "evicted after it was unregistered");
		check_pages(to, NR, 23, "evicted after it was unregistered");
	}
	return 0;
}
