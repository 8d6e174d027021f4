/* SPDX-License-Identifier: MIT */
/* Contexts in memory of our own: ZSTD_createCCtx() would resize itself by malloc later. */
#define ZSTD_STATIC_LINKING_ONLY
#include "dev/codec.h"

#include <errno.h>
#include <lz4.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/mem.h"

LOCK_CLASS(codec_class, "codec", RANK_DEV);

static size_t zstd_state_bytes(int level)
{
	size_t most = 0;

	/* zstd chooses its tables by the size of the input; they need not grow with it. */
	for (size_t in = PAGE_SIZE; in <= CODEC_CHUNK_BYTES; in *= 2) {
		size_t n = ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level, in, 0));

		most = MAX(most, n);
	}
	return most + KIB(4);
}

static int zstd_ctx_init(struct codec_pool *p, struct codec_ctx *c)
{
	ZSTD_CCtx *cctx = ZSTD_initStaticCCtx(c->state, p->state_bytes);
	ZSTD_DCtx *dctx = ZSTD_initStaticDCtx(c->dstate, p->dstate_bytes);

	if (!cctx || !dctx)
		return -ENOMEM;
	/* The magic number and the length would be the same for every page. */
	if (ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, p->level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, 0)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_format, ZSTD_f_zstd1_magicless)) ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(dctx, ZSTD_d_format, ZSTD_f_zstd1_magicless)))
		return -EINVAL;
	c->state = cctx;
	c->dstate = dctx;
	return 0;
}

static int codec_sizes(struct codec_pool *p)
{
	if (p->codec == CODEC_LZ4) {
		p->level = p->level ? p->level : 1;
		p->state_bytes = (size_t)LZ4_sizeofState();
		return p->level < 0 ? -EINVAL : 0;
	}
	p->level = p->level ? p->level : 3;
	if (p->level < 1 || p->level > 19)
		return -EINVAL;
	p->state_bytes = align_up(zstd_state_bytes(p->level), PAGE_SIZE);
	p->dstate_bytes = align_up(ZSTD_estimateDCtxSize(), PAGE_SIZE);
	return 0;
}

int codec_pool_init(struct codec_pool *p, enum dev_codec codec, int level)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	memset(p, 0, sizeof(*p));
	p->codec = codec;
	p->level = level;
	r = codec_sizes(p);
	if (r)
		return r;
	p->nr = (unsigned int)CLAMP(cpus, 2, CODEC_MAX_CONTEXTS);
	p->stride = align_up(p->state_bytes + p->dstate_bytes, PAGE_SIZE) +
		    align_up(CODEC_BUF_BYTES, PAGE_SIZE);
	p->mem = mem_reserve(p->stride * p->nr);
	if (!p->mem)
		return -ENOMEM;
	us_mutex_init(&p->lock, &codec_class);
	us_cond_init(&p->freed);
	for (unsigned int i = 0; i < p->nr && !r; i++) {
		struct codec_ctx *c = &p->ctx[i];

		c->state = p->mem + p->stride * i;
		c->dstate = (char *)c->state + p->state_bytes;
		c->buf = (char *)c->dstate + p->dstate_bytes;
		if (codec == CODEC_ZSTD)
			r = zstd_ctx_init(p, c);
		p->free[p->nr - 1 - i] = (unsigned char)i;
	}
	p->nr_free = p->nr;
	if (r)
		codec_pool_deinit(p);
	return r;
}

void codec_pool_deinit(struct codec_pool *p)
{
	if (!p->mem)
		return;
	mem_release(p->mem, p->stride * p->nr);
	p->mem = NULL;
	us_cond_deinit(&p->freed);
	us_mutex_deinit(&p->lock);
}

uint64_t codec_pool_bytes(struct codec_pool *p)
{
	return (uint64_t)atomic_load_explicit(&p->most_used, memory_order_relaxed) * p->stride;
}

struct codec_ctx *codec_get(struct codec_pool *p)
{
	struct codec_ctx *c;

	us_mutex_lock(&p->lock);
	while (!p->nr_free) {
		p->waiters++;
		us_cond_wait(&p->freed, &p->lock);
		p->waiters--;
	}
	c = &p->ctx[p->free[--p->nr_free]];
	if (p->nr - p->nr_free > atomic_load_explicit(&p->most_used, memory_order_relaxed))
		atomic_store_explicit(&p->most_used, p->nr - p->nr_free, memory_order_relaxed);
	us_mutex_unlock(&p->lock);
	return c;
}

void codec_put(struct codec_pool *p, struct codec_ctx *c)
{
	us_mutex_lock(&p->lock);
	p->free[p->nr_free++] = (unsigned char)(c - p->ctx);
	if (p->waiters)
		us_cond_signal(&p->freed);
	us_mutex_unlock(&p->lock);
}

size_t codec_compress(struct codec_pool *p, struct codec_ctx *c, const void *src, size_t bytes,
		      void *dst, size_t room)
{
	size_t n;

	if (p->codec == CODEC_LZ4) {
		int r = LZ4_compress_fast_extState(c->state, src, dst, (int)bytes, (int)room,
						   p->level);

		return r > 0 ? (size_t)r : 0;
	}
	n = ZSTD_compress2(c->state, dst, room, src, bytes);
	return ZSTD_isError(n) ? 0 : n;
}

bool codec_decompress(struct codec_pool *p, struct codec_ctx *c, const void *src, size_t len,
		      void *dst, size_t bytes)
{
	if (p->codec == CODEC_LZ4)
		return LZ4_decompress_safe(src, dst, (int)len, (int)bytes) == (int)bytes;
	return ZSTD_decompressDCtx(c->dstate, dst, bytes, src, len) == bytes;
}
