#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`uswap bench` in small: content and figures are right, a wrong page is found, bad words are named.

usage: test_bench.py USWAP
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
MIB = 1 << 20
USWAP = 'uswap'
ITERATIONS = 2
# The most folios that may find no room whole: in percent, in any iteration.
ARMS = {(): 1.0, ('--small',): 1.0, ('--aligned',): 0.0, ('--aligned', '--small'): 0.0}


def bench(*words):
    done = subprocess.run([USWAP, 'bench', *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def document(*words):
    status, out, err = bench(*words, '--json')
    if status:
        raise AssertionError(f'{words}: exit status {status}: {err}')
    return json.loads(out)


class Thp(unittest.TestCase):
    def test_folios_find_room_on_a_nearly_full_device(self):
        for words, most in ARMS.items():
            with self.subTest(words=words):
                d = document('thp', *words, '--iterations', str(ITERATIONS))
                full = 64 * MIB if '--small' in words else 60 * MIB
                self.assertTrue(d['ok'])
                self.assertEqual(d['wrong_pages'], 0)
                self.assertEqual(len(d['iterations']), ITERATIONS)
                for one in d['iterations']:
                    self.assertEqual(one['used'], full)
                    # 256 blocks drawn from 960: 225 different ones, give or take.
                    self.assertGreater(one['swpout'] + one['swpout_fallback'], 190)
                    self.assertLessEqual(one['percent'], most)
                self.assertEqual(d['used_min'], full)
                self.assertEqual(d['exploded_folios'] > 500, '--aligned' not in words)

    def test_other_devices_give_the_content_back(self):
        with tempfile.TemporaryDirectory(dir='/var/tmp') as place:
            for device in ('ram', f'file:{place}/swap'):
                d = document('thp', '--small', '--iterations', '1', '--device', device)
                self.assertEqual((d['ok'], d['used_min']), (True, 64 * MIB))
            self.assertEqual(os.listdir(place), [])

    def test_a_file_that_is_there_is_used_with_force_only(self):
        with tempfile.TemporaryDirectory(dir='/var/tmp') as place:
            path = os.path.join(place, 'swap')
            with open(path, 'w', encoding='utf-8') as f:
                f.write('wanted')
            status, _, err = bench('thp', '--iterations', '1', '--device', f'file:{path}')
            self.assertEqual((status, ',force' in err), (125, True))
            with open(path, encoding='utf-8') as f:
                self.assertEqual(f.read(), 'wanted')
            self.assertTrue(document('thp', '--iterations', '1', '--device',
                                     f'file:{path},force')['ok'])

    def test_one_wrong_bit_is_found(self):
        status, out, err = bench('thp', '--iterations', '1', '--plant', '--json')
        self.assertEqual(status, 125)
        self.assertIn('1 pages have wrong content', err)
        self.assertEqual((json.loads(out)['ok'], json.loads(out)['wrong_pages']), (False, 1))

    def test_lines_are_those_of_the_kernels_test(self):
        status, out, _ = bench('thp', '--aligned', '--iterations', '1')
        self.assertEqual(status, 0)
        self.assertRegex(out.splitlines()[0], '^Iteration 1: swpout inc: [0-9]+, swpout fallback '
                                              r'inc: 0, Fallback percentage: 0\.00%$')
        self.assertIn('60.00 of 64 MiB', out)


class Alloc(unittest.TestCase):
    def test_every_degree_of_fullness_is_measured(self):
        d = document('alloc', '--order', '4', '--rounds', '3', '--pairs', '500')
        self.assertEqual([r['full'] for r in d['results']], [10, 50, 90, 99, 99.9])
        for r in d['results']:
            for what in ('alloc_ns_a_slot', 'free_ns_a_slot'):
                self.assertEqual(r['order'], 4)
                self.assertTrue(0 < r[what]['low'] <= r[what]['median'] <= r[what]['high'])

    def test_one_degree_all_orders(self):
        d = document('alloc', '--full', '99.9', '--rounds', '1', '--pairs', '100')
        self.assertEqual([(r['order'], r['full']) for r in d['results']],
                         [(o, 99.9) for o in range(10)])

    def test_threads_lose_no_slot(self):
        cpus = str(min(os.cpu_count(), 2))
        for full in ('50', '99.9'):
            d = document('alloc', '--order', '0', '--cpus', cpus, '--rounds', '2', '--pairs',
                         '4000', '--full', full)
            self.assertEqual(d['cpus'], int(cpus))

    def test_table_names_the_ratio(self):
        status, out, _ = bench('alloc', '--order', '9', '--rounds', '1', '--pairs', '100')
        self.assertEqual(status, 0)
        self.assertIn('99 % / 10 %', out)


class Queue(unittest.TestCase):
    SMALL = ('--rounds', '3', '--pairs', '4000')

    def test_policies_take_turns_and_locks_are_theirs(self):
        d = document('alloc', '--queue-policy', 'plist-shared,plist-percpu,queue', *self.SMALL)
        arms = {a['policy']: a for a in d['arms']}
        self.assertEqual(list(arms), ['plist-shared', 'plist-percpu', 'queue'])
        for a in d['arms']:
            for what in ('cpu_ns', 'wall_ns', 'acquired', 'ratio'):
                self.assertTrue(0 < a[what]['low'] <= a[what]['median'] <= a[what]['high'])
        # The list is taken with each allocation, with each cluster, and never.
        taken = {name: a['acquired']['median'] for name, a in arms.items()}
        self.assertAlmostEqual(taken['plist-percpu'] - taken['queue'], 1, delta=0.02)
        self.assertAlmostEqual(taken['plist-shared'] - taken['queue'], 1 / 512, delta=0.02)
        self.assertEqual(arms['plist-shared']['ratio']['high'], 1)

    def test_every_policy_runs_on_threads(self):
        cpus = str(min(os.cpu_count(), 2))
        d = document('alloc', '--queue-policy=all', '--cpus', cpus, '--order', '2', *self.SMALL)
        self.assertEqual(len(d['arms']), 7)
        # Turns of a cluster on eight devices; all on one.
        shares = {a['policy']: a['most_to_least']['median'] for a in d['arms']}
        self.assertLess(shares['queue'], 2)
        self.assertGreater(shares['fill'], 100)

    def test_full_devices_are_passed(self):
        d = document('alloc', '--queue-policy', 'queue', '--devices', '64', '--full', '63',
                     *self.SMALL)
        self.assertEqual(d['arms'][0]['most_to_least']['median'], 1)
        d = document('alloc', '--queue-policy', 'none,queue', '--devices', '1', *self.SMALL)
        self.assertEqual([a['policy'] for a in d['arms']], ['none', 'queue'])

    def test_table_has_a_line_a_policy(self):
        status, out, _ = bench('alloc', '--queue-policy', 'queue,fill', *self.SMALL)
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[0] for line in out.splitlines()[2:]], ['queue', 'fill'])


