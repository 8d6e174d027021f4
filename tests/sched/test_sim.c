/* SPDX-License-Identifier: MIT */
/* The simulator where the answer is known beforehand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs those above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "sim/sim.h"

LOCK_CLASS(outer_class, "outer", RANK_JOB);
LOCK_CLASS(inner_class, "inner", RANK_LOG);

#define HOLD 100
#define LOOPS 1000u

static struct us_mutex outer, inner;
static struct us_cond cond;
static struct sim_result r;
static _Atomic uint64_t word __attribute__((aligned(64)));
static _Atomic uint64_t words[SIM_MAX_CPUS][8] __attribute__((aligned(64)));
static uint64_t seen[SIM_MAX_CPUS];
static int value;

/* Nothing costs anything but what a test sets. */
static struct sim_costs free_costs(void)
{
	return (struct sim_costs){.cpus_near = 4, .cpus_socket = 8};
}

static const struct sim_lock_result *lock_result(const char *name)
{
	for (unsigned int i = 0; i < r.nr_locks; i++)
		if (strcmp(r.lock[i].name, name) == 0)
			return &r.lock[i];
	fail_msg("lock class %s was not taken", name);
	return NULL;
}

static void run(unsigned int n, const struct sim_costs *c, void (*fn)(unsigned int, void *))
{
	us_mutex_init(&outer, &outer_class);
	us_mutex_init(&inner, &inner_class);
	us_cond_init(&cond);
	atomic_init(&word, 0);
	value = 0;
	memset(seen, 0, sizeof(seen));
	assert_int_equal(sim_run(n, c, fn, NULL, &r), 0);
}

/* ---- locks ---- */

static void hold_in_a_loop(unsigned int cpu, void *arg)
{
	for (unsigned int i = 0; i < LOOPS; i++) {
		us_mutex_lock(&outer);
		sim_work(HOLD);
		us_mutex_unlock(&outer);
	}
}

static void test_saturated_lock_does_one_over_hold_plus_handoff(void **state)
{
	static const unsigned int cpus[] = {2, 3, 16, 255};
	struct sim_costs c = free_costs();

	(void)state;
	c.handoff_ns = 37;
	for (unsigned int i = 0; i < ARRAY_SIZE(cpus); i++) {
		uint64_t n = (uint64_t)cpus[i] * LOOPS;
		const struct sim_lock_result *l;

		run(cpus[i], &c, hold_in_a_loop);
		l = lock_result("outer");
		/* All wait but the first one, and the last one's last is as long as any other. */
		assert_int_equal(l->acquired, n);
		assert_int_equal(l->contended, n - 1);
		assert_int_equal(r.elapsed_ns, n * HOLD + (n - 1) * 37);
	}
}

static void test_waiting_time_is_all_that_is_not_holding(void **state)
{
	struct sim_costs c = free_costs();
	uint64_t wait = 0;

	(void)state;
	c.handoff_ns = 37;
	run(4, &c, hold_in_a_loop);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(r.cpu[i].busy_ns, LOOPS * HOLD);
		wait += r.cpu[i].wait_ns;
	}
	assert_int_equal(wait, lock_result("outer")->wait_ns);
	/* The first to finish ends 3 turns before the last one. */
	assert_true(wait + 4 * LOOPS * HOLD <= 4 * r.elapsed_ns);
	assert_true(wait + 4 * LOOPS * HOLD + 6 * (HOLD + 37) >= 4 * r.elapsed_ns);
}

static void test_one_cpu_pays_no_handoff(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.handoff_ns = 1000;
	c.lock_ns = 3;
	run(1, &c, hold_in_a_loop);
	assert_int_equal(lock_result("outer")->contended, 0);
	assert_int_equal(r.elapsed_ns, LOOPS * (HOLD + 3));
}

static void take_once(unsigned int cpu, void *arg)
{
	sim_work(cpu * 10); /* so they come in order of their numbers */
	us_mutex_lock(&outer);
	seen[cpu] = sim_now_ns();
	sim_work(HOLD);
	us_mutex_unlock(&outer);
}

static void test_waiters_are_served_in_order_of_arrival(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	run(9, &c, take_once);
	for (unsigned int i = 0; i < 9; i++)
		assert_int_equal(seen[i], i * HOLD);
}

