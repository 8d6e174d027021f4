#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/comparing on a machine made of files: all is put back, runs are judged right."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'bench'))
from comparing import Trouble, arms, calibrate, cgroup, job, journal, loop  # noqa: E402
from comparing import options, orders, results, settings, table  # noqa: E402
from comparing.stopping import Stopped, Stopping  # noqa: E402
from comparing.system import System, selected  # noqa: E402

MIB = 1 << 20
FILES = {
    journal.BOOT_ID: 'boot-1',
    settings.PAGE_CLUSTER: '3',
    settings.THP: 'always [madvise] never',
    settings.FOLIOS_64K: 'always inherit madvise [never]',
    f'{settings.ZSWAP}/enabled': 'N',
    f'{settings.ZSWAP}/compressor': 'lzo',
    f'{settings.ZSWAP}/max_pool_percent': '20',
    '/proc/crypto': 'name         : lzo\nname         : lz4\n',
    '/sys/class/zram-control/hot_add': '',
    '/proc/self/mounts': 'cgroup /cg/memory cgroup rw,memory 0 0\n'
                         'cgroup /cg/time cgroup rw,cpu,cpuacct 0 0\n'
                         'cgroup2 /cg/unified cgroup2 rw 0 0',
    '/cg/unified/cgroup.controllers': '',
    '/cg/memory/cgroup.procs': '',
    '/cg/time/cgroup.procs': '',
}
BRACKETS = (settings.THP, settings.FOLIOS_64K)


class FakeSystem(System):
    """Settings are files; swap areas and zram devices are lists; done says what happened."""

    def __init__(self, root, files=FILES):
        super().__init__(root)
        for path, content in files.items():
            self.put(path, content)
        self.areas = []
        self.zrams = []
        self.done = []
        self.broken = set()      # what cannot be done

    def put(self, path, content):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), 'w', encoding='utf-8') as f:
            f.write(content)

    def step(self, what):
        if what in self.broken:
            raise Trouble(f'{what}: broken')
        self.done.append(what)

    def write(self, path, value):
        self.step(f'{path}={value}')
        if path in BRACKETS:
            value = selected_as(self.read(path), str(value))
        self.put(path, str(value))

    def swaps(self):
        return dict.fromkeys(self.areas, 0)

    def swapon(self, path, priority):
        self.step(f'swapon {os.path.basename(path)}')
        self.areas.append(path)

    def swapoff(self, path):
        self.step(f'swapoff {os.path.basename(path)}')
        self.areas.remove(path)

    def add_zram(self):
        number = len(self.zrams)
        self.zrams.append(number)
        self.put(f'/sys/block/zram{number}/comp_algorithm', '[lzo] lz4')
        return number

    def remove_zram(self, number):
        self.step(f'remove zram{number}')
        self.zrams.remove(number)

    def rmdir(self, path):
        for name in os.listdir(self.path(path)):
            os.unlink(self.path(f'{path}/{name}'))
        super().rmdir(path)


def selected_as(text, word):
    return ' '.join(f'[{w}]' if w == word else w
                    for w in text.replace('[', '').replace(']', '').split())


class FakeWorkload:
    name, summary, size = 'fake', 'nothing', 64 * MIB
    sizes = {'small': size}
    own = None

    def budget(self):
        return 32 * MIB

    def missing(self):
        return None

    def prepare(self):
        pass

    def describe(self):
        return {}

    def devices(self):
        return self.own


