/* SPDX-License-Identifier: MIT */
/*
 * What the operations cost that uswap-sim counts, on this machine: prints a preset. Needs two CPUs
 * of their own while it runs, so on a machine that is used by others a round is short and the
 * figure is that of the fastest tenth; the median stands beside it.
 *
 * usage: primitives [CPU CPU]
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"

#define ROUNDS 400u
#define LOOPS 2000u /* alone */
#define TURNS 200u  /* of two threads: some ten microseconds */
#define SLEEPS 400u
#define SWINGS 500u

static int cpus[2] = {0, 1};
static double samples[ROUNDS];
_Static_assert(SLEEPS <= ROUNDS, "one array holds either");

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static double print(const char *key, double *s, unsigned int n, double minus)
{
	qsort(s, n, sizeof(*s), by_value);
	printf("%-12s = %-6.0f # tenths: %.1f, median %.1f\n", key, MAX(s[n / 10] - minus, 0.0),
	       s[n / 10] - minus, s[n / 2] - minus);
	return s[n / 10];
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

/* ---- alone ---- */

static _Atomic uint64_t word __attribute__((aligned(128)));

/* A chain of loads would be the latency; what counts is what a load adds between other work. */
static void measure_load(void)
{
	for (unsigned int r = 0; r < ROUNDS; r++) {
		uint64_t start = clock_now_ns();

		for (unsigned int i = 0; i < LOOPS; i++)
			(void)atomic_load_explicit(&word, memory_order_acquire);
		samples[r] = (double)(clock_now_ns() - start) / LOOPS;
	}
	print("load_ns", samples, ROUNDS, 0);
}

static void measure_atomic(void)
{
	for (unsigned int r = 0; r < ROUNDS; r++) {
		uint64_t start = clock_now_ns();

		for (unsigned int i = 0; i < LOOPS; i++)
			atomic_fetch_add(&word, 1);
		samples[r] = (double)(clock_now_ns() - start) / LOOPS;
	}
	print("atomic_ns", samples, ROUNDS, 0);
}

LOCK_CLASS(class, "measured", RANK_LOG);

static void measure_lock(void)
{
	struct us_mutex l;

	us_mutex_init(&l, &class);
	for (unsigned int r = 0; r < ROUNDS; r++) {
		uint64_t start = clock_now_ns();

		for (unsigned int i = 0; i < LOOPS; i++) {
			us_mutex_lock(&l);
			us_mutex_unlock(&l);
		}
		samples[r] = (double)(clock_now_ns() - start) / LOOPS;
	}
	print("lock_ns", samples, ROUNDS, 0);
}

/* ---- two CPUs ---- */

static _Atomic uint64_t serving __attribute__((aligned(128)));
static _Atomic uint64_t next_ticket __attribute__((aligned(128)));

/* The word goes to and fro: each change needs the line once. */
static void bounce(void *arg)
{
	uint64_t me = (uintptr_t)arg, start = clock_now_ns();

	for (uint64_t i = 0; i < (uint64_t)TURNS * ROUNDS; i++) {
		while (atomic_load_explicit(&word, memory_order_acquire) != 2 * i + me)
			cpu_relax();
		atomic_store_explicit(&word, 2 * i + me + 1, memory_order_release);
		if (me || (i + 1) % TURNS)
			continue;
		samples[i / TURNS] = (double)(clock_now_ns() - start) / (2 * TURNS);
		start = clock_now_ns();
	}
}

/*
 * A ticket lock that always has a waiter: who holds it draws the next ticket before it lets the
 * other in, so that owners alternate.
 */
static void take_turns(void *arg)
{
	uint64_t mine = (uintptr_t)arg, start = clock_now_ns();

	for (uint64_t i = 0; i < (uint64_t)TURNS * ROUNDS; i++) {
		uint64_t next;

		while (atomic_load_explicit(&serving, memory_order_acquire) != mine)
			cpu_relax();
		next = atomic_fetch_add(&next_ticket, 1);
		atomic_store_explicit(&serving, mine + 1, memory_order_release);
		mine = next;
		if (arg || (i + 1) % TURNS)
			continue;
		samples[i / TURNS] = (double)(clock_now_ns() - start) / (2 * TURNS);
		start = clock_now_ns();
	}
}

static void two_threads(void (*fn)(void *))
{
	struct us_thread t;

	atomic_store(&word, 0);
	atomic_store(&serving, 0);
	atomic_store(&next_ticket, 2); /* each has drawn one */
	if (us_thread_start(&t, "other", cpus[1], fn, (void *)1) != 0)
		exit(1);
	fn(NULL);
	us_thread_join(&t);
}

static double measure_line(void)
{
	two_threads(bounce);
	return print("line_near_ns", samples, ROUNDS, 0);
}

/* From one owner to the next, less the one line that has to move in any case. */
static void measure_handoff(double line)
{
	two_threads(take_turns);
	print("handoff_ns", samples, ROUNDS, line);
}

/* ---- sleepers ---- */

static _Atomic uint32_t bell;
static _Atomic uint64_t rung_ns, heard_ns;

static long futex(_Atomic uint32_t *w, int op, uint32_t value)
{
	return syscall(SYS_futex, w, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void sleeper(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < SLEEPS; i++) {
		while (atomic_load(&bell) == i)
			futex(&bell, FUTEX_WAIT, i);
		atomic_store(&heard_ns, clock_now_ns());
	}
}

static void measure_wake(void)
{
	static double waker[SLEEPS];
	struct us_thread t;

	atomic_store(&bell, 0);
	if (us_thread_start(&t, "sleeper", cpus[1], sleeper, NULL) != 0)
		exit(1);
	for (uint32_t i = 0; i < SLEEPS; i++) {
		uint64_t start;

		clock_sleep_ns(300 * NSEC_PER_USEC);
		atomic_store(&heard_ns, 0);
		start = clock_now_ns();
		atomic_store(&rung_ns, start);
		atomic_store(&bell, i + 1);
		futex(&bell, FUTEX_WAKE, 1);
		waker[i] = (double)(clock_now_ns() - start);
		while (!atomic_load(&heard_ns))
			cpu_relax();
		samples[i] = (double)(atomic_load(&heard_ns) - start);
	}
	us_thread_join(&t);
	print("wake_ns", samples, SLEEPS, 0);
	print("waker_ns", waker, SLEEPS, 0);
}

static void swing(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;

	for (uint32_t i = 0; i < SWINGS; i++) {
		uint32_t now;

		while ((now = atomic_load(&bell)) != 2 * i + me)
			futex(&bell, FUTEX_WAIT, now);
		atomic_store(&bell, 2 * i + me + 1);
		futex(&bell, FUTEX_WAKE, 1);
	}
}

static void measure_switch(void)
{
	for (unsigned int r = 0; r < 20; r++) {
		struct us_thread t;
		uint64_t start;

		atomic_store(&bell, 0);
		start = clock_now_ns();
		if (us_thread_start(&t, "swing", cpus[0], swing, (void *)1) != 0)
			exit(1);
		swing(NULL);
		us_thread_join(&t);
		samples[r] = (double)(clock_now_ns() - start) / (2 * (SWINGS));
	}
	print("switch_ns", samples, 20, 0);
}

int main(int argc, char **argv)
{
	double line;

	if (argc == 3) {
		cpus[0] = atoi(argv[1]);
		cpus[1] = atoi(argv[2]);
	} else if (argc != 1) {
		fprintf(stderr, "usage: %s [CPU CPU]\n", argv[0]);
		return 2;
	}
	pin(cpus[0]);
	measure_load();
	measure_atomic();
	measure_lock();
	line = measure_line();
	measure_handoff(line);
	measure_wake();
	measure_switch();
	return 0;
}
