/* SPDX-License-Identifier: MIT */
#include "fake_space.h"

#include "swap/internal.h"

#include <sched.h>

LOCK_CLASS(fake_class, "fake", RANK_MEM + 1);

#define FAKE_BUG(...) (fprintf(stderr, "fake: " __VA_ARGS__), fputc('\n', stderr), abort())

/* One line of the trace: of which space, thread (-1: the engine) and pages. */
#define TRACE(f, t, page, nr, ...)                                                                 \
	do {                                                                                       \
		if ((f)->w->trace) {                                                               \
			fprintf(stderr, "%d.%d %u+%u ", (f)->index, (int)(t), page, nr);           \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
		}                                                                                  \
	} while (0)

static struct fake *fake_of(struct space *s)
{
	return s->impl;
}

static void meanwhile(struct fake *f, bool engine_too)
{
	if (f->w->meanwhile)
		f->w->meanwhile(f->w, f, engine_too);
}

/* ---- content ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

static uint64_t page_word(uint64_t content, unsigned int i)
{
	if (i == 511 || (content & 3) == 1)
		return content;
	if ((content & 3) == 2)
		return mix(content + i);
	return i < 16 ? mix(content * 32 + i) : content;
}

void fake_fill_page(uint64_t content, void *page)
{
	uint64_t *w = page;

	if (!content) {
		memset(page, 0, PAGE_SIZE);
		return;
	}
	for (unsigned int i = 0; i < 512; i++)
		w[i] = page_word(content, i);
}

/* The content that the page shows; ~0 if it is a mixture. */
static uint64_t page_content(const void *page)
{
	const uint64_t *w = page;
	uint64_t content = w[511];

	for (unsigned int i = 0; i < 512; i++)
		if (w[i] != (content ? page_word(content, i) : 0))
			return ~0ull;
	return content;
}

uint64_t fake_new_token(struct world *w, unsigned int kind)
{
	return ++w->next_token << 2 | (kind & 3);
}

static void wrong_page(struct fake *f, unsigned int page, const char *how)
{
	struct world *w = f->w;
	struct fake_page *p = &f->page[page];

	w->wrong++;
	if (w->expect_wrong) {
		p->want = p->content;
		return;
	}
	FAKE_BUG("%s, seed %llu: space %d page %u: %s: has %llx, must have %llx%s",
		 w->what ? w->what : "", (unsigned long long)w->seed, f->index, page, how,
		 (unsigned long long)p->content, (unsigned long long)p->want,
		 p->zero_too ? " or zeros" : "");
}

/* A thread looks at a page that is present. */
static void look(struct fake *f, unsigned int page)
{
	struct fake_page *p = &f->page[page];

	f->w->visits++;
	if (p->content == p->want)
		return;
	if (p->zero_too && !p->content) {
		/* Once it is empty it stays so. */
		p->want = 0;
		return;
	}
	wrong_page(f, page, "wrong content");
}

/* ---- ops: events ---- */

static void helper_step(struct fake *f);

static int fake_read_events(struct space *s, struct event *ev, int max)
{
	struct fake *f = fake_of(s);
	int n = 0;

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	if (f->dead) {
		us_mutex_unlock(&f->w->lock);
		return -ESRCH;
	}
	if (!f->hold)
		FAKE_BUG("events are read without hold");
	if (mm_mutants.no_permit)
		helper_step(f);
	while (n < max && f->nr_faults) {
		struct fake_thread *th = &f->thread[f->faults[0]];

		memmove(f->faults, f->faults + 1, --f->nr_faults * sizeof(f->faults[0]));
		th->state = T_FAULT_READ;
		ev[n++] = (struct event){
			.kind = EVENT_FAULT, .write = th->write, .start = fake_va(th->page)};
	}
	while (n < max && f->nr_events) {
		unsigned int t = f->events[0];
		struct fake_thread *th = &f->thread[t];

		memmove(f->events, f->events + 1, --f->nr_events * sizeof(f->events[0]));
		th->state = T_READ;
		TRACE(f, t, 0u, 0u, "read event %u of op %d", th->at, th->op);
		ev[n++] = th->ev[th->at];
	}
	us_mutex_unlock(&f->w->lock);
	return n;
}

static int fake_gate_open(struct space *s)
{
	struct fake *f = fake_of(s);
	int r;

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	if (mm_mutants.no_permit)
		helper_step(f);
	r = f->dead ? -ESRCH : f->changing == 0;
	us_mutex_unlock(&f->w->lock);
	if (!r && !f->w->meanwhile && !f->w->real_threads)
		(void)fake_run_any(f);
	return r;
}

static void fake_hold(struct space *s, bool on)
{
	struct fake *f = fake_of(s);

	/* A MOVE happens under the world's lock, so none is in progress here. */
	us_mutex_lock(&f->w->lock);
	f->hold = on;
	us_mutex_unlock(&f->w->lock);
}

/* ---- ops: fills ---- */

static struct fake_page *page_at(struct fake *f, uint64_t va)
{
	uint64_t i = (va - FAKE_BASE) >> PAGE_SHIFT;

	return va >= FAKE_BASE && i < FAKE_PAGES ? &f->page[i] : NULL;
}

