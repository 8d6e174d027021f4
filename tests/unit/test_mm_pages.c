/* SPDX-License-Identifier: MIT */
/*
 * One page and one folio on its way out and back: src/mm/fault.c and evict.c, and what events do
 * in the middle of it.
 */
#include "fake_space.h"

static uint64_t counted(enum vmstat_item i)
{
	return vmstat_get(i);
}

static void test_round_trip_of_each_order(void **state)
{
	(void)state;
	for (int order = 0; order <= MAX_ORDER; order++) {
		struct world *w = world_on_ram(order);
		struct fake *f = fake_create(w);

		fake_map(f, 0, 1024);
		for (int round = 0; round < 2; round++) {
			fake_write_range(f, 0, 1024);
			assert_int_equal(fake_evict_all(f), 1024);
			assert_int_equal(f->s->table.nr_swapped, 1024);
			world_write_all(w);
			fake_read_range(f, 0, 1024);
			assert_int_equal(f->s->table.nr_swapped, 0);
		}
		world_check(w);
		world_destroy(w);
	}
}

static void test_touch_of_a_cached_folio_reads_no_device(void **state)
{
	struct world *w = world_on_ram(2);
	struct fake *f = fake_create(w);
	uint64_t device = counted(VMSTAT_pswpin), cached = counted(VMSTAT_swpin_cached);

	(void)state;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	fake_evict_all(f);
	fake_read(f, 1);
	assert_int_equal(counted(VMSTAT_pswpin), device);
	assert_int_equal(counted(VMSTAT_swpin_cached), cached + 4);
	world_destroy(w);
}

static void test_unchanged_folio_keeps_its_copy(void **state)
{
	struct world *w = world_on_ram(2);
	struct fake *f = fake_create(w);
	uint64_t unchanged = counted(VMSTAT_swpout_unchanged), out;
	swp_t e;

	(void)state;
	fake_map(f, 0, 4);
	for (unsigned int i = 0; i < 4; i++)
		fake_write(f, i, fake_new_token(w, 2));
	fake_evict_all(f);
	world_write_all(w);
	e = pw_entry(fake_word(f, 0));
	fake_read(f, 0);
	assert_int_equal(pw_state(fake_word(f, 0)), PW_RESIDENT);
	assert_int_equal(pw_entry(fake_word(f, 0)), e);
	out = counted(VMSTAT_pswpout);
	fake_evict_all(f);
	world_write_all(w);
	assert_int_equal(counted(VMSTAT_swpout_unchanged), unchanged + 4);
	assert_int_equal(counted(VMSTAT_pswpout), out);
	assert_int_equal(pw_entry(fake_word(f, 3)), e);
	/* Changed in one page: a new copy. */
	fake_write(f, 2, fake_new_token(w, 2));
	fake_evict_all(f);
	assert_int_not_equal(pw_entry(fake_word(f, 3)), e);
	fake_read_range(f, 0, 4);
	world_destroy(w);
}

static struct fake *fork_child(struct world *w, struct fake *f)
{
	struct fake *c = fake_fork(f, 0);

	world_settle(w);
	return c;
}

static void test_child_may_use_what_its_parent_may_when_it_forks(void **state)
{
	struct world *w = world_on_ram(2);
	struct fake *f = fake_create(w), *first, *second;

	(void)state;
	fake_map(f, 0, 4);
	first = fork_child(w, f);
	atomic_store(&f->s->swap_class, 3);
	second = fork_child(w, f);
	atomic_store(&f->s->swap_class, 5);
	assert_int_equal(first->s->swap_class, 0);
	assert_int_equal(second->s->swap_class, 3);
	assert_int_equal(f->s->swap_class, 5);
	world_destroy(w);
}

