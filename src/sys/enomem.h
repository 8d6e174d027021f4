/* SPDX-License-Identifier: MIT */
/*
 * Requests for memory that the kernel refused because of vm.overcommit_memory.
 *
 * The kernel writes a line to its log for each of them (up to ten in five seconds, on the whole
 * machine), and for no other reason that memory is refused: not for limits of a process or of a
 * group. So nothing is attached to the processes: their calls cost what they always cost, whoever
 * is forked or exec'ed is watched from its first call, and nothing is left behind. It takes the
 * right to read /dev/kmsg (CAP_SYSLOG, or kernel.dmesg_restrict=0), and the first pid namespace,
 * because the log names threads by their numbers there.
 *
 * One thread; no malloc.
 */
#ifndef USWAP_SYS_ENOMEM_H
#define USWAP_SYS_ENOMEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct enomem {
	int fd; /* -1: not watching */
};

struct enomem_refusal {
	pid_t tid; /* of the thread that asked; it may be gone */
	char comm[16];
	uint64_t bytes; /* 0: not known */
};

/* Watches from now on. 0, or -errno where that is not possible; w is then never readable. */
int enomem_watch(struct enomem *w);
void enomem_unwatch(struct enomem *w);
/* The next refusal, of any process of the machine. False when there is none; never waits. */
bool enomem_poll(struct enomem *w, struct enomem_refusal *r);
/*
 * Says which rule refused r, and what allows it. False if no rule does as things are now: the
 * setting was changed since.
 */
bool enomem_explain(const struct enomem_refusal *r, char *buf, size_t len);

/* For tests: reads one record of /dev/kmsg. */
bool enomem_parse(const char *record, struct enomem_refusal *r);

#endif
