/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys/uffd.h"

#include <errno.h>
#include <sys/ioctl.h>

int uffd_handshake(int fd, uint64_t features)
{
	struct uffdio_api a = {.api = UFFD_API, .features = features};

	return ioctl(fd, UFFDIO_API, &a) ? -errno : 0;
}

int uffd_register(int fd, uint64_t start, uint64_t bytes, uint64_t mode)
{
	struct uffdio_register r = {.range = {.start = start, .len = bytes}, .mode = mode};

	return ioctl(fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int64_t uffd_copy(int fd, uint64_t dst, const void *src, uint64_t nr_pages)
{
	struct uffdio_copy c = {
		.dst = dst, .src = (uint64_t)(uintptr_t)src, .len = nr_pages << PAGE_SHIFT};

	if (ioctl(fd, UFFDIO_COPY, &c) == 0)
		return (int64_t)nr_pages;
	/* The count is signed, and a partial success comes with EAGAIN (rule 9). */
	if (c.copy > 0)
		return c.copy >> PAGE_SHIFT;
	return -errno;
}

int uffd_zeropage(int fd, uint64_t dst)
{
	struct uffdio_zeropage z = {.range = {.start = dst, .len = PAGE_SIZE}};

	return ioctl(fd, UFFDIO_ZEROPAGE, &z) ? -errno : 0;
}

int64_t uffd_poison(int fd, uint64_t dst, uint64_t nr_pages)
{
	struct uffdio_poison p = {.range = {.start = dst, .len = nr_pages << PAGE_SHIFT}};

	if (ioctl(fd, UFFDIO_POISON, &p) == 0)
		return (int64_t)nr_pages;
	if (p.updated > 0)
		return p.updated >> PAGE_SHIFT;
	return -errno;
}

int uffd_wake(int fd, uint64_t start, uint64_t nr_pages)
{
	struct uffdio_range r = {.start = start, .len = nr_pages << PAGE_SHIFT};

	return ioctl(fd, UFFDIO_WAKE, &r) ? -errno : 0;
}

int uffd_registered(int fd, uint64_t va)
{
	struct uffdio_copy c = {.dst = va, .src = 1, .len = PAGE_SIZE};

	if (ioctl(fd, UFFDIO_COPY, &c) == 0)
		return -EINVAL; /* address 1 was readable: impossible */
	if (errno == EFAULT || errno == EEXIST)
		return 1;
	if (errno == ENOENT)
		return 0;
	return -errno;
}
