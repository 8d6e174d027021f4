/* SPDX-License-Identifier: MIT */
/*
 * The helper: a process that shares the program's memory (CLONE_VM) and nothing else.
 *
 * It exists because UFFDIO_MOVE works only inside one memory. A thread would break programs: a
 * second thread makes unshare(CLONE_NEWUSER) fail, SIGSTOP and debuggers freeze it, a filter for
 * all threads kills it, close_range() takes its descriptors. The helper has its own descriptor
 * table, session and signal state, drops its capabilities and confines itself by seccomp.
 */
#include "agent/agent.h"

#include <asm/signal.h>
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/socket.h>
#include <linux/time_types.h>
#include <linux/userfaultfd.h>

#include "agent/raw.h"
#include "sys/uapi.h"

#define AF_UNIX_ 1
#define SOCK_SEQPACKET_ 5
#define SOCK_CLOEXEC_ 02000000
#define SOL_SOCKET_ 1
#define SCM_RIGHTS_ 1
#define MSG_NOSIGNAL_ 0x4000
#define MSG_CMSG_CLOEXEC_ 0x40000000
#define RLIMIT_CPU_ 0
#define RLIMIT_AS_ 9
#define MAX_FDS 2
#define ALIVE_CHECK_NS (250l * 1000 * 1000)
#define JOIN_PAGES 64u /* that one MOVE of several items takes, about */

struct sockaddr_un_ {
	uint16_t family;
	char path[108];
};

/* struct msghdr and cmsghdr as the kernel has them. */
struct iovec_ {
	void *base;
	uint64_t len;
};
struct msghdr_ {
	void *name;
	int namelen, pad;
	struct iovec_ *iov;
	uint64_t iovlen;
	void *control;
	uint64_t controllen;
	uint32_t flags, pad2;
};
struct cmsg_fds {
	uint64_t len;
	int32_t level, type;
	int32_t fd[MAX_FDS];
};

struct helper {
	struct agent_ctl *ctl;
	int sock, pidfd, uffd, move_uffd;
	uint64_t staging[NR_AGENT_MODES];
	int32_t parent; /* the supervisor, or whatever adopted us */
};

static long send_msg(int sock, struct agent_msg *m, const int *fds, int nr_fds)
{
	struct iovec_ iov = {m, sizeof(*m)};
	struct cmsg_fds c;
	struct msghdr_ h;

	agent_zero(&h, sizeof(h));
	h.iov = &iov;
	h.iovlen = 1;
	if (nr_fds) {
		agent_zero(&c, sizeof(c));
		c.len = 16 + 4 * (uint64_t)nr_fds;
		c.level = SOL_SOCKET_;
		c.type = SCM_RIGHTS_;
		for (int i = 0; i < nr_fds; i++)
			c.fd[i] = fds[i];
		h.control = &c;
		h.controllen = sizeof(c);
	}
	m->magic = AGENT_MAGIC;
	m->version = AGENT_VERSION;
	return RAW3(__NR_sendmsg, sock, &h, MSG_NOSIGNAL_);
}

/* Returns the number of descriptors received, or -errno. */
static long recv_msg(int sock, struct agent_msg *m, int *fds)
{
	struct iovec_ iov = {m, sizeof(*m)};
	struct cmsg_fds c;
	struct msghdr_ h;
	long r, n = 0;

	agent_zero(&h, sizeof(h));
	agent_zero(&c, sizeof(c));
	h.iov = &iov;
	h.iovlen = 1;
	h.control = &c;
	h.controllen = sizeof(c);
	do
		r = RAW3(__NR_recvmsg, sock, &h, MSG_CMSG_CLOEXEC_);
	while (r == -EINTR);
	if (r < 0)
		return r;
	if (r != sizeof(*m) || m->magic != AGENT_MAGIC || m->version != AGENT_VERSION)
		return -EPROTO;
	if (c.len > 16 && c.type == SCM_RIGHTS_)
		for (n = 0; n < (long)(c.len - 16) / 4; n++)
			fds[n] = c.fd[n];
	return n;
}

