/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "mm/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "mm/handler.h"
#include "sys/direct.h"
#include "sys/proc.h"
#include "sys/uffd.h"
#include "trace/vmstat.h"

#define HELPER_PATIENCE_NS (20 * NSEC_PER_SEC)
/* How often the mounts of a process are looked at. */
#define MOUNTS_NS NSEC_PER_SEC

/* ---- events and fills ---- */

static void event_from_msg(struct event *e, const struct uffd_msg *m)
{
	*e = (struct event){0};
	switch (m->event) {
	case UFFD_EVENT_PAGEFAULT:
		e->kind = EVENT_FAULT;
		e->start = m->arg.pagefault.address & PAGE_MASK;
		e->write = m->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE;
		break;
	case UFFD_EVENT_FORK:
		e->kind = EVENT_FORK;
		e->child_fd = (int)m->arg.fork.ufd;
		break;
	case UFFD_EVENT_REMAP:
		e->kind = EVENT_REMAP;
		e->start = m->arg.remap.from;
		e->end = m->arg.remap.from + m->arg.remap.len;
		e->to = m->arg.remap.to;
		break;
	default:
		e->kind = m->event == UFFD_EVENT_UNMAP ? EVENT_UNMAP : EVENT_REMOVE;
		e->start = m->arg.remove.start;
		e->end = m->arg.remove.end;
		break;
	}
}

static int remote_read_events(struct space *s, struct event *ev, int max)
{
	struct uffd_msg msg[32];
	ssize_t n;

	n = read(space_remote(s)->uffd, msg, sizeof(msg[0]) * (size_t)MIN(max, 32));
	if (n < 0)
		return errno == ESRCH ? -ESRCH : 0; /* EMFILE: no room for a fork's yet */
	n /= (ssize_t)sizeof(msg[0]);
	for (ssize_t i = 0; i < n; i++)
		event_from_msg(&ev[i], &msg[i]);
	return (int)n;
}

static int64_t remote_copy(struct space *s, uint64_t va, const void *src, uint64_t nr)
{
	return uffd_copy(space_remote(s)->uffd, va, src, nr);
}

/*
 * The sentinel is present from the start, so a zero page there is refused: with EEXIST when the
 * gate is open, with EAGAIN when an event is unread. A forked child's is WIPEONFORK, and filled
 * here before it is asked.
 */
static int remote_gate_open(struct space *s)
{
	struct remote *r = space_remote(s);
	int e;

	if (!atomic_load(&r->sentinel_filled)) {
		int64_t n = uffd_copy(r->uffd, s->sentinel, s->sentinel_page, 1);

		if (n == -EAGAIN)
			return 0;
		if (n < 0 && n != -EEXIST)
			return n == -ESRCH ? -ESRCH : 1;
		atomic_store(&r->sentinel_filled, true);
		return 1;
	}
	e = uffd_zeropage(r->uffd, s->sentinel);
	return e == -EAGAIN ? 0 : e == -ESRCH ? -ESRCH : 1;
}

static int remote_zeropage(struct space *s, uint64_t va)
{
	return uffd_zeropage(space_remote(s)->uffd, va);
}

static int64_t remote_poison(struct space *s, uint64_t va, uint64_t nr)
{
	return uffd_poison(space_remote(s)->uffd, va, nr);
}

static void remote_wake(struct space *s, uint64_t va)
{
	(void)uffd_wake(space_remote(s)->uffd, va, 1);
}

/*
 * Staging and the sentinel are registered, and hold pages, but none of the program's: staging that
 * was taken for a part of it would be MOVEd onto itself, and what lies there would be lost.
 */
bool remote_is_own(struct space *s, uint64_t start, uint64_t end)
{
	struct remote *r = space_remote(s);

	/* The agent's data: the helper's stack is in it. */
	if (start < r->agent_end && end > r->agent_start)
		return true;
	for (int m = 0; m < NR_AGENT_MODES; m++)
		if (r->staging[m] && start < r->staging[m] + STAGING_PAGES * PAGE_SIZE &&
		    end > r->staging[m])
			return true;
	return start <= s->sentinel && end > s->sentinel;
}

