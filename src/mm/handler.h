/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait for faults: one on each CPU, with its own epoll set.
 *
 * A userfaultfd belongs to one handler at a time, the one on the CPU where its program was last
 * seen: a fault answered on the same CPU costs a fraction of one that has to wake another CPU.
 * The program's CPU is sampled every 16 services; less often while it is the same.
 */
#ifndef USWAP_MM_HANDLER_H
#define USWAP_MM_HANDLER_H

#include "mm/mm.h"

int handlers_start(struct mm *mm) __must_check;
void handlers_stop(struct mm *mm);
/* Begins to serve fd for s. 0 or -errno. */
int handlers_add(struct mm *mm, struct space *s, int fd) __must_check;
/* No new service of s starts afterwards, though one may be going on: see handlers_grace(). */
void handlers_remove(struct mm *mm, struct space *s);
/*
 * Notes the moment in s. Once handlers_passed() is true, every handler has been around since, and
 * none can hold a pointer to s if it was removed before.
 */
void handlers_grace(struct mm *mm, struct space *s);
bool handlers_passed(struct mm *mm, const struct space *s);

#endif
