/* SPDX-License-Identifier: MIT */
/*
 * What is on a block device, as libblkid finds it: it knows several hundred kinds, and where each
 * has its marks.
 */
#include "dev/file_internal.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Names of what is found, once each, swap and hibernation apart (swap_header.c has these). */
static int collect(blkid_probe pr, char *what, size_t len)
{
	int found = 0, r;

	what[0] = '\0';
	/* One kind a call, 1 behind the last; marks of several may have been left there. */
	while ((r = blkid_do_probe(pr)) == 0) {
		const char *name = NULL, *suffix = "";
		size_t at = strlen(what);

		if (blkid_probe_lookup_value(pr, "TYPE", &name, NULL) != 0 &&
		    blkid_probe_lookup_value(pr, "PTTYPE", &name, NULL) == 0)
			suffix = " partition table";
		if (name && (!strcmp(name, "swap") || !strcmp(name, "swsuspend")))
			continue;
		found = 1;
		if (!name)
			name = "unknown";
		if (!strstr(what, name))
			snprintf(what + at, len - at, "%s%.32s%s", at ? ", " : "", name, suffix);
	}
	return r < 0 ? -EIO : found;
}

int block_probe(int fd, char *what, size_t len)
{
	blkid_probe pr = blkid_new_probe();
	int r = -ENOMEM;

	if (!pr)
		return r;
	/* With a damaged checksum it may still be what somebody wants to repair. */
	if (blkid_probe_set_device(pr, fd, 0, 0) == 0 &&
	    blkid_probe_enable_superblocks(pr, 1) == 0 &&
	    blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC |
							  BLKID_SUBLKS_BADCSUM) == 0 &&
	    blkid_probe_enable_partitions(pr, 1) == 0 &&
	    blkid_probe_set_partitions_flags(pr, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT) == 0)
		r = collect(pr, what, len);
	blkid_free_probe(pr);
	return r;
}
