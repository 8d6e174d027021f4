# SPDX-License-Identifier: MIT
"""Which device a page goes to: priorities, turns among peers, tiers, who may use which."""
import os
import re
import signal
import socket
import struct
import threading
import time

from harness import MIB, RUNDIR, Failure, case, check, in_time, rundir_entries

from cases.control import Interactive, stat
from cases.swapoff import devices, path, refused, swapoff, swapon, wait_until


def peak(report, t, name):
    return next(d['peak'] for d in report['devices'] if d['name'] == path(t, name))


def used(t, name):
    return devices(t)[name]['used']


def set_(t, word):
    status, out, err = t.cli('set', word)
    check(status == 0 and out.strip() == '' and err == '', f'set {word}: {status} {out!r} {err!r}')


def process(t, pid):
    return next(p for p in stat(t)['processes'] if p['pid'] == pid)


# ---- priorities and turns ----

@case(timeout=60)
def lower_priority_stays_empty(t):
    run = t.under_uswap([t.program('fill'), '-m', '144M', '-r'], ram=48 * MIB,
                        swap=[f'file:{path(t, "a")}:192M,prio=10',
                              f'file:{path(t, "b")}:192M,prio=10',
                              f'file:{path(t, "c")}:192M,prio=0'])
    run.expect_right_content()
    a, b, c = (peak(run.report, t, name) for name in 'abc')
    check(c == 0, f'{c} bytes were on the device of priority 0, {a} and {b} on the others')
    check(min(a, b) > 30 * MIB, f'the peers got {a / MIB:.0f} and {b / MIB:.0f} MiB')


def share(t, mib, ram):
    """By how much peers differ is a matter of a turn, one cluster a CPU: so they must be large."""
    names = [f'd{i}' for i in range(8)]
    run = t.under_uswap([t.program('fill'), '-m', f'{mib}M', '-r', '-p', '0'], ram=ram, timeout=240,
                        swap=[f'file:{path(t, n)}:{mib // 4}M,prio=10' for n in names])
    run.expect_right_content()
    peaks = [peak(run.report, t, n) for n in names]
    ratio = max(peaks) / max(min(peaks), 1)
    t.note(f'peak use {min(peaks) / MIB:.1f} to {max(peaks) / MIB:.1f} MiB, ratio {ratio:.3f}')
    check(ratio <= 1.049, f'peak use: {peaks}, largest to smallest {ratio:.3f}')


@case(timeout=90)
def equal_devices_share(t):
    share(t, 768, 64 * MIB)


@case(timeout=300, soak=True)
def equal_devices_share_much(t):
    share(t, 2560, 512 * MIB)


@case(timeout=60)
def added_peer_takes_what_the_full_one_cannot(t):
    job = Interactive(t, 112 * MIB, 64 * MIB, fill=['-r'],
                      swap=[f'file:{path(t, "small")}:16M,prio=10',
                            f'file:{path(t, "low")}:256M,prio=0'])
    wait_until('full', lambda: used(t, 'small') >= 15.5 * MIB)
    before = devices(t)
    check(before['low']['used'] > 16 * MIB, f'{before}')
    swapon(t, f'file:{path(t, "peer")}:256M,prio=10')
    set_(t, 'ram=40M')
    wait_until('evicted', lambda: used(t, 'peer') > 12 * MIB)
    after = devices(t)
    check(after['low']['used'] <= before['low']['used'] + MIB,
          f'the lower priority grew from {before["low"]["used"]} to {after["low"]["used"]}')
    job.walk()
    job.end()


@case(timeout=60)
def large_folio_goes_to_a_peer_whole(t):
    """The small device has room for seven, and then 511 slots that are no run."""
    run = t.under_uswap([t.program('fill'), '-m', '160M', '-r'], ram=64 * MIB,
                        args=['--order', '9'],
                        swap=[f'file:{path(t, "small")}:16M,prio=10',
                              f'file:{path(t, "peer")}:512M,prio=10'])
    run.expect_right_content()
    large = run.report['orders'][9]
    small, peer = peak(run.report, t, 'small'), peak(run.report, t, 'peer')
    check(large['swpout'] > 20, f'{large}')
    check(large['swpout_fallback'] == 0, f'folios were taken apart: {large}')
    check(small >= 12 * MIB and peer > 40 * MIB, f'{small} and {peer} bytes')


