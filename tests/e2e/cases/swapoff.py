# SPDX-License-Identifier: MIT
"""Swap devices that come and go while a job runs."""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

from harness import MIB, Skip, Terminal, case, check, in_time, need, tail

from cases.control import Interactive, stat
from cases.devices import COUNTS
from cases.tools import NOBODY, as_user, install


def devices(t):
    return {os.path.basename(d['name']): d for d in stat(t)['devices']}


def swapon(t, spec):
    status, out, err = t.cli('swapon', spec)
    check(status == 0 and ': on, ' in out and err == '', f'swapon {spec}: {status} {out!r} {err!r}')
    return out


def swapoff(t, name):
    status, out, err = t.cli('swapoff', name, timeout=60)
    check(status == 0 and err == '', f'swapoff {name}: {status} {out!r} {err!r}')
    match = re.search(r': off; ([0-9.]+) MiB moved in ([0-9.]+) s, ([0-9]+) MiB/s', out)
    check(match, f'swapoff {name}: {out!r}')
    return float(match.group(1)), float(match.group(3)), out


def refused(t, words, *parts, status=125):
    got, out, err = t.cli(*words)
    check(got == status and out == '' and len(err.splitlines()) == 1,
          f'{words}: {got} {out!r} {err!r}')
    for part in parts:
        check(part in err, f'{words}: no {part!r} in {err!r}')


def path(t, name):
    return os.path.join(t.swap_dir, name)


def wait_until(what, condition, timeout=15):
    end = time.monotonic() + timeout
    while not condition():
        in_time(time.monotonic() < end, f'{what}: not within {timeout} s')
        time.sleep(0.02)


class Client:
    """A swapoff that is not waited for."""

    def __init__(self, t, name):
        self.proc = subprocess.Popen([t.uswap, 'swapoff', name], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=t.dir)
        t.own_pids.add(self.proc.pid)
        t.cleanups.append(self.proc.kill)

    def end(self, timeout=30):
        out, err = self.proc.communicate(timeout=timeout)
        return self.proc.returncode, out.decode(), err.decode()


# About 6 MiB a second: 128 reads at once, each takes 80 ms.
SLOW = 'delay-read=80000'


class Slow(Interactive):
    """A job with 60 MiB and more on a device that takes seconds to give it back."""

    def __init__(self, t, **kw):
        super().__init__(t, 112 * MIB, 40 * MIB,
                         swap=[f'file:{path(t, "slow")}:256M,prio=10,{SLOW}',
                               f'file:{path(t, "other")}:256M,prio=5'], fill=['-r'], **kw)
        self.t = t
        check(devices(t)['slow']['used'] > 50 * MIB, f'{devices(t)}')

    def begin(self):
        client = Client(self.t, path(self.t, 'slow'))
        wait_until('draining', lambda: devices(self.t)['slow']['state'] == 'draining')
        return client

    def finish(self):
        """Without the delay it would be the same; what is left is seen by the program itself."""
        self.walk()
        self.end()


@case(timeout=120)
def storm(t):
    """Devices of every kind come and go under a program that checks all that it reads."""
    counters = t.path('counters')
    run = t.start([t.program('fill'), '-m', '160M', '-t', '2', '-R', '-L', '-o', counters],
                  ram=56 * MIB, swap=[f'file:{path(t, "first")}:512M,prio=0'])
    run.wait_for_output('ready', timeout=60)

    def count():
        with open(counters, 'rb') as f:
            checks, wrong = (int.from_bytes(f.read(8), 'little') for _ in range(2))
        check(wrong == 0, f'{wrong} pages were wrong')
        return checks

    moved, rounds, before, end = 0.0, 0, count(), time.monotonic() + 20
    while time.monotonic() < end:
        spec = ['zram:1G,prio=100', f'file:{path(t, f"f{rounds}")},prio=50',
                f'file:{path(t, f"g{rounds}")}:256M,prio=0'][rounds % 3]
        name = swapon(t, spec).split(': on')[0]
        time.sleep(0.3)
        moved += swapoff(t, name)[0]
        rounds += 1
        count()
    swapon(t, f'file:{path(t, "last")}:512M,prio=0')
    moved += swapoff(t, path(t, 'first'))[0]
    time.sleep(0.5)
    check(count() > before, 'the program stands still')
    check([d['name'] for d in stat(t)['devices']] == [path(t, 'last')], 'devices are left')
    check(rounds >= 5 and moved > 100, f'{rounds} rounds, {moved:.0f} MiB moved')
    t.note(f'{rounds} rounds, {moved:.0f} MiB moved, {count() - before} pages checked')
    os.kill(run.find('fill')[0].pid, signal.SIGTERM)
    run.wait(20)
    run.expect_nothing_left()


