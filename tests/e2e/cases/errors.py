# SPDX-License-Identifier: MIT
"""Bad input: exit 125, one line that names the thing and the remedy, nothing started or left."""
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from harness import MIB, Skip, add_case, case, check, in_time, need, rundir_entries


def expect_refusal(t, words, patterns, env=None, **popen):
    """words: behind `uswap`. patterns: what the line must hold, the thing and the remedy."""
    marker = t.path('started')
    words = [w.replace('{dir}', t.dir).replace('{swap}', t.swap_dir) for w in words]
    words = [marker if w == '{marker}' else w for w in words]
    before = sorted(os.listdir(t.swap_dir)), sorted(rundir_entries())
    done = subprocess.run([t.uswap, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=20, cwd=popen.pop('cwd', t.dir), env=env, **popen)
    err = done.stderr.decode('utf-8', 'replace')
    shown = f'{" ".join(words)!r} -> {done.returncode}, {err!r}'
    t.log(shown)
    check(done.returncode == 125, f'status is not 125: {shown}')
    lines = err.splitlines()
    check(len(lines) == 1 and err.endswith('\n'), f'not exactly one line: {shown}')
    check(lines[0].startswith('uswap: '), f'not uswap\'s: {shown}')
    check(len(lines[0]) < 400, f'too long: {shown}')
    check(done.stdout == b'', f'stdout {done.stdout!r}: {shown}')
    for pattern in patterns:
        check(re.search(pattern.replace('{dir}', re.escape(t.dir))
                        .replace('{swap}', re.escape(t.swap_dir)), lines[0], re.I),
              f'no {pattern!r} in: {shown}')
    check(not os.path.exists(marker), f'the command was started: {shown}')
    end = time.monotonic() + 2
    while (sorted(os.listdir(t.swap_dir)), sorted(rundir_entries())) != before:
        in_time(time.monotonic() < end,
                f'left behind {os.listdir(t.swap_dir)} {rundir_entries()}: {shown}')
        time.sleep(0.05)
    t.reap()
    check(not t.adopted(), f'processes left: {t.adopted()}: {shown}')


RUN = ['run']
GO = ['--', 'touch', '{marker}']

# name, words before the command, patterns
TABLE = [
    # SIZE
    ('zram_too_large', ['--swap', 'zram:9999T'], ['zram', '16T']),
    ('ram_word', ['--ram', 'abc'], ['--ram', 'abc']),
    ('ram_hexadecimal', ['--ram', '0x10000000'], ['--ram', '0x10000000']),
    ('ram_negative', ['--ram', '-64M'], ['--ram', '-64M']),
    ('ram_plus', ['--ram', '+64M'], ['--ram']),
    ('ram_empty', ['--ram', ''], ['--ram']),
    ('ram_zero', ['--ram', '0'], ['--ram']),
    ('ram_two_points', ['--ram', '1.2.3G'], ['--ram', r'1\.2\.3G']),
    ('ram_unknown_unit', ['--ram', '10Q'], ['--ram', '10Q']),
    ('ram_unit_only', ['--ram', 'M'], ['--ram']),
    ('ram_space', ['--ram', '64 M'], ['--ram', '64 M']),
    ('ram_too_large_to_count', ['--ram', '99999999999999999999T'], ['--ram']),
    ('ram_percent_of_nothing', ['--ram', '0%'], ['--ram']),
    ('ram_no_value', None, ['--ram', 'value']),
    ('ram_below_minimum', ['--ram', '1M'], ['--ram', 'minimum', '16 ?M']),
    ('ram_control_characters', ['--ram', '1\nM\x1b[31m'], ['--ram']),
    # SPEC
    ('swap_empty', ['--swap', ''], ['--swap']),
    ('swap_unknown_type', ['--swap', 'floppy:64M'], ['floppy', 'zram', 'file']),
    ('swap_type_of_a_later_version', ['--swap', 'nbd:nbd://localhost'], ['nbd', 'version']),
    ('swap_zram_bad_size', ['--swap', 'zram:lots'], ['lots']),
    ('swap_zram_size_zero', ['--swap', 'zram:0'], ['zram:0']),
    ('swap_prio_too_large', ['--swap', 'zram:64M,prio=32768'], ['prio', '32767']),
    ('swap_prio_negative', ['--swap', 'zram:64M,prio=-5'], ['prio', '-5']),
    ('swap_prio_word', ['--swap', 'zram:64M,prio=high'], ['prio', 'high']),
    ('swap_prio_twice', ['--swap', 'zram:64M,prio=1,prio=2'], ['prio', 'twice']),
    ('swap_unknown_key', ['--swap', 'zram:64M,speed=11'], ['speed']),
    ('swap_key_without_value', ['--swap', 'zram:64M,prio'], ['prio', 'value']),
    ('swap_codec', ['--swap', 'zram:64M,codec=zip'], ['zip', 'lz4', 'zstd']),
    ('swap_codec_level', ['--swap', 'zram:64M,codec=zstd:99'], ['level', '19']),
    ('swap_file_without_path', ['--swap', 'file:'], ['path', 'file:PATH']),
    ('swap_file_size_only', ['--swap', 'file:1G'], ['path', 'file:PATH']),
    ('swap_file_size_zero', ['--swap', 'file:{swap}/f:0'], [r'\b0\b']),
    ('swap_file_bad_size', ['--swap', 'file:{swap}/f:12X'], ['12X']),
    ('swap_file_no_directory', ['--swap', 'file:{swap}/none/f:64M'],
     ['{swap}/none', 'does not exist']),
    ('swap_file_is_directory', ['--swap', 'file:{swap}:64M'], ['{swap}', 'director']),
    ('swap_file_too_large', ['--swap', 'file:{swap}/f:9000T'], ['{swap}/f']),
    ('swap_file_device', ['--swap', 'file:/dev/null:64M'], ['/dev/null', 'not a regular file']),
    ('swap_same_file_twice', ['--swap', 'file:{swap}/f:64M,keep',
                              '--swap', 'file:{swap}/f:64M,keep'], ['{swap}/f']),
    ('swap_same_file_by_another_name', ['--swap', 'file:{swap}/f:64M,keep',
                                        '--swap', 'file:{swap}/./f:64M,keep,force'],
     ['{swap}/f', 'this job already, as']),
    # other words
    ('order_too_large', ['--order', '10'], ['--order', '10', '9']),
    ('order_word', ['--order', 'big'], ['--order', 'big', 'auto']),
    ('order_negative', ['--order', '-1'], ['--order']),
    ('report_other_format', ['--report', 'r.xml'], ['r.xml', r'\.json']),
    ('report_without_directory', ['--report', 'none/r.json'], ['none/r.json', 'No such']),
    ('unknown_option', ['--frobnicate'], ['--frobnicate', 'help']),
    ('unknown_letter', ['-Z'], ['-Z', 'help']),
    ('quiet_and_verbose', ['-q', '-v'], ['-q', '-v']),
]


def add_row(name, words, patterns):
    def run(t):
        if words is None:
            expect_refusal(t, ['run', '--ram'], patterns)
        else:
            expect_refusal(t, ['run', *words, *GO], patterns)
    add_case('errors.' + name, run, timeout=30)


for row in TABLE:
    add_row(*row)


@case()
def no_command(t):
    expect_refusal(t, ['run'], ['command', 'usage'])
    expect_refusal(t, ['run', '--ram', '64M', '--'], ['command'])


@case()
def no_verb(t):
    expect_refusal(t, [], ['verb|command', 'help'])
    expect_refusal(t, ['frobnicate'], ['frobnicate', 'help'])
    expect_refusal(t, ['version', 'more'], ['more'])


def limited(resource_name, soft, hard):
    """What sets a limit in the child before uswap starts."""
    which = getattr(resource, resource_name)
    return lambda: resource.setrlimit(which, (soft, hard))


def may_raise_limits():
    with open('/proc/self/status') as f:
        caps = int(re.search(r'CapEff:\s*(\w+)', f.read()).group(1), 16)
    return bool(caps >> 24 & 1)


@case()
def hard_limits(t):
    """ulimit in the way of the supervisor, where it may not be raised."""
    if may_raise_limits():
        raise Skip('CAP_SYS_RESOURCE is there, so that uswap raises the limits')
    run = ['run', '--ram', '64M', '--', 'touch', '{marker}']
    expect_refusal(t, run, [r'4096 MiB', r'ulimit -v', r'reserve'],
                   preexec_fn=limited('RLIMIT_AS', 4 << 30, 4 << 30))
    expect_refusal(t, run, [r'102400', r'ulimit -f'],
                   preexec_fn=limited('RLIMIT_FSIZE', 102400, 102400))
    expect_refusal(t, run, [r'12 descriptors', r'ulimit -n'],
                   preexec_fn=limited('RLIMIT_NOFILE', 12, 12))


@case()
def soft_limits_are_the_commands(t):
    """The command has the limits that the user set; the supervisor is not bound by them."""
    for name, soft, letter, shown in (('RLIMIT_AS', 4 << 30, '-v', b'4194304'),
                                      ('RLIMIT_FSIZE', 1 << 20, '-f', b'2048'),
                                      ('RLIMIT_CPU', 2, '-t', b'2'),
                                      ('RLIMIT_NOFILE', 30, '-n', b'30')):
        hard = resource.getrlimit(getattr(resource, name))[1]
        run = t.under_uswap(['sh', '-c', f'ulimit -S {letter}; {t.program("fill")} -m 96M'],
                            ram=48 * MIB, preexec_fn=limited(name, soft, hard))
        check(run.stdout.splitlines()[0] == shown, f'{name}: {run.stdout!r}')
        check(b'wrong=0' in run.stdout, f'{name}: {run.stdout!r}')
        run.expect_swapped(5000)


@case()
def one_device_given_twice(t):
    """The file of a device is unlinked while it is in use, so its path seems to be free."""
    path = os.path.join(t.swap_dir, 'twice')
    expect_refusal(t, ['run', '--swap', f'file:{path}:64M', '--swap', f'file:{path}:32M', *GO],
                   [path, 'already', 'another'])


@case()
def file_exists(t):
    """What is there stays as it is; with force it is used."""
    path = t.write('swap/precious', 'the only copy\n')
    expect_refusal(t, ['run', '--swap', f'file:{path}:64M', *GO], [path, 'exists', 'force'])
    with open(path) as f:
        check(f.read() == 'the only copy\n', 'the file was changed')
    link = os.path.join(t.swap_dir, 'link')
    os.symlink(path, link)
    expect_refusal(t, ['run', '--swap', f'file:{link}:64M,force', *GO], [link, 'symbolic'])
    os.unlink(link)
    run = t.start(['true'], swap=[f'file:{path}:64M,force']).wait(20).expect_status(0)
    run.expect_nothing_left()


@case()
def file_on_tmpfs(t):
    place = t.path('tmpfs')
    os.mkdir(place)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64m', 'none', place], check=True)
    try:
        expect_refusal(t, ['run', '--swap', f'file:{place}/f:16M', *GO],
                       [f'{place}/f', 'tmpfs', '/var/tmp'])
        check(not os.listdir(place), f'left {os.listdir(place)}')
    finally:
        subprocess.run(['umount', place], check=True)


def small_disk(t, name):
    """An ext4 of 32 MiB on a loop device."""
    need('mkfs.ext4')
    image, place = t.path(name + '.img'), t.path(name)
    with open(image, 'wb') as f:
        f.truncate(32 * MIB)
    subprocess.run(['mkfs.ext4', '-q', '-F', '-m', '0', image], check=True, capture_output=True)
    os.mkdir(place)
    done = subprocess.run(['mount', '-o', 'loop', image, place], capture_output=True, text=True)
    if done.returncode:
        raise Skip(f'no loop devices: {done.stderr.strip()}')
    t.cleanups.append(lambda: subprocess.run(['umount', '-l', place]))
    return place


@case()
def file_on_full_disk(t):
    place = small_disk(t, 'disk')
    before = sorted(os.listdir(place))
    expect_refusal(t, ['run', '--swap', f'file:{place}/f:200M', *GO],
                   [f'{place}/f', 'room|space', 'smaller|another|free'])
    with open(os.path.join(place, 'filler'), 'wb') as f:
        try:
            while True:
                f.write(bytes(1 << 16))
                f.flush()
        except OSError:
            pass
    for spec in (f'file:{place}/f:8M', f'file:{place}/f'):
        expect_refusal(t, ['run', '--swap', spec, *GO],
                       [f'{place}/f', 'room|space|full', 'smaller|another|free'])
    check(sorted(os.listdir(place)) == sorted(before + ['filler']), f'left {os.listdir(place)}')


@case()
def file_on_read_only_disk(t):
    place = t.path('ro')
    os.mkdir(place)
    subprocess.run(['mount', '--bind', place, place], check=True)
    t.cleanups.append(lambda: subprocess.run(['umount', '-l', place]))
    subprocess.run(['mount', '-o', 'remount,ro,bind', place], check=True)
    expect_refusal(t, ['run', '--swap', f'file:{place}/f:16M', *GO], [place, 'read-only'])


@case()
def two_jobs_on_one_file(t):
    path = os.path.join(t.swap_dir, 'shared')
    first = t.start(['sh', '-c', 'echo up; exec sleep 30'], swap=[f'file:{path}:64M,keep'],
                    keep=['shared'])
    first.wait_for_output('up')
    marker = t.path('started')
    done = subprocess.run([t.uswap, 'run', '--swap', f'file:{path}:64M,force,keep', '--', 'touch',
                           marker], capture_output=True, text=True, timeout=20)
    check(done.returncode == 125, f'the second job was not refused: {done}')
    check(len(done.stderr.splitlines()) == 1 and path in done.stderr and
          'another job' in done.stderr, f'stderr {done.stderr!r}')
    check(not os.path.exists(marker), 'the command was started')
    check(os.path.exists(path), 'the file of the first job is gone')
    os.kill(first.pid, signal.SIGTERM)
    first.wait(10)
    first.expect_nothing_left()
    os.unlink(path)


@case()
def no_job_to_act_on(t):
    for verb in (['stat'], ['stat', '--json'], ['swaps'], ['ps'], ['set', 'ram=64M']):
        expect_refusal(t, verb, ['no job'])
    status, out, err = t.cli('jobs')
    check((status, out, err) == (0, '', ''), f'jobs: {status} {out!r} {err!r}')


@case()
def job_that_ended(t):
    run = t.start(['sh', '-c', 'echo up; exec sleep 30'])
    run.wait_for_output('up')
    status, out, err = t.cli('jobs')
    check(status == 0 and out, f'jobs: {status} {out!r} {err!r}')
    job = out.split()[0]
    os.kill(run.pid, signal.SIGTERM)
    run.wait(10)
    run.expect_nothing_left()
    for verb in (['set', '--job', job, 'ram=64M'], ['stat', '--job', job], ['ps', '--job', job],
                 ['swaps', '--job', job]):
        expect_refusal(t, verb, [job, 'job'])


@case()
def bad_set(t):
    run = t.start(['sh', '-c', 'echo up; exec sleep 30'])
    run.wait_for_output('up')
    for words, patterns in ((['ram=abc'], ['ram', 'abc']), (['ram='], ['ram']),
                            (['ram=1M'], ['minimum', '16 ?M']), (['colour=red'], ['colour']),
                            (['ram'], ['KEY=VALUE|VALUE']), ([], ['KEY=VALUE'])):
        expect_refusal(t, ['set', *words], patterns)
    expect_refusal(t, ['stat', '--job', 'xyz'], ['xyz', 'jobs'])
    expect_refusal(t, ['stat', 'soon'], ['INTERVAL', 'soon'])
    os.kill(run.pid, signal.SIGTERM)
    run.wait(10)
    run.expect_nothing_left()


@case()
def which_of_several_jobs(t):
    runs = [t.start(['sh', '-c', 'echo up; exec sleep 30'], swap=['zram:64M']) for _ in range(2)]
    for run in runs:
        run.wait_for_output('up')
    status, out, err = t.cli('jobs')
    ids = [line.split()[0] for line in out.splitlines()]
    check(status == 0 and len(ids) == 2, f'jobs: {status} {out!r}')
    expect_refusal(t, ['stat'], [ids[0], ids[1], '--job'])
    for job in ids:
        status, out, err = t.cli('stat', '--json', '--job', job)
        check(status == 0 and f'"{job}"' in out, f'stat --job {job}: {status} {err!r}')
    for run in runs:
        os.kill(run.pid, signal.SIGTERM)
        run.wait(10)
    runs[-1].expect_nothing_left()


def reachable_by_nobody(t):
    """The binary, copied if need be to where a plain user may read it."""
    probe = subprocess.run(['test', '-x', t.uswap], user=65534, group=65534, extra_groups=[])
    if probe.returncode == 0:
        return t.uswap
    copy = t.path('uswap')
    shutil.copy(t.uswap, copy)
    os.chmod(copy, 0o755)
    return copy


@case()
def without_permission(t):
    """A plain user, without a right to userfaultfds."""
    if os.stat('/dev/userfaultfd').st_mode & 0o006 == 0o006:
        raise Skip('/dev/userfaultfd is open to everybody here')
    marker = '/tmp/uswap-e2e-started'
    binary = reachable_by_nobody(t)
    done = subprocess.run([binary, 'run', '--', 'touch', marker], user=65534, group=65534,
                          extra_groups=[], capture_output=True, text=True, timeout=20, cwd='/',
                          env={'PATH': os.environ['PATH']})
    check(done.returncode == 125, f'status {done.returncode}, {done.stderr!r}')
    lines = done.stderr.splitlines()
    check(len(lines) == 1, f'stderr {done.stderr!r}')
    check('userfaultfd' in lines[0], f'no word of userfaultfd in {lines[0]!r}')
    check(re.search('uswap check|root|sudo|group|--user 0', lines[0]),
          f'no remedy in {lines[0]!r}')
    check(not os.path.exists(marker), 'the command was started')
    done = subprocess.run([binary, 'check'], user=65534, group=65534, extra_groups=[],
                          capture_output=True, text=True, timeout=20, cwd='/')
    check(done.returncode != 0, f'check succeeds for nobody: {done.stdout!r}')


@case()
def in_a_user_namespace(t):
    """No fork events there: refused rather than wrong."""
    need('unshare')
    marker = t.path('started')
    done = subprocess.run(['unshare', '-Ur', t.uswap, 'run', '--', 'touch', marker],
                          capture_output=True, text=True, timeout=20)
    if 'unshare' in done.stderr and 'uswap:' not in done.stderr:
        raise Skip('no user namespaces here')
    check(done.returncode == 125 and len(done.stderr.splitlines()) == 1,
          f'status {done.returncode}, {done.stderr!r}')
    check('uswap check' in done.stderr or 'namespace' in done.stderr, f'{done.stderr!r}')
    check(not os.path.exists(marker), 'the command was started')
