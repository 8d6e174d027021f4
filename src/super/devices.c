/* SPDX-License-Identifier: MIT */
/*
 * From specs to swap devices, and what is used when none is given.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "super/job.h"

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
uint64_t devices_pool_limit(const struct job *j, uint64_t ram_bytes)
{
	bool overflow = !j->cfg->nr_swaps;

	for (unsigned int i = 0; i < j->cfg->nr_swaps; i++)
		overflow |= j->cfg->swap[i].type != SWAP_SPEC_ZRAM;
	if (!overflow)
		return ram_bytes - ram_bytes / 8;
	return (ram_bytes - MIN(ram_bytes / 2, OWN_NEEDS_BYTES)) / 2;
}

uint64_t devices_least_ram(struct job *j)
{
	struct swap_usage u;

	swap_usage(j->swap, &u);
	return align_up(u.pool_bytes + u.metadata_bytes + OWN_NEEDS_BYTES, MIB(1));
}

static int add(struct job *j, const struct swap_spec *sp)
{
	char why[512] = "";
	struct dev *d;
	int err = 0;

	if (sp->type == SWAP_SPEC_ZRAM) {
		struct zram_config zc = {.bytes = sp->bytes ? sp->bytes : 4 * j->cfg->ram_bytes,
					 .codec = sp->codec,
					 .level = sp->level,
					 .mem_limit_bytes =
						 devices_pool_limit(j, j->cfg->ram_bytes)};

		d = dev_zram_create(&zc, &err);
		if (d)
			j->zram[j->nr_zrams++] = d;
	} else if (sp->type == SWAP_SPEC_DEV) {
		struct block_config bc = {.path = sp->path,
					  .bytes = sp->bytes,
					  .force = sp->force,
					  .discard = sp->discard,
					  .no_io_uring = sp->no_io_uring};

		d = dev_block_create(&bc, &err, why, sizeof(why));
	} else {
		struct file_config fc = {.path = sp->path,
					 .bytes = sp->bytes,
					 .force = sp->force,
					 .keep = sp->keep,
					 .discard = sp->discard,
					 .no_io_uring = sp->no_io_uring,
					 .no_direct = sp->no_direct};
		bool existed = access(sp->path, F_OK) == 0;

		d = dev_file_create(&fc, &err, why, sizeof(why));
		if (d && sp->keep && !existed)
			j->created[j->nr_created++] = sp->path;
	}
	d = stack_test_devices(d, sp, &err);
	if (!d) {
		if (why[0])
			log_error("%s", why);
		else
			log_error("%s: %s", sp->type == SWAP_SPEC_ZRAM ? "zram" : sp->path,
				  strerror(-err));
		return err ? err : -ENOMEM;
	}
	err = swap_on(j->swap, d, sp->prio);
	if (err)
		log_error("%s: cannot be used as a swap device: %s", d->name, strerror(-err));
	return err;
}

static int add_defaults(struct job *j)
{
	struct swap_spec zram = {.type = SWAP_SPEC_ZRAM, .prio = DEFAULT_ZRAM_PRIO};
	struct swap_spec file = {.type = SWAP_SPEC_FILE, .prio = DEFAULT_FILE_PRIO};
	int err = add(j, &zram);

	if (err)
		return err;
	snprintf(file.path, sizeof(file.path), DEFAULT_DIR "/uswap-%s-%d.swap", j->id,
		 (int)getpid());
	return add(j, &file);
}

/* A disk beside RAM in one ring would get every other page, whatever its speed. */
static void warn_mixed(const struct run_config *cfg)
{
	for (unsigned int a = 0; a < cfg->nr_swaps; a++)
		for (unsigned int b = a + 1; b < cfg->nr_swaps; b++)
			if (cfg->swap[a].prio == cfg->swap[b].prio &&
			    (cfg->swap[a].type == SWAP_SPEC_ZRAM) !=
				    (cfg->swap[b].type == SWAP_SPEC_ZRAM)) {
				log_note("a RAM and a disk device share priority %d and are used in "
					 "turn; give the faster one a higher prio=",
					 cfg->swap[a].prio);
				return;
			}
}

void devices_forget(struct job *j)
{
	while (j->nr_created)
		(void)unlink(j->created[--j->nr_created]);
}

int devices_create(struct job *j)
{
	int err = 0;

	if (!j->cfg->nr_swaps)
		return add_defaults(j);
	for (unsigned int i = 0; i < j->cfg->nr_swaps && !err; i++)
		err = add(j, &j->cfg->swap[i]);
	if (!err)
		warn_mixed(j->cfg);
	return err;
}
