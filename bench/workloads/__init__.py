# SPDX-License-Identifier: MIT
"""The workloads of bench/compare, all of which check what they read. See README.md."""
from . import synthetic
from .base import Workload, WorkloadError

WORKLOADS = {c.name: c for c in synthetic.CLASSES}

__all__ = ['WORKLOADS', 'Workload', 'WorkloadError']
