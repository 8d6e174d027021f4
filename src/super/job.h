/* SPDX-License-Identifier: MIT */
/*
 * Private to src/super: the job and its processes, and what the files of this folder share.
 *
 *   super.c      super_run(): checks, the front process, exit status
 *   supervisor.c the supervisor's set-up, main loop and end
 *   front.c      the front process: terminal, signals, job control
 *   spawn.c      starts the command        keeper.c   outlives a supervisor that dies
 *   watchdog.c   sees one that hangs
 *   hello.c      handshakes with helpers   procs.c    the table of processes
 *   growth.c     measures the budget       oom.c      ends processes when it is full
 *   unmanaged.c  why a program is not managed
 *   devices.c    makes the swap devices    tiers.c    policies, tiers, who may use which
 *   stat.c, ctl.c  exports
 *   swapctl.c    swapon and swapoff of a running job
 *   refused.c    memory the kernel refused   limits.c   resource limits
 *
 * Threads: the main loop owns the life of processes; growth, kswapd (out_of_memory) and control
 * look them up under job->lock.
 */
#ifndef USWAP_SUPER_JOB_H
#define USWAP_SUPER_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/thread.h"
#include "mm/mm.h"
#include "super/super.h"
#include "swap/swapoff.h"

#define REASON_BYTES 96
#define RUNDIR_MAX 85 /* bytes: with a name behind it, it is the address of a socket */
#define MAX_PROCS 16384
#define MAX_ENDED_REPORTED 1000

/* One process of the job. */
struct proc {
	struct list_node node; /* job->procs or job->ended */
	pid_t pid, ppid;
	pid_t task; /* whose /proc files tell of the memory: pid, or a thread that outlived it */
	int pidfd, statm_fd; /* -1: not open */
	char comm[16];
	struct space *space;  /* NULL: not managed (yet) */
	pid_t helper;	      /* 0: none */
	int helper_pidfd;     /* the space's; valid while it lives */
	bool managed;	      /* has, or at its end had, a space */
	atomic_bool shares_memory; /* vfork: its memory is its parent's until it execs */
	bool named;	      /* its unmanaged program has been dealt with */
	uint8_t swap_class;   /* which tiers, and how: tiers.c */
	bool class_was_set;   /* by `uswap set`, for this process */
	bool oom_victim;      /* was ended for want of room */
	atomic_bool forked;	   /* came by fork and has not exec'ed since: shares pages */
	char reason[REASON_BYTES]; /* why not managed */
	uint64_t image_since_ns;   /* when this program was first seen in it */
	uint64_t exe_ino, exe_dev; /* of the program seen last */
	/* last measured, pages */
	uint64_t anon_pages, size_pages;
	uint64_t scanned_pages; /* size_pages when its ranges were looked at last */
	uint64_t scan_round;
	uint64_t swapped_pages, faults; /* kept when the space goes */
};

enum front_kind { FRONT_STARTED, FRONT_STOPPED, FRONT_CONTINUED, FRONT_ENDED, FRONT_FAILED };

/*
 * From the supervisor to the front process. The front answers each STOPPED with one byte when it
 * has stopped and runs again, or has found that it need not stop.
 */
struct front_msg {
	uint32_t kind;	/* enum front_kind */
	int32_t value;	/* STARTED: pid; STOPPED: signal; ENDED: wait status; FAILED: exit status */
	int32_t final;	/* ENDED: nothing of the job is left, the supervisor ends too */
};

#define KEEPER_SLOTS MAX_PROCS
/* Shared with the keeper: descriptors (of the common table) of every live process. */
struct keeper_table {
	_Atomic int pidfd[KEEPER_SLOTS]; /* descriptor + 1; 0: free */
};

/* The one swapon or swapoff that may be under way: swapctl.c. */
struct swapctl {
	struct us_thread thread;
	atomic_bool busy;
	/* the control thread's before the thread starts, the thread's then */
	int fd;
	uint32_t verb;
	char *arg;
};

struct proc_class {
	struct tier_names names;
	enum queue_policy policy;
	bool known;
};

struct job {
	const struct run_config *cfg;
	char id[16];
	uint64_t started_ns;
	struct mm mm;
	struct swap *swap;
	_Atomic enum queue_policy queue_policy; /* the job's; POLICY_DEFAULT: none was named */
	uint8_t command_class;
	struct zram_group zram_group; /* what they all take of the budget */

	const char *created[SUPER_MAX_SWAPS]; /* kept files that this job made */
	unsigned int nr_created;
	char agent_path[4096];
	char rundir[200], socket_path[RUNDIR_MAX + 16];
	int agent_listen[2]; /* by path, and abstract */
	int ctl_listen;
	int epoll_fd, signal_fd, timer_fd;
	int front_fd;	     /* to the front process; -1: it has gone */
	int uffd_dev;	     /* /dev/userfaultfd */
	pid_t front, command, keeper;
	bool command_stopped;
	unsigned int front_stops; /* STOPPED that the front has not answered */
	struct keeper_table *keeper_table;
	struct watch *watch; /* of the main loop */
	int self_statm_fd;
	char command_reason[REASON_BYTES]; /* why the command itself cannot be managed */

	struct us_mutex lock;
	/* protected by lock */
	struct list_node procs, ended;
	struct mem_pool proc_pool;
	unsigned int nr_procs, nr_ended;
	struct proc_class class[SWAP_MAX_CLASSES]; /* 0: everything, the job's policy */
	uint64_t shared_bytes; /* counted twice in the sum of statm: pages shared after fork */
	uint64_t shared_at_ns, shared_cost_ns;
	uint64_t scan_round;   /* growth's */
	bool oom_pending;      /* a process was ended for want of room and is not gone yet */
	unsigned int oom_rounds; /* how often there was no room since */

