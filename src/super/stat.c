/* SPDX-License-Identifier: MIT */
/*
 * What a job shows: the JSON of `uswap stat` and --report (docs/report.md), /proc/swaps, tables.
 * Called by the control thread and at the end; takes job->lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "super/job.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

static json_t *num(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *text(const char *s)
{
	json_t *t = json_string(s);

	/* Names of files and programs need not be UTF-8. */
	return t ? t : json_string("?");
}

static json_t *json_ram(struct job *j)
{
	struct proc_statm self = {0};
	uint64_t resident = 0;
	struct swap_usage u;
	json_t *o = json_object();

	swap_usage(j->swap, &u);
	(void)proc_statm(j->self_statm_fd, &self);
	list_for_each(n, &j->procs)
		resident += list_entry(n, struct proc, node)->anon_pages << PAGE_SHIFT;
	json_object_set_new(o, "limit", num(atomic_load(&j->mm.limit)));
	json_object_set_new(o, "resident", num(resident - MIN(j->shared_bytes, resident)));
	json_object_set_new(o, "staged", num(u.cached_bytes));
	json_object_set_new(o, "pool", num(u.pool_bytes));
	json_object_set_new(o, "metadata", num(u.metadata_bytes + mem_total_bytes()));
	json_object_set_new(o, "peak", num(atomic_load(&j->mm.peak)));
	return o;
}

static json_t *json_vmstat(void)
{
	json_t *o = json_object();

	for (int i = 0; i < NR_VMSTAT_ITEMS; i++)
		json_object_set_new(o, vmstat_names[i], num(vmstat_get((enum vmstat_item)i)));
	return o;
}

static json_t *json_devices(struct job *j)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);
	json_t *a = json_array();

	for (unsigned int i = 0; i < n; i++) {
		const struct swap_dev_info *d = &devs[i];
		json_t *o = json_object();

		json_object_set_new(o, "name", text(d->name));
		json_object_set_new(o, "type", text(d->type));
		json_object_set_new(o, "prio", json_integer(d->prio));
		json_object_set_new(o, "tier", text(d->tier ? d->tier : "default"));
		json_object_set_new(o, "weight", num(d->weight));
		json_object_set_new(o, "size", num(d->size_bytes));
		json_object_set_new(o, "used", num(d->used_bytes));
		json_object_set_new(o, "peak", num(d->peak_bytes));
		json_object_set_new(o, "state",
				    text(d->draining ? "draining" : d->full ? "full" : "on"));
		json_object_set_new(o, "errors", num(d->errors));
		json_object_set_new(o, "stored", num(d->stored_bytes));
		json_object_set_new(o, "compressed", num(d->compressed_bytes));
		json_array_append_new(a, o);
	}
	return a;
}

/* Those with a name, by priority; of devices that are in none `devices` tells. */
static json_t *json_tiers(struct job *j)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs), nr;
	struct tier tiers[MAX_TIERS];
	json_t *a = json_array();

	nr = swap_tiers(j->swap, tiers, MAX_TIERS);
	for (unsigned int i = 0; i < nr; i++) {
		const struct tier_spec *t = &tiers[i].spec;
		uint64_t size = 0, used = 0, count = 0;
		json_t *o = json_object();

		for (unsigned int k = 0; k < n; k++)
			if (devs[k].prio >= t->prio_min && devs[k].prio <= t->prio_max) {
				size += devs[k].size_bytes;
				used += devs[k].used_bytes;
				count++;
			}
		json_object_set_new(o, "name", text(t->name));
		json_object_set_new(o, "prio_min", json_integer(t->prio_min));
		json_object_set_new(o, "prio_max", json_integer(t->prio_max));
		json_object_set_new(o, "policy", text(policy_name(t->policy)));
		json_object_set_new(o, "devices", num(count));
		json_object_set_new(o, "size", num(size));
		json_object_set_new(o, "used", num(used));
		json_array_append_new(a, o);
	}
	return a;
}

static const char *job_policy(struct job *j)
{
	enum queue_policy p = atomic_load(&j->queue_policy);

	return policy_name(p == POLICY_DEFAULT ? POLICY_QUEUE : p);
}

/* null: every tier */
static json_t *json_class_tiers(const struct proc_class *c)
{
	json_t *a;

	if (!c->names.nr)
		return json_null();
	a = json_array();
	for (unsigned int i = 0; i < c->names.nr; i++)
		json_array_append_new(a, text(c->names.name[i]));
	return a;
}

