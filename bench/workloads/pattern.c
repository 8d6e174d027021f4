/* SPDX-License-Identifier: MIT */
/*
 * The synthetic workloads: fills private anonymous memory, then visits its pages in an order.
 *
 * Every page is checked whole at every visit that reads it, and once more at the end where the
 * visits need not have come to all. The time of a touch is that of one access to the page, before
 * the rest of it is looked at: clock_gettime around it, some 50 ns a visit, in every arm alike.
 * Threads have a slice of the pages each. Own memory: a byte a page for its version.
 *
 * Exit status: 0; 1 if any content was wrong; 2 bad usage or no memory.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>

#include "content.h"
#include "order.h"
#include "result.h"

#define THREADS_MAX 4
#define HUGE_BYTES (2ul << 20)
#define WRONG_SHOWN 5

enum action { ACTION_FILL, ACTION_REWRITE, ACTION_VISIT };

struct pattern {
	const char *name;
	enum action measured;
	enum order_kind order;
	unsigned int passes, write_percent;
	bool visits_all; /* no closing check is needed */
};

static const struct pattern patterns[] = {
	{"fill", ACTION_FILL, ORDER_FORWARD, 1, 100, false},
	{"seq-write", ACTION_REWRITE, ORDER_FORWARD, 4, 100, false},
	{"seq-read", ACTION_VISIT, ORDER_FORWARD, 4, 0, true},
	{"backward", ACTION_VISIT, ORDER_BACKWARD, 4, 0, true},
	{"stride", ACTION_VISIT, ORDER_STRIDE, 4, 0, true},
	{"random", ACTION_VISIT, ORDER_UNIFORM, 4, 0, false},
	{"zipf", ACTION_VISIT, ORDER_ZIPF, 8, 10, false},
	{"hot+scan", ACTION_VISIT, ORDER_HOT_SCAN, 8, 0, false},
	{"phase", ACTION_VISIT, ORDER_PHASE, 8, 50, false},
};

static struct options {
	const struct pattern *pattern;
	uint64_t bytes, stride, seed;
	unsigned int threads, passes, write_percent;
	double stored;
	const char *plant;
	bool describe;
} opt = {.stride = 33, .seed = 1, .threads = 1, .stored = 0.4};

static struct content content;
static char *pages;
static uint8_t *versions;
static uint64_t nr_pages;
static struct hist touch_times;
static _Atomic uint64_t checked, wrong;

struct worker {
	pthread_t thread;
	enum action action;
	enum order_kind order;
	unsigned int passes, write_percent;
	uint64_t first, nr; /* its slice */
	bool timed;
	struct hist *touch;
	uint64_t checked;
};

static void report_wrong(uint64_t page)
{
	if (wrong++ < WRONG_SHOWN)
		fprintf(stderr, "%s: page %llu is wrong: %s\n", opt.pattern->name,
			(unsigned long long)page,
			content_judge(&content, pages + page * PAGE_BYTES, page, versions[page]));
}

static void write_page(uint64_t page)
{
	content_fill(&content, pages + page * PAGE_BYTES, page, versions[page]);
}

static void touch(struct worker *w, uint64_t page, bool store)
{
	volatile uint64_t *word = (void *)(pages + page * PAGE_BYTES);
	uint64_t before;

	if (!w->timed)
		return;
	before = clock_ns();
	if (store)
		*word = 0;
	else
		(void)*word;
	hist_add(w->touch, clock_ns() - before);
}

static void visit(struct worker *w, uint64_t page, bool rewrite)
{
	touch(w, page, w->action != ACTION_VISIT);
	if (w->action == ACTION_VISIT) {
		w->checked++;
		if (!content_is(&content, pages + page * PAGE_BYTES, page, versions[page]))
			report_wrong(page);
	}
	if (!rewrite)
		return;
	if (w->action != ACTION_FILL)
		versions[page]++;
	write_page(page);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t random = mix64(opt.seed ^ w->first) | 1;
	struct order order;

	order_init(&order, w->order, w->nr, opt.stride, opt.seed + w->first);
	for (uint64_t left = w->passes * w->nr; left; left--)
		visit(w, w->first + order_next(&order),
		      w->write_percent == 100 ||
			      (w->write_percent &&
			       (random_next(&random) >> 32) % 100 < w->write_percent));
	checked += w->checked;
	return NULL;
}

