/* SPDX-License-Identifier: MIT */
/* Recursion six megabytes deep on the main stack and on a thread's, of which the lower frames are
 * swapped out, where the stack can be, before it comes back up. */
#include "behave.h"

#define DEPTH 1200 /* times a page and a bit */

struct frame {
	uint64_t word[PAGE_WORDS];
	struct frame *below;
};

static void check_frame(const struct frame *f, size_t depth, unsigned int seed)
{
	uint64_t tag = page_tag_linear(seed, depth);

	if (!page_matches(f->word, tag))
		fail("frame %zu is wrong", depth);
}

static __attribute__((noinline)) size_t descend(size_t depth, unsigned int seed,
						struct frame *below, bool wait)
{
	volatile struct frame here;
	struct frame *f = (struct frame *)&here;
	size_t n = 1;

	page_fill(f->word, page_tag_linear(seed, depth));
	f->below = below;
	if (depth < DEPTH) {
		n += descend(depth + 1, seed, f, wait);
	} else if (wait) {
		/* From the second frame on, as the first shares a page with others. */
		uintptr_t low = ((uintptr_t)f + 64 * PAGE_BYTES) & ~(PAGE_BYTES - 1);

		await_eviction((void *)low, DEPTH / 2);
		for (size_t d = depth; f; f = f->below, d--)
			check_frame(f, d, seed);
		await_eviction((void *)low, DEPTH / 2);
	}
	check_frame((struct frame *)&here, depth, seed);
	return n;
}

static void *on_a_thread(void *arg)
{
	for (unsigned int round = 0; round < 2; round++)
		must(descend(0, 10 + round, NULL, true) == DEPTH + 1);
	return NULL;
}

int main(void)
{
	pthread_t thread[2];

	must(descend(0, 1, NULL, false) == DEPTH + 1);
	for (int i = 0; i < 2; i++)
		must(pthread_create(&thread[i], NULL, on_a_thread, NULL) == 0);
	must(descend(0, 2, NULL, false) == DEPTH + 1);
	for (int i = 0; i < 2; i++)
		must(pthread_join(thread[i], NULL) == 0);
	return 0;
}
