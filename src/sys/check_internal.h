/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the feature check: adding items, remedies, the userfaultfd probes.
 */
#ifndef USWAP_SYS_CHECK_INTERNAL_H
#define USWAP_SYS_CHECK_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "sys/check.h"

/* Where we run, as far as it changes the remedies. */
struct check_place {
	bool container;
	bool user_namespace; /* not the initial one */
	bool root;
};

void check_find_place(struct check_place *p);

/* The commands that give access to userfaultfd, and the capability. One line each. */
void check_remedy_device(const struct check_place *p, char *buf, size_t len);
void check_remedy_ptrace(const struct check_place *p, char *buf, size_t len);
#define CHECK_REMEDY_KERNEL                                                                        \
	"boot Linux 6.8 or later, built with CONFIG_USERFAULTFD=y and CONFIG_PROC_PAGE_MONITOR=y"

/* Adds an item that is there (CHECK_OK); the caller may change its state, detail and remedy. */
struct check_item *check_add(struct check_report *r, const char *name, bool required,
			     const char *purpose);
void check_detail(struct check_item *it, const char *fmt, ...) __printf(2, 3);
/* Marks it as missing and sets the remedy. */
void check_missing(struct check_item *it, const char *fmt, ...) __printf(2, 3);

/*
 * A new userfaultfd without handshake, or -errno. From the device only: programs of the job open
 * theirs through it, and have no right to the system call.
 */
int check_open_uffd(void);

/* The userfaultfd features that uswap uses. */
struct check_feature {
	const char *name, *purpose;
	uint64_t bit;
	bool required;
};
extern const struct check_feature check_features[];
extern const unsigned int nr_check_features;
uint64_t check_required_features(void);

/*
 * The handshake: asks for features. 0, and what the kernel knows in *known (may be NULL), or
 * -errno. Works once for each descriptor.
 */
int check_handshake(int uffd, uint64_t features, uint64_t *known);
/*
 * Moves a page through uffd, which has had its handshake, as the helper does; closes uffd.
 * 0 or -errno.
 */
int check_move_page(int uffd);

void check_probe_uffd(struct check_report *r, const struct check_place *p);
void check_probe_calls(struct check_report *r, const struct check_place *p);
void check_probe_machine(struct check_report *r, const struct check_place *p);

/* Each 0 or -errno. */
int check_try_pagemap_scan(void);

#endif