/* Seconds that all threads took, each over its slice. */
static double run_phase(struct worker how)
{
	static struct hist touch[THREADS_MAX];
	struct worker workers[THREADS_MAX];
	uint64_t before = clock_ns(), each = nr_pages / opt.threads;
	unsigned int started = 0;

	for (unsigned int i = 0; i < opt.threads; i++) {
		struct worker *w = &workers[i];

		*w = how;
		w->first = i * each;
		w->nr = i + 1 == opt.threads ? nr_pages - w->first : each;
		w->touch = &touch[i];
		if (opt.threads == 1)
			work(w);
		else if (pthread_create(&w->thread, NULL, work, w))
			break;
		started++;
	}
	for (unsigned int i = 0; opt.threads > 1 && i < started; i++)
		pthread_join(workers[i].thread, NULL);
	if (started < opt.threads) {
		fprintf(stderr, "%s: cannot start a thread\n", opt.pattern->name);
		exit(2);
	}
	for (unsigned int i = 0; how.timed && i < opt.threads; i++)
		result_merge(&touch_times, &touch[i]);
	return (double)(clock_ns() - before) / 1e9;
}

/* What a broken swap would leave, so that a test can see it found. False: no such kind. */
static bool plant(const char *kind)
{
	uint64_t page = nr_pages / PARTS / 2;
	char *at = pages + page * PAGE_BYTES;

	if (!strcmp(kind, "bit"))
		at[PAGE_BYTES - 1] ^= 0x10;
	else if (!strcmp(kind, "zero"))
		memset(at, 0, PAGE_BYTES);
	else if (!strcmp(kind, "stale"))
		content_fill(&content, at, page, (uint8_t)(versions[page] - 1));
	else if (!strcmp(kind, "other"))
		content_fill(&content, at, page + 1, versions[page + 1]);
	else
		return false;
	return true;
}

static int run(void)
{
	const struct pattern *p = opt.pattern;
	struct worker fill = {.action = ACTION_FILL, .order = ORDER_FORWARD, .passes = 1,
			      .write_percent = 100, .timed = p->measured == ACTION_FILL};
	struct worker measured = {.action = p->measured, .order = p->order, .passes = opt.passes,
				  .write_percent = opt.write_percent, .timed = true};
	struct worker check = {.action = ACTION_VISIT, .order = ORDER_FORWARD, .passes = 1};
	struct result r = {.touch = &touch_times};

	result_phase(&r, "fill", run_phase(fill), p->measured == ACTION_FILL);
	if (opt.plant && p->measured == ACTION_VISIT)
		plant(opt.plant);
	if (p->measured != ACTION_FILL)
		result_phase(&r, p->name, run_phase(measured), true);
	/* What writes only would hide it. */
	if (opt.plant && p->measured != ACTION_VISIT)
		plant(opt.plant);
	if (!p->visits_all)
		result_phase(&r, "check", run_phase(check), false);
	r.checked = checked;
	r.wrong = wrong;
	if (result_write(&r, p->name))
		return 2;
	if (wrong)
		fprintf(stderr, "%s: %llu of %llu pages read were wrong\n", p->name,
			(unsigned long long)wrong, (unsigned long long)checked);
	return wrong != 0;
}

static void describe(void)
{
	printf("{\"bytes\": %llu, \"threads\": %u, \"passes\": %u, \"write_percent\": %u, "
	       "\"stride_pages\": %llu, \"seed\": %llu, \"stored\": %.3f, \"stored_64k\": %.3f}\n",
	       (unsigned long long)opt.bytes, opt.threads, opt.passes, opt.write_percent,
	       (unsigned long long)(opt.pattern->order == ORDER_STRIDE ? opt.stride : 0),
	       (unsigned long long)opt.seed, content.stored, content_measure(&content, 16));
}

