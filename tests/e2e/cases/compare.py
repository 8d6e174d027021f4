# SPDX-License-Identifier: MIT
"""bench/compare: what it reports, and that the machine is afterwards as it was before."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from harness import MIB, ROOT, Skip, case, check, in_time, read_text, tail

TRIAL = os.path.join(ROOT, 'tests', 'e2e', 'compare_trial.py')
SETTINGS = ['/proc/sys/vm/page-cluster', '/proc/sys/vm/swappiness',
            '/sys/kernel/mm/transparent_hugepage/enabled',
            *glob.glob('/sys/kernel/mm/transparent_hugepage/hugepages-*/enabled'),
            *glob.glob('/sys/module/zswap/parameters/*')]
LEFT = ['/sys/block/zram*', '/sys/fs/cgroup/*/uswap-compare-*', '/sys/fs/cgroup/uswap-compare-*',
        '/var/lib/uswap-compare', '/var/tmp/uswap-compare-*']


def swaps():
    return read_text('/proc/swaps').splitlines()[1:]


def machine():
    """All that compare may change."""
    state = {path: read_text(path) for path in SETTINGS}
    state.update({pattern: sorted(glob.glob(pattern)) for pattern in LEFT})
    state['/proc/swaps'] = swaps()
    control = '/sys/fs/cgroup/cgroup.subtree_control'
    state[control] = sorted(read_text(control).split())
    return state


def expect_as_before(before):
    now = machine()
    different = {k: (before[k], now[k]) for k in now if now[k] != before[k]}
    check(not different, f'left behind, (before, now): {different}')


def build_folder(t):
    """Where the programs of the workloads are."""
    place = os.path.dirname(t.uswap)
    for _ in range(3):
        if os.path.exists(os.path.join(place, 'bench', 'workloads', 'pattern')):
            return place
        place = os.path.dirname(place)
    raise Skip('the workloads of bench are not built')


class Compare:
    """compare with the trials, on a machine whose state is compared too."""

    def __init__(self, t, *words, uswap=None):
        if swaps():
            raise Skip(f'swap is on here: {swaps()}')
        self.t = t
        self.json = t.path('result.json')
        self.before = machine()
        self.argv = [sys.executable, TRIAL, '--json', self.json, '--dir', '/var/tmp',
                     '--build', build_folder(t), *words]
        self.env = {'USWAP': uswap or t.uswap}

    def run(self, status=0, timeout=60):
        run = self.t.native(self.argv, env=self.env, timeout=timeout)
        self.t.log(run.stdout.decode())
        run.expect_status(status)
        expect_as_before(self.before)
        return run

    def arms(self):
        with open(self.json, encoding='utf-8') as f:
            document = json.load(f)
        check(document['version'] == 1, f'version {document["version"]}')
        return document['comparisons'][0], {a['name']: a for a in
                                            document['comparisons'][0]['arms']}

    def start_hanging(self):
        """A run in whose arm swap is on."""
        run = self.t.native(self.argv, env=self.env, wait=False)
        end = time.monotonic() + 20
        while not swaps():
            check(run.proc.poll() is None, f'ended early: {tail(run.stderr)}')
            in_time(time.monotonic() < end, 'no swap is turned on')
            time.sleep(0.02)
        time.sleep(0.3)
        return run


@case(timeout=60)
def arms_side_by_side(t):
    names = ['native', 'kernel-zram', 'kernel-zram-mthp', 'kernel-file', 'uswap', 'uswap-file']
    if os.path.exists('/sys/kernel/slab/zswap_entry'):
        names.append('kernel-zswap')   # else it would leave its trace on this machine
    c = Compare(t, '--workload', 'good', '--runs', '1', '--ram', '32M', '--arms', ','.join(names))
    text = c.run().stdout.decode()
    comparison, arms = c.arms()
    check(list(arms) == names, f'arms {list(arms)}')
    there = [a for a in arms.values() if not a['skipped']]
    for arm in there:
        run = arm['runs'][0]
        check(run['outcome'] == 'ok', f'{arm["name"]}: {run}')
        check(0 < run['measured_s'] < run['wall_s'], f'{arm["name"]}: {run}')
        check(run['cpu_s'] > 0.02 and run['touch']['count'] > 0, f'{arm["name"]}: {run}')
        check(f'\n  {arm["name"]} ' in text, f'no {arm["name"]} in the table')
        # From outside: the working set natively, the budget elsewhere.
        limit = arm['memory']['limit']
        if arm['name'] == 'native':
            check(limit is None and run['peak_bytes'] > 64 * MIB, f'{run}')
            check(run['pages_out'] == 0, f'{run}')
            continue
        check(20 * MIB < run['peak_bytes'] <= limit, f'{arm["name"]}: {run}, {limit}')
        check(run['pages_out'] > 1000 and run['pages_in'] > 1000, f'{arm["name"]}: {run}')
        check(run['device_bytes'] > 4 * MIB, f'{arm["name"]}: {run}')
        check((run['cpu']['supervisor_s'] > 0) == arm['name'].startswith('uswap'), f'{run}')
    pool = comparison['calibration']['zram_peak_bytes']
    if pool:
        check(4 * MIB < pool < 64 * MIB, f'{pool}')
        check(arms['uswap']['memory']['ram'] == 32 * MIB + pool, f'{arms["uswap"]["memory"]}')
        check(arms['uswap-file']['memory']['ram'] == 32 * MIB, f'{arms["uswap-file"]["memory"]}')
        check(any(r['arm'] == 'uswap' and r['to'] == 'best-zram' and r['measured'] > 0
                  for r in comparison['ratios']), f'{comparison["ratios"]}')
    for arm in arms.values():
        if arm['skipped']:
            t.note(f'{arm["name"]}: {arm["skipped"]}')


@case()
def wrong_content(t):
    c = Compare(t, '--workload', 'wrong', '--runs', '2', '--ram', '32M', '--arms', 'native')
    text = c.run(status=1).stdout.decode()
    check('wrong 2 of 2' in text, text)
    runs = c.arms()[1]['native']['runs']
    check([r['outcome'] for r in runs] == ['wrong'] * 2, f'{runs}')


@case()
def killed_for_memory(t):
    """A result, counted; natively it ends well."""
    c = Compare(t, '--workload', 'hungry', '--runs', '2', '--arms', 'native,kernel-file,uswap-file')
    text = c.run().stdout.decode()
    check('killed 2 of 2' in text, text)
    arms = c.arms()[1]
    check(arms['kernel-file']['killed'] == 2 and arms['native']['killed'] == 0, text)
    check(arms['uswap-file']['killed'] == 2, text)


@case()
def hung_run(t):
    c = Compare(t, '--workload', 'hangs', '--runs', '1', '--arms', 'native,kernel-file',
                '--timeout', '1')
    text = c.run(status=1).stdout.decode()
    check('timeout 1 of 1' in text, text)
    check([r['outcome'] for r in c.arms()[1]['native']['runs']] == ['ok'], text)


@case()
def stopped(t):
    c = Compare(t, '--workload', 'hangs', '--runs', '1', '--arms', 'kernel-file')
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        run = c.start_hanging()
        os.kill(run.pid, s)
        run.wait(20).expect_status(128 + s)
        check('NOT put back' not in run.stderr, run.stderr)
        expect_as_before(c.before)
        run.expect_nothing_left()


@case()
def killed_and_restored(t):
    c = Compare(t, '--workload', 'hangs', '--runs', '1', '--arms', 'kernel-file')
    run = c.start_hanging()
    os.kill(run.pid, signal.SIGKILL)
    run.wait(10)
    check(swaps(), 'swap is off: nothing to put back')
    done = t.native([sys.executable, TRIAL, '--restore']).expect_status(0)
    check('swapoff' in done.stderr and 'killed' in done.stderr, done.stderr)
    expect_as_before(c.before)
    run.expect_nothing_left()


@case()
def mistake_in_a_workload(t):
    c = Compare(t, '--workload', 'breaks', '--runs', '1', '--arms', 'kernel-file')
    run = c.run(status=125)
    check('a mistake' in run.stderr, tail(run.stderr))


@case()
def swap_of_the_user(t):
    c = Compare(t, '--workload', 'good', '--arms', 'native')
    path = t.path('users swap')
    with open(path, 'wb') as f:
        os.posix_fallocate(f.fileno(), 0, 4 * MIB)
    os.chmod(path, 0o600)
    for words in (['mkswap', path], ['swapon', path]):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise Skip(f'{words[0]}: {done.stderr.strip()}')
    try:
        run = t.native(c.argv, env=c.env).expect_status(125)
        check(len(swaps()) == 1, f'swaps {swaps()}')
    finally:
        subprocess.run(['swapoff', path], check=True)
    check(path in run.stderr and 'swapoff' in run.stderr, run.stderr)
    expect_as_before(c.before)


@case()
def arm_that_cannot_be_had(t):
    c = Compare(t, '--workload', 'good', '--runs', '1', '--ram', '32M', '--arms',
                'native,uswap-file', uswap='/nonexistent/uswap')
    text = c.run().stdout.decode()
    check('uswap-file: skipped, no binary at /nonexistent/uswap' in text, text)
    arm = c.arms()[1]['uswap-file']
    check(arm['skipped'].startswith('no binary') and not arm['runs'], f'{arm}')


@case()
def no_arm_can_be_had(t):
    """Nothing was compared, and the status says so; the document still tells why."""
    c = Compare(t, '--workload', 'good', '--runs', '1', '--ram', '32M', '--arms', 'uswap-file',
                uswap='/nonexistent/uswap')
    run = c.run(status=125)
    check('every arm was skipped' in run.stderr, tail(run.stderr))
    check(c.arms()[1]['uswap-file']['skipped'].startswith('no binary'), f'{c.arms()}')


@case()
def refused_input(t):
    compare = os.path.join(ROOT, 'bench', 'compare')
    for words, named in (([], '--workload'), (['--workload', 'none'], 'none'),
                         (['--workload', 'fill', '--arms', 'native,x'], 'x'),
                         (['--workload', 'fill', '--ram', '1M'], '16M'),
                         (['--workload', 'fill', '--size', 'giant'], 'giant'),
                         (['--workload', 'fill', '--dir', '/nonexistent'], '/nonexistent'),
                         (['--workload', 'fill', '--json', '/nonexistent/x'], '/nonexistent/x'),
                         (['--workload', 'fill', '--threads', '99'], '99')):
        before = machine()
        run = t.native([sys.executable, compare, *words]).expect_status(125)
        check(named in run.stderr and 'Traceback' not in run.stderr, f'{words}: {run.stderr}')
        expect_as_before(before)


@case()
def without_root(t):
    compare = os.path.join(ROOT, 'bench', 'compare')
    nobody = {'user': 65534, 'group': 65534, 'extra_groups': [], 'cwd': '/'}
    python = shutil.which('python3', path='/usr/bin:/bin')
    if not python or subprocess.run(['test', '-r', compare], **nobody).returncode:
        raise Skip('a plain user has no python, or cannot read the sources')
    done = subprocess.run([python, compare, '--workload', 'fill'], capture_output=True, text=True,
                          timeout=20, **nobody)
    check(done.returncode == 125 and 'needs root' in done.stderr, f'{done}')
