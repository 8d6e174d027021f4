/* SPDX-License-Identifier: MIT */
/*
 * The supervisor of a job: processes, lifetime, control socket, exports. No page policy.
 *
 * super_run() is called by `uswap run` in a process that has nothing else to do: it forks the
 * supervisor, starts the command and returns the status to exit with.
 */
#ifndef USWAP_SUPER_SUPER_H
#define USWAP_SUPER_SUPER_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "dev/dev.h"
#include "swap/policy.h"
#include "swap/tier.h"

#define SUPER_EXIT_FAILURE 125 /* uswap's own failure; 126, 127 as env(1) */
#define SUPER_MAX_SWAPS 32
#define SUPER_MAX_TIERS (MAX_TIERS - 1) /* one of the names is "default" */
#define SUPER_MAX_CPU_NODES 256
#define SUPER_MIN_RAM MIB(16) /* below this nothing runs: said so by `run` */

struct swap_spec {
	enum { SWAP_SPEC_ZRAM, SWAP_SPEC_FILE, SWAP_SPEC_DEV } type;
	int prio; /* -1: none given */
	unsigned int weight; /* 0: none given */
	int node; /* -1: none given, as sysfs says */
	uint64_t bytes; /* 0: none given */
	char path[4096];
	bool force, keep;
	enum dev_discard discard;
	enum dev_codec codec;
	int level;
	/* Hidden keys for tests, see tests/README.md. */
	bool has_fault, has_delay, no_io_uring, no_direct;
	struct fault_config fault;
	struct delay_config delay;
};

/* Tiers that a process may use. nr 0: all, of today and later. */
struct tier_names {
	char name[MAX_TIERS][TIER_NAME_BYTES];
	unsigned int nr;
};

/* What `uswap set` wants, apart from ram=. */
struct set_request {
	enum { SET_QUEUE_POLICY, SET_TIER, SET_NO_TIER, SET_PID_TIERS, SET_PID_POLICY } key;
	int pid;		  /* SET_PID_* */
	enum queue_policy policy; /* SET_QUEUE_POLICY, SET_PID_POLICY */
	struct tier_spec tier;	  /* SET_TIER; SET_NO_TIER: its name */
	struct tier_names names;  /* SET_PID_TIERS */
};

struct run_config {
	uint64_t ram_bytes; /* resolved: never 0 */
	struct swap_spec swap[SUPER_MAX_SWAPS];
	unsigned int nr_swaps; /* 0: the defaults */
	enum queue_policy queue_policy;
	/* CPU i is on node cpu_node[i % nr_cpu_nodes]; nr 0: as sysfs says. */
	uint8_t cpu_node[SUPER_MAX_CPU_NODES];
	unsigned int nr_cpu_nodes;
	struct tier_spec tier[SUPER_MAX_TIERS]; /* they fit in beside each other */
	unsigned int nr_tiers;
	struct tier_names allow_tiers; /* of the command, and so of what it starts */
	int order;	       /* 0..9, or -1: auto */
	bool strict;
	int verbose;	       /* -1 quiet, 0, 1 (-v) */
	const char *report_path; /* NULL: none */
	char *const *argv;     /* the command, NULL-terminated */
	/*
	 * What `uswap swapon` sends, as the command line understands it. 0, or -errno with a sentence
	 * in why.
	 */
	int (*parse_spec)(const char *text, struct swap_spec *out, char *why, size_t len);
	/* Of what `uswap set` sends, in the same way. */
	int (*parse_set)(const char *text, struct set_request *out, char *why, size_t len);
	/* test modes, from the environment USWAP_TEST (test builds only) */
	bool evict_all; /* evict everything as fast as possible, whatever the budget */
};

/* May USWAP_TEST leave rules out? False in the product, true in the test build's main(). */
extern const bool super_test_hooks;

/* Exit status as env(1). Errors have been printed. */
int super_run(const struct run_config *cfg);

/*
 * The directory of run-time files of this user's jobs: /run/uswap for root, else
 * $XDG_RUNTIME_DIR/uswap, else /tmp/uswap-UID. Writes it to buf; does not create it.
 */
void super_rundir(char *buf, size_t len);

#endif