static json_t *json_orders(void)
{
	json_t *a = json_array();

	for (int i = 0; i <= MAX_ORDER; i++) {
		json_t *o = json_object();

		json_object_set_new(o, "order", json_integer(i));
		json_object_set_new(o, "swpout", num(order_stats[i].swpout));
		json_object_set_new(o, "swpout_fallback", num(order_stats[i].swpout_fallback));
		json_object_set_new(o, "swpin", num(order_stats[i].swpin));
		json_object_set_new(o, "zswpout", num(order_stats[i].zswpout));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *json_process(struct job *j, struct proc *p, bool ended)
{
	uint64_t swapped = p->space ? p->space->table.nr_swapped : ended ? p->swapped_pages : 0;
	uint64_t faults = p->faults + (p->space ? atomic_load(&p->space->nr_faults) : 0);
	json_t *o = json_object();

	json_object_set_new(o, "pid", json_integer(p->pid));
	json_object_set_new(o, "comm", text(p->comm));
	json_object_set_new(o, "managed", json_boolean(p->managed));
	json_object_set_new(o, "reason", p->reason[0] ? text(p->reason) : json_null());
	json_object_set_new(o, "resident", num(p->anon_pages << PAGE_SHIFT));
	json_object_set_new(o, "swapped", num(swapped << PAGE_SHIFT));
	json_object_set_new(o, "faults", num(faults));
	json_object_set_new(o, "tiers", json_class_tiers(&j->class[p->swap_class]));
	json_object_set_new(o, "policy", text(policy_name(j->class[p->swap_class].policy)));
	json_object_set_new(o, "ended", json_boolean(ended));
	return o;
}

static json_t *json_processes(struct job *j)
{
	json_t *a = json_array();

	list_for_each(n, &j->procs)
		json_array_append_new(a, json_process(j, list_entry(n, struct proc, node), false));
	list_for_each(n, &j->ended)
		json_array_append_new(a, json_process(j, list_entry(n, struct proc, node), true));
	return a;
}

static json_t *json_faults(void)
{
	json_t *o = json_object();

	json_object_set_new(o, "count", num(fault_latency.count));
	json_object_set_new(o, "p50_ns", num(hist_percentile(&fault_latency, 0.5)));
	json_object_set_new(o, "p99_ns", num(hist_percentile(&fault_latency, 0.99)));
	json_object_set_new(o, "max_ns", num(fault_latency.max_ns));
	return o;
}

static json_t *json_locks(void)
{
	json_t *a = json_array();

	for (struct lock_class *c = lock_class_first(); c; c = c->next) {
		json_t *o = json_object();

		json_object_set_new(o, "name", text(c->name));
		json_object_set_new(o, "acquired", num(lock_class_acquired(c)));
		json_object_set_new(o, "contended", num(c->contended));
		json_object_set_new(o, "wait_ns", num(c->wait_ns));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *exit_value(struct job *j)
{
	int st = j->command_status;

	if (!j->command_ended)
		return json_null();
	return json_integer(WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st));
}

static json_t *build(struct job *j)
{
	json_t *o = json_object(), *cmd = json_array();

	for (char *const *a = j->cfg->argv; *a; a++)
		json_array_append_new(cmd, text(*a));
	json_object_set_new(o, "version", json_integer(1));
	json_object_set_new(o, "job", text(j->id));
	json_object_set_new(o, "command", cmd);
	json_object_set_new(o, "elapsed",
			    json_real((double)(clock_now_ns() - j->started_ns) / 1e9));
	us_mutex_lock(&j->lock);
	json_object_set_new(o, "exit", exit_value(j));
	json_object_set_new(o, "ram", json_ram(j));
	json_object_set_new(o, "vmstat", json_vmstat());
	json_object_set_new(o, "queue_policy", text(job_policy(j)));
	json_object_set_new(o, "devices", json_devices(j));
	json_object_set_new(o, "tiers", json_tiers(j));
	json_object_set_new(o, "orders", json_orders());
	json_object_set_new(o, "processes", json_processes(j));
	json_object_set_new(o, "faults", json_faults());
	json_object_set_new(o, "locks", json_locks());
	us_mutex_unlock(&j->lock);
	return o;
}

char *stat_json(struct job *j)
{
	json_t *o = build(j);
	char *s = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6));

	json_decref(o);
	return s;
}

/* Written beside its name and renamed: who reads it sees a whole report or the old one. */
int report_write(struct job *j)
{
	char tmp[4200];
	json_t *o;
	int err = 0;

	if (!j->cfg->report_path)
		return 0;
	o = build(j);
	snprintf(tmp, sizeof(tmp), "%s.%d.tmp", j->cfg->report_path, (int)getpid());
	if (json_dump_file(o, tmp, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0 ||
	    rename(tmp, j->cfg->report_path) != 0) {
		err = errno ? -errno : -EIO;
		(void)unlink(tmp);
		log_error("--report %s: %s", j->cfg->report_path, strerror(-err));
	}
	json_decref(o);
	return err;
}

/* As /proc/swaps escapes blank, tab, newline and backslash; and what else drives terminals. */
static void print_escaped(FILE *f, const char *s, int *width)
{
	*width = 0;
	for (; *s; s++) {
		if ((unsigned char)*s <= ' ' || *s == 0x7f || *s == '\\')
			*width += fprintf(f, "\\%03o", (unsigned char)*s);
		else
			*width += fprintf(f, "%c", *s);
	}
}

static void print_kib(FILE *f, uint64_t bytes)
{
	uint64_t kib = bytes >> 10;

	fprintf(f, "%llu\t%s", (unsigned long long)kib, kib < 10000000 ? "\t" : "");
}

char *stat_swaps(struct job *j)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		return NULL;
	fprintf(f, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
	for (unsigned int i = 0; i < n; i++) {
		const struct swap_dev_info *d = &devs[i];
		int width;

		print_escaped(f, d->name, &width);
		fprintf(f, "%*s%s\t", width < 40 ? 40 - width : 1, " ",
			strcmp(d->type, "file") != 0 ? "partition" : "file\t");
		print_kib(f, d->size_bytes);
		print_kib(f, d->used_bytes);
		fprintf(f, "%d\n", d->prio);
	}
	fclose(f);
	return out;
}

/* Is there a process whose tiers or policy are its own? Lock held. */
static bool any_class(struct job *j)
{
	list_for_each(n, &j->procs)
		if (list_entry(n, struct proc, node)->swap_class)
			return true;
	return false;
}

static void print_class(struct job *j, FILE *f, const struct proc *p)
{
	char tiers[MAX_TIERS * TIER_NAME_BYTES];

	tiers_text(j, p->swap_class, tiers, sizeof(tiers));
	fprintf(f, "%-16s %-12s ", tiers, policy_name(j->class[p->swap_class].policy));
}

char *stat_ps(struct job *j)
{
	bool classes;
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		return NULL;
	us_mutex_lock(&j->lock);
	classes = any_class(j);
	fprintf(f, "%8s %-15s %12s %12s %10s  %s%s\n", "PID", "COMMAND", "RESIDENT-KiB",
		"SWAPPED-KiB", "FAULTS", classes ? "TIERS            POLICY       " : "", "STATE");
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		fprintf(f, "%8d %-15s %12llu %12llu %10llu  ", p->pid, p->comm,
			(unsigned long long)p->anon_pages * 4,
			(unsigned long long)(p->space ? p->space->table.nr_swapped : 0) * 4,
			(unsigned long long)(p->faults +
					     (p->space ? atomic_load(&p->space->nr_faults) : 0)));
		if (classes)
			print_class(j, f, p);
		fprintf(f, "%s%s%s\n", p->managed ? "managed" : "unmanaged", p->reason[0] ? ": " : "", p->reason);
	}
	us_mutex_unlock(&j->lock);
	fclose(f);
	return out;
}

char *stat_job_line(struct job *j)
{
	uint64_t resident = 0, swapped = 0;
	char *out = NULL, command[256] = "";
	size_t at = 0;

	us_mutex_lock(&j->lock);
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		resident += p->anon_pages;
		swapped += p->space ? p->space->table.nr_swapped : 0;
	}
	us_mutex_unlock(&j->lock);
	for (char *const *a = j->cfg->argv; *a; a++) {
		int n = snprintf(command + at, sizeof(command) - at, "%s%s", at ? " " : "", *a);

		if (n < 0 || (size_t)n >= sizeof(command) - at)
			break;
		at += (size_t)n;
	}
	if (asprintf(&out, "%s\t%llu\t%llu\t%llu\t%u\t%s\n", j->id,
		     (unsigned long long)atomic_load(&j->mm.limit),
		     (unsigned long long)resident << PAGE_SHIFT,
		     (unsigned long long)swapped << PAGE_SHIFT, j->nr_procs, command) < 0)
		return NULL;
	return out;
}
