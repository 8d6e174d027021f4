/* SPDX-License-Identifier: MIT */
/*
 * Policies and tiers of a job: those that it starts with, and `uswap set` on them.
 *
 * What a process may use is a *class*, a small number that swap gives to each pair of allowed tiers
 * and policy; this file remembers which pair it stands for. A process has its class (proc.swap_class)
 * and so has its memory (space.swap_class), which is what decides:
 *   fork              the memory's class is copied with its table; the child's process takes it over
 *   a new program     its memory takes the class of the process (exec; also a child by vfork)
 *   an unknown child  of which nobody told, takes its parent's when it is seen; if the parent has
 *                     gone by then, that of the command
 *   uswap set         both, from one moment on, under job->lock
 * It holds for what is swapped out from then on. What is out already stays where it is.
 *
 * Locking: the command's start, or the control thread alone, changes anything here, under
 * job->lock. Class numbers are never given back: -ENOSPC when a 16th different pair is asked for.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "super/job.h"

/* The class of the pair, remembered; or -errno with a sentence in why. */
static int class_of(struct job *j, const struct tier_names *names, enum queue_policy policy,
		    char *why, size_t len)
{
	const char *name[MAX_TIERS];
	int class;

	for (unsigned int i = 0; i < names->nr; i++)
		name[i] = names->name[i];
	class = swap_class(j->swap, names->nr ? name : NULL, names->nr, policy);
	if (class == -ENOSPC) {
		snprintf(why, len, "too many different sets of tiers and policies; %u are possible in "
				   "the life of a job", SWAP_MAX_CLASSES);
		return class;
	}
	if (class < 0 || class >= (int)SWAP_MAX_CLASSES) {
		snprintf(why, len, "%s", strerror(class < 0 ? -class : EPROTO));
		return class < 0 ? class : -EPROTO;
	}
	us_mutex_lock(&j->lock);
	if (class && !j->class[class].known)
		j->class[class] = (struct proc_class){
			.names = *names, .policy = policy, .known = true};
	us_mutex_unlock(&j->lock);
	return class;
}

/* ---- what is there ---- */

static bool tier_find(struct job *j, const char *name, struct tier *found)
{
	struct tier t[MAX_TIERS];
	unsigned int n = swap_tiers(j->swap, t, MAX_TIERS);

	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(t[i].spec.name, name)) {
			*found = t[i];
			return true;
		}
	return false;
}

/* "'x': no tier is called so; there are: a, b" */
static void explain_no_tier(struct job *j, const char *name, char *why, size_t len)
{
	struct tier t[MAX_TIERS];
	unsigned int n = swap_tiers(j->swap, t, MAX_TIERS);
	size_t at = (size_t)snprintf(why, len, "'%s': no tier is called so; there %s%s", name,
				     n == 1 ? "is" : "are", n ? ":" : " none");

	for (unsigned int i = 0; i < n && at < len; i++)
		at += (size_t)snprintf(why + at, len - at, "%s %s", i ? "," : "", t[i].spec.name);
}

static void explain_refused(struct job *j, const struct tier_spec *spec, int err, char *why,
			    size_t len)
{
	struct tier t[MAX_TIERS];
	unsigned int n = swap_tiers(j->swap, t, MAX_TIERS);

	snprintf(why, len, "tier '%s': %s", spec->name,
		 err == -ENOSPC ? "too many names; 63 are possible in the life of a job, those of "
				  "tiers that were taken away included"
				: strerror(-err));
	for (unsigned int i = 0; i < n && err == -EBUSY; i++) {
		const struct tier_spec *o = &t[i].spec;

		if (strcmp(o->name, spec->name) && spec->prio_min <= o->prio_max &&
		    o->prio_min <= spec->prio_max)
			snprintf(why, len, "tier '%s': priorities %d-%d overlap tier '%s', %d-%d",
				 spec->name, spec->prio_min, spec->prio_max, o->name, o->prio_min,
				 o->prio_max);
	}
}

/* ---- the start ---- */

