/* SPDX-License-Identifier: MIT */
/*
 * Gives pages back and looks whether they are zero. Rule 4.
 *
 * MADV_DONTNEED tells its event first and empties the pages after that has been read. In between
 * the old pages are still there. A pager that takes a page for evictable because it sees it
 * present then saves the old content and gives it back later, where zeros must be.
 *
 * The time in between is made long. After the event has been read the thread that calls madvise
 * must get the lock of the address space again, which another thread holds for writing again and
 * again (mprotect of much memory); and when it is given the lock it must wait for its CPU, which it
 * shares with a thread of real-time priority that runs in bursts. Without the right to real-time
 * priority it still works, with fewer chances.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "../../stress/pages.h"

#define AREA_PAGES 256ul

static _Atomic int stop;
static _Atomic uint64_t rounds, checks, zero, other, dirty;
static bool stop_at_wrong;
static int cpu;

static void pin(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *burster(void *arg)
{
	struct sched_param param = { .sched_priority = 1 };
	uint64_t rng = 12345;

	pin();
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param))
		return NULL;
	while (!stop) {
		uint64_t end = clock_ns() + 200000 + random_next(&rng) % 1500000;

		while (clock_ns() < end && !stop)
			;
		/* More than half idle: the program must get on, and so must everybody else. */
		usleep(500 + random_next(&rng) % 2500);
	}
	return NULL;
}

#define LOCKED_BYTES (48ul << 20)

/* Shared memory is nobody's to page: only the lock matters. */
static void *locker(void *arg)
{
	char *area = mmap(NULL, LOCKED_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (area == MAP_FAILED)
		return NULL;
	for (unsigned int i = 0; !stop; i++) {
		if (mprotect(area, LOCKED_BYTES, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ))
			break;
		/* Write access is given page by page, at the next write: so that there is work. */
		for (size_t at = 0; i % 2 && at < LOCKED_BYTES; at += PAGE_BYTES)
			*(volatile char *)(area + at) = 1;
		usleep(300);
	}
	return NULL;
}

static void found_wrong(_Atomic uint64_t *counter)
{
	(*counter)++;
	if (stop_at_wrong)
		stop = 1;
}

static void *giver(void *arg)
{
	unsigned int id = (uintptr_t)arg, version = 0;
	uint64_t rng = mix64(id) | 1;
	uint16_t *versions = unmanaged_alloc(AREA_PAGES * sizeof(*versions), false);
	char *area = mmap(NULL, AREA_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		abort();
	pin();
	for (size_t i = 0; i < AREA_PAGES; i++)
		page_fill(area + i * PAGE_BYTES, page_tag(id, 1, 0, i, 0));
	while (!stop) {
		size_t from = random_next(&rng) % AREA_PAGES;
		size_t to = from + 1 + random_next(&rng) % (AREA_PAGES - from);

		if (madvise(area + from * PAGE_BYTES, (to - from) * PAGE_BYTES, MADV_DONTNEED))
			abort();
		/* Not at once: what was saved wrongly must have time to be moved out. */
		if (random_next(&rng) % 2)
			usleep(random_next(&rng) % 2000);
		version++;
		for (size_t i = 0; i < AREA_PAGES; i++) {
			char *page = area + i * PAGE_BYTES;
			uint64_t tag = page_tag(id, 1, 0, i, versions[i]);

			if (i >= from && i < to) {
				if (!page_is_zero(page))
					found_wrong(&dirty);
				versions[i] = version;
				page_fill(page, page_tag(id, 1, 0, i, version));
			} else if (!page_matches(page, tag)) {
				found_wrong(page_is_zero(page) ? &zero : &other);
				page_fill(page, tag);
			}
		}
		checks += AREA_PAGES;
		rounds++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int seconds = 10;
	pthread_t thread[4];
	uint64_t end;
	int c;

	while ((c = getopt(argc, argv, "s:u")) != -1) {
		if (c == 's')
			seconds = atoi(optarg);
		else if (c == 'u')
			stop_at_wrong = true;
		else
			return 2;
	}
	cpu = sched_getcpu();
	if (cpu < 0)
		cpu = 0;
	for (uintptr_t i = 0; i < 2; i++)
		if (pthread_create(&thread[i], NULL, giver, (void *)(i + 1)))
			return 2;
	if (pthread_create(&thread[2], NULL, burster, NULL) ||
	    pthread_create(&thread[3], NULL, locker, NULL))
		return 2;
	end = clock_ns() + seconds * 1000000000ull;
	while (!stop && clock_ns() < end)
		usleep(10000);
	stop = 1;
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	printf("dontneed: rounds=%llu checks=%llu wrong=%llu zero=%llu other=%llu dirty=%llu\n",
	       (unsigned long long)rounds, (unsigned long long)checks,
	       (unsigned long long)(zero + other + dirty), (unsigned long long)zero,
	       (unsigned long long)other, (unsigned long long)dirty);
	return zero || other || dirty || !checks;
}
