/* SPDX-License-Identifier: MIT */
/*
 * Resource limits. What the user set (ulimit) is for the command, not for the supervisor, which
 * reserves address space for its tables, keeps a few descriptors a process, writes swap files, and
 * works as long as the job does. So the supervisor raises its own as far as it may, and the command
 * gets back what the user had.
 */
#include <errno.h>
#include <sys/resource.h>

#include "base/log.h"
#include "super/job.h"

/* More would make tables of the kernel large for nothing; 16384 processes need less. */
#define NOFILE_WANTED (1u << 17)
#define NOFILE_LEAST 24u
/* What the tables reserve; they are touched as they are used. */
#define SPACE_WANTED GIB(16)

static struct {
	int resource;
	rlim_t want;
	struct rlimit user;
	bool known;
} limits[] = {
	{.resource = RLIMIT_NOFILE, .want = NOFILE_WANTED},
	{.resource = RLIMIT_AS, .want = RLIM_INFINITY},
	{.resource = RLIMIT_DATA, .want = RLIM_INFINITY},
	{.resource = RLIMIT_FSIZE, .want = RLIM_INFINITY},
	{.resource = RLIMIT_CPU, .want = RLIM_INFINITY},
};

void limits_raise(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit r;

		limits[i].known = getrlimit(limits[i].resource, &limits[i].user) == 0;
		if (!limits[i].known)
			continue;
		r.rlim_cur = limits[i].want;
		r.rlim_max = MAX(limits[i].user.rlim_max, r.rlim_cur);
		if (setrlimit(limits[i].resource, &r) == 0)
			continue;
		/* Without CAP_SYS_RESOURCE: up to what the user may have. */
		r.rlim_cur = r.rlim_max = limits[i].user.rlim_max;
		(void)setrlimit(limits[i].resource, &r);
	}
}

void limits_restore(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(limits); i++)
		if (limits[i].known)
			(void)setrlimit(limits[i].resource, &limits[i].user);
}

bool limits_too_few_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= NOFILE_LEAST)
		return false;
	log_error("a process may have %llu descriptors (ulimit -n), and uswap needs %u, and some "
		  "for each process of the job; raise the limit",
		  (unsigned long long)r.rlim_cur, NOFILE_LEAST);
	return true;
}

bool limits_explain_enomem(void)
{
	static const struct {
		int resource;
		const char *option;
	} space[] = {{RLIMIT_AS, "-v"}, {RLIMIT_DATA, "-d"}};

	for (unsigned int i = 0; i < ARRAY_SIZE(space); i++) {
		struct rlimit r;

		if (getrlimit(space[i].resource, &r) != 0 || r.rlim_cur >= SPACE_WANTED)
			continue;
		log_error("address space is limited to %llu MiB (ulimit %s), and uswap's tables "
			  "reserve %llu GiB of it, though they use little: raise the limit for "
			  "'uswap run', and set it for COMMAND alone: -- sh -c 'ulimit %s N; exec "
			  "COMMAND'",
			  (unsigned long long)(r.rlim_cur >> 20), space[i].option,
			  (unsigned long long)(SPACE_WANTED >> 30), space[i].option);
		return true;
	}
	return false;
}
