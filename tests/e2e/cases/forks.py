# SPDX-License-Identifier: MIT
"""fork: families larger than the budget, storms, and every way to make a child."""
import subprocess

from harness import MIB, Skip, case, check, need


@case(timeout=90)
def families(t):
    """Three children and their children, each with its own half: about six times the budget."""
    _, run = t.compare([t.program('families'), '64M', '3'], fraction=0.3, pages_out=15000,
                       swap=[f'file:{t.swap_dir}/swap:2G'])
    check(run.vmstat('uffd_fork') >= 6, f'uffd_fork {run.vmstat("uffd_fork")}')


@case()
def once_forked_pages(t):
    """Memory shared with a child that has ended becomes evictable again."""
    run = t.under_uswap([t.program('oncefork'), '-a', '48M', '-b', '96M'], ram=80 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:1G'])
    fields = dict(f.split(b'=') for f in run.stdout.split() if b'=' in f)
    check(int(fields[b'wrong']) == 0, f'{run.stdout!r}')
    check(int(fields[b'out']) > 6000, f'only {int(fields[b"out"])} of 12288 pages are out')
    run.expect_within_budget()


@case()
def shared_with_a_living_child(t):
    """The same while the child lives: both need it, it counts once, and all stays right."""
    run = t.under_uswap([t.program('oncefork'), '-a', '32M', '-b', '64M', '-k'], ram=64 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:1G'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    run.expect_within_budget()


@case()
def freed_and_written_again(t):
    """What MADV_FREE left, written again without a fault, is evictable in both after a fork."""
    run = t.under_uswap([t.program('freed'), '-f', '-b', '64M', '-s', '3'], ram=64 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:1G'])
    for line in run.stdout.splitlines():
        fields = dict(f.split(b'=') for f in line.split())
        check(int(fields[b'wrong']) == 0, f'{run.stdout!r}')
        check(int(fields[b'out']) > 0.6 * int(fields[b'pages']), f'{run.stdout!r}')
    check(len(run.stdout.splitlines()) >= 2, f'{run.stdout!r}')


@case(timeout=90, soak=True)
def helper_starts_on_a_busy_machine(t):
    """
    The short-lived parent of a helper may get the CPU late, after the helper is ready. Its end must
    not be taken for the supervisor's, of which the program would be killed.
    """
    script = '''
import os, time
for i in range(10):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.6)
        os._exit(7)
    assert os.waitpid(pid, 0)[1] >> 8 == 7, "a child was killed"
    if i == 0:
        print("up", flush=True)
'''
    hogs = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(12)]
    try:
        run = t.start(['python3', '-c', script], ram=256 * MIB)
        run.wait(80).expect_status(0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@case(timeout=90, soak=True)
def exec_right_after_fork_on_a_busy_machine(t):
    """
    The helper of the forked child may come to speak after that of the program that it has become.
    Its word must not cost the new program its place: each one stays managed.
    """
    script = f'''
import subprocess
for i in range(40):
    subprocess.run([{t.program("fill")!r}, "-m", "4M", "-p", "2"], check=True,
                   stdout=subprocess.DEVNULL, close_fds=False, preexec_fn=lambda: None)
'''
    hogs = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(8)]
    try:
        run = t.start(['python3', '-c', script], ram=256 * MIB, binary=t.hooks,
                      env={'USWAP_TEST': 'evict-all'})
        run.wait(80).expect_status(0)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    fills = [p for p in run.report['processes'] if p['comm'] == 'fill']
    check(len(fills) == 40 and all(p['managed'] and p['faults'] > 20 for p in fills),
          f'{len(fills)}: {[p for p in fills if not p["managed"] or p["faults"] <= 20]}')


@case()
def fork_storm_with_signals(t):
    """fork interrupted again and again: no stray child, no lost page, no leak."""
    script = '''
import mmap, os, signal
m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096):
    m[at:at + 8] = at.to_bytes(8, "big")
hits = 0
def alarm(*_):
    global hits
    hits += 1
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
bad = 0
for i in range(150):
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        at = (i * 7919 % 16384) * 4096
        os._exit(m[at:at + 8] != at.to_bytes(8, "big"))
    bad += os.waitpid(pid, 0)[1] != 0
signal.setitimer(signal.ITIMER_REAL, 0)
for at in range(0, len(m), 4096):
    bad += m[at:at + 8] != at.to_bytes(8, "big")
print("bad", bad, "hits" if hits else "no hits")
'''
    run = t.under_uswap([need('python3'), '-c', script], ram=40 * MIB, timeout=50)
    check(run.stdout == b'bad 0 hits\n', f'{run.stdout!r} {run.stderr[-300:]!r}')
    check(sum(d['used'] for d in run.report['devices']) == 0, 'the devices still hold pages')


@case()
def raw_clone_children(t):
    """Children that no handler sees: served, and counted."""
    run = t.under_uswap([t.program('oncefork'), '-a', '32M', '-b', '96M', '-k', '-R'],
                        ram=96 * MIB, swap=[f'file:{t.swap_dir}/swap:1G'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    check(run.vmstat('fork_unhelped') == 1, f'fork_unhelped is {run.vmstat("fork_unhelped")}')
    run.expect_within_budget()


@case()
def fork_without_handlers(t):
    """A child by _Fork, larger than the budget: it can be evicted, so nobody need be ended."""
    run = t.under_uswap([t.program('oncefork'), '-a', '64M', '-b', '16M', '-k', '-F'],
                        ram=40 * MIB, swap=[f'file:{t.swap_dir}/swap:1G'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    for name in ('fork_unhelped', 'oom_kill'):
        check(run.vmstat(name) == 0, f'{name} is {run.vmstat(name)}')
    run.expect_within_budget()


@case(timeout=90, soak=True)
def fork_of_many_threads(t):
    """What the C library does in the child for each thread must not wait for the child's helper."""
    run = t.under_uswap([t.program('forkthreads'), '3000', '150M'], ram=64 * MIB, timeout=80,
                        swap=[f'file:{t.swap_dir}/swap:2G'], status=None)
    if run.status == 77:
        raise Skip('3000 threads are not to be had')
    run.expect_status(0)
    check(run.vmstat('oom_kill') == 0, f'oom_kill is {run.vmstat("oom_kill")}')


@case()
def the_unmovable_child_is_ended(t):
    """What is short of room is ended for what it keeps in RAM, not its parent, which is out."""
    run = t.under_uswap([t.program('oncefork'), '-a', '64M', '-b', '16M', '-k', '-R'],
                        ram=40 * MIB, swap=[f'file:{t.swap_dir}/swap:1G'], status=1)
    check(b'wrong=1' in run.stdout, f'{run.stdout!r}: not only the child failed')
    check(run.vmstat('oom_kill') == 1, f'oom_kill is {run.vmstat("oom_kill")}')


@case()
def fork_then_exec(t):
    """subprocess of a large parent: vfork and posix_spawn, hundreds of times."""
    script = '''
import mmap, subprocess
m = mmap.mmap(-1, 96 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096):
    m[at:at + 8] = at.to_bytes(8, "big")
for i in range(100):
    assert subprocess.run(["/bin/echo", str(i)], capture_output=True).stdout == b"%d\\n" % i
for i in range(30):
    assert subprocess.run(["/bin/true"], preexec_fn=lambda: None).returncode == 0
assert all(m[at:at + 8] == at.to_bytes(8, "big") for at in range(0, len(m), 4096))
print("done")
'''
    run = t.under_uswap([need('python3'), '-c', script], ram=48 * MIB)
    check(run.stdout == b'done\n', f'{run.stdout!r} {run.stderr[-300:]!r}')
    run.expect_swapped(5000)


@case()
def program_becomes_another(t):
    """exec from a large program: the old memory goes, the new program is managed."""
    fill = t.program('fill')
    script = f'''
import mmap, os
m = mmap.mmap(-1, 96 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(m), 4096):
    m[at] = 1
os.execv({fill!r}, ["fill", "-m", "96M", "-p", "2"])
'''
    run = t.under_uswap([need('python3'), '-c', script], ram=48 * MIB)
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r} {run.stderr[-300:]!r}')
    run.expect_within_budget()
    check(run.vmstat('exec_managed') >= 2, f'exec_managed {run.vmstat("exec_managed")}')
