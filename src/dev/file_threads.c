/* SPDX-License-Identifier: MIT */
/*
 * The engine for where io_uring is not to be had (seccomp filters of containers): threads that
 * call pread and pwrite. The queue is linked through the ios, so it has no limit and never blocks.
 */
#define _GNU_SOURCE
#include "dev/file_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

#define NR_THREADS 4

struct threads {
	struct file_dev *f;
	struct us_thread thread[NR_THREADS];
	struct us_mutex lock;
	struct us_cond wake;
	/* protected by lock */
	struct list_node queue;
	bool stop;
};

LOCK_CLASS(threads_class, "file_threads", RANK_DEV);

static int64_t transfer(struct file_dev *f, struct dev_io *io)
{
	struct file_rest r = file_io_rest(io);
	ssize_t n = io->op == DEV_READ ? pread(f->fd, r.buf, r.bytes, (off_t)r.offset)
				       : pwrite(f->fd, r.buf, r.bytes, (off_t)r.offset);

	return n < 0 ? -errno : n;
}

static void worker(void *arg)
{
	struct threads *t = arg;

	us_mutex_lock(&t->lock);
	for (;;) {
		struct dev_io *io;

		while (list_empty(&t->queue) && !t->stop)
			us_cond_wait(&t->wake, &t->lock);
		if (list_empty(&t->queue))
			break;
		io = list_first(&t->queue, struct dev_io, node);
		list_del(&io->node);
		us_mutex_unlock(&t->lock);
		while (!file_io_step(t->f, io, transfer(t->f, io)))
			;
		us_mutex_lock(&t->lock);
	}
	us_mutex_unlock(&t->lock);
}

static void threads_stop(struct file_dev *f)
{
	struct threads *t = f->engine_data;

	us_mutex_lock(&t->lock);
	t->stop = true;
	us_cond_broadcast(&t->wake);
	us_mutex_unlock(&t->lock);
	for (int i = 0; i < NR_THREADS; i++)
		us_thread_join(&t->thread[i]);
	us_cond_deinit(&t->wake);
	us_mutex_deinit(&t->lock);
	free(t);
	f->engine_data = NULL;
}

static int threads_start(struct file_dev *f)
{
	struct threads *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return -ENOMEM;
	t->f = f;
	f->engine_data = t;
	list_init(&t->queue);
	us_mutex_init(&t->lock, &threads_class);
	us_cond_init(&t->wake);
	for (int i = 0; i < NR_THREADS && !r; i++) {
		char name[16];

		snprintf(name, sizeof(name), "uswap-io%d", i);
		r = us_thread_start(&t->thread[i], name, -1, worker, t);
	}
	if (r)
		threads_stop(f);
	return r;
}

static void threads_submit(struct file_dev *f, struct dev_io *io)
{
	struct threads *t = f->engine_data;

	us_mutex_lock(&t->lock);
	list_add_tail(&t->queue, &io->node);
	us_cond_signal(&t->wake);
	us_mutex_unlock(&t->lock);
}

const struct file_engine_ops file_threads_ops = {
	.name = "threads",
	.start = threads_start,
	.submit = threads_submit,
	.stop = threads_stop,
};
