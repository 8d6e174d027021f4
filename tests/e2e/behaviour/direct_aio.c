/* SPDX-License-Identifier: MIT */
/* io_submit with O_DIRECT: reads that are under way while the pages around them are evicted. */
#include "direct.h"

#include <linux/aio_abi.h>

#define NR 128
#define REQUESTS 32
#define EACH (NR / REQUESTS)

static void run(aio_context_t ctx, int fd, int op, char *p, bool late)
{
	struct iocb cb[REQUESTS], *list[REQUESTS];
	struct io_event event[REQUESTS];

	for (int i = 0; i < REQUESTS; i++) {
		cb[i] = (struct iocb){
			.aio_lio_opcode = op,
			.aio_fildes = fd,
			.aio_buf = (uintptr_t)(p + i * EACH * PAGE_BYTES),
			.aio_nbytes = EACH * PAGE_BYTES,
			.aio_offset = i * EACH * PAGE_BYTES,
		};
		list[i] = &cb[i];
	}
	must(syscall(SYS_io_submit, ctx, REQUESTS, list) == REQUESTS);
	if (late)
		await_eviction(p, NR);
	must(syscall(SYS_io_getevents, ctx, REQUESTS, REQUESTS, event, NULL) == REQUESTS);
	for (int i = 0; i < REQUESTS; i++)
		must(event[i].res == EACH * PAGE_BYTES);
}

int main(void)
{
	char *from = map_pages(NR), *to = map_pages(NR);
	int fd = direct_file(NR * PAGE_BYTES);
	aio_context_t ctx = 0;

	if (syscall(SYS_io_setup, REQUESTS, &ctx) && errno == ENOSYS)
		skip("no aio here");
	must(ctx != 0);
	for (unsigned int round = 0; round < 8; round++) {
		fill_pages(from, NR, 10 + round);
		fill_pages(to, NR, 20 + round);
		await_eviction(from, NR);
		run(ctx, fd, IOCB_CMD_PWRITE, from, round & 1);
		await_eviction(to, NR);
		run(ctx, fd, IOCB_CMD_PREAD, to, round & 1);
		check_pages(to, NR, 10 + round, "read by aio");
		check_pages(from, NR, 10 + round, "written by aio");
	}
	must(syscall(SYS_io_destroy, ctx) == 0);
	return 0;
}
