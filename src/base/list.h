/* SPDX-License-Identifier: MIT */
/*
 * Intrusive doubly linked list with a sentinel head.
 * Locking: the caller's. Never allocates, never blocks.
 */
#ifndef USWAP_BASE_LIST_H
#define USWAP_BASE_LIST_H

#include "base/util.h"

struct list_node {
	struct list_node *next, *prev;
};

#define LIST_INIT(name) { &(name), &(name) }

static inline void list_init(struct list_node *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list_node *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list_node *n, struct list_node *prev,
				       struct list_node *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_add_head(struct list_node *l, struct list_node *n)
{
	list_insert_between(n, l, l->next);
}

static inline void list_add_tail(struct list_node *l, struct list_node *n)
{
	list_insert_between(n, l->prev, l);
}

/* Unlinks n and leaves it pointing at itself, so a second list_del() is harmless. */
static inline void list_del(struct list_node *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* Moves all of src to the tail of dst; src is empty afterwards. */
static inline void list_splice_tail(struct list_node *dst, struct list_node *src)
{
	if (list_empty(src))
		return;
	src->next->prev = dst->prev;
	dst->prev->next = src->next;
	src->prev->next = dst;
	dst->prev = src->prev;
	list_init(src);
}

#define list_entry(n, type, member) container_of(n, type, member)
#define list_first(l, type, member) list_entry((l)->next, type, member)
#define list_for_each(n, l) for (struct list_node *n = (l)->next; n != (l); n = n->next)
/* Safe against removal of n itself. */
#define list_for_each_safe(n, l)                                                                   \
	for (struct list_node *n = (l)->next, *n##_next = n->next; n != (l);                       \
	     n = n##_next, n##_next = n->next)

#endif
