/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "mm/mm.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/watch.h"
#include "mm/handler.h"
#include "mm/remote.h"
#include "trace/vmstat.h"

LOCK_CLASS(spaces_class, "mm_spaces", RANK_SPACES);
LOCK_CLASS(fills_class, "mm_fills", RANK_SPACES);

struct mm_mutants mm_mutants;

#define PROMPT_PAGES 256u
#define MAX_AHEAD_PAGES 2048u

/* ---- budget ---- */

/*
 * The swap cache gives folios a second chance before they are written to a disk. From memory they
 * come back about as fast as from the cache, so there it would only take room.
 */
static uint64_t cache_target(struct mm *mm)
{
	if (swap_first_in_memory(mm->swap))
		return 0;
	return CLAMP(atomic_load(&mm->limit) / 16, MIB(1), MIB(128));
}

/* Would free be at least min with so many bytes more in use? */
static bool above_min(struct mm *mm, uint64_t bytes)
{
	struct watermarks wm;
	uint64_t limit = reclaim_limit(&mm->reclaim, &wm);

	return atomic_load_explicit(&mm->used, memory_order_relaxed) + wm.min + bytes <= limit;
}

bool mm_room(struct mm *mm, bool urgent)
{
	/*
	 * The same test by which kswapd lets waiters go on: were it stricter by the size of a
	 * folio, a fault could wait for ever while kswapd sees nothing to do. The folio may reach
	 * below min; that is what min is for.
	 */
	if (urgent || above_min(mm, 0))
		return true;
	reclaim_need(&mm->reclaim);
	return false;
}

bool mm_room_ahead(struct mm *mm, uint64_t nr_pages)
{
	return above_min(mm, nr_pages << PAGE_SHIFT);
}

void mm_account_filled(struct mm *mm, uint64_t pages)
{
	uint64_t used = atomic_fetch_add(&mm->used, pages << PAGE_SHIFT);
	uint64_t per_gen = MAX(atomic_load(&mm->limit) >> (PAGE_SHIFT + 2), 64ul);

	/* A quarter of the budget was filled: what was here before is a generation older. */
	if (atomic_fetch_add(&mm->gen_fills, pages) + pages >= per_gen) {
		atomic_store(&mm->gen_fills, 0);
		atomic_fetch_add(&mm->gen, 1);
	}
	reclaim_poke(&mm->reclaim, used + (pages << PAGE_SHIFT));
}

void mm_account_moved(struct mm *mm, uint64_t pages)
{
	uint64_t bytes = pages << PAGE_SHIFT, used = atomic_load(&mm->used);

	while (!atomic_compare_exchange_weak(&mm->used, &used, used > bytes ? used - bytes : 0))
		;
}

int64_t mm_measured(struct mm *mm, uint64_t used_bytes)
{
	uint64_t peak = atomic_load(&mm->peak), limit = atomic_load(&mm->limit);
	uint64_t in_use = used_bytes - MIN(used_bytes, atomic_load(&mm->margin));
	int64_t free_bytes = (int64_t)limit - (int64_t)used_bytes;
	struct watermarks wm;

	while (!atomic_load(&mm->estimated) && in_use > peak &&
	       !atomic_compare_exchange_weak(&mm->peak, &peak, in_use))
		;
	atomic_store(&mm->used, used_bytes);
	(void)reclaim_limit(&mm->reclaim, &wm);
	atomic_store(&mm->short_of_memory,
		     mm->cfg.evict_all ||
			     free_bytes < (int64_t)MAX(MAX(2 * wm.high, limit / 16), MIB(8)));
	reclaim_poke(&mm->reclaim, used_bytes);
	return free_bytes;
}

void mm_set_limit(struct mm *mm, uint64_t bytes)
{
	atomic_store(&mm->limit, bytes);
	reclaim_set_limit(&mm->reclaim, bytes);
}

/* ---- reclaim's ops ---- */

/* The next live space in turn, with a reference; NULL if there is none. */
static struct space *next_space(struct mm *mm)
{
	struct space *s = NULL;

