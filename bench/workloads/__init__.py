# SPDX-License-Identifier: MIT
"""The workloads of bench/compare, all of which check what they read. See README.md."""
from . import programs, synthetic
from .base import Workload, WorkloadError

WORKLOADS = {c.name: c for m in (synthetic, programs) for c in m.CLASSES}

__all__ = ['WORKLOADS', 'Workload', 'WorkloadError']
