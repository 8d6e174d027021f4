/* SPDX-License-Identifier: MIT */
/*
 * Small things every layer needs: page geometry, min/max, container_of.
 * Not its job: anything with state. No locking, no allocation.
 */
#ifndef USWAP_BASE_UTIL_H
#define USWAP_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define MAX_ORDER 9 /* largest folio: 2^9 pages = 2 MiB */
#define MAX_FOLIO_PAGES (1u << MAX_ORDER)
#define MAX_FOLIO_BYTES ((size_t)MAX_FOLIO_PAGES << PAGE_SHIFT)

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define __must_check __attribute__((warn_unused_result))
#define __printf(f, a) __attribute__((format(printf, f, a)))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* What a loop does that waits for another CPU. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* Each argument is evaluated once. */
#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__auto_type min_a_ = (a);                                                          \
		__auto_type min_b_ = (b);                                                          \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__auto_type max_a_ = (a);                                                          \
		__auto_type max_b_ = (b);                                                          \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
	})
#define CLAMP(v, lo, hi) MIN(MAX(v, lo), hi)

static inline uint64_t align_up(uint64_t v, uint64_t a)
{
	return (v + a - 1) & ~(a - 1);
}

static inline uint64_t align_down(uint64_t v, uint64_t a)
{
	return v & ~(a - 1);
}

static inline uint64_t bytes_to_pages(uint64_t bytes)
{
	return (bytes + PAGE_SIZE - 1) >> PAGE_SHIFT;
}

#endif