class Case(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.root = held.name
        self.system = FakeSystem(self.root)
        self.journal = self.new_journal()
        self.before = self.state()

    def new_journal(self):
        j = journal.Journal(self.system, '/var/lib/record')
        j.open()
        self.addCleanup(j.close)
        return j

    def state(self):
        files = {path: self.system.read(path) for path in FILES}
        groups = [os.listdir(self.system.path(p)) for p in ('/cg/memory', '/cg/time')]
        return files, list(self.system.areas), list(self.system.zrams), groups

    def bench(self, system=None):
        system = system or self.system
        scratch = os.path.join(self.root, f'{journal.SCRATCH}x')
        os.makedirs(scratch, exist_ok=True)
        groups = cgroup.find(system)
        bench = loop.Bench(system, self.journal, groups, Stopping(), '/bin/true', scratch,
                           FakeWorkload(), None, named=True)
        bench.prepare()
        return bench

    def set_up(self, arm):
        folder = tempfile.mkdtemp(dir=self.root)
        return arm.bench.set_up(arm, folder)


class PutBack(Case):
    def test_every_arm_is_put_back(self):
        for kind in arms.ARMS.values():
            with self.subTest(kind.name):
                self.assertIsNone(kind(self.bench()).missing())
                self.set_up(kind(self.bench()))
                self.assertNotEqual(self.state(), self.before)   # a group at least
                self.assertEqual(self.journal.restore(), [])
                self.assertEqual(self.state(), self.before)
                self.assertFalse(os.path.exists(self.journal.record))

    def test_arms_change_what_they_say(self):
        self.set_up(arms.KernelZramFolios(self.bench()))
        self.assertEqual(selected(self.system.read(settings.FOLIOS_64K)), 'always')
        self.assertEqual(self.system.read(settings.PAGE_CLUSTER), '0')
        self.assertEqual(self.system.read('/sys/block/zram0/comp_algorithm'), 'lz4')
        self.assertEqual(self.system.areas, ['/dev/zram0'])
        self.journal.restore()
        self.set_up(arms.KernelZswap(self.bench()))
        self.assertEqual(self.system.read(f'{settings.ZSWAP}/enabled'), 'Y')
        self.assertEqual(self.system.read(f'{settings.ZSWAP}/compressor'), 'lz4')

    def test_zswap_of_the_user_is_off_in_the_other_arms(self):
        self.system.put(f'{settings.ZSWAP}/enabled', 'Y')
        self.set_up(arms.KernelZram(self.bench()))
        self.assertEqual(self.system.read(f'{settings.ZSWAP}/enabled'), 'N')
        self.journal.restore()
        self.assertEqual(self.system.read(f'{settings.ZSWAP}/enabled'), 'Y')

    def test_put_back_in_reverse_order(self):
        self.set_up(arms.KernelZramFolios(self.bench()))
        self.system.done.clear()
        self.journal.restore()
        self.assertEqual(self.system.done, [
            f'{settings.PAGE_CLUSTER}=3', f'{settings.FOLIOS_64K}=never', 'swapoff zram0',
            'remove zram0'])

    def test_failure_at_every_step_of_the_set_up_is_put_back(self):
        for kind in arms.ARMS.values():
            self.system.done.clear()
            self.set_up(kind(self.bench()))
            steps = list(dict.fromkeys(self.system.done))
            self.journal.restore()
            for step in steps:
                if 'cg/' in step:
                    continue   # the name of a group is never the same
                with self.subTest(f'{kind.name}: {step}'):
                    self.system.broken = {step}
                    bench = self.bench()
                    try:
                        with self.assertRaises(Trouble):
                            bench.once(kind(bench), 1)
                    finally:
                        self.system.broken = set()
                    self.journal.restore()   # what could not be undone while it was broken
                    self.assertEqual(self.state(), self.before)

    def test_what_cannot_be_undone_stays_in_the_record(self):
        self.set_up(arms.KernelZramFolios(self.bench()))
        self.system.broken = {'swapoff zram0'}
        failed = self.journal.restore()
        self.assertEqual(len(failed), 1)
        self.assertIn('swapoff /dev/zram0', failed[0])
        # The others are undone all the same.
        self.assertEqual(self.system.read(settings.PAGE_CLUSTER), '3')
        self.assertEqual([s['undo'] for s in self.journal.load()], ['swapon'])

    def test_next_start_puts_back_what_a_killed_one_left(self):
        self.set_up(arms.KernelZswap(self.bench()))
        os.close(self.journal.lock)   # as death does
        self.journal.lock = None
        later = self.new_journal()
        self.assertEqual(later.restore(), [])
        self.assertEqual(self.state(), self.before)

    def test_killed_before_the_change_is_no_harm(self):
        self.journal.note('swapon', path='/dev/zram7')
        self.journal.note('zram', number=7)
        self.journal.note('cgroup', folders=['/cg/memory/none'])
        self.journal.note('folder', path=f'/var/tmp/{journal.SCRATCH}none')
        self.assertEqual(self.journal.restore(), [])

    def test_after_a_boot_only_folders_are_removed(self):
        folder = f'/var/tmp/{journal.SCRATCH}y'
        os.makedirs(self.system.path(folder))
        self.journal.note('folder', path=folder)
        self.journal.set(settings.PAGE_CLUSTER, '0')
        self.system.put(journal.BOOT_ID, 'boot-2')
        self.system.put(settings.PAGE_CLUSTER, '5')
        self.journal.steps = self.journal.load()
        self.assertEqual(self.journal.restore(), [])
        self.assertEqual(self.system.read(settings.PAGE_CLUSTER), '5')
        self.assertFalse(self.system.exists(folder))

    def test_only_scratch_folders_are_removed(self):
        os.makedirs(self.system.path('/var/tmp/mine'))
        self.journal.note('folder', path='/var/tmp/mine')
        self.assertEqual(len(self.journal.restore()), 1)
        self.assertTrue(self.system.exists('/var/tmp/mine'))

    def test_two_at_once_are_refused(self):
        with self.assertRaisesRegex(Trouble, 'another'):
            journal.Journal(self.system, '/var/lib/record').open()

    def test_record_that_others_can_write_is_refused(self):
        self.journal.close()
        os.makedirs(self.system.path('/var/lib/record'), exist_ok=True)
        os.chmod(self.system.path('/var/lib/record'), 0o777)
        with self.assertRaisesRegex(Trouble, 'alone'):
            journal.Journal(self.system, '/var/lib/record').open()

    def test_signal_waits_for_a_safe_point(self):
        s = Stopping()
        s.on_signal(2, None)   # no exception here
        with self.assertRaises(Stopped) as caught:
            s.check()
        self.assertEqual(caught.exception.signum, 2)
        later = Stopping()
        with self.assertRaises(Stopped), later.interruptible():
            later.on_signal(15, None)
            self.fail('not broken off')


class Skipping(Case):
    def why(self, kind, without):
        files = {p: c for p, c in FILES.items() if not p.startswith(without)}
        with tempfile.TemporaryDirectory() as root:
            return kind(self.bench(FakeSystem(root, files))).missing()

    def test_missing_features_are_named(self):
        for kind, without, word in (
                (arms.KernelZram, '/sys/class/zram-control', 'zram'),
                (arms.KernelZramFolios, settings.FOLIOS_64K, '64 KiB'),
                (arms.KernelZswap, settings.ZSWAP, 'zswap'),
                (arms.KernelFile, '/proc/self/mounts', 'cgroup'),
                (arms.Uswap, '/proc/self/mounts', 'cgroup')):
            with self.subTest(kind.name):
                self.assertIn(word, self.why(kind, without))
        self.assertIsNone(self.why(arms.Native, '/proc/self/mounts'))

    def test_zswap_leaves_a_trace_so_it_must_be_named(self):
        bench = self.bench()
        bench.named = False
        self.assertIn('until the next boot', arms.KernelZswap(bench).missing())
        self.assertNotIn('one by one', arms.KernelZramFolios(bench).what())
        os.makedirs(self.system.path(settings.ZSWAP_SLAB))
        self.assertIsNone(arms.KernelZswap(bench).missing())
        self.assertIn('one by one', arms.KernelZramFolios(bench).what())

    def test_codec_that_zram_lacks(self):
        bench = self.bench()
        self.system.add_zram = lambda: (FakeSystem.add_zram(self.system), self.system.put(
            '/sys/block/zram0/comp_algorithm', '[lzo] zstd'))[0]
        with self.assertRaisesRegex(Trouble, 'no lz4: only lzo, zstd'):
            bench.once(arms.KernelZram(bench), 1)
        self.assertEqual(self.state(), self.before)

    def test_devices_of_the_workload(self):
        bench = self.bench()
        bench.workload.own = [('zram', MIB, 100), ('zram', 64 * MIB, 10)]
        self.assertIn('own devices', arms.KernelFile(bench).missing())
        self.assertIn('own devices', arms.Uswap(bench).missing())
        self.assertIsNone(arms.Native(bench).missing())
        self.set_up(arms.KernelZram(bench))
        self.assertEqual(self.system.areas, ['/dev/zram0', '/dev/zram1'])
        words = arms.UswapZram(bench).command(['job'], '/x')
        self.assertIn(f'zram:{MIB},prio=100', words)
        self.assertIn(f'zram:{64 * MIB},prio=10', words)


class Groups(Case):
    def test_version_1(self):
        group = cgroup.find(self.system).make(self.journal, 64 * MIB)
        self.assertEqual(self.system.read(f'{group.folder}/memory.limit_in_bytes'), str(64 * MIB))
        self.system.put(f'{group.folder}/memory.oom_control', 'oom_kill_disable 0\noom_kill 2')
        self.system.put(f'{group.folder}/memory.stat', 'mapped_file 4096\npgfault 7')
        self.system.put(f'{group.folders[1]}/cpuacct.usage', '1500000000')
        self.assertEqual(group.oom_kills(), 2)
        self.assertEqual(group.file_bytes(), 4096)
        self.assertEqual(group.cpu_seconds(), 1.5)

    def test_version_2(self):
        self.system.put('/proc/self/mounts', 'cgroup2 /cg/two cgroup2 rw 0 0')
        self.system.put('/cg/two/cgroup.controllers', 'cpu memory')
        self.system.put('/cg/two/cgroup.subtree_control', 'cpu')
        found = cgroup.find(self.system)
        found.prepare(self.journal)
        group = found.make(self.journal, 64 * MIB)
        self.assertEqual(self.system.read(f'{group.folder}/memory.max'), str(64 * MIB))
        self.system.put(f'{group.folder}/memory.events', 'oom 3\noom_kill 1')
        self.system.put(f'{group.folder}/memory.stat', 'file_mapped 8192')
        self.system.put(f'{group.folder}/cpu.stat', 'usage_usec 250000')
        self.system.put(f'{group.folder}/memory.current', '123')
        group.look()   # no memory.peak, as before Linux 5.19
        self.assertEqual((group.oom_kills(), group.file_bytes(), group.cpu_seconds(),
                          group.peak_bytes()), (1, 8192, 0.25, 123))
        self.system.done.clear()
        self.assertEqual(self.journal.restore(), [])
        self.assertEqual(self.system.done, ['/cg/two/cgroup.subtree_control=-memory'])
        self.assertFalse(self.system.exists(group.folder))

    def test_the_same_memory_for_all(self):
        bench = self.bench()
        c = calibrate.Calibration(100 * MIB)
        c.take_native({'outcome': 'ok', 'file_bytes': 3 * MIB, 'peak_bytes': 0})
        c.take_zram({'outcome': 'ok', 'pool_bytes': 20 * MIB})
        every = {n: kind(bench) for n, kind in arms.ARMS.items()}
        self.assertIsNone(c.limit(every['native']))
        for name in ('kernel-zram', 'kernel-zram-mthp', 'kernel-zswap', 'kernel-file',
                     'uswap-file'):
            self.assertEqual(c.limit(every[name]), (100 + 3 + 16) * MIB, name)
        for name in ('uswap', 'uswap-zram'):
            self.assertEqual(c.limit(every[name]), (120 + 3 + 16) * MIB, name)
            self.assertEqual(c.budget(every[name]), 120 * MIB, name)
        self.assertEqual(c.budget(every['uswap-file']), 100 * MIB)

    def test_the_pool_is_that_of_a_job_without_overshoot(self):
        limits = []

        class Once:
            calibration = calibrate.Calibration(100 * MIB)
            workload = FakeWorkload()

            def once(self, arm, timeout, limit=None):
                limits.append((arm.name, limit))
                return {'outcome': 'ok', 'file_bytes': 3 * MIB, 'peak_bytes': 0, 'pool_bytes': 7,
                        'wall_s': 1.0, 'measured_s': 1.0, 'detail': ''}

        bench = self.bench()
        c = loop.Comparison(bench, ['uswap-zram'], 1, 9)
        c.bench = Once()
        c.bench.system, c.bench.groups = bench.system, bench.groups
        c.calibrate()
        self.assertEqual(limits, [('native', None), ('kernel-zram', 103 * MIB)])
        folder = tempfile.mkdtemp(dir=self.root)
        bench.set_up(arms.KernelZram(bench), folder, 103 * MIB)
        self.assertIn(f'/cg/memory/uswap-compare-{os.getpid()}-1/memory.limit_in_bytes={103 * MIB}',
                      self.system.done)


class Judging(Case):
    def judged(self, status=0, timeout=None, result=None, report=None, kills=0, said=''):
        group = type('Group', (), {'oom_kills': lambda self: kills})()
        folder = tempfile.mkdtemp(dir=self.root)
        with open(os.path.join(folder, 'stderr'), 'w', encoding='utf-8') as f:
            f.write(said)
        one = job.Job(self.bench(), None, group, folder)
        return one.judge(status, timeout, result, report)[0]

    def test_outcomes(self):
        good = {'measured_s': 1.0, 'wrong': 0}
        report = {'vmstat': {'oom_kill': 1}}
        for want, given in (
                ('ok', {'result': good}),
                ('failed', {}),
                ('failed', {'result': {'wrong': 0}}),
                ('failed', {'status': 1, 'said': 'no such file'}),
                ('failed', {'status': -11, 'result': good}),
                ('wrong', {'result': {'measured_s': 1.0, 'wrong': 3}}),
                ('wrong', {'status': 1, 'said': 'page 3 is wrong'}),
                ('killed', {'status': 137, 'kills': 1}),
                ('killed', {'result': good, 'kills': 1}),
                ('killed', {'status': 137, 'report': report}),
                ('timeout', {'status': -9, 'timeout': 5, 'kills': 0})):
            with self.subTest(given):
                self.assertEqual(self.judged(**given), want)


def arm(name, seconds, ram=None):
    """seconds: by round; None is killed."""
    runs = [{'round': i, 'outcome': 'killed' if s is None else 'ok', 'measured_s': s,
             'wall_s': s, 'detail': None, 'touch': {'p50_ns': 10, 'p99_ns': 20, 'max_ns': 3e9}}
            for i, s in enumerate(seconds)]
    return {'name': name, 'what': 'x', 'skipped': None, 'memory': {'limit': 9 * MIB, 'ram': ram},
            'runs': runs, 'killed': seconds.count(None), 'median': results.medians(runs),
            'spread': results.spread(runs)}


class Environment(Case):
    def test_the_workload_has_the_last_word(self):
        bench = self.bench()
        bench.workload.environ = lambda: {'LC_ALL': 'other', 'WANTED': '1'}
        env = job.Job(bench, arms.Native(bench), None, self.root).environ()
        self.assertEqual((env['LC_ALL'], env['WANTED']), ('other', '1'))
        bench.workload.environ = lambda: {}
        self.assertEqual(job.Job(bench, arms.Native(bench), None, self.root).environ()['LC_ALL'], 'C')


class Results(unittest.TestCase):
    KERNEL = {'kernel-zram', 'kernel-zram-mthp'}

    def test_ratios_within_a_round(self):
        every = [arm('kernel-zram', [4.0, 6.0, None]), arm('kernel-zram-mthp', [9.0, 9.0, 9.0]),
                 arm('uswap', [2.0, 2.0, 2.0], ram=MIB)]
        found = {(r['arm'], r['to']): r for r in results.ratios(every, self.KERNEL)}
        r = found['uswap', 'kernel-zram']
        self.assertEqual((r['measured'], r['low'], r['high'], r['rounds']), (2.5, 2.0, 3.0, 2))
        self.assertEqual(found['uswap', 'best-zram'] | {'to': 'kernel-zram'}, r)
        self.assertEqual(every[0]['median']['measured_s'], 5.0)

    def test_killed_in_all_rounds_has_no_ratio(self):
        every = [arm('kernel-zram', [None, None]), arm('uswap', [1.0, 1.0], ram=MIB)]
        self.assertEqual(results.ratios(every, self.KERNEL), [])
        self.assertEqual(table.outcomes(every[0]), 'killed 2 of 2')

    def test_outcomes_in_words(self):
        self.assertEqual(table.outcomes(arm('a', [1.0, None, 2.0])), 'killed 1 of 3, 2 ok')

    def test_every_arm_is_first_in_turn(self):
        items = list(range(8))
        orders = [loop.rotated(items, i) for i in range(8)]
        self.assertEqual([o[0] for o in orders], items)
        self.assertTrue(all(sorted(o) == items for o in orders))

    def test_table_fits_120_columns(self):
        every = [arm(name, [1000.0, 2000.0, None], ram=None if 'kernel' in name else MIB)
                 for name in arms.ARMS]
        for a in every:
            a['median'].update(cpu_s=1000.0, others_cpu_s=1000.0,
                               cpu=dict.fromkeys(results.NESTED['cpu'], 1000.0),
                               **dict.fromkeys(('peak_bytes', 'pool_bytes', 'device_bytes'),
                                               100 << 30),
                               **dict.fromkeys(('faults', 'major_faults', 'pages_in',
                                                'pages_out'), 123456789))
        kernel = {n for n in arms.ARMS if 'kernel' in n}
        comparison = {
            'workload': 'w', 'summary': 's', 'runs': 3, 'ram': MIB, 'arms': every,
            'settings': {'device_bytes': [MIB, 2 * MIB], 'none': None,
                         **{f'setting {i}': 'value' for i in range(20)}},
            'calibration': {'file_bytes': 1, 'zram_peak_bytes': 2, 'overshoot_bytes': 3,
                            'remarks': ['long ' * 60]},
            'ratios': results.ratios(every, kernel)}
        document = {'machine': {'cpus': 2, 'cpu_model': 'M' * 60, 'memory_bytes': 1, 'kernel': 'k',
                                'cgroup': 'v1', 'thp': None}, 'commit': 'c' * 40, 'dirty': True}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            table.show(document, comparison)
        self.assertEqual([line for line in out.getvalue().splitlines() if len(line) > 120], [])
        self.assertIn('best-zram', out.getvalue())
        self.assertIn('device 1 MiB + 2 MiB, setting 0 value', out.getvalue())


REPORT = {
    'vmstat': {}, 'devices': [{'size': 0, 'peak': 0}, {'size': 100, 'peak': 90}],
    'orders': [{'order': o, 'swpout': 10 * o, 'swpout_fallback': int(o == 4), 'swpin': 0,
                'zswpout': 9} for o in range(10)]}


class Orders(Case):
    def test_all_sizes_are_asked_for_in_the_arms_of_uswap(self):
        bench = self.bench()
        for wanted in (False, True):
            bench.all_orders = wanted
            for name, kind in arms.ARMS.items():
                words = kind(bench).command(['job'], self.root)
                self.assertEqual('--order' in words, wanted and name.startswith('uswap'), words)

    def test_area_is_a_multiple_of_what_the_workload_takes(self):
        bench = self.bench()
        sizes = {}
        for area in (0.5, 2.0):
            bench.area = area
            sizes[area] = [a[1] for a in arms.Uswap(bench).areas()]
        self.assertEqual(sizes, {0.5: 2 * [32 * MIB], 2.0: 2 * [128 * MIB]})

    def test_folios_are_those_that_went_out_whole_wherever_to(self):
        found = orders.of_report(REPORT)
        self.assertEqual(found[4], {'order': 4, 'swpout': 49, 'swpout_fallback': 1})
        self.assertEqual(orders.used_share(REPORT), 0.9)
        self.assertIsNone(orders.of_report(None))
        self.assertIsNone(orders.used_share(None))

    def test_table_sums_the_runs(self):
        runs = 2 * [{'orders': orders.of_report(REPORT)}] + [{'orders': None}, {}]
        rows = {row[0]: row[1:] for row in orders.rows(runs)}
        self.assertEqual(list(rows)[0], '16 KiB')
        self.assertEqual(list(rows)[-1], '2 MiB')
        self.assertEqual(rows['64 KiB'], ['98', '2', '2.00', '98.4', '10.2'])
        self.assertEqual(orders.percent(0, 0), None)

    def test_table_is_shown_when_asked_for(self):
        one = arm('uswap', [1.0], ram=MIB)
        one['runs'][0].update(orders=orders.of_report(REPORT), device_used=0.9)
        comparison = {'workload': 'w', 'summary': 's', 'runs': 1, 'ram': MIB, 'arms': [one],
                      'settings': {}, 'ratios': [],
                      'calibration': {'file_bytes': 1, 'zram_peak_bytes': None,
                                      'overshoot_bytes': 3, 'remarks': []}}
        document = {'machine': {'cpus': 2, 'cpu_model': 'M', 'memory_bytes': 1, 'kernel': 'k',
                                'cgroup': 'v1', 'thp': None}, 'commit': None, 'dirty': False}
        for wanted in (False, True):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                table.show(document, {**comparison, 'all_orders': wanted})
            self.assertEqual('512 KiB' in out.getvalue(), wanted)
        self.assertIn('90.0 to 90.0 %', out.getvalue())


class Options(unittest.TestCase):
    def refused(self, *words):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), self.assertRaises(SystemExit) as e:
            options.parser({'w': None}).parse_args(words)
        self.assertEqual(e.exception.code, 125)
        return err.getvalue()

    def test_bad_input_is_named(self):
        for words, named in ((('--arms', 'native,none'), 'none'), (('--workload', 'v'), 'v: w'),
                             (('--ram', '1M'), '16M'), (('--ram', 'lots'), 'lots'),
                             (('--ram', '0'), 'zero'), (('--runs', '0'), '0 is no'),
                             (('--compress', '1.5'), '1.5'), (('--factor', 'nan'), 'nan'),
                             (('--timeout', '-1'), '-1'), (('--area', '0'), '0 is not'),
                             (('--nonsense',), 'nonsense')):
            with self.subTest(words):
                self.assertIn(named, self.refused(*words))

    def test_sizes(self):
        for text, want in (('64M', 64 * MIB), ('1.5GiB', 3 << 29), ('4096', 4096)):
            self.assertEqual(options.size(text), want)


if __name__ == '__main__':
    unittest.main()