static void wake_page(struct fake *f, unsigned int page)
{
	for (unsigned int t = 0; t < FAKE_THREADS; t++) {
		struct fake_thread *th = &f->thread[t];

		if (th->page != page || (th->state != T_FAULT && th->state != T_FAULT_READ))
			continue;
		for (unsigned int i = 0; i < f->nr_faults; i++)
			if (f->faults[i] == t)
				memmove(f->faults + i, f->faults + i + 1,
					(--f->nr_faults - i) * sizeof(f->faults[0]));
		th->state = T_ACCESS;
	}
}

/* Why the page cannot be filled, or 0. marker: a guard or poison marker is in the way. */
static int fill_error(struct fake *f, const struct fake_page *p, bool marker)
{
	if (f->dead)
		return -ESRCH;
	if (f->changing)
		return -EAGAIN;
	if (!p || !p->vma || !p->registered)
		return -ENOENT;
	if (p->present || (marker && (p->guard || p->poisoned)))
		return -EEXIST;
	return 0;
}

static void put_page(struct fake_page *p, uint64_t content)
{
	p->content = content;
	p->present = true;
	p->poisoned = p->guard = p->lazy = p->shared = false;
}

static int64_t fake_copy(struct space *s, uint64_t va, const void *src, uint64_t nr)
{
	struct fake *f = fake_of(s);
	int64_t done = 0;

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	f->nr_copies++;
	for (; done < (int64_t)nr; done++, va += PAGE_SIZE) {
		struct fake_page *p = page_at(f, va);
		int r = fill_error(f, p, false);

		if (r) {
			done = done ? done : r;
			break;
		}
		/* The kernel stops early when it likes to. */
		if (done && f->w->meanwhile && (f->nr_copies + (uint64_t)done) % 13 == 0)
			break;
		if (p->guard)
			wrong_page(f, (unsigned int)(p - f->page), "a guard marker was overwritten");
		put_page(p, page_content((const char *)src + done * (int64_t)PAGE_SIZE));
		TRACE(f, -1, (unsigned int)(p - f->page), 1u, "copy %llx",
		      (unsigned long long)p->content);
		wake_page(f, (unsigned int)(p - f->page));
	}
	us_mutex_unlock(&f->w->lock);
	return done;
}

static int fill_one(struct space *s, uint64_t va, bool poison)
{
	struct fake *f = fake_of(s);
	struct fake_page *p = page_at(f, va);
	int r;

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	r = fill_error(f, p, true);
	if (!r) {
		put_page(p, 0);
		TRACE(f, -1, (unsigned int)(p - f->page), 1u, poison ? "poison" : "zeros");
		p->present = !poison;
		p->poisoned = poison;
		f->nr_poisoned += poison;
		wake_page(f, (unsigned int)(p - f->page));
	}
	us_mutex_unlock(&f->w->lock);
	return r;
}

static int fake_zeropage(struct space *s, uint64_t va)
{
	return fill_one(s, va, false);
}

static int64_t fake_poison(struct space *s, uint64_t va, uint64_t nr)
{
	int r;

	assert_int_equal(nr, 1);
	r = fill_one(s, va, true);
	return r ? r : 1;
}

static void fake_wake(struct space *s, uint64_t va)
{
	struct fake *f = fake_of(s);

	us_mutex_lock(&f->w->lock);
	f->nr_wakes++;
	if (page_at(f, va))
		wake_page(f, (unsigned int)(page_at(f, va) - f->page));
	us_mutex_unlock(&f->w->lock);
}

static int fake_registered(struct space *s, uint64_t va)
{
	struct fake *f = fake_of(s);
	struct fake_page *p = page_at(f, va);
	int r;

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	r = f->dead ? -ESRCH : f->changing ? -EAGAIN : p && p->vma && p->registered;
	us_mutex_unlock(&f->w->lock);
	return r;
}

static int fake_pagemap(struct space *s, uint64_t va, uint64_t *entry, size_t nr)
{
	struct fake *f = fake_of(s);

	meanwhile(f, false);
	us_mutex_lock(&f->w->lock);
	for (size_t i = 0; i < nr; i++) {
		struct fake_page *p = page_at(f, va + (i << PAGE_SHIFT));

		entry[i] = p && p->present ? PAGEMAP_PRESENT : 0;
		if (p && p->guard)
			entry[i] |= PAGEMAP_GUARD;
	}
	us_mutex_unlock(&f->w->lock);
	return 0;
}

static int fake_each_present(struct space *s, uint64_t start, uint64_t end,
			     int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg)
{
	int r = 0;

	start = MAX(start, fake_va(0));
	end = MIN(end, fake_va(FAKE_PAGES));
	for (uint64_t va = start; va < end && !r; va += PAGE_SIZE) {
		uint64_t pm;

		(void)fake_pagemap(s, va, &pm, 1);
		if (pm & PAGEMAP_PRESENT)
			r = fn(va, va + PAGE_SIZE, arg);
	}
	return r;
}

/* ---- ops: the helper ---- */

static bool fake_can_move(struct space *s)
{
	return !fake_of(s)->no_helper;
}

