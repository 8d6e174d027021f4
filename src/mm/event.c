/* SPDX-License-Identifier: MIT */
/*
 * Reading events and applying them to the table (rules 2, 3, 4 and 6 of docs/fault-states.md).
 *
 * The gate: from the moment an unmap, remap, remove or fork begins until its event has been read,
 * the kernel answers EAGAIN to every fill and to every MOVE into staging. The gate opens at the
 * read, not when the table knows. So this code takes `hold`, which keeps the helper from moving
 * anything, and the space's lock, which keeps every thread from filling anything, before the first
 * read(2), and keeps both until the table is up to date. Outside, a fill or a MOVE either finds
 * the gate closed or a table that knows all that happened.
 *
 * The order: unmap and remap post their events after they let go of the mmap lock, so the order of
 * reading is not that of happening. drain() reads up to an open gate, and apply_ordered() takes
 * all of that at once.
 */
#include "mm/mm.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

#define MAX_EVENTS 4096 /* of one drain; faults beyond are woken and come again */
#define GATE_PATIENCE_NS (10 * NSEC_PER_SEC)

/* ---- words and ranges ---- */

void space_drop_word(struct space *s, struct leaf *l, unsigned int idx)
{
	pw_t w = l->w[idx];
	enum pw_state st = pw_state(w);

	table_set(&s->table, l, idx, 0);
	/* An ISOLATED word has no reference of its own: the batch has the creator's. */
	if (st == PW_OUT)
		swap_put(s->mm->swap, pw_entry(w), 1);
	else if (st == PW_RESIDENT && pw_entry(w))
		swap_put_kept(s->mm->swap, pw_entry(w), 1);
}

int space_find_item(struct space *s, uint64_t va, swp_t entry)
{
	for (unsigned int i = 0; i < s->nr_items; i++) {
		struct batch_item *it = &s->item[i];

		if (it->entry == entry && va >= it->va &&
		    va < it->va + ((uint64_t)it->nr << PAGE_SHIFT))
			return (int)i;
	}
	return -1;
}

/*
 * The program changes the meaning of an address whose page is ISOLATED. hold is on, so `moved` is
 * exact. Returns true if the page lies in staging: then the word becomes OUT, with a reference of
 * its own, and outlives the batch. Else the item is cancelled and the page is where it was.
 */
static bool settle_isolated(struct space *s, struct leaf *l, unsigned int idx, uint64_t va)
{
	swp_t e = pw_entry(l->w[idx]);
	int i = space_find_item(s, va, e);
	unsigned int sub = i < 0 ? 0 : (unsigned int)((va - s->item[i].va) >> PAGE_SHIFT);

	if (i >= 0 && sub < s->ops->moved(s, (unsigned int)i)) {
		swap_get(s->mm->swap, e, 1);
		table_set(&s->table, l, idx, pw_make(PW_OUT, e, sub, 0));
		return true;
	}
	if (i >= 0) {
		s->ops->cancel(s, (unsigned int)i);
		vmstat_add(VMSTAT_pgmove_cancelled, 1);
	}
	table_set(&s->table, l, idx, pw_make(PW_RESIDENT, 0, 0, mm_gen(s->mm)));
	return false;
}

/* Walks [start, end) leaf by leaf. fn may change words, not leaves. lock held. */
static void for_each_word(struct space *s, uint64_t start, uint64_t end,
			  void (*fn)(struct space *s, struct leaf *l, unsigned int idx,
				     uint64_t va, void *arg),
			  void *arg)
{
	uint64_t base = start;
	struct leaf *l;

	for (; (l = table_next_leaf(&s->table, &base, end)); base += LEAF_BYTES) {
		unsigned int a = base < start ? leaf_index(start) : 0;
		unsigned int b = base + LEAF_BYTES > end ? leaf_index(end - 1) + 1 : LEAF_PAGES;

		for (unsigned int i = a; i < b; i++)
			if (l->w[i])
				fn(s, l, i, base + ((uint64_t)i << PAGE_SHIFT), arg);
	}
}

