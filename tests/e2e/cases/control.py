# SPDX-License-Identifier: MIT
"""Looking at a running job, and changing it."""
import json
import os
import re
import signal
import socket
import subprocess
import time

from harness import MIB, Failure, case, check, check_report, in_time


def stat(t, *args):
    status, out, err = t.cli('stat', '--json', *args)
    check(status == 0 and err == '', f'stat --json: {status} {err!r}')
    try:
        return check_report(json.loads(out))
    except ValueError as e:
        raise Failure(f'stat --json: {e}: {out[:200]!r}')


class Interactive:
    """A job running `fill -w`, which does a pass for each line sent to it."""

    def __init__(self, t, bytes_, ram, **kw):
        r, w = os.pipe()
        stdin = os.fdopen(r, 'rb')
        self.run = t.start([t.program('fill'), '-m', str(bytes_), '-w', *kw.pop('fill', [])],
                           ram=ram, stdin=stdin, **kw)
        self.w = w
        self.passes = 0
        self.run.wait_for_output('ready', timeout=90)

    def walk(self, timeout=90):
        os.write(self.w, b'\n')
        self.passes += 1
        end = time.monotonic() + timeout
        while self.run.stdout.count(b'pass ') < self.passes:
            check(self.run.proc.poll() is None, f'ended: {self.run.stderr[-300:]!r}')
            in_time(time.monotonic() < end, 'a pass took too long')
            time.sleep(0.02)

    def end(self):
        os.close(self.w)
        self.run.wait(60).expect_status(0)
        check(b' wrong=0\n' in self.run.stdout, f'{self.run.stdout!r}')
        self.run.expect_nothing_left()