static void fake_prepare(struct space *s)
{
	struct fake *f = fake_of(s);

	us_mutex_lock(&f->w->lock);
	for (unsigned int i = 0; i < BATCH_ITEMS; i++) {
		f->moved[i] = 0;
		f->move_error[i] = -EAGAIN;
		f->cancelled[i] = false;
	}
	for (int m = 0; m < NR_AGENT_MODES; m++)
		for (unsigned int i = 0; i < STAGING_PAGES; i++)
			if (f->staging[m][i].present)
				FAKE_BUG("a batch begins while staging is not empty");
	us_mutex_unlock(&f->w->lock);
}

/* Moves one page. 0 or -errno. */
static int move_page(struct fake *f, const struct batch_item *it, unsigned int k)
{
	struct fake_page *p = page_at(f, it->va + ((uint64_t)k << PAGE_SHIFT));
	struct staged *st = &f->staging[it->mode][it->staging + k];

	if (f->changing && !mm_mutants.no_gate)
		return -EAGAIN;
	if (p->guard || p->poisoned)
		return -EFAULT;
	if (!p->present)
		return -ENOENT;
	/* MADV_POPULATE_WRITE makes it exclusive, and moves it from "may go" to "stays". */
	if (p->shared && mm_mutants.no_populate)
		return -EBUSY;
	p->shared = false;
	if (p->pinned)
		return -EBUSY;
	if (st->present)
		FAKE_BUG("two pages are moved to one place of staging");
	*st = (struct staged){p->content, true};
	TRACE(f, -1, (unsigned int)(p - f->page), 1u, "move %llx",
	      (unsigned long long)p->content);
	p->present = p->lazy = false;
	f->nr_moved_pages++;
	return 0;
}

static int move_item(struct fake *f, unsigned int i)
{
	const struct batch_item *it = &f->batch[i];
	struct fake_page *first = page_at(f, it->va);

	if (f->dead)
		return -ESRCH;
	if (f->changing && !mm_mutants.no_gate)
		return -EAGAIN;
	if (!first || !first->vma)
		return -ENOENT;
	for (unsigned int k = 0; k < it->nr; k++) {
		struct fake_page *p = page_at(f, it->va + ((uint64_t)k << PAGE_SHIFT));

		if (!p || p->vma != first->vma || p->mode != it->mode)
			return -EINVAL;
	}
	for (unsigned int k = 0; k < it->nr; k++) {
		int r = move_page(f, it, k);

		if (r)
			return r;
		f->moved[i]++;
	}
	return 0;
}

/* The next item of the batch. Under the world's lock: this is one MOVE under the permit. */
static void helper_step(struct fake *f)
{
	unsigned int i = f->next_item;

	if (i == f->nr_batch)
		return;
	f->next_item++;
	f->move_error[i] = f->cancelled[i] ? -ECANCELED : move_item(f, i);
}

static int fake_move(struct space *s, const struct batch_item *items, unsigned int nr)
{
	struct fake *f = fake_of(s);
	bool more = true;

	us_mutex_lock(&f->w->lock);
	f->batch = items;
	f->nr_batch = nr;
	f->next_item = 0;
	us_mutex_unlock(&f->w->lock);
	while (more) {
		meanwhile(f, true);
		us_mutex_lock(&f->w->lock);
		if (!f->hold)
			helper_step(f);
		more = f->next_item < f->nr_batch;
		us_mutex_unlock(&f->w->lock);
		if (f->w->real_threads)
			sched_yield();
	}
	meanwhile(f, true);
	us_mutex_lock(&f->w->lock);
	f->nr_batch = f->next_item = 0;
	us_mutex_unlock(&f->w->lock);
	return 0;
}

static unsigned int fake_moved(struct space *s, unsigned int i)
{
	struct fake *f = fake_of(s);
	unsigned int n;

	us_mutex_lock(&f->w->lock);
	n = f->moved[i];
	us_mutex_unlock(&f->w->lock);
	return n;
}

static int fake_move_error(struct space *s, unsigned int i)
{
	return fake_of(s)->move_error[i];
}

static void fake_cancel(struct space *s, unsigned int i)
{
	struct fake *f = fake_of(s);

	us_mutex_lock(&f->w->lock);
	f->cancelled[i] = true;
	us_mutex_unlock(&f->w->lock);
}

static void fake_read_staged(struct space *s, struct staged_read *rd, unsigned int nr)
{
	struct fake *f = fake_of(s);

	us_mutex_lock(&f->w->lock);
	for (unsigned int k = 0; k < nr; k++) {
		for (unsigned int i = 0; i < rd[k].nr_pages; i++) {
			struct staged *st = &f->staging[rd[k].mode][rd[k].first + i];

			if (!st->present)
				FAKE_BUG("a page of staging is read that was not moved");
			fake_fill_page(st->content, (char *)rd[k].buf + ((size_t)i << PAGE_SHIFT));
		}
		rd[k].err = 0;
	}
	us_mutex_unlock(&f->w->lock);
}

