/* SPDX-License-Identifier: MIT */
/*
 * Raw system calls for code that runs in strangers' processes: no libc, no errno, no TLS.
 * Each call returns the kernel's value: >= 0, or -errno.
 */
#ifndef USWAP_AGENT_RAW_H
#define USWAP_AGENT_RAW_H

#include <asm/unistd.h>
#include <stdint.h>

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#define RAW6(nr, a, b, c, d, e, f)                                                                 \
	raw6((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW5(nr, a, b, c, d, e) RAW6(nr, a, b, c, d, e, 0)
#define RAW4(nr, a, b, c, d) RAW6(nr, a, b, c, d, 0, 0)
#define RAW3(nr, a, b, c) RAW6(nr, a, b, c, 0, 0, 0)
#define RAW2(nr, a, b) RAW6(nr, a, b, 0, 0, 0, 0)
#define RAW1(nr, a) RAW6(nr, a, 0, 0, 0, 0, 0)
#define RAW0(nr) RAW6(nr, 0, 0, 0, 0, 0, 0)

/*
 * clone(2) onto a new stack (its top, 16-aligned); the child runs fn(arg) and exits with status 0.
 * Returns the child's pid or -errno.
 */
long raw_clone(unsigned long flags, void *stack_top, void (*fn)(void *), void *arg);

#endif