@case(timeout=90)
def names_and_states(t):
    job = Interactive(t, 96 * MIB, 40 * MIB, swap=[f'file:{path(t, "a b")}:256M,prio=7'])
    refused(t, ['swapoff', 'nothing'], "'nothing'", path(t, 'a b'))
    refused(t, ['swapoff'], 'NAME')
    refused(t, ['swapoff', 'a', 'b'], "'b'")
    refused(t, ['swapon'], 'SPEC')
    refused(t, ['swapon', 'floppy:1M'], 'floppy')
    refused(t, ['swapon', 'zram,prio=banana'], 'banana')
    # What is there already is not touched; a relative path is the client's.
    t.write('precious', 'not swap')
    refused(t, ['swapon', 'file:precious'], t.path('precious'))
    refused(t, ['swapon', 'file:none/x'], t.path('none/x'))
    with open(t.path('precious')) as f:
        check(f.read() == 'not swap', 'the file was touched')
    check(len(stat(t)['devices']) == 1, f'{stat(t)["devices"]}')
    swapon(t, 'file:relative:128M,prio=3')
    new = devices(t)['relative']
    check((new['name'], new['prio'], new['state'], new['size'] >> 20) ==
          (t.path('relative'), 3, 'on', 127), f'{new}')
    status, out, err = t.cli('swaps')
    check(status == 0 and len(out.splitlines()) == 3, f'{out!r} {err!r}')
    # By the name that swaps prints, with its blank escaped.
    shown = next(line.split()[0] for line in out.splitlines() if '\\040' in line)
    swapoff(t, shown)
    check(list(devices(t)) == ['relative'], f'{devices(t)}')
    check(devices(t)['relative']['used'] > 30 * MIB, f'{devices(t)}')
    # A newline in a name makes no second line, and what `swaps` prints is its name.
    out = swapon(t, 'file:two\nlines:16M')
    check(len(out.splitlines()) == 1 and 'two?lines' in out, f'{out!r}')
    _, _, out = swapoff(t, t.path('two\\012lines'))
    check(len(out.splitlines()) == 1 and 'two?lines' in out, f'{out!r}')
    status, out, err = t.cli('swapon', '-q', 'zram:64M')
    check((status, out, err) == (0, '', ''), f'{status} {out!r} {err!r}')
    job.walk()
    job.end()


@case(timeout=90)
def without_room(t):
    """Refused with both numbers, and nothing has changed."""
    job = Interactive(t, 160 * MIB, 40 * MIB, fill=['-r'],
                      swap=[f'file:{path(t, "big")}:256M,prio=10',
                            f'file:{path(t, "small")}:32M,prio=5'])
    before = stat(t)
    used = before['devices'][0]['used'] / MIB
    check(used > 100, f'{before["devices"]}')
    refused(t, ['swapoff', path(t, 'big')], 'stays on', f'{used:.1f} MiB are on it',
            'can take in 32.0 MiB')
    after = stat(t)
    check(after['devices'][0]['state'] == 'on' and after['devices'][1]['used'] == 0,
          f'{after["devices"]}')
    swapoff(t, path(t, 'small'))
    refused(t, ['swapoff', path(t, 'big')], 'stays on', 'can take in 0.0 MiB')
    job.walk()
    job.end()


