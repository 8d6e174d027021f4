/* SPDX-License-Identifier: MIT */
/*
 * Virtual CPUs: the code of base to reclaim, built with src/sim/overlay before src on the include
 * path, runs as coroutines on one real thread. Two ways to run it:
 *
 *   sim_run()      every operation has a cost; threads go on in the order of virtual time. Answers
 *                  how long n CPUs would take and what they would wait for.
 *   sim_explore()  nothing has a cost; at each operation a chooser says who goes on. Answers
 *                  whether some order of operations breaks the code (tests/sched).
 *
 * What is an operation: taking, trying and waiting for a lock or condition, signalling one, each
 * C11 atomic call, starting and joining a thread, sleeping, cpu_relax(). Memory is sequentially
 * consistent, and a stretch without operations is one step (so is an unlock with what follows it,
 * unless after_unlock is set: for what is read without a lock, and protected otherwise). docs/simulation.md says what follows.
 *
 * Locking: one run at a time, in one real thread. Runs do not nest.
 * Context: allocates at the start of a run and of a thread.
 */
#ifndef USWAP_SIM_SIM_H
#define USWAP_SIM_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define SIM_MAX_CPUS 256
#define SIM_MAX_THREADS 512

/* ---- costs ---- */

/* Of src/sim/presets/NAME.conf, which says where each figure is from. Nanoseconds. */
struct sim_costs {
	uint64_t cpus_near;    /* CPUs in a group with a shared cache */
	uint64_t cpus_socket;  /* CPUs in a socket */
	uint64_t load_ns;      /* load of a line that this CPU has; relaxed or release store */
	uint64_t atomic_ns;    /* sequentially consistent store, or read-modify-write, of one it owns */
	uint64_t line_near_ns; /* a line comes from a CPU of the same group, */
	uint64_t line_far_ns;  /* of another group of the socket, */
	uint64_t line_remote_ns; /* of another socket; an access that needs it pays this instead */
	uint64_t lock_ns;      /* lock and unlock, uncontended, line owned */
	uint64_t handoff_ns;   /* from unlock until the next waiter has the lock, plus the line */
	uint64_t spin_ns;      /* a waiter sleeps after this; 0: it spins for ever */
	uint64_t wake_ns;      /* from unlock or signal until a sleeper runs */
	uint64_t waker_ns;     /* what waking costs who does it */
	uint64_t switch_ns;    /* a CPU goes over to another of its threads */
};

/*
 * Reads a preset: a path if it has a slash in it, else NAME.conf of the folder that holds presets.
 * Every key has to be there, once. 0, or -errno with a sentence in err.
 */
int sim_costs_load(struct sim_costs *c, const char *name, char *err, size_t errlen) __must_check;

/* ---- simulation ---- */

struct sim_cpu_result {
	uint64_t busy_ns; /* work and costs */
	uint64_t stall_ns; /* of these: until a cache line was there */
	uint64_t wait_ns; /* of this CPU's threads, for locks */
};

struct sim_lock_result {
	const char *name; /* of the lock class */
	uint64_t acquired, contended, wait_ns;
};

#define SIM_MAX_CLASSES 64

struct sim_result {
	uint64_t elapsed_ns; /* until the last thread ended */
	uint64_t operations;
	uint64_t line_moves;
	unsigned int nr_cpus, nr_locks;
	struct sim_cpu_result cpu[SIM_MAX_CPUS];
	struct sim_lock_result lock[SIM_MAX_CLASSES]; /* classes that were taken */
	char error[256]; /* if sim_run() failed */
};

/*
 * Runs fn(cpu, arg) on each of nr_cpus CPUs, all starting at time 0, until every thread has ended.
 * The same input gives the same result. 0; -EINVAL; -ENOMEM; -EDEADLK: all that is left waits.
 */
int sim_run(unsigned int nr_cpus, const struct sim_costs *costs,
	    void (*fn)(unsigned int cpu, void *arg), void *arg, struct sim_result *r) __must_check;

/* What is created outside a run, with something for each CPU, is for so many; 1 at first. */
void sim_set_nr_cpus(unsigned int nr_cpus);

/* ---- in a thread of a run ---- */

/* Computes for so long. */
void sim_work(uint64_t ns);
uint64_t sim_now_ns(void);
/* Exploring only: from here on the calling thread is on that CPU. */
void sim_migrate(unsigned int cpu);

/* ---- exploration ---- */

enum sim_failure {
	SIM_OK,
	SIM_DEADLOCK, /* every thread waits */
	SIM_LIVELOCK, /* more steps than allowed */
	SIM_LOCKING,  /* a lock used wrongly: order, unlock by another, destroyed while held */
	SIM_CHECK,    /* sim_check() */
	SIM_ABORT,    /* the code under test aborted or got a fatal signal */
	SIM_UNSTABLE, /* the same choices led elsewhere: no result about the code at all */
	NR_SIM_FAILURES
};
extern const char *const sim_failure_names[NR_SIM_FAILURES];

/*
 * Threads that may go on. The first nr_free cost no preemption: the running thread if it can go
 * on, else all that can. Behind them come those whose choice takes the CPU away from a thread that
 * could use it, or lets a timeout pass early.
 */
struct sim_choice {
	unsigned int nr, nr_free;
	unsigned int nr_ready; /* of these, the first so many can go on by themselves */
	unsigned int thread[SIM_MAX_THREADS]; /* numbers of threads, main is 0 */
};

struct sim_explore_config {
	/* Returns an index into c->thread. Called only where c->nr > 1. */
	unsigned int (*choose)(void *priv, const struct sim_choice *c);
	/* The same, but goes on as if the first one had been chosen: only_shared. */
	void (*passed)(void *priv);
	/* Must not return. */
	void (*failed)(void *priv, enum sim_failure kind, const char *message);
	void *priv;
	uint64_t max_steps; /* livelock beyond */
	unsigned int nr_cpus; /* threads are dealt out to so many CPUs, in order of their start */
	bool spurious;	      /* waits for a condition may end without a signal, as POSIX allows */
	bool after_unlock;    /* what follows an unlock is a step of its own */
	bool only_shared;     /* no choice before operations that meet no other thread's: shared.c */
};

/* Runs fn(arg) as thread 0 on CPU 0 until all threads have ended. */
void sim_explore(const struct sim_explore_config *cfg, void (*fn)(void *arg), void *arg);

/* Of the last run. */
uint64_t sim_nr_steps(void);

/* Places in the source that only_shared has found to meet other threads, in all runs so far. */
unsigned int sim_nr_shared_places(void);

/* An access to these bytes is no point to switch at: counters that nothing depends on.
 * Holds for all runs to come; saying it again does nothing. */
void sim_quiet(const volatile void *p, size_t bytes);

/* Fails the run with the condition's text and place. */
#define sim_check(cond)                                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			sim_check_failed(#cond, __FILE__, __LINE__);                               \
	} while (0)
void sim_check_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

/* The last steps of the run, one line each, as text. Async-signal-safe enough for a last word. */
size_t sim_trace_to_text(char *buf, size_t len);

#endif
