/* SPDX-License-Identifier: MIT */
/*
 * userfaultfd(2) calls on a memory that need not be the caller's own.
 * Each returns 0 (or a count) or -errno. Locking: none, the kernel's. None of them waits for the
 * program, except as the kernel takes its mmap lock.
 */
#ifndef USWAP_SYS_UFFD_H
#define USWAP_SYS_UFFD_H

#include <stdint.h>

#include "base/util.h"
#include "sys/uapi.h"

/* What `run` cannot do without; EVENT_FORK needs CAP_SYS_PTRACE in the caller. */
#define UFFD_FEATURES_REQUIRED                                                                     \
	(UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |          \
	 UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_MOVE |                   \
	 UFFD_FEATURE_POISON)

int uffd_handshake(int fd, uint64_t features) __must_check;
int uffd_register(int fd, uint64_t start, uint64_t bytes, uint64_t mode) __must_check;

/*
 * Fills nr missing pages at dst from src and wakes who waits there. Returns the number of pages
 * filled (>= 1; a partial success is one), or -errno if none was: -EAGAIN (an event is unread),
 * -EEXIST (present), -ENOENT (not registered), -ESRCH (the memory is gone), -ENOMEM.
 */
int64_t uffd_copy(int fd, uint64_t dst, const void *src, uint64_t nr_pages) __must_check;
/* Maps the zero page at dst; as above, for one page. */
int uffd_zeropage(int fd, uint64_t dst) __must_check;
/* Poisons nr missing pages: who touches one gets SIGBUS. Returns pages poisoned or -errno. */
int64_t uffd_poison(int fd, uint64_t dst, uint64_t nr_pages) __must_check;
int uffd_wake(int fd, uint64_t start, uint64_t nr_pages);
/*
 * Is the page at va part of a registered range? 1 yes, 0 no, -EAGAIN while an event is unread,
 * -ESRCH. Changes nothing: it is a copy from an address that cannot be read.
 */
int uffd_registered(int fd, uint64_t va) __must_check;

#endif
