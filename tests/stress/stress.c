/* SPDX-License-Identifier: MIT */
/*
 * Threads that change their address space in every way while it is being evicted, and check
 * every page on every visit.
 *
 * Each worker owns SLOTS areas of 128 KiB to 4 MiB. A page says who it belongs to: worker, slot,
 * generation of the area, index, version (pages.h). What must hold:
 *   - a page of an area has exactly the content last written to it;
 *   - a page that is new (mmap, MAP_FIXED, growth) or was given back (MADV_DONTNEED) is zero;
 *   - a forked child sees what its parent saw at the fork, and neither sees the other's writes.
 * Anything else is a wrong page. Natively there is none; a pager that mixes up an event with an
 * eviction produces them in all four kinds counted below.
 *
 * What the workers must remember lives in memory that uswap does not manage (small mappings), so
 * that a wrong page is found by the check and not by a crash. It is private memory: a forked
 * child's copy of it is the snapshot that fits the child's copy of the areas.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pages.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define SLOTS 10
#define MAX_WORKERS 16
#define MIN_PAGES 32	/* 128 KiB: smaller mappings are not managed */
#define MAX_PAGES 1024	/* 4 MiB */
#define MAX_CHILDREN 2	/* of one worker at a time */
#define STALL_NS (20 * 1000000000ull)
#define CHILD_OWNER 0x80 /* set in the owner of pages that a child wrote */

struct area {
	char *base; /* NULL: the slot is empty */
	unsigned int nr_pages;
	unsigned int generation;
	unsigned int owner;
	bool split; /* a part was mapped anew: natively too several mappings, which mremap refuses */
	uint16_t version[MAX_PAGES];
};

struct worker {
	unsigned int id;
	uint64_t rng;
	unsigned int next_generation;
	struct area area[SLOTS];
	pid_t child[MAX_CHILDREN];
	int file; /* memfd for the I/O operation */
};

/* Shared with the children; never in managed memory. */
struct totals {
	_Atomic uint64_t operations, checks, forks, spawns, children_died, child_checks;
	_Atomic uint64_t zero, stale, other, dirty, failed_calls;
	_Atomic uint64_t max_visit_ns;
	_Atomic uint64_t progress[MAX_WORKERS];
	_Atomic uint64_t by_operation[128];
	_Atomic char doing[MAX_WORKERS];
	_Atomic int stop;
	_Atomic int reported;
};

static struct totals *totals;
static struct worker *workers[MAX_WORKERS];
static unsigned int nr_workers = 3;
static const char *operations = "unodmwvhgskpeiyfFx";
static bool stop_at_wrong;
static pthread_rwlock_t fork_lock;

static uint64_t wrong_pages(void)
{
	return totals->zero + totals->stale + totals->other + totals->dirty;
}

/* Counts; tells of the first few only. */
static void report_wrong(const struct area *a, const struct worker *w, unsigned int index,
			 const char *where, enum page_verdict verdict, uint64_t want)
{
	const uint64_t *page = (const uint64_t *)(a->base + index * PAGE_BYTES);
	char line[256];
	int n;

	switch (verdict) {
	case PAGE_ZERO:
		totals->zero++;
		break;
	case PAGE_STALE:
		totals->stale++;
		break;
	default:
		totals->other++;
	}
	if (stop_at_wrong)
		totals->stop = 1;
	if (totals->reported++ >= 20)
		return;
	n = snprintf(line, sizeof(line),
		     "wrong page: %s, worker %u slot %u page %u of %u at %p: %s; want %016llx, "
		     "first word %016llx\n",
		     where, w->id, (unsigned int)(a - w->area), index, a->nr_pages, (void *)page,
		     verdict == PAGE_ZERO	? "zero"
		     : verdict == PAGE_STALE	? "stale"
		     : verdict == PAGE_MISPLACED ? "another page"
						: "damaged",
		     (unsigned long long)want, (unsigned long long)page[0]);
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}

static void report_dirty(const struct worker *w, const char *where, const void *page)
{
	char line[160];
	int n;

	totals->dirty++;
	if (stop_at_wrong)
		totals->stop = 1;
	if (totals->reported++ >= 20)
		return;
	n = snprintf(line, sizeof(line),
		     "wrong page: %s, worker %u at %p: should be zero, first word %016llx\n", where,
		     w->id, page, (unsigned long long)*(const uint64_t *)page);
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}

