/* SPDX-License-Identifier: MIT */
/*
 * What the command line and a running job say to each other, over a stream
 * socket at RUNDIR/JOB/ctl: one request, one reply, then the supervisor closes.
 * Before the reply to CTL_SWAPON and CTL_SWAPOFF there may be any number of replies whose error is
 * CTL_MORE, each with a struct ctl_progress. A client that shuts its side down, or goes, interrupts
 * what it asked for.
 * Bytes only, no behaviour.
 */
#ifndef USWAP_PROTO_CTL_H
#define USWAP_PROTO_CTL_H

#include <stdint.h>

#define CTL_MAGIC 0x4c544355u /* "UCTL" */
#define CTL_VERSION 2u
#define CTL_ARG_BYTES 240u
#define CTL_ARG_MAX 16384u
#define CTL_REPLY_MAX (16u << 20)

enum ctl_verb {
	CTL_STAT = 1, /* reply: the JSON of design section 7 */
	CTL_SWAPS,    /* reply: text as /proc/swaps */
	CTL_PS,	      /* reply: table of processes */
	CTL_SET,      /* arg: KEY=VALUE; ram= with a plain number of bytes */
	CTL_JOB,      /* reply: one line for `uswap jobs` */
	CTL_SWAPON,   /* arg: SPEC with an absolute path. reply: one line */
	CTL_SWAPOFF,  /* arg: the device's name as CTL_SWAPS has it. reply: one line */
};

struct ctl_request {
	uint32_t magic, version;
	uint32_t verb; /* enum ctl_verb */
	uint32_t arg_bytes; /* at most CTL_ARG_MAX; what arg does not hold follows the request */
	char arg[CTL_ARG_BYTES];
};
_Static_assert(sizeof(struct ctl_request) == 256, "ctl_request is part of the protocol");

/* Followed by `bytes` bytes of text (no NUL). */
struct ctl_reply {
	uint32_t magic, version;
	int32_t error; /* 0; -errno: then the text says why, one line; CTL_MORE */
	uint32_t bytes;
};
_Static_assert(sizeof(struct ctl_reply) == 16, "ctl_reply is part of the protocol");

#define CTL_MORE 1 /* not the end yet */

struct ctl_progress {
	uint64_t done_pages, left_pages, lost_pages;
	uint64_t elapsed_ns;
};
_Static_assert(sizeof(struct ctl_progress) == 32, "ctl_progress is part of the protocol");

#endif
