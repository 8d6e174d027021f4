# SPDX-License-Identifier: MIT
"""Devices: that lose pages, lie, fill up, are slow; and what happens when nothing is left."""
import os
import re
import time

from harness import MIB, case, check, need, read_text

COUNTS = re.compile(rb'right=(\d+) lost=(\d+) wrong=(\d+) efault=(\d+) fault_address_wrong=(\d+)')


def lossy(t, spec, megabytes=96, ram=48, extra=(), passes=1):
    """The program with a SIGBUS handler of its own; right, lost."""
    run = t.start([t.program('sigbus'), '-m', f'{megabytes}M', '-p', str(passes), *extra],
                  ram=ram * MIB, swap=[f'file:{t.swap_dir}/swap:512M,{spec}'])
    run.wait(90).expect_status(0)
    run.expect_nothing_left()
    match = COUNTS.search(run.stdout)
    check(match, f'{run.stdout!r}')
    right, lost, wrong, efault, elsewhere = map(int, match.groups())
    check(wrong == 0, f'{wrong} pages were read with wrong content')
    check(elsewhere == 0, f'{elsewhere} signals with a wrong address')
    check(right + lost == megabytes * 256 * passes, f'{right} + {lost} pages')
    check(efault == lost, f'{lost} pages lost, but only {efault} system calls got EFAULT')
    t.note(f'{spec}: {right} right, {lost} lost')
    return run, right, lost


def expect_lost(run, right, lost):
    check(lost > 0, 'no page was lost: the device cannot have been used')
    check(right > 0, 'every page was lost')
    check(run.vmstat('pgpoison') > 0, 'pgpoison is 0')
    check('uswap:' in run.stderr and 'swap' in run.stderr, f'no message: {run.stderr!r}')


@case()
def read_errors(t):
    run, right, lost = lossy(t, 'fault-read=0.05,fault-seed=11')
    expect_lost(run, right, lost)
    check(run.vmstat('swap_io_error') > 0, 'swap_io_error is 0')
    check(run.report['devices'][0]['errors'] > 0, 'the device shows no errors')


@case()
def read_error_of_one_slot(t):
    """One bad place: one folio is lost, everything else is there."""
    run, right, lost = lossy(t, 'fault-slot=600')
    check(lost <= 512, f'{lost} pages lost for one slot')
    expect_lost(run, right, lost)


@case()
def every_read_fails(t):
    run, right, lost = lossy(t, 'fault-read=1')
    expect_lost(run, right, lost)


@case()
def damaged_reads(t):
    """The content does not match its hash: never handed out."""
    run, right, lost = lossy(t, 'fault-corrupt-read=0.05,fault-seed=3')
    check(run.vmstat('swap_corrupt') > 0, 'swap_corrupt is 0')
    check(right > 0, 'every page was lost')


@case()
def damaged_writes(t):
    run, right, lost = lossy(t, 'fault-corrupt-write=0.05,fault-seed=5')
    expect_lost(run, right, lost)
    check(run.vmstat('swap_corrupt') > 0, 'swap_corrupt is 0')


@case()
def damaged_incompressible(t):
    run, right, lost = lossy(t, 'fault-corrupt-write=0.05,fault-seed=6', extra=['-r'])
    expect_lost(run, right, lost)


@case()
def write_errors(t):
    """A page whose writing fails stays where it is, and another device gets it: nothing is lost."""
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2'], ram=48 * MIB,
                        swap=[f'file:{t.swap_dir}/a:512M,prio=20,fault-write=0.1,fault-seed=7',
                              f'file:{t.swap_dir}/b:512M,prio=10'])
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r}')
    device = {d['name'][-1]: d for d in run.report['devices']}
    check(run.vmstat('swap_io_error') > 0 and device['a']['errors'] > 0,
          'no write failed: the case shows nothing')
    check(device['b']['peak'] > 0, 'the second device was not used')
    check(run.vmstat('pgpoison') == 0, 'pages were poisoned')
    check('/a' in run.stderr and 'write' in run.stderr, f'no message: {run.stderr!r}')
    run.expect_swapped(5000)


