/* SPDX-License-Identifier: MIT */
/*
 * PageRank of a graph with a skewed degree, in compressed sparse rows.
 *
 *   pagerank -n VERTICES [-d DEGREE] [-i ITERATIONS] [-s SEED] [-x CHECKSUM]
 *
 * The graph is made in memory from the seed, twice the same. Each vertex pulls the ranks of those
 * that point at it: the rows are read in order, the ranks at random. Every sum has one order, so
 * the ranks are the same to the bit in every run, and so is the checksum over them and the graph.
 * It is printed; with -x another one is wrong, and the exit status is 1. 2: bad usage, no memory.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "../../tests/stress/pages.h"
#include "result.h"

#define DAMPING 0.85

static uint64_t nr_vertices, degree = 16, seed = 1;
static uint64_t *rows;	   /* [v]: where the sources of v begin; rows[nr_vertices] is the end */
static uint32_t *sources;
static uint32_t *out_degree;
static double *rank, *share;

static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("pagerank: mmap");
		exit(2);
	}
	return p;
}

/* Few vertices have many links: the square of a uniform number, as one of 2^32. */
static uint32_t popular(uint64_t random)
{
	uint64_t u = random >> 32;

	return (uint32_t)((u * u >> 32) * nr_vertices >> 32);
}

/* The number of links that come to v: 1 to 2 degree - 1, from its own number alone. */
static uint64_t in_degree(uint64_t v)
{
	return 1 + mix64(mix64(seed) ^ v) % (2 * degree - 1);
}

static void make_graph(void)
{
	uint64_t edges = 0;

	rows = map((nr_vertices + 1) * sizeof(*rows));
	for (uint64_t v = 0; v < nr_vertices; v++) {
		rows[v] = edges;
		edges += in_degree(v);
	}
	rows[nr_vertices] = edges;
	sources = map(edges * sizeof(*sources));
	out_degree = map(nr_vertices * sizeof(*out_degree));
	rank = map(nr_vertices * sizeof(*rank));
	share = map(nr_vertices * sizeof(*share));
	for (uint64_t e = 0; e < edges; e++) {
		/* Popular ones are spread: neighbours in number need not be in importance. */
		uint64_t from = popular(mix64(e ^ mix64(seed + 1)));

		sources[e] = (uint32_t)(from * 0x9e3779b1u % nr_vertices);
		out_degree[sources[e]]++;
	}
	for (uint64_t v = 0; v < nr_vertices; v++)
		rank[v] = 1.0 / (double)nr_vertices;
}

static void iterate(void)
{
	double dangling = 0, base;

	for (uint64_t v = 0; v < nr_vertices; v++) {
		share[v] = out_degree[v] ? rank[v] / out_degree[v] : 0;
		dangling += out_degree[v] ? 0 : rank[v];
	}
	base = (1 - DAMPING + DAMPING * dangling) / (double)nr_vertices;
	for (uint64_t v = 0; v < nr_vertices; v++) {
		double sum = 0;

		for (uint64_t e = rows[v]; e < rows[v + 1]; e++)
			sum += share[sources[e]];
		rank[v] = base + DAMPING * sum;
	}
}

static uint64_t sum_words(uint64_t sum, const void *from, uint64_t bytes)
{
	const uint64_t *w = from;

	for (uint64_t i = 0; i < bytes / 8; i++)
		sum = mix64(sum ^ w[i]);
	return sum;
}

/* Of all that is in memory: a page that came back wrong and was used once is not forgiven. */
static uint64_t checksum(void)
{
	uint64_t sum = sum_words(seed, rank, nr_vertices * sizeof(*rank));

	sum = sum_words(sum, rows, (nr_vertices + 1) * sizeof(*rows));
	sum = sum_words(sum, sources, rows[nr_vertices] * sizeof(*sources));
	return sum_words(sum, out_degree, nr_vertices * sizeof(*out_degree));
}

static double seconds_since(uint64_t *mark)
{
	uint64_t now = clock_ns(), before = *mark;

	*mark = now;
	return (double)(now - before) / 1e9;
}

int main(int argc, char **argv)
{
	unsigned long iterations = 5;
	const char *expected = NULL;
	struct result r = {0};
	char found[17];
	uint64_t mark;
	int c;

	while ((c = getopt(argc, argv, "n:d:i:s:x:")) != -1) {
		if (c == 'n')
			nr_vertices = strtoull(optarg, NULL, 10);
		else if (c == 'd')
			degree = strtoull(optarg, NULL, 10);
		else if (c == 'i')
			iterations = strtoul(optarg, NULL, 10);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (c == 'x')
			expected = optarg;
		else
			return 2;
	}
	if (!nr_vertices || nr_vertices > UINT32_MAX || !degree || degree > 1024) {
		fprintf(stderr, "usage: pagerank -n VERTICES [-d DEGREE] [-i ITERATIONS] "
				"[-s SEED] [-x CHECKSUM]\n");
		return 2;
	}
	mark = clock_ns();
	make_graph();
	result_phase(&r, "build", seconds_since(&mark), false);
	for (unsigned long i = 0; i < iterations; i++)
		iterate();
	result_phase(&r, "pagerank", seconds_since(&mark), true);
	snprintf(found, sizeof(found), "%016llx", (unsigned long long)checksum());
	result_phase(&r, "check", seconds_since(&mark), false);
	r.checked = 1;
	r.wrong = expected && strcmp(found, expected);
	printf("checksum %s, %llu vertices, %llu links\n", found, (unsigned long long)nr_vertices,
	       (unsigned long long)rows[nr_vertices]);
	if (r.wrong)
		fprintf(stderr, "pagerank: wrong: checksum %s, should be %s\n", found, expected);
	return result_write(&r, "pagerank") ? 2 : r.wrong != 0;
}
