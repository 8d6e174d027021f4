/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif

LOCK_CLASS(pool_class, "mem_pool", RANK_MEM);

static _Atomic int64_t total_bytes;

void *mem_reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* A huge page here would charge 2 MiB of the budget for one object. */
	(void)madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

void mem_release(void *p, size_t bytes)
{
	if (p)
		(void)munmap(p, bytes);
}

void mem_discard(void *p, size_t bytes)
{
	/* The supervisor locks its memory, and plain DONTNEED refuses locked ranges. */
	if (madvise(p, bytes, MADV_DONTNEED_LOCKED) != 0)
		(void)madvise(p, bytes, MADV_DONTNEED);
}

void mem_account(int64_t bytes)
{
	atomic_fetch_add_explicit(&total_bytes, bytes, memory_order_relaxed);
}

uint64_t mem_total_bytes(void)
{
	int64_t v = atomic_load_explicit(&total_bytes, memory_order_relaxed);

	return v > 0 ? (uint64_t)v : 0;
}

int mem_pool_init(struct mem_pool *p, size_t obj_bytes, size_t max_objs)
{
	memset(p, 0, sizeof(*p));
	/* What is aligned to a cache line in the object stays so. */
	p->obj_bytes = align_up(obj_bytes, obj_bytes >= 64 ? 64 : 8);
	p->max_objs = max_objs;
	p->base = mem_reserve(p->obj_bytes * max_objs);
	if (!p->base)
		return -ENOMEM;
	us_mutex_init(&p->lock, &pool_class);
	return 0;
}

void mem_pool_deinit(struct mem_pool *p)
{
	if (!p->base)
		return;
	if (!p->unaccounted)
		mem_account(-(int64_t)(p->next * p->obj_bytes));
	mem_release(p->base, p->obj_bytes * p->max_objs);
	us_mutex_deinit(&p->lock);
	p->base = NULL;
}

void *mem_pool_alloc(struct mem_pool *p)
{
	void *obj = NULL;

	us_mutex_lock(&p->lock);
	if (p->free_list) {
		obj = p->free_list;
		memcpy(&p->free_list, obj, sizeof(void *));
	} else if (p->next < p->max_objs) {
		obj = p->base + p->next++ * p->obj_bytes;
		if (!p->unaccounted)
			mem_account((int64_t)p->obj_bytes);
	}
	if (obj)
		p->used++;
	us_mutex_unlock(&p->lock);
	if (obj)
		memset(obj, 0, p->obj_bytes);
	return obj;
}

void mem_pool_free(struct mem_pool *p, void *obj)
{
	us_mutex_lock(&p->lock);
	memcpy(obj, &p->free_list, sizeof(void *));
	p->free_list = obj;
	p->used--;
	us_mutex_unlock(&p->lock);
}

uint64_t mem_pool_bytes(struct mem_pool *p)
{
	uint64_t n;

	us_mutex_lock(&p->lock);
	n = p->next * p->obj_bytes;
	us_mutex_unlock(&p->lock);
	return n;
}
