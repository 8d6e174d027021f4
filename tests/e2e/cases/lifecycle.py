# SPDX-License-Identifier: MIT
"""Ends: of the supervisor, of a program, of everything at once."""
import os
import signal
import struct
import subprocess
import time

from harness import MIB, Failure, case, check, in_time, need, read_bytes, tagged_processes


REMAP = '''
import ctypes, sys
lib = ctypes.CDLL(None if sys.argv[1] == "ours" else "libc.so.6", use_errno=True)
lib.mmap.restype = lib.mremap.restype = ctypes.c_void_p
lib.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
lib.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int,
                       ctypes.c_void_p]
lib.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, NR, FAILED = 4096, 64, ctypes.c_void_p(-1).value
failed = wrong = 0
for i in range(150):
    a = lib.mmap(None, NR * PAGE, 3, 0x22, -1, 0)
    for p in range(NR):
        ctypes.memmove(a + p * PAGE, (i * NR + p).to_bytes(8, "big"), 8)
    # Over the middle; natively it becomes one mapping with what is left and right of it.
    b = lib.mmap(a + 16 * PAGE, 8 * PAGE, 3, 0x32, -1, 0)
    assert b == a + 16 * PAGE
    q = lib.mremap(a, NR * PAGE, 2 * NR * PAGE, 1, None)
    if q == FAILED:
        assert ctypes.get_errno() == 14, ctypes.get_errno()
        failed += 1
        q = a
    for p in range(NR):
        want = 0 if 16 <= p < 24 else i * NR + p
        wrong += ctypes.string_at(q + p * PAGE, 8) != want.to_bytes(8, "big")
    lib.munmap(q, (NR if q == a else 2 * NR) * PAGE)
# What is really wrong is still an error, with errno and at once.
assert lib.mremap(0x10000, PAGE, 2 * PAGE, 1, None) == FAILED and ctypes.get_errno() == 14
assert lib.mremap(0x10001, PAGE, 2 * PAGE, 1, None) == FAILED and ctypes.get_errno() == 22
print("failed", failed, "wrong", wrong)
'''


@case(timeout=120)
def mremap_across_a_new_mapping(t):
    """mremap of a range over a part of which MAP_FIXED was used right before works, as natively."""
    native = subprocess.run(['python3', '-c', REMAP, 'ours'], capture_output=True, text=True,
                            timeout=30)
    check(native.stdout == 'failed 0 wrong 0\n', f'natively: {native.stdout!r} {native.stderr!r}')
    for whose in ('ours', 'libc'):
        run = t.under_uswap(['python3', '-c', REMAP, whose], ram=256 * MIB, binary=t.hooks,
                            env={'USWAP_TEST': 'evict-all'})
        words = run.stdout.decode().split()
        check(words[3] == '0', f'{whose}: {run.stdout!r} {run.stderr!r}')
        # Past the library the failure is a stated limit; if it never shows, nothing is tested here.
        check((words[1] == '0') == (whose == 'ours'), f'{whose}: {run.stdout!r}')
        t.note(f'{whose}: {words[1]} of 150 failed')


def counters(path):
    data = read_bytes(path)
    return struct.unpack('QQQ', data[:24]) if len(data) >= 24 else (0, 0, 0)


def checking_job(t, nr=3, each=64, ram=64, **kw):
    """Several programs that check their pages for ever and count in files."""
    files = [t.path(f'live{i}') for i in range(nr)]
    script = ''.join(f'{t.program("fill")} -m {each}M -S {i + 1} -L -o {f} & '
                     for i, f in enumerate(files)) + 'wait'
    run = t.start(['sh', '-c', script], ram=ram * MIB,
                  swap=[f'file:{t.swap_dir}/swap:1G'], **kw)
    end = time.monotonic() + 60
    while any(counters(f)[2] < 1 for f in files):
        check(run.proc.poll() is None, f'ended early: {run.stderr!r}')
        in_time(time.monotonic() < end, 'the programs did not get through one pass')
        time.sleep(0.05)
    return run, files


def await_death(run, seconds, what):
    start = time.monotonic()
    while True:
        left = tagged_processes(run.tag)
        if not left:
            return time.monotonic() - start
        check(time.monotonic() - start < seconds,
              f'{seconds} s after {what}: ' + ', '.join(f'{p.pid} {p.comm} {p.state}'
                                                        for p in left))
        time.sleep(0.01)


