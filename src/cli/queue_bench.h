/* SPDX-License-Identifier: MIT */
/*
 * The measuring core for the queue of devices: threads that do nothing but allocate.
 *
 * One call is one run of one arm, with a queue and devices of its own, warmed up. Whoever compares
 * arms calls them in turn, many times, and looks at the spread (bench_alloc_queue.c, bench/queue).
 * Not its job: tables, arms, statistics over runs.
 */
#ifndef USWAP_CLI_QUEUE_BENCH_H
#define USWAP_CLI_QUEUE_BENCH_H

#include "base/util.h"
#include "swap/policy.h"

enum bench_device {
	BENCH_CLUSTERS, /* the real allocator of slots */
	BENCH_BARE,	/* returns at once: what is left is the queue itself */
};

enum bench_full {
	BENCH_FULL_NONE,
	BENCH_FULL_PEERS, /* in the ring of the device that is free */
	BENCH_FULL_ABOVE, /* together in one ring of higher priority */
	BENCH_FULL_APART, /* each in a ring of its own, all higher */
};

struct queue_bench_args {
	enum queue_policy policy; /* POLICY_DEFAULT: no queue, threads call the first device */
	enum bench_device device;
	unsigned int nr_devs; /* free ones, of one priority; with the full ones at most 64 */
	enum bench_full full;
	unsigned int nr_full;
	unsigned int nr_threads; /* at most BENCH_MAX_THREADS; each on a CPU of its own */
	unsigned int order;
	uint32_t nr_allocs; /* of each thread */
};

#define BENCH_MAX_THREADS 64u

struct queue_bench_result {
	double wall_ns, cpu_ns; /* an allocation, on average over the threads */
	uint64_t list_acquired, list_contended, list_wait_ns;	    /* lock of a plist */
	uint64_t device_acquired, device_contended, device_wait_ns; /* locks of the devices */
	uint64_t least, most; /* pages given by a free device: fairness */
};

/* 0 or -errno. */
int queue_bench(const struct queue_bench_args *args, struct queue_bench_result *res) __must_check;

#endif
