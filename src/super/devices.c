/* SPDX-License-Identifier: MIT */
/*
 * From specs to swap devices, and what is used when none is given; adding and removing them while
 * the job runs. Memory limits follow the devices that there are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"
#include "sys/node.h"

#define DEFAULT_DIR "/var/tmp"
#define DEFAULT_ZRAM_PRIO 100
#define DEFAULT_FILE_PRIO 10
/* Tables, staging, buffers, what kswapd keeps free: about, in a small job. */
#define OWN_NEEDS_BYTES MIB(8)

static struct dev *stack_test_devices(struct dev *d, const struct swap_spec *sp, int *err)
{
	if (d && sp->has_fault)
		d = dev_fault_create(d, &sp->fault, err);
	if (d && sp->has_delay)
		d = dev_delay_create(d, &sp->delay, err);
	return d;
}

/*
 * What compressed memory may take of the budget, in which it counts. Where another device takes
 * what does not fit, half of what uswap's own needs leave: the job runs in the other half. Where
 * there is none, all but an eighth: to end a process for want of room would be worse than to be
 * slow.
 */
static uint64_t pool_limit(uint64_t ram_bytes, bool overflow)
{
	if (!overflow)
		return ram_bytes - ram_bytes / 8;
	return (ram_bytes - MIN(ram_bytes / 2, OWN_NEEDS_BYTES)) / 2;
}

/* Is there a device that is not memory and takes pages in, apart from the one called `but`? */
static bool has_overflow(struct job *j, const char *but)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);

	for (unsigned int i = 0; i < n; i++)
		if (!devs[i].in_memory && !devs[i].draining && (!but || strcmp(devs[i].name, but)))
			return true;
	return false;
}

void devices_set_limits(struct job *j, uint64_t ram_bytes, const char *leaving)
{
	uint64_t limit = pool_limit(ram_bytes, has_overflow(j, leaving));

	atomic_store(&j->zram_group.mem_limit, limit);
}

uint64_t devices_least_ram(struct job *j)
{
	struct swap_usage u;

	swap_usage(j->swap, &u);
	return align_up(u.pool_bytes + u.metadata_bytes + OWN_NEEDS_BYTES, MIB(1));
}

/* ---- one device ---- */

/* A device that is open and not in use yet. */
struct opened {
	struct dev *dev;  /* as swap sees it */
	bool created;	  /* a file that is to be kept, which was not there before */
};

static int open_zram(struct job *j, const struct swap_spec *sp, uint64_t ram_bytes,
		     struct opened *o, char *why, size_t len)
{
	struct zram_config zc = {.bytes = sp->bytes ? sp->bytes : 4 * ram_bytes,
				 .codec = sp->codec,
				 .level = sp->level,
				 .group = &j->zram_group};
	int err = 0;

	o->dev = dev_zram_create(&zc, &err);
	if (err == -EINVAL)
		snprintf(why, len, "zram: its size must be from 8K to below 16T");
	return err;
}

static int open_file(const struct swap_spec *sp, struct opened *o, char *why, size_t len)
{
	struct file_config fc = {.path = sp->path,
				 .bytes = sp->bytes,
				 .force = sp->force,
				 .keep = sp->keep,
				 .discard = sp->discard,
				 .no_io_uring = sp->no_io_uring,
				 .no_direct = sp->no_direct};
	bool existed = access(sp->path, F_OK) == 0;
	int err = 0;

	o->dev = dev_file_create(&fc, &err, why, len);
	o->created = o->dev && sp->keep && !existed;
	return err;
}

static int open_block(const struct swap_spec *sp, struct opened *o, char *why, size_t len)
{
	struct block_config bc = {.path = sp->path,
				  .bytes = sp->bytes,
				  .force = sp->force,
				  .discard = sp->discard,
				  .no_io_uring = sp->no_io_uring};
	int err = 0;

	o->dev = dev_block_create(&bc, &err, why, len);
	return err;
}

/* 0, or -errno with a sentence in why. */
static int open_device(struct job *j, const struct swap_spec *sp, uint64_t ram_bytes,
		       struct opened *o, char *why, size_t len)
{
	int err;

	*o = (struct opened){0};
	why[0] = 0;
	err = sp->type == SWAP_SPEC_ZRAM  ? open_zram(j, sp, ram_bytes, o, why, len)
	      : sp->type == SWAP_SPEC_DEV ? open_block(sp, o, why, len)
					  : open_file(sp, o, why, len);
	o->dev = stack_test_devices(o->dev, sp, &err);
	if (o->dev)
		return 0;
	err = err ? err : -ENOMEM;
	if (!why[0])
		snprintf(why, len, "%s: %s", sp->type == SWAP_SPEC_ZRAM ? "zram" : sp->path,
			 strerror(-err));
	return err;
}

