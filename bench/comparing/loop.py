# SPDX-License-Identifier: MIT
"""One comparison: the calibration, then rounds in which every arm runs once."""
import os
import sys
import time

from . import Trouble, Unable, arms, job, settings
from .calibrate import SMALLEST_RAM, Calibration

CALIBRATING = 'calibration'


def say(text):
    print(text, file=sys.stderr, flush=True)


def rotated(items, by):
    """Each is first in turn, and no two are always neighbours: every other round goes back."""
    by %= len(items) or 1
    turned = items[by:] + items[:by]
    return turned[:1] + turned[:0:-1] if by % 2 else turned


class Bench:
    """What the arms of one comparison share."""

    def __init__(self, system, journal, groups, stopping, uswap, scratch, workload, ram,
                 named=False, area=2.0, all_orders=False):
        self.system = system
        self.journal = journal
        self.groups = groups           # a cgroup.Version, or None
        self.stopping = stopping
        self.uswap = uswap
        self.scratch = scratch
        self.workload = workload
        self.named = named             # arms were asked for by name
        self.ram = ram                 # None: as the workload says
        self.area = area               # a swap area / what the workload takes
        self.all_orders = all_orders   # uswap makes folios of all sizes
        self.calibration = None        # once the workload is prepared
        self.serial = 0

    def prepare(self):
        """Inputs, and what the workload knows only then: its budget. Returns its settings."""
        settings_of = {}
        if not self.workload.missing():
            with self.stopping.interruptible():
                self.workload.prepare()
                settings_of = self.workload.describe()
        self.calibration = Calibration(self.ram or max(self.workload.budget(), SMALLEST_RAM))
        return settings_of

    def uswap_missing(self):
        if not os.access(self.uswap, os.X_OK):
            return f'no binary at {self.uswap} (make build, or set USWAP)'
        return None

    def budget(self, arm):
        return self.calibration.budget(arm)

    def once(self, arm, timeout, limit=None):
        """One run, from set-up to everything put back. limit: another one than the arm's."""
        self.stopping.check()
        mark = self.journal.mark()
        self.serial += 1
        folder = os.path.join(self.scratch, f'{self.workload.name}-run{self.serial}')
        os.mkdir(folder, 0o700)
        try:
            group = self.set_up(arm, folder, limit)
            return job.Job(self, arm, group, folder).run(timeout)
        finally:
            failed = self.journal.restore(mark)
            if failed:
                raise Trouble('; '.join(failed))
            job.clean(folder)

    def set_up(self, arm, folder, limit=None):
        """Returns the group that the run lives in, or None."""
        try:
            settings.zswap_off(self.system, self.journal)
            arm.set_up(self.journal, folder)
            if not self.groups:
                return None
            return self.groups.make(self.journal, limit or self.calibration.limit(arm))
        except Trouble as e:
            raise Unable(str(e)) from None


class Comparison:
    def __init__(self, bench, names, runs, timeout):
        self.bench = bench
        self.runs = runs
        self.timeout = timeout
        self.arms = [arms.ARMS[name](bench) for name in names]
        self.skipped = {}
        self.records = {name: [] for name in names}
        self.settings = {}

    def run(self):
        without = self.bench.workload.missing()
        self.settings = self.bench.prepare()
        for arm in self.arms:
            why = without or arm.missing()
            if why:
                self.skip(arm, why)
        self.calibrate()
        for i in range(self.runs):
            for arm in rotated(self.arms, i):
                if arm.name not in self.skipped:
                    self.one(arm, i)
        return self

    def skip(self, arm, why):
        self.skipped[arm.name] = why
        say(f'{arm.name}: skipped, {why}')

    def calibrate(self):
        limited = [a for a in self.arms if a.limited and a.name not in self.skipped]
        if not limited:
            return
        c = self.bench.calibration
        c.take_native(self.timed(arms.Native(self.bench), CALIBRATING))
        zram = arms.KernelZram(self.bench)
        # Whatever arms are asked for: the budget of an arm must not depend on them.
        if any(a.gets_pool or a.name == zram.name for a in limited) and not zram.missing():
            try:
                c.take_zram(self.timed(zram, CALIBRATING, c.bare_limit()))
            except Unable as e:
                c.remarks.append(f'zram calibration run: {e}')
        for remark in c.remarks:
            say(remark)

    def timed(self, arm, where, limit=None):
        run = self.bench.once(arm, self.timeout, limit)
        measured = '' if run['measured_s'] is None else f', measured {run["measured_s"]:.2f} s'
        detail = f' ({run["detail"]})' if run['detail'] else ''
        say(f'{self.bench.workload.name}, {where}: {arm.name} {run["outcome"]}{detail}, '
            f'{run["wall_s"]:.2f} s{measured}')
        return run

    def one(self, arm, i):
        try:
            run = self.timed(arm, f'round {i + 1} of {self.runs}')
        except Unable as e:
            if not self.records[arm.name]:
                self.skip(arm, str(e))
                return
            # It could before: a result, not a property of the machine.
            run = job.not_run(str(e))
        self.records[arm.name].append({'round': i, **run})
