/* SPDX-License-Identifier: MIT */
/*
 * The supervisor: set-up in an order that leaves nothing behind when a step fails, the main loop,
 * and the end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/watch.h"
#include "super/job.h"
#include "sys/node.h"
#include "sys/proc.h"
#include "trace/vmstat.h"

LOCK_CLASS_INHERITS(job_class, "job", RANK_JOB);

#define SCAN_MS 50
#define FRONT_WAIT_NS (5 * NSEC_PER_SEC)
#define LOG_PATIENCE_NS (2 * NSEC_PER_SEC)

static void tell_front(struct job *j, uint32_t kind, int value, int final)
{
	struct front_msg m = {.kind = kind, .value = value, .final = final};

	if (j->front_fd >= 0)
		(void)send(j->front_fd, &m, sizeof(m), MSG_NOSIGNAL);
}

/* ---- set-up ---- */

/* RUNDIR/JOB, mode 0711: programs of other users must reach the agent socket in it. */
static int make_rundir(struct job *j)
{
	char top[160];

	super_rundir(top, sizeof(top));
	if (strlen(top) + 1 + strlen(j->id) > RUNDIR_MAX) {
		log_error("%s: too long for the address of a socket; set XDG_RUNTIME_DIR to a "
			  "directory of at most %zu bytes",
			  top, RUNDIR_MAX - 1 - strlen(j->id) - strlen("/uswap"));
		return -ENAMETOOLONG;
	}
	if (mkdir(top, 0711) != 0 && errno != EEXIST)
		goto fail;
	snprintf(j->rundir, sizeof(j->rundir), "%.*s/%s", RUNDIR_MAX, top, j->id);
	if (mkdir(j->rundir, 0711) != 0 && errno != EEXIST)
		goto fail;
	snprintf(j->socket_path, sizeof(j->socket_path), "%.*s/agent", RUNDIR_MAX, j->rundir);
	return 0;
fail:
	log_error("%s: %s; set XDG_RUNTIME_DIR to a directory that can be written", top,
		  strerror(errno));
	return -errno;
}

static void remove_rundir(struct job *j)
{
	char path[256];

	if (!j->rundir[0])
		return;
	snprintf(path, sizeof(path), "%s/ctl", j->rundir);
	(void)unlink(path);
	(void)unlink(j->socket_path);
	(void)rmdir(j->rundir);
}

static int open_uffd_device(void)
{
	int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		log_error("/dev/userfaultfd: %s; see `uswap check`", strerror(errno));
	return fd < 0 ? -errno : fd;
}

static int setup_epoll(struct job *j)
{
	struct itimerspec its = {.it_interval.tv_nsec = SCAN_MS * 1000000,
				 .it_value.tv_nsec = SCAN_MS * 1000000};
	struct epoll_event ev = {.events = EPOLLIN};
	sigset_t set;

	sigfillset(&set);
	j->stop_fd = eventfd(0, EFD_CLOEXEC);
	j->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	j->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	j->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (j->stop_fd < 0 || j->signal_fd < 0 || j->timer_fd < 0 || j->epoll_fd < 0 ||
	    timerfd_settime(j->timer_fd, 0, &its, NULL) != 0)
		return -errno;
	ev.data.u64 = (uint32_t)j->signal_fd;
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, j->signal_fd, &ev);
	ev.data.u64 = (uint32_t)j->timer_fd;
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, j->timer_fd, &ev);
	ev.data.u64 = (uint32_t)j->front_fd;
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_ADD, j->front_fd, &ev);
	return 0;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

/*
 * The pager must not be paged, nor be the first victim of the kernel's OOM killer: its death ends
 * the job. Best effort; after the command was forked, which must not inherit any of it.
 */
static void harden_self(void)
{
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	(void)mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
	write_text("/proc/self/oom_score_adj", "-900");
}

static const struct mm_host_ops host_ops = {.measure = job_measure,
					     .out_of_memory = job_out_of_memory};

static unsigned int cpu_node(void *host, unsigned int cpu)
{
	struct job *j = host;
	int node;

	if (j->cfg->nr_cpu_nodes)
		return j->cfg->cpu_node[cpu % j->cfg->nr_cpu_nodes];
	node = node_of_cpu("", cpu);
	return node < 0 ? 0 : (unsigned int)node;
}

