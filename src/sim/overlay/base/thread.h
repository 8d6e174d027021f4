/* SPDX-License-Identifier: MIT */
/*
 * base/thread.h of the second build: threads are src/sim/thread.c's, and so are the numbers of
 * CPUs and threads.
 */
#ifndef USWAP_SIM_OVERLAY_THREAD_H
#define USWAP_SIM_OVERLAY_THREAD_H

#define us_this_cpu us_real_cpu
#define us_nr_cpus us_real_nr_cpus
#define us_this_thread us_real_this_thread
#include_next "base/thread.h"
#undef us_this_cpu
#undef us_nr_cpus
#undef us_this_thread

#include "sim/hook.h"

#define us_this_cpu() sim_this_cpu()
#define us_nr_cpus() sim_nr_cpus()
#define us_this_thread() sim_this_thread()
#define us_thread_start(...) (sim_here(__FILE__, __LINE__), us_thread_start(__VA_ARGS__))
#define us_thread_join(t) (sim_here(__FILE__, __LINE__), us_thread_join(t))

#endif