@case(timeout=60)
def swapoff_heeds_who_may_go_where(t):
    """Room in a tier that is denied is none: refused untouched, with the numbers of who lacks it."""
    job = Interactive(t, 80 * MIB, 48 * MIB, fill=['-r'],
                      args=['--tier', 'fast=50-60', '--tier', 'slow=0-9', '--allow-tiers', 'slow'],
                      swap=[f'file:{path(t, "slow")}:256M,prio=5',
                            f'file:{path(t, "fast")}:256M,prio=55'])
    check(used(t, 'slow') > 20 * MIB, f'{devices(t)}')
    refused(t, ['swapoff', path(t, 'slow')], 'stays on', 'may go to some tiers only',
            'can take in 0.0 MiB; 0.0 MiB have moved')
    now = devices(t)
    check(now['slow']['state'] == 'on' and now['fast']['used'] == 0, f'{now}')
    swapon(t, f'file:{path(t, "more")}:256M,prio=6')
    swapoff(t, path(t, 'slow'))
    check(used(t, 'more') > 20 * MIB and used(t, 'fast') == 0, f'{devices(t)}')
    job.walk()
    job.end()


# ---- what `swaps` shows meanwhile ----

SWAPS, SWAPON, SWAPOFF = 2, 6, 7
ROW = re.compile(r'(\S+) +(file|partition)\t+(\d+)\t+(\d+)\t+(-?\d+)\n')
HEAD = 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n'


def ask(job, verb, arg=''):
    """The control protocol itself, as 2000 processes would only measure fork: (error, text)."""
    data = arg.encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(os.path.join(RUNDIR, job, 'ctl'))
        s.sendall(struct.pack('<4I240s', 0x4c544355, 2, verb, len(data), data))
        f = s.makefile('rb')
        while True:
            magic, version, error, size = struct.unpack('<IIiI', f.read(16))
            check((magic, version) == (0x4c544355, 2), f'reply {magic:x} {version}')
            text = f.read(size)
            if error != 1:
                return error, text.decode()


def check_swaps(text, fixed, coming):
    """Is every line right, every device that stays there once, and the order that of priorities?"""
    check(text.startswith(HEAD), f'{text!r}')
    body, at, names, prios = text[len(HEAD):], 0, [], []
    while at < len(body):
        row = ROW.match(body, at)
        check(row, f'malformed: {text!r}')
        names.append(row.group(1))
        prios.append(int(row.group(5)))
        check(int(row.group(4)) <= int(row.group(3)), f'used > size: {row.group(0)!r}')
        at = row.end()
    check(set(names) - {coming} == fixed, f'{names} instead of {fixed}')
    check(len(names) == len(set(names)), f'twice: {names}')
    return coming in names


@case(timeout=90)
def swaps_is_whole_while_devices_come_and_go(t):
    fixed = {path(t, 'a'), path(t, 'b')}
    job = Interactive(t, 96 * MIB, 40 * MIB, fill=['-r'],
                      swap=[f'file:{path(t, "a")}:128M,prio=5', f'file:{path(t, "b")}:128M'])
    number, = [e for e in rundir_entries() if e not in job.run.rundir_before]
    coming, failures, seen = path(t, 'c'), [], {True: 0, False: 0}
    toggling = threading.Event()

    def toggle():
        try:
            for _ in range(200):
                for verb, arg in ((SWAPON, f'file:{coming}:2M,prio=7'), (SWAPOFF, coming)):
                    error, text = ask(number, verb, arg)
                    check(error == 0, f'{verb}: {error} {text!r}')
        except (Failure, OSError, struct.error) as e:
            failures.append(f'{type(e).__name__}: {e}')
        toggling.set()

    thread = threading.Thread(target=toggle)
    thread.start()
    reads, amid = 0, 0
    try:
        while reads < 2000 or not toggling.is_set():
            error, text = ask(number, SWAPS)
            check(error == 0, f'{error} {text!r}')
            seen[check_swaps(text, fixed, coming)] += 1
            reads += 1
            amid += not toggling.is_set()
    finally:
        thread.join()
    check(not failures, f'{failures}')
    check(min(seen.values()) > 0, f'the device was seen {seen[True]} times of {reads}')
    t.note(f'{reads} reads, {amid} amid 200 rounds; the device was there in {seen[True]}')
    job.walk()
    job.end()