class Swapoff(unittest.TestCase):
    SMALL = ('swapoff', '--size', '8M', '--rounds', '2')

    def test_all_that_was_on_the_device_is_on_the_other_one(self):
        with tempfile.TemporaryDirectory(dir='/var/tmp', prefix='a,b:c') as place:
            for kind in ('file', 'ram', 'zram'):
                for order in ('0', '4', '9'):
                    d = document(*self.SMALL, '--devices', kind, '--order', order, '--dir', place)
                    self.assertEqual((d['ok'], d['wrong_pages']), (True, 0))
                    self.assertEqual((d['devices'], d['bytes']), (kind, 8 * MIB))
                    rate = d['mib_per_s']
                    self.assertTrue(0 < rate['low'] <= rate['median'] <= rate['high'])
            self.assertEqual(os.listdir(place), [])

    def test_one_wrong_bit_is_found(self):
        status, out, err = bench(*self.SMALL, '--devices', 'ram', '--plant', '--json')
        self.assertEqual(status, 125)
        self.assertIn('1 pages have wrong content', err)
        self.assertEqual((json.loads(out)['ok'], json.loads(out)['wrong_pages']), (False, 1))

    def test_table_names_the_figure(self):
        status, out, _ = bench(*self.SMALL, '--devices', 'ram', '--threads', '1')
        self.assertEqual(status, 0)
        self.assertRegex(out, r'^ram, order 0, 8 MiB: .* MiB/s\n[0-9]+ \([0-9]+ to [0-9]+\)\n')