static int create_engine(struct job *j)
{
	struct swap_config sc = {.cache_bytes = CLAMP(j->cfg->ram_bytes / 8, MIB(4), MIB(256)),
				 .node_of_cpu = cpu_node,
				 .host = j};
	int err = hash_init();

	if (err)
		return err;
	j->swap = swap_create(&sc, &err);
	if (!j->swap) {
		if (err != -ENOMEM || !limits_explain_enomem())
			log_error("the swap engine: %s", strerror(-err));
		return err;
	}
	err = tiers_create(j);
	return err ? err : devices_create(j);
}

static int start_mm(struct job *j)
{
	struct mm_config mc = {.limit_bytes = j->cfg->ram_bytes,
			       .order = j->cfg->order,
			       .evict_all = j->cfg->evict_all};
	int err = mm_start(&j->mm, &mc, j->swap, &host_ops, j);

	if (err)
		log_error("starting the memory manager: %s", strerror(-err));
	return err;
}

/* ---- the main loop ---- */

static bool job_is_empty(struct job *j)
{
	bool empty;

	us_mutex_lock(&j->lock);
	empty = j->nr_procs == 0;
	us_mutex_unlock(&j->lock);
	return empty;
}

/*
 * The front stopped because the command did. A shell's `fg` continues both, as they are of one
 * group; but whoever continued the command alone does not know of the front. It may get the word
 * to stop only after this, so it is looked at until it has answered.
 */
static void continue_front(struct job *j)
{
	char comm[16], state;
	pid_t ppid;

	if (j->front_stops && proc_stat(j->front, &ppid, &state, comm) == 0 && state == 'T')
		(void)kill(j->front, SIGCONT);
}

/* Reads the front's answers. False: it has gone. */
static bool read_front(struct job *j)
{
	char answers[16];
	ssize_t n;

	while ((n = recv(j->front_fd, answers, sizeof(answers), MSG_DONTWAIT)) > 0)
		j->front_stops -= MIN(j->front_stops, (unsigned int)n);
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* The last word is said: a front that stops only now would stay so for ever. */
static void let_front_end(struct job *j)
{
	uint64_t end = clock_now_ns() + FRONT_WAIT_NS;

	while (j->front_fd >= 0 && j->front_stops && clock_now_ns() < end && read_front(j)) {
		continue_front(j);
		clock_sleep_ns(NSEC_PER_MSEC);
	}
}

static void command_changed(struct job *j, int st)
{
	if (WIFSTOPPED(st)) {
		j->command_stopped = true;
		if (j->front_fd >= 0)
			j->front_stops++;
		tell_front(j, FRONT_STOPPED, WSTOPSIG(st), 0);
	} else if (WIFCONTINUED(st)) {
		j->command_stopped = false;
		tell_front(j, FRONT_CONTINUED, 0, 0);
		continue_front(j);
	} else if (WIFEXITED(st) || WIFSIGNALED(st)) {
		j->command_stopped = false;
		continue_front(j);
		j->command_ended = true;
		j->command_status = st;
	}
}

static void reap(struct job *j)
{
	pid_t p;
	int st;

	while ((p = waitpid(-1, &st, WNOHANG | WUNTRACED | WCONTINUED | __WALL)) > 0) {
		if (p == j->command)
			command_changed(j, st);
		if (p == j->keeper && !WIFSTOPPED(st) && !WIFCONTINUED(st))
			j->keeper = 0;
		if (WIFEXITED(st) || WIFSIGNALED(st))
			proc_ended(j, p);
	}
}

void job_kill_all(struct job *j)
{
	us_mutex_lock(&j->lock);
	list_for_each(n, &j->procs) {
		struct proc *p = list_entry(n, struct proc, node);

		(void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	}
	us_mutex_unlock(&j->lock);
}

/* The front process went although the command runs: somebody killed it, so the job ends too. */
static void front_gone(struct job *j)
{
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_DEL, j->front_fd, NULL);
	close(j->front_fd);
	j->front_fd = -1;
	if (!j->command_ended) {
		log_error("uswap was killed: the job is ended");
		j->ending = true;
		job_kill_all(j);
	}
}

static void on_timer(struct job *j)
{
	uint64_t ticks;

	(void)!read(j->timer_fd, &ticks, sizeof(ticks));
	procs_scan(j, false);
	if (!j->command_stopped)
		continue_front(j);
	if (j->ending)
		job_kill_all(j);
}

static void on_event(struct job *j, uint64_t data)
{
	int fd = (int)(uint32_t)data;
	pid_t pid = (pid_t)(data >> 32);

	if (pid) {
		proc_ended(j, pid);
	} else if (fd == j->signal_fd) {
		struct signalfd_siginfo si;

		/* Signals sent to the supervisor itself are of no meaning: the front has them. */
		while (read(j->signal_fd, &si, sizeof(si)) == sizeof(si))
			;
		reap(j);
	} else if (fd == j->timer_fd) {
		on_timer(j);
	} else if (fd == j->front_fd) {
		if (!read_front(j))
			front_gone(j);
	} else if (fd == j->agent_listen[0] || fd == j->agent_listen[1]) {
		hello_accept(j, fd);
	} else if (fd != refused_fd()) {
		hello_readable(j, fd);
	}
}

static void progress(struct job *j)
{
	static uint64_t last;
	uint64_t now = clock_now_ns();
	struct swap_usage u;

	if (!log_enabled(LOG_INFO) || now - last < NSEC_PER_SEC)
		return;
	last = now;
	swap_usage(j->swap, &u);
	log_info("in use %llu of %llu MiB; cached %llu, pool %llu, swapped %llu MiB; out %llu, in "
		 "%llu MiB",
		 (unsigned long long)(atomic_load(&j->mm.used) >> 20),
		 (unsigned long long)(atomic_load(&j->mm.limit) >> 20),
		 (unsigned long long)(u.cached_bytes >> 20), (unsigned long long)(u.pool_bytes >> 20),
		 (unsigned long long)(u.swapped_pages >> 8),
		 (unsigned long long)((vmstat_get(VMSTAT_pswpout) + vmstat_get(VMSTAT_zswpout)) >> 8),
		 (unsigned long long)((vmstat_get(VMSTAT_pswpin) + vmstat_get(VMSTAT_zswpin)) >> 8));
}

/* The command ended but others of the job live on: the front goes, its place is given back. */
static void release_front(struct job *j)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)report_write(j);
	tell_front(j, FRONT_ENDED, j->command_status, 0);
	let_front_end(j);
	(void)epoll_ctl(j->epoll_fd, EPOLL_CTL_DEL, j->front_fd, NULL);
	close(j->front_fd);
	j->front_fd = -1;
	/* Whoever waits for the end of our standard error must not wait for daemons. */
	if (null >= 0) {
		(void)dup2(null, STDERR_FILENO);
		close(null);
	}
}

