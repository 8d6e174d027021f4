/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/thread.h"
#include "zpool/zpool.h"

/* Pages that may stay with the pool after they became empty. */
#define SLACK_BYTES ((256 + 32) * PAGE_SIZE)

static void fill(void *p, size_t n, uint64_t seed)
{
	memset(p, (int)(seed * 37 % 251), n);
	if (n >= sizeof(seed))
		memcpy(p, &seed, sizeof(seed));
}

static int filled(const void *p, size_t n, uint64_t seed)
{
	const unsigned char *b = p;
	size_t at = n >= sizeof(seed) ? sizeof(seed) : 0;

	if (at && memcmp(p, &seed, sizeof(seed)) != 0)
		return 0;
	for (; at < n; at++)
		if (b[at] != seed * 37 % 251)
			return 0;
	return 1;
}

static uint64_t data_bytes(struct zpool *zp)
{
	return zpool_bytes(zp) - zpool_metadata_bytes(zp);
}

static void test_every_size_keeps_its_bytes(void **state)
{
	enum { MAX = 4000 };
	static uint32_t handle[MAX];
	static size_t size[MAX];
	struct zpool *zp = zpool_create(GIB(1));
	uint64_t sum = 0;
	int n = 0;

	for (size_t s = 1; s <= ZPOOL_MAX_OBJ; s += s < 600 ? 1 : s / 97, n++) {
		if (s > 65500 && s < ZPOOL_MAX_OBJ - 300)
			s = ZPOOL_MAX_OBJ - 70;
		size[n] = s;
		handle[n] = zpool_alloc(zp, s);
		assert_int_not_equal(handle[n], 0);
		assert_int_equal((uintptr_t)zpool_map(zp, handle[n]) % 8, 0);
		fill(zpool_map(zp, handle[n]), s, (uint64_t)n);
		sum += s;
	}
	size[n] = ZPOOL_MAX_OBJ;
	handle[n] = zpool_alloc(zp, size[n]);
	fill(zpool_map(zp, handle[n]), size[n], (uint64_t)n);
	sum += size[n++];
	assert_int_equal(zpool_stored_bytes(zp), sum);
	for (int i = 0; i < n; i++) {
		assert_int_equal(zpool_size(zp, handle[i]), size[i]);
		assert_true(filled(zpool_map(zp, handle[i]), size[i], (uint64_t)i));
	}
	zpool_check(zp);
	for (int i = 0; i < n; i++)
		zpool_free(zp, handle[i]);
	assert_int_equal(zpool_stored_bytes(zp), 0);
	assert_in_range(data_bytes(zp), 0, SLACK_BYTES);
	zpool_check(zp);
	zpool_destroy(zp);
}

static void test_refuses_sizes_out_of_range(void **state)
{
	struct zpool *zp = zpool_create(MIB(1));

	assert_int_equal(zpool_alloc(zp, 0), 0);
	assert_int_equal(zpool_alloc(zp, ZPOOL_MAX_OBJ + 1), 0);
	assert_int_equal(zpool_alloc(zp, SIZE_MAX), 0);
	assert_int_equal(zpool_stored_bytes(zp), 0);
	zpool_destroy(zp);
	zpool_destroy(NULL);
}

static void test_full_pool_returns_zero_and_recovers(void **state)
{
	struct zpool *zp = zpool_create(MIB(1));
	uint32_t handle[4096], h;
	int n = 0;

	while ((h = zpool_alloc(zp, 1000)) != 0)
		handle[n++] = h;
	/* A mebibyte, less what 128 places of a run leave over. */
	assert_in_range(n, 950, 1048);
	zpool_check(zp);
	/* No run is free, but a place of a class that is not much larger will do. */
	zpool_free(zp, handle[--n]);
	h = zpool_alloc(zp, 900);
	assert_int_not_equal(h, 0);
	assert_int_equal(zpool_size(zp, h), 900);
	handle[n++] = h;
	assert_int_equal(zpool_alloc(zp, 100), 0);
	while (n)
		zpool_free(zp, handle[--n]);
	assert_int_not_equal(h = zpool_alloc(zp, ZPOOL_MAX_OBJ), 0);
	zpool_free(zp, h);
	zpool_check(zp);
	zpool_destroy(zp);
}

static void test_the_last_run_changes_its_class(void **state)
{
	struct zpool *zp = zpool_create(KIB(128));
	uint32_t h;

	for (size_t bytes = 10; bytes < 60000; bytes *= 2) {
		h = zpool_alloc(zp, bytes);
		assert_int_not_equal(h, 0);
		assert_int_equal(zpool_alloc(zp, bytes * 5), 0); /* there is but one run */
		zpool_free(zp, h);
		zpool_check(zp);
	}
	zpool_destroy(zp);
}

struct model {
	uint32_t handle;
	size_t size;
	uint64_t seed;
};