static void drop_one(struct space *s, struct leaf *l, unsigned int idx, uint64_t va, void *arg)
{
	if (pw_state(l->w[idx]) == PW_ISOLATED)
		(void)settle_isolated(s, l, idx, va);
	space_drop_word(s, l, idx);
}

void space_drop_range(struct space *s, uint64_t start, uint64_t end)
{
	for_each_word(s, start, end, drop_one, NULL);
}

/* ---- remap ---- */

struct remap {
	uint64_t from, to;
	bool copy; /* leave the source as it is (a child is being built from it) */
};

static void move_one(struct space *s, struct leaf *l, unsigned int idx, uint64_t va, void *arg)
{
	struct remap *m = arg;
	uint64_t to = va - m->from + m->to;
	struct leaf *dst;
	pw_t w;

	if (pw_state(l->w[idx]) == PW_ISOLATED)
		(void)settle_isolated(s, l, idx, va);
	w = l->w[idx];
	dst = table_leaf(&s->table, to, true);
	if (!dst) {
		/*
		 * No memory for the table. Losing a RESIDENT word only leaves the page unmanaged;
		 * an OUT one cannot be lost, and the reservation is sized so that it never is.
		 */
		if (pw_state(w) == PW_OUT)
			log_error("out of table memory while memory was moved: a page is lost");
		space_drop_word(s, l, idx);
		return;
	}
	table_set(&s->table, l, idx, 0);
	table_set(&s->table, dst, leaf_index(to), w);
}

static void apply_remap(struct space *s, const struct event *e)
{
	struct remap m = {.from = e->start, .to = e->to};

	ranges_remove(&s->registered, e->start, e->end);
	ranges_remove(&s->registered, e->to, e->to + (e->end - e->start));
	/* What was at the destination is gone: mremap unmapped it. */
	space_drop_range(s, e->to, e->to + (e->end - e->start));
	for_each_word(s, e->start, e->end, move_one, &m);
}

static bool overlaps(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return a < d && c < b;
}

/* The unmap of a remap's own source is the last part of that very call, read after the remap. */
static bool is_own_source(const struct event *ev, int k)
{
	int sources = 0;

	for (int m = 0; m < k; m++) {
		if (ev[m].start != ev[k].start || ev[m].end != ev[k].end)
			continue;
		if (ev[m].kind == EVENT_REMAP)
			sources++;
		else if (ev[m].kind == EVENT_UNMAP && sources)
			sources--;
	}
	return sources > 0;
}

/*
 * The first event, not applied yet, of the given kind that empties part of the range. Also those
 * that were read before i, where i itself is put before one of them.
 */
static int next_vacater(const struct event *ev, int nr, enum event_kind kind, uint64_t start,
			uint64_t end)
{
	for (int k = 0; k < nr; k++)
		if (!ev[k].done && ev[k].kind == kind &&
		    overlaps(ev[k].start, ev[k].end, start, end) &&
		    (kind == EVENT_REMAP || !is_own_source(ev, k)))
			return k;
	return -1;
}

/* Does any event but i and k, not applied yet, change what is mapped in the range? */
static bool others_touch(const struct event *ev, int nr, int i, int k, uint64_t start, uint64_t end)
{
	for (int m = 0; m < nr; m++) {
		if (ev[m].done || m == i || m == k || (ev[m].kind == EVENT_UNMAP &&
						       ev[m].start == ev[k].start &&
						       ev[m].end == ev[k].end))
			continue;
		if (ev[m].kind == EVENT_REMAP &&
		    overlaps(ev[m].to, ev[m].to + (ev[m].end - ev[m].start), start, end))
			return true;
		if ((ev[m].kind == EVENT_REMAP || ev[m].kind == EVENT_UNMAP) &&
		    overlaps(ev[m].start, ev[m].end, start, end))
			return true;
	}
	return false;
}