/*
 * The kernel looks for the mapping before it looks at the gate: "not registered" may come from an
 * unmap or remap whose event is unread. Only with the gate open afterwards is it an answer; the
 * reader, who asks, is the only one who could have opened it in between.
 */
static int remote_registered(struct space *s, uint64_t va)
{
	int r;

	if (remote_is_own(s, va, va + PAGE_SIZE) && !mm_mutants.own_staging)
		return 0;
	r = uffd_registered(space_remote(s)->uffd, va);
	/* A child that is being built: asking its gate would fill its sentinel and let it run. */
	if (!atomic_load(&space_remote(s)->sentinel_filled))
		return r;
	return r == 0 && remote_gate_open(s) == 0 ? -EAGAIN : r;
}

static int remote_pagemap(struct space *s, uint64_t va, uint64_t *entry, size_t nr)
{
	struct remote *r = space_remote(s);

	return r->pagemap_fd < 0 ? -ENODEV : proc_pagemap(r->pagemap_fd, va, entry, nr);
}

static int remote_each_present(struct space *s, uint64_t start, uint64_t end,
			       int (*fn)(uint64_t start, uint64_t end, void *arg), void *arg)
{
	struct remote *r = space_remote(s);

	return r->pagemap_fd < 0 ? -ENODEV : proc_each_present(r->pagemap_fd, start, end, fn, arg);
}

static bool remote_in_madvise(struct space *s)
{
	pid_t pid = space_remote(s)->pid;

	return pid && proc_in_madvise(pid) != 0;
}

/* Field 39 of /proc/PID/stat: the CPU the main thread ran on last. */
static int remote_program_cpu(struct space *s)
{
	struct remote *r = space_remote(s);
	char b[1024], *p;
	ssize_t n;

	if (r->stat_fd < 0 || (n = pread(r->stat_fd, b, sizeof(b) - 1, 0)) <= 0)
		return -1;
	b[n] = 0;
	p = strrchr(b, ')');
	for (int field = 2; p && field < 39; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	return p ? atoi(p) : -1;
}

/* ---- the helper ---- */

static long futex(uint32_t *addr, int op, uint32_t v, uint64_t timeout_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
			      .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};

	return syscall(SYS_futex, addr, op, v, timeout_ns ? &ts : NULL, NULL, 0);
}

/* Looks whether the helper lives; once it does not, it never will again. */
static bool helper_alive(struct remote *r)
{
	struct pollfd p = {.events = POLLIN};

	/* What attach() sets stands once ctl does. */
	if (!r->ctl || atomic_load(&r->helper_gone))
		return false;
	p.fd = r->helper_pidfd;
	if (poll(&p, 1, 0) <= 0)
		return true;
	if (!atomic_exchange(&r->helper_gone, true) && !atomic_load(&r->space->dead))
		log_info("pid %d: its helper ended; it stays resident from now on", r->pid);
	return false;
}

/*
 * Locked memory must never reach a device. MOVE refuses it as long as staging is not locked too,
 * which only mlockall() does; then nothing of the process may be moved at all. Looked at before
 * each batch: what is locked later is read back in by the lock itself.
 */
static bool staging_locked(struct remote *r)
{
	uint64_t kib;

	if (proc_field(r->pid, "status", "VmLck:", &kib) != 0 ||
	    kib < STAGING_PAGES * (PAGE_SIZE >> 10))
		return false;
	return proc_vma_locked(r->pid, r->staging[AGENT_MODE_RW]) != 0;
}

/*
 * Rule 8: a direct read from some file systems holds pages that MOVE does not see. While such a
 * file is open nothing of the process may be moved. Looked at before each batch; where none of
 * these is mounted, which is the rule, only the mounts are read, once a second.
 */
static bool reads_unpinned(struct remote *r)
{
	uint64_t now = clock_now_ns();
	char fs[32];

	if (now - atomic_load(&r->mounts_seen_ns) > MOUNTS_NS) {
		atomic_store(&r->direct_mounted, direct_mounted(r->pid));
		atomic_store(&r->mounts_seen_ns, now);
	}
	if (!atomic_load(&r->direct_mounted) || direct_open(r->pid, fs, sizeof(fs)) != 1)
		return false;
	if (!atomic_exchange(&r->direct_noted, true))
		log_note("pid %d has a file on %s open with O_DIRECT: its memory stays resident "
			 "while it has (the kernel does not pin pages for direct reads there)",
			 r->pid, fs);
	return true;
}

