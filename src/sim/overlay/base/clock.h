/* SPDX-License-Identifier: MIT */
/* base/clock.h of the second build: virtual time. */
#ifndef USWAP_SIM_OVERLAY_CLOCK_H
#define USWAP_SIM_OVERLAY_CLOCK_H

#define clock_now_ns clock_real_now_ns
#define clock_sleep_ns clock_real_sleep_ns
#include_next "base/clock.h"
#undef clock_now_ns
#undef clock_sleep_ns

#include "sim/hook.h"

#define clock_now_ns() sim_clock_now_ns()
#define clock_sleep_ns(ns) (sim_here(__FILE__, __LINE__), sim_clock_sleep_ns(ns))

#endif
