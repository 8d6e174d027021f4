/* SPDX-License-Identifier: MIT */
/*
 * How a mover reads its folios. Those in neighbouring slots of a disk share an io: they come in the
 * order of their slots, and an io costs some twenty microseconds however small it is. Such a read is
 * of slots, not of entries: the items have been in a gate since they were looked up, so the slots
 * hold what they held then. A read of several that fails says nothing of each: each is read again
 * alone. A whole folio in pieces is loaded as for a fault.
 */
#include "swap/move.h"

static void pending_add(struct mover *m)
{
	us_mutex_lock(&m->done_lock);
	m->pending++;
	us_mutex_unlock(&m->done_lock);
}

static void pending_put(struct mover *m)
{
	us_mutex_lock(&m->done_lock);
	if (--m->pending == 0)
		us_cond_signal(&m->done);
	us_mutex_unlock(&m->done_lock);
}

static void wait_for_reads(struct mover *m)
{
	us_mutex_lock(&m->done_lock);
	while (m->pending)
		us_cond_wait(&m->done, &m->done_lock);
	us_mutex_unlock(&m->done_lock);
}

static void load_done(struct swap_load *l)
{
	struct move_item *it = container_of(l, struct move_item, load);

	it->result = l->result;
	pending_put(it->m);
}

static void run_done(struct dev_io *io)
{
	pending_put(container_of(io, struct move_run, io)->m);
}

/* How many items from i on lie one behind the other on the device. */
static unsigned int neighbours(struct mover *m, unsigned int i, unsigned int n, uint32_t *nr_pages)
{
	const struct move_item *first = &m->items[i];
	unsigned int nr = 1;

	*nr_pages = 1u << first->order;
	if (first->again || dev_in_memory(m->swap->devs[first->dev].dev))
		return 1;
	for (; i + nr < n; nr++) {
		const struct move_item *it = &m->items[i + nr];

		if (!it->gate || it->dev != first->dev || it->slot != first->slot + *nr_pages ||
		    *nr_pages + (1u << it->order) > JOIN_PAGES)
			break;
		*nr_pages += 1u << it->order;
	}
	return nr;
}

static void submit_run(struct mover *m, struct move_run *run, uint32_t nr_pages)
{
	struct move_item *first = &m->items[run->first];
	struct swap_dev *sd = &m->swap->devs[first->dev];
	/* Until the call has returned; the items are in theirs until they are judged. */
	unsigned int phase = gate_enter(&sd->gate);

	run->m = m;
	run->io = (struct dev_io){
		.op = DEV_READ,
		.slot = first->slot,
		.nr_pages = nr_pages,
		.buf = first->load.buf,
		.done = run_done,
	};
	pending_add(m);
	dev_submit(sd->dev, &run->io);
	gate_leave(&sd->gate, phase);
}

/* What the run has read, item by item. What failed together is to be read alone. */
static void judge_run(struct mover *m, struct move_run *run)
{
	struct swap *s = m->swap;

	for (unsigned int i = run->first; i < run->first + run->nr; i++) {
		struct move_item *it = &m->items[i];
		swp_t e = it->piece ? it->piece : it->entry;

		it->again = run->io.result && run->nr > 1;
		if (it->again)
			continue;
		it->load.io = (struct dev_io){.buf = it->load.buf,
					      .nr_pages = 1u << it->order,
					      .result = run->io.result,
					      .priv = &s->devs[it->dev]};
		it->result = load_check(s, &it->load, entry_of(&s->table, e)->hash);
		mover_leave_gate(it);
	}
}

/* All that is in a gate, or that alone which is to be read again. */
static void read_runs(struct mover *m, unsigned int n, bool again)
{
	unsigned int nr_runs = 0, nr;
	uint32_t nr_pages;

	for (unsigned int i = 0; i < n; i += nr) {
		nr = 1;
		if (!m->items[i].gate || m->items[i].again != again)
			continue;
		nr = neighbours(m, i, n, &nr_pages);
		m->runs[nr_runs] = (struct move_run){.first = i, .nr = nr};
		submit_run(m, &m->runs[nr_runs++], nr_pages);
	}
	wait_for_reads(m);
	for (unsigned int i = 0; i < nr_runs; i++)
		judge_run(m, &m->runs[i]);
}

void mover_read(struct mover *m, unsigned int n)
{
	uint32_t pages = 0;

	for (unsigned int i = 0; i < n; i++) {
		m->items[i].load = (struct swap_load){.entry = m->items[i].entry,
						      .buf = m->buf + pages * PAGE_SIZE,
						      .done = load_done,
						      .swap = m->swap,
						      .moving = true};
		pages += 1u << m->items[i].order;
	}
	if (pages > atomic_load_explicit(&m->peak_pages, memory_order_relaxed))
		atomic_store_explicit(&m->peak_pages, pages, memory_order_relaxed);
	for (unsigned int i = 0; i < n; i++) {
		if (m->items[i].gate)
			continue;
		pending_add(m);
		swap_load(m->swap, &m->items[i].load);
	}
	read_runs(m, n, false);
	read_runs(m, n, true);
}
