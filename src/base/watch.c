/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#define STALL_AFTER_NS NSEC_PER_SEC

const char *watch_stall;

static struct watch *table;
static atomic_uint nr_started;

int watch_init(void)
{
	void *p = mmap(NULL, WATCH_SLOTS * sizeof(*table), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	table = p;
	return 0;
}

struct watch *watch_table(void)
{
	return table;
}

struct watch *watch_start(const char *name)
{
	unsigned int i = table ? atomic_fetch_add(&nr_started, 1) : WATCH_SLOTS;
	struct watch *w;

	if (i >= WATCH_SLOTS)
		return NULL;
	w = &table[i];
	snprintf(w->name, sizeof(w->name), "%s", name);
	atomic_store(&w->running, true);
	return w;
}

static void stall(void)
{
	static _Atomic uint64_t first_ns;
	uint64_t none = 0;

	(void)atomic_compare_exchange_strong(&first_ns, &none, clock_now_ns());
	while (clock_now_ns() - atomic_load(&first_ns) > STALL_AFTER_NS)
		pause();
}

void watch_beat(struct watch *w)
{
	if (!w)
		return;
	atomic_fetch_add_explicit(&w->rounds, 1, memory_order_relaxed);
	if (watch_stall && strcmp(w->name, watch_stall) == 0)
		stall();
}

void watch_stop(struct watch *w)
{
	if (w)
		atomic_store(&w->running, false);
}

void watch_rest(struct watch *w)
{
	watch_stop(w);
}

void watch_go_on(struct watch *w)
{
	if (!w)
		return;
	/* First: it must not be taken for one that has stood still all the time. */
	atomic_fetch_add_explicit(&w->rounds, 1, memory_order_relaxed);
	atomic_store(&w->running, true);
}