static bool remote_can_move(struct space *s)
{
	struct remote *r = space_remote(s);

	return helper_alive(r) && !staging_locked(r) && !reads_unpinned(r);
}

#define HOLD_SPINS 100

static void remote_hold(struct space *s, bool on)
{
	struct remote *r = space_remote(s);

	if (!r->ctl || mm_mutants.no_permit)
		return;
	__atomic_store_n(&r->ctl->hold, on, __ATOMIC_SEQ_CST);
	/* The page is shared with the program: a stray `moving` must not hold up this thread. */
	if (!on || !atomic_load(&r->command_running))
		return;
	for (unsigned int spins = 0; __atomic_load_n(&r->ctl->moving, __ATOMIC_SEQ_CST); spins++) {
		/* Most MOVEs end within some microseconds; to yield takes as long. */
		if (spins < HOLD_SPINS) {
			cpu_relax();
			continue;
		}
		if (spins < HOLD_SPINS + 100) {
			sched_yield();
			continue;
		}
		/* A helper that died in the middle of a MOVE starts no other. */
		if ((spins & 15) == 0 && !helper_alive(r))
			return;
		clock_sleep_ns(20 * NSEC_PER_USEC);
	}
}

bool remote_look_wanted(struct space *s, uint32_t *wanted)
{
	struct agent_ctl *ctl = space_remote(s)->ctl;

	if (!ctl)
		return false;
	*wanted = __atomic_load_n(&ctl->look_wanted, __ATOMIC_SEQ_CST);
	return *wanted != __atomic_load_n(&ctl->look_done, __ATOMIC_SEQ_CST);
}

void remote_look_done(struct space *s, uint32_t wanted)
{
	struct agent_ctl *ctl = space_remote(s)->ctl;

	__atomic_store_n(&ctl->look_done, wanted, __ATOMIC_SEQ_CST);
	(void)futex(&ctl->look_done, FUTEX_WAKE, INT_MAX, 0);
}

/* Runs one command of the ring to its end. 0, or -EPIPE when the helper is gone. */
static int command(struct remote *r, uint32_t cmd)
{
	struct agent_ctl *ctl = r->ctl;
	uint64_t end = clock_now_ns() + HELPER_PATIENCE_NS;
	uint32_t seq = ctl->seq + 1, done;

	/* Before the helper can begin: remote_hold() reads this after it has set `hold`. */
	atomic_store(&r->command_running, true);
	ctl->cmd = cmd;
	__atomic_store_n(&ctl->seq, seq, __ATOMIC_SEQ_CST);
	(void)futex(&ctl->seq, FUTEX_WAKE, 1, 0);
	while ((done = __atomic_load_n(&ctl->done, __ATOMIC_ACQUIRE)) != seq) {
		(void)futex(&ctl->done, FUTEX_WAIT, done, 20 * NSEC_PER_MSEC);
		if (__atomic_load_n(&ctl->done, __ATOMIC_ACQUIRE) == seq)
			break;
		if (!helper_alive(r)) {
			atomic_store(&r->command_running, false);
			return -EPIPE;
		}
		if (clock_now_ns() > end) {
			log_warn("pid %d: its helper did not answer for 20 s and is ended", r->pid);
			(void)syscall(SYS_pidfd_send_signal, r->helper_pidfd, SIGKILL, NULL, 0);
			end += HELPER_PATIENCE_NS;
		}
	}
	atomic_store(&r->command_running, false);
	return 0;
}

/*
 * The helper died with items open, perhaps between a MOVE and its note of it. It never MOVEs again,
 * so what lies in staging now is what was moved: staging was empty before the batch. The reader of
 * events kept to the permit all along.
 */