/* By path, and where the program has another root by the abstract name of the same text. */
static int connect_supervisor(void)
{
	struct sockaddr_un_ a;
	int n = 0;
	long s = RAW3(__NR_socket, AF_UNIX_, SOCK_SEQPACKET_ | SOCK_CLOEXEC_, 0);

	if (s < 0)
		return (int)s;
	agent_zero(&a, sizeof(a));
	a.family = AF_UNIX_;
	for (; agent_local.socket_path[n]; n++)
		a.path[n] = agent_local.socket_path[n];
	if (RAW3(__NR_connect, s, &a, 2 + n + 1) == 0)
		return (int)s;
	for (int i = n; i > 0; i--)
		a.path[i] = a.path[i - 1];
	a.path[0] = 0;
	if (RAW3(__NR_connect, s, &a, 2 + 1 + n) == 0)
		return (int)s;
	RAW1(__NR_close, s);
	return -ENOTCONN;
}

static uint64_t map_staging(int prot)
{
	long p = RAW6(__NR_mmap, 0, STAGING_PAGES * PAGE, prot,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p < 0 && p > -4096)
		return 0;
	RAW3(__NR_madvise, p, STAGING_PAGES * PAGE, MADV_DONTFORK);
	RAW3(__NR_madvise, p, STAGING_PAGES * PAGE, MADV_DONTDUMP);
	RAW3(__NR_madvise, p, STAGING_PAGES * PAGE, MADV_NOHUGEPAGE);
	return (uint64_t)p;
}

static long map_ctl(struct helper *h, int fd)
{
	long p = RAW6(__NR_mmap, 0, AGENT_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	RAW1(__NR_close, fd);
	if (p < 0 && p > -4096)
		return p;
	RAW3(__NR_madvise, p, AGENT_CTL_BYTES, MADV_DONTFORK);
	RAW3(__NR_madvise, p, AGENT_CTL_BYTES, MADV_DONTDUMP);
	h->ctl = (struct agent_ctl *)p;
	return 0;
}

/* HELLO, WELCOME, READY; see proto/agent.h. */
static long handshake(struct helper *h)
{
	struct agent_msg m;
	int fds[MAX_FDS] = {-1, -1};
	long r;

	agent_zero(&m, sizeof(m));
	m.type = AGENT_HELLO;
	m.kind = agent_local.kind;
	m.pid = agent_local.program;
	m.sentinel = agent_local.sentinel;
	m.staging_rw = h->staging[AGENT_MODE_RW];
	m.staging_rwx = h->staging[AGENT_MODE_RWX];
	m.own_start = (uint64_t)&agent_local;
	m.own_end = (uint64_t)(&agent_local + 1);
	r = send_msg(h->sock, &m, &h->pidfd, 1);
	if (r < 0)
		return r;
	r = recv_msg(h->sock, &m, fds);
	if (r != 2 || m.type != AGENT_WELCOME)
		return r < 0 ? r : -EPROTO;
	r = map_ctl(h, fds[0]);
	if (r < 0)
		return r;
	if (agent_local.kind == AGENT_FORKED) {
		h->uffd = h->move_uffd = fds[1];
		m.type = AGENT_READY;
		m.error = 0;
		r = send_msg(h->sock, &m, 0, 0);
	} else {
		int nr = 1, both[2];

		h->uffd = (int)RAW3(__NR_ioctl, fds[1], USERFAULTFD_IOC_NEW,
				    O_CLOEXEC | O_NONBLOCK);
		h->move_uffd = h->uffd;
		if (m.flags & AGENT_F_SECOND_UFFD) {
			h->move_uffd = (int)RAW3(__NR_ioctl, fds[1], USERFAULTFD_IOC_NEW,
						 O_CLOEXEC | O_NONBLOCK);
			nr = 2;
		}
		RAW1(__NR_close, fds[1]);
		both[0] = h->uffd;
		both[1] = h->move_uffd;
		m.type = AGENT_READY;
		m.error = h->uffd < 0 ? h->uffd : 0;
		r = send_msg(h->sock, &m, both, h->uffd < 0 ? 0 : nr);
		if (h->uffd < 0)
			return h->uffd;
	}
	return r < 0 ? r : 0;
}

static long futex_wait(uint32_t *p, uint32_t v, long ns)
{
	struct __kernel_timespec ts = {.tv_sec = 0, .tv_nsec = ns};

	return RAW4(__NR_futex, p, FUTEX_WAIT, v, &ts);
}

/*
 * The supervisor died. This process still holds the userfaultfd, so no missing page has turned
 * into zeros yet: end the program first, and only then let go.
 */
static void supervisor_died(struct helper *h)
{
	struct pollfd p = {.fd = h->pidfd, .events = POLLIN};

	RAW4(__NR_pidfd_send_signal, h->pidfd, SIGKILL, 0, 0);
	RAW3(__NR_poll, &p, 1, 10000);
	RAW1(__NR_exit_group, 0);
}

static void check_supervisor(struct helper *h)
{
	if ((int32_t)RAW0(__NR_getppid) != h->parent)
		supervisor_died(h);
}

/*
 * Takes the permit: `moving` is set before `hold` is looked at, and the reader of events sets
 * `hold` before it looks at `moving`, both sequentially consistent: so a MOVE and a read(2) of
 * events never overlap, and what either side writes before it lets go is seen by the other.
 */
static void permit_take(struct helper *h)
{
	struct agent_ctl *ctl = h->ctl;
	unsigned int spins = 0;

	if (ctl->no_permit)
		return;
	for (;;) {
		while (__atomic_load_n(&ctl->hold, __ATOMIC_SEQ_CST)) {
			if (++spins < 64)
				RAW0(__NR_sched_yield);
			else
				futex_wait(&ctl->hold, 1, 1000 * 1000);
			if ((spins & 255) == 255)
				check_supervisor(h);
		}
		__atomic_store_n(&ctl->moving, 1, __ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&ctl->hold, __ATOMIC_SEQ_CST))
			return;
		__atomic_store_n(&ctl->moving, 0, __ATOMIC_SEQ_CST);
	}
}