@case(timeout=90)
def stat_json(t):
    job = Interactive(t, 192 * MIB, 64 * MIB)
    job.walk()
    first = stat(t)
    check(first['exit'] is None, f'exit of a running job: {first["exit"]}')
    check(first['ram']['limit'] == 64 * MIB, f'limit {first["ram"]["limit"]}')
    mine = [p for p in first['processes'] if p['comm'] == 'fill']
    check(len(mine) == 1 and mine[0]['pid'] == job.run.find('fill')[0].pid,
          f'processes {first["processes"]}')
    total = mine[0]['resident'] + mine[0]['swapped']
    check(190 * MIB < total < 200 * MIB, f'resident + swapped is {total / MIB:.0f} MiB of 192')
    check(100 * MIB < mine[0]['swapped'], f'swapped {mine[0]["swapped"]}')
    # What it says is resident against what the kernel says.
    kernel = 0
    with open(f'/proc/{mine[0]["pid"]}/smaps_rollup') as f:
        for line in f:
            if line.startswith('Pss_Anon:'):
                kernel = int(line.split()[1]) * 1024
    check(abs(kernel - first['ram']['resident']) <= max(kernel // 50, 8 * MIB),
          f'resident {first["ram"]["resident"]}, the kernel says {kernel}')
    check(sum(d['used'] for d in first['devices']) > 50 * MIB, f'devices {first["devices"]}')
    job.walk()
    second = stat(t)
    check(second['elapsed'] > first['elapsed'], 'elapsed stands still')
    for name in ('pgfault', 'zswpin', 'zswpout'):
        check(second['vmstat'][name] >= first['vmstat'][name], f'{name} went back')
    check(second['vmstat']['pgfault'] > first['vmstat']['pgfault'], 'no fault in a whole pass')
    job.end()


@case(timeout=90)
def swaps_format(t):
    """The format of /proc/swaps: its readers should be able to read it."""
    job = Interactive(t, 128 * MIB, 48 * MIB,
                      swap=['zram:64M,prio=100', f'file:{t.swap_dir}/swap:256M,prio=5'])
    status, out, err = t.cli('swaps')
    lines = out.splitlines()
    check(status == 0 and len(lines) == 3, f'{status} {out!r} {err!r}')
    check(lines[0].split() == ['Filename', 'Type', 'Size', 'Used', 'Priority'], f'{lines[0]!r}')
    rows = {}
    for line in lines[1:]:
        name, kind, size, used, prio = line.split()
        rows[kind] = (name, int(size), int(used), int(prio))
    check(set(rows) <= {'zram', 'file', 'partition'} and len(rows) == 2, f'{rows}')
    values = sorted(rows.values(), key=lambda r: -r[3])
    check([v[3] for v in values] == [100, 5], f'priorities {rows}')
    check(abs(values[0][1] - 65536) <= 64 and abs(values[1][1] - 262144) <= 64,
          f'sizes in KiB: {rows}')
    check(all(0 <= v[2] <= v[1] for v in values) and values[0][2] > 0, f'used: {rows}')
    check(t.swap_dir in values[1][0], f'names: {rows}')
    job.end()


@case(timeout=90)
def ps_and_jobs(t):
    job = Interactive(t, 96 * MIB, 48 * MIB)
    status, out, err = t.cli('ps')
    pid = job.run.find('fill')[0].pid
    check(status == 0 and re.search(rf'\b{pid}\b.*\bfill\b', out), f'ps: {status} {out!r} {err!r}')
    status, out, err = t.cli('jobs')
    check(status == 0 and len(out.splitlines()) == 1 and 'fill' in out, f'jobs: {out!r} {err!r}')
    # What a command's words contain does not break the line, nor drive the terminal.
    other = t.start(['sh', '-c', 'exec sleep 20; : \033[31m\nmore'], ram=32 * MIB)
    end = time.monotonic() + 5
    while 'more' not in out:
        in_time(time.monotonic() < end, f'jobs: {out!r}')
        time.sleep(0.05)
        status, out, err = t.cli('jobs')
    check(len(out.splitlines()) == 2 and '\033' not in out, f'jobs: {out!r} {err!r}')
    os.kill(other.pid, signal.SIGTERM)
    other.wait(10)
    status, text, err = t.cli('stat')
    check(status == 0 and 'resident' in text, f'stat: {status} {text!r} {err!r}')
    status, text, err = t.cli('stat', '0.2', '3')
    check(status == 0 and len(text.splitlines()) == 4, f'stat 0.2 3: {text!r} {err!r}')
    job.end()


@case(timeout=120)
def set_ram(t):
    """The limit of a running job, down and up."""
    job = Interactive(t, 192 * MIB, 128 * MIB)
    job.walk()

    def settle(limit, below):
        status, out, err = t.cli('set', f'ram={limit // MIB}M')
        check(status == 0 and err == '', f'set: {status} {err!r}')
        check(stat(t)['ram']['limit'] == limit, 'the limit is not what was set')
        end = time.monotonic() + 10
        while below and job.run.sampler.current > limit + 16 * MIB:
            in_time(time.monotonic() < end,
                    f'still {job.run.sampler.current // MIB} MiB 10 s after ram={limit // MIB}M')
            time.sleep(0.05)

    settle(48 * MIB, True)
    job.run.sampler.peak = 0
    job.walk()
    low = job.run.sampler.peak
    check(low <= 64 * MIB, f'peak {low // MIB} MiB under ram=48M')
    settle(160 * MIB, False)
    job.run.sampler.peak = 0
    job.walk()
    job.walk()
    time.sleep(0.2)
    high = job.run.sampler.peak
    check(high > 120 * MIB, f'peak {high // MIB} MiB under ram=160M: more is not used')
    check(high <= 176 * MIB, f'peak {high // MIB} MiB under ram=160M')
    settle(512 * MIB, False)
    job.walk()
    before = stat(t)['vmstat']
    job.walk()
    job.walk()
    after = stat(t)['vmstat']
    # All fits now: after one pass to bring it back, nothing moves any more.
    check(after['zswpout'] + after['pswpout'] - before['zswpout'] - before['pswpout'] < 1000,
          'still swaps out although everything fits')
    t.note(f'48M: peak {low // MIB} MiB; 160M: peak {high // MIB} MiB')
    job.end()


@case(timeout=60)
def stat_under_load(t):
    """Asked all the time, a job neither stops nor answers nonsense."""
    run = t.start([t.program('stress'), '-s', '5'], ram=40 * MIB)
    time.sleep(0.5)
    asked = 0
    while run.proc.poll() is None and asked < 60:
        done = subprocess.run([t.uswap, 'stat', '--json'], capture_output=True, text=True,
                              timeout=20)
        if done.returncode == 125 and run.proc.poll() is not None:
            break
        if done.returncode == 125 and 'no job' in done.stderr:
            break
        check(done.returncode == 0, f'stat: {done.stderr!r}')
        check_report(json.loads(done.stdout))
        asked += 1
        time.sleep(0.05)
    run.wait(60).expect_status(0)
    check(asked >= 10, f'only {asked} answers')
    run.expect_nothing_left()


@case()
def impolite_clients(t):
    """Half a request, nonsense, or no reading of the answer must not disturb the job."""
    run = t.start(['sh', '-c', 'echo up; exec sleep 20'])
    run.wait_for_output('up')
    status, out, err = t.cli('jobs')
    path = f'/run/uswap/{out.split()[0]}/ctl'
    held = []
    for data in (b'', b'\0', b'x' * 256, b'GET / HTTP/1.0\r\n\r\n', os.urandom(256)):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        if data:
            s.sendall(data)
        held.append(s)
    stat(t)
    for s in held:
        s.close()
    stat(t)
    check(run.proc.poll() is None, 'the job ended')
    os.kill(run.pid, signal.SIGTERM)
    run.wait(10)
    run.expect_nothing_left()


@case()
def set_ram_below_what_is_compressed(t):
    """It cannot be moved on, so a budget that it would fill is refused, and the job goes on."""
    r, w = os.pipe()
    run = t.start([t.program('fill'), '-m', '140M', '-w'], ram=64 * MIB, stdin=os.fdopen(r, 'rb'),
                  swap=['zram:1G'])
    run.wait_for_output('ready', timeout=30)
    status, _, err = t.cli('set', 'ram=20M')
    os.close(w)
    run.wait(30).expect_status(0)
    check(status != 0 and 'too small for what is compressed' in err, f'{status}: {err!r}')
    run.expect_nothing_left()
