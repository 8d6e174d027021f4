# SPDX-License-Identifier: MIT
"""How much memory each arm gets, so that all have the same.

The budget B is what --ram says. Around the job, its supervisor and the pool lies one memory cgroup:

    kernel's arms, uswap-file:  B + F + O
    uswap, uswap-zram:          B + P + F + O, and --ram B + P

F: file pages that the job maps, in a native run. uswap's budget does not count them, a cgroup does.
O: what uswap may exceed its budget by: a twentieth, at least 16 MiB.
P: what zram really takes at its peak under the kernel in B + F: the kernel charges it to nobody. Not
   in B + F + O, where a part of what uswap has to store would be in O, which uswap may not plan with.
"""
from harness import MIB

SMALLEST_RAM = 16 * MIB      # uswap's


class Calibration:
    def __init__(self, ram):
        self.ram = ram
        self.file_bytes = 0
        self.peak_bytes = 0          # natively
        self.zram_peak_bytes = None
        self.remarks = []

    @property
    def overshoot_bytes(self):
        return max(self.ram // 20, 16 * MIB)

    def limit(self, arm):
        if not arm.limited:
            return None
        total = self.budget(arm) + self.file_bytes + self.overshoot_bytes
        return total // 4096 * 4096

    def bare_limit(self):
        """Of the run that tells P."""
        return (self.ram + self.file_bytes) // 4096 * 4096

    def budget(self, arm):
        if arm.gets_pool:
            return self.ram + (self.zram_peak_bytes or 0)
        return self.ram

    def take(self, what, run):
        if run['outcome'] != 'ok':
            self.remarks.append(f'{what}: {run["outcome"]}, {run["detail"]}')

    def take_native(self, run):
        self.take('native calibration run', run)
        self.file_bytes = run['file_bytes']
        self.peak_bytes = run['peak_bytes']

    def take_zram(self, run):
        self.take('zram calibration run', run)
        self.zram_peak_bytes = run['pool_bytes']

    def document(self):
        return {'file_bytes': self.file_bytes, 'native_peak_bytes': self.peak_bytes,
                'zram_peak_bytes': self.zram_peak_bytes,
                'overshoot_bytes': self.overshoot_bytes, 'remarks': self.remarks}