def expect_no_wrong_byte(files, when='at the end'):
    for f in files:
        checks, wrong, _ = counters(f)
        check(checks > 0, 'nothing was checked')
        check(wrong == 0, f'{wrong} wrong pages of {checks} were read, seen {when}')


@case(timeout=120)
def supervisor_killed(t):
    """The whole job dies within a second, with a message, before it reads one wrong byte."""
    for attempt in range(3):
        run, files = checking_job(t)
        time.sleep(0.1 * attempt)
        expect_no_wrong_byte(files, 'before the supervisor was killed')
        os.kill(run.supervisor(), signal.SIGKILL)
        took = await_death(run, 1.0, 'kill -9 of the supervisor')
        run.wait(5)
        expect_no_wrong_byte(files)
        check(run.status != 0, f'status {run.status}')
        check('uswap' in run.stderr and 'supervisor' in run.stderr, f'no message: {run.stderr!r}')
        t.note(f'dead after {took * 1000:.0f} ms')
        run.job['keep'] = set(os.listdir(t.swap_dir))
        run.expect_nothing_left()


@case(timeout=60)
def supervisor_stopped_then_killed(t):
    run, files = checking_job(t)
    supervisor = run.supervisor()
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(0.5)
    expect_no_wrong_byte(files, 'before the supervisor was killed')
    os.kill(supervisor, signal.SIGKILL)
    await_death(run, 1.0, 'SIGSTOP and SIGKILL of the supervisor')
    run.wait(5)
    expect_no_wrong_byte(files)


@case(timeout=60)
def supervisor_stopped_for_a_while(t):
    """Programs wait, and go on when it does."""
    run, files = checking_job(t)
    supervisor = run.supervisor()
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(1)
    os.kill(supervisor, signal.SIGCONT)
    before = [counters(f)[0] for f in files]
    time.sleep(2)
    check(all(counters(f)[0] > b for f, b in zip(files, before)), 'no progress after SIGCONT')
    os.kill(run.pid, signal.SIGTERM)
    run.kill()
    expect_no_wrong_byte(files)


LOOPS = ('main loop', 'fault handler 0', 'growth thread', 'kswapd')


@case(timeout=30)
def stopped_and_continued(t):
    """By a signal to the command alone, not by the terminal: uswap goes on with it, and ends."""
    for signals in ('kill -STOP $$', 'kill -STOP $$; kill -STOP $$'):
        again = '(while kill -CONT $$; do sleep 0.2; done) 2>/dev/null &'
        run = t.start(['bash', '-c', f'{again} {signals}; echo back; exit 7'], ram=32 * MIB)
        run.wait(10).expect_status(7)
        check(run.stdout == b'back\n', f'{run.stdout!r}')
        run.expect_nothing_left()


@case(timeout=90)
def supervisor_hangs(t):
    """A loop of it that stops is named, and then the job ends as if the supervisor had died."""
    for name in LOOPS:
        live = t.path(name.replace(' ', '-'))
        run = t.start([t.program('fill'), '-m', '96M', '-L', '-o', live], ram=48 * MIB,
                      binary=t.hooks, env={'USWAP_TEST': f'stall={name},watchdog=500:1200'},
                      swap=[f'file:{t.swap_dir}/swap:1G'])
        run.wait(20)
        check(run.status != 0, f'{name}: status {run.status}')
        told = [s for s in run.stderr.splitlines() if 'has made no progress' in s]
        check(len(told) == 2 and all(f"supervisor's {name} has" in s for s in told) and
              'the job is ended' in told[1] and 'the supervisor died' in run.stderr,
              f'{name}: {run.stderr!r}')
        checks, wrong, _ = counters(live)
        check(wrong == 0, f'{name}: {wrong} wrong pages of {checks} were read')
        await_death(run, 1.0, 'the end of the supervisor')
        run.job['keep'] = set(os.listdir(t.swap_dir))
        run.expect_nothing_left()