@case(timeout=90)
def room_that_is_not_there(t):
    """The other device fails in the middle: what has moved stays moved, the rest is served."""
    job = Interactive(t, 128 * MIB, 40 * MIB, fill=['-r'],
                      swap=[f'file:{path(t, "good")}:256M,prio=10',
                            f'file:{path(t, "bad")}:256M,prio=5,fault-enospc=0.01,fault-seed=4'])
    refused(t, ['swapoff', path(t, 'good')], 'stays on', 'take in no more', 'have moved')
    now = devices(t)
    check(now['good']['state'] == 'on' and now['good']['used'] > 0, f'{now}')
    job.walk()
    job.end()


@case(timeout=120)
def others_are_answered_meanwhile(t):
    job = Slow(t)
    client = job.begin()
    slowest = 0.0
    for _ in range(5):
        before = time.monotonic()
        state = devices(t)['slow']['state']
        slowest = max(slowest, time.monotonic() - before)
        check(state == 'draining', state)
    check(slowest < 2, f'stat took {slowest:.1f} s')
    refused(t, ['swapoff', path(t, 'other')], 'another swapon or swapoff')
    refused(t, ['swapon', 'zram:64M'], 'another swapon or swapoff')
    status, out, err = client.end(60)
    check(status == 0 and ': off; ' in out and err == '', f'{status} {out!r} {err!r}')
    check(list(devices(t)) == ['other'], f'{devices(t)}')
    t.note(out.strip().split(': ')[-1])
    job.finish()


@case(timeout=120)
def interrupted(t):
    """Ctrl-C: the device is on, says so, and works; the status is that of the signal."""
    job = Slow(t)
    for signo in (signal.SIGINT, signal.SIGTERM):
        client = job.begin()
        time.sleep(0.3)
        before = time.monotonic()
        client.proc.send_signal(signo)
        status, out, err = client.end(10)
        took = time.monotonic() - before
        check(status == -signo and out == '', f'{status} {out!r} {err!r}')
        check('stays on: interrupted' in err and 'have moved' in err, f'{err!r}')
        check(took < 3, f'took {took:.1f} s')
        check(devices(t)['slow']['state'] == 'on', f'{devices(t)}')
    check(devices(t)['other']['used'] > 0, 'nothing has moved')
    job.finish()


@case(timeout=120)
def client_killed(t):
    """Killed, it says nothing to the job; that notices, and the device is on again."""
    job = Slow(t)
    client = job.begin()
    time.sleep(0.3)
    client.proc.kill()
    client.end()
    wait_until('on again', lambda: devices(t)['slow']['state'] == 'on', 5)
    left = devices(t)['slow']['used']
    check(left > 0, 'all had moved')
    # Nobody is left at work, so a new one is not refused, and ends it.
    client = job.begin()
    status, out, err = client.end(60)
    check(status == 0 and ': off; ' in out, f'{status} {out!r} {err!r}')
    job.finish()


@case(timeout=120)
def stopped_client(t):
    """One that reads nothing does not hold up the work."""
    job = Slow(t)
    client = job.begin()
    client.proc.send_signal(signal.SIGSTOP)
    wait_until('off', lambda: 'slow' not in devices(t), 60)
    client.proc.send_signal(signal.SIGCONT)
    status, out, err = client.end()
    check(status == 0 and ': off; ' in out, f'{status} {out!r} {err!r}')
    job.finish()


@case(timeout=120)
def the_job_ends_meanwhile(t):
    job = Slow(t)
    client = job.begin()
    os.kill(job.run.find('fill')[0].pid, signal.SIGKILL)
    job.run.wait(20)
    os.close(job.w)
    status, out, err = client.end(20)
    # All of it was freed at once, it was told to stop, or the job was gone before it could say so.
    check(status in (0, 125), f'{status} {out!r} {err!r}')
    job.run.expect_nothing_left()