static void main_loop(struct job *j)
{
	struct epoll_event ev[32];

	for (;;) {
		int n = epoll_wait(j->epoll_fd, ev, 32, -1);

		watch_beat(j->watch);
		refused_look(j);
		for (int i = 0; i < n; i++) {
			on_event(j, ev[i].data.u64);
			watch_beat(j->watch);
		}
		progress(j);
		if (!j->command_ended)
			continue;
		/*
		 * A daemon's child may have been orphaned before anybody saw it: it is a child of
		 * this process now, or its space stands although no process is known for it.
		 */
		if (job_is_empty(j)) {
			procs_scan(j, true);
			if (job_is_empty(j) && !procs_space_without_owner(j))
				return;
		}
		if (j->front_fd >= 0 && !j->ending)
			release_front(j);
	}
}

/* ---- the end ---- */

static void retire_everything(struct job *j)
{
	for (;;) {
		struct space *s = NULL;

		us_mutex_lock(&j->mm.spaces_lock);
		if (!list_empty(&j->mm.spaces)) {
			s = list_first(&j->mm.spaces, struct space, node);
			space_get(s);
		}
		us_mutex_unlock(&j->mm.spaces_lock);
		if (!s)
			return;
		space_kill(s);
		space_put(s);
		watch_beat(j->watch);
	}
}

static void shut_down(struct job *j)
{
	uint64_t one = 1;

	atomic_store(&j->stop, true);
	(void)!write(j->stop_fd, &one, sizeof(one));
	us_thread_join(&j->growth);
	us_thread_join(&j->ctl);
	swapctl_join(j);
	retire_everything(j);
	mm_stop(&j->mm);
	(void)report_write(j);
	swap_destroy(j->swap);
	keeper_stop(j);
	/* Helpers were ended with their spaces; nothing of ours may be left to others to reap. */
	for (int i = 0; i < 200 && waitpid(-1, NULL, WNOHANG | __WALL) >= 0; i++)
		clock_sleep_ns(NSEC_PER_MSEC);
	remove_rundir(j);
}