/* The mappings at the area, and whether each is under a userfaultfd ("um"): who was it split by? */
static void report_mappings(const struct area *a)
{
	char line[512], *end;
	unsigned long from = 0, to = 0;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && strchr("0123456789abcdef", line[0]))
			continue;
		if (strncmp(line, "VmFlags:", 8) || to <= (unsigned long)a->base ||
		    from >= (unsigned long)a->base + a->nr_pages * PAGE_BYTES)
			continue;
		end = strchr(line, '\n');
		if (end)
			*end = 0;
		fprintf(stderr, "  %lx-%lx %s\n", from, to, line);
	}
	if (f)
		fclose(f);
}

/*
 * A call that works natively failed. What a failed mremap has done is unknown (newer kernels move
 * a part), so the caller gives the area up and leaves its addresses alone for ever.
 */
static void report_failed_call(const struct worker *w, struct area *a, const char *call)
{
	char line[160];
	int error = errno, n;

	if (a->split && error == EFAULT) {
		a->base = NULL;
		return;
	}
	totals->failed_calls++;
	n = snprintf(line, sizeof(line), "failed call: %s of worker %u, %u pages at %p: %s\n", call,
		     w->id, a->nr_pages, (void *)a->base, strerror(error));
	if (totals->reported++ < 20 && write(STDERR_FILENO, line, n) == n)
		report_mappings(a);
	a->base = NULL;
}

static uint64_t tag_of(const struct worker *w, const struct area *a, unsigned int index)
{
	return page_tag(a->owner, a - w->area, a->generation, index, a->version[index]);
}

static void write_page(struct worker *w, struct area *a, unsigned int index)
{
	a->version[index]++;
	page_fill(a->base + index * PAGE_BYTES, tag_of(w, a, index));
}

static bool check_page(struct worker *w, struct area *a, unsigned int index, const char *where)
{
	char *page = a->base + index * PAGE_BYTES;
	uint64_t want = tag_of(w, a, index);
	enum page_verdict verdict;

	if (page_matches(page, want))
		return true;
	verdict = page_judge(page, want);
	report_wrong(a, w, index, where, verdict, want);
	return false;
}

/* Pages [from, to) must be zero; then they get content. */
static void check_zero_and_fill(struct worker *w, struct area *a, unsigned int from,
				unsigned int to, const char *where)
{
	for (unsigned int i = from; i < to; i++) {
		if (!page_is_zero(a->base + i * PAGE_BYTES))
			report_dirty(w, where, a->base + i * PAGE_BYTES);
		write_page(w, a, i);
	}
	totals->checks += to - from;
}

static void visit(struct worker *w, struct area *a, const char *where)
{
	for (unsigned int i = 0; i < a->nr_pages; i++) {
		uint64_t before = clock_ns(), took;
		bool right = check_page(w, a, i, where);

		if (!right || random_next(&w->rng) % 4 == 0)
			write_page(w, a, i);
		took = clock_ns() - before;
		if (took > totals->max_visit_ns)
			totals->max_visit_ns = took;
	}
	totals->checks += a->nr_pages;
}

