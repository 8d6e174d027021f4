/* SPDX-License-Identifier: MIT */
/*
 * Children that the C library's fork() does not make: _Fork, raw clone and clone3, vfork and
 * posix_spawn with exec, processes and threads that share the memory (CLONE_VM).
 */
#include "behave.h"

#include <linux/futex.h>
#include <linux/sched.h>
#include <spawn.h>

#define NR 128

extern char **environ;
static char *p;

static void fresh(int seed)
{
	fill_pages(p, NR, seed);
	await_eviction(p, NR);
}

static pid_t raw_clone(void)
{
	return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static pid_t raw_clone3(void)
{
	struct clone_args args = {.exit_signal = SIGCHLD};

	return syscall(SYS_clone3, &args, sizeof(args));
}

static void copies(pid_t (*make)(void), const char *what, int seed)
{
	pid_t pid;

	fresh(seed);
	pid = make();
	must(pid >= 0);
	if (pid == 0) {
		check_pages(p, NR, seed, what);
		fill_pages(p, NR, seed + 1);
		usleep(20000);
		check_pages(p, NR, seed + 1, what);
		_exit(11);
	}
	check_pages(p, NR / 2, seed, what);
	must(reap(pid) == 11);
	check_pages(p, NR, seed, what);
}

static void execs(int seed)
{
	char *argv[] = {"clone_ways", "child", NULL};
	pid_t pid;

	fresh(seed);
	pid = vfork();
	must(pid >= 0);
	if (pid == 0) {
		execv("/proc/self/exe", argv);
		_exit(99);
	}
	check_pages(p, NR, seed, "after vfork");
	must(reap(pid) == 12);
	fresh(seed + 1);
	/* A vforked child may look at the memory, and what it writes is its parent's. */
	pid = vfork();
	must(pid >= 0);
	if (pid == 0) {
		check_pages(p, NR, seed + 1, "vfork's child");
		fill_pages(p + PAGE_BYTES, 1, seed + 2);
		_exit(13);
	}
	must(reap(pid) == 13);
	check_pages(p + PAGE_BYTES, 1, seed + 2, "what vfork's child wrote");
	fresh(seed + 3);
	must(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
	must(reap(pid) == 12);
	check_pages(p, NR, seed + 3, "after posix_spawn");
}

static int sharer(void *arg)
{
	int seed = (int)(long)arg;

	check_pages(p, NR, seed, "a sharer");
	fill_pages(p, NR, seed + 1);
	for (int i = 0; i < 20; i++) {
		struct timespec ms = {0, 1000000};

		syscall(SYS_nanosleep, &ms, NULL);
		check_pages(p, NR, seed + 1, "a sharer's own");
	}
	return 14;
}

static void sharers(int seed)
{
	static int alive[4];
	char *stacks = map_pages(64);
	pid_t pid;

	fresh(seed);
	pid = clone(sharer, stacks + 16 * PAGE_BYTES, CLONE_VM | SIGCHLD, (void *)(long)seed);
	must(pid > 0);
	must(reap(pid) == 14);
	check_pages(p, NR, seed + 1, "what a process with the same memory wrote");
	fresh(seed + 2);
	for (int i = 0; i < 4; i++) {
		alive[i] = 1;
		pid = clone(sharer, stacks + (i + 1) * 16 * PAGE_BYTES,
			    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
				    CLONE_SYSVSEM | CLONE_CHILD_CLEARTID,
			    (void *)(long)(seed + 2), NULL, NULL, &alive[i]);
		must(pid > 0);
		while (__atomic_load_n(&alive[i], __ATOMIC_SEQ_CST))
			syscall(SYS_futex, &alive[i], FUTEX_WAIT, 1, NULL, NULL, 0);
		check_pages(p, NR, seed + 3, "what a thread wrote");
		fresh(seed + 2);
	}
	munmap(stacks, 64 * PAGE_BYTES);
}

int main(int argc, char **argv)
{
	p = map_pages(NR);
	if (argc > 1 && !strcmp(argv[1], "child")) {
		fresh(77);
		check_pages(p, NR, 77, "after exec");
		return 12;
	}
	copies(_Fork, "_Fork", 1);
	copies(raw_clone, "clone", 3);
	copies(raw_clone3, "clone3", 5);
	execs(10);
	sharers(20);
	return 0;
}
