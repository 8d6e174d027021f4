/* SPDX-License-Identifier: MIT */
/*
 * Injects errors and silent corruption. Each io draws once for each kind of fault that its
 * direction has, whatever the chances are, so that the draws of a seed do not shift when one
 * chance changes; with ios submitted in the same order the same ones fail.
 */
#include "dev/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* Buffers for corrupted writes, so that the caller's stays as it is. Touched only when used. */
#define NR_BOUNCE 64

struct fault {
	struct stack_dev s;
	struct fault_config cfg;
	struct us_mutex lock;
	/* protected by lock */
	struct rng rng;
	struct rng discard_rng; /* its own: discards do not shift the draws of ios */
	char *bounce;
	uint64_t bounce_used; /* a bit a buffer */
};

struct draw {
	double eio, enospc, corrupt;
	uint64_t bit;
};

LOCK_CLASS(fault_class, "dev_fault", RANK_DEV);

static struct fault *to_fault(struct stack_dev *s)
{
	return container_of(s, struct fault, s);
}

static double draw_one(struct rng *r)
{
	return (double)(rng_next(r) >> 11) / (double)(1ull << 53);
}

static void flip_bit(void *buf, uint32_t nr_pages, uint64_t bit)
{
	bit %= ((uint64_t)nr_pages << PAGE_SHIFT) * 8;
	((unsigned char *)buf)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

/* A copy of the io's buffer to spoil, or NULL when all are in use. */
static char *bounce_get(struct fault *f, const struct dev_io *io)
{
	char *b = NULL;

	us_mutex_lock(&f->lock);
	if (~f->bounce_used) {
		int i = __builtin_ctzll(~f->bounce_used);

		f->bounce_used |= 1ull << i;
		b = f->bounce + (size_t)i * MAX_FOLIO_BYTES;
	}
	us_mutex_unlock(&f->lock);
	if (b)
		memcpy(b, io->buf, (size_t)io->nr_pages << PAGE_SHIFT);
	return b;
}

static void bounce_put(struct fault *f, const char *b)
{
	us_mutex_lock(&f->lock);
	f->bounce_used &= ~(1ull << (size_t)(b - f->bounce) / MAX_FOLIO_BYTES);
	us_mutex_unlock(&f->lock);
}

static bool names_slot(const struct dev_io *io, uint32_t slot)
{
	return slot && slot >= io->slot && slot - io->slot < io->nr_pages;
}

static void fault_read(struct fault *f, struct stack_io *w, const struct draw *d)
{
	if (d->eio < f->cfg.read_eio || names_slot(&w->io, f->cfg.bad_slot)) {
		stack_end(w, -EIO);
		return;
	}
	if (d->corrupt < f->cfg.corrupt_read)
		w->io.priv = (void *)(uintptr_t)(d->bit | 1); /* nonzero: flip on return */
	dev_submit(f->s.below, &w->io);
}

/* A write that fails leaves nothing at its slots, as dev.h has it. */
static void fail_write(struct fault *f, struct stack_io *w, int result)
{
	struct dev *below = f->s.below;

	if (dev_io_valid(below, &w->io))
		below->ops->free_slots(below, w->io.slot, w->io.nr_pages);
	stack_end(w, result);
}

static void fault_write(struct fault *f, struct stack_io *w, const struct draw *d)
{
	if (d->eio < f->cfg.write_eio) {
		fail_write(f, w, -EIO);
		return;
	}
	if (d->enospc < f->cfg.write_enospc) {
		fail_write(f, w, -ENOSPC);
		return;
	}
	if (d->corrupt < f->cfg.corrupt_write) {
		char *b = bounce_get(f, &w->io);

		if (b) {
			flip_bit(b, w->io.nr_pages, d->bit);
			w->io.buf = b;
		}
	}
	dev_submit(f->s.below, &w->io);
}

static void fault_pass(struct stack_dev *s, struct dev_io *io)
{
	struct fault *f = to_fault(s);
	struct stack_io *w = stack_get(s, io);
	struct draw d;

	if (!w)
		return;
	us_mutex_lock(&f->lock);
	d.eio = draw_one(&f->rng);
	d.enospc = draw_one(&f->rng);
	d.corrupt = draw_one(&f->rng);
	d.bit = rng_next(&f->rng);
	us_mutex_unlock(&f->lock);
	if (io->op == DEV_READ)
		fault_read(f, w, &d);
	else
		fault_write(f, w, &d);
}

static int fault_discard(struct dev *d, uint32_t slot, uint32_t nr)
{
	struct stack_dev *s = to_stack(d);
	struct fault *f = to_fault(s);
	double draw;

	us_mutex_lock(&f->lock);
	draw = draw_one(&f->discard_rng);
	us_mutex_unlock(&f->lock);
	return draw < f->cfg.discard_eio ? -EIO : s->below->ops->discard(s->below, slot, nr);
}

static void fault_returned(struct stack_dev *s, struct dev_io *mine, struct dev_io *theirs)
{
	if (mine->buf != theirs->buf)
		bounce_put(to_fault(s), mine->buf);
	if (mine->op == DEV_READ && mine->result == 0 && mine->priv)
		flip_bit(mine->buf, mine->nr_pages, (uintptr_t)mine->priv);
}

static void fault_deinit(struct stack_dev *s)
{
	struct fault *f = to_fault(s);

	mem_release(f->bounce, NR_BOUNCE * MAX_FOLIO_BYTES);
	us_mutex_deinit(&f->lock);
}

struct dev *dev_fault_create(struct dev *below, const struct fault_config *cfg, int *err)
{
	struct fault *f = calloc(1, sizeof(*f));

	*err = -ENOMEM;
	if (!f)
		return NULL;
	f->bounce = mem_reserve(NR_BOUNCE * MAX_FOLIO_BYTES);
	if (!f->bounce || stack_init(&f->s, below) != 0) {
		mem_release(f->bounce, NR_BOUNCE * MAX_FOLIO_BYTES);
		free(f);
		return NULL;
	}
	f->cfg = *cfg;
	us_mutex_init(&f->lock, &fault_class);
	rng_init(&f->rng, cfg->seed);
	rng_init(&f->discard_rng, ~cfg->seed);
	if (below->ops->discard)
		f->s.ops.discard = fault_discard;
	f->s.pass = fault_pass;
	f->s.returned = fault_returned;
	f->s.deinit = fault_deinit;
	*err = 0;
	return &f->s.d;
}