class Words(unittest.TestCase):
    def test_bad_words_are_named(self):
        for words, named in (
                ((), 'which one'), (('nothing',), "'nothing'"), (('--json', 'thp'), "'--json'"),
                (('thp', '--iterations', '0'), "--iterations '0'"),
                (('thp', '--iterations', 'x'), "'x'"), (('thp', '--seed', '-1'), "--seed '-1'"),
                (('thp', '--device', 'floppy'), 'zram, ram or file:PATH'),
                (('thp', '--device', 'file:'), "'file:'"),
                (('thp', '--device', 'file:/nowhere/swap'), '/nowhere/swap'),
                (('thp', 'more'), "'more'"), (('thp', '--order', '4'), "'--order'"),
                (('alloc', '--order', '10'), 'from 0 to 9'), (('alloc', '--full', '100'), '99.9'),
                (('alloc', '--full', '0'), "'0'"), (('alloc', '--full', '9.99'), "'9.99'"),
                (('alloc', '--full', '5.'), "'5.'"), (('alloc', '--cpus', '0'), 'from 1 to'),
                (('alloc', '--rounds', '100'), 'to 99'), (('alloc', '--aligned'), "'--aligned'"),
                (('alloc', '--pairs',), 'pairs'), (('alloc', '--devices', '2'), '--queue-policy'),
                (('alloc', '--queue-policy', 'lru'), "'lru'"),
                (('alloc', '--queue-policy', 'queue', '--devices', '65'), 'to 64'),
                (('alloc', '--queue-policy', 'queue', '--full', '8'), '--full 8'),
                (('alloc', '--queue-policy', 'none'), '--devices 1'),
                (('usemem', '--queue-policy', 'lru'), "'lru'"), (('usemem', 'more'), "'more'"),
                (('usemem', '--queue-policy', 'fill,'), "''"),
                (('usemem', '--size', '8M'), 'nearly fit'), (('usemem', '--size', '0'), "--size '0'"),
                (('usemem', '--runs', '100'), 'to 99'), (('usemem', '--devices', '17'), 'to 16'),
                (('usemem', '--depth', '0'), 'from 1'), (('usemem', '--order', '10'), 'from 0 to 9'),
                (('usemem', '--dir', '/nowhere'), '/nowhere'),
                (('alloc', '--queue-policy', 'queue', 'more'), "'more'"),
                (('thp', '--device', 'file:x:1G'), 'size'), (('thp', '--device', 'file:x,y'), "'y'"),
                (('swapoff', '--devices', 'disk'), 'file, ram or zram'),
                (('swapoff', '--size', '1M'), "'1M'"), (('swapoff', '--size', 'x'), "'x'"),
                (('swapoff', '--size', '3M'), 'a multiple of 2M'),
                (('swapoff', '--threads', '9'), 'from 1 to 8'),
                (('swapoff', '--dir', '/nowhere', '--size', '2M'), '/nowhere')):
            with self.subTest(words):
                status, out, err = bench(*words)
                self.assertEqual((status, out), (125, ''))
                self.assertEqual(len(err.splitlines()), 1)
                self.assertTrue(err.startswith('uswap: bench'), err)
                self.assertIn(named, err)

    def test_help(self):
        for words, named in ((('--help',), 'alloc'), (('usemem', '-h'), '--depth'),
                             (('thp', '--help'), '--aligned'),
                             (('alloc', '-h'), '--full'), (('swapoff', '-h'), '--devices'),
                             (('alloc', '--queue-policy', 'queue', '-h'), 'weighted')):
            status, out, err = bench(*words)
            self.assertEqual((status, err), (0, ''))
            self.assertIn(named, out)


if __name__ == '__main__':
    USWAP = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
