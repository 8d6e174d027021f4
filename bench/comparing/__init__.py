# SPDX-License-Identifier: MIT
"""One workload in several arms, natively, under the kernel's swap and under uswap, side by side.

    main       the command line, from options to table
    options    what may be asked for
    loop       rounds, arms in turn
    calibrate  how much memory each arm gets
    job        one run: started in its group, watched, judged
    sample     what /proc and /sys say meanwhile
    arms       what each arm sets up
    settings   swap areas, zram, zswap, huge pages, each change recorded first
    cgroup     memory cgroups, versions 1 and 2
    journal    what was changed and how it is put back, on disk too
    orders     folios of each size: how many went out whole
    stopping   signals end it at points where nothing is half done
    system     files of /proc and /sys, programs; a test gives another root
    results    medians, spread, ratios, the JSON document
    table      the same for people
    machine    what all this was measured on
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))   # harness: processes, seen from outside


class Trouble(Exception):
    """compare itself cannot do it; the text says what and why."""


class Unable(Trouble):
    """An arm cannot be set up on this machine."""
