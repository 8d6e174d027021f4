# SPDX-License-Identifier: MIT
"""What /proc and /sys say while a run goes on. Nothing of it is asked of uswap."""
import os
import time

from harness import SUPER_COMMS, all_processes, read_text

from . import settings

PERIOD = 0.05          # seconds between two looks
THREADS_PERIOD = 0.5   # between two at all kernel threads: kworkers come and go
TICK = os.sysconf('SC_CLK_TCK')
KTHREADD = 2


def cpu_of_process(pid):
    """Seconds, all threads of it, gone ones too; None if it is not there."""
    fields = read_text(f'/proc/{pid}/stat').rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK if len(fields) > 12 else None


def cpu_of_thread(pid):
    """Seconds of one thread, to the nanosecond where the kernel keeps that."""
    first = read_text(f'/proc/{pid}/schedstat').split()
    return int(first[0]) / 1e9 if first else cpu_of_process(pid)


class KernelThreads:
    """CPU time of all kernel threads since start(): kswapd, kcompactd, kworkers, jbd2 ...

    Of the whole machine: a thread does not say for whom it works.
    """

    def __init__(self):
        self.first = self.read()
        self.last = dict(self.first)
        self.looked = time.monotonic()

    @staticmethod
    def read():
        found = {}
        for p in all_processes().values():
            if p.ppid == KTHREADD:
                seconds = cpu_of_thread(p.pid)
                if seconds is not None:
                    found[p.key] = seconds
        return found

    def look(self):
        if time.monotonic() - self.looked > THREADS_PERIOD:
            self.last.update(self.read())
            self.looked = time.monotonic()

    def seconds(self):
        self.last.update(self.read())
        return sum(now - self.first.get(key, 0) for key, now in self.last.items())


class Supervisors:
    """CPU time of uswap's own processes, by name: front, supervisor, keeper, helpers."""

    def __init__(self, group):
        self.group = group
        self.known = {}    # pid -> is it uswap's? A helper has its name when it is first seen or
                           # soon after; a process of the job never gets one like it.
        self.spent = {}

    def look(self):
        for pid in self.group.members():
            if not self.known.get(pid):
                comm = read_text(f'/proc/{pid}/comm').strip()
                self.known[pid] = comm in SUPER_COMMS or comm.startswith('uswap-')
            if self.known[pid]:
                self.spent[pid] = cpu_of_process(pid) or self.spent.get(pid, 0)

    def seconds(self):
        return sum(self.spent.values())


def busy_seconds():
    """Of all CPUs since the boot; what the host took away (steal) counts too."""
    fields = [int(f) / TICK for f in read_text('/proc/stat').split('\n', 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return user + nice + system + irq + softirq + steal


class Sampler:
    """Of one run, from before its start to after its end."""

    def __init__(self, system, group, arm):
        self.system = system
        self.group = group
        self.arm = arm
        self.threads = KernelThreads()
        self.supervisors = Supervisors(group) if group else None
        self.vmstat = self.read_vmstat()
        self.folios = self.read_folios()
        self.busy = busy_seconds()
        self.swap_bytes = 0      # in use on the kernel's areas, at most
        self.pool = 0
        self.file_bytes = 0

    def read_vmstat(self):
        return self.system.counters('/proc/vmstat')

    def read_folios(self):
        """Folios of 64 KiB that were read back whole."""
        return int(self.system.read(f'{settings.FOLIOS_64K_STATS}/swpin') or 0)

    def look(self):
        self.threads.look()
        self.pool = max(self.pool, self.arm.pool_bytes())
        if self.arm.kernel:
            self.swap_bytes = max(self.swap_bytes, sum(self.system.swaps().values()))
        if self.group:
            self.supervisors.look()
            self.group.look()
            self.file_bytes = max(self.file_bytes, self.group.file_bytes())

    def kernel_pages(self):
        """(in, out): stored on an area or in zswap, and read from there. Of the whole machine, on
        which no other swap is on."""
        now = self.read_vmstat()
        delta = {k: now[k] - self.vmstat.get(k, 0) for k in now}
        return (delta.get('pswpin', 0) + delta.get('zswpin', 0),
                delta.get('pswpout', 0) + delta.get('zswpout', 0))
