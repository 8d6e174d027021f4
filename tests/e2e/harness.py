# SPDX-License-Identifier: MIT
"""Runs programs natively and under uswap, watches them from outside, and compares.

Nothing here trusts what uswap says of itself where the kernel can be asked: memory is summed from
/proc/PID/smaps_rollup of every process of the job by a thread of the harness, and what a job
leaves behind is looked for in /proc and in the file system.
"""
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
import uuid

MIB = 1 << 20
PAGE = 4096
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RUNDIR = '/run/uswap'
TAG = 'USWAP_E2E_TAG'
HELPER_COMM = 'uswap-helper'   # shares the memory of its program: must not be counted twice
SUPER_COMMS = ('uswap-super', 'uswap')
PR_SET_CHILD_SUBREAPER = 36


class Failure(Exception):
    """The product did something wrong."""


class TooSlow(Failure):
    """Time ran out, or too little happened in it: this depends on what else the machine does."""


class Skip(Exception):
    """This machine cannot run the case."""


class TimedOut(Exception):
    pass


def check(condition, reason):
    if not condition:
        raise Failure(reason)


def in_time(condition, reason):
    if not condition:
        raise TooSlow(reason)


def need(program):
    path = shutil.which(program)
    if not path:
        raise Skip(f'{program} is not installed')
    return path