static unsigned int count_staged(struct remote *r, const struct batch_item *it)
{
	uint64_t pm[MAX_FOLIO_PAGES];
	unsigned int n = 0;

	if (r->pagemap_fd < 0 ||
	    proc_pagemap(r->pagemap_fd,
			 r->staging[it->mode] + ((uint64_t)it->staging << PAGE_SHIFT), pm,
			 it->nr) != 0)
		return 0; /* the memory is gone, and with it whoever could miss the page */
	while (n < it->nr && (pm[n] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)))
		n++;
	return n;
}

/*
 * MOVE goes from page to page: where the next one is still in its place, none behind it has left,
 * and what lies in staging is not ours (mlockall() fills it).
 */
static bool stopped_before(struct remote *r, const struct batch_item *it, unsigned int moved)
{
	uint64_t pm;

	return moved < it->nr && r->pagemap_fd >= 0 &&
	       proc_pagemap(r->pagemap_fd, it->va + ((uint64_t)moved << PAGE_SHIFT), &pm, 1) == 0 &&
	       (pm & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED));
}

static int remote_move(struct space *s, const struct batch_item *items, unsigned int nr)
{
	struct remote *r = space_remote(s);
	struct agent_ctl *ctl = r->ctl;
	int err;

	for (unsigned int i = 0; i < nr; i++) {
		struct agent_item *it = &ctl->item[i];

		it->va = items[i].va;
		it->staging = items[i].staging;
		it->nr_pages = items[i].nr;
		it->mode = items[i].mode;
		/* cancel was reset under the space's lock, see remote_prepare() */
	}
	ctl->nr = nr;
	err = command(r, AGENT_CMD_MOVE);
	if (err) {
		for (unsigned int i = 0; i < nr; i++)
			r->moved[i] = (uint16_t)count_staged(r, &items[i]);
	} else {
		/* The ring is shared with the program: take nothing in it on trust. */
		for (unsigned int i = 0; i < nr; i++) {
			r->moved[i] = (uint16_t)CLAMP(ctl->item[i].moved, 0, (int)items[i].nr);
			/*
			 * "No page there" ends in words that say so. Believe it only if the page is
			 * not in staging either: a MOVE that failed halfway must lose nothing.
			 */
			if ((ctl->item[i].rc == -ENOENT || r->moved[i] < items[i].nr) &&
			    !stopped_before(r, &items[i], r->moved[i]))
				r->moved[i] = (uint16_t)MAX(r->moved[i],
							    count_staged(r, &items[i]));
		}
	}
	atomic_store(&r->moved_final, true);
	return err;
}

/* Opens a batch: called with the space's lock held, before the first word becomes ISOLATED. */
static void remote_prepare(struct space *s)
{
	struct remote *r = space_remote(s);

	for (unsigned int i = 0; i < BATCH_ITEMS; i++) {
		r->ctl->item[i].cancel = 0;
		r->ctl->item[i].moved = 0;
		r->ctl->item[i].rc = AGENT_RC_PENDING;
	}
	atomic_store(&r->moved_final, false);
}

static unsigned int remote_moved(struct space *s, unsigned int i)
{
	struct remote *r = space_remote(s);
	int n;

	if (atomic_load(&r->moved_final))
		return r->moved[i];
	if (atomic_load(&r->helper_gone))
		return count_staged(r, &s->item[i]);
	n = __atomic_load_n(&r->ctl->item[i].moved, __ATOMIC_SEQ_CST);
	return (unsigned int)CLAMP(n, 0, (int)s->item[i].nr);
}

static int remote_move_error(struct space *s, unsigned int i)
{
	int rc = space_remote(s)->ctl->item[i].rc;

	/* After a partial success the reason is not kept: a smaller folio next time finds it. */
	return rc < 0 ? rc : space_remote(s)->moved[i] ? -EBUSY : -EAGAIN;
}

static void remote_cancel(struct space *s, unsigned int i)
{
	__atomic_store_n(&space_remote(s)->ctl->item[i].cancel, 1, __ATOMIC_SEQ_CST);
}

#define READ_VECTORS 64u

static bool lies_behind(const struct staged_read *a, const struct staged_read *b)
{
	return b->mode == a->mode && b->first == a->first + a->nr_pages;
}

