/* SPDX-License-Identifier: MIT */
#include "dev/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Address space only, until that many ios are in flight. */
#define MAX_IOS (1u << 16)

LOCK_CLASS(stack_class, "dev_stack", RANK_DEV);

/* Under a lock, so that an older value never replaces a newer one. */
static void copy_counters(struct stack_dev *s)
{
	us_mutex_lock(&s->lock);
	atomic_store(&s->d.nr_slots, atomic_load(&s->below->nr_slots));
	atomic_store(&s->d.stored_pages, atomic_load(&s->below->stored_pages));
	atomic_store(&s->d.stored_bytes, atomic_load(&s->below->stored_bytes));
	us_mutex_unlock(&s->lock);
}

static void stack_submit(struct dev *d, struct dev_io *io)
{
	to_stack(d)->pass(to_stack(d), io);
}

static void stack_free_slots(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct stack_dev *s = to_stack(d);

	s->below->ops->free_slots(s->below, slot, nr);
	copy_counters(s);
}

static uint32_t stack_grow(struct dev *d, uint32_t want_slots)
{
	struct stack_dev *s = to_stack(d);
	uint32_t have = s->below->ops->grow(s->below, want_slots);

	copy_counters(s);
	return have;
}

static int stack_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct stack_dev *s = to_stack(d);

	return s->below->ops->discard(s->below, slot, nr);
}

static uint64_t stack_memory_bytes(struct dev *d)
{
	struct stack_dev *s = to_stack(d);

	return s->below->ops->memory_bytes(s->below);
}

static uint64_t stack_metadata_bytes(struct dev *d)
{
	struct stack_dev *s = to_stack(d);

	return s->below->ops->metadata_bytes(s->below);
}

static uint64_t stack_memory_room(struct dev *d)
{
	struct stack_dev *s = to_stack(d);

	return s->below->ops->memory_room(s->below);
}

static void stack_destroy(struct dev *d)
{
	struct stack_dev *s = to_stack(d);

	s->deinit(s);
	dev_destroy(s->below);
	stack_deinit(s);
	free(s);
}

int stack_init(struct stack_dev *s, struct dev *below)
{
	int r = mem_pool_init(&s->pool, sizeof(struct stack_io), MAX_IOS);

	if (r)
		return r;
	us_mutex_init(&s->lock, &stack_class);
	s->below = below;
	s->ops = (struct dev_ops){
		.type = below->ops->type,
		.flags = below->ops->flags,
		.submit = stack_submit,
		.free_slots = stack_free_slots,
		.grow = below->ops->grow ? stack_grow : NULL,
		.discard = below->ops->discard ? stack_discard : NULL,
		/* No copy_slots: what moves is read and written, so that the layer sees it. */
		.memory_bytes = below->ops->memory_bytes ? stack_memory_bytes : NULL,
		.metadata_bytes = below->ops->metadata_bytes ? stack_metadata_bytes : NULL,
		.memory_room = below->ops->memory_room ? stack_memory_room : NULL,
		.destroy = stack_destroy,
	};
	s->d.ops = &s->ops;
	memcpy(s->d.name, below->name, sizeof(s->d.name));
	s->d.max_slots = below->max_slots;
	s->d.bad_slots = below->bad_slots;
	s->d.nr_bad_slots = below->nr_bad_slots;
	s->d.discard_pages = below->discard_pages;
	s->d.rotational = below->rotational;
	copy_counters(s);
	return 0;
}

void stack_deinit(struct stack_dev *s)
{
	mem_pool_deinit(&s->pool);
	us_mutex_deinit(&s->lock);
}

void stack_end(struct stack_io *w, int result)
{
	struct stack_dev *s = w->s;
	struct dev_io *caller = w->caller;

	caller->stored_bytes = w->io.stored_bytes;
	mem_pool_free(&s->pool, w);
	copy_counters(s);
	dev_io_end(&s->d, caller, result);
}

static void wrapper_done(struct dev_io *io)
{
	struct stack_io *w = container_of(io, struct stack_io, io);

	if (w->s->returned)
		w->s->returned(w->s, io, w->caller);
	stack_end(w, io->result);
}

struct stack_io *stack_get(struct stack_dev *s, struct dev_io *caller)
{
	struct stack_io *w = mem_pool_alloc(&s->pool);

	if (!w) {
		dev_io_end(&s->d, caller, -ENOMEM);
		return NULL;
	}
	w->s = s;
	w->caller = caller;
	w->io.op = caller->op;
	w->io.flags = caller->flags;
	w->io.slot = caller->slot;
	w->io.nr_pages = caller->nr_pages;
	w->io.buf = caller->buf;
	w->io.done = wrapper_done;
	return w;
}