def become_subreaper():
    """Orphans of a job that outlive uswap become children of the harness and are seen."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_bytes(path):
    try:
        with open(path, 'rb') as f:
            return f.read()
    except OSError:
        return b''


def read_text(path):
    return read_bytes(path).decode('utf-8', 'replace')


# ---- processes ----

class Proc:
    __slots__ = ('pid', 'comm', 'state', 'ppid', 'start')

    def __init__(self, pid, data):
        # The name may hold spaces and parentheses: it ends at the last one.
        right = data.rindex(b')')
        fields = data[right + 2:].split()
        self.pid = pid
        self.comm = data[data.index(b'(') + 1:right].decode('utf-8', 'replace')
        self.state = fields[0].decode()
        self.ppid = int(fields[1])
        self.start = int(fields[19])

    @property
    def key(self):
        return (self.pid, self.start)


def all_processes():
    found = {}
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        data = read_bytes(f'/proc/{name}/stat')
        if data:
            try:
                found[int(name)] = Proc(int(name), data)
            except (ValueError, IndexError):
                pass
    return found


def tagged_processes(tag):
    """Processes whose environment bears the tag, zombies apart."""
    needle = f'{TAG}={tag}'.encode()
    return [p for p in all_processes().values()
            if p.state != 'Z' and needle in read_bytes(f'/proc/{p.pid}/environ')]


def rollup(pid):
    """Bytes by name of /proc/PID/smaps_rollup; empty when the process is gone."""
    fields = {}
    for line in read_text(f'/proc/{pid}/smaps_rollup').splitlines()[1:]:
        parts = line.split()
        if len(parts) >= 2 and parts[1].isdigit():
            fields[parts[0].rstrip(':')] = int(parts[1]) * 1024
    return fields


class Sampler(threading.Thread):
    """Every few tens of milliseconds: the memory of a process and of all that it started.

    Programs count with Pss_Anon, so that pages shared after a fork count once. Of uswap's own
    processes the largest counts whole, the others (the front, the keeper) by their share.
    """
    PERIOD = 0.03

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.members = {}        # key -> Proc, all that were ever seen
        self.peak = 0
        self.peak_detail = ''
        self.samples = 0
        self.current = 0
        self.ending = threading.Event()

    def find_members(self):
        everything = all_processes()
        alive = [p for p in everything.values() if p.key in self.members or p.pid == self.pid]
        seen = {p.pid for p in alive}
        grown = True
        while grown:
            grown = False
            for p in everything.values():
                if p.pid not in seen and p.ppid in seen:
                    seen.add(p.pid)
                    alive.append(p)
                    grown = True
        for p in alive:
            self.members[p.key] = p
        return alive

    def sample(self):
        programs, own, detail = 0, [], []
        for p in self.find_members():
            if p.state == 'Z' or p.comm.startswith(HELPER_COMM):
                continue
            fields = rollup(p.pid)
            if not fields:
                continue
            if p.comm in SUPER_COMMS or p.comm.startswith('uswap-'):
                own.append((fields.get('Rss', 0), fields.get('Pss', 0)))
                detail.append(f'{p.comm}={fields.get("Rss", 0) // MIB}M')
            else:
                amount = fields.get('Pss_Anon', 0)
                programs += amount
                if amount > MIB:
                    detail.append(f'{p.comm}={amount // MIB}M')
        own.sort(reverse=True)
        total = programs + (own[0][0] if own else 0) + sum(pss for _, pss in own[1:])
        self.current = total
        self.samples += 1
        if total > self.peak:
            self.peak = total
            self.peak_detail = ' '.join(detail)

    def run(self):
        while not self.ending.is_set():
            before = time.monotonic()
            self.sample()
            took = time.monotonic() - before
            # At most a fifth of one CPU, however many processes there are.
            self.ending.wait(max(self.PERIOD - took, took * 4, 0.002))

    def finish(self):
        self.ending.set()
        self.join()
        self.find_members()


def still_alive(sampler):
    now = all_processes()
    return [now[pid] for (pid, start) in sampler.members
            if pid in now and now[pid].start == start and now[pid].state != 'Z']


# ---- runs ----

class Run:
    """A process under observation, native or under uswap."""

    def __init__(self, test, argv, *, label, env=None, stdin=None, cwd=None, job=None, **popen):
        self.test = test
        self.argv = [str(a) for a in argv]
        self.label = label
        self.job = job           # budget and places if under uswap
        self.tag = uuid.uuid4().hex
        self.out_path = os.path.join(test.dir, f'{label}.stdout')
        self.err_path = os.path.join(test.dir, f'{label}.stderr')
        environment = dict(os.environ, LC_ALL='C', **{TAG: self.tag})
        environment.pop('USWAP_TEST', None)
        environment.update(env or {})
        test.log(f'[{label}] ' + ' '.join(self.argv) +
                 (f'   env {env}' if env else ''))
        if isinstance(stdin, str):
            stdin = open(stdin, 'rb')
        elif stdin is None:
            stdin = subprocess.DEVNULL
        self.started = time.monotonic()
        self.rundir_before = set(rundir_entries())
        with open(self.out_path, 'wb') as out, open(self.err_path, 'wb') as err:
            self.proc = subprocess.Popen(
                self.argv, stdin=stdin, stdout=popen.pop('stdout', out),
                stderr=popen.pop('stderr', err), env=environment, cwd=cwd or test.dir, **popen)
        if hasattr(stdin, 'close'):
            stdin.close()
        test.runs.append(self)
        self.sampler = Sampler(self.proc.pid)
        self.sampler.start()
        self.elapsed = None

    @property
    def pid(self):
        return self.proc.pid

    @property
    def peak(self):
        return self.sampler.peak

    def wait(self, timeout=None):
        try:
            self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TooSlow(f'{self.label} did not end within {timeout} s')
        self.elapsed = time.monotonic() - self.started
        self.test.log(f'[{self.label}] exit {self.proc.returncode} after {self.elapsed:.2f} s, '
                      f'peak {self.peak / MIB:.0f} MiB ({self.sampler.peak_detail})')
        return self

    @property
    def status(self):
        """As a shell sees it."""
        rc = self.proc.returncode
        return rc if rc >= 0 else 128 - rc

    @property
    def stdout(self):
        return read_bytes(self.out_path)

    @property
    def stderr(self):
        return read_text(self.err_path)

    def expect_status(self, want):
        check(self.status == want,
              f'{self.label}: exit status {self.status}, want {want}; stderr: {tail(self.stderr)}')
        return self

    def wait_for_output(self, text, timeout=60):
        """Until standard output contains text."""
        end = time.monotonic() + timeout
        while text.encode() not in self.stdout:
            if self.proc.poll() is not None and text.encode() not in self.stdout:
                raise Failure(f'{self.label} ended ({self.proc.returncode}) before it said '
                              f'"{text}"; stderr: {tail(self.stderr)}')
            in_time(time.monotonic() < end, f'{self.label} did not say "{text}" in {timeout} s')
            time.sleep(0.02)

    def find(self, comm):
        """Living processes of the run with this name."""
        return [p for p in still_alive(self.sampler) if p.comm == comm[:15]]

    def supervisor(self, timeout=5):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            named = self.find('uswap-super')
            if named:
                return named[0].pid
            others = [p for p in self.find('uswap') if p.pid != self.pid]
            if others:
                return others[0].pid
            time.sleep(0.02)
        raise Failure('no supervisor process found')

    @property
    def report(self):
        try:
            with open(self.job['report']) as f:
                return json.load(f)
        except (OSError, ValueError) as e:
            raise Failure(f'{self.label}: no usable report: {e}')

    def vmstat(self, name):
        return self.report['vmstat'].get(name, 0)

    # -- what must hold after a job --

    def expect_swapped(self, pages_out, pages_in=None):
        v = self.report['vmstat']
        out = v['pswpout'] + v['zswpout']
        back = v['pswpin'] + v['zswpin']
        in_time(out >= pages_out, f'{self.label}: only {out} pages were stored, want {pages_out}')
        want_in = pages_out // 4 if pages_in is None else pages_in
        in_time(back >= want_in, f'{self.label}: only {back} pages came back, want {want_in}')
        return out, back

    def expect_within_budget(self, budget=None, extra=0):
        budget = budget or self.job['ram']
        bound = budget + max(budget // 20, 16 * MIB) + extra
        check(self.sampler.samples >= 3, f'{self.label}: too short to be sampled')
        # With another case beside this one, the thread that watches growth may come late.
        (in_time if self.test.suite.beside else check)(
            self.peak <= bound,
            f'{self.label}: {self.peak / MIB:.0f} MiB at peak, budget {budget / MIB:.0f} MiB, '
            f'bound {bound / MIB:.0f} MiB: {self.sampler.peak_detail}')

    def expect_right_content(self):
        v = self.report['vmstat']
        for name in ('swap_corrupt', 'swap_io_error', 'pgpoison'):
            check(v.get(name, 0) == 0, f'{self.label}: {name} is {v[name]}')

    def expect_nothing_left(self, timeout=3):
        """No process, no file, no socket, no shared memory."""
        self.sampler.finish()
        end = time.monotonic() + timeout
        while True:
            self.test.reap()
            left = self.leftovers()
            if not left:
                return
            if time.monotonic() > end:
                raise Failure(f'{self.label} left behind: ' + '; '.join(left))
            time.sleep(0.05)

    def leftovers(self):
        left = []
        procs = {p.key: p for p in tagged_processes(self.tag)}
        procs.update({p.key: p for p in still_alive(self.sampler)})
        for p in procs.values():
            left.append(f'process {p.pid} ({p.comm}, {p.state})')
        for pid, comm in self.test.adopted():
            left.append(f'orphan {pid} ({comm})')
        left += [f'{RUNDIR}/{e}' for e in rundir_entries() if e not in self.rundir_before]
        if self.job:
            left += [os.path.join(self.job['swap_dir'], f)
                     for f in os.listdir(self.job['swap_dir']) if f not in self.job['keep']]
        left += [f'/dev/shm/{f}' for f in os.listdir('/dev/shm')
                 if f not in self.test.shm_before]
        return left

    def kill(self):
        """The whole job, for the end of a test that went wrong."""
        for _ in range(20):
            targets = {p.pid for p in tagged_processes(self.tag)}
            targets |= {p.pid for p in still_alive(self.sampler)}
            targets.discard(os.getpid())
            if not targets:
                break
            for pid in targets:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.05)
        try:
            self.proc.wait(5)
        except subprocess.TimeoutExpired:
            pass


def rundir_entries():
    try:
        return os.listdir(RUNDIR)
    except OSError:
        return []


def tail(text, lines=4):
    return ' | '.join(text.strip().splitlines()[-lines:]) or '(nothing)'


class Test:
    """What one case gets: a folder of its own, and ways to run things."""

    def __init__(self, suite, name):
        self.suite = suite
        self.name = name
        self.dir = os.path.join(suite.base, name)
        if os.path.exists(self.dir):
            self.dir += '.again'
        os.makedirs(self.dir)
        os.chmod(self.dir, 0o755)
        self.swap_dir = os.path.join(self.dir, 'swap')
        os.mkdir(self.swap_dir)
        self.runs = []
        self.own_pids = set()
        self.notes = []
        self.counter = 0
        self.shm_before = set(os.listdir('/dev/shm'))
        self.cleanups = []

    def log(self, line):
        with open(os.path.join(self.dir, 'log'), 'a') as f:
            f.write(f'{time.strftime("%H:%M:%S")} {line}\n')

    def note(self, text):
        """Shown on the line of the case."""
        self.notes.append(text)
        self.log('note: ' + text)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content):
        path = self.path(name)
        with open(path, 'w' if isinstance(content, str) else 'wb') as f:
            f.write(content)
        return path

    def program(self, name):
        return self.suite.program(name)

    @property
    def uswap(self):
        return self.suite.uswap

    @property
    def hooks(self):
        if not os.access(self.suite.hooks, os.X_OK):
            raise Skip(f'no build with test hooks at {self.suite.hooks}')
        return self.suite.hooks

    def label(self, kind):
        self.counter += 1
        return f'{self.counter}-{kind}'

    def native(self, argv, timeout=120, wait=True, **kw):
        run = Run(self, argv, label=self.label('native'), **kw)
        return run.wait(timeout) if wait else run

    def default_swap(self):
        return ['zram:1G,prio=100', f'file:{self.swap_dir}/swap:3G,prio=10']

    def start(self, argv, *, ram=None, swap=None, args=(), binary=None, keep=(), prefix=(), **kw):
        """`uswap run` with a report, not waited for. ram in bytes."""
        label = self.label('uswap')
        report = self.path(f'{label}.json')
        command = list(prefix) + [binary or self.uswap, 'run']
        if ram:
            command += ['--ram', str(ram)]
        for spec in self.default_swap() if swap is None else swap:
            command += ['--swap', spec]
        command += ['--report', report, *args, '--', *argv]
        job = {'ram': ram, 'report': report, 'swap_dir': self.swap_dir, 'keep': set(keep)}
        return Run(self, command, label=label, job=job, **kw)

    def under_uswap(self, argv, *, timeout=90, status=0, **kw):
        """A whole job with the checks that hold for every one."""
        run = self.start(argv, **kw).wait(timeout)
        if status is not None:
            run.expect_status(status)
        run.expect_nothing_left()
        return run

    def cli(self, *args, timeout=20, **kw):
        """Any other call of uswap: (status, stdout, stderr) as text."""
        done = subprocess.run([self.uswap, *map(str, args)], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout, cwd=self.dir, **kw)
        self.log(f'uswap {" ".join(map(str, args))} -> {done.returncode} {done.stderr!r}')
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return (status, done.stdout.decode('utf-8', 'replace'),
                done.stderr.decode('utf-8', 'replace'))

    def compare(self, argv, *, fraction, pages_out=5000, pages_in=None, minimum=32 * MIB,
                timeout=90, stdin=None, swap=None, status=0, after=None, extra=0, **kw):
        """Natively, then under uswap in a part of the memory that it took natively."""
        native = self.native(argv, timeout=timeout, stdin=stdin, **kw).expect_status(status)
        native.sampler.finish()
        first = after() if after else None
        ram = max(int(native.peak * fraction), minimum) // MIB * MIB
        run = self.under_uswap(argv, ram=ram, timeout=timeout, stdin=stdin, swap=swap,
                               status=status, **kw)
        check(run.stdout == native.stdout,
              f'output differs: {first_difference(native.stdout, run.stdout)}')
        if after:
            check(after() == first, 'the files that it wrote differ')
        out, back = run.expect_swapped(pages_out, pages_in)
        run.expect_within_budget(extra=extra)
        run.expect_right_content()
        self.note(f'native {native.elapsed:.1f} s {native.peak // MIB} MiB, in {ram // MIB} MiB '
                  f'{run.elapsed:.1f} s, peak {run.peak // MIB} MiB, '
                  f'{out} pages out, {back} in')
        return native, run

    # -- orphans --

    def known(self):
        return {r.pid for r in self.runs} | self.own_pids

    def adopted(self):
        """Living processes that came to the harness because their parent ended."""
        me = os.getpid()
        return [(p.pid, p.comm) for p in all_processes().values()
                if p.ppid == me and p.state != 'Z' and p.pid not in self.known()]

    def reap(self):
        me = os.getpid()
        for p in all_processes().values():
            if p.ppid == me and p.state == 'Z' and p.pid not in self.known():
                try:
                    os.waitpid(p.pid, os.WNOHANG)
                except OSError:
                    pass

    def finish(self):
        for run in self.runs:
            run.sampler.finish()
            run.kill()
        for undo in reversed(self.cleanups):
            undo()
        self.reap()
        # What a failed job left must not fail the next case too. Only in our own /run.
        if os.environ.get('USWAP_E2E_PRIVATE'):
            for entry in rundir_entries():
                shutil.rmtree(os.path.join(RUNDIR, entry), ignore_errors=True)


def first_difference(a, b):
    if len(a) != len(b):
        size = f'{len(a)} bytes natively, {len(b)} under uswap, '
    else:
        size = ''
    n = min(len(a), len(b))
    at = next((i for i in range(0, n, 4096) if a[i:i + 4096] != b[i:i + 4096]), n)
    while at < n and a[at] == b[at]:
        at += 1
    return f'{size}first at byte {at}: {a[at:at + 40]!r} and {b[at:at + 40]!r}'


# ---- cases ----

class Case:
    def __init__(self, name, function, timeout, soak, alone):
        self.name = name
        self.function = function
        self.timeout = timeout
        self.soak = soak
        self.alone = alone


CASES = []


def case(timeout=60, soak=False, name=None, alone=False):
    """
    Registers a function as a case, named MODULE.FUNCTION. soak: only with --soak. alone: with no
    other case beside it, as it measures time or changes the machine.
    """
    def register(function):
        module = function.__module__.split('.')[-1]
        add_case(name or f'{module}.{function.__name__}', function, timeout, soak, alone)
        return function
    return register


def add_case(name, function, timeout=60, soak=False, alone=False):
    CASES.append(Case(name, function, timeout, soak, alone))


# ---- pseudo terminal ----

class Terminal:
    """A shell on a pseudo terminal, driven as a person would."""

    def __init__(self, test, argv, env=None):
        self.test = test
        self.master, slave = os.openpty()
        self.tag = uuid.uuid4().hex
        environment = dict(os.environ, PS1='prompt> ', TERM='dumb', LC_ALL='C',
                           **{TAG: self.tag}, **(env or {}))

        def session():
            os.setsid()
            import fcntl
            import termios
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.proc = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=environment,
                                     preexec_fn=session, cwd=test.dir)
        os.close(slave)
        test.own_pids.add(self.proc.pid)
        test.cleanups.append(self.close)
        self.seen = b''
        self.mark = 0

    def send(self, data):
        self.mark = len(self.seen)
        os.write(self.master, data if isinstance(data, bytes) else data.encode())

    def expect(self, pattern, timeout=15):
        """Until the output since the last send matches."""
        end = time.monotonic() + timeout
        regex = re.compile(pattern.encode(), re.S)
        while True:
            match = regex.search(self.seen, self.mark)
            if match:
                return match
            left = end - time.monotonic()
            if left <= 0:
                raise Failure(f'terminal: no {pattern!r} in {self.seen[self.mark:][-300:]!r}')
            ready, _, _ = select.select([self.master], [], [], left)
            if ready:
                try:
                    data = os.read(self.master, 65536)
                except OSError:
                    data = b''
                if not data:
                    raise Failure(f'terminal closed; no {pattern!r} in '
                                  f'{self.seen[self.mark:][-300:]!r}')
                self.seen += data

    def leave(self):
        """Ends the shell; nothing that was started in it may be left."""
        self.send('exit\n')
        end = time.monotonic() + 5
        while self.proc.poll() is None or tagged_processes(self.tag):
            if time.monotonic() > end:
                left = [f'{p.pid} {p.comm} {p.state}' for p in tagged_processes(self.tag)]
                raise Failure(f'5 s after the shell was told to exit: {left}')
            self.test.reap()
            time.sleep(0.05)

    def close(self):
        self.test.log(f'terminal: {self.seen!r}')
        for p in tagged_processes(self.tag):
            try:
                os.kill(p.pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.close(self.master)
        except OSError:
            pass
        try:
            self.proc.wait(3)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()


# ---- the schema of stat --json and of reports ----

NUMBER = (int, float)
SCHEMA = {
    'version': int, 'job': str, 'command': [str], 'elapsed': NUMBER, 'exit': (int, type(None)),
    'ram': {'limit': int, 'resident': int, 'staged': int, 'pool': int, 'metadata': int,
            'peak': int},
    'vmstat': {'*': int},
    'queue_policy': str,
    'devices': [{'name': str, 'type': str, 'prio': int, 'tier': str, 'weight': int,
                 'size': int, 'used': int, 'peak': int, 'state': str, 'errors': int, 'stored': int, 'compressed': int}],
    'tiers': [{'name': str, 'prio_min': int, 'prio_max': int, 'policy': str, 'devices': int,
               'size': int, 'used': int}],
    'orders': [{'order': int, 'swpout': int, 'swpout_fallback': int, 'swpin': int,
                'zswpout': int}],
    'processes': [{'pid': int, 'comm': str, 'managed': bool, 'reason': (str, type(None)),
                   'resident': int, 'swapped': int, 'faults': int, 'tiers': (list, type(None)),
                   'policy': str, 'ended': bool}],
    'faults': {'count': int, 'p50_ns': NUMBER, 'p99_ns': NUMBER, 'max_ns': NUMBER},
    'locks': [{'name': str, 'acquired': int, 'contended': int, 'wait_ns': NUMBER}],
}
VMSTAT_NAMES = ('pswpin', 'pswpout', 'zswpin', 'zswpout', 'swpin_zero', 'swpout_zero',
                'swpout_unchanged', 'swpout_shared', 'swap_corrupt', 'swap_io_error', 'pgpoison',
                'pgfault', 'pgmajfault', 'pgmove_busy', 'oom_kill', 'uffd_fork', 'exec_managed',
                'exec_unmanaged')


def check_schema(value, schema=SCHEMA, where='report'):
    """Every key there, of its type, none else: a consumer may rely on it."""
    if isinstance(schema, dict):
        check(isinstance(value, dict), f'{where} is not an object')
        if '*' in schema:
            for key, v in value.items():
                check_schema(v, schema['*'], f'{where}.{key}')
            return
        for key, inner in schema.items():
            check(key in value, f'{where} lacks {key}')
            check_schema(value[key], inner, f'{where}.{key}')
        extra = set(value) - set(schema)
        check(not extra, f'{where} has keys that are not documented: {sorted(extra)}')
    elif isinstance(schema, list):
        check(isinstance(value, list), f'{where} is not a list')
        for i, v in enumerate(value):
            check_schema(v, schema[0], f'{where}[{i}]')
    else:
        good = isinstance(value, schema) and not (isinstance(value, bool) and schema is not bool)
        check(good, f'{where} is {value!r}')
        if isinstance(value, NUMBER) and not isinstance(value, bool):
            last = where.split('.')[-1]
            check(value >= 0 or last in ('prio', 'prio_min', 'prio_max', 'exit'),
                  f'{where} is negative: {value}')


def check_report(data):
    check_schema(data)
    check(data['version'] == 1, f'version {data["version"]}')
    for name in VMSTAT_NAMES:
        check(name in data['vmstat'], f'vmstat lacks {name}')
    orders = [o['order'] for o in data['orders']]
    check(orders == sorted(set(orders)) and all(0 <= o <= 9 for o in orders), f'orders {orders}')
    for d in data['devices']:
        check(d['used'] <= d['size'] or d['size'] == 0, f'device {d["name"]}: used > size')
        check(d['used'] <= d['peak'], f'device {d["name"]}: used > peak')
    f = data['faults']
    check(f['p50_ns'] <= f['p99_ns'] * 1.13 + 1 and f['p99_ns'] <= f['max_ns'] * 1.13 + 1,
          f'fault times are out of order: {f}')
    return data