	us_mutex_lock(&mm->spaces_lock);
	if (!list_empty(&mm->spaces)) {
		s = list_first(&mm->spaces, struct space, node);
		list_del(&s->node);
		list_add_tail(&mm->spaces, &s->node);
		space_get(s);
	}
	us_mutex_unlock(&mm->spaces_lock);
	return s;
}

static unsigned int count_spaces(struct mm *mm, uint64_t *resident)
{
	unsigned int n = 0;

	*resident = 0;
	us_mutex_lock(&mm->spaces_lock);
	list_for_each(node, &mm->spaces) {
		n++;
		*resident += list_entry(node, struct space, node)->table.nr_resident;
	}
	us_mutex_unlock(&mm->spaces_lock);
	return n;
}

/* One batch from each space, in proportion to its size. Returns pages moved. */
static uint64_t evict_round(struct mm *mm, uint64_t want, unsigned int min_age, bool *cache_full)
{
	uint64_t resident, got = 0;
	unsigned int n = count_spaces(mm, &resident);

	for (unsigned int i = 0; i < n && got < want && !*cache_full; i++) {
		struct space *s = next_space(mm);
		uint64_t share;
		int64_t r;

		if (!s)
			break;
		share = resident ? want * s->table.nr_resident / resident : 0;
		if (s->table.nr_resident) {
			r = space_evict(s, CLAMP(share, 32ul, (uint64_t)STAGING_PAGES), min_age);
			if (r > 0)
				got += (uint64_t)r;
			*cache_full = r == -ENOBUFS;
		}
		watch_beat(mm->reclaim.watch); /* a frozen program costs a whole patience each */
		space_put(s);
	}
	return got;
}

static uint64_t cached_bytes(struct mm *mm)
{
	struct swap_usage u;

	swap_usage(mm->swap, &u);
	return u.cached_bytes;
}

/*
 * Pages of the cache that may be on their way to disks while the next ones are moved in. They have
 * had most of their second chance, and still can be loaded from where they are: so half of what
 * the cache may hold, which takes no more of the budget.
 */
static uint64_t ahead_pages(uint64_t target)
{
	return MIN(bytes_to_pages(target / 2), MAX_AHEAD_PAGES);
}

static int64_t mm_shrink(void *host, uint64_t nr_pages)
{
	struct mm *mm = host;
	uint64_t before = cached_bytes(mm), after, moved = 0, target = cache_target(mm);
	int64_t freed, wrote = 0;
	bool full = false;

	/* What is written at once is best still in the processor's cache. */
	if (!target)
		nr_pages = MIN(nr_pages, PROMPT_PAGES);
	for (int age = 3; age >= 0 && moved < nr_pages && !full; age--)
		moved += evict_round(mm, nr_pages - moved, (unsigned int)age, &full);
	after = cached_bytes(mm);
	/* Nothing left to move in: what is cached has had its second chance. */
	if (!moved)
		target = 0;
	if (after > target || full)
		wrote = swap_writeout_ahead(mm->swap,
					    full ? nr_pages : bytes_to_pages(after - target),
					    ahead_pages(target));
	atomic_store(&mm->out_of_room, wrote == -ENOSPC);
	after = cached_bytes(mm);
	freed = (int64_t)(moved << PAGE_SHIFT) + (int64_t)before - (int64_t)after;
	if (freed <= 0 && wrote == -ENOSPC)
		return -ENOSPC;
	return MAX(freed, 0);
}

static void mm_settle(void *host)
{
	struct mm *mm = host;

	(void)swap_writeout_settle(mm->swap);
}

static uint64_t mm_used_op(void *host)
{
	struct mm *mm = host;
	uint64_t used = mm->host_ops->measure(mm->host);

	(void)mm_measured(mm, used);
	return used;
}

static void retry_all(struct mm *mm)
{
	uint64_t resident;
	unsigned int n = count_spaces(mm, &resident);

	for (unsigned int i = 0; i < n; i++) {
		struct space *s = next_space(mm);

		if (!s)
			return;
		if (s->nr_deferred)
			space_retry(s);
		space_put(s);
	}
}