@case(timeout=120)
def terminal(t):
    """A line of progress on a terminal, and Ctrl-C there."""
    job = Slow(t)
    term = Terminal(t, ['bash', '--norc', '--noprofile', '-i'])
    term.expect('prompt>')
    term.send(f'{shlex.quote(t.uswap)} swapoff {shlex.quote(path(t, "slow"))}\n')
    term.expect(r'[0-9]+%, [0-9.]+ MiB left, [0-9]+ MiB/s')
    term.send('\x03')
    term.expect(r'stays on: interrupted.*prompt>')
    term.send('echo status=$?\n')
    term.expect('status=130')
    term.leave()
    check(devices(t)['slow']['state'] == 'on', f'{devices(t)}')
    job.finish()


@case(timeout=90)
def unreadable_slot(t):
    """Its pages are lost, and named by number; all others move, and the device goes."""
    r, w = os.pipe()
    run = t.start([t.program('sigbus'), '-m', '96M', '-r', '-w'], ram=40 * MIB,
                  stdin=os.fdopen(r, 'rb'), args=['--order', '2'],
                  swap=[f'file:{path(t, "bad")}:256M,prio=10,fault-slot=600',
                        f'file:{path(t, "good")}:256M,prio=5'])
    run.wait_for_output('ready', timeout=60)
    _, _, out = swapoff(t, path(t, 'bad'))
    match = re.search(r'; ([0-9]+) pages could not be read and are lost', out)
    check(match, f'{out!r}')
    lost = int(match.group(1))
    check(list(devices(t)) == ['good'], f'{devices(t)}')
    os.write(w, b'\n')
    os.close(w)
    run.wait(60).expect_status(0)
    right, seen, wrong, efault, elsewhere = map(int, COUNTS.search(run.stdout).groups())
    check(wrong == 0 and elsewhere == 0 and right + seen == 96 * 256, f'{run.stdout!r}')
    check(seen == lost == 4 and efault == seen, f'{lost} said, {seen} seen')
    check(f'{lost} pages could not be read' in run.stderr, f'{run.stderr!r}')
    run.expect_nothing_left()


def speed(t, order):
    """The promised 100 MiB a second, in the slowest of the rounds."""
    status, out, err = t.cli('bench', 'swapoff', '--order', order, '--dir', t.swap_dir, '--size', '96M',
                             '--rounds', '5', '--json', timeout=100)
    check(status == 0 and err == '', f'{status} {err!r}')
    rate = json.loads(out)['mib_per_s']
    t.note(f'order {order}: {rate["median"]:.0f} MiB/s ({rate["low"]:.0f} to {rate["high"]:.0f})')
    in_time(rate['low'] > 100, f'order {order}: {rate} MiB/s')


@case(timeout=120, alone=True)
def speed_of_single_pages(t):
    speed(t, '0')


@case(timeout=120, soak=True, alone=True)
def speed_of_64_kib(t):
    speed(t, '4')


@case(timeout=120)
def memory_to_file_and_back(t):
    """With a file below it, compressed memory gets half the budget; alone, seven eighths."""
    job = Interactive(t, 128 * MIB, 80 * MIB, swap=['zram:1G,prio=100'])
    pool = stat(t)['ram']['pool']
    check(pool > 10 * MIB, f'pool {pool}')
    swapon(t, f'file:{path(t, "f")}:512M,prio=10')
    moved, _, _ = swapoff(t, 'zram0')
    after = stat(t)
    check(moved > 40 and after['ram']['pool'] == 0, f'{moved} MiB moved, pool {after["ram"]["pool"]}')
    check(after['devices'][0]['used'] > 40 * MIB, f'{after["devices"]}')
    job.walk()
    swapon(t, 'zram:1G,prio=100')
    moved, _, _ = swapoff(t, path(t, 'f'))
    after = stat(t)
    check([d['type'] for d in after['devices']] == ['zram'], f'{after["devices"]}')
    check(after['ram']['pool'] > 10 * MIB, f'{after["ram"]}')
    job.walk()
    job.end()
    job.run.expect_within_budget()