	bool command_ended, ending;
	int command_status; /* wait status */
	int ended_signal;
	int failure;	    /* exit status if the command could not be started */
	atomic_bool stop;
	int stop_fd; /* eventfd: readable once stop is set */
	struct us_thread growth, ctl;
	struct swapctl swapctl;
};

/* supervisor.c */
int supervisor_main(const struct run_config *cfg, int front_fd, pid_t front);
void job_kill_all(struct job *j);

/* front.c: returns the exit status. */
int front_main(int sup_fd, pid_t sup, const sigset_t *orig_mask);

/* The signal mask with which the user started us, for the command. */
extern sigset_t super_orig_mask;

/* limits.c: the supervisor's resource limits up as far as may be; the user's own, for the command */
void limits_raise(void);
void limits_restore(void);
/* With so few descriptors nothing works: says so and returns true. */
bool limits_too_few_descriptors(void);
/* Memory was refused: says so and returns true if a limit of address space is to blame. */
bool limits_explain_enomem(void);

/* spawn.c: pid of the command, or -errno; *failure gets 126/127 when exec failed. */
pid_t spawn_command(struct job *j, int *failure);
int find_agent(char *buf, size_t len);

/* keeper.c */
int keeper_start(struct job *j);
void keeper_stop(struct job *j);
void keeper_add(struct job *j, struct proc *p);
void keeper_remove(struct job *j, struct proc *p);

/* procs.c; job->lock held where it says so */
struct proc *proc_find(struct job *j, pid_t pid);	  /* lock held */
struct proc *proc_add(struct job *j, pid_t pid, pid_t ppid); /* lock held; NULL: gone */
/* It is a helper, not a process of the job. No lock held. */
void proc_forget(struct job *j, pid_t pid);
/* The process ended: its space goes, its figures stay. Main loop only, no lock held. */
void proc_ended(struct job *j, pid_t pid);
/* Its program was replaced: the space of the old memory goes. Main loop only, no lock held. */
void proc_retire_space(struct job *j, struct proc *p);
/* Looks for processes that appeared, exec'ed, or run unmanaged. Main loop only, no lock held. */
void procs_scan(struct job *j, bool thorough);
/* Is there a living memory whose process is not known yet? */
bool procs_space_without_owner(struct job *j);
/* Is pid the supervisor's descendant? */
bool proc_is_descendant(pid_t pid, pid_t ancestor);

/* hello.c */
int hello_listen(struct job *j);
void hello_accept(struct job *j, int listen_fd);
void hello_readable(struct job *j, int fd);
bool hello_is_helper(pid_t pid);

/*
 * refused.c: says so when the kernel refuses a process of the job memory. Main loop only; watch
 * before the command starts, look whenever something happened and before processes are forgotten.
 */
void refused_watch(struct job *j);
void refused_look(struct job *j);
int refused_fd(void); /* in the epoll set; -1: none */

/* growth.c */
int growth_start(struct job *j);
uint64_t job_measure(void *job); /* mm_host_ops.measure */

/* oom.c: mm_host_ops.out_of_memory; true if a process was ended now. */
bool job_out_of_memory(void *job);

/* unmanaged.c */
/* Why the program at path cannot be managed: 1 and the reason, else 0. */
int unmanaged_reason_file(const char *path, char *reason, size_t len);
/* False when nothing speaks against it, so that its helper must have failed. */
bool unmanaged_reason_pid(struct job *j, pid_t pid, char *reason, size_t len);

/* hooks.c: reads USWAP_TEST where super_test_hooks is set. */
void hooks_read(void);

/* devices.c: 0, or -errno after a message. */
int devices_create(struct job *j);
/*
 * What compressed memory may take of a budget, now that there are these devices; `leaving` counts as
 * gone already (NULL: none).
 */
void devices_set_limits(struct job *j, uint64_t ram_bytes, const char *leaving);
/* 0, or -errno and nothing has changed. text: one line, either way. Blocks. */
int devices_add(struct job *j, const struct swap_spec *sp, char *text, size_t len);
int devices_remove(struct job *j, const char *name,
		   bool (*progress)(void *host, const struct swap_off_progress *p), void *host,
		   char *text, size_t len);
/* The least budget that what is compressed now leaves room to run in: it cannot be moved on yet. */
uint64_t devices_least_ram(struct job *j);
/* A start that failed: removes the files that were to be kept. */
void devices_forget(struct job *j);

/* tiers.c. Before devices are made: 0, or -errno after a message. */
int tiers_create(struct job *j);
/* A process that is new in the table takes its parent's class. lock held. */
void tiers_new_proc(struct job *j, struct proc *p);
/* p gets its memory, by fork or for a new program: which of them says what holds. lock held. */
void tiers_attach(struct job *j, struct proc *p, struct space *s, bool forked);
/* Names of the tiers of a class, "all" if it may use every one. lock held. */
void tiers_text(struct job *j, unsigned int class, char *buf, size_t len);
/* Control thread only. 0, or -errno with a sentence in why; nothing has changed then. */
int tiers_set(struct job *j, struct set_request *req, char *why, size_t len);

/* stat.c: malloc'ed text, or NULL. */
char *stat_json(struct job *j);
char *stat_swaps(struct job *j);
char *stat_ps(struct job *j);
char *stat_job_line(struct job *j);
int report_write(struct job *j);

/* ctl.c */
int ctl_start(struct job *j);
void ctl_reply(int fd, int error, const char *text);

/*
 * swapctl.c: takes fd and arg (malloc'ed) over, answers and frees them. Control thread only. join
 * after that has ended and job->stop is set.
 */
void swapctl_begin(struct job *j, int fd, uint32_t verb, char *arg);
void swapctl_join(struct job *j);

#endif