static int fake_drop_staged(struct space *s, const uint32_t nr[NR_AGENT_MODES])
{
	struct fake *f = fake_of(s);

	meanwhile(f, true);
	us_mutex_lock(&f->w->lock);
	for (int m = 0; m < NR_AGENT_MODES; m++)
		memset(f->staging[m], 0, nr[m] * sizeof(f->staging[m][0]));
	us_mutex_unlock(&f->w->lock);
	return 0;
}

static bool fake_in_madvise(struct space *s)
{
	struct fake *f = fake_of(s);
	bool in = false;

	us_mutex_lock(&f->w->lock);
	for (unsigned int t = 0; t < FAKE_THREADS; t++)
		in |= f->thread[t].state != T_IDLE &&
		      (f->thread[t].op == OP_DONTNEED || f->thread[t].op == OP_FREE);
	us_mutex_unlock(&f->w->lock);
	return in;
}

/* ---- ops: life ---- */

static const struct space_ops fake_ops;

static struct space *fake_fork_op(struct space *parent, int child_fd)
{
	struct fake *c = fake_of(parent)->w->fake[child_fd];

	assert_non_null(c);
	c->s = space_create(parent->mm, &fake_ops, c);
	assert_non_null(c->s);
	return c->s;
}

static void fake_forked(struct space *child, struct space *parent)
{
	struct fake *f = fake_of(child);

	assert_ptr_equal(list_entry(child->mm->spaces.prev, struct space, node), child);
	us_mutex_lock(&f->w->lock);
	f->visible = true;
	us_mutex_unlock(&f->w->lock);
}

static void fake_destroy(struct space *s)
{
	struct fake *f = fake_of(s);

	us_mutex_lock(&f->w->lock);
	f->w->fake[f->index] = NULL;
	us_mutex_unlock(&f->w->lock);
	free(f);
}

static const struct space_ops fake_ops = {
	.read_events = fake_read_events,
	.gate_open = fake_gate_open,
	.hold = fake_hold,
	.copy = fake_copy,
	.zeropage = fake_zeropage,
	.poison = fake_poison,
	.wake = fake_wake,
	.registered = fake_registered,
	.pagemap = fake_pagemap,
	.each_present = fake_each_present,
	.can_move = fake_can_move,
	.prepare = fake_prepare,
	.move = fake_move,
	.moved = fake_moved,
	.move_error = fake_move_error,
	.cancel = fake_cancel,
	.read_staged = fake_read_staged,
	.drop_staged = fake_drop_staged,
	.in_madvise = fake_in_madvise,
	.fork = fake_fork_op,
	.forked = fake_forked,
	.destroy = fake_destroy,
};

static struct fake *fake_alloc(struct world *w)
{
	struct fake *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->w = w;
	for (f->index = 0; f->index < MAX_FAKES && w->fake[f->index]; f->index++)
		;
	assert_true(f->index < MAX_FAKES);
	w->fake[f->index] = f;
	w->nr_fakes = MAX(w->nr_fakes, f->index + 1);
	return f;
}

struct fake *fake_create(struct world *w)
{
	struct fake *f = fake_alloc(w);

	f->s = space_create(&w->mm, &fake_ops, f);
	space_publish(f->s);
	assert_non_null(f->s);
	f->returned = f->visible = true;
	return f;
}

/* ---- the program ---- */

static bool begin(struct fake *f, unsigned int t, enum fake_op op)
{
	struct fake_thread *th = &f->thread[t];

	if (f->dead || th->state != T_IDLE)
		return false;
	th->op = op;
	th->nr_ev = th->at = 0;
	f->w->now++;
	return true;
}

static void add_event(struct fake *f, unsigned int t, struct event ev)
{
	struct fake_thread *th = &f->thread[t];

	TRACE(f, t, (unsigned int)((ev.start - FAKE_BASE) >> PAGE_SHIFT),
	      (unsigned int)((ev.end - ev.start) >> PAGE_SHIFT), "event kind %d to %d", ev.kind,
	      (int)((ev.to - FAKE_BASE) >> PAGE_SHIFT));
	th->ev[th->nr_ev++] = ev;
	th->state = T_POST;
	f->changing++;
}

/* munmap() of a range under the mmap lock: one event, if anything of it is registered. */
static void unmap_pages(struct fake *f, unsigned int t, unsigned int page, unsigned int nr)
{
	bool registered = false;

	for (unsigned int i = page; i < page + nr; i++) {
		registered |= f->page[i].vma && f->page[i].registered;
		f->page[i] = (struct fake_page){0};
	}
	if (registered)
		add_event(f, t, (struct event){.kind = EVENT_UNMAP, .start = fake_va(page),
					       .end = fake_va(page + nr)});
}

static bool one_vma(struct fake *f, unsigned int page, unsigned int nr)
{
	if (!nr || page + nr > FAKE_PAGES || !f->page[page].vma)
		return false;
	for (unsigned int i = page; i < page + nr; i++)
		if (f->page[i].vma != f->page[page].vma)
			return false;
	return true;
}

static bool in_progress(struct fake *f, unsigned int page, enum fake_op op)
{
	for (unsigned int t = 0; t < FAKE_THREADS; t++) {
		struct fake_thread *th = &f->thread[t];

		if (th->state != T_IDLE && th->op == op && page >= th->start && page < th->end)
			return true;
	}
	return false;
}

