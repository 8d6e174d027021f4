/* SPDX-License-Identifier: MIT */
/*
 * Which ranges of a process are managed, and how a range becomes so (rule 5).
 *
 * Managed is private anonymous memory of at least MIN_RANGE bytes, wherever it came from and
 * whatever its protection: a program that reserves first and opens what it uses with mprotect()
 * must find one mapping there, as natively. (MOVE refuses what is not writable; such pages stay.)
 * A range is registered with the holes on both sides of its VMA: the program runs on
 * meanwhile, and if its VMA grew into a hole since /proc/PID/maps was read, registering only what
 * was read would split it, which costs a mapping and makes an mremap() across the split fail. If
 * it grew across a whole hole into the next VMA the split is found and mended at once.
 *
 *   under reader_lock (no event is applied by anybody else):
 *   1. gate open; words left over from memory that was here before are dropped; REGISTER
 *   2. gate open still: no unmap or remap of a range of ours began before the register and ended
 *      after it (one that begins later is an event that we shall read later)
 *   3. look at the VMAs again: only one that is there now, of the right kind and registered at
 *      both ends, gets state
 *   4. scan the pagemap: what is present is RESIDENT. A page that goes away during the scan sends
 *      an event first, and that event is applied after the scan, since it takes reader_lock.
 *
 * Whether a mapping is registered can only be asked with a fill that fails, and such a fill gives a
 * mapping that has no anon_vma yet one of its own: then the kernel never again merges it with its
 * neighbours. So a mapping that the program has not touched yet is not asked for: what is known to
 * be registered is noted (space.registered), and what is not known is registered, which does
 * nothing where it was already.
 *
 * If a check fails the range is left as it is, registered perhaps, but without state: a missing
 * page of it is then zero-filled, which is right, because nothing of it was ever evicted. What is
 * present in it is taken in later, when the gate is open (space_adopt_soon()). It is
 * never unregistered: between the two the program may have come to depend on it.
 */
#include "mm/mm.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "mm/remote.h"
#include "sys/proc.h"
#include "sys/uffd.h"
#include "trace/vmstat.h"

#define MIN_RANGE KIB(128)
#define MAX_CANDIDATES 64
/* Above this (2 GiB resident) smaps takes too long to look for MADV_WIPEONFORK in it. */
#define WIPE_CHECK_PAGES (GIB(2) >> PAGE_SHIFT)

struct candidate {
	uint64_t start, end;	     /* of the VMA */
	uint64_t low, high;	     /* with the holes beside it */
	bool untouched;		     /* nobody asked whether it is registered already */
};

struct scan {
	struct space *s;
	bool force;
	uint64_t prev_end;   /* end of the VMA before */
	uint64_t prev_bytes; /* its size, if it was eligible by kind */
	bool prev_managed;   /* it is registered */
	bool open;	     /* the last candidate's high is not known yet */
	bool tentative;	     /* the last candidate counts only if a managed VMA follows at once */
	struct candidate found[MAX_CANDIDATES];
	unsigned int nr;
	bool more;
	bool unsure; /* the gate closed meanwhile: something may have been overlooked */
	struct proc_wiped wiped;
};

static bool eligible_kind(const struct proc_vma *v)
{
	if (v->shared || v->file)
		return false;
	/* "[heap]", "[anon:...]" and no name; not "[stack]", "[vdso]", "[vvar]", "anon_inode:..." */
	return !v->name[0] || strcmp(v->name, "[heap]") == 0 ||
	       strncmp(v->name, "[anon:", 6) == 0;
}

/*
 * Is an unregistered VMA worth registering? 1 yes, 0 no, -1 only if a managed one follows it
 * directly. A piece between managed memory is taken whatever its size (but for the heap's end):
 * natively it would be one mapping with its neighbours, and mremap() must find it so.
 */
static int worth(const struct scan *sc, const struct proc_vma *v, bool adjacent)
{
	uint64_t bytes = v->end - v->start;
	bool heap = strcmp(v->name, "[heap]") == 0;

	if (adjacent && sc->prev_managed && !heap)
		return 1;
	if (bytes < MIN_RANGE)
		return heap ? 0 : -1;
	/* Growth of a managed range is taken in big steps: each one costs a VMA until it merges. */
	if (!sc->force && adjacent && bytes < MIN(sc->prev_bytes / 8, MIB(4)))
		return -1;
	return 1;
}

/* MADV_WIPEONFORK: a forked child must find zeros there, whatever is in the parent's table. */
static bool is_wiped(const struct proc_wiped *w, const struct proc_vma *v)
{
	for (unsigned int i = 0; i < w->nr; i++)
		if (w->start[i] < v->end && w->end[i] > v->start)
			return true;
	return false;
}

static int seen(uint64_t start, uint64_t end, void *arg)
{
	return 1;
}