static size_t random_size(struct rng *r)
{
	switch (rng_below(r, 8)) {
	case 0:
		return 1 + rng_below(r, 64);
	case 1:
		return 1 + rng_below(r, ZPOOL_MAX_OBJ);
	default:
		return 100 + rng_below(r, 3900);
	}
}

/* Grows, churns and shrinks in turn, so that pages are given back and touched again. */
static void churn(struct zpool *zp, struct model *m, int max, int steps, uint64_t seed,
		  uint64_t *stored)
{
	struct rng r;

	rng_init(&r, seed);
	for (int i = 0; i < steps; i++) {
		struct model *o = &m[rng_below(&r, (uint64_t)max)];
		bool shrink = i / 3000 % 3 == 2;

		if (o->handle) {
			assert_true(filled(zpool_map(zp, o->handle), o->size, o->seed));
			assert_int_equal(zpool_size(zp, o->handle), o->size);
			zpool_free(zp, o->handle);
			*stored -= o->size;
			o->handle = 0;
		}
		if (shrink && rng_below(&r, 10))
			continue;
		o->size = random_size(&r);
		o->seed = rng_next(&r);
		o->handle = zpool_alloc(zp, o->size);
		assert_int_not_equal(o->handle, 0);
		fill(zpool_map(zp, o->handle), o->size, o->seed);
		*stored += o->size;
	}
}

static void drain(struct zpool *zp, struct model *m, int max)
{
	for (int i = 0; i < max; i++) {
		if (!m[i].handle)
			continue;
		assert_true(filled(zpool_map(zp, m[i].handle), m[i].size, m[i].seed));
		zpool_free(zp, m[i].handle);
		m[i].handle = 0;
	}
}

static void test_random_use_matches_a_model(void **state)
{
	enum { MAX = 1500 };
	static struct model m[MAX];
	struct zpool *zp = zpool_create(GIB(1));
	uint64_t stored = 0;

	for (int round = 0; round < 12; round++) {
		churn(zp, m, MAX, 2500, 77 + (uint64_t)round, &stored);
		assert_int_equal(zpool_stored_bytes(zp), stored);
		assert_true(data_bytes(zp) >= stored);
		zpool_check(zp);
	}
	drain(zp, m, MAX);
	zpool_check(zp);
	assert_int_equal(zpool_stored_bytes(zp), 0);
	assert_in_range(data_bytes(zp), 0, SLACK_BYTES);
	zpool_destroy(zp);
}

struct worker {
	struct us_thread t;
	struct zpool *zp;
	uint64_t seed, stored;
	struct model m[300];
};

static void worker_run(void *arg)
{
	struct worker *w = arg;

	churn(w->zp, w->m, 300, 6000, w->seed, &w->stored);
}