static int usage(void)
{
	fprintf(stderr,
		"usage: pattern NAME -m BYTES [options]\n"
		"  -t, --threads N    1 to 4 (1)       -p, --passes N     as many visits as pages\n"
		"  -w, --write PCT    of the visits    -s, --seed N       (1)\n"
		"  -c, --compress R   what lz4 stores as a part of the plain size, 0.05 to 1 (0.4)\n"
		"      --stride N     pages (33)       --describe         the settings as JSON\n"
		"      --plant KIND   one wrong page: bit, zero, stale, other\n"
		"NAME:");
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		fprintf(stderr, " %s", patterns[i].name);
	fputc('\n', stderr);
	return 2;
}

/* A whole number from min to max. */
static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *value >= min && *value <= max;
}

static bool take(int c, const char *text)
{
	uint64_t n = 0;
	bool good = true;
	char *end;

	switch (c) {
	case 'm':
		opt.bytes = parse_bytes(text) & ~(PAGE_BYTES - 1);
		break;
	case 't':
		good = number(text, 1, THREADS_MAX, &n);
		opt.threads = (unsigned int)n;
		break;
	case 'p':
		good = number(text, 1, 1000000, &n);
		opt.passes = (unsigned int)n;
		break;
	case 'w':
		good = number(text, 0, 100, &n) && opt.pattern->measured == ACTION_VISIT;
		opt.write_percent = (unsigned int)n;
		break;
	case 's':
		good = number(text, 0, UINT64_MAX, &opt.seed);
		break;
	case 'S':
		good = number(text, 1, UINT32_MAX, &opt.stride);
		break;
	case 'c':
		opt.stored = strtod(text, &end);
		good = end != text && !*end && opt.stored >= CONTENT_STORED_MIN && opt.stored <= 1;
		break;
	case 'P':
		opt.plant = text;
		good = !strcmp(text, "bit") || !strcmp(text, "zero") || !strcmp(text, "stale") ||
		       !strcmp(text, "other");
		break;
	case 'd':
		opt.describe = true;
		break;
	default:
		return false; /* getopt has said why */
	}
	if (!good)
		fprintf(stderr, "pattern %s: bad value: %s\n", opt.pattern->name, text);
	return good;
}

static bool map_memory(void)
{
	char *p = mmap(NULL, opt.bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	versions = mmap(NULL, nr_pages, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED || versions == MAP_FAILED) {
		perror("pattern: mmap");
		return false;
	}
	/* Aligned, or huge pages would depend on luck. Whether there are any, the system decides. */
	pages = (char *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	return true;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"threads", required_argument, NULL, 't'}, {"passes", required_argument, NULL, 'p'},
		{"write", required_argument, NULL, 'w'},   {"seed", required_argument, NULL, 's'},
		{"compress", required_argument, NULL, 'c'}, {"stride", required_argument, NULL, 'S'},
		{"describe", no_argument, NULL, 'd'},	   {"plant", required_argument, NULL, 'P'},
		{NULL, 0, NULL, 0},
	};
	int c;

	for (size_t i = 0; argc > 1 && i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strcmp(argv[1], patterns[i].name))
			opt.pattern = &patterns[i];
	if (!opt.pattern)
		return usage();
	opt.passes = opt.pattern->passes;
	opt.write_percent = opt.pattern->write_percent;
	while ((c = getopt_long(argc - 1, argv + 1, "m:t:p:w:s:c:", longs, NULL)) != -1)
		if (!take(c, optarg))
			return usage();
	nr_pages = opt.bytes / PAGE_BYTES;
	if (optind + 1 < argc || nr_pages < THREADS_MAX * PARTS * 2)
		return usage();
	content_init(&content, opt.seed, opt.stored, PAGE_BYTES);
	if (opt.describe) {
		describe();
		return 0;
	}
	return map_memory() ? run() : 2;
}
