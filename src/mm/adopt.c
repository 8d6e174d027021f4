/* SPDX-License-Identifier: MIT */
/*
 * Pages that are present without our having filled them: taken in as RESIDENT, so that they can
 * be evicted. They come about in three ways.
 *
 * A range is registered (range.c): what is present at that moment is taken in at once.
 *
 * The gate closed while a range was registered, so that nothing could be said of it: it is looked
 * at again as soon as the gate is open (space_adopt_soon()).
 *
 * A REMOVE event. After MADV_FREE the pages stay, and being written again they send no fault; after
 * MADV_DONTNEED the range is empty soon. Which of the two it was the event does not say, and it is
 * sent before the call empties anything. So the range is looked at a second later, when no thread
 * is inside madvise(2) (rule 4; space_adopt_later()).
 *
 * Until then such pages stay resident, which is safe: nothing of them was ever evicted. A forked
 * child has them too, and inherits the ranges.
 *
 * Ranges are merged when there are many, so they may span anything, staging included: only what
 * ops->registered() says is the program's is taken.
 */
#include <errno.h>

#include "base/clock.h"
#include "mm/mm.h"

/* After a REMOVE. The thread that called may not have run since. */
#define REMOVE_AGE_NS NSEC_PER_SEC

/* Bytes by which r would have to grow to hold [start, end). */
static uint64_t growth_of(const struct adopt_range *r, uint64_t start, uint64_t end)
{
	return MAX(r->end, end) - MIN(r->start, start) - (r->end - r->start);
}

static void widen(struct adopt_range *r, uint64_t start, uint64_t end, uint64_t since_ns)
{
	r->start = MIN(r->start, start);
	r->end = MAX(r->end, end);
	r->since_ns = MAX(r->since_ns, since_ns);
}

static void note(struct space *s, uint64_t start, uint64_t end, uint64_t since_ns)
{
	struct adopt_range *nearest = NULL;
	bool noted = false;

	/* Every range that overlaps waits anew: none may look at these pages too early. */
	for (unsigned int i = 0; i < s->nr_adopt; i++) {
		struct adopt_range *r = &s->adopt[i];

		if (start < r->end && end > r->start) {
			widen(r, start, end, since_ns);
			noted = true;
		}
		if (!nearest || growth_of(r, start, end) < growth_of(nearest, start, end))
			nearest = r;
	}
	if (noted)
		return;
	if (s->nr_adopt < MAX_ADOPT)
		s->adopt[s->nr_adopt++] = (struct adopt_range){start, end, since_ns};
	else
		widen(nearest, start, end, since_ns); /* too much, later, is harmless */
}

void space_adopt_later(struct space *s, uint64_t start, uint64_t end)
{
	note(s, start, end, clock_now_ns());
}

void space_adopt_soon(struct space *s, uint64_t start, uint64_t end)
{
	note(s, start, end, 0);
}

bool space_adopt_waits(const struct space *s, uint64_t start, uint64_t end)
{
	for (unsigned int i = 0; i < s->nr_adopt; i++)
		if (s->adopt[i].since_ns && start < s->adopt[i].end && end > s->adopt[i].start)
			return true;
	return false;
}

void space_adopt_inherit(struct space *child, const struct space *parent)
{
	for (unsigned int i = 0; i < parent->nr_adopt; i++)
		child->adopt[i] = parent->adopt[i];
	child->nr_adopt = parent->nr_adopt;
}

/* Pages [start, end) are present and ours. Old from the start: nobody knows when they were used. */
static int take(uint64_t start, uint64_t end, void *arg)
{
	struct space *s = arg;

	for (uint64_t va = start; va < end; va += PAGE_SIZE) {
		struct leaf *l = table_leaf(&s->table, va, true);

		if (!l)
			return -ENOMEM;
		if (pw_state(l->w[leaf_index(va)]) == PW_NONE)
			table_set(&s->table, l, leaf_index(va),
				  pw_make(PW_RESIDENT, 0, 0, (uint8_t)(mm_gen(s->mm) - 3)));
	}
	return 0;
}

int space_take_present(struct space *s, uint64_t start, uint64_t end)
{
	us_mutex_assert_held(&s->lock);
	return s->ops->each_present(s, start, end, take, s);
}

/* The same, where not all that is present need be registered. -EAGAIN: the gate has closed. */
static int take_registered(uint64_t start, uint64_t end, void *arg)
{
	struct space *s = arg;

	for (uint64_t va = start; va < end; va += PAGE_SIZE) {
		int r;

		if (pw_state(table_get(&s->table, va)) != PW_NONE)
			continue;
		r = s->ops->registered(s, va);
		if (r == 1)
			r = take(va, va + PAGE_SIZE, s);
		if (r < 0)
			return r;
	}
	return 0;
}

void space_adopt(struct space *s)
{
	uint64_t now = clock_now_ns(), age = mm_mutants.no_filled_only ? 0 : REMOVE_AGE_NS;
	bool in_madvise;

	us_mutex_assert_held(&s->reader_lock);
	/* A madvise() that has not come to its end may still empty the range. */
	in_madvise = age && s->ops->in_madvise && s->ops->in_madvise(s);
	us_mutex_lock(&s->lock);
	for (unsigned int i = 0; i < s->nr_adopt;) {
		struct adopt_range r = s->adopt[i];

		if ((r.since_ns && (in_madvise || now - r.since_ns < age)) ||
		    s->ops->gate_open(s) != 1 ||
		    s->ops->each_present(s, r.start, r.end, take_registered, s) == -EAGAIN) {
			i++;
			continue;
		}
		s->adopt[i] = s->adopt[--s->nr_adopt];
	}
	us_mutex_unlock(&s->lock);
}
