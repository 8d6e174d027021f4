/* SPDX-License-Identifier: MIT */
/*
 * Messages to the user. log_write() formats into a ring and returns; a thread of its own writes
 * to the descriptor. So no thread that serves faults ever waits for a pipe that a program of the
 * job holds (rule 10 of docs/fault-states.md). When the ring is full the message is counted and
 * dropped; the count is printed later.
 *
 * Locking: any thread. Never blocks on I/O, never allocates.
 */
#ifndef USWAP_BASE_LOG_H
#define USWAP_BASE_LOG_H

#include "base/util.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTE, LOG_INFO, LOG_DEBUG };

/* Starts the writing thread on fd; messages above max_level are skipped. 0 or -errno. */
int log_start(int fd, enum log_level max_level) __must_check;
/* Writes what is left, waiting at most timeout_ns for a reader that does not read. */
void log_stop(uint64_t timeout_ns);
/*
 * Every line gets the prefix "uswap: "; control characters, as names may hold them, become '?'. Before log_start()
 * it goes straight to stderr.
 */
void log_write(enum log_level level, const char *fmt, ...) __printf(2, 3);
/* Would this character of a name break a line, or drive a terminal? */
static inline bool log_is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* What others have named is quoted in lines for people: it must not forge lines or drive a terminal. */
void log_make_plain(char *text);
bool log_enabled(enum log_level level);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_note(...) log_write(LOG_NOTE, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)

#endif
