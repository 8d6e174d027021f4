/* SPDX-License-Identifier: MIT */
/*
 * The block device: opened by block_open.c, in everything else a file of fixed size.
 *
 * If it vanishes or shrinks, the kernel ends every transfer with an error (file_io_step() makes it
 * -EIO), so nothing here waits for it: what was read is right or an error, and what could not be
 * written stays where it was.
 */
#include "dev/file_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sys/blockdev.h"

static const struct dev_ops block_ops = {
	.type = "dev",
	.submit = file_submit,
	.free_slots = file_free_slots,
	.discard = file_discard,
	.metadata_bytes = file_metadata_bytes,
	.destroy = file_destroy,
};

struct dev *dev_block_create(const struct block_config *cfg, int *err, char *errbuf, size_t errlen)
{
	struct file_dev *f = file_new(&block_ops, cfg->path);
	const char *what = "out of memory";

	*err = -ENOMEM;
	if (f) {
		f->block = true;
		what = NULL;
		*err = block_open(f, cfg, errbuf, errlen);
	}
	if (f && !*err) {
		f->discard = cfg->discard;
		f->d.rotational = cfg->rotational == ROTATIONAL_DETECT
					  ? blockdev_queue_number("", f->rdev, "rotational") == 1
					  : cfg->rotational == ROTATIONAL_YES;
		*err = file_start(f, cfg->no_io_uring);
		if (*err)
			what = strerror(-*err);
		else
			*err = file_discard_start(f);
	}
	if (errbuf && errlen && what)
		snprintf(errbuf, errlen, "dev:%s: cannot start its I/O: %s", cfg->path, what);
	if (*err) {
		if (f)
			file_destroy(&f->d);
		return NULL;
	}
	if (errbuf && errlen)
		errbuf[0] = '\0';
	return &f->d;
}