static void test_handoff_pays_for_the_distance(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.handoff_ns = 5;
	c.line_near_ns = 20;
	c.line_far_ns = 50;
	c.line_remote_ns = 90;
	run(9, &c, take_once);
	/* The very first use of the lock's line comes from memory: 50. */
	assert_int_equal(seen[1], 50 + HOLD + 5 + 20);
	assert_int_equal(seen[4] - seen[3], HOLD + 5 + 50); /* another group of 4 */
	assert_int_equal(seen[8] - seen[7], HOLD + 5 + 90); /* another socket of 8 */
}

static void test_a_long_waiter_has_gone_to_sleep(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.handoff_ns = 5;
	c.spin_ns = 150;
	c.wake_ns = 1000;
	c.waker_ns = 70;
	run(3, &c, take_once);
	/* CPU 1 waits 90 ns: it spins. CPU 2 comes at 20 and is served after more than 150. */
	assert_int_equal(seen[1], HOLD + 5);
	assert_int_equal(seen[2], seen[1] + HOLD + 1000);
	assert_int_equal(r.cpu[1].busy_ns, 10 + HOLD + 70);
}

/* ---- lines ---- */

static void count_together(unsigned int cpu, void *arg)
{
	for (unsigned int i = 0; i < LOOPS; i++)
		atomic_fetch_add(&word, 1);
}

static void count_apart(unsigned int cpu, void *arg)
{
	for (unsigned int i = 0; i < LOOPS; i++)
		atomic_fetch_add(&words[cpu][0], 1);
}

static void test_shared_counter_is_bounded_by_its_line(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.cpus_near = c.cpus_socket = 256;
	c.atomic_ns = 5;
	c.line_near_ns = 100;
	c.line_far_ns = 100;
	run(8, &c, count_together);
	assert_int_equal(atomic_load(&word), 8 * LOOPS);
	/* Each of the CPUs wants it all the time, so nearly every change moves it. */
	assert_in_range(r.elapsed_ns, 8 * LOOPS * 100 * 9 / 10, 8 * LOOPS * 100 + 1000);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(r.cpu[i].busy_ns, r.cpu[i].stall_ns + LOOPS * 5);
	run(8, &c, count_apart);
	assert_int_equal(r.elapsed_ns, 100 + (LOOPS - 1) * 5);
	assert_int_equal(r.cpu[3].stall_ns, 95);
	assert_int_equal(r.line_moves, 8);
}

static void read_and_write(unsigned int cpu, void *arg)
{
	sim_work(cpu * 1000);
	(void)atomic_load(&word);
	seen[cpu] = sim_now_ns();
	if (cpu != 2)
		return;
	atomic_store(&word, 1);
	seen[cpu] = sim_now_ns();
}

static void test_readers_share_until_somebody_writes(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.load_ns = 1;
	c.atomic_ns = 5;
	c.line_near_ns = 20;
	c.line_far_ns = 50;
	run(4, &c, read_and_write);
	assert_int_equal(seen[0], 50);	       /* from memory */
	assert_int_equal(seen[1], 1000 + 20);  /* from CPU 0 */
	assert_int_equal(seen[2], 2000 + 20 + 20); /* fetched, then taken away from the others */
	assert_int_equal(seen[3], 3000 + 20);  /* from CPU 2 */
	assert_int_equal(r.line_moves, 5);
}

static void store_to_lines_of_another(unsigned int cpu, void *arg)
{
	if (cpu) {
		for (unsigned int i = 0; i < 3; i++)
			atomic_fetch_add(&words[i][0], 1);
		return;
	}
	atomic_fetch_add(&word, 1);
	sim_work(950);
	for (unsigned int i = 0; i < 3; i++)
		atomic_store_explicit(&words[i][0], 7, memory_order_relaxed);
	(void)atomic_load(&words[0][0]);
	seen[0] = sim_now_ns();
	atomic_fetch_add(&word, 1);
	seen[1] = sim_now_ns();
}

static void test_plain_stores_are_waited_for_by_what_orders(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.load_ns = 1;
	c.atomic_ns = 5;
	c.line_near_ns = 20;
	c.line_far_ns = 50;
	run(2, &c, store_to_lines_of_another);
	assert_int_equal(seen[0], 50 + 950 + 4); /* three stores and a load of what is its own */
	/* The last of the three lines was asked for at 1002, and all are under way at once. */
	assert_int_equal(seen[1], 1002 + 20 + 5);
	assert_int_equal(r.line_moves, 1 + 3 + 3);
}

