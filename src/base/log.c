/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"

#define RING_LINES 256
#define LINE_BYTES 512

LOCK_CLASS(log_class, "log", RANK_LOG);

static struct {
	struct us_mutex lock;
	struct us_cond wake, idle;
	struct us_thread thread;
	int fd;
	bool started;
	enum log_level max_level;
	/* protected by lock */
	char line[RING_LINES][LINE_BYTES];
	unsigned int head, tail; /* written from tail to head */
	unsigned long dropped;
	bool stop, busy;
} lg = {.max_level = LOG_NOTE};

bool log_enabled(enum log_level level)
{
	return level <= lg.max_level;
}

/* Writes all of it; a reader that never reads is given up only by log_stop()'s time limit. */
static void write_all(int fd, const char *s, size_t n)
{
	while (n) {
		ssize_t w = write(fd, s, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void)poll(&p, 1, 1000);
			continue;
		}
		if (w < 0)
			return;
		s += w;
		n -= (size_t)w;
	}
}

static void log_thread(void *arg)
{
	char copy[LINE_BYTES];

	(void)arg;
	us_mutex_lock(&lg.lock);
	for (;;) {
		while (lg.tail == lg.head && !lg.stop)
			us_cond_wait(&lg.wake, &lg.lock);
		if (lg.tail == lg.head)
			break;
		memcpy(copy, lg.line[lg.tail % RING_LINES], LINE_BYTES);
		lg.tail++;
		lg.busy = true;
		us_mutex_unlock(&lg.lock);
		write_all(lg.fd, copy, strlen(copy));
		us_mutex_lock(&lg.lock);
		lg.busy = false;
		if (lg.dropped && lg.head - lg.tail < RING_LINES) {
			snprintf(lg.line[lg.head++ % RING_LINES], LINE_BYTES,
				 "uswap: %lu messages dropped: standard error was not read\n",
				 lg.dropped);
			lg.dropped = 0;
		}
		if (lg.tail == lg.head)
			us_cond_broadcast(&lg.idle);
	}
	us_cond_broadcast(&lg.idle);
	us_mutex_unlock(&lg.lock);
}

int log_start(int fd, enum log_level max_level)
{
	int r;

	us_mutex_init(&lg.lock, &log_class);
	us_cond_init(&lg.wake);
	us_cond_init(&lg.idle);
	lg.fd = fd;
	lg.max_level = max_level;
	lg.stop = false;
	r = us_thread_start(&lg.thread, "uswap-log", -1, log_thread, NULL);
	lg.started = r == 0;
	return r;
}

void log_stop(uint64_t timeout_ns)
{
	uint64_t end = clock_now_ns() + timeout_ns;
	bool drained = true;

	if (!lg.started)
		return;
	us_mutex_lock(&lg.lock);
	lg.stop = true;
	us_cond_signal(&lg.wake);
	while (lg.tail != lg.head || lg.busy) {
		uint64_t now = clock_now_ns();

		if (now >= end) {
			drained = false;
			break;
		}
		(void)us_cond_timedwait(&lg.idle, &lg.lock, MIN(end - now, 20 * NSEC_PER_MSEC));
	}
	lg.started = false;
	us_mutex_unlock(&lg.lock);
	if (drained)
		us_thread_join(&lg.thread);
}

void log_make_plain(char *text)
{
	for (; *text; text++)
		if (log_is_control(*text))
			*text = '?';
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char text[LINE_BYTES - 16];
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_make_plain(text);
	if (!lg.started) {
		dprintf(STDERR_FILENO, "uswap: %s\n", text);
		return;
	}
	us_mutex_lock(&lg.lock);
	if (lg.head - lg.tail >= RING_LINES) {
		lg.dropped++;
	} else {
		snprintf(lg.line[lg.head++ % RING_LINES], LINE_BYTES, "uswap: %s\n", text);
		us_cond_signal(&lg.wake);
	}
	us_mutex_unlock(&lg.lock);
}