/*
 * Remap i; all events read before it are applied. mremap found the place empty or emptied it, so
 * words that are there left by a call whose event was read later: by a remap, which then goes
 * first, or by an unmap: then they are dropped. Where both are to come the mappings of now tell: if
 * a remap took away what was there before, what i brought is there still; if it is the one that
 * took away what i brought, nothing is. Where there are no words (none were known, or a remove
 * dropped them) the order of reading stands, unless a remap from there is the only other event that
 * concerns the place: then the mappings tell as well.
 * Returns the remap to apply first, -1 for none, -EAGAIN to read more.
 */
static int goes_before(struct space *s, const struct event *ev, int nr, int i, bool child)
{
	uint64_t start = ev[i].to, end = ev[i].to + (ev[i].end - ev[i].start);
	int remap = next_vacater(ev, nr, EVENT_REMAP, start, end);
	int unmap = next_vacater(ev, nr, EVENT_UNMAP, start, end), r;

	if (remap < 0)
		return -1;
	if (table_any(&s->table, start, end)) {
		if (unmap < 0)
			return remap;
		if (unmap < remap)
			return -1;
	} else if (others_touch(ev, nr, i, remap, start, end) ||
		   s->ops->registered(s, start - PAGE_SIZE) != 0) {
		return -1; /* what is mapped there may be a neighbour that grew over it */
	}
	r = s->ops->registered(s, MAX(start, ev[remap].start));
	if (r == -EAGAIN && !child)
		return -EAGAIN;
	return r == 0 ? -1 : remap;
}

/*
 * Remap i finds no words at its source, although a remap read later brings some there: did that
 * happen first? If so i took them on, and nothing is mapped there now; unless yet another event is
 * about the place. Returns as goes_before().
 */
static int brings_source(struct space *s, const struct event *ev, int nr, int i, bool child)
{
	uint64_t start = ev[i].start, end = ev[i].end;
	int bringer = -1, r;

	if (table_any(&s->table, start, end))
		return -1;
	for (int k = i + 1; k < nr; k++) {
		if (ev[k].done || ev[k].kind == EVENT_REMOVE || ev[k].kind == EVENT_FORK ||
		    (ev[k].kind == EVENT_UNMAP && ev[k].start == start && ev[k].end == end))
			continue;
		if (ev[k].kind == EVENT_REMAP && bringer < 0 && ev[k].to == start)
			bringer = k;
		else if (overlaps(ev[k].start, ev[k].end, start, end) ||
			 (ev[k].kind == EVENT_REMAP &&
			  overlaps(ev[k].to, ev[k].to + (ev[k].end - ev[k].start), start, end)))
			return -1;
	}
	if (bringer < 0)
		return -1;
	r = s->ops->registered(s, start);
	if (r == -EAGAIN && !child)
		return -EAGAIN;
	return r == 0 ? bringer : -1;
}

/* Returns false if it cannot be decided before more is read. */
static bool remap_ordered(struct space *s, struct event *ev, int nr, int i, bool child)
{
	struct event *e = &ev[i];

	e->done = true;
	for (int k;;) {
		k = brings_source(s, ev, nr, i, child);
		if (k == -1)
			k = goes_before(s, ev, nr, i, child);
		if (k == -1)
			break;
		if (k < 0 || !remap_ordered(s, ev, nr, k, child)) {
			e->done = false;
			return false;
		}
	}
	apply_remap(s, e);
	return true;
}

/* ---- unmap ---- */

struct unmap {
	const struct event *ev;
	int nr, at;
	bool child; /* of a fork that is being built: it has not changed its mappings since */
	bool again; /* the gate closed meanwhile: read more before this can be decided */
};

static bool covers(uint64_t start, uint64_t bytes, uint64_t va)
{
	return va >= start && va - start < bytes;
}

/*
 * Unmap `at` of the page at va. What arrived there by a remap of this batch may have arrived after
 * the unmap happened, although that was read before: then it is there now, or a later remap took
 * it on.
 */