@case(timeout=60)
def supervisor_stopped_is_not_hanging(t):
    """One that is stopped for long, also again and again, is left alone by the watchdog."""
    run, files = checking_job(t, nr=1, binary=t.hooks, env={'USWAP_TEST': 'watchdog=400:800'})
    supervisor = run.supervisor()
    for seconds in (1.5, 0.3, 0.3, 0.3):
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(supervisor, signal.SIGCONT)
        time.sleep(0.1)
    before = counters(files[0])[0]
    time.sleep(0.5)
    check(run.proc.poll() is None and counters(files[0])[0] > before, f'it ended: {run.stderr!r}')
    check('no progress' not in run.stderr, f'{run.stderr!r}')
    os.kill(run.pid, signal.SIGTERM)
    run.kill()
    expect_no_wrong_byte(files)


@case(timeout=60)
def slow_device_is_not_a_hang(t):
    """Every write and read takes far longer than a round of any loop, but they come to an end."""
    run = t.under_uswap([t.program('fill'), '-m', '48M'], ram=40 * MIB, args=['--order', '9'],
                        binary=t.hooks, env={'USWAP_TEST': 'watchdog=800:1600'},
                        swap=[f'file:{t.swap_dir}/swap:1G,delay-read=50000,delay-write=300000'])
    check(run.stdout == b'fill: pages=12288 wrong=0\n' and not run.stderr,
          f'{run.stdout!r} {run.stderr!r}')
    run.expect_swapped(1000)
    check(run.elapsed > 1.5, f'the device was not slow: {run.elapsed:.1f} s')


