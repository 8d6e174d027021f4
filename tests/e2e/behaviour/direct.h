/* SPDX-License-Identifier: MIT */
/* A file for direct I/O, and an io_uring without a library. */
#ifndef USWAP_TESTS_DIRECT_H
#define USWAP_TESTS_DIRECT_H

#include "behave.h"

#include <linux/io_uring.h>
#include <sys/uio.h>

/* A nameless file in the current folder, opened with O_DIRECT. */
static inline int direct_file(size_t bytes)
{
	int fd = open(".", O_TMPFILE | O_RDWR | O_DIRECT, 0600);

	if (fd < 0 && (errno == EINVAL || errno == EOPNOTSUPP || errno == EISDIR))
		skip("no O_DIRECT or no O_TMPFILE here");
	must(fd >= 0);
	must(ftruncate(fd, bytes) == 0);
	return fd;
}

struct ring {
	int fd;
	unsigned int *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static inline void ring_open(struct ring *r, unsigned int entries)
{
	struct io_uring_params params = {0};
	size_t bytes, cq_bytes;
	char *p;

	r->fd = syscall(SYS_io_uring_setup, entries, &params);
	if (r->fd < 0 && (errno == ENOSYS || errno == EPERM))
		skip("no io_uring here");
	must(r->fd >= 0);
	if (!(params.features & IORING_FEAT_SINGLE_MMAP))
		skip("this io_uring has two maps");
	bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned int);
	cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	if (bytes < cq_bytes)
		bytes = cq_bytes;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		 IORING_OFF_SQ_RING);
	must(p != MAP_FAILED);
	r->sq_tail = (void *)(p + params.sq_off.tail);
	r->sq_mask = (void *)(p + params.sq_off.ring_mask);
	r->sq_array = (void *)(p + params.sq_off.array);
	r->cq_head = (void *)(p + params.cq_off.head);
	r->cq_tail = (void *)(p + params.cq_off.tail);
	r->cq_mask = (void *)(p + params.cq_off.ring_mask);
	r->cqes = (void *)(p + params.cq_off.cqes);
	r->sqes = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe),
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	must(r->sqes != MAP_FAILED);
}

/* Puts one request into the ring; the kernel sees it at the next ring_enter. */
static inline struct io_uring_sqe *ring_add(struct ring *r, int op, int fd, void *addr,
					    unsigned int len, uint64_t offset)
{
	unsigned int tail = *r->sq_tail, i = tail & *r->sq_mask;
	struct io_uring_sqe *sqe = &r->sqes[i];

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = op;
	sqe->fd = fd;
	sqe->addr = (uintptr_t)addr;
	sqe->len = len;
	sqe->off = offset;
	sqe->user_data = len;
	r->sq_array[i] = i;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	return sqe;
}

static inline void ring_enter(struct ring *r, unsigned int submit, unsigned int wait)
{
	int n;

	do
		n = syscall(SYS_io_uring_enter, r->fd, submit, wait,
			    wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
	while (n < 0 && errno == EINTR);
	must(n == (int)submit);
}

/* Takes nr completions; each must have moved all of its bytes. */
static inline void ring_reap(struct ring *r, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		unsigned int head = *r->cq_head;
		struct io_uring_cqe *cqe;

		while (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
			ring_enter(r, 0, 1);
		cqe = &r->cqes[head & *r->cq_mask];
		if (cqe->res != (int)cqe->user_data)
			fail("io_uring: result %d, want %d", cqe->res, (int)cqe->user_data);
		__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	}
}

#endif
