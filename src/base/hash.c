/* SPDX-License-Identifier: MIT */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

#include <errno.h>
#include <sys/random.h>

static uint8_t secret[XXH3_SECRET_SIZE_MIN + 56];

int hash_init(void)
{
	size_t have = 0;

	while (have < sizeof(secret)) {
		ssize_t n = getrandom(secret + have, sizeof(secret) - have, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		have += (size_t)n;
	}
	return 0;
}

struct hash128 hash_folio(const void *data, size_t bytes)
{
	XXH128_hash_t h = XXH3_128bits_withSecret(data, bytes, secret, sizeof(secret));

	return (struct hash128){.lo = h.low64, .hi = h.high64};
}