static void permit_release(struct helper *h)
{
	__atomic_store_n(&h->ctl->moving, 0, __ATOMIC_SEQ_CST);
}

/* Pages moved (perhaps fewer: the rest says why when it is tried again), or -errno if none was. */
static long move_pages(struct helper *h, const struct agent_item *it, uint32_t from, uint32_t nr)
{
	struct uffdio_move m;
	long r;

	m.dst = h->staging[it->mode] + (it->staging + from) * PAGE;
	m.src = it->va + from * PAGE;
	m.len = nr * PAGE;
	m.mode = 0;
	m.move = 0;
	r = RAW3(__NR_ioctl, h->move_uffd, UFFDIO_MOVE, &m);
	return r < 0 && m.move <= 0 ? r : (long)m.move / (long)PAGE;
}

/* MOVEs the rest of the item. Returns pages moved by this call, or -errno. Permit held. */
static long move_rest(struct helper *h, struct agent_item *it)
{
	uint32_t done = (uint32_t)it->moved;
	long r;

	if (__atomic_load_n(&it->cancel, __ATOMIC_SEQ_CST))
		return -ECANCELED;
	r = move_pages(h, it, done, it->nr_pages - done);
	if (r > 0)
		__atomic_store_n(&it->moved, it->moved + (int32_t)r, __ATOMIC_SEQ_CST);
	return r;
}

/*
 * EBUSY means shared with a forked process, or pinned. Writing to the page without changing it
 * makes a once-shared page exclusive; what is refused again is pinned and stays. The populate runs
 * outside the permit: it may itself fault, and the reader must be free to answer.
 *
 * `moved` and `rc` change only under the permit. A reader that holds the permit therefore knows of
 * each page whether it is in staging (its index is below `moved`), and with `cancel` set none
 * follows.
 */
static void do_item(struct helper *h, struct agent_item *it)
{
	int populated = h->ctl->no_populate ? 1 : 0;

	for (;;) {
		_Bool settled;
		long r;

		permit_take(h);
		r = move_rest(h, it);
		settled = it->moved == it->nr_pages || (r < 0 && !(r == -EBUSY && !populated));
		if (settled)
			__atomic_store_n(&it->rc, it->moved ? 0 : (int32_t)r, __ATOMIC_SEQ_CST);
		permit_release(h);
		if (settled)
			return;
		if (r == -EBUSY) {
			uint32_t done = (uint32_t)it->moved;

			RAW3(__NR_madvise, it->va + done * PAGE, (it->nr_pages - done) * PAGE,
			     MADV_POPULATE_WRITE);
			populated = 1;
		}
	}
}

/* Does b go on where a ends, in the program and in staging? */
static _Bool continues(const struct agent_item *a, const struct agent_item *b)
{
	return b->mode == a->mode && b->va == a->va + a->nr_pages * PAGE &&
	       b->staging == a->staging + a->nr_pages;
}

