/* SPDX-License-Identifier: MIT */
/* Four threads that use shared entries in every way while a fifth writes out. For TSan. */
#include "test_swap_util.h"

#define NR_THREADS 4
#define NR_SHARED 64
#define STEPS 1500

/* A place that holds one reference to an entry with that content, under its lock. */
struct place {
	struct us_mutex lock;
	swp_t e;
	struct key key;
};

LOCK_CLASS(place_class, "place", RANK_SPACE);

static struct swap *s;
static struct place places[NR_SHARED];
static atomic_bool stop;

static swp_t store_or_write(const struct key *k)
{
	swp_t e, out;
	void *mem;
	int err;

	while ((err = swap_new(s, k->order, 0, &e, &mem)) == -ENOBUFS)
		(void)!swap_writeout(s, 64);
	if (err)
		abort();
	key_fill(k, mem);
	swap_seal(s, e, &out);
	return out;
}

static void use_place(struct rng *r, struct place *p)
{
	struct key k;
	swp_t e;

	us_mutex_lock(&p->lock);
	e = p->e;
	k = p->key;
	if (e)
		swap_get(s, e, 1);
	us_mutex_unlock(&p->lock);
	if (e) {
		if (test_load_matches(s, e, &k) != 0)
			abort();
		swap_put(s, e, 1);
	}
	if (rng_below(r, 2))
		return;

	k = (struct key){CONTENT_RANDOM, (unsigned int)rng_below(r, 5), rng_below(r, 24)};
	e = store_or_write(&k);
	us_mutex_lock(&p->lock);
	if (p->e)
		swap_put(s, p->e, 1);
	p->e = e;
	p->key = k;
	us_mutex_unlock(&p->lock);
}

static void worker(void *arg)
{
	struct rng r;

	rng_init(&r, (uintptr_t)arg);
	for (int i = 0; i < STEPS; i++)
		use_place(&r, &places[rng_below(&r, NR_SHARED)]);
}

static void writer(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		if (swap_writeout_ahead(s, 100, 200) <= 0)
			clock_sleep_ns(50 * NSEC_PER_USEC);
	(void)swap_writeout_settle(s);
}

static void test_threads_share_entries(void **state)
{
	struct tdev *a = tdev_create(2048, DEV_IN_MEMORY, false), *b = tdev_create(4096, 0, true);
	struct us_thread t[NR_THREADS], w;

	(void)state;
	s = test_swap(MIB(4));
	a->write_e2big = 300;
	test_swap_on(s, a, 10);
	test_swap_on(s, b, 5);
	for (int i = 0; i < NR_SHARED; i++)
		us_mutex_init(&places[i].lock, &place_class);
	assert_int_equal(us_thread_start(&w, "writer", -1, writer, NULL), 0);
	for (uintptr_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(us_thread_start(&t[i], "worker", -1, worker, (void *)(i + 1)), 0);
	for (int i = 0; i < NR_THREADS; i++)
		us_thread_join(&t[i]);
	atomic_store(&stop, true);
	us_thread_join(&w);
	swap_check(s);
	for (int i = 0; i < NR_SHARED; i++)
		if (places[i].e)
			swap_put(s, places[i].e, 1);
	swap_check(s);
	assert_int_equal(tdev_nr_present(a) + tdev_nr_present(b), 0);
	swap_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_share_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
