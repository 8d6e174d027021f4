/* SPDX-License-Identifier: MIT */
/*
 * Compression with memory that was set aside before: contexts for several threads at once.
 *
 * Not its job: where compressed data goes, what ratio is good enough.
 * Locking: codec_get() and codec_put() lock inside (RANK_DEV); a context belongs to its holder.
 *   codec_decompress() with lz4 needs no context.
 * Context: codec_get() waits while all contexts are in use, each for the time of one folio.
 *   Nothing allocates after codec_pool_init().
 */
#ifndef USWAP_DEV_CODEC_H
#define USWAP_DEV_CODEC_H

#include "base/lock.h"
#include "dev/dev.h"

#define CODEC_CHUNK_BYTES (64u << 10)	/* largest input */
#define CODEC_BUF_BYTES (CODEC_CHUNK_BYTES + 64)
#define CODEC_MAX_CONTEXTS 64

struct codec_ctx {
	char *buf;    /* CODEC_BUF_BYTES of scratch */
	void *state;  /* lz4: hash table; zstd: ZSTD_CCtx */
	void *dstate; /* zstd: ZSTD_DCtx */
};

struct codec_pool {
	enum dev_codec codec;
	int level;
	unsigned int nr;
	char *mem;
	size_t stride, state_bytes, dstate_bytes;
	struct codec_ctx ctx[CODEC_MAX_CONTEXTS];
	struct us_mutex lock;
	struct us_cond freed;
	/* protected by lock; a stack, so that few contexts get touched */
	unsigned char free[CODEC_MAX_CONTEXTS];
	unsigned int nr_free, waiters;
	_Atomic unsigned int most_used; /* changed under lock */
};

/* 0, -EINVAL (level) or -ENOMEM. */
int codec_pool_init(struct codec_pool *p, enum dev_codec codec, int level) __must_check;
void codec_pool_deinit(struct codec_pool *p);
/* Memory of the contexts that were ever in use. */
uint64_t codec_pool_bytes(struct codec_pool *p);

struct codec_ctx *codec_get(struct codec_pool *p);
void codec_put(struct codec_pool *p, struct codec_ctx *c);

/* The compressed length, or 0 if it does not fit room bytes (found out early). */
size_t codec_compress(struct codec_pool *p, struct codec_ctx *c, const void *src, size_t bytes,
		      void *dst, size_t room);
/* Whether src decompressed to exactly bytes. c may be NULL if !codec_needs_ctx(). */
bool codec_decompress(struct codec_pool *p, struct codec_ctx *c, const void *src, size_t len,
		      void *dst, size_t bytes);

static inline bool codec_needs_ctx(const struct codec_pool *p)
{
	return p->codec == CODEC_ZSTD;
}

#endif