/* Swap wants the slots: what only resident pages name goes, at any moment, and nothing is lost. */
static void test_copy_that_was_given_up_is_written_anew(void **state)
{
	struct world *w = world_on_ram(2);
	struct fake *f = fake_create(w), *child;
	uint64_t unchanged = counted(VMSTAT_swpout_unchanged);
	swp_t e;

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	fake_evict_all(f);
	world_write_all(w);
	e = pw_entry(fake_word(f, 0));
	assert_false(swap_reclaim_kept(w->swap, e, 0));
	fake_read_range(f, 0, 8);
	assert_int_equal(pw_entry(fake_word(f, 1)), e);
	world_check(w);
	/* A child that has the same resident pages names it too; of what was given up it does not. */
	child = fork_child(w, f);
	assert_int_equal(pw_entry(fake_word(child, 1)), e);
	world_check(w);
	assert_true(swap_reclaim_kept(w->swap, e, 0));
	assert_int_equal(pw_entry(fake_word(f, 1)), e);
	world_check(w);
	(void)fork_child(w, child);
	world_check(w);
	fake_evict_all(f);
	fake_read_range(f, 0, 8);
	fake_read_range(child, 0, 8);
	world_write_all(w);
	world_check(w);
	assert_int_equal(counted(VMSTAT_swpout_unchanged), unchanged + 4);
	world_destroy(w);
}

static void test_fill_leaves_guard_markers_alone(void **state)
{
	struct world *w = world_on_ram(3);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	fake_evict_all(f);
	fake_guard(f, 2, 1);
	fake_guard(f, 6, 2);
	fake_read(f, 4);
	assert_true(f->page[2].guard && f->page[6].guard && f->page[7].guard);
	assert_int_equal(fake_word(f, 6), 0);
	fake_read(f, 0);
	fake_read(f, 1);
	assert_true(f->page[2].guard);
	fake_read(f, 3);
	world_destroy(w);
}

/* Nobody has touched what is read ahead, so its first page may be guarded, too. */
static void test_reading_ahead_leaves_guard_markers_alone(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);
	uint64_t before = counted(VMSTAT_swap_ra);

	(void)state;
	fake_map(f, 0, 64);
	fake_write_range(f, 0, 64);
	fake_evict_all(f);
	world_write_all(w);
	for (unsigned int page = 4; page < 64; page += 5)
		fake_guard(f, page, 1);
	for (unsigned int page = 0; page < 64; page++)
		if (page % 5 != 4)
			fake_read(f, page);
	assert_true(counted(VMSTAT_swap_ra) > before);
	for (unsigned int page = 4; page < 64; page += 5)
		assert_true(f->page[page].guard);
	world_check(w);
	world_destroy(w);
}

static struct dev *faulty_ram(struct fault_config cfg)
{
	int err;

	return dev_fault_create(dev_ram_create(1u << 12, &err), &cfg, &err);
}

/* The pages of the folio that is lost give SIGBUS; those beside it do not. */
static void check_poison(struct fault_config cfg)
{
	struct world *w = world_create(2, faulty_ram(cfg), GIB(1));
	struct fake *f = fake_create(w);

	fake_map(f, 0, 12);
	for (unsigned int i = 0; i < 12; i++)
		fake_write(f, i, fake_new_token(w, 2));
	fake_evict_all(f);
	world_write_all(w);
	/* All folios are bad. A page of the second is written over before it is touched. */
	for (unsigned int i = 4; i < 8; i++)
		f->page[i].lost = true;
	assert_true(fake_read_is_sigbus(f, 5));
	for (unsigned int i = 0; i < 12; i++) {
		bool mine = i >= 4 && i < 8;

		assert_int_equal(f->page[i].poisoned, mine);
		assert_int_equal(pw_state(fake_word(f, i)), mine ? PW_POISONED : PW_OUT);
	}
	assert_true(fake_read_is_sigbus(f, 7));
	assert_int_equal(f->nr_poisoned, 4);
	/* Memory that is given up and taken anew is as good as new. */
	fake_map(f, 4, 4);
	assert_int_equal(fake_read(f, 5), 0);
	world_destroy(w);
}

static void test_device_error_poisons_that_folio_only(void **state)
{
	(void)state;
	check_poison((struct fault_config){.seed = 1, .read_eio = 1});
}

static void test_corrupt_copy_poisons_that_folio_only(void **state)
{
	(void)state;
	check_poison((struct fault_config){.seed = 1, .corrupt_read = 1});
}

/* ---- refusals of MOVE ---- */

