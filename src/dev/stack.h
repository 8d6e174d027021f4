/* SPDX-License-Identifier: MIT */
/*
 * What stackable devices share: a device that passes everything on to the one below it, each io in
 * a wrapper of its own, so that the layers do not share the io's private fields.
 *
 * Not its job: when to pass an io on, or with which result.
 * Locking: RANK_DEV inside, never held over a call to the device below or to done().
 * Context: wrappers come from a mem_pool; stack_get() may fail, then the io ends with -ENOMEM.
 */
#ifndef USWAP_DEV_STACK_H
#define USWAP_DEV_STACK_H

#include "base/lock.h"
#include "base/mem.h"
#include "dev/dev_internal.h"

struct stack_dev {
	struct dev d;	    /* same name, type, sizes as below */
	struct dev_ops ops; /* what below lacks is NULL here too */
	struct dev *below;
	struct mem_pool pool; /* of stack_io */
	struct us_mutex lock; /* copying below's counters */
	void (*pass)(struct stack_dev *s, struct dev_io *io); /* the layer's submit */
	/* The layer's part of a completion, before the caller's; NULL: none. */
	void (*returned)(struct stack_dev *s, struct dev_io *mine, struct dev_io *theirs);
	void (*deinit)(struct stack_dev *s); /* the layer's part of destroy */
};

struct stack_io {
	struct dev_io io; /* what below sees */
	struct stack_dev *s;
	struct dev_io *caller;
	struct list_node node; /* the layer's */
	uint64_t priv;	       /* the layer's */
};

/* Takes over below on success only. 0 or -ENOMEM. Call it before setting the layer's functions. */
int stack_init(struct stack_dev *s, struct dev *below) __must_check;
void stack_deinit(struct stack_dev *s);

/* A wrapper for caller's io, ready to submit to below; NULL: caller's io has ended (-ENOMEM). */
struct stack_io *stack_get(struct stack_dev *s, struct dev_io *caller);
/* The wrapper's io has ended without below. */
void stack_end(struct stack_io *w, int result);

static inline struct stack_dev *to_stack(struct dev *d)
{
	return container_of(d, struct stack_dev, d);
}

#endif
