/* SPDX-License-Identifier: MIT */
/*
 * base/lock.h of the second build: the same types and functions, which are src/sim/lock.c's; each
 * call notes where it stands.
 */
#ifndef USWAP_SIM_OVERLAY_LOCK_H
#define USWAP_SIM_OVERLAY_LOCK_H

#include_next "base/lock.h"

#include "sim/hook.h"

#define us_mutex_lock(l) (sim_here(__FILE__, __LINE__), us_mutex_lock(l))
#define us_mutex_trylock(l) (sim_here(__FILE__, __LINE__), us_mutex_trylock(l))
#define us_mutex_unlock(l) (sim_here(__FILE__, __LINE__), us_mutex_unlock(l))
#define us_cond_wait(c, l) (sim_here(__FILE__, __LINE__), us_cond_wait(c, l))
#define us_cond_timedwait(c, l, ns) (sim_here(__FILE__, __LINE__), us_cond_timedwait(c, l, ns))
#define us_cond_signal(c) (sim_here(__FILE__, __LINE__), us_cond_signal(c))
#define us_cond_broadcast(c) (sim_here(__FILE__, __LINE__), us_cond_broadcast(c))

#endif
