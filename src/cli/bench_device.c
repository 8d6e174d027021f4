/* SPDX-License-Identifier: MIT */
#include "cli/bench_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/spec.h"

static struct dev *create_file(const char *bench, const char *text, uint64_t bytes, int *rc)
{
	static struct swap_spec spec; /* too large for the stack */
	char why[512] = "";
	struct file_config cfg;
	struct dev *d;
	int err = 0;

	if (spec_parse_here(text, &spec, why, sizeof(why))) {
		*rc = cli_fail("%s: device %s", bench, why);
		return NULL;
	}
	if (spec.bytes) {
		*rc = cli_fail("%s: device '%s': its size is %llu MiB, so give none", bench, text,
			       (unsigned long long)(bytes >> 20));
		return NULL;
	}
	cfg = (struct file_config){.path = spec.path,
				   .bytes = bytes,
				   .force = spec.force,
				   .keep = spec.keep,
				   .discard = spec.discard,
				   .no_io_uring = spec.no_io_uring,
				   .no_direct = spec.no_direct};
	d = dev_file_create(&cfg, &err, why, sizeof(why));
	if (!d)
		*rc = cli_fail("%s: %s", bench, why);
	return d;
}

struct dev *bench_device_create(const char *bench, const char *text, uint64_t bytes, int *rc)
{
	struct dev *d;
	int err = 0;

	if (!strcmp(text, "zram")) {
		d = dev_zram_create(&(struct zram_config){.bytes = bytes}, &err);
	} else if (!strcmp(text, "ram")) {
		d = dev_ram_create((uint32_t)(bytes >> PAGE_SHIFT), &err);
	} else if (!strncmp(text, "file:", 5) && text[5]) {
		return create_file(bench, text, bytes, rc);
	} else {
		*rc = cli_fail("%s: device '%s': use zram, ram or file:PATH", bench, text);
		return NULL;
	}
	if (!d)
		*rc = cli_fail("%s: %s", bench, strerror(-err));
	return d;
}