@case()
def disk_fills_up(t):
    """ENOSPC keeps the data; the next device takes over."""
    run = t.under_uswap([t.program('fill'), '-m', '128M', '-p', '3'], ram=48 * MIB,
                        swap=[f'file:{t.swap_dir}/a:512M,prio=20,fault-enospc=0.2,fault-seed=2',
                              f'file:{t.swap_dir}/b:512M,prio=10'])
    check(run.stdout == b'fill: pages=32768 wrong=0\n', f'{run.stdout!r}')
    check(run.vmstat('pgpoison') == 0, 'pages were poisoned')
    b = [d for d in run.report['devices'] if d['name'].endswith('/b')][0]
    check(b['peak'] > 0, f'the second device was not used: {run.report["devices"]}')
    run.expect_swapped(5000)


@case()
def grown_file_on_a_small_disk(t):
    """A growing file that cannot grow any more: marked full, nothing lost."""
    from cases.errors import small_disk
    place = small_disk(t, 'disk')
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2', '-r'], ram=48 * MIB,
                        swap=[f'file:{place}/a,prio=20', f'file:{t.swap_dir}/b:256M,prio=10'])
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r}')
    peaks = {d['name'][-1]: d['peak'] for d in run.report['devices']}
    check(0 < peaks['a'] <= 32 * MIB and peaks['b'] > 20 * MIB, f'peaks {peaks}')


@case(timeout=90)
def slow_device(t):
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-t', '2', '-p', '2'], ram=64 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:512M,delay-read=2000,delay-write=3000'])
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r}')
    run.expect_swapped(5000)
    run.expect_within_budget()
    check(run.report['faults']['max_ns'] >= 2000000, 'no fault took as long as the device')


@case(timeout=90)
def read_ahead(t):
    """In order, folios are on their way before they are asked for: waits overlap."""
    def walk(*how):
        run = t.under_uswap([t.program('fill'), '-m', '96M', '-T', *how], ram=48 * MIB,
                            swap=[f'file:{t.swap_dir}/swap:512M,delay-read=5000'])
        check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
        fields = dict(f.split(b'=') for f in run.stdout.split() if b'=' in f)
        run.expect_right_content()
        return run, int(fields[b'walk_ns']) / 1e9

    run, took = walk()
    ahead = run.vmstat('swap_ra')
    check(ahead > 5000, f'only {ahead} pages were read ahead')
    one_by_one = run.vmstat('pswpin') / 16 * 0.005
    check(took < one_by_one / 2, f'{took:.2f} s, and one by one {one_by_one:.2f} s')
    t.note(f'{took:.2f} s for reads that one by one take {one_by_one:.2f} s')


@case(timeout=90)
def slow_and_racing(t):
    """A delay widens every window between writing a page and wanting it back."""
    run = t.under_uswap([t.program('stress'), '-s', '8', '-S', '5'],
                        ram=40 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:512M,delay-read=300,delay-write=1000'],
                        timeout=60)
    check(b' wrong=0 ' in run.stdout, f'{run.stdout!r} {run.stderr[-500:]!r}')


def plain(t, spec):
    run = t.under_uswap([t.program('fill'), '-m', '128M', '-p', '2', '-t', '2'], ram=48 * MIB,
                        swap=[f'file:{t.swap_dir}/swap:512M{spec}'])
    check(run.stdout == b'fill: pages=32768 wrong=0\n', f'{run.stdout!r}')
    run.expect_swapped(10000)
    run.expect_right_content()
    run.expect_within_budget()


@case()
def io_uring_and_direct(t):
    plain(t, '')


@case()
def without_io_uring(t):
    plain(t, ',no-io-uring')


@case()
def without_direct(t):
    plain(t, ',no-direct')


@case()
def without_both(t):
    plain(t, ',no-io-uring,no-direct')