static void unmap_one(struct space *s, struct leaf *l, unsigned int idx, uint64_t va, void *arg)
{
	struct unmap *u = arg;
	bool arrived = false;
	int r;

	if (u->again)
		return;
	for (int i = 0; i < u->nr && !arrived; i++)
		arrived = u->ev[i].kind == EVENT_REMAP && u->ev[i].done &&
			  covers(u->ev[i].to, u->ev[i].end - u->ev[i].start, va);
	r = arrived ? s->ops->registered(s, va) : 0;
	if (r == -EAGAIN && !u->child)
		u->again = true;
	if (r != 0 && r != -ESRCH)
		return;
	for (int k = u->at + 1; k < u->nr && arrived; k++) {
		const struct event *e = &u->ev[k];

		if (e->done || e->kind != EVENT_REMAP)
			continue;
		if (covers(e->start, e->end - e->start, va))
			return;
		if (covers(e->to, e->end - e->start, va))
			break;
	}
	drop_one(s, l, idx, va, NULL);
}

/* ---- fork ---- */

static void copy_one(struct space *child, pw_t w, uint64_t va)
{
	struct leaf *l = table_leaf(&child->table, va, true);

	if (!l) {
		if (pw_state(w) == PW_OUT)
			log_error("out of table memory in fork: a page of the child is lost");
		return;
	}
	if (pw_state(w) == PW_OUT)
		swap_get(child->mm->swap, pw_entry(w), 1);
	else if (pw_state(w) == PW_RESIDENT && pw_entry(w) &&
		 !swap_get_kept(child->mm->swap, pw_entry(w), 1))
		w = pw_make(PW_RESIDENT, 0, 0, pw_gen(w));
	table_set(&child->table, l, leaf_index(va), w);
}

static void fork_one(struct space *s, struct leaf *l, unsigned int idx, uint64_t va, void *arg)
{
	/*
	 * Moved to staging before the fork: the child has no such page and no staging, so it needs
	 * the entry. Not moved: parent and child share the page, and MOVE will refuse it.
	 */
	if (pw_state(l->w[idx]) == PW_ISOLATED)
		(void)settle_isolated(s, l, idx, va);
	copy_one(arg, l->w[idx], va);
}

/*
 * Builds the child's space from the parent's table as it was before the batch. What of the batch
 * belongs to it is applied by fork_settle(). The child is not visible to any other thread yet, so
 * its lock is not needed.
 */
static struct space *copy_for_child(struct space *s, const struct event *e)
{
	struct space *child = s->ops->fork(s, e->child_fd);

	vmstat_add(VMSTAT_uffd_fork, 1);
	if (!child)
		return NULL;
	child->locality = s->locality;
	child->start_faults += START_FAULTS;
	atomic_store(&child->swap_class, atomic_load(&s->swap_class));
	space_adopt_inherit(child, s);
	for_each_word(s, 0, 1ull << 47, fork_one, child);
	return child;
}

/* ---- a batch of events ---- */

#define MAX_FORKS 1024

/* State of the events of one service call; too large for the stack, one per thread. */
struct reading {
	struct event ev[MAX_EVENTS]; /* no faults */
	int nr;
	struct event fault[MAX_EVENTS];
	int nr_faults;
	struct space *child[MAX_FORKS];
	int child_at[MAX_FORKS]; /* index of its fork event */
	/* Of each child: events that the copied table did not have in it yet. */
	uint64_t pending[MAX_FORKS][MAX_EVENTS / 64];
	int nr_children;
	struct event sub[MAX_EVENTS]; /* those that one child needs */
};

/* NULL: out of memory. Never freed: the threads that read events live as long as the process. */
static struct reading *reading_buffer(void)
{
	static __thread struct reading *r;

	if (!r)
		r = mem_reserve(sizeof(*r));
	return r;
}

static void apply_in_read_order(struct space *s, struct event *ev, int nr)
{
	for (int i = 0; i < nr; i++) {
		if (ev[i].kind == EVENT_REMAP)
			apply_remap(s, &ev[i]);
		else if (ev[i].kind == EVENT_UNMAP || ev[i].kind == EVENT_REMOVE)
			space_drop_range(s, ev[i].start, ev[i].end);
		if (ev[i].kind == EVENT_UNMAP)
			ranges_remove(&s->registered, ev[i].start, ev[i].end);
		ev[i].done = true;
	}
}