static void store_under_a_lock(unsigned int cpu, void *arg)
{
	if (cpu) {
		atomic_fetch_add(&words[0][0], 1);
		sim_work(450);
		us_mutex_lock(&outer);
		seen[1] = sim_now_ns();
		us_mutex_unlock(&outer);
		return;
	}
	us_mutex_lock(&outer);
	sim_work(550);
	atomic_store_explicit(&words[0][0], 7, memory_order_relaxed);
	us_mutex_unlock(&outer);
}

static void test_a_lock_is_given_away_after_what_was_stored_under_it(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.handoff_ns = 5;
	c.line_near_ns = 20;
	c.line_far_ns = 50;
	run(2, &c, store_under_a_lock);
	assert_int_equal(seen[1], 50 + 550 + 20 + 5 + 20);
}

/* ---- conditions, threads, sleep ---- */

static void wait_and_signal(unsigned int cpu, void *arg)
{
	if (cpu) {
		sim_work(500);
		us_mutex_lock(&outer);
		value = 1;
		us_cond_signal(&cond);
		us_mutex_unlock(&outer);
		return;
	}
	us_mutex_lock(&outer);
	while (!value)
		us_cond_wait(&cond, &outer);
	seen[0] = sim_now_ns();
	us_mutex_unlock(&outer);
}

static void test_signal_wakes_after_its_cost(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	c.wake_ns = 300;
	c.waker_ns = 40;
	run(2, &c, wait_and_signal);
	assert_int_equal(seen[0], 500 + 300);
	assert_int_equal(r.cpu[1].busy_ns, 540);
}

static void wait_in_vain(unsigned int cpu, void *arg)
{
	us_mutex_lock(&outer);
	seen[0] = us_cond_timedwait(&cond, &outer, 700);
	seen[1] = sim_now_ns();
	us_mutex_unlock(&outer);
}

static void test_timedwait_ends_in_time(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	run(1, &c, wait_in_vain);
	assert_false(seen[0]);
	assert_int_equal(seen[1], 700);
	us_cond_deinit(&cond);
}

static void work_100(void *arg)
{
	sim_work(100);
	seen[us_this_cpu()] = sim_now_ns();
}

static void start_three(unsigned int cpu, void *arg)
{
	struct us_thread t[3];

	/* Two on CPU 1, one on this one, which has to wait until this thread does. */
	sim_check(us_thread_start(&t[0], "a", 1, work_100, NULL) == 0);
	sim_check(us_thread_start(&t[1], "b", 1, work_100, NULL) == 0);
	sim_check(us_thread_start(&t[2], "c", 0, work_100, NULL) == 0);
	sim_work(50);
	for (int i = 0; i < 3; i++)
		us_thread_join(&t[i]);
	seen[7] = sim_now_ns();
}

static void start_three_on_0(unsigned int cpu, void *arg)
{
	if (!cpu)
		start_three(cpu, arg);
}

static void test_threads_of_one_cpu_take_turns(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	run(2, &c, start_three_on_0);
	assert_int_equal(seen[1], 200); /* one after the other */
	assert_int_equal(seen[0], 150);
	assert_int_equal(seen[7], 200);
}

static void sleep_and_look(unsigned int cpu, void *arg)
{
	uint64_t before = clock_now_ns();

	clock_sleep_ns(1000);
	seen[0] = clock_now_ns() - before;
	seen[1] = us_this_cpu() == cpu;
	while (sim_now_ns() < 5000)
		cpu_relax();
	seen[2] = sim_now_ns();
}

static void test_sleep_and_spin_pass_virtual_time(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	run(1, &c, sleep_and_look);
	assert_int_equal(seen[0], 1000);
	assert_int_equal(seen[1], 1);
	assert_in_range(seen[2], 5000, 5100);
}

/* ---- the whole ---- */

static void wait_for_ever(unsigned int cpu, void *arg)
{
	us_mutex_lock(&outer);
	us_cond_wait(&cond, &outer);
}

