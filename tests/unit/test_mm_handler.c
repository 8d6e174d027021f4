/* SPDX-License-Identifier: MIT */
/* The handler follows the program to its CPU, and looks for it no more often than is worth it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "mm/handler.h"
#include "mm/mm.h"

LOCK_CLASS(reader_class, "test_reader", RANK_READER);
LOCK_CLASS(space_class, "test_space", RANK_SPACE);

static struct mm *mm;
static _Atomic unsigned int nr_looks, nr_reads;
static atomic_int program_at; /* a CPU */

static void no_hold(struct space *s, bool on)
{
	(void)s;
	(void)on;
}

static int read_nothing(struct space *s, struct event *ev, int max)
{
	uint64_t n;

	(void)ev;
	(void)max;
	if (read(s->fd, &n, sizeof(n)) == sizeof(n))
		atomic_fetch_add(&nr_reads, 1);
	return 0;
}

static int look(struct space *s)
{
	(void)s;
	atomic_fetch_add(&nr_looks, 1);
	return program_at;
}

static const struct space_ops ops = {
	.hold = no_hold, .read_events = read_nothing, .program_cpu = look};

/* Lets handlers serve s so often. Returns how often they looked for the program meanwhile. */
static unsigned int serve(struct space *s, unsigned int times)
{
	unsigned int before = nr_looks;

	for (unsigned int i = 0; i < times; i++) {
		unsigned int reads = nr_reads;
		uint64_t one = 1;

		assert_int_equal(write(s->fd, &one, sizeof(one)), sizeof(one));
		while (nr_reads == reads)
			clock_sleep_ns(NSEC_PER_USEC);
	}
	return nr_looks - before;
}

static int served_by(struct space *s)
{
	int handler;

	us_mutex_lock(&s->reader_lock);
	handler = s->handler;
	us_mutex_unlock(&s->reader_lock);
	return handler;
}

static void test_handler_follows_and_looks_seldom(void **state)
{
	struct space *s = calloc(1, sizeof(*s));
	int first;

	(void)state;
	mm = calloc(1, sizeof(*mm));
	assert_non_null(mm);
	assert_non_null(s);
	s->ops = &ops;
	us_mutex_init(&s->reader_lock, &reader_class);
	us_mutex_init(&s->lock, &space_class);
	assert_int_equal(handlers_start(mm), 0);
	us_mutex_lock(&s->reader_lock);
	assert_int_equal(handlers_add(mm, s, eventfd(0, EFD_CLOEXEC)), 0);
	us_mutex_unlock(&s->reader_lock);

	/* Where it stays: 16, 32, ... 256 services between two looks. */
	first = served_by(s);
	program_at = mm->handler[first].cpu;
	assert_in_range(serve(s, 2000), 8, 16);
	assert_int_equal(served_by(s), first);

	/* It went elsewhere: that shows with the next look, and the next ones come soon. */
	if (mm->nr_handlers > 1) {
		int to = (first + 1) % mm->nr_handlers;

		program_at = mm->handler[to].cpu;
		(void)serve(s, 300);
		assert_int_equal(served_by(s), to);
		program_at = mm->handler[first].cpu;
		(void)serve(s, 300);
		assert_int_equal(served_by(s), first);
	}
	us_mutex_lock(&s->reader_lock);
	handlers_remove(mm, s);
	us_mutex_unlock(&s->reader_lock);
	atomic_store(&mm->stop, true);
	handlers_stop(mm);
	close(s->fd);
	us_mutex_deinit(&s->lock);
	us_mutex_deinit(&s->reader_lock);
	free(s);
	free(mm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handler_follows_and_looks_seldom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