static unsigned int random_size(struct worker *w)
{
	static const unsigned int sizes[] = { 32, 32, 32, 48, 64, 64, 128, 128, 256, 1024 };

	return sizes[random_next(&w->rng) % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* A subrange [*from, *to) of the area, at least a page. */
static void random_range(struct worker *w, const struct area *a, unsigned int *from,
			 unsigned int *to)
{
	*from = random_next(&w->rng) % a->nr_pages;
	*to = *from + 1 + random_next(&w->rng) % (a->nr_pages - *from);
}

static void new_area(struct worker *w, struct area *a, char *base, unsigned int nr_pages)
{
	a->base = base;
	a->nr_pages = nr_pages;
	a->generation = w->next_generation++;
	a->owner = w->id;
	a->split = false;
}

static void create(struct worker *w, struct area *a)
{
	unsigned int nr_pages = random_size(w);
	char *p = mmap(NULL, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	new_area(w, a, p, nr_pages);
	check_zero_and_fill(w, a, 0, nr_pages, "new mapping");
}

/* A hole in the address space, claimed by an inaccessible mapping so that nobody else takes it. */
static char *claim_hole(size_t nr_pages)
{
	char *p = mmap(NULL, nr_pages * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* False: the area is gone, and so is `to`. */
static bool move_to(struct worker *w, struct area *a, char *to)
{
	char *p = mremap(a->base, a->nr_pages * PAGE_BYTES, a->nr_pages * PAGE_BYTES,
			 MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (p == MAP_FAILED) {
		report_failed_call(w, a, "mremap");
		return false;
	}
	a->base = p;
	return true;
}

static struct area *other_area(struct worker *w, struct area *a, bool same_size)
{
	unsigned int start = random_next(&w->rng) % SLOTS;

	for (unsigned int i = 0; i < SLOTS; i++) {
		struct area *b = &w->area[(start + i) % SLOTS];

		if (b == a || !b->base)
			continue;
		if (same_size ? b->nr_pages == a->nr_pages : b->nr_pages >= a->nr_pages)
			return b;
	}
	return NULL;
}

/* ---- one function an operation ---- */

static void op_unmap(struct worker *w, struct area *a)
{
	munmap(a->base, a->nr_pages * PAGE_BYTES);
	a->base = NULL;
}

static void op_new_at_same_address(struct worker *w, struct area *a)
{
	unsigned int nr_pages = a->nr_pages;
	char *base = a->base, *p;

	munmap(base, nr_pages * PAGE_BYTES);
	a->base = NULL;
	p = mmap(base, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (p == MAP_FAILED) /* another thread was faster */
		return;
	new_area(w, a, p, nr_pages);
	check_zero_and_fill(w, a, 0, nr_pages, "new mapping at the old address");
}

static void op_map_over(struct worker *w, struct area *a)
{
	unsigned int from = 0, to = a->nr_pages;
	char *p;

	if (random_next(&w->rng) % 2) {
		random_range(w, a, &from, &to);
		a->split = true;
	}
	p = mmap(a->base + from * PAGE_BYTES, (to - from) * PAGE_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (p == MAP_FAILED) {
		report_failed_call(w, a, "mmap with MAP_FIXED");
		return;
	}
	check_zero_and_fill(w, a, from, to, "MAP_FIXED over an area");
}

static void op_dontneed(struct worker *w, struct area *a)
{
	unsigned int from, to;

	random_range(w, a, &from, &to);
	if (madvise(a->base + from * PAGE_BYTES, (to - from) * PAGE_BYTES, MADV_DONTNEED)) {
		report_failed_call(w, a, "MADV_DONTNEED");
		return;
	}
	check_zero_and_fill(w, a, from, to, "MADV_DONTNEED");
}

/* After MADV_FREE a page is the old one or zero, never anything else, until it is written. */
static void op_free(struct worker *w, struct area *a)
{
	unsigned int from, to;

	random_range(w, a, &from, &to);
	if (madvise(a->base + from * PAGE_BYTES, (to - from) * PAGE_BYTES, MADV_FREE)) {
		report_failed_call(w, a, "MADV_FREE");
		return;
	}
	for (unsigned int i = from; i < to; i++) {
		if (!page_is_zero(a->base + i * PAGE_BYTES))
			check_page(w, a, i, "MADV_FREE");
		write_page(w, a, i);
	}
	totals->checks += to - from;
}

static void op_move(struct worker *w, struct area *a)
{
	char *to = claim_hole(a->nr_pages);

	if (to)
		move_to(w, a, to);
}

/* Two areas change places by way of a third address. */
static void op_swap(struct worker *w, struct area *a)
{
	struct area *b = other_area(w, a, true);
	char *home_a = a->base, *home_b, *aside;

	if (!b)
		return;
	home_b = b->base;
	aside = claim_hole(a->nr_pages);
	if (!aside)
		return;
	/*
	 * Between two moves an address is free for a moment; another thread may map there, and
	 * mremap would wipe that out. Claim it first, and leave the areas where they are if not.
	 */
	if (!move_to(w, a, aside) ||
	    mmap(home_a, a->nr_pages * PAGE_BYTES, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != home_a)
		return;
	if (!move_to(w, b, home_a) ||
	    mmap(home_b, a->nr_pages * PAGE_BYTES, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != home_b)
		return;
	move_to(w, a, home_b);
}

/*
 * An area is moved over another one, whose content is lost: the kernel tells of the unmapping,
 * waits until that is read, and tells of the move only then.
 */
static void op_move_over(struct worker *w, struct area *a)
{
	struct area *b = other_area(w, a, false);
	size_t rest;

	if (!b)
		return;
	if (!move_to(w, a, b->base)) {
		b->base = NULL;
		return;
	}
	rest = b->nr_pages - a->nr_pages;
	if (rest)
		munmap(b->base + a->nr_pages * PAGE_BYTES, rest * PAGE_BYTES);
	b->base = NULL;
}

/* As above, and the end of the area is cut off by the same call. */
static void op_shrink_over(struct worker *w, struct area *a)
{
	unsigned int keep = a->nr_pages / 2;
	struct area *b = NULL;
	char *p;

	for (unsigned int i = 0; i < SLOTS && !b; i++)
		if (&w->area[i] != a && w->area[i].base && w->area[i].nr_pages >= keep)
			b = &w->area[i];
	if (!b || keep < MIN_PAGES)
		return;
	p = mremap(a->base, a->nr_pages * PAGE_BYTES, keep * PAGE_BYTES,
		   MREMAP_MAYMOVE | MREMAP_FIXED, b->base);
	if (p == MAP_FAILED) {
		report_failed_call(w, a, "mremap, shrinking");
		b->base = NULL;
		return;
	}
	if (b->nr_pages > keep)
		munmap(b->base + keep * PAGE_BYTES, (b->nr_pages - keep) * PAGE_BYTES);
	b->base = NULL;
	a->base = p;
	a->nr_pages = keep;
}

static void op_grow(struct worker *w, struct area *a)
{
	unsigned int old = a->nr_pages, grown = old * 2;
	char *p;

	if (grown > MAX_PAGES)
		return;
	p = mremap(a->base, old * PAGE_BYTES, grown * PAGE_BYTES, MREMAP_MAYMOVE);
	if (p == MAP_FAILED) {
		report_failed_call(w, a, "mremap, growing");
		return;
	}
	a->base = p;
	a->nr_pages = grown;
	check_zero_and_fill(w, a, old, grown, "growth");
}

static void op_shrink(struct worker *w, struct area *a)
{
	unsigned int keep = a->nr_pages / 2;

	if (keep < MIN_PAGES)
		return;
	if (mremap(a->base, a->nr_pages * PAGE_BYTES, keep * PAGE_BYTES, 0) == MAP_FAILED)
		report_failed_call(w, a, "mremap, shrinking in place");
	else
		a->nr_pages = keep;
}

/* The content moves, the old mapping stays and must be empty. */
static void op_move_and_keep(struct worker *w, struct area *a)
{
	size_t bytes = a->nr_pages * PAGE_BYTES;
	char *old = a->base;
	char *p = mremap(old, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

	if (p == MAP_FAILED) {
		report_failed_call(w, a, "mremap with MREMAP_DONTUNMAP");
		return;
	}
	a->base = p;
	for (unsigned int i = 0; i < a->nr_pages; i++)
		if (!page_is_zero(old + i * PAGE_BYTES))
			report_dirty(w, "MREMAP_DONTUNMAP", old + i * PAGE_BYTES);
	totals->checks += a->nr_pages;
	munmap(old, bytes);
}

static void op_protect(struct worker *w, struct area *a)
{
	unsigned int from, to;
	char *p;

	random_range(w, a, &from, &to);
	p = a->base + from * PAGE_BYTES;
	if (mprotect(p, (to - from) * PAGE_BYTES, random_next(&w->rng) % 2 ? PROT_READ : PROT_NONE)) {
		report_failed_call(w, a, "mprotect");
		return;
	}
	if (random_next(&w->rng) % 4 == 0)
		usleep(random_next(&w->rng) % 300);
	if (mprotect(p, (to - from) * PAGE_BYTES, PROT_READ | PROT_WRITE)) {
		report_failed_call(w, a, "mprotect back");
		return;
	}
	for (unsigned int i = from; i < to; i++)
		if (!check_page(w, a, i, "mprotect"))
			write_page(w, a, i);
	totals->checks += to - from;
}

/* The kernel reads an evicted page, and writes into another one. */
static void op_io(struct worker *w, struct area *a)
{
	unsigned int from = random_next(&w->rng) % a->nr_pages;
	unsigned int to = random_next(&w->rng) % a->nr_pages;
	uint64_t tag = tag_of(w, a, from);
	char *target = a->base + to * PAGE_BYTES;

	if (pwrite(w->file, a->base + from * PAGE_BYTES, PAGE_BYTES, 0) != (ssize_t)PAGE_BYTES ||
	    pread(w->file, target, PAGE_BYTES, 0) != (ssize_t)PAGE_BYTES) {
		report_wrong(a, w, from, "system call failed", PAGE_DAMAGED, tag);
		write_page(w, a, to);
		return;
	}
	if (!page_matches(target, tag))
		report_wrong(a, w, to, "read(2) of a page", page_judge(target, tag), tag);
	write_page(w, a, to);
	totals->checks++;
}

static void op_pause(struct worker *w, struct area *a)
{
	usleep(random_next(&w->rng) % 400);
}

static void op_spawn(struct worker *w, struct area *a)
{
	char *argv[] = { (char *)"/bin/true", NULL };
	int status = 0;
	pid_t pid;

	if (random_next(&w->rng) % 16 || posix_spawn(&pid, argv[0], NULL, NULL, argv, environ))
		return;
	totals->spawns++;
	if (waitpid(pid, &status, 0) != pid || status)
		totals->children_died++;
}

/* ---- fork ---- */

/*
 * In the child. `everything`: the fork happened while no worker was in the middle of an
 * operation, so the areas of all workers can be checked, else those of the forking one only.
 */
static void child_check(struct worker *self, bool everything, const char *where)
{
	for (unsigned int k = 0; k < nr_workers; k++) {
		struct worker *w = everything ? workers[k] : self;

		for (unsigned int s = 0; s < SLOTS; s++) {
			struct area *a = &w->area[s];

			for (unsigned int i = 0; a->base && i < a->nr_pages; i++)
				if (!check_page(w, a, i, where))
					write_page(w, a, i);
			if (a->base)
				totals->child_checks += a->nr_pages;
		}
		if (!everything)
			break;
	}
}

static void child_write(struct worker *self, bool everything)
{
	for (unsigned int k = 0; k < nr_workers; k++) {
		struct worker *w = everything ? workers[k] : self;

		for (unsigned int s = 0; s < SLOTS; s++) {
			struct area *a = &w->area[s];

			if (!a->base || random_next(&self->rng) % 2)
				continue;
			/* A new owner for all pages, so that mixing up parent and child shows. */
			a->owner |= CHILD_OWNER;
			a->generation++;
			for (unsigned int i = 0; i < a->nr_pages; i++)
				write_page(w, a, i);
		}
		if (!everything)
			break;
	}
}

static void child_main(struct worker *self, bool everything, bool raw)
{
	int status = 0;
	pid_t pid;

	child_check(self, everything, "in the child");
	child_write(self, everything);
	child_check(self, everything, "in the child, after its writes");
	if (random_next(&self->rng) % 2 == 0) {
		/* After _Fork() a lock of the C library may be held by a thread that is not here. */
		pid = raw ? _Fork() : fork();
		if (pid == 0) {
			child_check(self, everything, "in the grandchild");
			child_write(self, everything);
			child_check(self, everything, "in the grandchild, after its writes");
			_exit(0);
		}
		child_write(self, everything);
		if (pid > 0 && (waitpid(pid, &status, 0) != pid || status))
			totals->children_died++;
		child_check(self, everything, "in the child, after the grandchild");
	}
	_exit(0);
}

static void reap(struct worker *w, bool wait)
{
	for (unsigned int i = 0; i < MAX_CHILDREN; i++) {
		int status;

		if (!w->child[i])
			continue;
		if (waitpid(w->child[i], &status, wait ? 0 : WNOHANG) != w->child[i])
			continue;
		w->child[i] = 0;
		if (status)
			totals->children_died++;
	}
}

static void do_fork(struct worker *w, bool raw)
{
	bool everything = random_next(&w->rng) % 2;
	unsigned int place = 0;
	pid_t pid;

	/* A fork is dear and its child checks everything: one in sixteen draws. */
	if (random_next(&w->rng) % 16)
		return;
	reap(w, false);
	while (place < MAX_CHILDREN && w->child[place])
		place++;
	if (place == MAX_CHILDREN) {
		reap(w, true);
		place = 0;
	}
	if (everything)
		pthread_rwlock_wrlock(&fork_lock);
	else
		pthread_rwlock_rdlock(&fork_lock);
	pid = raw ? _Fork() : fork();
	if (pid == 0)
		child_main(w, everything, raw);
	pthread_rwlock_unlock(&fork_lock);
	if (pid < 0)
		return;
	w->child[place] = pid;
	totals->forks++;
}

static const struct {
	char letter;
	void (*run)(struct worker *w, struct area *a);
	const char *what;
} operation_table[] = {
	{ 'u', op_unmap, "munmap" },
	{ 'n', op_new_at_same_address, "munmap, then mmap at the same address" },
	{ 'o', op_map_over, "mmap MAP_FIXED over all or a part" },
	{ 'd', op_dontneed, "MADV_DONTNEED" },
	{ 'm', op_move, "mremap to a free address" },
	{ 'w', op_swap, "two areas change places" },
	{ 'v', op_move_over, "mremap over another area" },
	{ 'h', op_shrink_over, "mremap of the first half over another area" },
	{ 'g', op_grow, "mremap: grow" },
	{ 's', op_shrink, "mremap: shrink" },
	{ 'k', op_move_and_keep, "mremap MREMAP_DONTUNMAP" },
	{ 'p', op_protect, "mprotect and back" },
	{ 'e', op_free, "MADV_FREE" },
	{ 'i', op_io, "read(2) and write(2)" },
	{ 'y', op_pause, "sleep a little" },
	{ 'x', op_spawn, "start and await a program" },
	{ 'f', NULL, "fork" },
	{ 'F', NULL, "_Fork, which runs no handlers" },
};
#define NR_OPERATIONS (sizeof(operation_table) / sizeof(operation_table[0]))

static void run_operation(struct worker *w, struct area *a, char letter)
{
	totals->by_operation[(unsigned char)letter]++;
	if (letter == 'f' || letter == 'F') {
		do_fork(w, letter == 'F');
		return;
	}
	for (unsigned int i = 0; i < NR_OPERATIONS; i++) {
		if (operation_table[i].letter != letter)
			continue;
		pthread_rwlock_rdlock(&fork_lock);
		operation_table[i].run(w, a);
		pthread_rwlock_unlock(&fork_lock);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	size_t nr_letters = strlen(operations);

	while (!totals->stop) {
		struct area *a = &w->area[random_next(&w->rng) % SLOTS];
		char letter = operations[random_next(&w->rng) % nr_letters];

		totals->doing[w->id] = a->base ? 'V' : 'C';
		pthread_rwlock_rdlock(&fork_lock);
		if (!a->base)
			create(w, a);
		else
			visit(w, a, "visit");
		pthread_rwlock_unlock(&fork_lock);
		if (a->base) {
			totals->doing[w->id] = letter;
			run_operation(w, a, letter);
		}
		reap(w, false);
		totals->operations++;
		totals->progress[w->id]++;
	}
	totals->doing[w->id] = 'W';
	reap(w, true);
	/* The last word: what is still there must be right. Another worker may still fork. */
	pthread_rwlock_rdlock(&fork_lock);
	for (unsigned int s = 0; s < SLOTS; s++)
		if (w->area[s].base)
			visit(w, &w->area[s], "last visit");
	pthread_rwlock_unlock(&fork_lock);
	totals->doing[w->id] = 'E';
	return NULL;
}

/* Waits for the workers with a bound. A fault that is never answered must not look like success. */
static bool watch(unsigned int seconds)
{
	uint64_t seen[MAX_WORKERS] = { 0 }, since[MAX_WORKERS];
	uint64_t start = clock_ns();

	for (unsigned int i = 0; i < nr_workers; i++)
		since[i] = start;
	for (;;) {
		uint64_t now;
		unsigned int ended = 0;

		usleep(50000);
		now = clock_ns();
		if (now - start > seconds * 1000000000ull)
			totals->stop = 1;
		for (unsigned int i = 0; i < nr_workers; i++) {
			char doing = totals->doing[i];

			if (doing == 'E') {
				ended++;
				continue;
			}
			if (totals->progress[i] != seen[i]) {
				seen[i] = totals->progress[i];
				since[i] = now;
			}
			if (now - since[i] > STALL_NS) {
				fprintf(stderr, "stuck: worker %u made no step for %llu s in '%c'\n",
					i, STALL_NS / 1000000000ull, doing);
				return false;
			}
		}
		if (ended == nr_workers)
			return true;
	}
}

static void start_worker(unsigned int id, uint64_t seed)
{
	struct worker *w = unmanaged_alloc(sizeof(*w), false);
	pthread_attr_t attr;
	pthread_t thread;

	w->id = id;
	w->rng = mix64(seed * MAX_WORKERS + id) | 1;
	w->file = memfd_create("stress", MFD_CLOEXEC);
	workers[id] = w;
	if (w->file < 0)
		abort();
	pthread_attr_init(&attr);
	/* The first worker's stack is large enough to be managed, the others' are not. */
	if (id)
		pthread_attr_setstacksize(&attr, 96 * 1024);
	if (pthread_create(&thread, &attr, worker_main, w))
		abort();
	pthread_detach(thread);
	pthread_attr_destroy(&attr);
}

/* A page that vanished can also show as a crash: say where, in which operation. */
static void on_crash(int sig, siginfo_t *info, void *context)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "crash: signal %d at %p, workers in:", sig, info->si_addr);

	for (unsigned int i = 0; i < nr_workers; i++)
		n += snprintf(line + n, sizeof(line) - n, " %c", totals->doing[i]);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		_exit(5);
	_exit(4);
}

static int usage(void)
{
	fprintf(stderr, "usage: stress [-s SECONDS] [-t THREADS] [-S SEED] [-o OPERATIONS] [-u]\n"
			"  -u  stop at the first wrong page\n  -o  letters, each drawn alike:\n");
	for (unsigned int i = 0; i < NR_OPERATIONS; i++)
		fprintf(stderr, "      %c  %s\n", operation_table[i].letter, operation_table[i].what);
	return 2;
}

int main(int argc, char **argv)
{
	struct sigaction crash = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO };
	unsigned int seconds = 10;
	pthread_rwlockattr_t attr;
	uint64_t seed = 1;
	bool all_ended;
	int c;

	while ((c = getopt(argc, argv, "s:t:S:o:u")) != -1) {
		switch (c) {
		case 's':
			seconds = atoi(optarg);
			break;
		case 't':
			nr_workers = atoi(optarg);
			break;
		case 'S':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			operations = optarg;
			break;
		case 'u':
			stop_at_wrong = true;
			break;
		default:
			return usage();
		}
	}
	for (const char *p = operations; *p; p++) {
		unsigned int i = 0;

		while (i < NR_OPERATIONS && operation_table[i].letter != *p)
			i++;
		if (i == NR_OPERATIONS)
			return usage();
	}
	if (!seconds || !nr_workers || nr_workers > MAX_WORKERS || !*operations)
		return usage();

	totals = unmanaged_alloc(sizeof(*totals), true);
	sigaction(SIGSEGV, &crash, NULL);
	sigaction(SIGBUS, &crash, NULL);
	/* Or a worker that forks would wait for ever while the others take turns. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&fork_lock, &attr);
	for (unsigned int i = 0; i < nr_workers; i++)
		workers[i] = NULL;
	/* No worker may fork before all exist: a child walks the whole list. */
	pthread_rwlock_wrlock(&fork_lock);
	for (unsigned int i = 0; i < nr_workers; i++)
		start_worker(i, seed);
	pthread_rwlock_unlock(&fork_lock);
	all_ended = watch(seconds);

	printf("stress: operations=%llu checks=%llu wrong=%llu zero=%llu stale=%llu other=%llu "
	       "dirty=%llu failed_calls=%llu forks=%llu child_checks=%llu children_died=%llu spawns=%llu "
	       "max_visit_us=%llu stuck=%d\n",
	       (unsigned long long)totals->operations,
	       (unsigned long long)(totals->checks + totals->child_checks),
	       (unsigned long long)wrong_pages(), (unsigned long long)totals->zero,
	       (unsigned long long)totals->stale, (unsigned long long)totals->other,
	       (unsigned long long)totals->dirty, (unsigned long long)totals->failed_calls,
	       (unsigned long long)totals->forks,
	       (unsigned long long)totals->child_checks, (unsigned long long)totals->children_died,
	       (unsigned long long)totals->spawns,
	       (unsigned long long)(totals->max_visit_ns / 1000), !all_ended);
	fflush(stdout);
	if (!all_ended)
		_exit(3);
	/* Failed calls are for the caller to judge: a few are a stated limit. */
	return wrong_pages() || totals->children_died || !totals->checks;
}