/*
 * In the order of reading, but for calls that overlapped (remap_ordered(), unmap_one()). Returns
 * false if the gate closed before one could be decided: the caller reads more and calls again;
 * what is done is marked so.
 */
static bool apply_ordered(struct space *s, struct event *ev, int nr, bool child)
{
	for (int i = 0; i < nr; i++) {
		struct unmap u = {.ev = ev, .nr = nr, .at = i, .child = child};

		if (ev[i].done)
			continue;
		switch (ev[i].kind) {
		case EVENT_REMAP:
			if (!remap_ordered(s, ev, nr, i, child))
				return false;
			break;
		case EVENT_REMOVE:
			space_drop_range(s, ev[i].start, ev[i].end);
			space_adopt_later(s, ev[i].start, ev[i].end);
			break;
		case EVENT_UNMAP:
			ranges_remove(&s->registered, ev[i].start, ev[i].end);
			for_each_word(s, ev[i].start, ev[i].end, unmap_one, &u);
			if (u.again)
				return false;
			break;
		default:
			break;
		}
		ev[i].done = true;
	}
	return true;
}

#define READ_EVENTS 32

/* Reads all that is there. Returns the number of events that are not faults, or -ESRCH. */
static int read_all(struct space *s, struct reading *rd)
{
	struct event ev[READ_EVENTS];
	int n, other = 0;

	while (rd->nr + READ_EVENTS <= MAX_EVENTS) {
		n = s->ops->read_events(s, ev, READ_EVENTS);
		if (n <= 0)
			return n < 0 ? n : other;
		for (int i = 0; i < n; i++) {
			if (ev[i].kind == EVENT_FAULT && rd->nr_faults == MAX_EVENTS) {
				s->ops->wake(s, ev[i].start);
			} else if (ev[i].kind == EVENT_FAULT) {
				rd->fault[rd->nr_faults++] = ev[i];
			} else {
				rd->ev[rd->nr++] = ev[i];
				other++;
			}
		}
		/* A read that returns less than it may has found both of the kernel's queues empty. */
		if (n < READ_EVENTS && !other)
			return 0;
	}
	return other;
}

/* Reads until the gate is open: then no event that happened before now is still on its way. */
static int drain(struct space *s, struct reading *rd)
{
	uint64_t end = clock_now_ns() + GATE_PATIENCE_NS;
	unsigned int spins = 0;

	for (;;) {
		int r = read_all(s, rd), gate;

		if (r < 0)
			return r;
		if (mm_mutants.no_order)
			return 0;
		gate = s->ops->gate_open(s);
		if (gate != 0)
			return gate < 0 ? gate : 0;
		if (rd->nr + READ_EVENTS > MAX_EVENTS)
			return 0;
		if (clock_now_ns() > end) {
			log_warn("an event of a process has been on its way for 10 s");
			return 0;
		}
		/* The program's thread must run to open it: let it. */
		if (++spins < 200)
			sched_yield();
		else
			clock_sleep_ns(100 * NSEC_PER_USEC);
	}
}

static bool is_pending(const struct reading *rd, int child, int i)
{
	return rd->pending[child][i / 64] >> (i % 64) & 1;
}

/* Copies the table for each fork event from index `from` on. lock held. */
static void copy_for_children(struct space *s, struct reading *rd, int from)
{
	for (int i = from; i < rd->nr; i++) {
		int c = rd->nr_children;
		struct space *child;

		if (rd->ev[i].kind != EVENT_FORK)
			continue;
		if (c == MAX_FORKS) {
			log_error("more than %d forks at once: a child cannot be served", MAX_FORKS);
			continue;
		}
		rd->ev[i].done = true;
		child = copy_for_child(s, &rd->ev[i]);
		if (!child)
			continue;
		rd->child[c] = child;
		rd->child_at[c] = i;
		for (int k = 0; k < MAX_EVENTS / 64; k++)
			rd->pending[c][k] = 0;
		for (int k = 0; k < rd->nr; k++)
			if (!rd->ev[k].done && rd->ev[k].kind != EVENT_FORK)
				rd->pending[c][k / 64] |= 1ull << (k % 64);
		rd->nr_children++;
	}
}