@case()
def zram_only(t):
    run = t.under_uswap([t.program('fill'), '-m', '160M', '-z', '-p', '2'], ram=48 * MIB,
                        swap=['zram:512M'])
    check(run.stdout == b'fill: pages=40960 wrong=0\n', f'{run.stdout!r}')
    check(run.vmstat('swpout_zero') > 10000, f'swpout_zero {run.vmstat("swpout_zero")}')
    check(run.report['devices'][0]['peak'] < 16 * MIB, 'pages of zeros were stored')


@case()
def smallest_budget(t):
    """The default devices leave a program room to run in the least --ram, too."""
    run = t.under_uswap([t.program('fill'), '-m', '60M', '-p', '2'], ram=16 * MIB)
    check(run.stdout == b'fill: pages=15360 wrong=0\n', f'{run.stdout!r}')


@case()
def zram_alone_takes_more_than_half(t):
    """With no other device compressed memory may take most of the budget, until nothing is left."""
    run = t.under_uswap([t.program('fill'), '-m', '156M', '-p', '2'], ram=64 * MIB,
                        swap=['zram:512M'])
    check(run.stdout == b'fill: pages=39936 wrong=0\n', f'{run.stdout!r}')
    run.expect_within_budget()
    peak = run.report['devices'][0]
    t.note(f'{peak["compressed"] >> 20} MiB compressed at the end, used {peak["peak"] >> 20} MiB')


@case()
def zstd(t):
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2'], ram=64 * MIB,
                        swap=['zram:512M,codec=zstd:1,prio=9', f'file:{t.swap_dir}/s:512M,prio=2'])
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r}')
    check(run.vmstat('zswpout') > 1000, 'nothing was compressed')


@case()
def incompressible_spills_to_the_file(t):
    """Compressed memory is memory: what does not compress goes to the next device."""
    run = t.under_uswap([t.program('fill'), '-m', '160M', '-r', '-p', '2'], ram=64 * MIB)
    check(run.stdout == b'fill: pages=40960 wrong=0\n', f'{run.stdout!r}')
    run.expect_within_budget()
    check(run.vmstat('pswpout') > 20000, f'only {run.vmstat("pswpout")} pages went to the file')
    check(run.vmstat('zswpout') < 2000,
          f'{run.vmstat("zswpout")} pages were kept in memory though they do not compress')


@case()
def full_zram_spills_to_the_file(t):
    run = t.under_uswap([t.program('fill'), '-m', '160M', '-p', '2'], ram=64 * MIB,
                        swap=['zram:24M,prio=100', f'file:{t.swap_dir}/swap:512M,prio=10'])
    check(run.stdout == b'fill: pages=40960 wrong=0\n', f'{run.stdout!r}')
    peaks = {d['type']: d['peak'] for d in run.report['devices']}
    check(peaks['zram'] <= 24 * MIB and peaks['zram'] > 8 * MIB and peaks['file'] > 16 * MIB,
          f'peaks {peaks}')
    run.expect_within_budget()


@case()
def priorities(t):
    """The higher first; equal ones in turn."""
    specs = [f'file:{t.swap_dir}/low:256M,prio=1', f'file:{t.swap_dir}/a:256M,prio=7',
             f'file:{t.swap_dir}/b:256M,prio=7']
    run = t.under_uswap([t.program('fill'), '-m', '128M', '-r', '-p', '1'], ram=48 * MIB,
                        swap=specs)
    peaks = {d['name'].rsplit('/', 1)[1]: d['peak'] for d in run.report['devices']}
    check(peaks['low'] == 0, f'the lowest was used: {peaks}')
    check(min(peaks['a'], peaks['b']) * 3 > max(peaks['a'], peaks['b']), f'not in turn: {peaks}')