static void test_four_threads_share_a_pool(void **state)
{
	static struct worker w[4];
	struct zpool *zp = zpool_create(GIB(1));
	uint64_t stored = 0;

	for (int i = 0; i < 4; i++) {
		w[i].zp = zp;
		w[i].seed = 1000 + (uint64_t)i;
		assert_int_equal(us_thread_start(&w[i].t, "worker", -1, worker_run, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		us_thread_join(&w[i].t);
		stored += w[i].stored;
	}
	assert_int_equal(zpool_stored_bytes(zp), stored);
	zpool_check(zp);
	for (int i = 0; i < 4; i++)
		drain(zp, w[i].m, 300);
	zpool_check(zp);
	assert_in_range(data_bytes(zp), 0, SLACK_BYTES);
	zpool_destroy(zp);
}

/* What the kernel says is resident in the mapping that p lies in. */
static uint64_t resident_bytes(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long lo, hi, kib;
	char line[512];
	int inside = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
			inside = (uintptr_t)p >= lo && (uintptr_t)p < hi;
		else if (inside && sscanf(line, "Rss: %lu kB", &kib) == 1) {
			fclose(f);
			return KIB(kib);
		}
	}
	fclose(f);
	fail_msg("mapping not found");
	return 0;
}

static void test_bytes_are_what_the_kernel_sees(void **state)
{
	enum { N = 8000 };
	static uint32_t handle[N];
	struct zpool *zp = zpool_create(GIB(1));
	uint64_t claimed, resident;

	for (int i = 0; i < N; i++) {
		handle[i] = zpool_alloc(zp, 1300);
		memset(zpool_map(zp, handle[i]), 1, 1300);
	}
	for (int part = 0; part < 3; part++) {
		claimed = data_bytes(zp);
		resident = resident_bytes(zpool_map(zp, handle[N - 1]));
		/* The kernel may have merged a table of ours into the mapping. */
		assert_in_range(resident, claimed, claimed + zpool_metadata_bytes(zp) + MIB(1) / 4);
		for (int i = part * 3000; i < part * 3000 + 3000 && i < N - 1; i++)
			zpool_free(zp, handle[i]);
	}
	zpool_destroy(zp);
}

static void test_little_is_wasted(void **state)
{
	static const size_t sizes[] = {40, 150, 500, 1000, 1365, 2048, 2700, 3072, 6000, 20000, 49152};
	static uint32_t handle[20000];

	for (unsigned int s = 0; s < ARRAY_SIZE(sizes); s++) {
		struct zpool *zp = zpool_create(GIB(1));
		unsigned int n = (unsigned int)MIN(20000u, MIB(8) / sizes[s]);
		uint64_t stored;

		for (unsigned int i = 0; i < n; i++)
			handle[i] = zpool_alloc(zp, sizes[s]);
		stored = zpool_stored_bytes(zp);
		/* A step between sizes is up to 1/16, or 8 bytes for small ones. */
		assert_true(data_bytes(zp) <= stored + stored / 14 + n * 8ull + SLACK_BYTES);
		/* Tables: a byte an object, or a page of content where objects are larger. */
		assert_true(zpool_metadata_bytes(zp) <=
			    MAX(n, stored / PAGE_SIZE * 3) + KIB(28));
		for (unsigned int i = 0; i < n; i++)
			zpool_free(zp, handle[i]);
		zpool_check(zp);
		zpool_destroy(zp);
	}
}

static void test_pages_come_back_though_runs_are_not_empty(void **state)
{
	enum { N = 10000 };
	static uint32_t handle[N];
	struct zpool *zp = zpool_create(GIB(1));
	uint64_t full;

	for (int i = 0; i < N; i++) {
		handle[i] = zpool_alloc(zp, 1000);
		fill(zpool_map(zp, handle[i]), 1000, (uint64_t)i);
	}
	full = data_bytes(zp);
	/* One of 50 stays: at least one in each run of 128 KiB. */
	for (int i = 0; i < N; i++)
		if (i % 50)
			zpool_free(zp, handle[i]);
	assert_true(data_bytes(zp) <= full / 8 + SLACK_BYTES);
	for (int i = 0; i < N; i += 50)
		assert_true(filled(zpool_map(zp, handle[i]), 1000, (uint64_t)i));
	zpool_check(zp);
	/* The holes are used again, and do not damage the neighbours. */
	for (int i = 0; i < N; i++) {
		if (i % 50) {
			handle[i] = zpool_alloc(zp, 1000);
			fill(zpool_map(zp, handle[i]), 1000, (uint64_t)i);
		}
	}
	assert_true(data_bytes(zp) <= full + full / 16 + SLACK_BYTES);
	for (int i = 0; i < N; i++)
		assert_true(filled(zpool_map(zp, handle[i]), 1000, (uint64_t)i));
	zpool_check(zp);
	zpool_destroy(zp);
}

static void test_size_of_an_overwritten_object_stays_inside(void **state)
{
	struct zpool *zp = zpool_create(MIB(1));
	uint32_t h = zpool_alloc(zp, 1000);

	memset(zpool_map(zp, h), 0xff, 1024 + 64);
	assert_in_range(zpool_size(zp, h), 1, 1100);
	memset(zpool_map(zp, h), 0x00, 1024 + 64);
	assert_in_range(zpool_size(zp, h), 1, 1100);
	zpool_destroy(zp);
}

static void test_double_free_aborts(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct zpool *zp = zpool_create(MIB(1));
		uint32_t h = zpool_alloc(zp, 100);

		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL);
		(void)!freopen("/dev/null", "w", stderr);
		zpool_free(zp, h);
		zpool_free(zp, h);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void test_text_names_the_numbers(void **state)
{
	struct zpool *zp = zpool_create(MIB(1));
	char buf[200];

	assert_int_not_equal(zpool_alloc(zp, 12345), 0);
	assert_true(zpool_to_text(zp, buf, sizeof(buf)) < (int)sizeof(buf));
	assert_non_null(strstr(buf, "12345 bytes stored"));
	zpool_destroy(zp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size_keeps_its_bytes),
		cmocka_unit_test(test_refuses_sizes_out_of_range),
		cmocka_unit_test(test_full_pool_returns_zero_and_recovers),
		cmocka_unit_test(test_the_last_run_changes_its_class),
		cmocka_unit_test(test_random_use_matches_a_model),
		cmocka_unit_test(test_four_threads_share_a_pool),
		cmocka_unit_test(test_bytes_are_what_the_kernel_sees),
		cmocka_unit_test(test_little_is_wasted),
		cmocka_unit_test(test_pages_come_back_though_runs_are_not_empty),
		cmocka_unit_test(test_size_of_an_overwritten_object_stays_inside),
		cmocka_unit_test(test_double_free_aborts),
		cmocka_unit_test(test_text_names_the_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
