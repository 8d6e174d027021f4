/* SPDX-License-Identifier: MIT */
/* read(2), write(2), readv, writev, pread into and out of memory that is swapped out. */
#include "behave.h"

#include <sys/ioctl.h>
#include <sys/uio.h>

#define NR 128

int main(void)
{
	char *from = map_pages(NR), *to = map_pages(NR);
	struct iovec out[NR], in[NR];
	int fd = memfd_create("behaviour", 0), end[2], left;

	must(fd >= 0);
	fill_pages(from, NR, 1);
	await_eviction(from, NR);
	must(write(fd, from, NR * PAGE_BYTES) == NR * PAGE_BYTES);
	fill_pages(to, NR, 9);
	await_eviction(to, NR);
	must(pread(fd, to, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
	check_pages(to, NR, 1, "pread");

	/* The pages in reverse, and back again. */
	for (int i = 0; i < NR; i++) {
		out[i] = (struct iovec){from + (NR - 1 - i) * PAGE_BYTES, PAGE_BYTES};
		in[i] = (struct iovec){to + (NR - 1 - i) * PAGE_BYTES, PAGE_BYTES};
	}
	fill_pages(from, NR, 2);
	await_eviction(from, NR);
	must(pwritev(fd, out, NR, 0) == NR * PAGE_BYTES);
	await_eviction(to, NR);
	must(preadv(fd, in, NR, 0) == NR * PAGE_BYTES);
	check_pages(to, NR, 2, "preadv");

	/* ioctl writes its result into a page that is out. */
	must(pipe(end) == 0);
	must(write(end[1], from, 1000) == 1000);
	await_eviction(to, NR);
	must(ioctl(end[0], FIONREAD, to + 5 * PAGE_BYTES + 8) == 0);
	memcpy(&left, to + 5 * PAGE_BYTES + 8, sizeof(left));
	must(left == 1000);
	return 0;
}
