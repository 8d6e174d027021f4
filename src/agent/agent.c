/* SPDX-License-Identifier: MIT */
/*
 * The preloaded library: says hello for its process and starts the helper.
 *
 * The program's threads run this file in two places only: before main(), and in a forked child
 * before fork() or _Fork() returns there. In both it makes a few system calls with all signals
 * blocked, never opens a descriptor in the program's table, and leaves no child that the program
 * could reap.
 */
#include "agent/agent.h"

#include <asm/signal.h>
#include <linux/errno.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/time_types.h>
#include <linux/wait.h>

#include "agent/raw.h"

#define MADV_WIPEONFORK_ 18
#define START_TIMEOUT_MS 5000

struct agent_local agent_local;

/* glibc's registration of fork handlers; absent in other C libraries. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso) __attribute__((weak));
/* Where it is in a library of its own (glibc before 2.34) the C library has no _Fork() either. */
extern void *dlsym(void *handle, const char *name) __attribute__((weak));
#define RTLD_NEXT_ ((void *)-1l)
extern int *__errno_location(void) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));
void *__dso_handle = &__dso_handle;

/*
 * Neither follows a tracer of the program (strace -f): that would stop what the program's own
 * faults wait for.
 *
 * A parent that exits at once, so that the helper is adopted by the supervisor (the nearest
 * subreaper) and the program never has it as a child.
 */
static void mid_main(void *unused)
{
	(void)unused;
	/* Before the helper runs: it waits until this process is not its parent any more. */
	agent_local.mid = (int32_t)RAW0(__NR_getpid);
	agent_local.helper = (int32_t)raw_clone(CLONE_VM | CLONE_UNTRACED | SIGCHLD,
						agent_local.helper_stack + HELPER_STACK,
						helper_main, 0);
}

/*
 * CLONE_VFORK: this thread sleeps until mid is gone, so mid_stack is free again. The exit signal
 * is 0, so the program gets no SIGCHLD for it.
 */
static long start_helper(uint32_t kind)
{
	uint64_t all = ~0ull, old = 0;
	long mid;
	int status;

	RAW4(__NR_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	agent_local.kind = kind;
	agent_local.program = (int32_t)RAW0(__NR_getpid);
	agent_local.helper = 0;
	agent_local.ctl = 0;
	agent_local.status = HELPER_STARTING;
	mid = raw_clone(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED,
			agent_local.mid_stack + MID_STACK, mid_main, 0);
	while (mid > 0 && RAW4(__NR_wait4, mid, &status, __WALL, 0) == -4 /* EINTR */)
		;
	RAW4(__NR_rt_sigprocmask, SIG_SETMASK, &old, 0, 8);
	if (mid < 0)
		return mid;
	return agent_local.helper > 0 ? 0 : agent_local.helper;
}

/* Before main(): nothing of the program has run, and it starts only when it is managed or not. */
static void wait_for_helper(void)
{
	struct __kernel_timespec ts = {.tv_sec = 0, .tv_nsec = 50 * 1000 * 1000};

	for (int waited = 0; waited < START_TIMEOUT_MS; waited += 50) {
		if (__atomic_load_n(&agent_local.status, __ATOMIC_ACQUIRE) != HELPER_STARTING)
			return;
		RAW4(__NR_futex, &agent_local.status, FUTEX_WAIT_PRIVATE, HELPER_STARTING, &ts);
		if (RAW2(__NR_kill, agent_local.helper, 0) == -3 /* ESRCH */)
			return;
	}
}

static void fork_child(void)
{
	volatile struct agent_sentinel *s = (void *)agent_local.sentinel;

	/*
	 * Reading the sentinel waits for the supervisor's answer by way of a page fault: no system
	 * call is made that a filter of the program's might punish.
	 */
	if (!s || !s->nonce || !s->may_start_helper)
		return;
	(void)start_helper(AGENT_FORKED);
}

static void find_libc_fork(void)
{
	if (dlsym && !agent_local.libc_fork)
		agent_local.libc_fork = (int32_t(*)(void))dlsym(RTLD_NEXT_, "_Fork");
}

/*
 * _Fork() runs no handlers, and a child without a helper can never be evicted: what it holds is
 * lost to the budget, and others would be ended for it. The C library's own fork() calls its
 * _Fork() directly, not this one. Like _Fork() this may be called by a handler of a signal: the
 * look-up, which may not, is done before main().
 */
__attribute__((visibility("default"))) int32_t _Fork(void)
{
	int32_t pid;

	find_libc_fork(); /* a constructor that runs before ours */
	if (!agent_local.libc_fork) {
		if (__errno_location)
			*__errno_location() = ENOSYS;
		return -1;
	}
	pid = agent_local.libc_fork();
	if (pid == 0)
		fork_child();
	return pid;
}

static int copy_socket_path(char **envp)
{
	const char *key = AGENT_ENV_SOCKET "=";

	for (; *envp; envp++) {
		const char *e = *envp, *k = key;
		unsigned int n = 0;

		while (*k && *e == *k)
			e++, k++;
		if (*k)
			continue;
		for (; e[n]; n++) {
			if (n + 1 >= AGENT_SOCKET_PATH_MAX)
				return 0;
			agent_local.socket_path[n] = e[n];
		}
		return n > 0;
	}
	return 0;
}

/*
 * The sentinel lies alone between two inaccessible pages, so that its VMA never merges with
 * another one and its registration never splits a VMA of the program's.
 */
static int make_sentinel(void)
{
	long p = RAW6(__NR_mmap, 0, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p < 0 && p > -4096)
		return 0;
	if (RAW3(__NR_mprotect, p + PAGE, PAGE, PROT_READ | PROT_WRITE) ||
	    RAW3(__NR_madvise, p + PAGE, PAGE, MADV_WIPEONFORK_)) {
		RAW2(__NR_munmap, p, 3 * PAGE);
		return 0;
	}
	agent_local.sentinel = (uint64_t)p + PAGE;
	return 1;
}

__attribute__((constructor)) static void agent_init(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)argv;
	find_libc_fork();
	/* musl calls constructors without arguments: what is in their place is no environment. */
	if (!__register_atfork)
		return;
	if (!envp || !copy_socket_path(envp) || !make_sentinel())
		return;
	if (start_helper(AGENT_NEW_PROGRAM) == 0)
		wait_for_helper();
	if (__atomic_load_n(&agent_local.status, __ATOMIC_ACQUIRE) != HELPER_READY) {
		/* Unmanaged: leave nothing that a forked child would wait on. */
		RAW2(__NR_munmap, agent_local.sentinel - PAGE, 3 * PAGE);
		agent_local.sentinel = 0;
		return;
	}
	__register_atfork(0, 0, fork_child, __dso_handle);
}
