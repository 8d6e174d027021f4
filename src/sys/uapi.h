/* SPDX-License-Identifier: MIT */
/*
 * What the kernel offers and the installed kernel headers may be too old to name: constants and
 * structs only, each as in the kernel's own headers, and only where those lack it.
 *
 * Not its job: to say that the running kernel has any of it. That is probed, see sys/check.h.
 * Plain definitions without state or code, so the freestanding agent may include it too.
 */
#ifndef USWAP_SYS_UAPI_H
#define USWAP_SYS_UAPI_H

#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>

/* ---- userfaultfd ---- */

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC 0xAA
#define USERFAULTFD_IOC_NEW _IO(USERFAULTFD_IOC, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_EXACT_ADDRESS
#define UFFD_FEATURE_EXACT_ADDRESS (1 << 11)
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

#ifndef UFFDIO_MOVE
#define _UFFDIO_MOVE (0x05)
struct uffdio_move {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 mode; /* UFFDIO_MOVE_MODE_* */
	__s64 move; /* written by the kernel: bytes moved, or -errno */
};
#define UFFDIO_MOVE _IOWR(UFFDIO, _UFFDIO_MOVE, struct uffdio_move)
#endif
#ifndef UFFDIO_MOVE_MODE_DONTWAKE
#define UFFDIO_MOVE_MODE_DONTWAKE ((__u64)1 << 0)
#endif
#ifndef UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES ((__u64)1 << 1)
#endif

#ifndef UFFDIO_POISON
#define _UFFDIO_POISON (0x08)
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;    /* UFFDIO_POISON_MODE_* */
	__s64 updated; /* written by the kernel: bytes poisoned, or -errno */
};
#define UFFDIO_POISON _IOWR(UFFDIO, _UFFDIO_POISON, struct uffdio_poison)
#endif
#ifndef UFFDIO_POISON_MODE_DONTWAKE
#define UFFDIO_POISON_MODE_DONTWAKE ((__u64)1 << 0)
#endif

/* ---- madvise ---- */

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MADV_GUARD_REMOVE
#define MADV_GUARD_REMOVE 103
#endif

/* ---- /proc/PID/pagemap: bits of an entry ---- */

#ifndef PM_SOFT_DIRTY
#define PM_SOFT_DIRTY ((__u64)1 << 55)
#endif
#ifndef PM_MMAP_EXCLUSIVE
#define PM_MMAP_EXCLUSIVE ((__u64)1 << 56)
#endif
#ifndef PM_UFFD_WP
#define PM_UFFD_WP ((__u64)1 << 57)
#endif
#ifndef PM_GUARD_REGION
#define PM_GUARD_REGION ((__u64)1 << 58)
#endif
#ifndef PM_FILE
#define PM_FILE ((__u64)1 << 61)
#endif
#ifndef PM_SWAP
#define PM_SWAP ((__u64)1 << 62)
#endif
#ifndef PM_PRESENT
#define PM_PRESENT ((__u64)1 << 63)
#endif

/* ---- /proc/PID/pagemap: the scan ---- */

#ifndef PAGEMAP_SCAN
#define PAGE_IS_WPALLOWED (1 << 0)
#define PAGE_IS_WRITTEN (1 << 1)
#define PAGE_IS_FILE (1 << 2)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_SWAPPED (1 << 4)
#define PAGE_IS_PFNZERO (1 << 5)
#define PAGE_IS_HUGE (1 << 6)

struct page_region {
	__u64 start;
	__u64 end;
	__u64 categories;
};

#define PM_SCAN_WP_MATCHING (1 << 0)
#define PM_SCAN_CHECK_WPASYNC (1 << 1)

struct pm_scan_arg {
	__u64 size; /* of this struct */
	__u64 flags;
	__u64 start;
	__u64 end;
	__u64 walk_end; /* written by the kernel: where the walk ended */
	__u64 vec;	/* array of struct page_region */
	__u64 vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif
#ifndef PAGE_IS_SOFT_DIRTY
#define PAGE_IS_SOFT_DIRTY (1 << 7)
#endif
#ifndef PAGE_IS_GUARD
#define PAGE_IS_GUARD (1 << 8)
#endif

/* ---- /proc/PID/maps: one mapping at a time ---- */

#ifndef PROCMAP_QUERY
#define PROCMAP_QUERY_VMA_READABLE 0x01
#define PROCMAP_QUERY_VMA_WRITABLE 0x02
#define PROCMAP_QUERY_VMA_EXECUTABLE 0x04
#define PROCMAP_QUERY_VMA_SHARED 0x08
#define PROCMAP_QUERY_COVERING_OR_NEXT_VMA 0x10
#define PROCMAP_QUERY_FILE_BACKED_VMA 0x20

struct procmap_query {
	__u64 size; /* of this struct */
	__u64 query_flags;
	__u64 query_addr;
	__u64 vma_start;
	__u64 vma_end;
	__u64 vma_flags;
	__u64 vma_page_size;
	__u64 vma_offset;
	__u64 inode;
	__u32 dev_major;
	__u32 dev_minor;
	__u32 vma_name_size;
	__u32 build_id_size;
	__u64 vma_name_addr;
	__u64 build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#endif

#endif
