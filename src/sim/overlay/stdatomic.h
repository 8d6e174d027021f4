/* SPDX-License-Identifier: MIT */
/*
 * <stdatomic.h> of the second build: each generic function is the compiler's, with sim_atomic()
 * before it. Arguments are evaluated before that point, as they would be before the instruction.
 *
 * Not seen: plain operators on _Atomic objects (x++, x = 1, a bare read) and the __atomic builtins.
 * atomic_init() is no access in the sense of the language and is left alone.
 */
#ifndef USWAP_SIM_OVERLAY_STDATOMIC_H
#define USWAP_SIM_OVERLAY_STDATOMIC_H

#include_next <stdatomic.h>

#include "sim/hook.h"

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or
#undef atomic_fetch_or_explicit
#undef atomic_fetch_xor
#undef atomic_fetch_xor_explicit
#undef atomic_fetch_and
#undef atomic_fetch_and_explicit
#undef atomic_flag_test_and_set
#undef atomic_flag_test_and_set_explicit

#ifdef __clang__
#define SIM_DO_LOAD(p, v, o) v = __c11_atomic_load(p, o)
#define SIM_DO_STORE(p, v, o) __c11_atomic_store(p, v, o)
#define SIM_DO_EXCHANGE(p, v, r, o) r = __c11_atomic_exchange(p, v, o)
#define SIM_DO_CAS(p, e, v, weak, s, f)                                                            \
	__c11_atomic_compare_exchange_strong(p, e, v, s, f)
#define SIM_DO_FETCH(what, p, v, o) __c11_atomic_fetch_##what(p, v, o)
#else
#define SIM_DO_LOAD(p, v, o) __atomic_load(p, &(v), o)
#define SIM_DO_STORE(p, v, o) __atomic_store(p, &(v), o)
#define SIM_DO_EXCHANGE(p, v, r, o) __atomic_exchange(p, &(v), &(r), o)
#define SIM_DO_CAS(p, e, v, weak, s, f) __atomic_compare_exchange(p, e, &(v), weak, s, f)
#define SIM_DO_FETCH(what, p, v, o) __atomic_fetch_##what(p, v, o)
#endif

/* The type of what is behind p, without qualifiers and _Atomic. */
#define SIM_VALUE(p) __typeof__((void)0, *(p))
#define SIM_POINT(p, op) sim_atomic((const volatile void *)(p), op, __FILE__, __LINE__)

#define atomic_load_explicit(obj, order)                                                           \
	__extension__({                                                                            \
		__auto_type sim_p_ = (obj);                                                        \
		SIM_VALUE(sim_p_) sim_v_;                                                          \
		SIM_POINT(sim_p_, SIM_LOAD);                                                       \
		SIM_DO_LOAD(sim_p_, sim_v_, order);                                                \
		sim_v_;                                                                            \
	})
#define atomic_store_explicit(obj, value, order)                                                   \
	__extension__({                                                                            \
		__auto_type sim_p_ = (obj);                                                        \
		SIM_VALUE(sim_p_) sim_v_ = (value);                                                \
		SIM_POINT(sim_p_,                                                                  \
			  (order) == memory_order_seq_cst ? SIM_STORE : SIM_PLAIN_STORE);          \
		SIM_DO_STORE(sim_p_, sim_v_, order);                                               \
	})
#define atomic_exchange_explicit(obj, value, order)                                                \
	__extension__({                                                                            \
		__auto_type sim_p_ = (obj);                                                        \
		SIM_VALUE(sim_p_) sim_v_ = (value), sim_r_;                                        \
		SIM_POINT(sim_p_, SIM_RMW);                                                        \
		SIM_DO_EXCHANGE(sim_p_, sim_v_, sim_r_, order);                                    \
		sim_r_;                                                                            \
	})
#define SIM_CAS_EXPR(obj, exp, value, weak, succ, fail)                                            \
	__extension__({                                                                            \
		__auto_type sim_p_ = (obj);                                                        \
		__auto_type sim_e_ = (exp);                                                        \
		SIM_VALUE(sim_p_) sim_v_ = (value);                                                \
		SIM_POINT(sim_p_, SIM_CAS);                                                        \
		SIM_DO_CAS(sim_p_, sim_e_, sim_v_, weak, succ, fail);                              \
	})
#define SIM_FETCH_EXPR(what, obj, value, order)                                                    \
	__extension__({                                                                            \
		__auto_type sim_p_ = (obj);                                                        \
		__auto_type sim_v_ = (value);                                                      \
		SIM_POINT(sim_p_, SIM_RMW);                                                        \
		SIM_DO_FETCH(what, sim_p_, sim_v_, order);                                         \
	})

#define atomic_load(obj) atomic_load_explicit(obj, memory_order_seq_cst)
#define atomic_store(obj, value) atomic_store_explicit(obj, value, memory_order_seq_cst)
#define atomic_exchange(obj, value) atomic_exchange_explicit(obj, value, memory_order_seq_cst)
/* A weak one never fails without a reason here. */
#define atomic_compare_exchange_strong_explicit(obj, exp, value, succ, fail)                       \
	SIM_CAS_EXPR(obj, exp, value, 0, succ, fail)
#define atomic_compare_exchange_weak_explicit(obj, exp, value, succ, fail)                         \
	SIM_CAS_EXPR(obj, exp, value, 0, succ, fail)
#define atomic_compare_exchange_strong(obj, exp, value)                                            \
	SIM_CAS_EXPR(obj, exp, value, 0, memory_order_seq_cst, memory_order_seq_cst)
#define atomic_compare_exchange_weak(obj, exp, value)                                              \
	SIM_CAS_EXPR(obj, exp, value, 0, memory_order_seq_cst, memory_order_seq_cst)
#define atomic_fetch_add_explicit(obj, value, order) SIM_FETCH_EXPR(add, obj, value, order)
#define atomic_fetch_sub_explicit(obj, value, order) SIM_FETCH_EXPR(sub, obj, value, order)
#define atomic_fetch_or_explicit(obj, value, order) SIM_FETCH_EXPR(or, obj, value, order)
#define atomic_fetch_xor_explicit(obj, value, order) SIM_FETCH_EXPR(xor, obj, value, order)
#define atomic_fetch_and_explicit(obj, value, order) SIM_FETCH_EXPR(and, obj, value, order)
#define atomic_fetch_add(obj, value) SIM_FETCH_EXPR(add, obj, value, memory_order_seq_cst)
#define atomic_fetch_sub(obj, value) SIM_FETCH_EXPR(sub, obj, value, memory_order_seq_cst)
#define atomic_fetch_or(obj, value) SIM_FETCH_EXPR(or, obj, value, memory_order_seq_cst)
#define atomic_fetch_xor(obj, value) SIM_FETCH_EXPR(xor, obj, value, memory_order_seq_cst)
#define atomic_fetch_and(obj, value) SIM_FETCH_EXPR(and, obj, value, memory_order_seq_cst)

/* Nobody here uses flags; one that is used must not pass by unseen. */
#pragma GCC poison atomic_flag_test_and_set atomic_flag_test_and_set_explicit

#endif