# ---- tiers ----

TIERS = ['--tier', 'fast=50-100', '--tier', 'slow=0-10,policy=fill']


def two(t):
    return [f'file:{path(t, "fast")}:256M,prio=60', f'file:{path(t, "slow")}:256M,prio=5']


@case(timeout=60)
def words_that_are_wrong(t):
    def run(*words):
        return ['run', *words, '--', 'true']

    refused(t, run('--tier', 'a=9-5'), "'9-5' at position 3")
    refused(t, run('--tier', 'a=1-5', '--tier', 'b=5'), "overlap tier 'a', 1-5")
    refused(t, run('--tier', 'a=1', '--tier', 'a=2'), "'a' is given twice")
    refused(t, run('--tier', 'a=1,policy=best'), "'best' at position 12")
    refused(t, run('--tier', 'a=1', '--allow-tiers', 'a,b'), "no --tier defines 'b'")
    refused(t, run('--queue-policy', 'best'), "'best'", 'weighted')
    refused(t, run('--swap', 'zram,weight=0'), "weight '0' at position 13")
    many = [word for i in range(64) for word in ('--tier', f't{i}={i}')]
    refused(t, run(*many), 'more than 63 tiers')


@case(timeout=60)
def allowed_tiers_are_all_that_is_used(t):
    run = t.under_uswap([t.program('fill'), '-m', '144M', '-r'], ram=48 * MIB, swap=two(t),
                        args=[*TIERS, '--allow-tiers', 'slow'])
    run.expect_right_content()
    fast, slow = peak(run.report, t, 'fast'), peak(run.report, t, 'slow')
    check(fast == 0 and slow > 60 * MIB, f'fast {fast}, slow {slow}')
    check([(x['name'], x['policy'], x['devices']) for x in run.report['tiers']] ==
          [('fast', 'default', 1), ('slow', 'fill', 1)], f'{run.report["tiers"]}')
    for p in run.report['processes']:
        check(p['tiers'] == ['slow'], f'{p}')
    # Where these are full, that is said, and not that all are.
    run = t.start([t.program('fill'), '-m', '144M', '-r'], ram=32 * MIB,
                  swap=[f'file:{t.swap_dir}/fast:512M,prio=60', f'file:{t.swap_dir}/slow:16M,prio=5'],
                  args=[*TIERS, '--allow-tiers', 'slow']).wait(30)
    check(run.status == 137 and 'of the tiers that it may use' in run.stderr, f'{run.status} {run.stderr!r}')
    check(peak(run.report, t, 'fast') == 0, 'the other tier was used')


class Shell:
    """A shell in a job, which does a line when it is told to."""

    def __init__(self, t, script, **kw):
        r, self.w = os.pipe()
        script = t.write('script', script)
        self.run = t.start(['sh', script], stdin=os.fdopen(r, 'rb'), **kw)
        self.run.wait_for_output('ready', timeout=30)
        self.pid = int(self.run.stdout.split()[1])

    def go(self, said):
        os.write(self.w, b'\n')
        self.run.wait_for_output(said, timeout=60)

    def end(self):
        os.close(self.w)
        self.run.wait(60).expect_status(0)
        self.run.expect_nothing_left()
        self.run.expect_right_content()


FORKS = '''
import hashlib, os
if not os.fork():
    data = os.urandom(96 << 20)
    first = hashlib.sha1(data).digest()
    again = hashlib.sha1(data).digest()
    os._exit(first != again)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
'''