static bool being_emptied(struct fake *f, unsigned int page)
{
	return in_progress(f, page, OP_DONTNEED) || in_progress(f, page, OP_FREE);
}

/*
 * Is some of it the result of a call that has not returned? The program cannot know of that yet,
 * so it does not act on it. What such a call has freed, however, the kernel gives to anybody.
 */
static bool not_returned(struct fake *f, unsigned int page, unsigned int nr)
{
	for (unsigned int i = page; i < page + nr; i++)
		if (in_progress(f, i, OP_MREMAP) || in_progress(f, i, OP_MMAP))
			return true;
	return false;
}

/*
 * Two threads do not take apart the same memory at once: what a call that has not returned takes
 * away may be given out anew by the kernel, but nobody unmaps it once more.
 */
static bool unmapped_twice(struct fake *f, unsigned int page, unsigned int nr)
{
	bool mapped = false, left = false;

	for (unsigned int i = page; i < page + nr; i++)
		mapped |= f->page[i].vma != 0;
	for (unsigned int t = 0; t < FAKE_THREADS; t++) {
		struct fake_thread *th = &f->thread[t];

		left |= th->state != T_IDLE && (th->op == OP_MREMAP || th->op == OP_MUNMAP) &&
			th->left < page + nr && page < th->left_end;
	}
	return mapped && left;
}

static void do_mmap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr,
		    uint8_t mode)
{
	TRACE(f, t, page, nr, "mmap");
	f->thread[t].start = page;
	f->thread[t].end = page + nr;
	unmap_pages(f, t, page, nr);
	f->w->next_vma++;
	for (unsigned int i = page; i < page + nr; i++) {
		f->page[i].vma = f->w->next_vma;
		f->page[i].mode = mode;
		f->page[i].changed_at = f->w->now;
	}
}

bool fake_mmap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, uint8_t mode)
{
	bool good;

	us_mutex_lock(&f->w->lock);
	good = page + nr <= FAKE_PAGES && !not_returned(f, page, nr) &&
	       !unmapped_twice(f, page, nr) && begin(f, t, OP_MMAP);
	if (good)
		do_mmap(f, t, page, nr, mode);
	us_mutex_unlock(&f->w->lock);
	return good;
}

bool fake_munmap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr)
{
	bool good;

	us_mutex_lock(&f->w->lock);
	good = page + nr <= FAKE_PAGES && !not_returned(f, page, nr) &&
	       !unmapped_twice(f, page, nr) && begin(f, t, OP_MUNMAP);
	if (good) {
		f->thread[t].left = page;
		f->thread[t].left_end = page + nr;
		unmap_pages(f, t, page, nr);
	}
	us_mutex_unlock(&f->w->lock);
	return good;
}

static void do_mremap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr,
		      unsigned int to, unsigned int new_nr)
{
	bool registered = f->page[page].registered;
	uint8_t mode = f->page[page].mode;
	uint32_t vma = ++f->w->next_vma;

	f->thread[t].start = to;
	f->thread[t].end = to + new_nr;
	f->thread[t].left = page;
	f->thread[t].left_end = page + nr;
	unmap_pages(f, t, to, new_nr);
	for (unsigned int i = 0; i < new_nr; i++) {
		struct fake_page *p = &f->page[to + i];

		if (i < nr)
			*p = f->page[page + i];
		p->vma = vma;
		p->registered = registered;
		p->mode = mode;
		p->changed_at = f->w->now;
		p->zero_too |= being_emptied(f, to + i);
	}
	if (registered)
		add_event(f, t, (struct event){.kind = EVENT_REMAP, .start = fake_va(page),
					       .end = fake_va(page + nr), .to = fake_va(to)});
	unmap_pages(f, t, page, nr);
}

bool fake_mremap(struct fake *f, unsigned int t, unsigned int page, unsigned int nr,
		 unsigned int to, unsigned int new_nr)
{
	bool good;

	us_mutex_lock(&f->w->lock);
	good = one_vma(f, page, nr) && new_nr >= nr && to + new_nr <= FAKE_PAGES &&
	       (to + new_nr <= page || page + nr <= to) && !not_returned(f, page, nr) &&
	       !not_returned(f, to, new_nr) && !unmapped_twice(f, to, new_nr) &&
	       begin(f, t, OP_MREMAP);
	TRACE(f, t, page, nr, "mremap to %u+%u: %d", to, new_nr, good);
	if (good)
		do_mremap(f, t, page, nr, to, new_nr);
	us_mutex_unlock(&f->w->lock);
	return good;
}

/* The end of MADV_*: whatever is mapped there now loses its pages, or may lose them. */
static void empty_range(struct fake *f, struct fake_thread *th)
{
	uint32_t vma = f->page[th->start].vma;

	TRACE(f, th - f->thread, th->start, th->end - th->start, "emptied");
	for (unsigned int i = th->start; vma && i < th->end; i++) {
		struct fake_page *p = &f->page[i];

		if (p->vma != vma)
			break;
		if (th->op == OP_FREE) {
			p->lazy |= p->present;
			p->zero_too = true;
			continue;
		}
		if (p->present || p->changed_at <= th->began_at) {
			p->want = 0;
			p->zero_too = false;
		}
		p->present = p->lazy = p->pinned = p->shared = false;
	}
	th->state = T_IDLE;
	for (unsigned int i = th->start; i < th->end; i++)
		if (f->page[i].want)
			f->page[i].zero_too |= being_emptied(f, i);
}

