/* SPDX-License-Identifier: MIT */
/*
 * The engine's own memory. Everything the fault and the reclaim path need comes from here, never
 * from malloc: ranges are reserved as address space at start and touched as they are used.
 *
 * mem_reserve(): address space without memory; pages appear on first touch.
 * mem_pool: fixed-size objects carved from one reservation, with a free list.
 *
 * mem_total_bytes() counts what pools and mem_account() report; it is the "metadata" of
 * `uswap stat`.
 */
#ifndef USWAP_BASE_MEM_H
#define USWAP_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/util.h"

/* Reserves bytes of zeroed address space (PROT_READ|WRITE, NORESERVE). NULL on ENOMEM. */
void *mem_reserve(size_t bytes);
void mem_release(void *p, size_t bytes);
/* Gives the pages of a part of a reservation back to the kernel; it reads as zeros again. */
void mem_discard(void *p, size_t bytes);

/* Adds to (or, negative, subtracts from) the count of metadata bytes. Any thread. */
void mem_account(int64_t bytes);
uint64_t mem_total_bytes(void);

struct mem_pool {
	struct us_mutex lock;
	char *base;
	size_t obj_bytes, max_objs;
	bool unaccounted; /* set after init: its owner reports mem_pool_bytes() in its own figures */
	/* protected by lock */
	size_t next;	 /* first object never handed out */
	void *free_list; /* linked through the first word of each free object */
	size_t used;
};

/* obj_bytes is rounded up to 8, from 64 on to 64. Returns 0 or -ENOMEM. */
int mem_pool_init(struct mem_pool *p, size_t obj_bytes, size_t max_objs) __must_check;
void mem_pool_deinit(struct mem_pool *p);
/* A zeroed object, or NULL when all max_objs are in use. Does not block on memory. */
void *mem_pool_alloc(struct mem_pool *p);
void mem_pool_free(struct mem_pool *p, void *obj);
/* What was ever touched: objects that come back are kept for the next. */
uint64_t mem_pool_bytes(struct mem_pool *p);

#endif
