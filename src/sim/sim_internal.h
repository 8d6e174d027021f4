/* SPDX-License-Identifier: MIT */
/*
 * What the files of src/sim share. One world, one running thread: nothing here needs a lock.
 *
 *   vthread.c  threads, their states, start and end, the trace
 *   explore.c  who goes on when somebody chooses
 *   shared.c   which operations meet those of other threads
 *   time.c     who goes on in virtual time: events, CPUs
 *   cost.c     cache lines
 *   lock.c, thread.c   base/lock.h and base/thread.h
 */
#ifndef USWAP_SIM_SIM_INTERNAL_H
#define USWAP_SIM_SIM_INTERNAL_H

#include "base/lock.h"
#include "base/thread.h"
#include "sim/fiber.h"
#include "sim/hook.h"
#include "sim/sim.h"

enum vmode { MODE_NONE, MODE_EXPLORE, MODE_TIME };

enum vstate {
	V_READY, /* can go on */
	V_LOCK,	 /* wants a mutex; can go on while nobody holds it (exploring) */
	V_COND,	 /* waits for a signal */
	V_JOIN,	 /* waits for the end of another */
	V_SLEEP, /* until wake_at_ns */
	V_DONE,
};

#define MAX_HELD 16

struct vthread {
	struct fiber fiber;
	unsigned int id, cpu;
	char name[16];
	enum vstate state;
	void (*fn)(void *arg);
	void *arg;
	struct us_mutex *wants; /* V_LOCK; V_COND: to be taken again */
	struct us_cond *waits;	/* V_COND */
	struct vthread *joins;	/* V_JOIN */
	struct vthread *next;	/* of those that wait for the same mutex or condition */
	uint64_t wake_at_ns;	/* V_SLEEP, V_COND: when it goes on by itself; 0: never */
	bool timed_out;
	struct us_mutex *held[MAX_HELD];
	unsigned int nr_held;
	/* what it is about to do, for the trace */
	enum sim_op op;
	const volatile void *object;
	const char *file;
	int line;
	/* virtual time only */
	uint64_t now_ns, wait_since_ns;
	uint64_t stores_done_ns; /* until then lines are under way for what it has stored */
	uint32_t turn; /* decides among equal times */
	unsigned int heap_at; /* place in the heap of events + 1; 0: not there */
	struct vthread *cpu_next; /* of those that wait for the CPU */
	struct vthread *joiners; /* wait for its end, linked by next */
};

struct vqueue {
	struct vthread *head, *tail;
};

/* Inside the space that base/lock.h gives to the real ones. All zeros: free, nobody waits. */
struct vmutex {
	struct vthread *owner;
	struct vqueue waiters; /* first come, first served; virtual time only */
};
struct vcond {
	struct vqueue waiters;
};
_Static_assert(sizeof(struct vmutex) <= sizeof(pthread_mutex_t), "a virtual mutex fits");
_Static_assert(sizeof(struct vcond) <= sizeof(pthread_cond_t), "a virtual condition fits");

static inline struct vmutex *vmutex_of(struct us_mutex *l)
{
	return (struct vmutex *)(void *)&l->m;
}

static inline struct vcond *vcond_of(struct us_cond *c)
{
	return (struct vcond *)(void *)&c->c;
}

struct vcpu {
	struct vthread *running; /* or about to */
	struct vthread *first, *last; /* that could run */
	uint64_t free_at_ns;
	struct sim_cpu_result result;
};

struct trace_step {
	unsigned short thread;
	unsigned char op;
	bool switched;
	const volatile void *object;
	const char *file, *name;
	int line;
};
#define TRACE_STEPS 4096u

struct vworld {
	enum vmode mode;
	struct vthread outside; /* whoever called; also stands for code outside a run */
	struct vthread *cur;
	struct vthread *threads[SIM_MAX_THREADS];
	unsigned int nr_threads, nr_live, nr_cpus;
	/* exploring */
	struct sim_explore_config cfg;
	struct sim_choice choice;
	uint64_t steps, clock_ns;
	struct trace_step trace[TRACE_STEPS];
	uint64_t nr_traced;
	/* virtual time */
	struct sim_costs costs;
	struct sim_result *result;
	struct vcpu cpus[SIM_MAX_CPUS];
	struct vthread *heap[SIM_MAX_THREADS];
	unsigned int nr_heap;
	bool stuck;
};
extern struct vworld vworld;

static inline struct vthread *vcurrent(void)
{
	return vworld.cur ? vworld.cur : &vworld.outside;
}

void vqueue_push(struct vqueue *q, struct vthread *t);
struct vthread *vqueue_pop(struct vqueue *q);
/* Removes t, which is in q. */
void vqueue_remove(struct vqueue *q, struct vthread *t);

/* ---- vthread.c ---- */

/* A thread of the present mode; it does not run yet. NULL: no memory, or too many. */
struct vthread *vthread_new(const char *name, unsigned int cpu, void (*fn)(void *), void *arg);
/* Before the first thread of a run and after the last one. */
void vworld_begin(enum vmode mode, unsigned int nr_cpus);
void vworld_end(void);
void vswitch(struct vthread *to);
void vtrace(struct vthread *t, enum sim_op op, const volatile void *object, const char *name,
	    const char *file, int line);
void vfail(enum sim_failure kind, const char *fmt, ...) __printf(2, 3)
	__attribute__((noreturn));

/* ---- explore.c ---- */

/* The running thread is about to do op: somebody goes on, perhaps another. */
void explore_point(enum sim_op op, const volatile void *object, const char *name);
/* The running thread has changed its state; returns when it may go on. */
void explore_block(void);
/* One of those that wait for c; which one is a choice. NULL: nobody. */
struct vthread *explore_pick_waiter(struct vcond *c);

/* ---- shared.c ---- */

void shared_begin_run(void);
/*
 * t, whose file and line say where, is about to do op. False: nothing that is done there has ever
 * met another thread.
 */
bool shared_note(const struct vthread *t, enum sim_op op, const volatile void *object);

/* ---- time.c ---- */

/* Lets all go first that are earlier, so that operations happen in the order of time. */
void time_point(void);
void time_spend(uint64_t ns);
/* The running thread waits for something; returns when somebody called time_wake(). */
void time_block(void);
/* The same, at most until wake_at_ns. */
void time_block_until(uint64_t wake_at_ns);
/* t can go on at that time or later. */
void time_wake(struct vthread *t, uint64_t at_ns);
void time_end(void) __attribute__((noreturn));

/* ---- cost.c ---- */

enum line_use { LINE_READ, LINE_WRITE, LINE_STORE /* a write that nobody waits for */ };
/* 0 or -ENOMEM. */
int lines_reset(void) __must_check;
/* Spends what the running thread pays for the line of p, own_ns if it has it. */
void line_access(const volatile void *p, enum line_use use, uint64_t own_ns);
/* Waits until everybody sees what the running thread has stored. */
void line_drain(void);
/* What moving a line from one CPU to another costs. */
uint64_t line_move_ns(unsigned int from, unsigned int to);
/* Without cost: the line is now cpu's. */
void line_give(const volatile void *p, unsigned int cpu);

/* ---- lock.c ---- */

/* All counts of all classes to zero; then r gets what was taken since. */
void lock_classes_reset(void);
void lock_classes_result(struct sim_result *r);

#endif
