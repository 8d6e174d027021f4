/* SPDX-License-Identifier: MIT */
/* A userfaultfd of the program's own, with a thread that answers, beside memory that is evicted. */
#include "behave.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

#define NR 128

static volatile int served;
static int uffd;
static char *p, *own;

static void *answer(void *arg)
{
	char *page = map_pages(32);

	(void)arg;
	for (;;) {
		struct pollfd poll_fd = {.fd = uffd, .events = POLLIN};
		struct uffdio_copy copy = {.src = (unsigned long)page, .len = PAGE_BYTES};
		struct uffd_msg m;

		must(poll(&poll_fd, 1, -1) == 1);
		if (read(uffd, &m, sizeof(m)) != sizeof(m)) {
			must(errno == EAGAIN);
			continue;
		}
		must(m.event == UFFD_EVENT_PAGEFAULT);
		copy.dst = m.arg.pagefault.address & ~(PAGE_BYTES - 1);
		must(copy.dst >= (unsigned long)own &&
		     copy.dst < (unsigned long)own + NR * PAGE_BYTES);
		page_fill(page, page_tag_linear(5, (copy.dst - (unsigned long)own) / PAGE_BYTES));
		/* Before the copy wakes who counts. */
		served++;
		must(ioctl(uffd, UFFDIO_COPY, &copy) == 0);
	}
	return NULL;
}

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_range range;
	pthread_t t;

	p = map_pages(NR);
	fill_pages(p, NR, 1);
	await_eviction(p, NR);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		skip("no userfaultfd for this user");
	must(ioctl(uffd, UFFDIO_API, &api) == 0);
	own = map_pages(NR);
	reg.range.start = (unsigned long)own;
	reg.range.len = NR * PAGE_BYTES;
	must(ioctl(uffd, UFFDIO_REGISTER, &reg) == 0);
	must(pthread_create(&t, NULL, answer, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		check_pages(own, NR, 5, "the program's own handler");
		check_pages(p, NR, 1 + i, "beside it");
		fill_pages(p, NR, 2 + i);
		await_eviction(p, NR);
		must(madvise(own, NR * PAGE_BYTES, MADV_DONTNEED) == 0);
	}
	check_pages(own, NR, 5, "at the end");
	check_pages(p, NR, 4, "at the end, beside it");
	must(served == 4 * NR);
	range = reg.range;
	must(ioctl(uffd, UFFDIO_UNREGISTER, &range) == 0);
	fill_pages(own, NR, 6);
	await_eviction(own, NR);
	check_pages(own, NR, 6, "after it was given back");
	return 0;
}