static void test_deadlock_is_an_error(void **state)
{
	struct sim_costs c = free_costs();

	(void)state;
	us_mutex_init(&outer, &outer_class);
	us_cond_init(&cond);
	assert_int_equal(sim_run(3, &c, wait_for_ever, NULL, &r), -EDEADLK);
	assert_non_null(strstr(r.error, "3 threads"));
	assert_int_equal(sim_run(0, &c, wait_for_ever, NULL, &r), -EINVAL);
	assert_int_equal(sim_run(SIM_MAX_CPUS + 1, &c, wait_for_ever, NULL, &r), -EINVAL);
}

static void mixture(unsigned int cpu, void *arg)
{
	for (unsigned int i = 0; i < 200; i++) {
		us_mutex_lock(&outer);
		sim_work(cpu * 3 % 7);
		us_mutex_lock(&inner);
		atomic_fetch_add(&word, i);
		us_mutex_unlock(&inner);
		us_mutex_unlock(&outer);
		sim_work((uint64_t)cpu * i % 50);
	}
}

static void test_the_same_run_gives_the_same_result(void **state)
{
	static struct sim_result first;
	struct sim_costs c = free_costs();
	char err[256];

	(void)state;
	assert_int_equal(sim_costs_load(&c, "epyc-2s", err, sizeof(err)), 0);
	run(64, &c, mixture);
	first = r;
	run(64, &c, mixture);
	assert_memory_equal(&first, &r, sizeof(r));
	assert_int_equal(lock_result("inner")->acquired, 64 * 200);
}

/* ---- presets ---- */

static int load_text(const char *text, char *err, size_t errlen)
{
	char path[] = "/tmp/preset-XXXXXX";
	int fd = mkstemp(path), e;
	struct sim_costs c;
	FILE *f;

	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	e = sim_costs_load(&c, path, err, errlen);
	remove(path);
	return e;
}

#define ALL_BUT_LAST                                                                               \
	"cpus_near=2\ncpus_socket=4\nload_ns=1\natomic_ns=1\nline_near_ns=1\nline_far_ns=1\n"     \
	"line_remote_ns=1\nlock_ns=1\nhandoff_ns=1\nspin_ns=1\nwake_ns=1\nwaker_ns=1\n"

static void test_presets_are_read_strictly(void **state)
{
	static const char *const names[] = {"measured", "epyc-2s", "xeon-2s"};
	struct sim_costs c;
	char err[256];

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(sim_costs_load(&c, names[i], err, sizeof(err)), 0);
	assert_int_equal(load_text(ALL_BUT_LAST "switch_ns = 7 # c\n", err, sizeof(err)), 0);
	assert_int_equal(load_text(ALL_BUT_LAST, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "switch_ns is missing"));
	assert_int_equal(load_text(ALL_BUT_LAST "lock_ns=2\n", err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, ":13: the key is there twice"));
	assert_int_equal(load_text("lock=2\n", err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "no such key"));
	assert_int_equal(load_text("lock_ns=-2\n", err, sizeof(err)), -EINVAL);
	assert_int_equal(load_text("lock_ns=2 ns\n", err, sizeof(err)), -EINVAL);
	assert_int_equal(sim_costs_load(&c, "no-such-preset", err, sizeof(err)), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_saturated_lock_does_one_over_hold_plus_handoff),
		cmocka_unit_test(test_waiting_time_is_all_that_is_not_holding),
		cmocka_unit_test(test_one_cpu_pays_no_handoff),
		cmocka_unit_test(test_waiters_are_served_in_order_of_arrival),
		cmocka_unit_test(test_handoff_pays_for_the_distance),
		cmocka_unit_test(test_a_long_waiter_has_gone_to_sleep),
		cmocka_unit_test(test_shared_counter_is_bounded_by_its_line),
		cmocka_unit_test(test_readers_share_until_somebody_writes),
		cmocka_unit_test(test_plain_stores_are_waited_for_by_what_orders),
		cmocka_unit_test(test_a_lock_is_given_away_after_what_was_stored_under_it),
		cmocka_unit_test(test_signal_wakes_after_its_cost),
		cmocka_unit_test(test_timedwait_ends_in_time),
		cmocka_unit_test(test_threads_of_one_cpu_take_turns),
		cmocka_unit_test(test_sleep_and_spin_pass_virtual_time),
		cmocka_unit_test(test_deadlock_is_an_error),
		cmocka_unit_test(test_the_same_run_gives_the_same_result),
		cmocka_unit_test(test_presets_are_read_strictly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