static void test_move_refuses_a_folio_over_two_mappings(void **state)
{
	struct world *w = world_on_ram(-1);
	struct fake *f = fake_create(w);
	uint64_t refused = counted(VMSTAT_pgmove_unevictable);

	(void)state;
	fake_map(f, 0, 24);
	fake_map(f, 24, 40);
	fake_write_range(f, 0, 64);
	/* Smaller and smaller folios are tried, until none crosses the border. */
	while (f->s->table.nr_resident) {
		assert_true(space_evict(f->s, STAGING_PAGES, 0) >= 0);
		world_write_all(w);
	}
	assert_true(counted(VMSTAT_pgmove_unevictable) > refused);
	fake_read_range(f, 0, 64);
	world_destroy(w);
}

static void test_move_learns_the_mode_of_a_mapping(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	assert_true(fake_mmap(f, 0, 0, 8, AGENT_MODE_RWX));
	fake_register(f);
	fake_write_range(f, 0, 8);
	assert_int_equal(space_evict(f->s, 8, 0), 0);
	assert_int_equal(f->s->table.nr_resident, 8);
	/* Each refusal turns the mode over: an even number of them comes to nothing. */
	for (int i = 0; i < 8 && f->s->table.nr_resident; i++)
		(void)space_evict(f->s, 1, 0);
	fake_read_range(f, 0, 8);
	world_destroy(w);
}

static void test_pinned_page_stays(void **state)
{
	struct world *w = world_on_ram(2);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	f->page[2].pinned = true;
	assert_int_equal(space_evict(f->s, 4, 0), 2); /* a part of the folio */
	assert_int_equal(pw_state(fake_word(f, 1)), PW_OUT);
	assert_int_equal(pw_state(fake_word(f, 2)), PW_RESIDENT);
	assert_true(f->page[2].present && f->page[3].present);
	fake_read_range(f, 0, 4);
	world_destroy(w);
}

static void test_once_forked_page_leaves(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w), *c;

	(void)state;
	fake_map(f, 0, 4);
	for (unsigned int i = 0; i < 4; i++)
		fake_write(f, i, fake_new_token(w, 2));
	c = fake_fork(f, 0);
	world_settle(w);
	mm_mutants.no_populate = true;
	assert_int_equal(fake_evict_all(f), 0);
	mm_mutants.no_populate = false;
	assert_int_equal(fake_evict_all(f), 4);
	assert_int_equal(fake_evict_all(c), 4);
	/* What parent and child have alike is stored once. */
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(pw_entry(fake_word(f, i)), pw_entry(fake_word(c, i)));
	assert_int_equal(world_nr_entries(w), 4);
	fake_write(c, 1, fake_new_token(w, 2));
	fake_read_range(f, 0, 4);
	fake_read_range(c, 0, 4);
	world_destroy(w);
}

static void test_gate_refuses_move_and_nothing_changes(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	assert_true(fake_munmap(f, 0, 6, 2));
	assert_int_equal(space_evict(f->s, 8, 0), 0);
	assert_int_equal(f->s->table.nr_swapped, 0);
	world_settle(w);
	assert_int_equal(fake_evict_all(f), 6);
	fake_read_range(f, 0, 6);
	world_destroy(w);
}

static void test_page_that_the_kernel_took_becomes_none(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	assert_true(fake_madvise(f, 0, 0, 4, true));
	world_settle(w);
	assert_int_equal(f->s->table.nr_resident, 0);
	assert_int_equal(fake_evict_all(f), 0);
	fake_adopt(f);
	assert_int_equal(f->s->table.nr_resident, 4);
	f->page[1].present = f->page[1].lazy = false;
	assert_int_equal(fake_evict_all(f), 3);
	assert_int_equal(fake_word(f, 1), 0);
	assert_int_equal(fake_read(f, 1), 0);
	fake_read_range(f, 0, 4);
	world_destroy(w);
}

static void test_nothing_is_adopted_before_a_second_or_inside_madvise(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	assert_true(fake_madvise(f, 0, 0, 4, true));
	world_settle(w);
	us_mutex_lock(&f->s->reader_lock);
	space_adopt(f->s);
	us_mutex_unlock(&f->s->reader_lock);
	assert_int_equal(f->s->table.nr_resident, 0);
	f->thread[1].state = T_EMPTY;
	f->thread[1].op = OP_DONTNEED;
	fake_adopt(f);
	assert_int_equal(f->s->table.nr_resident, 0);
	f->thread[1].state = T_IDLE;
	fake_adopt(f);
	assert_int_equal(f->s->table.nr_resident, 4);
	world_destroy(w);
}