static void do_madvise(struct fake *f, unsigned int t, unsigned int page, unsigned int nr)
{
	struct fake_thread *th = &f->thread[t];

	th->start = page;
	th->end = page + nr;
	th->began_at = f->w->now;
	th->state = T_EMPTY;
	if (!f->page[page].registered) {
		empty_range(f, th);
		return;
	}
	for (unsigned int i = page; i < page + nr; i++) {
		f->page[i].zero_too = true;
		/* A fork() that has not returned: either call may be the first. */
		for (unsigned int k = 0; k < FAKE_THREADS; k++)
			if (f->thread[k].state != T_IDLE && f->thread[k].op == OP_FORK)
				f->thread[k].child->page[i].zero_too = true;
	}
	add_event(f, t, (struct event){.kind = EVENT_REMOVE, .start = fake_va(page),
				       .end = fake_va(page + nr)});
}

bool fake_madvise(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, bool free_it)
{
	bool good;

	us_mutex_lock(&f->w->lock);
	good = one_vma(f, page, nr) && !not_returned(f, page, nr) &&
	       begin(f, t, free_it ? OP_FREE : OP_DONTNEED);
	if (good)
		do_madvise(f, t, page, nr);
	us_mutex_unlock(&f->w->lock);
	return good;
}

struct fake *fake_fork(struct fake *f, unsigned int t)
{
	struct fake *c = NULL;

	us_mutex_lock(&f->w->lock);
	if (begin(f, t, OP_FORK)) {
		c = fake_alloc(f->w);
		for (unsigned int i = 0; i < FAKE_PAGES; i++) {
			f->page[i].shared |= f->page[i].present;
			c->page[i] = f->page[i];
			c->page[i].pinned = false;
		}
		f->thread[t].child = c;
		TRACE(f, t, 0u, FAKE_PAGES, "fork of %d", c->index);
		add_event(f, t, (struct event){.kind = EVENT_FORK, .child_fd = c->index});
	}
	us_mutex_unlock(&f->w->lock);
	return c;
}

bool fake_access(struct fake *f, unsigned int t, unsigned int page, unsigned int nr, bool write,
		 uint64_t token)
{
	struct fake_thread *th = &f->thread[t];
	bool good;

	us_mutex_lock(&f->w->lock);
	good = nr && page + nr <= FAKE_PAGES && begin(f, t, OP_ACCESS);
	if (good) {
		th->page = page;
		th->nr_pages = nr;
		th->write = write;
		th->token = token;
		th->sigbus = th->segv = false;
		th->state = T_ACCESS;
	}
	us_mutex_unlock(&f->w->lock);
	return good;
}

static void store(struct fake *f, struct fake_thread *th)
{
	struct fake_page *p = &f->page[th->page];

	p->content = p->want =
		th->token ? th->token : fake_new_token(f->w, (unsigned int)f->w->next_token % 5);
	p->zero_too = being_emptied(f, th->page);
	p->lost = p->shared = p->lazy = false;
	p->changed_at = ++f->w->now;
	TRACE(f, th - f->thread, th->page, 1u, "write %llx", (unsigned long long)p->content);
}

/* Touches the next page. False: the access has ended, or waits. */
static bool touch(struct fake *f, unsigned int t)
{
	struct fake_thread *th = &f->thread[t];
	struct fake_page *p = &f->page[th->page];

	if (p->vma && !p->present && !p->registered && !p->guard && !p->poisoned)
		put_page(p, 0);
	if (p->present) {
		look(f, th->page);
		th->saw = p->content;
		TRACE(f, t, th->page, 1u, "sees %llx", (unsigned long long)p->content);
		if (th->write)
			store(f, th);
	} else if (p->poisoned && !p->lost && !f->w->expect_wrong) {
		FAKE_BUG("seed %llu: page %u is poisoned", (unsigned long long)f->w->seed,
			 th->page);
	} else if (!p->vma || p->guard || p->poisoned) {
		th->segv |= !p->poisoned;
		th->sigbus |= p->poisoned;
	} else {
		f->faults[f->nr_faults++] = t;
		th->state = T_FAULT;
		return false;
	}
	th->page++;
	if (--th->nr_pages)
		return true;
	th->state = T_IDLE;
	return false;
}

static void after_event(struct fake *f, struct fake_thread *th)
{
	f->changing--;
	if (++th->at < th->nr_ev) {
		th->state = T_POST;
		return;
	}
	th->state = th->op == OP_DONTNEED || th->op == OP_FREE ? T_EMPTY : T_IDLE;
	if (th->op == OP_FORK)
		th->child->returned = true;
}

