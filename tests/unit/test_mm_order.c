/* SPDX-License-Identifier: MIT */
/*
 * Every way in which a few operations that overlap can be read: all sequences of two and three
 * operations of as many threads on four blocks of pages, their events posted in every order of the
 * threads. All pages are out when it begins, so that a word that is left behind shows.
 */
#include "fake_space.h"

#define BLOCKS 4u
#define BLOCK_PAGES 2u
/* A hole between blocks: beside a mapped neighbour, which may grow, less can be known. */
#define BLOCK_STRIDE 3u
#define FIRST 509u /* the second block begins a leaf */

struct op {
	enum fake_op op;
	unsigned int from, to;
};

static struct op ops[64];
static unsigned int nr_ops;

/* How the events of a case are posted: threads in this order. */
struct posting {
	unsigned int thread[3];
	bool one_by_one; /* all events of the first thread, then of the second; else in turns */
};

static void list_ops(bool with_fork)
{
	nr_ops = 0;
	for (unsigned int i = 0; i < BLOCKS; i++) {
		ops[nr_ops++] = (struct op){OP_MUNMAP, i, 0};
		ops[nr_ops++] = (struct op){OP_DONTNEED, i, 0};
		for (unsigned int k = 0; k < BLOCKS; k++)
			if (k != i)
				ops[nr_ops++] = (struct op){OP_MREMAP, i, k};
	}
	if (with_fork)
		ops[nr_ops++] = (struct op){OP_FORK, 0, 0};
}

static unsigned int block_page(unsigned int i)
{
	return FIRST + i * BLOCK_STRIDE;
}

static bool begin_op(struct fake *f, unsigned int t, const struct op *o, struct fake **child)
{
	unsigned int page = block_page(o->from);

	switch (o->op) {
	case OP_MUNMAP:
		return f->page[page].vma && fake_munmap(f, t, page, BLOCK_PAGES);
	case OP_DONTNEED:
		return fake_madvise(f, t, page, BLOCK_PAGES, false);
	case OP_FORK:
		if (*child)
			return false;
		*child = fake_fork(f, t);
		return *child;
	default:
		return fake_mremap(f, t, page, BLOCK_PAGES, block_page(o->to), BLOCK_PAGES);
	}
}

static void post_next(struct world *w, struct fake *f, bool engine_too)
{
	const struct posting *p = w->meanwhile_arg;

	for (unsigned int i = 0; i < 3; i++)
		if (f->thread[i].state == T_READ)
			(void)fake_run(f, i);
	for (unsigned int i = 0; i < 3; i++) {
		struct fake_thread *th = &f->thread[p->thread[i]];

		if (th->state == T_POST)
			(void)fake_run(f, p->thread[i]);
		if (p->one_by_one && (th->state == T_POSTED || th->state == T_POST))
			return;
	}
}

static void set_up(struct fake *f)
{
	for (unsigned int i = 0; i < BLOCKS; i++)
		assert_true(fake_mmap(f, 0, block_page(i), BLOCK_PAGES, AGENT_MODE_RW));
	while (fake_register(f))
		;
	for (unsigned int i = 0; i < BLOCKS; i++)
		fake_write_range(f, block_page(i), BLOCK_PAGES);
	assert_int_equal(fake_evict_all(f), BLOCKS * BLOCK_PAGES);
}

static void visit_and_unmap(struct fake *f)
{
	for (unsigned int i = 0; i < BLOCKS; i++) {
		assert_true(fake_access(f, 3, block_page(i), BLOCK_PAGES, false, 0));
		world_settle(f->w);
	}
	assert_true(fake_munmap(f, 3, FIRST, BLOCKS * BLOCK_STRIDE));
	world_settle(f->w);
}

static char *case_to_text(char *b, const unsigned int *seq, unsigned int n, struct posting *p)
{
	static const char *names[] = {[OP_MUNMAP] = "munmap", [OP_DONTNEED] = "dontneed",
				      [OP_MREMAP] = "mremap", [OP_FORK] = "fork"};
	int at = 0;

	for (unsigned int i = 0; i < n; i++)
		at += sprintf(b + at, "%s %u-%u; ", names[ops[seq[i]].op], ops[seq[i]].from,
			      ops[seq[i]].to);
	sprintf(b + at, "posted %u%u%u%s", p->thread[0], p->thread[1], p->thread[2],
		p->one_by_one ? " one by one" : "");
	return b;
}