/* Do both paths name the same device, or a file that is there, however they are spelled? */
static bool same_place(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) || stat(b, &y) || (x.st_mode & S_IFMT) != (y.st_mode & S_IFMT))
		return false;
	if (S_ISBLK(x.st_mode))
		return x.st_rdev == y.st_rdev;
	return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/*
 * Is it a device of this job? A file of ours is unlinked while it is in use, so its path could be
 * given once more. name: what the device is called.
 */
static bool is_on(struct job *j, const char *path, char *name, size_t len)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);

	for (unsigned int i = 0; i < n; i++) {
		if (strcmp(devs[i].name, path) &&
		    (devs[i].name[0] != '/' || !same_place(devs[i].name, path)))
			continue;
		snprintf(name, len, "%.255s", devs[i].name);
		return true;
	}
	return false;
}

/* Compressed memory is wherever there was some. */
static int node_of(const struct swap_spec *sp)
{
	int node = sp->node;

	if (node < 0 && sp->type != SWAP_SPEC_ZRAM)
		node = node_of_path("", sp->path);
	return node < (int)QUEUE_MAX_NODES ? node : -1;
}

/* Opened, and in use; or nothing has changed. *created: see struct opened. */
static int add(struct job *j, const struct swap_spec *sp, uint64_t ram_bytes, bool *created,
	       char *name, size_t name_len, char *why, size_t len)
{
	struct swap_on_config cfg = {
		.prio = sp->prio, .weight = sp->weight, .node = node_of(sp)};
	struct opened o;
	int err;

	if (sp->type != SWAP_SPEC_ZRAM && is_on(j, sp->path, name, name_len)) {
		snprintf(why, len,
			 "%s: is a swap device of this job already%s%s; name another one, or take it "
			 "away first (uswap swapoff)", sp->path, strcmp(name, sp->path) ? ", as " : "",
			 strcmp(name, sp->path) ? name : "");
		return -EEXIST;
	}
	err = open_device(j, sp, ram_bytes, &o, why, len);
	if (err)
		return err;
	snprintf(name, name_len, "%s", o.dev->name);
	*created = o.created;
	err = swap_on(j->swap, o.dev, &cfg);
	if (!err)
		return 0;
	snprintf(why, len, "%s: cannot be used as a swap device: %s", name,
		 err == -ENOSPC ? "there are 32 already" : strerror(-err));
	dev_destroy(o.dev);
	if (o.created)
		(void)unlink(sp->path);
	return err;
}

/* ---- at the start ---- */

static int add_first(struct job *j, const struct swap_spec *sp)
{
	char name[256], why[512];
	bool created = false;
	int err = add(j, sp, j->cfg->ram_bytes, &created, name, sizeof(name), why, sizeof(why));

	if (err)
		log_error("%s", why);
	else if (created)
		j->created[j->nr_created++] = sp->path;
	return err;
}

static int add_defaults(struct job *j)
{
	struct swap_spec zram = {.type = SWAP_SPEC_ZRAM, .prio = DEFAULT_ZRAM_PRIO, .node = -1};
	struct swap_spec file = {.type = SWAP_SPEC_FILE, .prio = DEFAULT_FILE_PRIO, .node = -1};
	int err = add_first(j, &zram);

	if (err)
		return err;
	snprintf(file.path, sizeof(file.path), DEFAULT_DIR "/uswap-%s-%d.swap", j->id,
		 (int)getpid());
	return add_first(j, &file);
}

/* A disk beside RAM in one ring would get every other page, whatever its speed. */
static bool is_mixed(struct job *j, int *prio)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);

	for (unsigned int a = 0; a < n; a++)
		for (unsigned int b = a + 1; b < n; b++)
			if (devs[a].prio == devs[b].prio &&
			    devs[a].in_memory != devs[b].in_memory) {
				*prio = devs[a].prio;
				return true;
			}
	return false;
}

#define MIXED                                                                                      \
	"a RAM and a disk device share priority %d and are used in turn; give the faster one a "  \
	"higher prio="

void devices_forget(struct job *j)
{
	while (j->nr_created)
		(void)unlink(j->created[--j->nr_created]);
}

int devices_create(struct job *j)
{
	int err = 0, prio;

	if (!j->cfg->nr_swaps)
		err = add_defaults(j);
	for (unsigned int i = 0; i < j->cfg->nr_swaps && !err; i++)
		err = add_first(j, &j->cfg->swap[i]);
	if (err)
		return err;
	devices_set_limits(j, j->cfg->ram_bytes, NULL);
	if (is_mixed(j, &prio))
		log_note(MIXED, prio);
	return 0;
}

/* ---- on a running job ---- */

static double mib(uint64_t pages)
{
	return (double)pages / 256;
}

