# SPDX-License-Identifier: MIT
"""What is compared. An arm says whether this machine can do it, sets it up, and starts the job.

Everything that set_up changes goes through the journal; it is undone after every run, so that each
begins with an empty device.
"""
import os

from . import Trouble, orders, settings

# Priorities of a fast area above a slow one.
FAST, SLOW = 100, 10


class Arm:
    name = about = None    # about: a line for --list; what(): the same with what is set here
    types = ()             # of its swap areas, fast first
    kernel = False         # swapped by the kernel
    limited = True
    gets_pool = False      # the budget is larger by what the kernel does not charge for zram

    def __init__(self, bench):
        self.bench = bench
        self.system = bench.system

    def areas(self):
        """(type, bytes, priority): the workload's own, or --area times what it takes."""
        own = self.bench.workload.devices()
        if own and self.types:
            return [tuple(area) for area in own]
        takes = max(self.bench.workload.size, self.bench.calibration.peak_bytes)
        size = int(self.bench.area * takes)
        return [(kind, size, priority) for kind, priority in zip(self.types, (FAST, SLOW))]

    def missing(self):
        """Why this machine, or the workload, cannot have it; None."""
        own = self.bench.workload.devices()
        if own and self.types and {kind for kind, _, _ in own} != set(self.types):
            return f'the workload brings its own devices, and they are not {"+".join(self.types)}'
        if self.limited and not self.bench.groups:
            return 'no memory cgroup is mounted'
        return None

    def set_up(self, journal, folder):
        """folder: scratch space of this run."""

    def command(self, job, folder):
        return job

    def pool_bytes(self):
        """Memory that the swap takes and no cgroup is charged for, now."""
        return 0

    def final_pool_bytes(self):
        """The same at its peak, where the kernel remembers it."""
        return self.pool_bytes()


class Native(Arm):
    name = 'native'
    about = 'no limit, no swap'
    limited = False

    def what(self):
        return self.about


class KernelSwap(Arm):
    kernel = True

    def set_up(self, journal, folder):
        settings.folios_64k(self.system, journal, False)
        for i, (kind, size, priority) in enumerate(self.areas()):
            self.add(journal, kind, size, priority, os.path.join(folder, f'swap{i}'))

    def add(self, journal, kind, size, priority, path):
        settings.swap_on_file(self.system, journal, path, size, priority)


class KernelZram(KernelSwap):
    name = 'kernel-zram'
    about = 'the kernel, swap on zram (lz4)'
    types = ('zram',)

    def __init__(self, bench):
        super().__init__(bench)
        self.devices = []

    def what(self):
        return f'swap on zram, lz4; {settings.in_words(self.system)}'

    def missing(self):
        return settings.zram_missing(self.system) or super().missing()

    def set_up(self, journal, folder):
        self.devices = []
        super().set_up(journal, folder)

    def add(self, journal, kind, size, priority, path):
        self.devices.append(settings.swap_on_zram(self.system, journal, size, priority))

    def memory(self, column):
        """mm_stat: stored, compressed, used now, limit, most used ..."""
        total = 0
        for folder in self.devices:
            fields = (self.system.read(f'{folder}/mm_stat') or '').split()
            total += int(fields[column]) if len(fields) > column else 0
        return total

    def pool_bytes(self):
        return self.memory(2)

    def final_pool_bytes(self):
        return self.memory(4)


ONE_BY_ONE = ('zswap was on since the boot, so this kernel reads pages back one by one, from zram '
              'too')


class KernelZramFolios(KernelZram):
    name = 'kernel-zram-mthp'
    about = 'the same with folios of 64 KiB and page-cluster 0'

    def what(self):
        words = 'swap on zram, lz4; folios of 64 KiB always, page-cluster 0'
        return f'{words}; {ONE_BY_ONE}' if settings.zswap_was_on(self.system) else words

    def missing(self):
        return settings.folios_missing(self.system) or super().missing()

    def set_up(self, journal, folder):
        super().set_up(journal, folder)
        settings.folios_64k(self.system, journal, True)
        settings.page_cluster(self.system, journal, 0)


class KernelFile(KernelSwap):
    name = 'kernel-file'
    about = 'the kernel, swap on a file'
    types = ('file',)

    def what(self):
        return f'swap on a file; {settings.in_words(self.system)}'


class KernelZswap(KernelFile):
    name = 'kernel-zswap'
    about = 'the kernel, zswap over a file'

    def what(self):
        percent = self.system.read(f'{settings.ZSWAP}/max_pool_percent')
        return (f'zswap, {settings.zswap_compressor(self.system)}, at most {percent} % of the '
                f'machine, over a file; {settings.in_words(self.system)}')

    def missing(self):
        why = settings.zswap_missing(self.system) or super().missing()
        if not why and not self.bench.named and not settings.zswap_was_on(self.system):
            return ('for whoever names it in --arms: once zswap was on, this kernel reads folios '
                    'back page by page until the next boot')
        return why

    def set_up(self, journal, folder):
        settings.zswap_on(self.system, journal)
        super().set_up(journal, folder)

    def pool_bytes(self):
        if self.bench.groups.charges_zswap:
            return 0
        return self.system.counters('/proc/meminfo', 1024).get('Zswap', 0)


class Uswap(Arm):
    name = 'uswap'
    about = 'uswap, zram above a file'
    types = ('zram', 'file')
    gets_pool = True

    def what(self):
        return {('zram', 'file'): 'zram (lz4) above a file', ('zram',): 'zram (lz4)',
                ('file',): 'a file'}[self.types]

    def missing(self):
        return self.bench.uswap_missing() or super().missing()

    @staticmethod
    def report(folder):
        return os.path.join(folder, 'report.json')

    def command(self, job, folder):
        words = [self.bench.uswap, 'run', '--ram', str(self.bench.budget(self)),
                 '--report', self.report(folder)]
        if self.bench.all_orders:
            words += ['--order', str(orders.MAX_ORDER)]
        for i, (kind, size, priority) in enumerate(self.areas()):
            path = os.path.join(folder, f'swap{i}')
            if ':' in path or ',' in path:
                raise Trouble(f'{path}: choose a --dir without : and ,')
            place = 'zram' if kind == 'zram' else f'file:{path}'
            words += ['--swap', f'{place}:{settings.round_up(size)},prio={priority}']
        return [*words, '--', *job]


class UswapZram(Uswap):
    name = 'uswap-zram'
    about = 'uswap, zram alone'
    types = ('zram',)


class UswapFile(Uswap):
    name = 'uswap-file'
    about = 'uswap, a file alone'
    types = ('file',)
    gets_pool = False      # compared to files, which have no pool either


ARMS = {arm.name: arm for arm in (Native, KernelZram, KernelZramFolios, KernelZswap, KernelFile,
                                  Uswap, UswapZram, UswapFile)}
