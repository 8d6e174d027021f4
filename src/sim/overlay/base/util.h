/* SPDX-License-Identifier: MIT */
/* base/util.h of the second build: a loop that waits lets others run. */
#ifndef USWAP_SIM_OVERLAY_UTIL_H
#define USWAP_SIM_OVERLAY_UTIL_H

#define cpu_relax cpu_really_relax
#include_next "base/util.h"
#undef cpu_relax

#include "sim/hook.h"

#define cpu_relax() (sim_here(__FILE__, __LINE__), sim_relax())

#endif