/* A child has the pages that its parent has not adopted yet, and nobody else will tell of them. */
static void test_child_adopts_what_its_parent_was_to_adopt(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w), *c;

	(void)state;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	assert_true(fake_madvise(f, 0, 0, 4, true));
	world_settle(w);
	c = fake_fork(f, 0);
	world_settle(w);
	assert_int_equal(c->s->table.nr_resident, 0);
	fake_adopt(c);
	assert_int_equal(c->s->table.nr_resident, 4);
	assert_int_equal(fake_evict_all(c), 4);
	fake_read_range(c, 0, 4);
	fake_read_range(f, 0, 4);
	world_destroy(w);
}

static void adopt_now(struct fake *f)
{
	us_mutex_lock(&f->s->reader_lock);
	space_adopt(f->s);
	us_mutex_unlock(&f->s->reader_lock);
}

/* What could not be judged at registration, since the gate had closed, is taken once it is open. */
static void test_range_noted_for_soon_waits_for_the_gate_only(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	us_mutex_lock(&f->s->lock);
	space_drop_range(f->s, fake_va(0), fake_va(8));
	space_adopt_soon(f->s, fake_va(0), fake_va(8));
	us_mutex_unlock(&f->s->lock);
	assert_true(fake_munmap(f, 0, 6, 2));
	adopt_now(f);
	assert_int_equal(f->s->table.nr_resident, 0);
	world_settle(w);
	adopt_now(f);
	assert_int_equal(f->s->table.nr_resident, 6);
	assert_int_equal(f->s->nr_adopt, 0);
	assert_int_equal(fake_evict_all(f), 6);
	fake_read_range(f, 0, 6);
	world_destroy(w);
}

/* More ranges than can be noted: merged, none is forgotten, and one that waits is not hurried. */
static void test_too_many_ranges_are_merged(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);
	unsigned int nr = MAX_ADOPT + 8;

	(void)state;
	fake_map(f, 0, 2 * nr);
	fake_write_range(f, 0, 2 * nr);
	us_mutex_lock(&f->s->lock);
	space_drop_range(f->s, fake_va(0), fake_va(2 * nr));
	for (unsigned int i = 0; i < nr; i++) {
		if (i == nr - 1)
			space_adopt_later(f->s, fake_va(2 * i), fake_va(2 * i + 1));
		else
			space_adopt_soon(f->s, fake_va(2 * i), fake_va(2 * i + 1));
	}
	assert_int_equal(f->s->nr_adopt, MAX_ADOPT);
	us_mutex_unlock(&f->s->lock);
	adopt_now(f);
	assert_int_equal(pw_state(fake_word(f, 0)), PW_RESIDENT);
	assert_int_equal(pw_state(fake_word(f, 2 * (nr - 1))), PW_NONE);
	fake_adopt(f);
	assert_int_equal(f->s->nr_adopt, 0);
	for (unsigned int i = 0; i < nr; i++)
		assert_int_equal(pw_state(fake_word(f, 2 * i)), PW_RESIDENT);
	fake_read_range(f, 0, 2 * nr);
	world_destroy(w);
}

/* ---- parts of a folio ---- */

static void test_dontneed_of_one_page_leaves_its_neighbours(void **state)
{
	struct world *w = world_on_ram(3);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	fake_evict_all(f);
	assert_true(fake_madvise(f, 0, 3, 1, false));
	world_settle(w);
	assert_int_equal(fake_word(f, 3), 0);
	assert_int_equal(f->s->table.nr_swapped, 7);
	assert_int_equal(fake_read(f, 3), 0);
	fake_read_range(f, 0, 8);
	world_destroy(w);
}

static void test_part_of_a_folio_moves_and_each_part_comes_back(void **state)
{
	struct world *w = world_on_ram(3);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	fake_evict_all(f);
	assert_true(fake_mremap(f, 0, 2, 3, 1021, 3));
	world_settle(w);
	assert_int_equal(f->s->table.nr_swapped, 8);
	fake_read_range(f, 1021, 3);
	fake_read_range(f, 0, 2);
	fake_read_range(f, 5, 3);
	world_destroy(w);
}

