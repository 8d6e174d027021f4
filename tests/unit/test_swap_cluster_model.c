/* SPDX-License-Identifier: MIT */
/* Random histories of the cluster allocator against a naive model (tests/fuzz/cluster_history.h).
 */
#include "test_swap_util.h"

#include "cluster_history.h"

#define HISTORY_BYTES 3000

static void run_kind(unsigned int kind, unsigned int histories)
{
	static uint8_t bytes[HISTORY_BYTES];
	struct rng r;

	rng_init(&r, 1000 + kind);
	for (unsigned int i = 0; i < histories; i++) {
		for (unsigned int k = 0; k < HISTORY_BYTES; k++)
			bytes[k] = (uint8_t)(rng_next(&r) >> 40);
		bytes[0] = (uint8_t)(kind | (bytes[0] & 0xc0));
		cluster_history_run(bytes, HISTORY_BYTES);
	}
}

static void test_random_histories_of_every_kind_of_device(void **state)
{
	struct cluster_history_stats *s = &cluster_history_stats;

	(void)state;
	memset(s, 0, sizeof(*s));
	for (unsigned int kind = 0; kind < 32; kind++)
		run_kind(kind, 1);
	assert_true(s->allocs > 1000);
	assert_true(s->refused > 100);
	assert_true(s->reclaimed > 30);
	assert_true(s->discards > 10);
	assert_true(s->windows > 50);
	assert_true(s->cleared > 10);
	assert_true(s->collected > 100);
	assert_true(s->grown > 100);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_histories_of_every_kind_of_device),
	};

	/* test_swap_cluster_model HISTORIES: that many of each kind. */
	if (argc > 1) {
		for (unsigned int kind = 0; kind < 32; kind++)
			run_kind(kind, (unsigned int)atoi(argv[1]));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
