/* SPDX-License-Identifier: MIT */
/*
 * The program that `uswap bench usemem` runs in a job: after usemem of vm-scalability, as it is called
 * with --init-time -O -y -x -n N SIZE. Processes with private anonymous memory, all in step: what
 * one of them waits for the others is not counted.
 */
#define _GNU_SOURCE
#include "cli/bench_usemem.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define PAGE_WORDS (PAGE_SIZE / sizeof(uint64_t))

/* In memory that the processes share, which uswap does not manage. */
struct shared {
	pthread_barrier_t step;
	struct usemem_result result[USEMEM_MAX_PROCESSES];
};

/* ---- content: no page, and no word of it, is like another ---- */

static uint64_t first_word(unsigned int process, uint64_t page)
{
	uint64_t x = ((uint64_t)process + 1) << 48 ^ (page + 1) * 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 27);
}

static void write_page(uint64_t *w, uint64_t key)
{
	for (unsigned int i = 0; i < PAGE_WORDS; i++)
		w[i] = key + i * 0x94d049bb133111ebull;
}

static bool page_is_right(const uint64_t *w, uint64_t key)
{
	uint64_t wrong = 0;

	for (unsigned int i = 0; i < PAGE_WORDS; i++)
		wrong |= w[i] ^ (key + i * 0x94d049bb133111ebull);
	return !wrong;
}

/* ---- a process ---- */

/* So that each node has its part of the programs. */
static void pin(unsigned int process)
{
	cpu_set_t all, one;
	unsigned int skip;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	skip = process % (unsigned int)CPU_COUNT(&all);
	CPU_ZERO(&one);
	for (unsigned int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && !skip--) {
			CPU_SET(cpu, &one);
			(void)sched_setaffinity(0, sizeof(one), &one);
			return;
		}
}

static int run_process(const struct usemem_load *l, struct shared *s, unsigned int process)
{
	struct usemem_result *r = &s->result[process];
	uint64_t pages = l->bytes >> PAGE_SHIFT, from;
	char *mem;

	pin(process);
	mem = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return 1;
	pthread_barrier_wait(&s->step);
	from = clock_now_ns();
	for (uint64_t p = 0; p < pages; p++)
		write_page((uint64_t *)(void *)(mem + p * PAGE_SIZE), first_word(process, p));
	r->write_ns = clock_now_ns() - from;
	if (l->plant && !process)
		mem[pages / 2 * PAGE_SIZE + 7] ^= 4;
	pthread_barrier_wait(&s->step);
	from = clock_now_ns();
	for (uint64_t p = 0; p < pages; p++)
		r->wrong_pages += !page_is_right((uint64_t *)(void *)(mem + p * PAGE_SIZE),
						 first_word(process, p));
	r->read_ns = clock_now_ns() - from;
	pthread_barrier_wait(&s->step);
	from = clock_now_ns();
	(void)munmap(mem, l->bytes);
	r->free_ns = clock_now_ns() - from;
	return 0;
}

/* ---- all of them ---- */

static void kill_all(const pid_t *pid, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (pid[i] > 0)
			(void)kill(pid[i], SIGKILL);
}

/* One that fails would keep the others waiting for ever. Returns whether all ended well. */
static bool wait_for_all(pid_t *pid, unsigned int n)
{
	bool ok = true;

	for (unsigned int left = n; left; left--) {
		int status;
		pid_t p;

		do
			p = wait(&status);
		while (p < 0 && errno == EINTR);
		for (unsigned int i = 0; i < n; i++)
			if (pid[i] == p)
				pid[i] = 0;
		if (p < 0 || status) {
			ok = false;
			kill_all(pid, n);
		}
	}
	return ok;
}

static bool start_and_wait(const struct usemem_load *l, struct shared *s)
{
	pid_t pid[USEMEM_MAX_PROCESSES];

	for (unsigned int i = 0; i < l->processes; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(run_process(l, s, i));
		if (pid[i] < 0) {
			kill_all(pid, i);
			(void)wait_for_all(pid, i);
			return false;
		}
	}
	return wait_for_all(pid, l->processes);
}

int usemem_run_load(const char *bench, const struct usemem_load *l)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;

	if (s == MAP_FAILED)
		return cli_fail("%s: %s", bench, strerror(errno));
	if (pthread_barrierattr_init(&attr) ||
	    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) ||
	    pthread_barrier_init(&s->step, &attr, l->processes))
		return cli_fail("%s: no barrier between processes", bench);
	if (!start_and_wait(l, s))
		return cli_fail("%s: a process of the load did not end well", bench);
	for (unsigned int i = 0; i < l->processes; i++) {
		const struct usemem_result *r = &s->result[i];

		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", r->write_ns, r->read_ns,
		       r->free_ns, r->wrong_pages);
	}
	return fflush(stdout) ? cli_fail("standard output cannot be written") : 0;
}
