/* SPDX-License-Identifier: MIT */
/*
 * io_uring: any thread submits under a lock; one thread takes completions.
 *
 * At most DEPTH transfers are in the kernel. Further ios wait in `queue`, linked through
 * themselves, so a submitter never blocks on a full ring; that matters most for a done() callback,
 * which runs on the very thread that would make room. Whoever ends transfers moves waiting ios on:
 * a queue that is not empty means DEPTH transfers in flight, or a thread about to call push().
 *
 * The completion thread touches an io only after it took the lock under which the io was
 * submitted; the kernel in between orders nothing that the C memory model knows of.
 */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"

#define DEPTH 256u
#define BATCH 32u
/* io_uring_submit() fails while the kernel is out of memory; the rest is tried again later. */
#define SUBMIT_TRIES 10

struct uring {
	struct file_dev *f;
	struct us_thread thread;
	struct io_uring ring; /* its submission side is protected by lock */
	struct us_mutex lock;
	/* protected by lock */
	struct list_node queue;
	unsigned int in_flight;
};

LOCK_CLASS(uring_class, "file_uring", RANK_DEV);

static void submit_all(struct uring *u)
{
	for (int i = 0; i < SUBMIT_TRIES && io_uring_sq_ready(&u->ring); i++) {
		int r = io_uring_submit(&u->ring);

		if (r == -EAGAIN || r == -EBUSY)
			clock_sleep_ns(100 * NSEC_PER_USEC);
		else if (r < 0 && r != -EINTR)
			return;
	}
}

/* Moves waiting ios into the ring. Called with the lock held. */
static void push(struct uring *u)
{
	while (!list_empty(&u->queue) && u->in_flight < DEPTH) {
		struct dev_io *io = list_first(&u->queue, struct dev_io, node);
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
		struct file_rest r = file_io_rest(io);

		if (!sqe)
			break;
		list_del(&io->node);
		if (io->op == DEV_READ)
			io_uring_prep_read(sqe, u->f->fd, r.buf, r.bytes, r.offset);
		else
			io_uring_prep_write(sqe, u->f->fd, r.buf, r.bytes, r.offset);
		io_uring_sqe_set_data(sqe, io);
		u->in_flight++;
	}
	submit_all(u);
}

static void uring_submit(struct file_dev *f, struct dev_io *io)
{
	struct uring *u = f->engine_data;

	us_mutex_lock(&u->lock);
	list_add_tail(&u->queue, &io->node);
	push(u);
	us_mutex_unlock(&u->lock);
}

struct completion {
	struct dev_io *io;
	int res;
};

/* Waits, at most a second, and takes what has completed. */
static unsigned int take(struct uring *u, struct completion *c)
{
	struct __kernel_timespec second = {.tv_sec = 1};
	struct io_uring_cqe *cqe[BATCH];
	unsigned int n;

	(void)io_uring_wait_cqe_timeout(&u->ring, cqe, &second);
	n = io_uring_peek_batch_cqe(&u->ring, cqe, BATCH);
	for (unsigned int i = 0; i < n; i++)
		c[i] = (struct completion){.io = io_uring_cqe_get_data(cqe[i]),
					   .res = cqe[i]->res};
	io_uring_cq_advance(&u->ring, n);
	return n;
}

static void completion_thread(void *arg)
{
	struct uring *u = arg;
	bool stop = false;

	while (!stop) {
		struct list_node again = LIST_INIT(again);
		struct completion c[BATCH];
		unsigned int n = take(u, c);

		us_mutex_lock(&u->lock);
		u->in_flight -= n;
		push(u);
		us_mutex_unlock(&u->lock);
		for (unsigned int i = 0; i < n; i++) {
			if (!c[i].io)
				stop = true;
			else if (!file_io_step(u->f, c[i].io, c[i].res))
				list_add_tail(&again, &c[i].io->node);
		}
		if (list_empty(&again))
			continue;
		us_mutex_lock(&u->lock);
		list_splice_tail(&u->queue, &again);
		push(u);
		us_mutex_unlock(&u->lock);
	}
}

static void uring_free(struct uring *u)
{
	io_uring_queue_exit(&u->ring);
	us_mutex_deinit(&u->lock);
	u->f->engine_data = NULL;
	free(u);
}

/* An operation without an io tells the thread to end. */
static void uring_stop(struct file_dev *f)
{
	struct uring *u = f->engine_data;
	struct io_uring_sqe *sqe;

	us_mutex_lock(&u->lock);
	sqe = io_uring_get_sqe(&u->ring);
	if (sqe) {
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data(sqe, NULL);
		u->in_flight++;
		submit_all(u);
	}
	us_mutex_unlock(&u->lock);
	us_thread_join(&u->thread);
	uring_free(u);
}

static int uring_start(struct file_dev *f)
{
	struct uring *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	r = io_uring_queue_init(DEPTH, &u->ring, 0);
	if (r < 0) {
		free(u);
		return r;
	}
	u->f = f;
	f->engine_data = u;
	list_init(&u->queue);
	us_mutex_init(&u->lock, &uring_class);
	/* Without it a wait with a timeout would take part in submission, under no lock. */
	r = u->ring.features & IORING_FEAT_EXT_ARG ? 0 : -ENOSYS;
	if (!r)
		r = us_thread_start(&u->thread, "uswap-uring", -1, completion_thread, u);
	if (r)
		uring_free(u);
	return r;
}

const struct file_engine_ops file_uring_ops = {
	.name = "io_uring",
	.start = uring_start,
	.submit = uring_submit,
	.stop = uring_stop,
};
