/* SPDX-License-Identifier: MIT */
/*
 * A filter that kills for every system call but a few, for the thread that asks ("thread"), for all
 * ("all"), or the kernel's own strict mode ("strict"). Pages go out and come back all the same.
 */
#include "behave.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <x86intrin.h>

#define NR 256
#define ALLOW(nr)                                                                                  \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static char *p, *q;
static int ready, begin, done;

static void install(unsigned int flags)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_rt_sigreturn),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) == 0);
}

/* Some tens of milliseconds without a system call; strict mode forbids to read the clock, too. */
static void linger(void)
{
	for (int i = 0; i < 500000; i++)
		_mm_pause();
}

static void work(char *m, int seed)
{
	for (int i = 0; i < 4; i++) {
		fill_pages(m, NR, seed + i);
		linger();
		check_pages(m, NR, seed + i, "under the filter");
	}
}

static void *other(void *arg)
{
	/* What the C library does at a thread's start is no matter of this test. */
	__atomic_store_n(&ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&begin, __ATOMIC_SEQ_CST))
		_mm_pause();
	check_pages(q, NR, 2, "in the other thread");
	work(q, 200);
	__atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
	if (arg)
		syscall(SYS_exit, 0);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "thread";
	bool all = !strcmp(how, "all");
	pthread_t t;

	p = map_pages(NR);
	q = map_pages(NR);
	fill_pages(p, NR, 1);
	fill_pages(q, NR, 2);
	must(pthread_create(&t, NULL, other, all ? &all : NULL) == 0);
	while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST))
		sched_yield();
	await_eviction(p, NR);
	await_eviction(q, NR);
	if (!strcmp(how, "strict"))
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
	else
		install(all ? SECCOMP_FILTER_FLAG_TSYNC : 0);
	__atomic_store_n(&begin, 1, __ATOMIC_SEQ_CST);
	check_pages(p, NR, 1, "what was out before the filter");
	work(p, 100);
	while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
		_mm_pause();
	must(write(1, "right\n", 6) == 6);
	syscall(SYS_exit, 0);
}