struct evidence {
	const struct reading *rd;
	int child, of; /* index of the event in question */
	uint64_t va; /* first word that no remap brought there; 0: none */
};

/*
 * Does another remap of this batch bring something to va? Then that va is mapped in the child, or
 * not, says nothing of event `of`. For an event read before the fork, a remap read after it, whose
 * source the child still has, does not count: it had not happened.
 */
static bool arrives(const struct reading *rd, int c, int of, uint64_t va)
{
	struct space *child = rd->child[c];
	int at = rd->child_at[c];

	for (int i = 0; i < rd->nr; i++) {
		const struct event *e = &rd->ev[i];

		if (i == of || e->kind != EVENT_REMAP || !is_pending(rd, c, i) ||
		    !covers(e->to, e->end - e->start, va))
			continue;
		if (i < at || of > at || child->ops->registered(child, e->start) != 1)
			return true;
	}
	return false;
}

static void first_word(struct space *s, struct leaf *l, unsigned int idx, uint64_t va, void *arg)
{
	struct evidence *ev = arg;

	if (!ev->va && !arrives(ev->rd, ev->child, ev->of, va))
		ev->va = va;
}

/* A remap that sends no unmap of its source left it mapped (MREMAP_DONTUNMAP). */
static bool source_is_kept(const struct reading *rd, const struct event *e)
{
	for (int i = 0; i < rd->nr; i++)
		if (rd->ev[i].kind == EVENT_UNMAP && rd->ev[i].start == e->start &&
		    rd->ev[i].end == e->end)
			return false;
	return true;
}

/* Does any event of the batch but e bring something to e's destination, or take it from there? */
static bool destination_is_shared(const struct reading *rd, int c, const struct event *e)
{
	uint64_t end = e->to + (e->end - e->start);

	for (int i = 0; i < rd->nr; i++) {
		const struct event *o = &rd->ev[i];

		if (o == e || !is_pending(rd, c, i) || o->kind == EVENT_REMOVE)
			continue;
		if (overlaps(o->start, o->end, e->to, end) ||
		    (o->kind == EVENT_REMAP &&
		     overlaps(o->to, o->to + (o->end - o->start), e->to, end)))
			return true;
	}
	return false;
}

/* A word of the event's range that no remap of the batch brought there, or 0. */
static uint64_t undisputed_word(const struct reading *rd, int c, int of)
{
	struct evidence ev = {.rd = rd, .child = c, .of = of};

	for_each_word(rd->child[c], rd->ev[of].start, rd->ev[of].end, first_word, &ev);
	return ev.va;
}

/*
 * Is the range that e starts from still in the child, for sure as the memory that e took away? A
 * neighbour below may have grown over it since, which sends no event: then it is not sure.
 */
static bool source_is_there(const struct reading *rd, int c, int i)
{
	struct space *child = rd->child[c];
	uint64_t va = undisputed_word(rd, c, i);

	return va && child->ops->registered(child, va) == 1 &&
	       child->ops->registered(child, rd->ev[i].start - PAGE_SIZE) == 0;
}

/*
 * Remap i. That it took its source away shows in the child as a source that is not mapped; that it
 * did not happen, as a source that is, or a destination that is not.
 */
static bool remap_was_before(const struct reading *rd, int c, int i)
{
	struct space *child = rd->child[c];
	const struct event *e = &rd->ev[i];
	bool kept = source_is_kept(rd, e);
	uint64_t va;

	if (i < rd->child_at[c]) {
		if (!kept && source_is_there(rd, c, i))
			return false;
		return destination_is_shared(rd, c, e) ||
		       child->ops->registered(child, e->to) != 0;
	}
	if (kept)
		return !destination_is_shared(rd, c, e) &&
		       child->ops->registered(child, e->to) == 1 &&
		       !table_any(&child->table, e->to, e->to + (e->end - e->start));
	va = undisputed_word(rd, c, i);
	if (!va && !arrives(rd, c, i, e->start))
		va = e->start;
	return va && child->ops->registered(child, va) == 0;
}

