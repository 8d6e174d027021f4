# SPDX-License-Identifier: MIT
"""Memory that the kernel refuses before uswap hears of it: said when it happens, once a job."""
import os
import re
import time

from harness import MIB, Skip, case, check, in_time, read_text

FIRST_PID_NS = 'pid:[4026531836]'


def refusals_since(when):
    """How many the kernel's log tells of. when: as of time.monotonic()."""
    count = 0
    try:
        fd = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)
    except OSError as e:
        raise Skip(f'/dev/kmsg: {e.strerror}')
    while True:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:   # overwritten meanwhile
            continue
        if b';__vm_enough_memory: ' in record and int(record.split(b',')[2]) / 1e6 > when:
            count += 1
    os.close(fd)
    return count


def need_refusals():
    """The kernel refuses 32 TiB here, and its log can be read and will tell."""
    if read_text('/proc/sys/vm/overcommit_memory').strip() != '0':
        raise Skip('vm.overcommit_memory is not 0')
    if os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >= 1 << 45:
        raise Skip('32 TiB of RAM')
    if os.readlink('/proc/self/ns/pid') != FIRST_PID_NS:
        raise Skip('not in the first pid namespace')
    # It tells of ten refusals in five seconds.
    if refusals_since(time.monotonic() - 6) > 5:
        time.sleep(6)


def notes(run):
    return [x for x in run.stderr.splitlines() if x.startswith('uswap: ')]


def expect_note(run, comm):
    """Returns the pid that it names."""
    lines = notes(run)
    check(len(lines) == 1, f'{len(lines)} lines of uswap on stderr, want 1: {run.stderr!r}')
    found = re.fullmatch(r'uswap: pid (\d+) \((.*)\): a request for memory was refused by the '
                         r'kernel: vm\.overcommit_memory is 0, which refuses more than RAM and '
                         r'swap \(\d+\.\d GiB\) in one piece; sysctl vm\.overcommit_memory=1 '
                         r'allows it', lines[0])
    check(found and found[2] == comm, f'{lines[0]!r}')
    return int(found[1])


@case()
def refused_command(t):
    need_refusals()
    run = t.under_uswap([t.program('ask')], ram=64 * MIB, status=1)
    check(run.stdout == b'ask: refused\n', f'{run.stdout!r}')
    pid = expect_note(run, 'ask')
    check(pid in [p['pid'] for p in run.report['processes']], f'{pid} is not of the job')


@case()
def refused_grandchild_once(t):
    """However often; and its parents carry on."""
    need_refusals()
    ask = t.program('ask')
    run = t.under_uswap(['sh', '-c', f'(sh -c "{ask}; {ask}; true"); exit 0'], ram=64 * MIB)
    check(run.stdout == b'ask: refused\n' * 2, f'{run.stdout!r}')
    expect_note(run, 'ask')


@case()
def refused_thread(t):
    """The log names the thread, which is gone when its line is read; the note, the process."""
    need_refusals()
    run = t.under_uswap([t.program('ask'), '-t'], ram=64 * MIB, status=134)
    pid = expect_note(run, 'ask')
    check(pid in [p['pid'] for p in run.report['processes']], f'{pid} is not of the job')


@case()
def refused_while_it_runs(t):
    """Not at the end of the job only."""
    need_refusals()
    r, w = os.pipe()
    run = t.start(['sh', '-c', f'{t.program("ask")}; read line; exit 0'], ram=64 * MIB,
                  stdin=os.fdopen(r, 'rb'))
    end = time.monotonic() + 10
    while not notes(run):
        in_time(time.monotonic() < end, f'not said within 10 s: {run.stderr!r}')
        time.sleep(0.02)
    check(run.proc.poll() is None, 'said when the job had ended')
    os.close(w)
    run.wait(20).expect_status(0).expect_nothing_left()
    expect_note(run, 'ask')


@case()
def failures_of_other_kinds(t):
    """Nothing is said of them, nor of refusals that are nobody's of the job."""
    for command, status in ((['false'], 1), (['sh', '-c', 'kill -ABRT $$'], 134),
                            (['sh', '-c', f'ulimit -v 1000000; {t.program("ask")}'], 1)):
        run = t.under_uswap(command, ram=64 * MIB, status=status)
        check(notes(run) == [], f'{command}: {run.stderr!r}')
    need_refusals()
    run = t.start(['sleep', '1'], ram=64 * MIB)
    t.native([t.program('ask')]).expect_status(1)
    run.wait(20).expect_status(0).expect_nothing_left()
    check(notes(run) == [], f'a stranger: {run.stderr!r}')
