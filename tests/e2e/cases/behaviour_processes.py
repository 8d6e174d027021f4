# SPDX-License-Identifier: MIT
"""Behaviours of processes that need someone outside, or more than one run.

The programs are those of tests/e2e/behaviour; everything is evicted as fast as it can be.
"""
import ctypes
import os
import signal
import threading
import time

from harness import MIB, Failure, case, check, in_time, read_bytes, read_text

SIGNALS = ('SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGKILL', 'SIGSEGV', 'SIGPIPE', 'SIGALRM', 'SIGTERM',
           'SIGUSR1', 'SIGABRT')


def evicting(t, argv, wait=True, **kw):
    kw = dict(ram=400 * MIB, binary=t.hooks, env={'USWAP_TEST': 'evict-all'}, **kw)
    argv = [str(a) for a in argv]
    return t.under_uswap(argv, timeout=40, **kw) if wait else t.start(argv, **kw)


def checking(t, ms, *args):
    """checks_on, started: (run, pid, address, number of pages)."""
    run = evicting(t, [t.program('checks_on'), ms, *args], wait=False)
    run.wait_for_output('\n')
    pid, address, nr = run.stdout.split()[:3]
    return run, int(pid), int(address, 16), int(nr)


def expect_right(run, timeout=30):
    run.wait(timeout).expect_status(0)
    check(run.stdout.endswith(b'right\n'), f'{run.stdout!r} {run.stderr!r}')
    run.expect_right_content()
    run.expect_nothing_left()


@case(timeout=120)
def ends_of_every_kind(t):
    """Exit statuses and deaths by signals are told to the shell as natively."""
    program = t.program('ends_so')
    ways = [('exit', n) for n in (0, 1, 2, 125, 126, 127, 255)]
    ways += [('signal', int(getattr(signal, s))) for s in SIGNALS]
    for how, n in ways:
        argv = [program, how, str(n)]
        native = t.native(argv).status
        check(native == (n if how == 'exit' else 128 + n), f'natively {how} {n}: {native}')
        run = evicting(t, argv, status=None)
        check(run.status == native, f'{how} {n}: {run.status}, natively {native}: {run.stderr!r}')
        check('uswap:' not in run.stderr, f'{how} {n}: {run.stderr!r}')


@case()
def outlived_by_its_children(t):
    """The command ends at once; a child and a grandchild go on, are right, and are waited for."""
    for name in ('native', 'uswap'):
        path = t.path(name)
        argv = [t.program('outlives'), path]
        run = evicting(t, argv, wait=False) if name == 'uswap' else t.native(argv, wait=False)
        run.wait(20).expect_status(3)
        end = time.monotonic() + 15
        while len(read_bytes(path).split()) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        check(sorted(read_bytes(path).split()) == [b'child', b'grandchild'],
              f'{name}: {read_bytes(path)!r} {run.stderr!r}')
        run.expect_nothing_left()
        check(run.stderr == '', f'{name}: {run.stderr!r}')


@case()
def read_from_outside(t):
    """process_vm_readv by a stranger brings pages back; what /proc tells does not hang."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Iovec(ctypes.Structure):
        _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]

    run, pid, address, nr = checking(t, 1500, 'hold', 0)
    buf = ctypes.create_string_buffer(nr * 4096)
    here, there = Iovec(ctypes.addressof(buf), len(buf)), Iovec(address, len(buf))
    got = []

    def look():
        n = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        got.append(n if n >= 0 else -ctypes.get_errno())
        for name in ('cmdline', 'environ', 'maps', 'smaps', 'smaps_rollup', 'numa_maps', 'stat',
                     'status', 'wchan', 'auxv', 'pagemap'):
            text = (read_bytes(f'/proc/{pid}/{name}') if name != 'pagemap'
                    else open(f'/proc/{pid}/{name}', 'rb').read(8))
            check(name in ('wchan', 'numa_maps') or text, f'{name} is empty')
        got.append(b'checks_on' in read_bytes(f'/proc/{pid}/cmdline'))
        with open(f'/proc/{pid}/mem', 'rb', 0) as mem:
            for page in range(nr):
                try:
                    data = os.pread(mem.fileno(), 4096, address + page * 4096)
                except OSError:
                    continue      # swapped out
                if data != buf.raw[page * 4096:(page + 1) * 4096]:
                    got.append(f'/proc/PID/mem shows something else at page {page}')

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    reader.join(10)
    check(not reader.is_alive(), 'a reader hangs')
    check(got == [nr * 4096, True], f'{got}')
    # page_fill: the tag is the first word of every layout.
    for page in range(nr):
        tag = 1 << 48 | page << 4 | 0xa
        check(buf.raw[page * 4096:page * 4096 + 8] == tag.to_bytes(8, 'little'), f'page {page}')
    expect_right(run)


@case()
def helper_killed(t):
    """Without its helper a program goes on with all that is in and all that was out."""
    # Many at once: whether a helper that is just ending is seen is a matter of microseconds.
    for ms, delay, args in ((1000, 0.1, ()), (1500, 0.5, ('hold', 20)), (1500, 0.7, ('hold', 20))):
        run, pid, _, _ = checking(t, ms, *args)
        time.sleep(delay)
        end = time.monotonic() + 5
        while not (helpers := run.find('uswap-helper')):
            in_time(time.monotonic() < end, 'no helper')
            time.sleep(0.02)
        for p in helpers:
            os.kill(p.pid, signal.SIGKILL)
        expect_right(run)
        t.note(f'{len(helpers)} killed')


@case()
def program_killed_while_evicted(t):
    """kill -9 of the program and of the front: the status is told, nothing stays."""
    for delay in (0, 0.003, 0.05):
        run, pid, _, _ = checking(t, 20000)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        run.wait(10)
        check(run.status == 137, f'status {run.status}')
        run.expect_nothing_left()


@case()
def ending_signals_at_the_supervisor(t):
    """A second of signals that end other processes leaves the supervisor and its job alone."""
    run, pid, _, _ = checking(t, 1500)
    supervisor = run.supervisor()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for name in ('SIGTERM', 'SIGINT', 'SIGUSR1', 'SIGPROF', 'SIGWINCH', 'SIGHUP', 'SIGQUIT',
                     'SIGALRM', 'SIGCHLD', 'SIGCONT'):
            os.kill(supervisor, getattr(signal, name))
    expect_right(run)


@case()
def other_environments(t):
    """A preload of the program's own, and no environment at all, for its children."""
    program = t.program('preload')
    for how, reason in (('add', None), ('replace', 'LD_PRELOAD'), ('empty', 'LD_PRELOAD')):
        native = t.native([program, how]).expect_status(0)
        run = evicting(t, [program, how])
        check(run.stdout == native.stdout, f'{how}: {run.stdout!r}')
        run.expect_right_content()
        unmanaged = [p for p in run.report['processes'] if not p['managed']]
        if reason is None:
            check(not unmanaged and run.stderr == '', f'{how}: {unmanaged} {run.stderr!r}')
            check(run.vmstat('exec_managed') == 2, f'{how}: {run.vmstat("exec_managed")}')
            continue
        check(len(unmanaged) == 1 and reason in unmanaged[0]['reason'], f'{how}: {unmanaged}')
        lines = [s for s in run.stderr.splitlines() if 'uswap:' in s]
        check(len(lines) == 1 and reason in lines[0], f'{how}: {run.stderr!r}')
