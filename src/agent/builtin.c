/* SPDX-License-Identifier: MIT */
/*
 * The two functions that a compiler may call on its own even in freestanding code. Hidden: they
 * must not stand in for the program's.
 */
#include <stddef.h>

__attribute__((visibility("hidden"))) void *memcpy(void *dst, const void *src, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep movsb" : "+D"(d), "+S"(src), "+c"(n) : : "memory");
	return dst;
}

__attribute__((visibility("hidden"))) void *memset(void *dst, int c, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
	return dst;
}
