/* SPDX-License-Identifier: MIT */
/*
 * A space in another process: its userfaultfd, its helper, its /proc files.
 *
 * Life: remote_create() for a program that said hello, or by way of a fork event (then without a
 * process and a helper until remote_adopt()). space_kill() ends it.
 */
#ifndef USWAP_MM_REMOTE_H
#define USWAP_MM_REMOTE_H

#include <sys/types.h>

#include "mm/mm.h"

struct remote {
	struct space *space;
	uint64_t nonce;
	_Atomic pid_t pid; /* 0: a forked child not seen yet; written under the space's lock */
	int uffd, second_uffd;
	_Atomic int pagemap_fd, stat_fd; /* -1: not open; set before pid */
	uint64_t staging[NR_AGENT_MODES];
	/* NULL: no helper. Written last of what attach() sets. */
	struct agent_ctl *_Atomic ctl;
	int ctl_fd;
	pid_t helper;
	int helper_pidfd;
	atomic_bool helper_gone;
	atomic_bool sentinel_filled; /* written under the lock; read without it, too */
	uint64_t agent_start, agent_end;
	/* Rule 8, looked at by kswapd and by growth. */
	_Atomic uint64_t mounts_seen_ns;
	atomic_bool direct_mounted, direct_noted;
	atomic_bool command_running;
	/* of the batch in progress */
	uint16_t moved[BATCH_ITEMS];
	atomic_bool moved_final; /* moved[] is the last word */
	_Alignas(64) char sentinel_page[PAGE_SIZE];
};

struct remote_config {
	pid_t pid, helper;
	int uffd, second_uffd;	/* second: mutant no_gate only, else -1 */
	int ctl_fd;		/* memfd of AGENT_CTL_BYTES */
	int helper_pidfd;
	uint64_t sentinel, staging[NR_AGENT_MODES];
	uint64_t agent_start, agent_end; /* data of the agent, which is never managed */
};

/* Makes the memfd for a helper's control page. A descriptor or -errno. */
int remote_ctl_create(void);
/*
 * A program that said hello: handshake of its userfaultfd, sentinel, staging. Owns the
 * descriptors of cfg on success. NULL with *err.
 */
struct space *remote_create(struct mm *mm, const struct remote_config *cfg, int *err);
/* A forked child's helper said hello: gives the space its process and helper. 0 or -errno. */
int remote_adopt(struct space *s, const struct remote_config *cfg) __must_check;
/* A forked child without a helper was found: it is served, never evicted. */
void remote_set_pid(struct space *s, pid_t pid);
/* The memory went over to another process that shares it. */
void remote_change_pid(struct space *s, pid_t pid);
/* Starts the helper's loop (state RUN). */
void remote_run(struct space *s);
/* The space whose sentinel bears this nonce, with a reference, or NULL. */
struct space *remote_find_nonce(struct mm *mm, uint64_t nonce);
/* Does [start, end) touch what uswap itself has in that memory: staging, sentinel, the agent's data? */
bool remote_is_own(struct space *s, uint64_t start, uint64_t end);
/* Does the program wait for a look at its mappings (space_scan_ranges())? Which one goes to *wanted. */
bool remote_look_wanted(struct space *s, uint32_t *wanted);
void remote_look_done(struct space *s, uint32_t wanted);
/* Is the memory of a space without a process gone? */
bool remote_is_gone(struct space *s);
static inline struct remote *space_remote(struct space *s)
{
	return s->impl;
}

#endif
