/* SPDX-License-Identifier: MIT */
/*
 * Random calls against a model: a list of handles, each with references to an entry and the key
 * of the content that the entry must give back.
 */
#include "test_swap_util.h"

#define MAX_HANDLES 300
#define MAX_PAGES_HELD 6000

struct handle {
	swp_t e;
	struct key key;
	uint32_t refs;
	bool bad; /* a load failed for good */
};

struct model {
	struct swap *s;
	struct rng rng;
	struct handle h[MAX_HANDLES];
	unsigned int nr;
	uint64_t pages;
	unsigned int loads, load_errors;
	bool faults;
};

static struct key random_key(struct model *m)
{
	struct key k = {.order = (unsigned int)rng_below(&m->rng, MAX_ORDER + 1)};

	if (rng_below(&m->rng, 3))
		k.order = (unsigned int)rng_below(&m->rng, 4);
	k.content = (enum content)rng_below(&m->rng, NR_CONTENTS);
	k.seed = rng_below(&m->rng, 40); /* few, so that equal folios meet */
	return k;
}

static void drop(struct model *m, unsigned int i, uint32_t n)
{
	struct handle *h = &m->h[i];

	swap_put(m->s, h->e, n);
	h->refs -= n;
	if (h->refs)
		return;
	m->pages -= 1u << h->key.order;
	m->h[i] = m->h[--m->nr];
}

static void load(struct model *m, struct handle *h)
{
	int err = test_load_matches(m->s, h->e, &h->key);

	m->loads++;
	if (!err)
		return;
	assert_true(m->faults);
	assert_true(err == -EIO || err == -EBADMSG);
	m->load_errors++;
}

static void make_room(struct model *m)
{
	int64_t left = swap_writeout(m->s, 1 + rng_below(&m->rng, 600));

	assert_true(left >= 0 || left == -ENOSPC);
	if (left <= 0 && m->nr) {
		unsigned int i = (unsigned int)rng_below(&m->rng, m->nr);

		drop(m, i, m->h[i].refs);
	}
}

static void add(struct model *m, const struct key *k, swp_t e, uint32_t refs)
{
	assert_true(m->nr < MAX_HANDLES);
	m->h[m->nr++] = (struct handle){.e = e, .key = *k, .refs = refs};
	m->pages += 1u << k->order;
}

static void store(struct model *m)
{
	struct key k = random_key(m);
	uint32_t others = (uint32_t)rng_below(&m->rng, 4);
	enum swap_sealed how;
	swp_t e, out;
	void *buf;
	int err;

	if (m->nr >= MAX_HANDLES - 2 || m->pages > MAX_PAGES_HELD) {
		make_room(m);
		return;
	}
	err = swap_new(m->s, k.order, 0, &e, &buf);
	if (err) {
		assert_int_equal(err, -ENOBUFS);
		make_room(m);
		return;
	}
	if (rng_below(&m->rng, 10) == 0) {
		swap_abandon(m->s, e);
		return;
	}
	if (others) {
		swap_get(m->s, e, others);
		assert_int_equal(test_load_matches(m->s, e, &k), -EAGAIN);
	}
	key_fill(&k, buf);
	how = swap_seal(m->s, e, &out);
	assert_int_equal(how == SWAP_SEALED_EQUAL, out != e);
	if (out == e) {
		add(m, &k, e, others + 1);
	} else {
		add(m, &k, out, 1);
		if (others)
			add(m, &k, e, others);
	}
	assert_int_equal(swap_order(m->s, out), k.order);
	swap_get(m->s, out, 1);
	swap_put(m->s, out, 1);
}

static void step(struct model *m)
{
	unsigned int what = (unsigned int)rng_below(&m->rng, 100), i;

	if (what < 35 || !m->nr) {
		store(m);
		return;
	}
	i = (unsigned int)rng_below(&m->rng, m->nr);
	if (what < 45) {
		uint32_t n = (uint32_t)rng_below(&m->rng, 5);

		swap_get(m->s, m->h[i].e, n);
		m->h[i].refs += n;
	} else if (what < 70) {
		drop(m, i, 1 + (uint32_t)rng_below(&m->rng, m->h[i].refs));
	} else if (what < 92) {
		load(m, &m->h[i]);
	} else {
		int64_t left = swap_writeout(m->s, rng_below(&m->rng, 300));

		assert_true(left >= 0 || left == -ENOSPC);
	}
}