@case(timeout=60)
def signals_at_the_supervisor(t):
    """A storm of harmless signals changes nothing."""
    run = t.start([t.program('fill'), '-m', '128M', '-p', '3'], ram=48 * MIB)
    supervisor = run.supervisor()
    for i in range(200):
        if run.proc.poll() is not None:
            break
        for name in ('SIGPROF', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGPIPE', 'SIGURG'):
            try:
                os.kill(supervisor, getattr(signal, name))
            except ProcessLookupError:
                break
        time.sleep(0.005)
    run.wait(60).expect_status(0)
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    run.expect_nothing_left()


@case(timeout=60)
def program_killed(t):
    """kill -9 of one program: the others go on, and what it had is given back."""
    fill = t.program('fill')
    script = (f'{fill} -m 64M -L -S 9 & victim=$!; {fill} -m 64M -p 6 & other=$!; sleep 1.5; '
              'kill -9 $victim; wait $victim; echo victim $?; wait $other; echo other $?')
    run = t.under_uswap(['sh', '-c', script], ram=48 * MIB)
    lines = run.stdout.splitlines()
    check(b'victim 137' in lines and b'other 0' in lines and
          b'fill: pages=16384 wrong=0' in lines, f'{run.stdout!r}')
    report = run.report
    check(all(p['ended'] for p in report['processes']), f'processes {report["processes"]}')
    check(sum(d['used'] for d in report['devices']) == 0,
          f'the devices still hold pages: {report["devices"]}')


@case(timeout=60)
def command_killed_while_children_live(t):
    """The command dies; what it had started is not left unserved."""
    live = t.path('live')
    script = f'{t.program("fill")} -m 96M -L -o {live} & echo ready; wait'
    run = t.start(['sh', '-c', script], ram=48 * MIB, swap=[f'file:{t.swap_dir}/swap:1G'])
    run.wait_for_output('ready')
    end = time.monotonic() + 40
    while counters(live)[2] < 1 and time.monotonic() < end:
        time.sleep(0.05)
    shell = run.find('sh')
    check(shell, 'no shell found')
    os.kill(shell[0].pid, signal.SIGKILL)
    time.sleep(0.5)
    checks, wrong, _ = counters(live)
    check(checks > 0 and wrong == 0, f'{wrong} wrong of {checks}')
    # Whether the front waits for it or not: ended from outside, nothing remains.
    for p in run.find('fill'):
        os.kill(p.pid, signal.SIGTERM)
    run.wait(10)
    check(run.status == 137, f'status {run.status}, want the command\'s 137')
    run.expect_nothing_left(timeout=5)


@case(timeout=90, soak=True)
def processes_come_and_go(t):
    """Hundreds of short processes beside one that is being paged: no disturbance, no leak."""
    script = (f'{t.program("fill")} -m 96M -p 8 > {t.path("out")} & '
              'i=0; while [ $i -lt 150 ]; do (exit 3); /bin/true; sh -c : ; i=$((i+1)); done; wait')
    run = t.under_uswap(['sh', '-c', script], ram=48 * MIB)
    check(read_bytes(t.path('out')) == b'fill: pages=24576 wrong=0\n',
          f'{read_bytes(t.path("out"))!r}')
    run.expect_swapped(5000)
    check(sum(d['used'] for d in run.report['devices']) == 0, 'the devices still hold pages')


def supervisor_size(pid):
    """Descriptors, threads, resident KiB."""
    with open(f'/proc/{pid}/status') as f:
        fields = dict(line.split(':', 1) for line in f)
    return (len(os.listdir(f'/proc/{pid}/fd')), int(fields['Threads']),
            int(fields['VmRSS'].split()[0]))


def short_processes(t, nr):
    """Short processes one after the other, forked and exec'ed: the supervisor does not grow."""
    warm = 1000 # as many as are remembered for the report
    script = f'''
i=0
while [ $i -lt {warm} ]; do (exit 3); /bin/true; i=$((i+2)); done
echo warm; read x
while [ $i -lt {nr} ]; do (exit 3); /bin/true; i=$((i+2)); done
echo done; read x
'''
    source, stdin = os.pipe()
    run = t.start(['sh', '-c', script], ram=64 * MIB, stdin=os.fdopen(source, 'rb'))
    run.wait_for_output('warm')
    pid = run.supervisor()
    time.sleep(0.3)
    before = supervisor_size(pid)
    start = time.monotonic()
    os.write(stdin, b'\n')
    run.wait_for_output('done', nr * 0.05)
    took = time.monotonic() - start
    end = time.monotonic() + 5
    while (after := supervisor_size(pid))[0] > before[0] + 4 and time.monotonic() < end:
        time.sleep(0.1)
    os.write(stdin, b'\n')
    os.close(stdin)
    run.wait(20).expect_status(0)
    run.expect_nothing_left()
    t.note(f'{nr - warm} processes in {took:.1f} s; descriptors {before[0]} then {after[0]}, '
           f'threads {before[1]} then {after[1]}, resident {before[2]} then {after[2]} KiB')
    check(after[0] <= before[0] + 4 and after[1] == before[1], 'it grows')
    # What is remembered of processes that ended is bounded (MAX_ENDED_REPORTED).
    check(after[2] <= before[2] + 2048, 'its memory grows')
    check(sum(d['used'] for d in run.report['devices']) == 0, 'the devices still hold pages')


@case(timeout=120)
def many_short_processes(t):
    short_processes(t, 2000)


@case(timeout=600, soak=True)
def ten_thousand_short_processes(t):
    short_processes(t, 10000)


@case(timeout=60)
def memory_given_back(t):
    """What is unmapped frees its place: the same again and again does not fill the device."""
    script = '''
import mmap, sys
for i in range(12):
    m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(m), 4096):
        m[at:at + 2048] = (at + i).to_bytes(8, "big") * 256
    for at in range(0, len(m), 4096):
        assert m[at:at + 2048] == (at + i).to_bytes(8, "big") * 256
    m.close()
print("done")
'''
    run = t.under_uswap([need('python3'), '-c', script], ram=48 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:96M'])
    check(run.stdout == b'done\n', f'{run.stdout!r}; {run.stderr!r}')
    run.expect_swapped(20000, 5000)
    check(all(d['used'] == 0 for d in run.report['devices']), f'{run.report["devices"]}')


@case(timeout=60)
def debug_reads_do_not_hang(t):
    """ps and /proc/PID/cmdline of a swapped program answer at once."""
    run, files = checking_job(t, nr=1, each=96, ram=48)
    pid = run.find('fill')[0].pid
    start = time.monotonic()
    for _ in range(20):
        check(b'-L' in read_bytes(f'/proc/{pid}/cmdline'), 'no command line')
        read_bytes(f'/proc/{pid}/environ')
    try:
        subprocess.run(['ps', 'aux'], capture_output=True, timeout=10)
    except FileNotFoundError:
        pass
    except subprocess.TimeoutExpired:
        raise Failure('ps hangs')
    check(time.monotonic() - start < 5, 'reading /proc is slow')
    os.kill(run.pid, signal.SIGTERM)
    run.kill()
    expect_no_wrong_byte(files)