/* ---- in the middle of a batch ---- */

struct in_batch {
	unsigned int calls, when; /* at which call of the hook it happens */
	void (*act)(struct fake *f);
	struct fake *child;
};

static void at_one_moment(struct world *w, struct fake *f, bool engine_too)
{
	struct in_batch *b = w->meanwhile_arg;

	if (!engine_too || b->calls++ != b->when)
		return;
	w->meanwhile = NULL;
	b->act(f);
	world_settle(w);
	w->meanwhile = at_one_moment;
}

static void act_unmap(struct fake *f)
{
	assert_true(fake_munmap(f, 0, 2, 4));
}

static void act_remap(struct fake *f)
{
	assert_true(fake_mremap(f, 0, 2, 4, 100, 4));
}

static void act_remap_away_and_back(struct fake *f)
{
	assert_true(fake_mremap(f, 0, 2, 4, 100, 4));
	world_settle(f->w);
	assert_true(fake_mremap(f, 0, 100, 4, 2, 4));
}

static void act_dontneed(struct fake *f)
{
	assert_true(fake_madvise(f, 0, 3, 2, false));
}

static void act_fork(struct fake *f)
{
	struct in_batch *b = f->w->meanwhile_arg;
	struct fake *grandchild;

	b->child = fake_fork(f, 0);
	assert_non_null(b->child);
	world_settle(f->w);
	/* The entries are still being filled. The child's own child, and changes on both sides. */
	grandchild = fake_fork(b->child, 0);
	assert_non_null(grandchild);
	assert_true(fake_mremap(b->child, 1, 0, 3, 200, 3));
	assert_true(fake_munmap(f, 1, 7, 1));
}

static void act_write(struct fake *f)
{
	assert_true(fake_access(f, 0, 1, 6, true, 0));
}

/* Eight pages as folios of two; the act comes before each MOVE, and after the last. */
static void test_change_at_every_moment_of_a_batch(void **state)
{
	static void (*const acts[])(struct fake *f) = {
		act_unmap, act_remap, act_remap_away_and_back, act_dontneed, act_fork, act_write};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(acts) * 6; i++) {
		struct world *w = world_on_ram(1);
		struct fake *f = fake_create(w);
		struct in_batch b = {.when = i % 6, .act = acts[i / 6]};

		fake_map(f, 0, 8);
		fake_write_range(f, 0, 8);
		w->meanwhile_arg = &b;
		w->meanwhile = at_one_moment;
		assert_true(space_evict(f->s, 8, 0) >= 0);
		w->meanwhile = NULL;
		assert_true(b.calls > b.when);
		world_check(w);
		for (int k = 0; k < w->nr_fakes; k++)
			if (w->fake[k])
				assert_true(fake_access(w->fake[k], 0, 0, 256, false, 0));
		world_settle(w);
		world_destroy(w);
	}
}

/* ---- a rule left out shows ---- */

static void begin_dontneed_and_read_it(struct fake *f)
{
	assert_true(fake_madvise(f, 0, 0, 4, false));
	assert_true(fake_run(f, 0));
	space_service(f->s);
	assert_int_equal(f->thread[0].state, T_EMPTY);
}

/* Between the read of a remove and its effect: nothing that is present then may be evicted. */
static unsigned int wrong_after_early_adoption(bool mutant)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);
	unsigned int wrong;

	w->expect_wrong = true;
	fake_map(f, 0, 4);
	fake_write_range(f, 0, 4);
	begin_dontneed_and_read_it(f);
	mm_mutants.no_filled_only = mutant;
	fake_adopt(f);
	fake_evict_all(f);
	mm_mutants.no_filled_only = false;
	world_settle(w);
	fake_read_range(f, 0, 4);
	wrong = w->wrong;
	world_destroy(w);
	return wrong;
}

static void test_without_filled_only_a_wrong_page_shows(void **state)
{
	(void)state;
	assert_int_equal(wrong_after_early_adoption(false), 0);
	assert_int_not_equal(wrong_after_early_adoption(true), 0);
}

