/* SPDX-License-Identifier: MIT */
/* What a compiler at run time does: code written to swapped out pages, made executable, run, made
 * writable again, changed; also in memory that is writable and executable at once. */
#include "behave.h"

#define NR 64
#define RW (PROT_READ | PROT_WRITE)

/* mov eax, value; ret; the rest of the page says which one it is. */
static void emit(char *page, size_t i, uint32_t value)
{
	page_fill(page, page_tag_linear(value, i));
	page[0] = (char)0xb8;
	memcpy(page + 1, &value, sizeof(value));
	page[5] = (char)0xc3;
}

static void run_all(char *code, uint32_t base)
{
	for (size_t i = 0; i < NR; i++) {
		uint32_t got = ((uint32_t(*)(void))(void *)(code + i * PAGE_BYTES))();

		if (got != base + i)
			fail("page %zu gives %u, want %zu", i, got, base + i);
	}
}

/* The rest of each page, which only data reads see. */
static void check_all(const char *code, uint32_t base)
{
	char want[PAGE_BYTES];

	for (size_t i = 0; i < NR; i++) {
		emit(want, i, base + i);
		if (memcmp(want, code + i * PAGE_BYTES, PAGE_BYTES))
			fail("page %zu of code is another one", i);
	}
}

static void protect(char *p, size_t nr, int prot)
{
	must(mprotect(p, nr * PAGE_BYTES, prot) == 0);
}

int main(void)
{
	char *code = map_pages(NR), *both;

	for (uint32_t base = 1; base < 60; base += 10) {
		/* Old code is out; new code is written over it. */
		await_eviction(code, NR);
		for (size_t i = 0; i < NR; i++)
			emit(code + i * PAGE_BYTES, i, base + i);
		await_eviction(code, NR);
		protect(code, NR, PROT_READ | PROT_EXEC);
		run_all(code, base);
		check_all(code, base);
		/* One page at a time, as for an inline cache. */
		for (size_t i = 0; i < NR; i += 7) {
			protect(code + i * PAGE_BYTES, 1, RW);
			emit(code + i * PAGE_BYTES, i, base + i);
			protect(code + i * PAGE_BYTES, 1, PROT_READ | PROT_EXEC);
		}
		run_all(code, base);
		protect(code, NR, PROT_EXEC);
		run_all(code, base);
		protect(code, NR, PROT_NONE);
		protect(code, NR, RW);
		await_eviction(code, NR);
		check_all(code, base);
	}

	both = mmap(NULL, NR * PAGE_BYTES, RW | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(both != MAP_FAILED);
	for (uint32_t base = 100; base < 160; base += 10) {
		for (size_t i = 0; i < NR; i++)
			emit(both + i * PAGE_BYTES, i, base + i);
		await_eviction(both, NR);
		run_all(both, base);
		await_eviction(both, NR);
		check_all(both, base);
	}
	return 0;
}
