/* SPDX-License-Identifier: MIT */
/* Swap headers as mkswap writes them, in either byte order, and every reason to refuse one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "dev/swap_header.h"

#define DEVICE_PAGES 1000u

static char head[SWAP_HEADER_BYTES];
static struct swap_header h;

static void put(size_t word_index, uint32_t v, bool swapped)
{
	if (swapped)
		v = __builtin_bswap32(v);
	memcpy(head + 1024 + 4 * word_index, &v, 4);
}

/* version, last page, number of bad pages; then 32 bytes, 117 words, the bad pages. */
static void make(uint32_t version, uint32_t last, uint32_t nr_bad, const uint32_t *bad, bool swapped)
{
	memset(head, 0, sizeof(head));
	put(0, version, swapped);
	put(1, last, swapped);
	put(2, nr_bad, swapped);
	for (uint32_t i = 0; i < nr_bad && i < SWAP_HEADER_MAX_BAD; i++)
		put(3 + 8 + 117 + i, bad ? bad[i] : i + 1, swapped);
	memcpy(head + 4086, "SWAPSPACE2", 10);
}

static void parse(void)
{
	memset(&h, 0x55, sizeof(h));
	swap_header_parse(&h, head, sizeof(head), DEVICE_PAGES);
}

static void refused(const char *why)
{
	parse();
	assert_int_equal(h.kind, SWAP_HEADER_BAD);
	assert_int_equal(h.nr_bad, 0);
	if (!strstr(h.why, why))
		fail_msg("'%s' does not say '%s'", h.why, why);
}

static void test_good_headers_in_both_byte_orders(void **state)
{
	static const uint32_t bad[] = {700, 3, 41};

	for (int swapped = 0; swapped < 2; swapped++) {
		make(1, 999, 0, NULL, swapped);
		parse();
		assert_int_equal(h.kind, SWAP_HEADER_GOOD);
		assert_int_equal(h.last_page, 999);
		assert_int_equal(h.nr_bad, 0);
		make(1, 700, 3, bad, swapped);
		parse();
		assert_int_equal(h.kind, SWAP_HEADER_GOOD);
		assert_int_equal(h.last_page, 700);
		assert_int_equal(h.nr_bad, 3);
		assert_int_equal(h.bad[0], 3);
		assert_int_equal(h.bad[1], 41);
		assert_int_equal(h.bad[2], 700);
	}
}

static void test_as_many_bad_pages_as_there_is_room_for(void **state)
{
	make(1, 999, SWAP_HEADER_MAX_BAD, NULL, false);
	parse();
	assert_int_equal(h.kind, SWAP_HEADER_GOOD);
	assert_int_equal(h.nr_bad, SWAP_HEADER_MAX_BAD);
	assert_int_equal(h.bad[SWAP_HEADER_MAX_BAD - 1], SWAP_HEADER_MAX_BAD);
	make(1, 999, SWAP_HEADER_MAX_BAD + 1, NULL, false);
	refused("638 bad pages");
	make(1, 999, UINT32_MAX, NULL, false);
	refused("4294967295 bad pages");
}

static void test_values_that_make_no_sense(void **state)
{
	static const uint32_t zero[] = {5, 0}, beyond[] = {501}, twice[] = {9, 4, 9}, only[] = {1};

	make(2, 999, 0, NULL, false);
	refused("version 2");
	make(0, 999, 0, NULL, false);
	refused("version 0");
	make(1, 0, 0, NULL, false);
	refused("its last page is 0");
	make(1, 1000, 0, NULL, false);
	refused("has 1001 pages, but the device has 1000");
	make(1, UINT32_MAX, 0, NULL, false);
	refused("has 4294967296 pages");
	make(1, 500, 2, zero, false);
	refused("names page 0 as bad");
	make(1, 500, 1, beyond, false);
	refused("names page 501 as bad");
	make(1, 500, 3, twice, false);
	refused("names page 9 as bad twice");
	make(1, 1, 1, only, false);
	refused("no page that is not bad");
}