static const char *trace;

/* False: the sequence is not possible. */
static bool run_case(struct fake *f, const unsigned int *seq, unsigned int n, struct posting *p)
{
	struct world *w = f->w;
	struct fake *child = NULL;
	unsigned int done;
	char text[200];

	w->what = case_to_text(text, seq, n, p);
	w->trace = trace && strstr(text, trace);
	set_up(f);
	for (done = 0; done < n && begin_op(f, done, &ops[seq[done]], &child); done++)
		;
	if (done == n) {
		w->meanwhile = post_next;
		w->meanwhile_arg = p;
		post_next(w, f, false);
		space_service(f->s);
		w->meanwhile = NULL;
	}
	world_settle(w);
	if (child) {
		if (done == n)
			visit_and_unmap(child);
		child->dead = true;
		space_kill(child->s);
	}
	visit_and_unmap(f);
	assert_int_equal(world_nr_entries(w), 0);
	return done == n;
}

static void next_posting(struct posting *p, unsigned int number)
{
	static const unsigned int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
						  {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	memcpy(p->thread, orders[number % 6], sizeof(p->thread));
	p->one_by_one = number >= 6;
}

static struct world *run_all(struct world *w, struct fake **f, const unsigned int *seq,
			     unsigned int n)
{
	for (unsigned int k = 0; k < 12; k++) {
		struct posting p;

		/* The spaces of children are freed a little later. */
		if (w && w->nr_fakes > MAX_FAKES - 4) {
			world_destroy(w);
			w = NULL;
		}
		if (!w) {
			w = world_on_ram(1);
			*f = fake_create(w);
		}
		next_posting(&p, k);
		if (n == 2 && p.thread[2] != 2)
			continue;
		if (!run_case(*f, seq, n, &p))
			break;
	}
	return w;
}

static void test_two_operations_in_every_order(void **state)
{
	struct world *w = NULL;
	struct fake *f;

	(void)state;
	list_ops(true);
	for (unsigned int i = 0; i < nr_ops * nr_ops; i++)
		w = run_all(w, &f, (unsigned int[]){i / nr_ops, i % nr_ops}, 2);
	if (w)
		world_destroy(w);
}

static unsigned int every = 2;

static void test_three_operations_in_every_order(void **state)
{
	struct world *w = NULL;
	struct fake *f;

	(void)state;
	list_ops(false);
	for (unsigned int i = 0; i < nr_ops * nr_ops * nr_ops; i += every)
		w = run_all(w, &f,
			    (unsigned int[]){i / nr_ops / nr_ops, i / nr_ops % nr_ops, i % nr_ops},
			    3);
	if (w)
		world_destroy(w);
}

/*
 * Two remaps of which one brings something to where the other takes from, both read on the other
 * side of a fork that they overlapped: all that the child's mappings show may come from either side
 * (docs/fault-states.md, "Where it is not exact"). The engine keeps to the order of reading.
 */
static bool undecidable(const struct op *a, const struct op *b)
{
	return a->op == OP_MREMAP && b->op == OP_MREMAP && (a->from == b->to || a->to == b->from);
}

static void test_fork_among_three_operations(void **state)
{
	struct world *w = NULL;
	struct fake *f;

	(void)state;
	list_ops(true);
	for (unsigned int i = 0; i < 3 * nr_ops * nr_ops; i += every * 4) {
		unsigned int at = i % 3, a = i / 3 / nr_ops, b = i / 3 % nr_ops;
		unsigned int seq[3] = {a, a, b};

		if (undecidable(&ops[a], &ops[b]))
			continue;
		seq[at] = nr_ops - 1;
		if (at == 2)
			seq[1] = b;
		w = run_all(w, &f, seq, 3);
	}
	if (w)
		world_destroy(w);
}

/*
 * usage: test_mm_order [EVERY [CASE]]: each EVERYth of the sequences of three; traces those cases
 * whose text, as printed with a wrong page, has CASE in it.
 */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_operations_in_every_order),
		cmocka_unit_test(test_three_operations_in_every_order),
		cmocka_unit_test(test_fork_among_three_operations),
	};

	if (argc > 1)
		every = (unsigned int)strtoul(argv[1], NULL, 0);
	trace = argc > 2 ? argv[2] : NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
