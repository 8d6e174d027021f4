# SPDX-License-Identifier: MIT
"""From the command line to the table. Exit status: 0; 1 if a run was wrong, failed or did not end;
125 if it cannot compare, or of some workload no arm could be run; 128+N if signal N stopped it."""
import json
import os
import sys
import traceback

from workloads import WorkloadError

from . import Trouble, arms, cgroup, machine, options, results, table
from .journal import SCRATCH, Journal, in_words
from .loop import Bench, Comparison, say
from .stopping import Stopped, Stopping
from .system import System

FAILED = 125


def list_all(workloads):
    width = max(map(len, [*workloads, *arms.ARMS]))
    print('workloads')
    for name, workload in workloads.items():
        sizes = ', '.join(f'{n} {table.size(b)}' for n, b in workload.sizes.items())
        print(f'  {name:{width}}  {workload.summary} ({sizes})')
    print('arms')
    for name, arm in arms.ARMS.items():
        print(f'  {name:{width}}  {arm.about}')


def recover(journal):
    """What an earlier compare left because it was killed."""
    if not journal.steps:
        return
    say('bench/compare: an earlier run was killed; putting back what it left:')
    for step in reversed(journal.steps):
        say(f'  {in_words(step)}')
    failed = journal.restore()
    if failed:
        raise Trouble(f'cannot put it back: {"; ".join(failed)} (record: {journal.record})')


def need_swap_for_itself(system):
    swaps = system.swaps()
    if swaps:
        names = ' '.join(swaps)
        raise Trouble(f'swap is on ({names}): the arms would use it too, and it is yours, so it '
                      f'is not turned off for you: swapoff {names}, compare, swapon {names}')


def need_place_for_json(path):
    """Before hours of runs, not after."""
    place = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(place):
        raise Trouble(f'--json {path}: no file can be made there')


def write_json(path, document):
    text = json.dumps(document, indent=1) + '\n'
    if path == '-':
        sys.stdout.write(text)
        return
    try:
        with open(f'{path}.new', 'w', encoding='utf-8') as f:
            f.write(text)
        os.replace(f'{path}.new', path)
    except OSError as e:
        raise Trouble(f'{path}: {e.strerror}') from None


class Session:
    """One call of compare, once it is known that it may."""

    def __init__(self, asked, workloads, system, journal, stopping):
        self.asked = asked
        self.workloads = workloads
        self.system = system
        self.journal = journal
        self.stopping = stopping
        self.groups = cgroup.find(system)

    def scratch(self):
        where = os.path.abspath(self.asked.dir)
        if not os.path.isdir(where):
            raise Trouble(f'--dir {where}: no such folder')
        path = os.path.join(where, f'{SCRATCH}{os.getpid()}-{os.urandom(4).hex()}')
        self.journal.note('folder', path=path)
        os.mkdir(path, 0o700)
        return path

    def make(self, name, scratch):
        """The workload as asked for."""
        a = self.asked
        return self.workloads[name](
            os.path.abspath(a.build), os.path.join(scratch, f'work-{name}'), size=a.size,
            factor=a.factor, compress=a.compress, threads=a.threads, seed=a.seed)

    def compare(self, workload, scratch):
        uswap = os.path.abspath(os.environ.get('USWAP', os.path.join(self.asked.build, 'uswap')))
        bench = Bench(self.system, self.journal, self.groups, self.stopping, uswap, scratch,
                      workload, self.asked.ram, named=bool(self.asked.arms),
                      area=self.asked.area, all_orders=self.asked.orders)
        names = self.asked.arms or (['uswap-zram'] if self.asked.orders else list(arms.ARMS))
        return results.describe(
            Comparison(bench, names, self.asked.runs, self.asked.timeout).run())

    def run(self):
        if self.asked.json not in (None, '-'):
            need_place_for_json(self.asked.json)
        document = {'version': results.VERSION, **machine.head(self.system, self.groups),
                    'comparisons': []}
        scratch = self.scratch()
        made = [self.make(name, scratch) for name in self.asked.workload]
        if self.groups:
            self.groups.prepare(self.journal)
        for workload in made:
            document['comparisons'].append(self.compare(workload, scratch))
            if self.asked.json not in (None, '-'):   # each: what comes later may be stopped
                write_json(self.asked.json, document)
            if self.asked.json != '-':
                table.show(document, document['comparisons'][-1])
        if self.asked.json == '-':
            write_json('-', document)
        none = results.empty(document)
        if none:
            raise Trouble(f'{", ".join(none)}: every arm was skipped, so there is nothing to compare')
        return 1 if results.bad(document) else 0


def guarded(asked, workloads, system, journal):
    stopping = Stopping()
    stopping.install()
    journal.open()
    status = FAILED
    try:
        recover(journal)
        if asked.restore:
            return 0
        need_swap_for_itself(system)
        status = Session(asked, workloads, system, journal, stopping).run()
    except Stopped as e:
        say(f'bench/compare: {e}')
        status = 128 + e.signum
    except (Trouble, WorkloadError):
        raise
    except Exception:   # a mistake, of a workload too: 1 would mean a wrong run
        traceback.print_exc()
    finally:
        failed = journal.restore()
        journal.close()
        if failed:
            say(f'bench/compare: NOT put back: {"; ".join(failed)}. bench/compare --restore tries '
                f'again (record: {journal.record})')
            status = FAILED
    return status


def main(words, workloads, system=None, journal=None):
    parser = options.parser(workloads)
    asked = parser.parse_args(words)
    if asked.list:
        list_all(workloads)
        return 0
    if not asked.workload and not asked.restore:
        parser.error('--workload is needed; --list prints them')
    system = system or System()
    try:
        if os.geteuid() != 0:
            raise Trouble('needs root: it sets up swap, zram and memory cgroups')
        return guarded(asked, workloads, system, journal or Journal(system))
    except (Trouble, WorkloadError) as e:
        say(f'bench/compare: {e}')
        return FAILED
