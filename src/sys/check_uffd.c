/* SPDX-License-Identifier: MIT */
/*
 * Probes of userfaultfd: opening, the features of the handshake, a real move of a page.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/check_internal.h"
#include "sys/uapi.h"

const struct check_feature check_features[] = {
	{"EVENT_FORK", "following children of a program", UFFD_FEATURE_EVENT_FORK, true},
	{"EVENT_REMAP", "following mremap(2)", UFFD_FEATURE_EVENT_REMAP, true},
	{"EVENT_REMOVE", "following madvise(2)", UFFD_FEATURE_EVENT_REMOVE, true},
	{"EVENT_UNMAP", "following munmap(2)", UFFD_FEATURE_EVENT_UNMAP, true},
	{"PAGEFAULT_FLAG_WP", "staging of pages on their way out", UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	 true},
	{"MOVE", "taking pages out without losing a write", UFFD_FEATURE_MOVE, true},
	{"POISON", "an error instead of wrong data when a device fails", UFFD_FEATURE_POISON, true},
	{"THREAD_ID", "knowing which thread waits", UFFD_FEATURE_THREAD_ID, true},
	{"WP_ASYNC", "later: seeing which pages were written", UFFD_FEATURE_WP_ASYNC, false},
};
const unsigned int nr_check_features = ARRAY_SIZE(check_features);

uint64_t check_required_features(void)
{
	uint64_t bits = 0;

	for (unsigned int i = 0; i < nr_check_features; i++)
		if (check_features[i].required)
			bits |= check_features[i].bit;
	return bits;
}

int check_open_uffd(void)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd, rc;

	if (dev < 0)
		return -errno;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	rc = fd < 0 ? -errno : fd;
	close(dev);
	return rc;
}

int check_handshake(int uffd, uint64_t features, uint64_t *known)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	if (ioctl(uffd, UFFDIO_API, &api))
		return -errno;
	if (known)
		*known = api.features;
	return 0;
}

int check_move_page(int uffd)
{
	char *area = mmap(NULL, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_move move = {.len = PAGE_SIZE};
	int rc = 0;

	if (area == MAP_FAILED) {
		rc = -errno;
		close(uffd);
		return rc;
	}
	/* The second page moves to the first, which is a staging area. */
	reg.range = (struct uffdio_range){.start = (uintptr_t)area, .len = PAGE_SIZE};
	move.dst = (uintptr_t)area;
	move.src = (uintptr_t)area + PAGE_SIZE;
	memset(area + PAGE_SIZE, 0x5a, PAGE_SIZE);
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) || ioctl(uffd, UFFDIO_MOVE, &move))
		rc = -errno;
	else if (area[0] != 0x5a || area[PAGE_SIZE - 1] != 0x5a)
		rc = -EIO;
	/* First, since munmap would wait for ever for someone to read its event. */
	close(uffd);
	munmap(area, 2 * PAGE_SIZE);
	return rc;
}

static void probe_open(struct check_report *r, const struct check_place *p)
{
	struct check_item *dev = check_add(r, "/dev/userfaultfd", true, "opening userfaultfds");
	int fd = check_open_uffd();

	if (fd < 0) {
		check_detail(dev, "%s", strerror(-fd));
		check_missing(dev, "%s", "");
		check_remedy_device(p, dev->remedy, sizeof(dev->remedy));
	} else {
		close(fd);
	}
}

static void probe_features(struct check_report *r, const struct check_place *p, uint64_t known,
			   bool opened)
{
	for (unsigned int i = 0; i < nr_check_features; i++) {
		const struct check_feature *f = &check_features[i];
		struct check_item *it = check_add(r, f->name, f->required, f->purpose);
			int fd, rc;

		if (!opened) {
			check_detail(it, "not tried: no userfaultfd");
			check_missing(it, "first mend /dev/userfaultfd");
			continue;
		}
		if (!(known & f->bit)) {
			check_detail(it, "unknown to the kernel");
			check_missing(it, "%s", CHECK_REMEDY_KERNEL);
			continue;
		}
		/* One handshake a descriptor, so that each feature fails for itself. */
		fd = check_open_uffd();
		rc = fd < 0 ? fd : check_handshake(fd, f->bit, NULL);
		if (fd >= 0)
			close(fd);
		if (!rc)
			continue;
		check_detail(it, "%s", strerror(-rc));
		check_missing(it, "%s", CHECK_REMEDY_KERNEL);
		if (rc == -EPERM)
			check_remedy_ptrace(p, it->remedy, sizeof(it->remedy));
	}
}

static void probe_move(struct check_report *r, bool opened)
{
	struct check_item *it = check_add(r, "UFFDIO_MOVE", true, "the same, tried on a page");
	int fd, rc;

	fd = opened ? check_open_uffd() : -ENODEV;
	rc = fd < 0 ? fd : check_handshake(fd, UFFD_FEATURE_MOVE, NULL);
	if (!rc)
		rc = check_move_page(fd);
	else if (fd >= 0)
		close(fd);
	if (!rc)
		return;
	check_detail(it, "%s", opened ? strerror(-rc) : "not tried: no userfaultfd");
	check_missing(it, "%s", opened ? CHECK_REMEDY_KERNEL : "first mend /dev/userfaultfd");
}

void check_probe_uffd(struct check_report *r, const struct check_place *p)
{
	uint64_t known = 0;
	int fd;

	probe_open(r, p);
	fd = check_open_uffd();
	if (fd >= 0) {
		(void)check_handshake(fd, 0, &known);
		close(fd);
	}
	probe_features(r, p, known, fd >= 0);
	probe_move(r, fd >= 0);
}