/* The remap of whose call unmap i is a part: it empties the destination, or its own source. */
static int remap_of_unmap(const struct reading *rd, int i)
{
	const struct event *u = &rd->ev[i];

	if (is_own_source(rd->ev, i))
		for (int m = i - 1; m >= 0; m--)
			if (rd->ev[m].kind == EVENT_REMAP && rd->ev[m].start == u->start &&
			    rd->ev[m].end == u->end)
				return m;
	for (int m = i + 1; m < rd->nr; m++)
		if (rd->ev[m].kind == EVENT_REMAP && overlaps(rd->ev[m].to, rd->ev[m].to + 1,
							      u->start, u->end))
			return rd->ev[m].to == u->start ? m : -1;
	return -1;
}

static bool was_before_fork(const struct reading *rd, int c, int i)
{
	struct space *child = rd->child[c];
	const struct event *e = &rd->ev[i];
	int at = rd->child_at[c], remap;
	uint64_t va;

	if (!is_pending(rd, c, i))
		return false; /* the copied table has it in it */
	if (e->kind == EVENT_REMOVE)
		return i < at;
	if (e->kind == EVENT_REMAP)
		return remap_was_before(rd, c, i);
	remap = remap_of_unmap(rd, i);
	if (remap >= 0 && is_pending(rd, c, remap))
		return remap_was_before(rd, c, remap);
	va = undisputed_word(rd, c, i);
	if (i < at)
		return !va || child->ops->registered(child, va) != 1;
	return va && child->ops->registered(child, va) == 0;
}

/*
 * The order of reading is that of happening, but for calls that overlapped the fork: an unmap or
 * remap posts its events after it let go of the mmap lock, and so does the fork. Of those the
 * child's mappings, which are as at the moment of the fork, tell on which side they belong, unless
 * other events leave the answer open: then the order of reading stands. Of a remove either side is
 * right, since one of the two calls had not returned when the other began.
 */
static void fork_settle(struct reading *rd, int c)
{
	int at = rd->child_at[c], n = 0;

	for (int i = 0; i < rd->nr; i++) {
		bool before;

		if (rd->ev[i].kind == EVENT_FORK)
			continue;
		before = was_before_fork(rd, c, i);
		if (i > at && !before)
			continue;
		/* Those that the copied table has in it, and later ones, count as arrivals only. */
		rd->sub[n] = rd->ev[i];
		rd->sub[n++].done = !before;
	}
	(void)apply_ordered(rd->child[c], rd->sub, n, true);
}

static void count_events(const struct reading *rd)
{
	static const enum vmstat_item item[] = {[EVENT_UNMAP] = VMSTAT_uffd_unmap,
						[EVENT_REMOVE] = VMSTAT_uffd_remove,
						[EVENT_REMAP] = VMSTAT_uffd_remap};

	for (int i = 0; i < rd->nr; i++)
		if (rd->ev[i].kind != EVENT_FORK)
			vmstat_add(item[rd->ev[i].kind], 1);
}

/* Applies the events that were read. reader_lock, hold and lock are held. */
static void apply_all(struct space *s, struct reading *rd)
{
	int forks_done = 0;
	bool decided;

	do {
		copy_for_children(s, rd, forks_done);
		forks_done = rd->nr;
		decided = true;
		if (mm_mutants.no_order)
			apply_in_read_order(s, rd->ev, rd->nr);
		else
			decided = apply_ordered(s, rd->ev, rd->nr, false);
		if (!decided && (rd->nr + 32 > MAX_EVENTS || drain(s, rd) < 0)) {
			/* No more can be read: what is open is kept, nothing is left unapplied. */
			(void)apply_ordered(s, rd->ev, rd->nr, true);
			break;
		}
	} while (!decided);
	for (int c = 0; c < rd->nr_children; c++)
		fork_settle(rd, c);
	count_events(rd);
}

/* Faults on pages that are being moved can only be judged while no MOVE runs. */
static void faults_while_held(struct space *s, struct reading *rd)
{
	for (int i = 0; i < rd->nr_faults; i++) {
		struct event *e = &rd->fault[i];

		us_mutex_lock(&s->lock);
		e->done = pw_state(table_get(&s->table, e->start)) == PW_ISOLATED;
		us_mutex_unlock(&s->lock);
		if (e->done)
			e->done = fault_try(s, e->start, e->write, clock_now_ns(), true) ==
				  FAULT_DONE;
	}
}