static void act_unmap_and_refill(struct fake *f)
{
	assert_true(fake_munmap(f, 0, 0, 64));
	assert_true(fake_mremap(f, 1, 100, 64, 0, 64));
}

/* Another page comes to an address whose MOVE is posted: it must not be taken for the old one. */
static unsigned int wrong_after_refill_in_batch(bool mutant)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);
	struct in_batch b = {.act = act_unmap_and_refill};
	unsigned int wrong;

	w->expect_wrong = true;
	fake_map(f, 0, 64);
	fake_map(f, 100, 64);
	fake_write_range(f, 0, 64);
	fake_write_range(f, 100, 64);
	mm_mutants.no_permit = mutant;
	w->meanwhile_arg = &b;
	w->meanwhile = at_one_moment;
	assert_true(space_evict(f->s, 64, 0) >= 0);
	w->meanwhile = NULL;
	mm_mutants.no_permit = false;
	fake_read_range(f, 0, 64);
	wrong = w->wrong;
	world_destroy(w);
	return wrong;
}

static void test_without_permit_a_wrong_page_shows(void **state)
{
	(void)state;
	assert_int_equal(wrong_after_refill_in_batch(false), 0);
	assert_int_not_equal(wrong_after_refill_in_batch(true), 0);
}

/* ---- faults that wait ---- */

static void test_fault_waits_for_the_gate(void **state)
{
	struct world *w = world_on_ram(0);
	struct fake *f = fake_create(w);

	(void)state;
	fake_map(f, 0, 8);
	fake_write_range(f, 0, 8);
	fake_evict_all(f);
	w->real_threads = true; /* nothing runs on by itself */
	assert_true(fake_access(f, 1, 1, 1, false, 0));
	(void)fake_run(f, 1);
	space_service(f->s);
	assert_int_equal(f->thread[1].state, T_ACCESS);
	assert_true(fake_access(f, 2, 2, 1, false, 0));
	(void)fake_run(f, 2);
	assert_true(fake_munmap(f, 0, 6, 2));
	/* fault_try() alone, as at the end of a load: the gate is closed. */
	assert_int_equal(fault_try(f->s, fake_va(5), false, clock_now_ns(), false), FAULT_DONE);
	assert_int_equal(f->s->nr_deferred, 1);
	w->real_threads = false;
	world_settle(w);
	assert_int_equal(f->s->nr_deferred, 0);
	fake_read_range(f, 0, 6);
	world_destroy(w);
}

static void test_fault_waits_for_room(void **state)
{
	int err;
	struct world *w = world_create(0, dev_ram_create(1u << 12, &err), MIB(64));
	struct fake *f = fake_create(w);
	uint64_t stalls = counted(VMSTAT_allocstall);

	(void)state;
	fake_map(f, 0, 8);
	f->no_helper = true;
	__atomic_store_n(&w->used_bytes, MIB(64), __ATOMIC_RELAXED);
	(void)mm_measured(&w->mm, MIB(64));
	assert_false(mm_room(&w->mm, false));
	assert_true(mm_room(&w->mm, true));
	assert_true(fake_access(f, 0, 3, 1, true, 0));
	(void)fake_run(f, 0);
	space_service(f->s);
	assert_int_equal(f->thread[0].state, T_FAULT_READ);
	assert_int_equal(f->s->nr_deferred, 1);
	assert_true(counted(VMSTAT_allocstall) > stalls);
	__atomic_store_n(&w->used_bytes, 0, __ATOMIC_RELAXED);
	(void)mm_measured(&w->mm, 0);
	world_settle(w);
	fake_read(f, 3);
	world_destroy(w);
}