/*
 * MOVEs the items of it[0, nr) that lie side by side, from the first on, with one call: a call costs
 * more than the pages it moves, most of all by the word that it sends to the CPU that runs the
 * program. Returns the items that are done; the first of those left, if it was tried, goes the way
 * of do_item(), which learns why it was refused. All of `moved` is noted before the permit goes.
 */
static uint32_t do_neighbours(struct helper *h, struct agent_item *it, uint32_t nr)
{
	uint32_t n = 1, pages = it->nr_pages, done = 0;
	long moved;

	while (!it->moved && n < nr && pages < JOIN_PAGES && continues(&it[n - 1], &it[n]))
		pages += it[n++].nr_pages;
	if (n == 1)
		return 0;
	permit_take(h);
	for (uint32_t k = 0; k < n; k++) {
		if (!__atomic_load_n(&it[k].cancel, __ATOMIC_SEQ_CST))
			continue;
		permit_release(h);
		return 0;
	}
	moved = move_pages(h, it, 0, pages);
	while (moved > 0 && done < n) {
		uint32_t part = moved < it[done].nr_pages ? (uint32_t)moved : it[done].nr_pages;

		__atomic_store_n(&it[done].moved, (int32_t)part, __ATOMIC_SEQ_CST);
		moved -= part;
		if (part < it[done].nr_pages)
			break;
		__atomic_store_n(&it[done++].rc, 0, __ATOMIC_SEQ_CST);
	}
	permit_release(h);
	return done;
}

static void do_items(struct helper *h, struct agent_item *it, uint32_t nr)
{
	for (uint32_t i = 0; i < nr;) {
		uint32_t done = do_neighbours(h, it + i, nr - i);

		if (!done) {
			do_item(h, it + i);
			done = 1;
		}
		i += done;
	}
}

/*
 * Empties the first nr pages of a staging range. Guard markers replace the pages and are removed
 * again: that sends no event, while MADV_DONTNEED would close the gate and wait for the reader.
 * Before Linux 6.13, and where the program has locked all of its memory, the range leaves the
 * userfaultfd for the moment of the DONTNEED.
 */
static long drop_staging(struct helper *h, uint64_t base, uint32_t nr)
{
	struct uffdio_register reg;
	struct uffdio_range range = {.start = base, .len = STAGING_PAGES * PAGE};
	long r;

	if (!h->ctl->no_guard) {
		r = RAW3(__NR_madvise, base, nr * PAGE, MADV_GUARD_INSTALL);
		if (r == 0)
			return RAW3(__NR_madvise, base, nr * PAGE, MADV_GUARD_REMOVE);
		if (r != -EINVAL)
			return r;
	}
	r = RAW3(__NR_ioctl, h->move_uffd, UFFDIO_UNREGISTER, &range);
	if (r < 0)
		return r;
	r = RAW3(__NR_madvise, base, nr * PAGE, MADV_DONTNEED);
	if (r == 0)
		h->ctl->no_guard = 1;
	else if (r == -EINVAL)
		r = RAW3(__NR_madvise, base, nr * PAGE, MADV_DONTNEED_LOCKED);
	agent_zero(&reg, sizeof(reg));
	reg.range = range;
	reg.mode = UFFDIO_REGISTER_MODE_WP;
	if (r == 0)
		r = RAW3(__NR_ioctl, h->move_uffd, UFFDIO_REGISTER, &reg);
	return r;
}

static void do_command(struct helper *h)
{
	struct agent_ctl *ctl = h->ctl;
	uint32_t nr = ctl->nr;

	switch (ctl->cmd) {
	case AGENT_CMD_MOVE:
		do_items(h, ctl->item, nr < BATCH_ITEMS ? nr : BATCH_ITEMS);
		break;
	case AGENT_CMD_DROP:
		ctl->drop_rc = 0;
		for (int mode = 0; mode < NR_AGENT_MODES; mode++) {
			uint32_t pages = ctl->drop_pages[mode];
			long r = 0;

			if (pages && pages <= STAGING_PAGES && h->staging[mode])
				r = drop_staging(h, h->staging[mode], pages);
			if (r < 0)
				ctl->drop_rc = (int32_t)r;
		}
		break;
	case AGENT_CMD_EXIT:
		RAW1(__NR_exit_group, 0);
		break;
	}
}