/*
 * Through the helper, whose memory it is whatever the program did with its own identity. Returns
 * how many of the reads were done whole, or -errno if none was.
 * What lies side by side in staging is named as one: the kernel takes the locks of the memory, and
 * looks its mapping up, for each part of it anew.
 */
static int read_some(struct remote *r, const struct staged_read *rd, unsigned int nr)
{
	struct iovec local[READ_VECTORS], there[READ_VECTORS];
	unsigned int done = 0, parts = 0;
	size_t bytes;
	ssize_t n;

	for (unsigned int i = 0; i < nr; i++) {
		local[i].iov_base = rd[i].buf;
		local[i].iov_len = (size_t)rd[i].nr_pages << PAGE_SHIFT;
		if (i && lies_behind(&rd[i - 1], &rd[i])) {
			there[parts - 1].iov_len += local[i].iov_len;
			continue;
		}
		there[parts].iov_base = (void *)(uintptr_t)(r->staging[rd[i].mode] +
							    ((uint64_t)rd[i].first << PAGE_SHIFT));
		there[parts++].iov_len = local[i].iov_len;
	}
	n = process_vm_readv(r->helper, local, nr, there, parts, 0);
	if (n < 0 && errno == ESRCH && r->pid)
		n = process_vm_readv(r->pid, local, nr, there, parts, 0);
	if (n < 0)
		return -errno;
	for (bytes = (size_t)n; done < nr && bytes >= local[done].iov_len; done++)
		bytes -= local[done].iov_len;
	return done ? (int)done : -EIO;
}

static void remote_read_staged(struct space *s, struct staged_read *rd, unsigned int nr)
{
	unsigned int i = 0;

	while (i < nr) {
		int n = read_some(space_remote(s), rd + i, MIN(nr - i, READ_VECTORS));

		if (n < 0) {
			rd[i++].err = n;
			continue;
		}
		for (; n; n--)
			rd[i++].err = 0;
	}
}

static int remote_drop_staged(struct space *s, const uint32_t nr[NR_AGENT_MODES])
{
	struct remote *r = space_remote(s);
	int err;

	for (int m = 0; m < NR_AGENT_MODES; m++)
		r->ctl->drop_pages[m] = nr[m];
	err = command(r, AGENT_CMD_DROP);
	if (!err && r->ctl->drop_rc) {
		log_warn("pid %d: staging could not be emptied: %s", r->pid,
			 strerror(-r->ctl->drop_rc));
		atomic_store(&r->helper_gone, true);
		err = r->ctl->drop_rc;
	}
	return err;
}

/* ---- life ---- */

static const struct space_ops remote_ops;

static struct space *remote_alloc(struct mm *mm, int uffd, uint64_t sentinel)
{
	struct remote *r = mem_pool_alloc(&mm->remote_pool);
	struct agent_sentinel *as;

	if (!r)
		return NULL;
	r->uffd = uffd;
	r->pagemap_fd = -1;
	r->stat_fd = -1;
	r->second_uffd = r->ctl_fd = r->helper_pidfd = -1;
	us_mutex_lock(&mm->spaces_lock);
	r->nonce = mm->next_nonce++;
	us_mutex_unlock(&mm->spaces_lock);
	as = (struct agent_sentinel *)r->sentinel_page;
	as->nonce = r->nonce;
	as->may_start_helper = 1;
	r->space = space_create(mm, &remote_ops, r);
	if (!r->space) {
		mem_pool_free(&mm->remote_pool, r);
		return NULL;
	}
	r->space->sentinel = sentinel;
	r->space->sentinel_page = r->sentinel_page;
	return r->space;
}

static void remote_destroy(struct space *s)
{
	struct remote *r = space_remote(s);
	int fds[] = {r->uffd, r->second_uffd, r->pagemap_fd, r->stat_fd, r->ctl_fd,
		     r->helper_pidfd};

	if (r->ctl)
		munmap(r->ctl, AGENT_CTL_BYTES);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	mem_pool_free(&s->mm->remote_pool, r);
}

static struct space *remote_fork(struct space *parent, int child_fd)
{
	struct space *c = remote_alloc(parent->mm, child_fd, parent->sentinel);
	pid_t pid = space_remote(parent)->pid;
	uint64_t threads;