static void mm_resume(void *host)
{
	retry_all(host);
}

static bool mm_oom(void *host)
{
	struct mm *mm = host;

	return mm->host_ops->out_of_memory(mm->host);
}

static const struct reclaim_ops mm_reclaim_ops = {
	.used = mm_used_op, .shrink = mm_shrink, .resume = mm_resume, .out_of_memory = mm_oom,
	.settle = mm_settle};

/*
 * Test mode: everything leaves as fast as it can, for STORM_NS. An instruction may need several
 * pages at once, and where faults are slow (sanitizers, a busy machine) a storm takes the first
 * away before the last has come. So after each one there is calm until programs have got on:
 * CALM_FAULTS were served, or nobody has asked for a page for IDLE_NS.
 */
#define STORM_NS (2 * NSEC_PER_MSEC)
#define IDLE_NS (4 * NSEC_PER_MSEC)
#define CALM_FAULTS 64

static void await_calm(struct mm *mm)
{
	uint64_t first = vmstat_get(VMSTAT_pgfault), last = first, since = clock_now_ns();

	while (!atomic_load(&mm->stop) && last - first < CALM_FAULTS &&
	       clock_now_ns() - since < IDLE_NS) {
		uint64_t now;

		clock_sleep_ns(50 * NSEC_PER_USEC);
		now = vmstat_get(VMSTAT_pgfault);
		if (now != last) {
			last = now;
			since = clock_now_ns();
		}
	}
}

static void evict_all_thread(void *arg)
{
	struct mm *mm = arg;

	while (!atomic_load(&mm->stop)) {
		uint64_t start = clock_now_ns();

		while (!atomic_load(&mm->stop) && clock_now_ns() - start < STORM_NS) {
			bool full = false;
			uint64_t got = evict_round(mm, STAGING_PAGES, 0, &full);

			(void)swap_writeout(mm->swap, 1u << 20);
			clock_sleep_ns(got ? 50 * NSEC_PER_USEC : NSEC_PER_MSEC);
		}
		await_calm(mm);
	}
}

/* ---- life ---- */

static int init_fills(struct mm *mm)
{
	us_mutex_init(&mm->fills_lock, &fills_class);
	list_init(&mm->free_fills);
	mm->fill_bufs = mem_reserve(NR_FILLS * MAX_FOLIO_BYTES);
	if (!mm->fill_bufs)
		return -ENOMEM;
	for (unsigned int i = 0; i < NR_FILLS; i++) {
		mm->fill[i].buf = mm->fill_bufs + i * MAX_FOLIO_BYTES;
		list_add_tail(&mm->free_fills, &mm->fill[i].node);
	}
	mm->nr_free_fills = NR_FILLS;
	return 0;
}

int mm_start(struct mm *mm, const struct mm_config *cfg, struct swap *swap,
	     const struct mm_host_ops *ops, void *host)
{
	int r;

	memset(mm, 0, sizeof(*mm));
	mm->cfg = *cfg;
	mm->swap = swap;
	mm->host_ops = ops;
	mm->host = host;
	mm->next_nonce = 1;
	atomic_store(&mm->limit, cfg->limit_bytes);
	us_mutex_init(&mm->spaces_lock, &spaces_class);
	list_init(&mm->spaces);
	list_init(&mm->graveyard);
	r = table_pools_init(&mm->pools);
	if (!r)
		r = mem_pool_init(&mm->space_pool, sizeof(struct space), MAX_SPACES);
	if (!r)
		r = mem_pool_init(&mm->remote_pool, sizeof(struct remote), MAX_SPACES);
	if (!r)
		r = init_fills(mm);
	if (!r)
		r = reclaim_start(&mm->reclaim, &mm_reclaim_ops, mm, cfg->limit_bytes);
	if (!r)
		r = handlers_start(mm);
	if (!r && cfg->evict_all)
		r = us_thread_start(&mm->evictor, "uswap-evict", -1, evict_all_thread, mm);
	return r;
}

