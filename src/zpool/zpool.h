/* SPDX-License-Identifier: MIT */
/*
 * A pool of variable-size objects (compressed folios) in memory, packed by size class.
 *
 * Not its job: what an object means, compression, limits (the caller counts zpool_bytes()).
 *
 * Locking: internal (RANK_ZPOOL, one lock a size); any thread. zpool_map() needs no lock: an object
 *   does not move while its handle is live, and the caller keeps it live.
 * Context: never uses malloc; may call mmap/madvise. zpool_alloc() returns 0 when out of memory.
 */
#ifndef USWAP_ZPOOL_ZPOOL_H
#define USWAP_ZPOOL_ZPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define ZPOOL_MAX_OBJ ((64u << 10) + 64) /* largest object, bytes: 64 KiB and a header */

struct zpool;

/* max_bytes bounds the address space of the pool (reserved, not touched). NULL on ENOMEM. */
struct zpool *zpool_create(uint64_t max_bytes);
void zpool_destroy(struct zpool *zp); /* takes NULL */
/* A handle for 1..ZPOOL_MAX_OBJ bytes; never 0 unless it failed. */
uint32_t zpool_alloc(struct zpool *zp, size_t bytes);
void zpool_free(struct zpool *zp, uint32_t handle);
/* The object's bytes, aligned to 8. */
void *zpool_map(struct zpool *zp, uint32_t handle);
/*
 * Does the object lie among holes, while there is a place for it among objects that lie closer? Then
 * storing it anew, and freeing it here, is a step to giving memory back. The caller keeps it live.
 */
bool zpool_is_sparse(struct zpool *zp, uint32_t handle);
/* The size that was asked for. Needs no lock, like zpool_map(). */
size_t zpool_size(struct zpool *zp, uint32_t handle);
/* Memory really in use: pages of the pool that are touched, plus its tables. */
uint64_t zpool_bytes(struct zpool *zp);
/* Sum of the sizes asked for by live objects. */
uint64_t zpool_stored_bytes(struct zpool *zp);
/* The part of zpool_bytes() that is tables. */
uint64_t zpool_metadata_bytes(struct zpool *zp);
/*
 * Walks every invariant; aborts with a message on a broken one. For tests and debug level 3. No
 * other call may run meanwhile.
 */
void zpool_check(struct zpool *zp);
/* One line about its state, for logs. Returns what snprintf(3) would. */
int zpool_to_text(struct zpool *zp, char *buf, size_t len);

#endif
