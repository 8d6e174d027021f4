/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "mm/handler.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/watch.h"

/* Services between two looks where the program runs: a look takes half as long as a fault. */
#define SAMPLE_MIN 16u
#define SAMPLE_MAX 256u
#define EVENTS 16
#define IDLE_MS 50

/* The handler that serves on cpu, or any. */
static int handler_for_cpu(struct mm *mm, int cpu)
{
	for (int i = 0; i < mm->nr_handlers; i++)
		if (mm->handler[i].cpu == cpu)
			return i;
	return -1;
}

/* Moves s to the handler of the CPU where its program runs. */
static void follow(struct mm *mm, struct space *s, int me)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};
	int to, cpu;

	s->services++;
	if (s->sample_in) {
		s->sample_in--;
		return;
	}
	if (!s->ops->program_cpu)
		return;
	cpu = s->ops->program_cpu(s);
	atomic_store_explicit(&s->cpu, cpu, memory_order_relaxed);
	to = cpu < 0 ? -1 : handler_for_cpu(mm, cpu);
	s->sample_every = to == me ? CLAMP(2 * s->sample_every, SAMPLE_MIN, SAMPLE_MAX) : SAMPLE_MIN;
	s->sample_in = s->sample_every;
	if (to < 0 || to == me)
		return;
	us_mutex_lock(&s->reader_lock);
	if (!atomic_load(&s->dead) && s->handler == me &&
	    epoll_ctl(mm->handler[me].epoll_fd, EPOLL_CTL_DEL, s->fd, NULL) == 0) {
		s->handler = to;
		(void)epoll_ctl(mm->handler[to].epoll_fd, EPOLL_CTL_ADD, s->fd, &ev);
	}
	us_mutex_unlock(&s->reader_lock);
}

static void handler_thread(void *arg)
{
	struct handler *h = arg;
	struct mm *mm = h->mm;
	int me = (int)(h - mm->handler);
	struct watch *watch;
	char name[32];

	snprintf(name, sizeof(name), "fault handler %d", me);
	watch = watch_start(name);
	/* A fault waits for this thread: it goes before the programs it serves. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -15);
	while (!atomic_load(&mm->stop)) {
		struct epoll_event ev[EVENTS];
		int n = epoll_wait(h->epoll_fd, ev, EVENTS, IDLE_MS);

		for (int i = 0; i < n; i++) {
			struct space *s = ev[i].data.ptr;

			if (!s)
				continue;
			space_service(s);
			follow(mm, s, me);
		}
		/* Only now is no pointer of this round held any more. */
		atomic_fetch_add(&h->passes, 1);
		watch_beat(watch);
	}
	watch_stop(watch);
}

int handlers_start(struct mm *mm)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.ptr = NULL};
	cpu_set_t set;

	mm->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (mm->wake_fd < 0)
		return -errno;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE && mm->nr_handlers < MAX_HANDLERS; cpu++) {
		struct handler *h = &mm->handler[mm->nr_handlers];
		int r;

		if (!CPU_ISSET(cpu, &set))
			continue;
		h->mm = mm;
		h->cpu = cpu;
		h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (h->epoll_fd < 0 ||
		    epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, mm->wake_fd, &wake) != 0)
			return -errno;
		r = us_thread_start(&h->thread, "uswap-fault", cpu, handler_thread, h);
		if (r)
			return r;
		mm->nr_handlers++;
	}
	return mm->nr_handlers ? 0 : -ENODEV;
}

void handlers_stop(struct mm *mm)
{
	uint64_t one = 1;

	/* Never read, so every handler sees it. */
	(void)!write(mm->wake_fd, &one, sizeof(one));
	for (int i = 0; i < mm->nr_handlers; i++) {
		us_thread_join(&mm->handler[i].thread);
		close(mm->handler[i].epoll_fd);
	}
	mm->nr_handlers = 0;
	close(mm->wake_fd);
}

int handlers_add(struct mm *mm, struct space *s, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};
	static atomic_uint spread;

	s->fd = fd;
	s->handler = (int)(atomic_fetch_add(&spread, 1) % (unsigned int)mm->nr_handlers);
	if (epoll_ctl(mm->handler[s->handler].epoll_fd, EPOLL_CTL_ADD, fd, &ev))
		return -errno;
	return 0;
}

void handlers_remove(struct mm *mm, struct space *s)
{
	us_mutex_assert_held(&s->reader_lock);
	if (s->fd >= 0 && s->handler >= 0)
		(void)epoll_ctl(mm->handler[s->handler].epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	s->handler = -1;
}

void handlers_grace(struct mm *mm, struct space *s)
{
	for (int i = 0; i < mm->nr_handlers; i++)
		s->grace[i] = atomic_load(&mm->handler[i].passes);
}

bool handlers_passed(struct mm *mm, const struct space *s)
{
	for (int i = 0; i < mm->nr_handlers; i++)
		if (atomic_load(&mm->handler[i].passes) == s->grace[i])
			return false;
	return true;
}