int tiers_create(struct job *j)
{
	const struct run_config *cfg = j->cfg;
	char why[300];
	int err = 0;

	if (cfg->queue_policy != POLICY_DEFAULT)
		err = swap_set_policy(j->swap, cfg->queue_policy);
	snprintf(why, sizeof(why), "--queue-policy: %s", strerror(-err));
	for (unsigned int i = 0; i < cfg->nr_tiers && !err; i++) {
		err = swap_tier_add(j->swap, &cfg->tier[i]);
		if (err)
			explain_refused(j, &cfg->tier[i], err, why, sizeof(why));
	}
	if (!err) {
		j->queue_policy = cfg->queue_policy;
		err = class_of(j, &cfg->allow_tiers, POLICY_DEFAULT, why, sizeof(why));
	}
	if (err < 0) {
		log_error("%s", why);
		return err;
	}
	j->command_class = (uint8_t)err;
	return 0;
}

/* ---- processes ---- */

void tiers_new_proc(struct job *j, struct proc *p)
{
	struct proc *parent = proc_find(j, p->ppid);

	p->swap_class = parent ? parent->swap_class : j->command_class;
}

void tiers_attach(struct job *j, struct proc *p, struct space *s, bool forked)
{
	us_mutex_assert_held(&j->lock);
	/* The fork is older than a `set` that found the process without its memory. */
	if (forked && !p->class_was_set)
		p->swap_class = atomic_load(&s->swap_class);
	else
		atomic_store(&s->swap_class, p->swap_class);
}

void tiers_text(struct job *j, unsigned int class, char *buf, size_t len)
{
	const struct tier_names *names = &j->class[class].names;
	size_t at = 0;

	us_mutex_assert_held(&j->lock);
	if (!names->nr)
		snprintf(buf, len, "all");
	for (unsigned int i = 0; i < names->nr && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? "," : "", names->name[i]);
}

/* ---- uswap set ---- */

static int set_tier(struct job *j, const struct tier_spec *spec, char *why, size_t len)
{
	struct tier t;
	int err;

	/* Nobody else makes or takes away tiers. */
	if (tier_find(j, spec->name, &t))
		err = swap_tier_change(j->swap, spec);
	else
		err = swap_tier_add(j->swap, spec);
	if (err)
		explain_refused(j, spec, err, why, len);
	return err;
}

static int remove_tier(struct job *j, const char *name, char *why, size_t len)
{
	int err = swap_tier_remove(j->swap, name);

	if (err)
		explain_no_tier(j, name, why, len);
	return err;
}

/* The pair that a process has now. False: there is no such process. */
static bool pair_of(struct job *j, int pid, struct tier_names *names, enum queue_policy *policy)
{
	struct proc *p;

	us_mutex_lock(&j->lock);
	p = proc_find(j, pid);
	if (p) {
		*names = j->class[p->swap_class].names;
		*policy = j->class[p->swap_class].policy;
	}
	us_mutex_unlock(&j->lock);
	return p != NULL;
}

static int set_process(struct job *j, struct set_request *req, char *why, size_t len)
{
	struct tier_names names;
	enum queue_policy policy;
	struct proc *p = NULL;
	struct tier t;
	int class;

	for (unsigned int i = 0; req->key == SET_PID_TIERS && i < req->names.nr; i++)
		if (strcmp(req->names.name[i], "default") && !tier_find(j, req->names.name[i], &t)) {
			explain_no_tier(j, req->names.name[i], why, len);
			return -ENOENT;
		}
	class = -ESRCH;
	if (pair_of(j, req->pid, &names, &policy)) {
		if (req->key == SET_PID_TIERS)
			names = req->names;
		else
			policy = req->policy;
		class = class_of(j, &names, policy, why, len);
		if (class < 0)
			return class;
		us_mutex_lock(&j->lock);
		p = proc_find(j, req->pid);
		if (p) {
			p->swap_class = (uint8_t)class;
			p->class_was_set = true;
			if (p->space)
				atomic_store(&p->space->swap_class, p->swap_class);
		}
		us_mutex_unlock(&j->lock);
	}
	if (p)
		return 0;
	snprintf(why, len, "%d: no process of the job; see `uswap ps`", req->pid);
	return -ESRCH;
}

int tiers_set(struct job *j, struct set_request *req, char *why, size_t len)
{
	int err;

	switch (req->key) {
	case SET_QUEUE_POLICY:
		err = swap_set_policy(j->swap, req->policy);
		if (err)
			snprintf(why, len, "%s", strerror(-err));
		else
			j->queue_policy = req->policy;
		return err;
	case SET_TIER:
		return set_tier(j, &req->tier, why, len);
	case SET_NO_TIER:
		return remove_tier(j, req->tier.name, why, len);
	default:
		return set_process(j, req, why, len);
	}
}