bool fake_run(struct fake *f, unsigned int t)
{
	struct fake_thread *th = &f->thread[t];
	bool ran = true;

	us_mutex_lock(&f->w->lock);
	switch (f->dead ? T_IDLE : th->state) {
	case T_POST:
		f->events[f->nr_events++] = t;
		TRACE(f, t, 0u, 0u, "posts event %u of op %d", th->at, th->op);
		th->state = T_POSTED;
		break;
	case T_READ:
		after_event(f, th);
		break;
	case T_EMPTY:
		empty_range(f, th);
		break;
	case T_ACCESS:
		while (touch(f, t))
			;
		break;
	default:
		ran = false;
	}
	us_mutex_unlock(&f->w->lock);
	return ran;
}

bool fake_run_any(struct fake *f)
{
	for (unsigned int t = 0; t < FAKE_THREADS; t++)
		if (f->thread[t].state == T_READ && fake_run(f, t))
			return true;
	for (unsigned int t = 0; t < FAKE_THREADS; t++)
		if (f->thread[t].state == T_POST && fake_run(f, t))
			return true;
	return false;
}

void fake_map(struct fake *f, unsigned int page, unsigned int nr)
{
	assert_true(fake_mmap(f, FAKE_THREADS - 1, page, nr, AGENT_MODE_RW));
	world_settle(f->w);
	while (fake_register(f))
		;
}

/* Registers the first mapping that is not. Returns its pages. */
static unsigned int register_one(struct fake *f, unsigned int *first)
{
	unsigned int n = 0;

	us_mutex_lock(&f->w->lock);
	for (*first = 0; *first < FAKE_PAGES; ++*first)
		if (f->page[*first].vma && !f->page[*first].registered)
			break;
	for (unsigned int i = *first; i < FAKE_PAGES && f->page[i].vma == f->page[*first].vma; i++) {
		f->page[i].registered = true;
		n++;
	}
	us_mutex_unlock(&f->w->lock);
	return n;
}

unsigned int fake_register(struct fake *f)
{
	struct space *s = f->s;
	unsigned int first, n = 0;

	us_mutex_lock(&s->reader_lock);
	if (!atomic_load(&s->dead) && s->ops->gate_open(s) == 1) {
		n = register_one(f, &first);
		if (n) {
			bool open = s->ops->gate_open(s) == 1;

			us_mutex_lock(&s->lock);
			if (!open || space_take_present(s, fake_va(first), fake_va(first + n)) != 0)
				space_adopt_soon(s, fake_va(first), fake_va(first + n));
			us_mutex_unlock(&s->lock);
		}
	}
	us_mutex_unlock(&s->reader_lock);
	return n;
}

void fake_guard(struct fake *f, unsigned int page, unsigned int nr)
{
	us_mutex_lock(&f->w->lock);
	for (unsigned int i = page; i < page + nr; i++) {
		f->page[i].guard = true;
		f->page[i].present = f->page[i].poisoned = false;
	}
	us_mutex_unlock(&f->w->lock);
}

/* ---- until it is done ---- */

static bool settled(struct world *w)
{
	bool all = true;

	us_mutex_lock(&w->lock);
	for (int i = 0; i < w->nr_fakes; i++)
		for (unsigned int t = 0; w->fake[i] && !w->fake[i]->dead && t < FAKE_THREADS; t++)
			all &= w->fake[i]->thread[t].state == T_IDLE;
	us_mutex_unlock(&w->lock);
	return all;
}

void world_settle(struct world *w)
{
	void (*hook)(struct world *, struct fake *, bool) = w->meanwhile;

	w->meanwhile = NULL;
	for (unsigned int round = 0; !settled(w); round++) {
		for (int i = 0; i < w->nr_fakes; i++) {
			for (unsigned int t = 0; w->fake[i] && t < FAKE_THREADS; t++)
				(void)fake_run(w->fake[i], t);
			if (w->fake[i] && w->fake[i]->s && !w->fake[i]->dead)
				space_service(w->fake[i]->s);
		}
		mm_tick(&w->mm);
		if (round > 100)
			clock_sleep_ns(100 * NSEC_PER_USEC);
		if (round > 50000)
			FAKE_BUG("a fault or an event is never answered");
	}
	w->meanwhile = hook;
}

static struct fake_thread *access_now(struct fake *f, unsigned int page, bool write,
				      uint64_t token)
{
	assert_true(fake_access(f, FAKE_THREADS - 1, page, 1, write, token));
	world_settle(f->w);
	return &f->thread[FAKE_THREADS - 1];
}

void fake_write(struct fake *f, unsigned int page, uint64_t token)
{
	struct fake_thread *th = access_now(f, page, true, token);

	assert_false(th->segv || th->sigbus);
}

uint64_t fake_read(struct fake *f, unsigned int page)
{
	struct fake_thread *th = access_now(f, page, false, 0);

	assert_false(th->segv || th->sigbus);
	return th->saw;
}

bool fake_read_is_sigbus(struct fake *f, unsigned int page)
{
	return access_now(f, page, false, 0)->sigbus;
}

void fake_write_range(struct fake *f, unsigned int page, unsigned int nr)
{
	assert_true(fake_access(f, FAKE_THREADS - 1, page, nr, true, 0));
	world_settle(f->w);
	assert_false(f->thread[FAKE_THREADS - 1].segv);
}