@case(timeout=120)
def process_and_its_children_keep_to_their_tiers(t):
    fill = t.program('fill')
    forks = t.write('forks.py', FORKS)
    job = Shell(t, f'''echo ready $$
read x; {fill} -m 96M -r -p 2 && echo one
read x; python3 {forks} && echo two
read x; {fill} -m 96M -r && echo three
read x; exit 0
''', ram=48 * MIB, swap=two(t), args=TIERS)
    check(process(t, job.pid)['tiers'] is None, 'restricted from the start')
    set_(t, f'pid.{job.pid}.tiers=slow')
    set_(t, f'pid.{job.pid}.policy=priority')
    me = process(t, job.pid)
    check((me['tiers'], me['policy']) == (['slow'], 'priority'), f'{me}')
    status, out, err = t.cli('ps')
    check(status == 0 and re.search(rf'{job.pid} .* slow +priority +managed', out), f'{out!r}')
    # By fork and exec; by fork alone.
    job.go('one')
    first = {n: d['peak'] for n, d in devices(t).items()}
    job.go('two')
    second = {n: d['peak'] for n, d in devices(t).items()}
    check(second['fast'] == 0, f'pages were on the other tier: {first}, {second}')
    check(min(first['slow'], second['slow']) > 30 * MIB, f'{first}, {second}')
    for p in stat(t)['processes']:
        if p['comm'] in ('fill', 'python3'):
            check(p['tiers'] == ['slow'], f'{p}')
    # One that may use everything begins with the fast one.
    set_(t, f'pid.{job.pid}.tiers=all')
    set_(t, f'pid.{job.pid}.policy=default')
    check(process(t, job.pid)['tiers'] is None, f'{process(t, job.pid)}')
    job.go('three')
    check(devices(t)['fast']['peak'] > 30 * MIB, f'{devices(t)}')
    job.go('')
    job.end()


@case(timeout=90)
def tiers_come_and_go_on_a_running_job(t):
    job = Interactive(t, 208 * MIB, 184 * MIB, fill=['-r'], swap=two(t))
    pid = job.run.find('fill')[0].pid
    check(stat(t)['tiers'] == [], 'tiers that nobody made')
    wait_until('evicted', lambda: used(t, 'fast') > 12 * MIB)
    check(used(t, 'slow') == 0, f'{devices(t)}')
    refused(t, ['set', f'pid.{pid}.tiers=slow'], "'slow': no tier is called so")
    refused(t, ['set', 'tier.slow=none'], "'slow': no tier is called so")
    refused(t, ['set', 'pid.1.tiers=all'], '1: no process of the job')
    set_(t, 'tier.fast=60')
    set_(t, 'tier.slow=5')
    refused(t, ['set', 'tier.third=0-5'], "overlap tier 'slow', 5-5")
    refused(t, ['set', 'tier.slow=0-60'], "overlap tier 'fast', 60-60")
    check([(x['name'], x['prio_min'], x['prio_max']) for x in stat(t)['tiers']] ==
          [('fast', 60, 60), ('slow', 5, 5)], f'{stat(t)["tiers"]}')
    set_(t, f'pid.{pid}.tiers=slow')

    def evict(ram, name, other):
        """
        With less RAM more leaves, and nothing else writes: to `name` alone. But what was in the
        swap cache when the words came left before them, and goes where it might then.
        """
        before, staged = devices(t), stat(t)['ram']['staged']
        set_(t, f'ram={ram}M')
        wait_until(f'evicted to {name}', lambda: used(t, name) > before[name]['used'] + 10 * MIB)
        now = used(t, other)
        check(now <= before[other]['used'] + staged,
              f'{other}: {before[other]["used"]}, then {now}, {staged} were staged')

    evict(144, 'slow', 'fast')
    check(used(t, 'fast') > 12 * MIB, 'what was there did not stay')
    # A tier that comes again, with other priorities, is the same one.
    set_(t, 'tier.slow=none')
    check([x['name'] for x in stat(t)['tiers']] == ['fast'], f'{stat(t)["tiers"]}')
    check(devices(t)['slow']['tier'] == 'default', f'{devices(t)["slow"]}')
    check(process(t, pid)['tiers'] == ['slow'], f'{process(t, pid)}')
    set_(t, 'tier.slow=0-20,policy=weighted')
    evict(104, 'slow', 'fast')
    # One step gives it other priorities: the fast device, and not the slow one any more.
    set_(t, 'tier.fast=1000')
    set_(t, 'tier.slow=50-70')
    evict(64, 'fast', 'slow')
    status, out, err = t.cli('stat')
    check(status == 0 and re.search(r'50-70 .* default +slow\n', out) and ' TIER ' in out, out)
    set_(t, 'queue-policy=fill')
    check(stat(t)['queue_policy'] == 'fill', 'the policy is not what was set')
    status, out, err = t.cli('stat')
    check(status == 0 and '\npolicy  fill\n' in out, out)
    set_(t, f'pid.{pid}.tiers=all')
    job.walk()
    job.end()