static int fail(struct job *j, int status)
{
	if (j->swap)
		swap_destroy(j->swap);
	devices_forget(j);
	keeper_stop(j);
	remove_rundir(j);
	tell_front(j, FRONT_FAILED, status, 1);
	return status;
}

static int refuse_if_strict(struct job *j)
{
	char reason[REASON_BYTES];

	if (!unmanaged_reason_file(j->cfg->argv[0], reason, sizeof(reason)))
		return 0;
	if (j->cfg->strict) {
		log_error("%s cannot be managed: %s; --strict: not started", j->cfg->argv[0],
			  reason);
		return -EPERM;
	}
	/* Now: it may be gone before the first look at the processes. */
	if (j->cfg->verbose >= 0)
		log_note("%s is not managed: %s", j->cfg->argv[0], reason);
	snprintf(j->command_reason, sizeof(j->command_reason), "%s", reason);
	return 0;
}

static int prepare(struct job *j)
{
	int err;

	us_mutex_init(&j->lock, &job_class);
	list_init(&j->procs);
	list_init(&j->ended);
	j->uffd_dev = open_uffd_device();
	if (j->uffd_dev < 0)
		return j->uffd_dev;
	err = find_agent(j->agent_path, sizeof(j->agent_path));
	if (!err)
		err = refuse_if_strict(j);
	if (!err)
		err = mem_pool_init(&j->proc_pool, sizeof(struct proc), MAX_PROCS + 64);
	/* Before any thread and any table: see keeper.c. */
	if (!err)
		err = keeper_start(j);
	if (!err)
		err = create_engine(j);
	if (!err)
		err = make_rundir(j);
	return err;
}

int supervisor_main(const struct run_config *cfg, int front_fd, pid_t front)
{
	static struct job job;
	struct job *j = &job;
	struct proc *first;
	int err, failure = SUPER_EXIT_FAILURE;

	j->cfg = cfg;
	j->front_fd = front_fd;
	j->front = front;
	j->started_ns = clock_now_ns();
	snprintf(j->id, sizeof(j->id), "%d", (int)front);
	hooks_read();
	limits_raise();
	(void)prctl(PR_SET_NAME, "uswap-super");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	err = limits_too_few_descriptors() ? -EMFILE : prepare(j);
	if (err)
		return fail(j, SUPER_EXIT_FAILURE);
	j->self_statm_fd = proc_open(getpid(), "statm");
	err = setup_epoll(j);
	if (!err)
		err = hello_listen(j);
	if (err) {
		log_error("set-up: %s", strerror(-err));
		return fail(j, SUPER_EXIT_FAILURE);
	}
	refused_watch(j);
	j->command = spawn_command(j, &failure);
	if (j->command < 0)
		return fail(j, failure);
	/*
	 * The command is in the user's process group and session, and we leave both: a parent in
	 * another group of the same session would keep an orphaned group from being one, and at the
	 * command's end the kernel would hang up the group if anybody in it was stopped. Till here
	 * all signals are blocked.
	 */
	(void)setsid();
	tell_front(j, FRONT_STARTED, j->command, 0);
	harden_self();
	if (log_start(STDERR_FILENO, cfg->verbose < 0   ? LOG_ERROR
				     : cfg->verbose > 0 ? LOG_INFO
							: LOG_NOTE) != 0 ||
	    start_mm(j) != 0 || growth_start(j) != 0 || ctl_start(j) != 0) {
		log_error("starting threads failed");
		kill(j->command, SIGKILL);
		return fail(j, SUPER_EXIT_FAILURE);
	}
	us_mutex_lock(&j->lock);
	first = proc_add(j, j->command, getpid());
	if (first && j->command_reason[0]) {
		memcpy(first->reason, j->command_reason, sizeof(first->reason));
		first->named = true;
		vmstat_add(VMSTAT_exec_unmanaged, 1);
	}
	us_mutex_unlock(&j->lock);
	j->watch = watch_start("main loop");
	main_loop(j);
	shut_down(j);
	log_stop(LOG_PATIENCE_NS);
	tell_front(j, FRONT_ENDED, j->command_status, 1);
	let_front_end(j);
	return 0;
}