	/*
	 * The child may start a helper, which takes system calls, unless a thread of its parent has
	 * a seccomp filter. Settled before anything can fill the child's sentinel.
	 */
	if (c && pid && proc_has_seccomp(pid) != 0)
		((struct agent_sentinel *)space_remote(c)->sentinel_page)->may_start_helper = 0;
	if (c && pid && proc_field(pid, "status", "Threads:", &threads) == 0)
		c->start_faults = START_FAULTS_A_THREAD * (unsigned int)threads;
	if (!c) {
		/*
		 * Closing child_fd would turn the child's missing pages into zeros. It stays open,
		 * so that the child waits instead; the message says what happened.
		 */
		log_error("out of spaces: a forked child of pid %d cannot be served",
			  space_remote(parent)->pid);
	}
	return c;
}

/* The child's sentinel was missing until now: what it reads there is the supervisor's answer. */
static void remote_forked(struct space *child, struct space *parent)
{
	struct remote *r = space_remote(child);
	pid_t pid = space_remote(parent)->pid;

	(void)remote_gate_open(child);
	/* The parent's is held: one of the same rank may only be tried for, and nobody has it. */
	while (!us_mutex_trylock(&child->reader_lock))
		sched_yield();
	if (handlers_add(child->mm, child, r->uffd) != 0)
		log_error("a forked child of pid %d cannot be served: %s", pid, strerror(errno));
	us_mutex_unlock(&child->reader_lock);
}

static const struct space_ops remote_ops = {
	.read_events = remote_read_events,
	.gate_open = remote_gate_open,
	.hold = remote_hold,
	.copy = remote_copy,
	.zeropage = remote_zeropage,
	.poison = remote_poison,
	.wake = remote_wake,
	.registered = remote_registered,
	.pagemap = remote_pagemap,
	.each_present = remote_each_present,
	.can_move = remote_can_move,
	.prepare = remote_prepare,
	.move = remote_move,
	.moved = remote_moved,
	.move_error = remote_move_error,
	.cancel = remote_cancel,
	.read_staged = remote_read_staged,
	.drop_staged = remote_drop_staged,
	.in_madvise = remote_in_madvise,
	.program_cpu = remote_program_cpu,
	.fork = remote_fork,
	.forked = remote_forked,
	.destroy = remote_destroy,
};