enum managed { UNTOUCHED = -1, UNMANAGED, MANAGED, UNSURE };

/* Is the mapping registered? UNTOUCHED: not known, and not to be asked for. */
static enum managed is_managed(struct space *s, uint64_t start, uint64_t end)
{
	bool known, words;
	int r;

	us_mutex_lock(&s->lock);
	known = ranges_overlap(&s->registered, start, end);
	words = known || table_any(&s->table, start, end);
	us_mutex_unlock(&s->lock);
	if (known)
		return MANAGED;
	if (!words && s->ops->each_present(s, start, end, seen, NULL) != 1)
		return UNTOUCHED;
	r = s->ops->registered(s, start);
	if (r == -EAGAIN)
		return UNSURE;
	return r == 0 ? UNMANAGED : MANAGED;
}

static int consider(const struct proc_vma *v, void *arg)
{
	struct scan *sc = arg;
	bool adjacent = sc->prev_end == v->start && sc->prev_bytes;
	bool eligible = eligible_kind(v) && !remote_is_own(sc->s, v->start, v->end), managed;
	enum managed m = eligible ? is_managed(sc->s, v->start, v->end) : UNMANAGED;
	uint64_t low = sc->prev_end;
	int take;

	managed = m == MANAGED || m == UNSURE;
	sc->unsure |= m == UNSURE;
	/* The hole goes to the range below it: ranges are disjoint, or state would be taken twice. */
	if (sc->open)
		sc->found[sc->nr - 1].high = low = v->start;
	if (sc->tentative && !(managed && adjacent)) {
		sc->nr--;
		low = sc->prev_end;
	}
	sc->open = sc->tentative = false;
	take = eligible && !managed && !is_wiped(&sc->wiped, v) ? worth(sc, v, adjacent) : 0;
	sc->prev_end = v->end;
	sc->prev_bytes = eligible ? v->end - v->start : 0;
	sc->prev_managed = managed;
	if (!take)
		return 0;
	if (sc->nr == MAX_CANDIDATES) {
		sc->more = true;
		return 1;
	}
	sc->found[sc->nr++] = (struct candidate){.start = v->start,
						 .end = v->end,
						 .low = low,
						 .high = v->end,
						 .untouched = m == UNTOUCHED};
	sc->open = true;
	sc->tentative = take < 0;
	return 0;
}

/* What step 3 finds inside the ranges that were registered, and just beside them. */
struct recheck {
	struct space *s;
	const struct candidate *range;
	unsigned int nr, at; /* at: the first range that may still hold a VMA */
	const struct proc_wiped *wiped;
	struct candidate torn[MAX_CANDIDATES]; /* unregistered halves of VMAs that were split */
	unsigned int nr_torn;
};

/*
 * The part of a VMA that lies in a range gets state, now or when it can be judged. untouched: it
 * may have been registered before, so what is present may be about to be removed (rule 4).
 */
static void take_state(struct space *s, uint64_t start, uint64_t end, bool untouched)
{
	int first = s->ops->registered(s, start), last = s->ops->registered(s, end - PAGE_SIZE);

	us_mutex_lock(&s->lock);
	if (first == 1 && last == 1)
		ranges_add(&s->registered, start, end);
	if (first != 1 || last != 1 || (untouched && space_adopt_waits(s, start, end)) ||
	    space_take_present(s, start, end) != 0)
		space_adopt_soon(s, start, end);
	us_mutex_unlock(&s->lock);
}

static int recheck_vma(const struct proc_vma *v, void *arg)
{
	struct recheck *rc = arg;
	struct space *s = rc->s;

	while (rc->at < rc->nr && rc->range[rc->at].high < v->start)
		rc->at++;
	if (rc->at == rc->nr)
		return 1;
	if (!eligible_kind(v) || remote_is_own(s, v->start, v->end))
		return 0;
	/* A VMA that grew into a hole may touch two ranges. */
	for (unsigned int i = rc->at; i < rc->nr && rc->range[i].low <= v->end; i++) {
		const struct candidate *c = &rc->range[i];

		if (v->start < c->high && v->end > c->low) {
			/* Registered, it may have become one with a managed neighbour. */
			take_state(s, MAX(v->start, c->low), MIN(v->end, c->high), c->untouched);
		} else if ((v->end == c->low || v->start == c->high) &&
			   rc->nr_torn < MAX_CANDIDATES && !is_wiped(rc->wiped, v) &&
			   is_managed(s, v->start, v->end) <= UNMANAGED) {
			/* Just outside: was it one with what is inside? */
			rc->torn[rc->nr_torn++] =
				(struct candidate){v->start, v->end, v->start, v->end, true};
		}
	}
	return 0;
}

static int register_one(struct space *s, uint64_t low, uint64_t high)
{
	return uffd_register(space_remote(s)->uffd, low, high - low, UFFDIO_REGISTER_MODE_MISSING);
}

