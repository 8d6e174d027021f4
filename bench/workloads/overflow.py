# SPDX-License-Identifier: MIT
"""A small compressed device that is always nearly full, above a large one.

The case of the kernel's swap allocator series of 2024 ("Two zram swap: zram0 3.0G zram1 20G. The
idea is forcing the zram0 almost full then overflow to zram1"): every page that is stored goes to
the few slots that have just become free, or has to find out that there are none.
"""
from .base import MIB
from .synthetic import Scattered


class Overflow(Scattered):
    name = 'overflow'
    pattern = 'random'
    summary = 'pages at random, half of them written; a small zram nearly full above a large one'
    factor = 3
    write_percent = 50
    SMALL = 8                  # one of so many parts of what does not fit

    def devices(self):
        outside = self.size - self.budget()
        return [('zram', outside // self.SMALL // MIB * MIB, 100), ('zram', self.size * 2, 10)]

    def describe(self):
        return {**super().describe(), 'device_bytes': [d[1] for d in self.devices()]}


CLASSES = [Overflow]