void fake_read_range(struct fake *f, unsigned int page, unsigned int nr)
{
	assert_true(fake_access(f, FAKE_THREADS - 1, page, nr, false, 0));
	world_settle(f->w);
	assert_false(f->thread[FAKE_THREADS - 1].segv);
}

uint64_t fake_evict_all(struct fake *f)
{
	uint64_t total = 0;

	for (int rounds = 0; rounds < 1000; rounds++) {
		int64_t n = space_evict(f->s, STAGING_PAGES, 0);

		if (n == -ENOBUFS)
			world_write_all(f->w);
		else if (n <= 0)
			break;
		else
			total += (uint64_t)n;
	}
	return total;
}

void world_write_all(struct world *w)
{
	while (swap_writeout(w->swap, 1u << 20) > 0)
		;
}

void fake_adopt(struct fake *f)
{
	us_mutex_lock(&f->s->reader_lock);
	us_mutex_lock(&f->s->lock);
	for (unsigned int i = 0; i < f->s->nr_adopt; i++)
		if (f->s->adopt[i].since_ns)
			f->s->adopt[i].since_ns -= NSEC_PER_SEC;
	us_mutex_unlock(&f->s->lock);
	if (!atomic_load(&f->s->dead))
		space_adopt(f->s);
	us_mutex_unlock(&f->s->reader_lock);
}

/* ---- the world ---- */

static uint64_t host_measure(void *host)
{
	struct world *w = host;

	return __atomic_load_n(&w->used_bytes, __ATOMIC_RELAXED);
}

static bool host_out_of_memory(void *host)
{
	struct world *w = host;

	w->ooms++;
	return false;
}

static const struct mm_host_ops host_ops = {.measure = host_measure,
					    .out_of_memory = host_out_of_memory};

struct world *world_create(int order, struct dev *d, uint64_t limit)
{
	struct mm_config cfg = {.limit_bytes = limit, .order = order};
	struct swap_config sc = {.cache_bytes = MIB(8), .max_entries = 1u << 16};
	struct world *w = calloc(1, sizeof(*w));
	static bool hash_ready;
	int err;

	assert_non_null(w);
	assert_non_null(d);
	if (!hash_ready)
		assert_int_equal(hash_init(), 0);
	hash_ready = true;
	us_mutex_init(&w->lock, &fake_class);
	w->swap = swap_create(&sc, &err);
	assert_non_null(w->swap);
	assert_int_equal(swap_on(w->swap, d, &(struct swap_on_config){0}), 0);
	assert_int_equal(mm_start(&w->mm, &cfg, w->swap, &host_ops, w), 0);
	return w;
}

struct world *world_on_ram(int order)
{
	int err;

	return world_create(order, dev_ram_create(1u << 14, &err), GIB(1));
}

uint64_t world_nr_entries(struct world *w)
{
	struct swap_usage u;

	swap_usage(w->swap, &u);
	return u.nr_entries;
}

/* Every kept reference is a resident word's, and the other way round. */
static void check_kept(struct world *w)
{
	static uint32_t words[1u << 20];
	struct entry_table *t = &w->swap->table;
	uint32_t end = atomic_load(&t->next_unused);

	assert_true(end <= sizeof(words) / sizeof(words[0]));
	memset(words, 0, end * sizeof(words[0]));
	for (int i = 0; i < w->nr_fakes; i++) {
		struct space *s = w->fake[i] ? w->fake[i]->s : NULL;

		for (unsigned int p = 0; s && p < FAKE_PAGES; p++) {
			pw_t word = table_get(&s->table, FAKE_BASE + (uint64_t)p * PAGE_SIZE);

			if (pw_state(word) == PW_RESIDENT && pw_entry(word))
				words[pw_entry(word)]++;
		}
		for (unsigned int k = 0; s && k < s->nr_items; k++)
			if (s->item[k].kept)
				words[s->item[k].kept] += s->item[k].nr;
	}
	for (uint32_t e = 1; e < end; e++)
		if (atomic_load(&entry_of(t, e)->refs))
			assert_int_equal(atomic_load(&entry_of(t, e)->kept), words[e]);
}

void world_check(struct world *w)
{
	swap_check(w->swap);
	for (int i = 0; i < w->nr_fakes; i++)
		if (w->fake[i] && w->fake[i]->s)
			table_check(&w->fake[i]->s->table);
	check_kept(w);
}

void world_destroy(struct world *w)
{
	for (int i = 0; i < w->nr_fakes; i++) {
		struct fake *f = w->fake[i];

		if (!f)
			continue;
		us_mutex_lock(&w->lock);
		f->dead = true;
		us_mutex_unlock(&w->lock);
		if (f->s)
			space_kill(f->s);
		else
			fake_destroy(&(struct space){.impl = f});
	}
	mm_stop(&w->mm);
	for (int i = 0; i < w->nr_fakes; i++)
		assert_null(w->fake[i]);
	assert_int_equal(world_nr_entries(w), 0);
	swap_check(w->swap);
	swap_destroy(w->swap);
	us_mutex_deinit(&w->lock);
	free(w);
}