static void test_other_kinds_of_swap_area(void **state)
{
	make(1, 999, 0, NULL, false);
	memcpy(head + 4086, "SWAP-SPACE", 10);
	refused("old kind");
	for (size_t page = 8192; page <= SWAP_HEADER_BYTES; page *= 2) {
		make(1, 100, 0, NULL, false);
		memset(head + 4086, 0, 10);
		memcpy(head + page - 10, "SWAPSPACE2", 10);
		refused("was made for pages of");
		assert_int_equal(h.signature_at, page - 10);
	}
}

static void test_hibernation_images(void **state)
{
	static const char *const marks[] = {"S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001",
					    "\xed\xc3\x02\xe9\x98\x56\xe5\x0c"};

	for (size_t page = PAGE_SIZE; page <= SWAP_HEADER_BYTES; page *= 2)
		for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
			make(1, 999, 0, NULL, false);
			memset(head + 4086, 0, 10);
			memcpy(head + page - 10, marks[i], strlen(marks[i]));
			parse();
			assert_int_equal(h.kind, SWAP_HEADER_HIBERNATION);
			assert_int_equal(h.signature_at, page - 10);
			assert_true(strlen(h.why) > 0);
		}
}

static void test_what_is_no_swap_area(void **state)
{
	memset(head, 0, sizeof(head));
	parse();
	assert_int_equal(h.kind, SWAP_HEADER_NONE);
	make(1, 999, 0, NULL, false);
	head[4095] = '3';
	parse();
	assert_int_equal(h.kind, SWAP_HEADER_NONE);
	/* A signature that is cut off. */
	make(1, 999, 0, NULL, false);
	swap_header_parse(&h, head, 4095, DEVICE_PAGES);
	assert_int_equal(h.kind, SWAP_HEADER_NONE);
	swap_header_parse(&h, head, 0, DEVICE_PAGES);
	assert_int_equal(h.kind, SWAP_HEADER_NONE);
	swap_header_parse(&h, head, 4096, DEVICE_PAGES);
	assert_int_equal(h.kind, SWAP_HEADER_GOOD);
}

/* Whatever is there, a good header is one that can be obeyed. */
static void test_random_headers_are_safe(void **state)
{
	unsigned int good = 0;
	struct rng r;

	rng_init(&r, 7);
	for (int n = 0; n < 20000; n++) {
		make(1, (uint32_t)(rng_next(&r) % 1100), (uint32_t)(rng_next(&r) % 6), NULL,
		     rng_next(&r) & 1);
		for (int i = 0; i < 6; i++)
			put(3 + 8 + 117 + (size_t)i, (uint32_t)(rng_next(&r) % 1100), false);
		if (rng_next(&r) % 4 == 0)
			head[1024 + rng_next(&r) % 12] = (char)rng_next(&r);
		parse();
		if (h.kind != SWAP_HEADER_GOOD)
			continue;
		good++;
		assert_in_range(h.last_page, 1, DEVICE_PAGES - 1);
		assert_in_range(h.nr_bad, 0, MIN(h.last_page - 1, SWAP_HEADER_MAX_BAD));
		for (uint32_t i = 0; i < h.nr_bad; i++) {
			assert_in_range(h.bad[i], 1, h.last_page);
			if (i)
				assert_true(h.bad[i] > h.bad[i - 1]);
		}
	}
	assert_in_range(good, 1000, 19000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_headers_in_both_byte_orders),
		cmocka_unit_test(test_as_many_bad_pages_as_there_is_room_for),
		cmocka_unit_test(test_values_that_make_no_sense),
		cmocka_unit_test(test_other_kinds_of_swap_area),
		cmocka_unit_test(test_hibernation_images),
		cmocka_unit_test(test_what_is_no_swap_area),
		cmocka_unit_test(test_random_headers_are_safe),
	};

	return cmocka_run_group_tests_name("swap header", tests, NULL, NULL);
}
