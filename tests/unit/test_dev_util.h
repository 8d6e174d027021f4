/* SPDX-License-Identifier: MIT */
/*
 * Helpers for tests of devices: page buffers with content that can be told apart, and waiting for
 * a number of ios.
 * Not for: anything outside tests/unit. Buffers are mapped with an inaccessible page behind them,
 * so that a device which writes too far is caught without a sanitizer.
 */
#ifndef USWAP_TEST_DEV_UTIL_H
#define USWAP_TEST_DEV_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/dev.h"

char *pages_new(uint32_t nr_pages);
void pages_free(char *p, uint32_t nr_pages);
/* Compresses to about half: words of a generator, each followed by zeros. */
void pages_fill(char *p, uint32_t nr_pages, uint64_t seed);
bool pages_are(const char *p, uint32_t nr_pages, uint64_t seed);
/* noise: 0..1, the part that does not compress. */
void pages_fill_noise(char *p, uint32_t nr_pages, uint64_t seed, double noise);

uint64_t dev_pages(struct dev *d);
uint64_t dev_bytes(struct dev *d);
uint64_t dev_errors(struct dev *d);

/*
 * For devices whose constructor says in a sentence why it fails: make() is it, with what all tests of
 * the file want in its configuration.
 */
typedef struct dev *make_dev(const void *cfg, int *err, char *sentence, size_t len);
/* NULL, an error and a sentence; or a device. Anything in between fails the test. */
struct dev *dev_try(make_dev *make, const void *cfg, int *err);
/* It must succeed. */
struct dev *dev_made(make_dev *make, const void *cfg);
/* It must fail with -err, in one line that begins with "KIND:PATH: " and holds words. */
void dev_refused(make_dev *make, const void *cfg, int err, const char *kind, const char *path,
		 const char *words);
/* The last sentence. */
extern char dev_sentence[512];

/* Writes nr pages and reads them into out. */
void dev_round_trip(struct dev *d, uint32_t slot, uint32_t nr, uint64_t seed, char *buf, char *out);

/* Ends once every one of a number of ios has. */
struct gather {
	_Atomic uint32_t left;
	_Atomic uint32_t failed; /* result != 0 */
};
void gather_done(struct dev_io *io); /* io->priv is the gather */
void gather_wait(struct gather *g);  /* fails the test after 20 s */

#endif