/* A forked child whose helper does not run yet can wait for room only if that may come about. */
static void test_child_without_helper_does_not_wait_for_room(void **state)
{
	int err;
	struct world *w = world_create(0, dev_ram_create(1u << 12, &err), MIB(64));
	struct fake *f = fake_create(w), *c;

	(void)state;
	fake_map(f, 0, 128);
	fake_write_range(f, 0, 128);
	c = fake_fork(f, 0);
	world_settle(w);
	c->no_helper = true;
	assert_true(fake_madvise(c, 0, 0, 128, false));
	world_settle(w);
	f->no_helper = true;
	__atomic_store_n(&w->used_bytes, MIB(64), __ATOMIC_RELAXED);
	(void)mm_measured(&w->mm, MIB(64));
	for (unsigned int i = 0; i < START_FAULTS; i++) {
		assert_true(fake_access(c, 0, i, 1, true, 0));
		(void)fake_run(c, 0);
		space_service(c->s);
		(void)fake_run(c, 0);
		assert_int_equal(c->thread[0].state, T_IDLE);
	}
	/* The parent has no such right, and the child not for ever. */
	assert_true(fake_access(c, 0, START_FAULTS, 1, true, 0));
	(void)fake_run(c, 0);
	space_service(c->s);
	assert_int_equal(c->s->nr_deferred, 1);
	__atomic_store_n(&w->used_bytes, 0, __ATOMIC_RELAXED);
	(void)mm_measured(&w->mm, 0);
	world_settle(w);
	world_destroy(w);
}

static void test_kill_with_loads_in_flight(void **state)
{
	struct delay_config dc = {.read_ns = 20 * NSEC_PER_MSEC};
	int err;
	struct dev *d = dev_delay_create(dev_ram_create(1u << 12, &err), &dc, &err);
	struct world *w = world_create(1, d, GIB(1));
	struct fake *f = fake_create(w), *c;

	(void)state;
	fake_map(f, 0, 16);
	for (unsigned int i = 0; i < 16; i++)
		fake_write(f, i, fake_new_token(w, 2));
	fake_evict_all(f);
	world_write_all(w);
	c = fake_fork(f, 0);
	world_settle(w);
	for (unsigned int t = 0; t < FAKE_THREADS; t++) {
		assert_true(fake_access(f, t, t * 4, 1, false, 0));
		(void)fake_run(f, t);
	}
	space_service(f->s);
	f->dead = true;
	space_kill(f->s);
	assert_int_equal(f->s->table.nr_swapped, 0);
	/* The child's memory does not care. */
	fake_read_range(c, 0, 16);
	world_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip_of_each_order),
		cmocka_unit_test(test_touch_of_a_cached_folio_reads_no_device),
		cmocka_unit_test(test_unchanged_folio_keeps_its_copy),
		cmocka_unit_test(test_copy_that_was_given_up_is_written_anew),
		cmocka_unit_test(test_fill_leaves_guard_markers_alone),
		cmocka_unit_test(test_reading_ahead_leaves_guard_markers_alone),
		cmocka_unit_test(test_device_error_poisons_that_folio_only),
		cmocka_unit_test(test_corrupt_copy_poisons_that_folio_only),
		cmocka_unit_test(test_move_refuses_a_folio_over_two_mappings),
		cmocka_unit_test(test_move_learns_the_mode_of_a_mapping),
		cmocka_unit_test(test_pinned_page_stays),
		cmocka_unit_test(test_child_may_use_what_its_parent_may_when_it_forks),
		cmocka_unit_test(test_once_forked_page_leaves),
		cmocka_unit_test(test_gate_refuses_move_and_nothing_changes),
		cmocka_unit_test(test_page_that_the_kernel_took_becomes_none),
		cmocka_unit_test(test_nothing_is_adopted_before_a_second_or_inside_madvise),
		cmocka_unit_test(test_child_adopts_what_its_parent_was_to_adopt),
		cmocka_unit_test(test_range_noted_for_soon_waits_for_the_gate_only),
		cmocka_unit_test(test_too_many_ranges_are_merged),
		cmocka_unit_test(test_dontneed_of_one_page_leaves_its_neighbours),
		cmocka_unit_test(test_part_of_a_folio_moves_and_each_part_comes_back),
		cmocka_unit_test(test_change_at_every_moment_of_a_batch),
		cmocka_unit_test(test_without_filled_only_a_wrong_page_shows),
		cmocka_unit_test(test_without_permit_a_wrong_page_shows),
		cmocka_unit_test(test_fault_waits_for_the_gate),
		cmocka_unit_test(test_fault_waits_for_room),
		cmocka_unit_test(test_child_without_helper_does_not_wait_for_room),
		cmocka_unit_test(test_kill_with_loads_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
