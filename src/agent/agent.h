/* SPDX-License-Identifier: MIT */
/*
 * Private to the agent: what its files share.
 *
 *   agent.c   the constructor, the fork handler and _Fork(), run by the program's own threads
 *   helper.c  the helper process, which shares the program's memory and nothing else
 *   filter.c  the helper's seccomp filter
 *   remap.c   mremap() for the program, which tries again where registration was late
 *
 * Everything here is freestanding: raw system calls, no libc, no TLS, no stack protector. The
 * program's descriptors, signal dispositions and threads are never touched.
 */
#ifndef USWAP_AGENT_AGENT_H
#define USWAP_AGENT_AGENT_H

#include <stdint.h>

#include "proto/agent.h"

#define PAGE 4096ul
#define HELPER_STACK 16384
#define MID_STACK 4096

enum helper_status { HELPER_STARTING, HELPER_READY, HELPER_FAILED };

/*
 * All of the agent's data. One per memory: a forked child has its own copy, and makes a helper of
 * its own. The supervisor is told where it is and never manages it, since the helper runs on it.
 */
struct agent_local {
	char socket_path[AGENT_SOCKET_PATH_MAX];
	uint64_t sentinel; /* 0: never set up */
	uint32_t kind;	   /* enum agent_kind of the helper being started */
	int32_t program;   /* pid as the program sees it */
	int32_t mid;	   /* the short-lived parent of the helper */
	int32_t helper;
	int32_t (*libc_fork)(void); /* the C library's _Fork(); NULL: it has none */
	uint32_t status; /* enum helper_status; futex */
	struct agent_ctl *ctl; /* the control page, of the memory that bears ctl_nonce; or NULL */
	uint64_t ctl_nonce;
	char mid_stack[MID_STACK] __attribute__((aligned(64)));
	char helper_stack[HELPER_STACK] __attribute__((aligned(64)));
};
extern struct agent_local agent_local __attribute__((visibility("hidden")));

/* Body of the helper; never returns to the program's code. */
void helper_main(void *unused) __attribute__((visibility("hidden")));
/* Confines the calling task to what the helper's loop needs. 0 or -errno. */
long helper_confine(void) __attribute__((visibility("hidden")));

static inline void agent_zero(void *p, unsigned long n)
{
	volatile char *c = p;

	while (n--)
		*c++ = 0;
}

#endif