static void serve(struct helper *h)
{
	struct agent_ctl *ctl = h->ctl;
	uint32_t seen = 0;

	for (;;) {
		uint32_t v;

		while ((v = __atomic_load_n(&ctl->seq, __ATOMIC_ACQUIRE)) == seen)
			if (futex_wait(&ctl->seq, seen, ALIVE_CHECK_NS) == -ETIMEDOUT)
				check_supervisor(h);
		seen = v;
		do_command(h);
		__atomic_store_n(&ctl->done, v, __ATOMIC_RELEASE);
		RAW3(__NR_futex, &ctl->done, FUTEX_WAKE, 1);
	}
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];

	agent_zero(data, sizeof(data));
	RAW2(__NR_capset, &head, data);
	RAW5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/*
 * The program's limits are not the helper's: its time of CPU and its mappings are its own. Up to
 * the hard limits, which the program may set for its children as well.
 */
static void raise_limits(void)
{
	static const uint8_t which[] = {RLIMIT_CPU_, RLIMIT_AS_};

	for (unsigned int i = 0; i < sizeof(which); i++) {
		struct {
			uint64_t cur, max;
		} r;

		if (RAW4(__NR_prlimit64, 0, which[i], 0, &r) < 0)
			continue;
		r.cur = r.max;
		RAW4(__NR_prlimit64, 0, which[i], &r, 0);
	}
}

static void report(uint32_t status)
{
	__atomic_store_n(&agent_local.status, status, __ATOMIC_RELEASE);
	RAW3(__NR_futex, &agent_local.status, FUTEX_WAKE_PRIVATE, 1);
}

/* Sets everything up; returns only on success. */
static void set_up(struct helper *h)
{
	uint64_t all = ~0ull;
	long r;

	RAW0(__NR_setsid);
	RAW4(__NR_rt_sigprocmask, SIG_SETMASK, &all, 0, 8);
	RAW5(__NR_prctl, PR_SET_NAME, "uswap-helper", 0, 0, 0);
	raise_limits();
	/* This table is a copy: closing it neither shows in the program nor drops its locks. */
	if (RAW3(__NR_close_range, 0, ~0u, 0) < 0)
		goto fail;
	h->pidfd = (int)RAW2(__NR_pidfd_open, agent_local.program, 0);
	h->sock = connect_supervisor();
	if (h->pidfd < 0 || h->sock < 0)
		goto fail;
	h->staging[AGENT_MODE_RW] = map_staging(PROT_READ | PROT_WRITE);
	h->staging[AGENT_MODE_RWX] = map_staging(PROT_READ | PROT_WRITE | PROT_EXEC);
	if (!h->staging[AGENT_MODE_RW] || handshake(h) < 0)
		goto fail;
	while ((r = __atomic_load_n(&h->ctl->state, __ATOMIC_ACQUIRE)) == AGENT_STATE_INIT) {
		struct pollfd p = {.fd = h->sock, .events = POLLIN};

		/* The socket's end tells of a supervisor that gave up. */
		if (futex_wait(&h->ctl->state, AGENT_STATE_INIT, 100l * 1000 * 1000) == -ETIMEDOUT &&
		    RAW3(__NR_poll, &p, 1, 0) > 0)
			goto fail;
	}
	RAW1(__NR_close, h->sock);
	if (r != AGENT_STATE_RUN)
		goto fail;
	/* Or the death of mid, which may be late on a busy machine, would look like the supervisor's. */
	while ((h->parent = (int32_t)RAW0(__NR_getppid)) == agent_local.mid)
		RAW0(__NR_sched_yield);
	drop_capabilities();
	if (helper_confine() < 0)
		goto fail;
	agent_local.ctl_nonce = ((volatile struct agent_sentinel *)agent_local.sentinel)->nonce;
	__atomic_store_n(&agent_local.ctl, h->ctl, __ATOMIC_RELEASE);
	return;
fail:
	report(HELPER_FAILED);
	RAW1(__NR_exit_group, 1);
}

void helper_main(void *unused)
{
	struct helper h;

	(void)unused;
	agent_zero(&h, sizeof(h));
	set_up(&h);
	report(HELPER_READY);
	serve(&h);
}
