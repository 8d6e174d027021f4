/* SPDX-License-Identifier: MIT */
/*
 * mremap() for the program.
 *
 * The kernel remaps no range that spans two mappings. A mapping that is put over a part of a
 * managed one (MAP_FIXED), or a neighbour that natively would have merged with it, is a mapping of
 * its own until the supervisor has registered it too; so mremap() of the whole would fail with
 * EFAULT, which natively it does not. Where it does, this function asks the supervisor to look at
 * the mappings, waits for that, and tries again. A program that calls the kernel directly still
 * sees the error.
 *
 * Newer kernels (6.17) remap several mappings one after the other where nothing is resized and the
 * place is given; one that is registered ends that with EFAULT, and what came before it has moved.
 * Such a call must not be tried again. So there the look comes first, while memory is short.
 *
 * Everything else is the plain system call.
 */
#include "agent/agent.h"

#include <linux/errno.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <linux/time_types.h>

#include "agent/raw.h"

#define TRIES 3
#define WAIT_NS (100l * 1000 * 1000) /* for one look: the supervisor looks every 1 to 20 ms */

/* The C library's errno; every C library has this. */
extern int *__errno_location(void) __attribute__((weak));

/*
 * The control page, or NULL. A forked child has none until its own helper runs: what it finds in
 * its copy of agent_local is the parent's. The nonce, which the supervisor puts into each memory's
 * sentinel page, tells them apart without a system call.
 */
static struct agent_ctl *control_page(void)
{
	const volatile struct agent_sentinel *s = (const volatile void *)agent_local.sentinel;

	if (!s || !agent_local.ctl || s->nonce != agent_local.ctl_nonce)
		return 0;
	return agent_local.ctl;
}

/* Returns 0 when the supervisor did not look in time. */
static int ask_for_look(struct agent_ctl *ctl)
{
	uint32_t want = __atomic_add_fetch(&ctl->look_wanted, 1, __ATOMIC_SEQ_CST), done;
	struct __kernel_timespec ts = {.tv_sec = 0, .tv_nsec = WAIT_NS};
	long r = 0;

	while ((int32_t)((done = __atomic_load_n(&ctl->look_done, __ATOMIC_SEQ_CST)) - want) < 0) {
		if (r == -ETIMEDOUT)
			return 0;
		r = RAW4(__NR_futex, &ctl->look_done, FUTEX_WAIT, done, &ts);
	}
	return 1;
}

__attribute__((visibility("default"))) void *mremap(void *old_address, unsigned long old_size,
						    unsigned long new_size, int flags,
						    void *new_address)
{
	_Bool in_parts = (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && old_size == new_size;
	struct agent_ctl *ctl = control_page();
	long r;

	/* The C library's is variadic: the last argument is there only with these flags. */
	if (!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
		new_address = 0;
	if (in_parts && ctl && __atomic_load_n(&ctl->registering, __ATOMIC_RELAXED))
		ask_for_look(ctl);
	r = RAW5(__NR_mremap, old_address, old_size, new_size, flags, new_address);
	for (int i = 0; ctl && !in_parts && r == -EFAULT && i < TRIES && ask_for_look(ctl); i++)
		r = RAW5(__NR_mremap, old_address, old_size, new_size, flags, new_address);
	if (r >= 0 || r <= -4096)
		return (void *)r;
	if (__errno_location)
		*__errno_location() = (int)-r;
	return (void *)-1;
}
