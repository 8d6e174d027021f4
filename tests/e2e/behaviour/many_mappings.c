/* SPDX-License-Identifier: MIT */
/* 60,000 mappings of a page each, near the kernel's limit of 65,530: uswap must not need many more
 * of them, nor lose a page among them. */
#include "behave.h"

#define NR 60000
#define SAMPLE 1000
#define RW (PROT_READ | PROT_WRITE)

int main(void)
{
	char *p;
	int limit = 0;
	FILE *f = fopen("/proc/sys/vm/max_map_count", "r");

	if (!f || fscanf(f, "%d", &limit) != 1 || limit < 65530)
		skip("vm.max_map_count is small");
	fclose(f);

	p = map_pages(NR);
	/* Every second page is read-only; so no two of them are one mapping. */
	for (size_t i = 0; i < NR; i += 2)
		page_fill(p + i * PAGE_BYTES, page_tag_linear(1, i));
	for (size_t i = 0; i < NR; i += 2)
		must(mprotect(p + i * PAGE_BYTES, PAGE_BYTES, PROT_READ) == 0);
	for (size_t i = 1; i < NR; i += 2)
		page_fill(p + i * PAGE_BYTES, page_tag_linear(2, i));
	/* Not all: what is read-only stays. A look at all of them would take long. */
	for (int i = 0; under_uswap() && i < 50 && pages_resident(p, SAMPLE) > SAMPLE / 2; i++)
		usleep(5000);
	for (size_t i = 0; i < NR; i++)
		if (!page_matches(p + i * PAGE_BYTES, page_tag_linear(i & 1 ? 2 : 1, i)))
			fail("page %zu", i);

	/* Some of them go, some change, and come back. */
	for (size_t i = 100; i < 4000; i += 3)
		must(munmap(p + i * PAGE_BYTES, PAGE_BYTES) == 0);
	for (size_t i = 100; i < 4000; i += 3)
		must(mmap(p + i * PAGE_BYTES, PAGE_BYTES, RW,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			  0) == p + i * PAGE_BYTES);
	for (size_t i = 0; i < NR; i++) {
		const char *page = p + i * PAGE_BYTES;

		if (i >= 100 && i < 4000 && i % 3 == 1) {
			if (!page_is_zero(page))
				fail("page %zu is not zero", i);
		} else if (!page_matches(page, page_tag_linear(i & 1 ? 2 : 1, i))) {
			fail("page %zu, second look", i);
		}
	}
	return 0;
}
