/* SPDX-License-Identifier: MIT */
/*
 * The helper lives in the memory of a program that may be hostile or may be taken over later, and
 * it outlives the program's own setuid. So it keeps only the calls of its loop; everything else
 * ends it, which the supervisor notices.
 */
#include "agent/agent.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>

#include "agent/raw.h"
#include "sys/uapi.h"

#define NR_OFF 0  /* offsetof(struct seccomp_data, nr) */
#define ARCH_OFF 4
#define ARG1_OFF 24 /* low half of args[1] */

#define LOAD(off) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, off)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define ALLOW_CALL(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), ALLOW

long helper_confine(void)
{
	struct sock_filter code[] = {
		LOAD(ARCH_OFF),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		KILL,
		LOAD(NR_OFF),
		ALLOW_CALL(__NR_futex),
		ALLOW_CALL(__NR_madvise),
		ALLOW_CALL(__NR_sched_yield),
		ALLOW_CALL(__NR_getppid),
		ALLOW_CALL(__NR_poll),
		ALLOW_CALL(__NR_restart_syscall),
		ALLOW_CALL(__NR_pidfd_send_signal),
		ALLOW_CALL(__NR_exit),
		ALLOW_CALL(__NR_exit_group),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 1, 0),
		KILL,
		LOAD(ARG1_OFF),
		ALLOW_CALL((uint32_t)UFFDIO_MOVE),
		ALLOW_CALL((uint32_t)UFFDIO_REGISTER),
		ALLOW_CALL((uint32_t)UFFDIO_UNREGISTER),
		KILL,
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	return RAW3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}
