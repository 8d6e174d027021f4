/* SPDX-License-Identifier: MIT */
/*
 * Which ranges of a process are managed, and how a range becomes so (rule 5).
 *
 * Managed is private anonymous memory of at least MIN_RANGE bytes, readable and writable, wherever
 * it came from. Registering splits nothing: always one whole VMA, as /proc/PID/maps shows it. The
 * program runs on meanwhile, so what maps showed may be stale at each step:
 *
 *   under reader_lock (no event is applied by anybody else):
 *   1. gate open; REGISTER [start, end)
 *   2. gate open still: no unmap or remap of a range of ours began before the register and ended
 *      after it (one that begins later is an event that we shall read later)
 *   3. the same VMA is still there, from start to end: so nothing was put in its place between the
 *      look and the register; and both its ends are registered
 *   4. scan the pagemap: what is present is RESIDENT. A page that goes away during the scan sends
 *      an event first, and that event is applied after the scan, since it takes reader_lock.
 *
 * If a check fails the range is left as it is, registered perhaps, but without state: a missing
 * page of it is then zero-filled, which is right, because nothing of it was ever evicted. It is
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

struct candidate {
	uint64_t start, end;
	bool exec;
};

struct scan {
	struct space *s;
	bool force;
	uint64_t prev_end;	 /* end of the VMA before, if it was eligible by kind */
	uint64_t prev_bytes;
	struct candidate found[MAX_CANDIDATES];
	unsigned int nr;
	bool more;
};

static bool own_range(struct space *s, const struct proc_vma *v)
{
	struct remote *r = space_remote(s);

	for (int m = 0; m < NR_AGENT_MODES; m++)
		if (r->staging[m] && v->start < r->staging[m] + STAGING_PAGES * PAGE_SIZE &&
		    v->end > r->staging[m])
			return true;
	return v->start <= s->sentinel && v->end > s->sentinel;
}

static bool eligible_kind(const struct proc_vma *v)
{
	if (v->shared || v->file || !v->read || !v->write)
		return false;
	/* "[heap]", "[anon:...]" and no name; not "[stack]", "[vdso]", "[vvar]", "anon_inode:..." */
	return !v->name[0] || strcmp(v->name, "[heap]") == 0 ||
	       strncmp(v->name, "[anon:", 6) == 0;
}

static int consider(const struct proc_vma *v, void *arg)
{
	struct scan *sc = arg;
	uint64_t bytes = v->end - v->start, neighbour;

	if (!eligible_kind(v) || own_range(sc->s, v)) {
		sc->prev_bytes = 0;
		return 0;
	}
	neighbour = sc->prev_end == v->start ? sc->prev_bytes : 0;
	sc->prev_end = v->end;
	sc->prev_bytes = bytes;
	if (bytes < MIN_RANGE)
		return 0;
	/* Growth of a managed range is taken in big steps: each one costs a VMA until it merges. */
	if (!sc->force && bytes < MIN(neighbour / 8, MIB(4)))
		return 0;
	if (sc->s->ops->registered(sc->s, v->start) != 0)
		return 0;
	if (sc->nr == MAX_CANDIDATES) {
		sc->more = true;
		return 1;
	}
	sc->found[sc->nr++] = (struct candidate){v->start, v->end, v->exec};
	return 0;
}

/* The pages that are present now become ours. lock held. */
static int scan_present(struct space *s, uint64_t start, uint64_t end)
{
	uint64_t pm[LEAF_PAGES];

	for (uint64_t va = start; va < end;) {
		uint64_t stop = MIN(end, leaf_base(va) + LEAF_BYTES);
		size_t nr = (stop - va) >> PAGE_SHIFT;
		struct leaf *l = NULL;
		int r = s->ops->pagemap(s, va, pm, nr);

		if (r)
			return r;
		for (size_t i = 0; i < nr; i++, va += PAGE_SIZE) {
			if (!(pm[i] & PAGEMAP_PRESENT))
				continue;
			if (!l)
				l = table_leaf(&s->table, va, true, s->order);
			if (!l)
				return -ENOMEM;
			/* Old from the start: nothing is known of when it was used. */
			if (pw_state(l->w[leaf_index(va)]) == PW_NONE)
				table_set(&s->table, l, leaf_index(va),
					  pw_make(PW_RESIDENT, 0, 0, (uint8_t)(mm_gen(s->mm) - 3)));
		}
	}
	return 0;
}

static bool same_vma(pid_t pid, const struct candidate *c, char *buf, size_t len)
{
	struct proc_vma v;

	return proc_find_vma(pid, c->start, buf, len, &v) == 0 && v.start == c->start &&
	       v.end == c->end && eligible_kind(&v);
}

/* reader_lock held. 0, or -errno if the range was left without state. */
static int register_range(struct space *s, const struct candidate *c, char *buf, size_t len)
{
	struct remote *r = space_remote(s);
	int err;

	if (s->ops->gate_open(s) != 1)
		return -EAGAIN;
	err = uffd_register(r->uffd, c->start, c->end - c->start, UFFDIO_REGISTER_MODE_MISSING);
	if (err)
		return err; /* EBUSY: the program's own userfaultfd; leave it alone */
	if (!mm_mutants.no_verify_register &&
	    (s->ops->gate_open(s) != 1 || !same_vma(r->pid, c, buf, len) ||
	     s->ops->registered(s, c->start) != 1 ||
	     s->ops->registered(s, c->end - PAGE_SIZE) != 1)) {
		vmstat_add(VMSTAT_uffd_register_undone, 1);
		return -ESTALE;
	}
	us_mutex_lock(&s->lock);
	err = scan_present(s, c->start, c->end);
	us_mutex_unlock(&s->lock);
	vmstat_add(VMSTAT_uffd_register, 1);
	return err;
}

int space_scan_ranges(struct space *s, bool force)
{
	static __thread char buf[16384];
	struct scan sc = {.s = s, .force = force};
	struct remote *r = space_remote(s);
	int done = 0;
	uint64_t locked;

	/* Without a helper nothing could be evicted, so nothing needs to be known. */
	if (!r->pid || !s->ops->can_move(s))
		return 0;
	/* Locked memory must never reach a device, and with mlockall() staging is locked as well. */
	if (proc_field(r->pid, "status", "VmLck:", &locked) == 0 && locked)
		return 0;
	(void)proc_maps(r->pid, buf, sizeof(buf), consider, &sc);
	for (unsigned int i = 0; i < sc.nr; i++) {
		us_mutex_lock(&s->reader_lock);
		if (!atomic_load(&s->dead) &&
		    register_range(s, &sc.found[i], buf, sizeof(buf)) == 0)
			done++;
		us_mutex_unlock(&s->reader_lock);
	}
	return sc.more ? done + 1 : done;
}
