/* SPDX-License-Identifier: MIT */
/*
 * What agent, helper and supervisor say to each other: bytes only, no behaviour.
 *
 * Order of a start (docs/architecture.md has the picture):
 *   helper  -> supervisor  HELLO (socket)
 *   supervisor -> helper   WELCOME + descriptors: control memfd, and /dev/userfaultfd (a new
 *                          program) or the userfaultfd of the fork event (a forked child)
 *   helper  -> supervisor  READY + userfaultfd
 *   supervisor             handshake, registers sentinel and staging, sets ctl->state = RUN
 *   helper                 tells the constructor, serves the ring until it is ended
 */
#ifndef USWAP_PROTO_AGENT_H
#define USWAP_PROTO_AGENT_H

#include <stdint.h>

#define AGENT_MAGIC 0x50415755u /* "UWAP" */
#define AGENT_VERSION 1u
#define AGENT_ENV_SOCKET "USWAP_AGENT" /* path of the socket; abstract twin: same string */
#define AGENT_SOCKET_PATH_MAX 100

#define STAGING_PAGES 512u /* staging of each access mode, pages (2 MiB: the largest folio) */
#define BATCH_ITEMS 512u    /* items a command can carry */

enum agent_msg_type { AGENT_HELLO = 1, AGENT_WELCOME, AGENT_READY, AGENT_REFUSED };
enum agent_kind { AGENT_NEW_PROGRAM = 0, AGENT_FORKED = 1 };

struct agent_msg {
	uint32_t magic, version;
	uint32_t type; /* enum agent_msg_type */
	uint32_t kind; /* HELLO: enum agent_kind */
	int32_t pid;   /* HELLO: the program, in its own pid namespace (its pidfd comes along) */
	int32_t error; /* REFUSED, READY: -errno */
	uint64_t sentinel;	/* HELLO: page, WIPEONFORK */
	uint64_t staging_rw;	/* HELLO: STAGING_PAGES pages, PROT_READ|WRITE */
	uint64_t staging_rwx;	/* HELLO: the same with PROT_EXEC; 0: not to be had */
	uint64_t flags;		/* WELCOME: AGENT_F_* */
	uint64_t own_start, own_end; /* HELLO: the agent's data, never to be managed */
};
_Static_assert(sizeof(struct agent_msg) == 72, "agent_msg is part of the protocol");

/* One MOVE. Written by the supervisor, except rc and moved. */
struct agent_item {
	uint64_t va;	   /* source: page of the program */
	uint32_t staging;  /* destination: index of the first page in the staging of `mode` */
	uint16_t nr_pages; /* 1..512 */
	uint8_t mode;	   /* enum agent_mode */
	uint8_t cancel;	   /* set by the reader of events under hold: do not move */
	/*
	 * AGENT_RC_PENDING until the helper is done with the item; then 0 or -errno. Written while
	 * `moving` is set, so whoever holds `hold` and saw moving == 0 sees the final word.
	 */
	int32_t rc;
	int32_t moved; /* pages really moved (a prefix), valid when rc is set */
};
_Static_assert(sizeof(struct agent_item) == 24, "agent_item is part of the protocol");

enum agent_mode { AGENT_MODE_RW = 0, AGENT_MODE_RWX = 1, NR_AGENT_MODES };
#define AGENT_RC_PENDING 1

/* Test builds only: MOVE through a second userfaultfd, which leaves rule 1 out. */
#define AGENT_F_SECOND_UFFD 1u

/*
 * What the supervisor puts into the sentinel page of each memory. The page is WIPEONFORK and
 * registered, so a forked child that reads it waits, without a system call, for this answer.
 */
struct agent_sentinel {
	uint64_t nonce; /* names this memory; 0: never */
	uint32_t may_start_helper; /* 0: a seccomp filter is set, make no system call */
	uint32_t pad;
};

enum agent_cmd {
	AGENT_CMD_NONE,
	AGENT_CMD_MOVE, /* nr items; each: MOVE, and on EBUSY POPULATE_WRITE and once more */
	AGENT_CMD_DROP, /* empty drop_pages pages of both stagings from their start */
	AGENT_CMD_EXIT,
};

enum agent_state { AGENT_STATE_INIT, AGENT_STATE_RUN, AGENT_STATE_REFUSED };

/* The control page(s): a memfd mapped shared by the helper and the supervisor. */
struct agent_ctl {
	uint32_t magic, version;
	uint32_t state; /* enum agent_state; futex; written by the supervisor */
	uint32_t cmd;	/* enum agent_cmd */
	uint32_t seq;	/* futex: supervisor adds one to start cmd */
	uint32_t done;	/* futex: helper sets to seq when cmd is finished */
	uint32_t nr;
	uint32_t drop_pages[NR_AGENT_MODES];
	int32_t drop_rc;
	/* The permit, rule 2 of docs/fault-states.md. */
	uint32_t hold;	 /* supervisor: no MOVE may start */
	uint32_t moving; /* helper: a MOVE is in progress */
	uint32_t no_permit, no_populate; /* test builds only: leave a rule out */
	uint32_t no_guard;		 /* drop staging without MADV_GUARD_INSTALL (Linux < 6.13) */
	/* The program asks for a look at its mappings, and waits for it (agent/remap.c). */
	uint32_t look_wanted; /* program: one more for each request */
	uint32_t look_done;   /* futex; supervisor: requests answered */
	uint32_t registering; /* supervisor: memory is short, so mappings are being registered */
	struct agent_item item[BATCH_ITEMS];
};
#define AGENT_CTL_BYTES (((sizeof(struct agent_ctl) + 4095) / 4096) * 4096)

#endif