int remote_ctl_create(void)
{
	struct agent_ctl init = {.magic = AGENT_MAGIC, .version = AGENT_VERSION};
	int fd = memfd_create("uswap-ctl", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	init.no_permit = mm_mutants.no_permit;
	init.no_populate = mm_mutants.no_populate;
	if (ftruncate(fd, (off_t)AGENT_CTL_BYTES) != 0 ||
	    pwrite(fd, &init, offsetof(struct agent_ctl, item), 0) !=
		    (ssize_t)offsetof(struct agent_ctl, item)) {
		int e = errno;

		close(fd);
		return -e;
	}
	return fd;
}

/* Gives a space its process and helper. Staging goes on the userfaultfd of the events (rule 1). */
static int attach(struct space *s, const struct remote_config *cfg)
{
	struct remote *r = space_remote(s);
	int staging_fd = cfg->second_uffd >= 0 ? cfg->second_uffd : r->uffd;
	void *ctl = mmap(NULL, AGENT_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, cfg->ctl_fd, 0);
	uint64_t staging[NR_AGENT_MODES];

	if (ctl == MAP_FAILED)
		return -errno;
	for (int m = 0; m < NR_AGENT_MODES; m++) {
		int e = cfg->staging[m] ? uffd_register(staging_fd, cfg->staging[m],
							STAGING_PAGES * PAGE_SIZE,
							UFFDIO_REGISTER_MODE_WP)
					: 0;

		if (e && m == AGENT_MODE_RW) {
			munmap(ctl, AGENT_CTL_BYTES);
			return e;
		}
		staging[m] = e ? 0 : cfg->staging[m];
	}
	remote_set_pid(s, cfg->pid);
	us_mutex_lock(&s->batch_lock);
	us_mutex_lock(&s->reader_lock);
	us_mutex_lock(&s->lock);
	memcpy(r->staging, staging, sizeof(staging));
	r->second_uffd = cfg->second_uffd;
	r->ctl_fd = cfg->ctl_fd;
	r->agent_start = cfg->agent_start;
	r->agent_end = cfg->agent_end;
	r->helper = cfg->helper;
	r->helper_pidfd = cfg->helper_pidfd;
	s->start_faults = 0;
	r->ctl = ctl;
	us_mutex_unlock(&s->lock);
	us_mutex_unlock(&s->reader_lock);
	us_mutex_unlock(&s->batch_lock);
	return 0;
}

struct space *remote_create(struct mm *mm, const struct remote_config *cfg, int *err)
{
	struct space *s;

	*err = uffd_handshake(cfg->uffd, UFFD_FEATURES_REQUIRED);
	if (!*err && cfg->second_uffd >= 0)
		*err = uffd_handshake(cfg->second_uffd, UFFD_FEATURE_MOVE);
	if (!*err)
		*err = uffd_register(cfg->uffd, cfg->sentinel, PAGE_SIZE,
				     UFFDIO_REGISTER_MODE_MISSING);
	if (*err)
		return NULL;
	s = remote_alloc(mm, cfg->uffd, cfg->sentinel);
	if (!s) {
		*err = -ENOMEM;
		return NULL;
	}
	space_publish(s);
	(void)remote_gate_open(s);
	*err = attach(s, cfg);
	if (!*err) {
		us_mutex_lock(&s->reader_lock);
		*err = handlers_add(mm, s, cfg->uffd);
		us_mutex_unlock(&s->reader_lock);
	}
	if (*err) {
		/* The caller keeps the descriptors when this fails. */
		space_remote(s)->uffd = space_remote(s)->second_uffd = -1;
		space_remote(s)->ctl_fd = space_remote(s)->helper_pidfd = -1;
		space_kill(s);
		return NULL;
	}
	return s;
}

int remote_adopt(struct space *s, const struct remote_config *cfg)
{
	return space_remote(s)->ctl ? -EEXIST : attach(s, cfg);
}

void remote_set_pid(struct space *s, pid_t pid)
{
	struct remote *r = space_remote(s);

	us_mutex_lock(&s->lock);
	if (!r->pid) {
		r->pagemap_fd = MAX(proc_open(pid, "pagemap"), -1);
		r->stat_fd = MAX(proc_open(pid, "stat"), -1);
		r->pid = pid;
	}
	us_mutex_unlock(&s->lock);
}

void remote_change_pid(struct space *s, pid_t pid)
{
	struct remote *r = space_remote(s);

	int fd = proc_open(pid, "stat");

	us_mutex_lock(&s->lock);
	r->pid = pid;
	/* Under the same number: a handler may be reading it. */
	if (fd >= 0 && r->stat_fd >= 0)
		(void)dup3(fd, r->stat_fd, O_CLOEXEC);
	us_mutex_unlock(&s->lock);
	if (fd >= 0)
		close(fd);
}

void remote_run(struct space *s)
{
	struct remote *r = space_remote(s);

	__atomic_store_n(&r->ctl->state, AGENT_STATE_RUN, __ATOMIC_RELEASE);
	(void)futex(&r->ctl->state, FUTEX_WAKE, 1, 0);
}

struct space *remote_find_nonce(struct mm *mm, uint64_t nonce)
{
	struct space *found = NULL;

	us_mutex_lock(&mm->spaces_lock);
	list_for_each(n, &mm->spaces) {
		struct space *s = list_entry(n, struct space, node);

		if (s->ops == &remote_ops && space_remote(s)->nonce == nonce) {
			space_get(s);
			found = s;
			break;
		}
	}
	us_mutex_unlock(&mm->spaces_lock);
	return found;
}

bool remote_is_gone(struct space *s)
{
	struct remote *r = space_remote(s);

	/* Asking changes nothing, and a memory that is gone answers ESRCH. */
	return uffd_registered(r->uffd, s->sentinel) == -ESRCH;
}
