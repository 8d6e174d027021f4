/* SPDX-License-Identifier: MIT */
/*
 * The devices that benchmarks store pages on: "zram", "ram" (plain memory), or "file:PATH" with the
 * keys that `uswap run --swap` takes, such as ,force for a file that is there.
 */
#ifndef USWAP_CLI_BENCH_DEVICE_H
#define USWAP_CLI_BENCH_DEVICE_H

#include "dev/dev.h"

/* Of that size, slot 0 included. NULL: *rc is the status to exit with (printed). bench: argv[0]. */
struct dev *bench_device_create(const char *bench, const char *text, uint64_t bytes, int *rc);

#endif