# ---- everything at once ----

def counters(t, i):
    with open(t.path(f'counters{i}'), 'rb') as f:
        checks, wrong = (int.from_bytes(f.read(8), 'little') for _ in range(2))
    check(wrong == 0, f'worker {i}: {wrong} pages were wrong')
    return checks


def storm(t, mib, ram, seconds):
    """Workers that move from CPU to CPU, each with a turn that may be another CPU's."""
    fill = t.program('fill')
    cpus = sorted(os.sched_getaffinity(0))
    lines = '\n'.join(f'{fill} -m {mib}M -R -L -S {i} -o {t.path(f"counters{i}")} &'
                      for i in range(4))
    script = t.write('script', f'{lines}\nwait\n')
    size = mib * 2
    run = t.start(['sh', script], ram=ram,
                  swap=[f'file:{path(t, f"d{i}")}:{size}M,prio=10' for i in range(4)])
    wait_until('workers', lambda: len(run.find('fill')) == 4)
    workers = [p.pid for p in run.find('fill')]
    number, = [e for e in rundir_entries() if e not in run.rundir_before]
    fifth, rounds, pins = path(t, 'd4'), 0, 0
    start = now = time.monotonic()
    next_pin = next_toggle = start
    before, on, thread, failures = None, False, None, []

    def toggle(verb, arg):
        try:
            error, text = ask(number, verb, arg)
            check(error == 0, f'{error} {text!r}')
        except (Failure, OSError, struct.error) as e:
            failures.append(f'{verb}: {type(e).__name__}: {e}')

    while now - start < seconds:
        if now >= next_pin:
            next_pin += 0.05
            pins += 1
            for i, pid in enumerate(workers):
                os.sched_setaffinity(pid, {cpus[(pins + i) % len(cpus)]})
        if now >= next_toggle and (thread is None or not thread.is_alive()):
            next_toggle = now + 0.1
            on = not on
            rounds += on
            thread = threading.Thread(target=toggle, args=(
                (SWAPON, f'file:{fifth}:{size}M,prio=10') if on else (SWAPOFF, fifth)))
            thread.start()
        check(not failures and run.proc.poll() is None, f'{failures} {run.stderr[-300:]!r}')
        if before is None and now - start > seconds / 2:
            before = [counters(t, i) for i in range(4)]
        time.sleep(0.01)
        now = time.monotonic()
    thread.join()
    check(not failures, f'{failures}')
    after = [counters(t, i) for i in range(4)]
    in_time(all(b < a for b, a in zip(before, after)), f'a worker stands still: {before}, {after}')
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    run.wait(30)
    run.expect_nothing_left()
    run.expect_right_content()
    v = run.report['vmstat']
    check(v['pswpout'] > mib * 256 and v['pswpin'] > 0, f'{v["pswpout"]} pages out')
    check(v['oom_kill'] == 0, 'a process was ended')
    t.note(f'{rounds} times on and off, {v["swapoff_moved"]} pages moved, {v["pswpout"]} out, '
           f'{sum(after)} checked')


@case(timeout=90)
def workers_migrate_and_a_device_comes_and_goes(t):
    storm(t, 64, 128 * MIB, 20)


@case(timeout=900, soak=True)
def workers_migrate_for_ten_minutes(t):
    storm(t, 512, 1024 * MIB, 600)