void mm_stop(struct mm *mm)
{
	atomic_store(&mm->stop, true);
	us_thread_join(&mm->evictor);
	reclaim_stop(&mm->reclaim);
	handlers_stop(mm);
	/* No handler runs any more, so no grace is needed; loads in flight still hold spaces. */
	for (int i = 0; i < 2000 && !list_empty(&mm->graveyard); i++) {
		mm_tick(mm);
		if (!list_empty(&mm->graveyard))
			clock_sleep_ns(NSEC_PER_MSEC);
	}
	mem_release(mm->fill_bufs, NR_FILLS * MAX_FOLIO_BYTES);
	mem_pool_deinit(&mm->space_pool);
	mem_pool_deinit(&mm->remote_pool);
	table_pools_deinit(&mm->pools);
}

/* ---- spaces ---- */

LOCK_CLASS(batch_class, "space_batch", RANK_BATCH);
LOCK_CLASS(reader_class, "space_reader", RANK_READER);
LOCK_CLASS(space_class, "space", RANK_SPACE);

struct space *space_create(struct mm *mm, const struct space_ops *ops, void *impl)
{
	struct space *s = mem_pool_alloc(&mm->space_pool);

	if (!s)
		return NULL;
	s->ops = ops;
	s->impl = impl;
	s->mm = mm;
	s->fd = s->handler = -1;
	atomic_store(&s->cpu, -1);
	locality_init(&s->locality);
	atomic_store(&s->refs, 1);
	us_mutex_init(&s->batch_lock, &batch_class);
	us_mutex_init(&s->reader_lock, &reader_class);
	us_mutex_init(&s->lock, &space_class);
	table_init(&s->table, &mm->pools);
	list_init(&s->fills);
	return s;
}

void space_publish(struct space *s)
{
	us_mutex_lock(&s->mm->spaces_lock);
	list_add_tail(&s->mm->spaces, &s->node);
	us_mutex_unlock(&s->mm->spaces_lock);
}

void space_get(struct space *s)
{
	atomic_fetch_add(&s->refs, 1);
}

/* The last reference may be dropped with any lock held: freeing is left to mm_tick(). */
void space_put(struct space *s)
{
	atomic_fetch_sub(&s->refs, 1);
}

void space_kill(struct space *s)
{
	struct mm *mm = s->mm;

	if (atomic_exchange(&s->dead, true))
		return;
	us_mutex_lock(&s->batch_lock);
	us_mutex_lock(&s->reader_lock);
	handlers_remove(mm, s);
	us_mutex_lock(&s->lock);
	s->nr_deferred = 0;
	s->nr_items = 0;
	space_drop_range(s, 0, 1ull << 47);
	us_mutex_unlock(&s->lock);
	us_mutex_unlock(&s->reader_lock);
	us_mutex_unlock(&s->batch_lock);
	us_mutex_lock(&mm->spaces_lock);
	list_del(&s->node);
	list_add_tail(&mm->graveyard, &s->node);
	handlers_grace(mm, s);
	us_mutex_unlock(&mm->spaces_lock);
}

static void space_free(struct space *s)
{
	struct mm *mm = s->mm;

	s->ops->destroy(s);
	table_deinit(&s->table);
	ranges_deinit(&s->registered);
	us_mutex_deinit(&s->lock);
	us_mutex_deinit(&s->reader_lock);
	us_mutex_deinit(&s->batch_lock);
	mem_pool_free(&mm->space_pool, s);
}

void mm_tick(struct mm *mm)
{
	for (;;) {
		struct space *found = NULL;

		us_mutex_lock(&mm->spaces_lock);
		list_for_each(n, &mm->graveyard) {
			struct space *s = list_entry(n, struct space, node);

			if (atomic_load(&s->refs) == 1 && handlers_passed(mm, s)) {
				list_del(&s->node);
				found = s;
				break;
			}
		}
		us_mutex_unlock(&mm->spaces_lock);
		if (!found)
			break;
		space_free(found);
	}
	retry_all(mm);
}