static void answer_faults(struct space *s, struct reading *rd)
{
	for (int i = 0; i < rd->nr_faults; i++) {
		struct event *e = &rd->fault[i];
		uint64_t now = clock_now_ns();

		if (e->done || fault_try(s, e->start, e->write, now, false) == FAULT_DONE)
			continue;
		us_mutex_lock(&s->lock);
		fault_defer(s, e->start, e->write, now);
		us_mutex_unlock(&s->lock);
	}
}

void space_service(struct space *s)
{
	struct reading *rd = reading_buffer();
	int r;

	if (!rd)
		return;
	rd->nr = rd->nr_faults = rd->nr_children = 0;

	if (mm_mutants.slow_reader && s->services % 4 == 0)
		clock_sleep_ns(NSEC_PER_MSEC / 2);
	us_mutex_lock(&s->reader_lock);
	if (atomic_load(&s->dead)) {
		us_mutex_unlock(&s->reader_lock);
		return;
	}
	s->ops->hold(s, true);
	us_mutex_lock(&s->lock);
	r = read_all(s, rd);
	if (r > 0)
		r = drain(s, rd);
	if (rd->nr)
		apply_all(s, rd);
	us_mutex_unlock(&s->lock);
	/*
	 * The children become visible, and may run on. Not before: whoever saw one whose process is
	 * dead already would take its table down while it is being built here, without its lock.
	 */
	for (int i = 0; i < rd->nr_children; i++) {
		space_publish(rd->child[i]);
		rd->child[i]->ops->forked(rd->child[i], s);
	}
	if (r >= 0 && rd->nr_faults)
		faults_while_held(s, rd);
	s->ops->hold(s, false);
	us_mutex_unlock(&s->reader_lock);
	vmstat_add(VMSTAT_pgfault, (uint64_t)rd->nr_faults);
	atomic_fetch_add(&s->nr_faults, (uint64_t)rd->nr_faults);
	answer_faults(s, rd);
	if (rd->nr)
		space_retry(s);
	/* Where the gate is closed the program's thread must run: give it a few chances now. */
	for (int i = 0; i < 10 && s->nr_deferred && rd->nr; i++) {
		sched_yield();
		space_retry(s);
	}
}

/* One pass over the faults put aside. Returns how many were answered. */
static unsigned int retry_pass(struct space *s)
{
	struct deferred todo[MAX_DEFERRED];
	unsigned int nr, answered = 0;

	us_mutex_lock(&s->lock);
	nr = s->nr_deferred;
	for (unsigned int i = 0; i < nr; i++)
		todo[i] = s->deferred[i];
	s->nr_deferred = 0;
	us_mutex_unlock(&s->lock);
	for (unsigned int i = 0; i < nr; i++) {
		struct deferred *d = &todo[i];
		enum fault_result r = fault_try(s, d->va, d->write, d->since_ns, false);

		if (r == FAULT_NEED_HOLD) {
			us_mutex_lock(&s->reader_lock);
			if (!atomic_load(&s->dead)) {
				s->ops->hold(s, true);
				r = fault_try(s, d->va, d->write, d->since_ns, true);
				s->ops->hold(s, false);
			}
			us_mutex_unlock(&s->reader_lock);
		}
		if (r == FAULT_DONE) {
			answered++;
			continue;
		}
		us_mutex_lock(&s->lock);
		fault_defer(s, d->va, d->write, d->since_ns);
		us_mutex_unlock(&s->lock);
	}
	return answered;
}

void space_retry(struct space *s)
{
	/* A load that ends inside the pass comes back here: the pass itself goes on instead. */
	static __thread bool inside;

	if (inside)
		return;
	inside = true;
	for (int i = 0; i < 4 && s->nr_deferred; i++)
		if (!retry_pass(s))
			break;
	inside = false;
}