SCRIPT = """
import hashlib
rows = [bytearray(hashlib.shake_128(b"%d" % i).digest(1000) * 24) for i in range(3000)]
for turn in range(8):
    h = hashlib.sha256()
    for i, row in enumerate(rows):
        h.update(row)
        if i % 5 == turn % 5:
            row[turn * 700:turn * 700 + 64] = h.digest() * 2
    print(turn, h.hexdigest(), flush=True)
"""


@case(timeout=150, soak=True)
def python(t):
    """A real program gives the same output while its swap is taken from under it."""
    script = t.write('sort.py', SCRIPT)
    native = t.native([sys.executable, script])
    run = t.start([sys.executable, script], ram=48 * MIB, swap=[f'file:{path(t, "0")}:512M'])
    run.wait_for_output('0 ', timeout=90)
    turns, moved = 0, 0.0
    while run.proc.poll() is None and turns < 12:
        spec = 'zram:512M,prio=9' if turns % 2 == 0 else f'file:{path(t, str(turns + 1))}:512M'
        status, out, _ = t.cli('swapon', spec)
        if status:
            break
        time.sleep(0.5)
        names = [line.split()[0] for line in t.cli('swaps')[1].splitlines()[1:]]
        if len(names) != 2:
            break
        status, out, err = t.cli('swapoff', names[0], timeout=60)
        if status:
            # The end of the program; else there was room, so it must not be refused.
            check(run.proc.poll() is not None or 'not running' in err or 'interrupted' in err,
                  f'{status} {err!r}')
            break
        moved += float(re.search(r'; ([0-9.]+) MiB', out).group(1))
        turns += 1
    run.wait(90).expect_status(0)
    check(run.stdout == native.stdout and run.stdout, f'{run.stdout!r}, natively {native.stdout!r}')
    check(turns >= 2, f'only {turns} swapoffs')
    t.note(f'{turns} swapoffs, {moved:.0f} MiB moved')
    run.expect_nothing_left()


@case(timeout=90)
def plain_user(t):
    """The job and who asks are the same ordinary user, whose rights over files count."""
    for name in ('setcap', 'setpriv', 'unshare', 'mknod'):
        need(name)
    binary = install(t)
    runtime = t.path('runtime')
    for place in (t.dir, t.swap_dir, runtime):
        os.makedirs(place, exist_ok=True)
        os.chown(place, 65534, 65534)
    if subprocess.run(['setcap', 'cap_sys_ptrace+ep', binary], capture_output=True).returncode:
        raise Skip('this file system keeps no capabilities')
    env = {'XDG_RUNTIME_DIR': runtime, 'HOME': '/'}
    r, w = os.pipe()
    run = t.start([t.program('fill'), '-m', '128M', '-w'], ram=48 * MIB, binary=binary, env=env,
                  prefix=as_user(t, '660'), stdin=os.fdopen(r, 'rb'),
                  swap=[f'file:{path(t, "a")}:256M,prio=4'])
    run.wait_for_output('ready', timeout=60)
    closed = t.path('closed')
    os.makedirs(closed)
    os.chmod(closed, 0o700)

    def ask(*words):
        done = subprocess.run([*NOBODY, binary, *words], env=dict(os.environ, **env), cwd=t.dir,
                              capture_output=True, text=True, timeout=60)
        t.log(f'{words} -> {done.returncode} {done.stdout!r} {done.stderr!r}')
        return done

    done = ask('swapon', f'file:{closed}/x')
    check(done.returncode == 125 and 'ermission' in done.stderr, f'{done.stderr!r}')
    done = ask('swapon', 'file:mine:256M')
    check(done.returncode == 0 and t.path('mine') in done.stdout, f'{done.stdout!r} {done.stderr!r}')
    done = ask('swapoff', path(t, 'a'))
    check(done.returncode == 0 and ': off; ' in done.stdout, f'{done.stdout!r} {done.stderr!r}')
    os.write(w, b'\n')
    os.close(w)
    run.wait(60).expect_status(0)
    check(b'wrong=0' in run.stdout, f'{run.stdout!r} {tail(run.stderr)}')
