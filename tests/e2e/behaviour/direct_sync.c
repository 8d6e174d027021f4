/* SPDX-License-Identifier: MIT */
/* pread, pwrite, preadv with O_DIRECT: the device reads and writes memory that is swapped out. */
#include "direct.h"

#define NR 128

int main(void)
{
	char *from = map_pages(NR), *to = map_pages(NR);
	int fd = direct_file(NR * PAGE_BYTES);
	struct iovec in[NR];

	for (unsigned int round = 0; round < 4; round++) {
		fill_pages(from, NR, 10 + round);
		fill_pages(to, NR, 20 + round);
		await_eviction(from, NR);
		must(pwrite(fd, from, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		check_pages(from, NR, 10 + round, "after pwrite");
		await_eviction(to, NR);
		must(pread(fd, to, NR * PAGE_BYTES, 0) == NR * PAGE_BYTES);
		check_pages(to, NR, 10 + round, "after pread");
		await_eviction(to, NR);
		check_pages(to, NR, 10 + round, "back after pread");

		/* Page by page, some of them in the memory that was written from. */
		fill_pages(to, NR, 30 + round);
		for (int i = 0; i < NR; i++)
			in[i] = (struct iovec){(i & 1 ? from : to) + i * PAGE_BYTES, PAGE_BYTES};
		await_eviction(to, NR);
		must(preadv(fd, in, NR, 0) == NR * PAGE_BYTES);
		for (int i = 0; i < NR; i += 2)
			memcpy(from + i * PAGE_BYTES, to + i * PAGE_BYTES, PAGE_BYTES);
		check_pages(from, NR, 10 + round, "preadv");

		/* 512 bytes, if the device can: the rest of the page must stay. */
		fill_pages(to, NR, 40 + round);
		await_eviction(to, NR);
		if (pread(fd, to + 5 * PAGE_BYTES + 512, 512, 5 * PAGE_BYTES + 512) == 512) {
			must(memcmp(to + 5 * PAGE_BYTES + 512, from + 5 * PAGE_BYTES + 512, 512) ==
			     0);
			for (size_t w = 64; w < 128; w++)
				((uint64_t *)(to + 5 * PAGE_BYTES))[w] = page_word(
					page_tag_linear(40 + round, 5),
					page_layout_of(page_tag_linear(40 + round, 5)), w);
		}
		check_pages(to, NR, 40 + round, "around 512 bytes");
	}
	return 0;
}