/* Every reference that an entry has belongs to a handle. */
static void check_refs(struct model *m)
{
	static uint32_t refs[1u << 16];
	uint64_t distinct = 0;
	struct swap_usage u;

	memset(refs, 0, sizeof(refs));
	for (unsigned int i = 0; i < m->nr; i++) {
		distinct += !refs[m->h[i].e];
		refs[m->h[i].e] += m->h[i].refs;
	}
	for (unsigned int i = 0; i < m->nr; i++)
		assert_int_equal(refs[m->h[i].e],
				 atomic_load(&entry_of(&m->s->table, m->h[i].e)->refs));
	swap_usage(m->s, &u);
	assert_int_equal(u.nr_entries, distinct);
	assert_true(u.cached_bytes <= m->s->cfg.cache_bytes);
}

static void run_model(struct model *m, unsigned int steps)
{
	for (unsigned int i = 0; i < steps; i++) {
		step(m);
		swap_check(m->s);
		if (i % 64 == 0)
			check_refs(m);
	}
	while (m->nr)
		drop(m, 0, m->h[0].refs);
	swap_check(m->s);
}

static void random_calls(void **state, bool copy)
{
	struct tdev *top = tdev_create(3 * 512 + 77, DEV_IN_MEMORY, false);
	struct tdev *mid = tdev_create(1024, 0, true), *low = tdev_create_growing(2, 1 << 14, 100);
	uint64_t relocated = vmstat_get(VMSTAT_swap_relocated);
	struct model m = {.s = test_swap(MIB(4))};

	(void)state;
	rng_init(&m.rng, copy ? 4 : 1);
	if (copy)
		tdev_can_copy(top);
	top->write_e2big = 300;
	test_swap_on(m.s, low, -1);
	test_swap_on(m.s, top, 100);
	test_swap_on(m.s, mid, 10);
	run_model(&m, 6000);
	assert_int_equal(m.load_errors, 0);
	assert_int_equal(tdev_nr_present(top) + tdev_nr_present(mid) + tdev_nr_present(low), 0);
	assert_true(low->nr_writes > 0 && mid->nr_writes > 0 && top->nr_writes > 0);
	assert_true(vmstat_get(VMSTAT_swap_relocated) > relocated);
	assert_true(!copy || top->nr_copies > 0);
	swap_destroy(m.s);
}

static void test_random_calls_give_back_what_was_stored(void **state)
{
	random_calls(state, false);
}

static void test_random_calls_on_a_device_that_copies(void **state)
{
	random_calls(state, true);
}

static void test_random_calls_with_failing_devices(void **state)
{
	struct tdev *a = tdev_create(2048, 0, true), *b = tdev_create(1024, DEV_IN_MEMORY, false);
	struct model m = {.s = test_swap(MIB(4)), .faults = true};

	(void)state;
	rng_init(&m.rng, 2);
	a->write_enospc = 2;
	a->read_eio = 20;
	a->corrupt = 30;
	b->write_e2big = 500;
	b->write_enomem = 100;
	b->write_eio = 3; /* the device is given up after a while */
	test_swap_on(m.s, a, 5);
	test_swap_on(m.s, b, 5);
	run_model(&m, 6000);
	assert_true(m.load_errors > 0);
	assert_true(m.load_errors < m.loads);
	assert_int_equal(tdev_nr_present(a) + tdev_nr_present(b), 0);
	swap_destroy(m.s);
}

static void test_random_calls_on_devices_that_are_always_full(void **state)
{
	struct tdev *a = tdev_create(300, 0, false);
	struct model m = {.s = test_swap(MIB(4))};

	(void)state;
	rng_init(&m.rng, 3);
	test_swap_on(m.s, a, 5);
	run_model(&m, 4000);
	assert_int_equal(tdev_nr_present(a), 0);
	swap_destroy(m.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_calls_give_back_what_was_stored),
		cmocka_unit_test(test_random_calls_on_a_device_that_copies),
		cmocka_unit_test(test_random_calls_with_failing_devices),
		cmocka_unit_test(test_random_calls_on_devices_that_are_always_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