int devices_add(struct job *j, const struct swap_spec *sp, char *text, size_t len)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	uint64_t ram = atomic_load(&j->mm.limit), bytes = 0;
	unsigned int n;
	bool created;
	char name[256];
	int err = add(j, sp, ram, &created, name, sizeof(name), text, len), prio;
	size_t at;

	if (err)
		return err;
	devices_set_limits(j, ram, NULL);
	n = swap_list_devs(j->swap, devs);
	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(devs[i].name, name))
			bytes = devs[i].size_bytes;
	at = (size_t)snprintf(text, len, "%s: on, %.1f MiB, priority %d", name,
			      mib(bytes >> PAGE_SHIFT), sp->prio);
	if (is_mixed(j, &prio) && at < len)
		snprintf(text + at, len - at, "; " MIXED, prio);
	return 0;
}

/* As /proc/swaps and `uswap swaps` print it: blank, tab, newline, backslash as \ooo. */
static void unescape(const char *from, char *to, size_t len)
{
	size_t n = 0;

	while (*from && n + 1 < len) {
		int c = 0, k = 1;

		while (from[0] == '\\' && k <= 3 && from[k] >= '0' && from[k] <= '7')
			c = c * 8 + from[k++] - '0';
		to[n++] = k == 4 ? (char)c : *from;
		from += k == 4 ? 4 : 1;
	}
	to[n] = 0;
}

/* Whether a device is called so; if not, text says which there are. */
static bool resolve(struct job *j, const char *arg, char *name, size_t name_len, char *text,
		    size_t len)
{
	struct swap_dev_info devs[SWAP_MAX_DEVS];
	unsigned int n = swap_list_devs(j->swap, devs);
	char plain[sizeof(devs[0].name)];
	size_t at;

	unescape(arg, plain, sizeof(plain));
	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(devs[i].name, arg) || !strcmp(devs[i].name, plain)) {
			snprintf(name, name_len, "%.255s", devs[i].name);
			return true;
		}
	at = (size_t)snprintf(text, len, "'%.200s': no device is called so; there %s%s", arg,
			      n == 1 ? "is" : "are", n ? ":" : " none");
	for (unsigned int i = 0; i < n && at < len; i++)
		at += (size_t)snprintf(text + at, len - at, "%s %s", i ? "," : "", devs[i].name);
	return false;
}

/* Why it stays on, and what has moved. */
static void explain(int err, const char *name, const struct swap_off_result *r, char *text,
		    size_t len)
{
	if (err == -ENOSPC && r->used_pages > r->room_pages)
		snprintf(text, len,
			 "%s: stays on: %.1f MiB are on it, the other devices can take in %.1f MiB",
			 name, mib(r->used_pages), mib(r->room_pages));
	else if (err == -ENOSPC && r->bound_pages > r->bound_room_pages)
		snprintf(text, len,
			 "%s: stays on: %.1f MiB of what is on it may go to some tiers only, which can "
			 "take in %.1f MiB; %.1f MiB have moved", name, mib(r->bound_pages),
			 mib(r->bound_room_pages), mib(r->moved_pages));
	else if (err == -ENOTUNIQ)
		snprintf(text, len, "%s: stays on: several devices are called so", name);
	else if (err == -EBUSY)
		snprintf(text, len, "%s: is being taken away already", name);
	else if (err == -ENOENT)
		snprintf(text, len, "%s: there is no such device any more", name);
	else
		snprintf(text, len, "%s: stays on: %s; %.1f MiB have moved, %.1f MiB are on it", name,
			 err == -ENOSPC	 ? "the other devices take in no more"
			 : err == -EINTR ? "interrupted"
					 : strerror(-err),
			 mib(r->moved_pages), mib(r->left_pages));
}

int devices_remove(struct job *j, const char *arg,
		   bool (*progress)(void *host, const struct swap_off_progress *p), void *host,
		   char *text, size_t len)
{
	struct swap_off_request req = {.progress = progress, .host = host};
	struct swap_off_result r;
	char name[256];
	struct dev *gone;
	double seconds;
	size_t at;
	int err;

	if (!resolve(j, arg, name, sizeof(name), text, len))
		return -ENOENT;
	req.name = name;
	/* What is on the last file may have to go to memory: the larger limit first. */
	devices_set_limits(j, atomic_load(&j->mm.limit), name);
	err = swap_off(j->swap, &req, &r, &gone);
	if (!err)
		dev_destroy(gone);
	devices_set_limits(j, atomic_load(&j->mm.limit), NULL);
	if (r.lost_pages)
		log_warn("%s: %llu pages could not be read and are lost", name,
			 (unsigned long long)r.lost_pages);
	if (err) {
		explain(err, name, &r, text, len);
		return err;
	}
	seconds = (double)r.elapsed_ns / 1e9;
	at = (size_t)snprintf(text, len, "%s: off; %.1f MiB moved in %.2f s, %.0f MiB/s", name,
			      mib(r.moved_pages), seconds, mib(r.moved_pages) / seconds);
	if (r.lost_pages && at < len)
		snprintf(text + at, len - at, "; %llu pages could not be read and are lost",
			 (unsigned long long)r.lost_pages);
	return 0;
}