@case(timeout=90)
def out_of_room(t):
    """More than fits anywhere: the largest is ended with a message, the other ends well."""
    fill = t.program('fill')
    script = (f'{fill} -m 256M -r -S 1 -p 3 & a=$!; {fill} -m 40M -r -S 2 -p 40 & b=$!; '
              'wait $a; echo large $?; wait $b; echo small $?')
    run = t.under_uswap(['sh', '-c', script], ram=64 * MIB, timeout=80,
                        swap=['zram:64M,prio=9', f'file:{t.swap_dir}/swap:64M,prio=1'])
    lines = run.stdout.splitlines()
    check(b'large 137' in lines, f'the large one was not ended: {run.stdout!r}')
    check(b'small 0' in lines and b'fill: pages=10240 wrong=0' in lines,
          f'the small one did not end well: {run.stdout!r}')
    told = [x for x in run.stderr.splitlines() if x.startswith('uswap:')]
    check(any('fill' in x and re.search(r'room|full|memory', x) for x in told),
          f'no clear message: {run.stderr!r}')
    check(run.vmstat('oom_kill') == 1, f'oom_kill {run.vmstat("oom_kill")}')
    run.expect_within_budget()


@case()
def out_of_room_alone(t):
    """One program that does not fit: ended, and said so."""
    run = t.under_uswap([t.program('fill'), '-m', '256M', '-r'], ram=48 * MIB, status=137,
                        swap=[f'file:{t.swap_dir}/swap:48M'])
    told = [x for x in run.stderr.splitlines() if x.startswith('uswap:')]
    check(any('fill' in x and re.search(r'room|full|memory', x) for x in told),
          f'no clear message: {run.stderr!r}')


@case()
def out_of_room_under_a_tracer(t):
    """The ended program stops at its end for its tracer, whose own fault waits for room."""
    run = t.start([need('strace'), '-f', '-o', t.path('trace'), t.program('fill'), '-m', '96M'],
                  ram=32 * MIB, swap=['zram:1G'])
    run.wait(30).expect_status(137)
    check(run.stderr.count('out of room: ') == 1 and '(fill)' in run.stderr, f'{run.stderr!r}')
    run.expect_nothing_left()
    check(run.vmstat('oom_kill') == 1, f'oom_kill {run.vmstat("oom_kill")}')
    check('killed by SIGKILL' in read_text(t.path('trace')), 'strace did not see the end')


@case()
def swap_file_is_private(t):
    """The file has no name while the job runs; with keep it has one that only the owner reads."""
    run = t.start(['sh', '-c', f'{t.program("fill")} -m 96M; echo up; sleep 1'], ram=48 * MIB,
                  swap=[f'file:{t.swap_dir}/a:128M', f'file:{t.swap_dir}/b:128M,keep'],
                  keep=['b'])
    run.wait_for_output('up')
    check(os.listdir(t.swap_dir) == ['b'], f'{os.listdir(t.swap_dir)}')
    st = os.stat(os.path.join(t.swap_dir, 'b'))
    check(st.st_mode & 0o777 == 0o600, f'mode {st.st_mode:o}')
    check(st.st_blocks * 512 >= 128 * MIB, 'not reserved at start')
    run.wait(20).expect_status(0)
    run.expect_nothing_left()
    check(os.path.exists(os.path.join(t.swap_dir, 'b')), 'keep, but it is gone')


@case(soak=True)
def swap_file_taken_away(t):
    """Removed and truncated by somebody while in use: never wrong data."""
    path = os.path.join(t.swap_dir, 'b')
    run = t.start([t.program('sigbus'), '-m', '96M', '-p', '6'], ram=48 * MIB,
                  swap=[f'file:{path}:128M,keep,no-direct'])
    time.sleep(1.0)
    if run.proc.poll() is None:
        os.truncate(path, 0)
        os.unlink(path)
    run.wait(60)
    match = COUNTS.search(run.stdout)
    check(match, f'{run.stdout!r} {run.stderr!r}')
    check(int(match.group(3)) == 0, f'wrong content: {run.stdout!r}')
    run.expect_nothing_left()
