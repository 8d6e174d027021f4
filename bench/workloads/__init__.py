# SPDX-License-Identifier: MIT
"""The workloads of bench/compare, all of which check what they read. See README.md."""
from . import compiling, overflow, programs, synthetic
from .base import Workload, WorkloadError

WORKLOADS = {c.name: c for m in (synthetic, programs, compiling, overflow) for c in m.CLASSES}

__all__ = ['WORKLOADS', 'Workload', 'WorkloadError']
