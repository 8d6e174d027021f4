/* SPDX-License-Identifier: MIT */
#include "strategy.h"

#include <string.h>

void strategy_init(struct strategy *s, const struct explore_options *opt, struct branch *path,
		   uint32_t max_depth, struct explore_choice *chosen, uint32_t max_chosen)
{
	memset(s, 0, sizeof(*s));
	s->opt = *opt;
	s->path = path;
	s->max_depth = max_depth;
	s->chosen = chosen;
	s->max_chosen = max_chosen;
}

void strategy_begin_run(struct strategy *s)
{
	s->point = s->at = 0;
	s->nr_chosen = 0;
	s->at_replay = 0;
	s->preemptions = 0;
	if (s->opt.how != EXPLORE_RANDOM || !s->run)
		return;
	rng_init(&s->rng, (s->opt.seed + s->run - 1) * 0x9e3779b97f4a7c15ull + 1);
	for (int i = 0; i < 8; i++)
		(void)rng_next(&s->rng);
	for (unsigned int i = 0; i < ARRAY_SIZE(s->change_at); i++)
		s->change_at[i] = (uint32_t)rng_below(&s->rng, s->usual_points + 1);
	for (unsigned int i = 0; i < SIM_MAX_THREADS; i++)
		s->priority[i] = (int64_t)(rng_next(&s->rng) >> 2);
	s->lowest = 0;
}

/* ---- exhaustive ---- */

static unsigned int choose_next_path(struct strategy *s, const struct sim_choice *c)
{
	struct branch *b = &s->path[s->at];
	unsigned int nr = s->preemptions < s->opt.preemptions ? c->nr : c->nr_free;

	if (s->unstable || s->at == s->max_depth) {
		s->unstable = true;
		return 0;
	}
	if (s->at == s->depth) {
		s->depth++;
		b->alternative = 0;
		b->nr = (uint16_t)nr;
	} else if (b->nr != nr) {
		/* After the same choices others can go on. */
		s->unstable = true;
		return 0;
	}
	if (b->alternative >= c->nr_free)
		s->preemptions++;
	s->at++;
	return b->alternative;
}

/* ---- random ---- */

static unsigned int choose_any(struct strategy *s, const struct sim_choice *c)
{
	/* Waking a sleeper early is rare, or a loop that sleeps would fill the run. */
	unsigned int n = c->nr_ready && rng_below(&s->rng, 8) ? c->nr_ready : c->nr;

	return (unsigned int)rng_below(&s->rng, n);
}

static unsigned int choose_by_priority(struct strategy *s, const struct sim_choice *c)
{
	unsigned int n = c->nr_ready ? c->nr_ready : c->nr_free, best = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(s->change_at); i++)
		if (s->change_at[i] == s->point)
			s->priority[c->thread[0]] = --s->lowest;
	for (unsigned int i = 1; i < n; i++)
		if (s->priority[c->thread[i]] > s->priority[c->thread[best]])
			best = i;
	return best;
}

static unsigned int choose_randomly(struct strategy *s, const struct sim_choice *c)
{
	switch ((s->opt.seed + s->run - 1) % 3) {
	case 0:
		return choose_any(s, c);
	case 1:
		return rng_below(&s->rng, 8) ? 0 : choose_any(s, c);
	default:
		return choose_by_priority(s, c);
	}
}

/* ---- all ---- */

static unsigned int choose_as_told(struct strategy *s, const struct sim_choice *c)
{
	while (s->at_replay < s->opt.nr_replay && s->opt.replay[s->at_replay].point < s->point)
		s->at_replay++;
	if (s->at_replay == s->opt.nr_replay || s->opt.replay[s->at_replay].point != s->point)
		return 0;
	return MIN(s->opt.replay[s->at_replay].alternative, c->nr - 1);
}

unsigned int strategy_choose(struct strategy *s, const struct sim_choice *c)
{
	unsigned int i = 0;

	if (s->opt.how == EXPLORE_REPLAY)
		i = choose_as_told(s, c);
	else if (s->opt.how == EXPLORE_EXHAUSTIVE)
		i = choose_next_path(s, c);
	else if (s->run)
		i = choose_randomly(s, c);
	if (i && s->nr_chosen < s->max_chosen)
		s->chosen[s->nr_chosen++] = (struct explore_choice){s->point, i};
	s->point++;
	return i;
}

void strategy_pass(struct strategy *s)
{
	s->point++;
}

bool strategy_next_run(struct strategy *s)
{
	if (!s->run)
		s->usual_points = s->point;
	s->run++;
	switch (s->opt.how) {
	case EXPLORE_RANDOM:
		return s->run <= s->opt.runs;
	case EXPLORE_EXHAUSTIVE:
		/* The run ended before the choices did. */
		if (s->at != s->depth)
			s->unstable = true;
		if (s->unstable)
			return false;
		while (s->depth && s->path[s->depth - 1].alternative + 1u >= s->path[s->depth - 1].nr)
			s->depth--;
		if (s->depth)
			s->path[s->depth - 1].alternative++;
		return s->depth != 0;
	default:
		return false;
	}
}
