# SPDX-License-Identifier: MIT
"""The memory cgroup that a run lives in, whole: the job, its supervisor, its helpers.

Version 1 has a hierarchy a controller: memory, and cpuacct for the time. Version 2 has one. Groups
are made at the top of the hierarchy, where version 2 lets a controller be turned on whatever
processes there are.
"""
import os
import signal
import time

from . import Trouble

ROUNDS = 250      # of 20 ms


def mounts(system):
    """(mount point, type, options) of the cgroup file systems"""
    for line in (system.read('/proc/self/mounts') or '').splitlines():
        fields = line.split()
        if fields[2] in ('cgroup', 'cgroup2'):
            yield fields[1], fields[2], fields[3].split(',')


def find(system):
    """Version1 or Version2, whichever has the memory controller; None."""
    places = list(mounts(system))
    for point, kind, _ in places:
        if kind == 'cgroup2' and \
                'memory' in (system.read(f'{point}/cgroup.controllers') or '').split():
            return Version2(system, point)
    memory = next((p for p, kind, o in places if kind == 'cgroup' and 'memory' in o), None)
    if memory:
        time_of = next((p for p, kind, o in places if kind == 'cgroup' and 'cpuacct' in o), None)
        return Version1(system, memory, time_of)
    return None


def members(system, folders):
    return {int(pid) for folder in folders
            for pid in (system.read(f'{folder}/cgroup.procs') or '').split()}


def kill(system, folders):
    """Until nobody is left: what dies may have forked meanwhile."""
    for _ in range(ROUNDS):
        pids = members(system, folders)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    raise Trouble(f'{folders[0]}: processes {sorted(pids)} do not end')


def remove(system, folders):
    kill(system, folders)
    for folder in folders:
        for attempt in range(ROUNDS):
            try:
                system.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError as e:   # its last process is dead, but not taken down yet
                if attempt == ROUNDS - 1:
                    raise Trouble(f'{folder}: {e.strerror}') from None
                time.sleep(0.02)
            else:
                break


class Version:
    def __init__(self, system):
        self.system = system
        self.serial = 0

    def make(self, journal, limit):
        """A new, empty group with this limit in bytes, or None: no limit."""
        self.serial += 1
        name = f'uswap-compare-{os.getpid()}-{self.serial}'
        folders = [f'{place}/{name}' for place in self.places()]
        journal.note('cgroup', folders=folders)
        for folder in folders:
            try:
                self.system.mkdir(folder)
            except OSError as e:
                raise Trouble(f'{folder}: no cgroup can be made: {e.strerror}') from None
        return self.group(self.system, folders, limit)


class Version1(Version):
    name = 'v1'
    charges_zswap = False

    def __init__(self, system, memory, time_of):
        super().__init__(system)
        self.memory = memory
        self.time_of = time_of

    def prepare(self, journal):
        pass

    def places(self):
        # One place if both controllers are mounted together.
        return list(dict.fromkeys(p for p in (self.memory, self.time_of) if p))

    def group(self, *args):
        return Group1(*args)


class Version2(Version):
    name = 'v2'
    charges_zswap = True

    def __init__(self, system, point):
        super().__init__(system)
        self.point = point

    def prepare(self, journal):
        control = f'{self.point}/cgroup.subtree_control'
        if 'memory' not in (self.system.read(control) or '').split():
            journal.note('write', path=control, value='-memory')
            self.system.write(control, '+memory')

    def places(self):
        return [self.point]

    def group(self, *args):
        return Group2(*args)


class Group:
    def __init__(self, system, folders, limit):
        self.system = system
        self.folders = folders
        self.folder = folders[0]
        self.largest = 0
        self.limit = limit
        if limit is not None:
            system.write(f'{self.folder}/{self.limit_file}', limit)

    def join(self):
        """In the child, before it execs."""
        for folder in self.folders:
            self.system.write(f'{folder}/cgroup.procs', os.getpid())

    def members(self):
        return members(self.system, self.folders[:1])

    def kill(self):
        kill(self.system, self.folders)

    def number(self, name, folder=None):
        text = self.system.read(f'{folder or self.folder}/{name}')
        return int(text) if text and text.isdigit() else None

    def stat(self):
        return self.system.counters(f'{self.folder}/memory.stat')

    def file_bytes(self):
        """File and shared pages that its processes have mapped. What the page cache holds beyond
        them goes when somebody needs the room."""
        return self.stat().get(self.mapped_key, 0)

    def look(self):
        """Now and then, for kernels that do not remember the peak."""
        self.largest = max(self.largest, self.number(self.usage_file) or 0)

    def peak_bytes(self):
        return max(self.number(self.peak_file) or 0, self.largest)

    def oom_kills(self):
        return self.system.counters(f'{self.folder}/{self.events_file}').get('oom_kill', 0)


class Group1(Group):
    limit_file = 'memory.limit_in_bytes'
    usage_file = 'memory.usage_in_bytes'
    peak_file = 'memory.max_usage_in_bytes'
    mapped_key = 'mapped_file'
    events_file = 'memory.oom_control'

    def cpu_seconds(self):
        ns = self.number('cpuacct.usage', self.folders[-1])
        return None if ns is None else ns / 1e9


class Group2(Group):
    limit_file = 'memory.max'
    usage_file = 'memory.current'
    peak_file = 'memory.peak'
    mapped_key = 'file_mapped'
    events_file = 'memory.events'

    def cpu_seconds(self):
        used = self.system.counters(f'{self.folder}/cpu.stat').get('usage_usec')
        return None if used is None else used / 1e6
