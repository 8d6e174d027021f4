/* SPDX-License-Identifier: MIT */
/*
 * Devices for the queue's tests: they count slots and hold nothing. How many runs of each order
 * they have can be set, since the queue asks no more of a device than that.
 */
#ifndef USWAP_TEST_FAKE_QUEUE_DEV_H
#define USWAP_TEST_FAKE_QUEUE_DEV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "swap/queue.h"

#define FAKE_MAGIC 0xfa4edef1u
#define AS_ROOM UINT32_MAX

struct fake_dev {
	uint32_t magic; /* wrong once it was destroyed */
	unsigned int number;
	_Atomic uint32_t attempts, given;
	/* Called with every attempt before it is decided, without a lock. */
	void (*on_alloc)(struct fake_dev *d, unsigned int order);
	/* Called when is_full() has its answer but has not given it. */
	void (*on_is_full)(struct fake_dev *d, bool full);
	void *arg;
	struct us_mutex lock;
	/* protected by lock */
	uint32_t size, used, peak; /* pages */
	uint32_t runs[MAX_ORDER + 1]; /* that there are yet, AS_ROOM: any that there is room for */
	uint32_t next_slot;
};

extern const struct queue_ops fake_queue_ops;

/* A queue whose threads share one turn, as if there was one CPU (or as many as it says). */
struct queue *fake_queue(enum queue_policy policy, unsigned int nr_cpus);
struct fake_dev *fake_dev_create(unsigned int number, uint32_t pages);
void fake_dev_destroy(struct fake_dev *d);
/* Creates it and adds it to the queue. */
struct fake_dev *fake_dev_on(struct queue *q, unsigned int number, uint32_t pages, int prio);
/* swapoff and destroy. */
void fake_dev_off(struct queue *q, struct fake_dev *d);
/* Destroys queue and devices (NULLs are passed over), with a check before. */
void fake_end(struct queue *q, struct fake_dev **devs, unsigned int n);

/* Frees pages and tells the queue. */
void fake_free(struct queue *q, struct fake_dev *d, uint32_t pages);
uint32_t fake_used(struct fake_dev *d);
void fake_set_runs(struct fake_dev *d, unsigned int order, uint32_t runs);

/* The device's number, or -errno. */
int fake_alloc(struct queue *q, unsigned int order);
int fake_alloc_req(struct queue *q, const struct queue_req *req);

#endif
