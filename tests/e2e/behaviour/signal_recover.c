/* SPDX-License-Identifier: MIT */
/* A program's own handlers of SIGSEGV and SIGBUS, which leave by siglongjmp: from PROT_NONE within
 * swapped out memory, from no mapping, and from behind the end of a mapped file. */
#include "behave.h"

#include <setjmp.h>

#define NR 128
#define STACK 64

static sigjmp_buf back;
static volatile int got, code;
static void *volatile where;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	got = sig;
	code = info->si_code;
	where = info->si_addr;
	siglongjmp(back, 1);
}

static void expect(volatile char *p, bool write, int sig, int want_code)
{
	got = 0;
	if (!sigsetjmp(back, 1)) {
		if (write)
			*p = 1;
		else
			(void)*p;
	}
	if (got != sig || (got && (where != p || code != want_code)))
		fail("%p: signal %d code %d at %p, want %d code %d", (void *)p, got, code, where,
		     sig, want_code);
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t alt = {.ss_sp = map_pages(STACK), .ss_size = STACK * PAGE_BYTES};
	char *p = map_pages(NR), *gone = map_pages(NR), *closed = p + 50 * PAGE_BYTES, *file;
	int fd = memfd_create("behaviour", 0);

	must(fd >= 0 && ftruncate(fd, 2 * PAGE_BYTES) == 0);
	file = mmap(NULL, 8 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(file != MAP_FAILED);
	must(sigaltstack(&alt, NULL) == 0);
	must(sigaction(SIGSEGV, &sa, NULL) == 0 && sigaction(SIGBUS, &sa, NULL) == 0);
	fill_pages(gone, NR, 1);
	await_eviction(gone, NR);
	must(munmap(gone, NR * PAGE_BYTES) == 0);
	for (unsigned int round = 0; round < 10; round++) {
		bool write = round & 1;

		fill_pages(p, NR, 1 + round);
		fill_pages(alt.ss_sp, STACK, 99);
		await_eviction(p, NR);
		must(mprotect(closed, 8 * PAGE_BYTES, PROT_NONE) == 0);
		for (int i = 0; i < 8; i++)
			expect(closed + i * PAGE_BYTES + 8 * i, write, SIGSEGV, SEGV_ACCERR);
		expect(closed - 1, false, 0, 0);
		expect(closed + 8 * PAGE_BYTES, false, 0, 0);
		must(mprotect(closed, 8 * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
		check_pages(p, NR, 1 + round, "around what was closed");
		expect(gone + round * PAGE_BYTES, write, SIGSEGV, SEGV_MAPERR);
		await_eviction(alt.ss_sp, STACK - 8);
		expect(file + 2 * PAGE_BYTES + round, write, SIGBUS, BUS_ADRERR);
		expect(file + 2 * PAGE_BYTES - 1, write, 0, 0);
		/* The file is cut while it is mapped. */
		must(ftruncate(fd, PAGE_BYTES) == 0);
		expect(file + PAGE_BYTES, write, SIGBUS, BUS_ADRERR);
		must(ftruncate(fd, 2 * PAGE_BYTES) == 0);
		must(page_is_zero(file + PAGE_BYTES));
	}
	return 0;
}