/*
 * Registers each range; those refused (EBUSY: the program's own userfaultfd) are taken out.
 * Ranges that touch go together: in between, two VMAs that have just become one would be split.
 */
static unsigned int register_all(struct space *s, struct candidate *c, unsigned int nr)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < nr && mm_mutants.no_whole_vma; i++) {
		c[i].low = c[i].start;
		c[i].high = c[i].start + align_down((c[i].end - c[i].start) / 2, PAGE_SIZE);
	}
	for (unsigned int i = 0, next; i < nr; i = next) {
		bool together;

		for (next = i + 1; next < nr && c[next].low == c[next - 1].high; next++)
			;
		together = register_one(s, c[i].low, c[next - 1].high) == 0;
		for (unsigned int k = i; k < next; k++)
			if (together || register_one(s, c[k].low, c[k].high) == 0)
				c[kept++] = c[k];
	}
	vmstat_add(VMSTAT_uffd_register, kept);
	return kept;
}

/*
 * What is not registered and has no event on its way was never filled by us: a word that is there
 * is of memory that is long gone (a range that a forked child did not get, say) and must not meet
 * the pages that are there now. Before the register: after it, pages of the range come and go
 * through faults. Under lock no word can be set between the question and the drop.
 */
static void drop_stale(struct space *s, const struct candidate *c)
{
	us_mutex_lock(&s->lock);
	if (table_any(&s->table, c->start, c->end) && s->ops->registered(s, c->start) == 0 &&
	    s->ops->registered(s, c->end - PAGE_SIZE) == 0)
		space_drop_range(s, c->start, c->end);
	us_mutex_unlock(&s->lock);
}

/* Steps 1 to 4 for all ranges at once. reader_lock held. */
static void register_ranges(struct space *s, struct candidate *c, unsigned int nr,
			   const struct proc_wiped *wiped, char *buf, size_t len)
{
	pid_t pid = space_remote(s)->pid;
	struct recheck rc = {.s = s, .range = c, .wiped = wiped};
	struct recheck mend = {.s = s, .range = rc.torn, .wiped = wiped};

	for (unsigned int i = 0; i < nr; i++)
		drop_stale(s, &c[i]);
	rc.nr = register_all(s, c, nr);
	if (s->ops->gate_open(s) != 1) {
		vmstat_add(VMSTAT_uffd_register_undone, rc.nr);
		us_mutex_lock(&s->lock);
		for (unsigned int i = 0; i < rc.nr; i++)
			space_adopt_soon(s, c[i].start, c[i].end);
		us_mutex_unlock(&s->lock);
		return;
	}
	(void)proc_maps(pid, buf, len, recheck_vma, &rc);
	if (rc.nr_torn && !mm_mutants.no_whole_vma) {
		mend.nr = register_all(s, rc.torn, rc.nr_torn);
		(void)proc_maps(pid, buf, len, recheck_vma, &mend);
	}
}

/* One look at all mappings. Returns false if it may have missed some. */
static bool scan_ranges(struct space *s, bool force)
{
	static __thread char buf[16384];
	static __thread struct scan sc;
	struct remote *r = space_remote(s);

	/* Is there anything new? Only then the slow look for mappings to be wiped is worth it. */
	sc = (struct scan){.s = s, .force = force};
	(void)proc_maps(r->pid, buf, sizeof(buf), consider, &sc);
	if (!sc.nr)
		return !sc.unsure;
	sc = (struct scan){.s = s, .force = force};
	if (s->table.nr_resident < WIPE_CHECK_PAGES)
		proc_wipe_on_fork(r->pid, &sc.wiped);
	us_mutex_lock(&s->reader_lock);
	if (atomic_load(&s->dead) || s->ops->gate_open(s) != 1) {
		us_mutex_unlock(&s->reader_lock);
		return false;
	}
	/* As late as can be: what grows between the look and the register gets split. */
	(void)proc_maps(r->pid, buf, sizeof(buf), consider, &sc);
	if (sc.tentative)
		sc.nr--;
	if (sc.nr)
		register_ranges(s, sc.found, sc.nr, &sc.wiped, buf, sizeof(buf));
	us_mutex_unlock(&s->reader_lock);
	return !sc.unsure && !sc.more;
}

void space_scan_ranges(struct space *s, bool force)
{
	struct remote *r = space_remote(s);
	bool asked, complete = true;
	uint32_t wanted = 0;

	if (!r->pid || !r->ctl)
		return;
	__atomic_store_n(&r->ctl->registering, 1, __ATOMIC_RELAXED);
	/* What is asked for from here on may not be seen by this look. */
	asked = remote_look_wanted(s, &wanted);
	/* Without a helper nothing could be evicted, so nothing needs to be known. */
	if (s->ops->can_move(s))
		complete = scan_ranges(s, force || asked);
	if (asked && complete)
		remote_look_done(s, wanted);
}
