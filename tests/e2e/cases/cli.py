# SPDX-License-Identifier: MIT
"""What `uswap run` looks like from outside: status, streams, signals, options."""
import json
import os
import signal
import subprocess
import time

from harness import MIB, Failure, Skip, case, check, check_report, need, read_bytes, tail


@case()
def default_run(t):
    """No option at all."""
    run = t.start(['true'], swap=[]).wait(30).expect_status(0)
    check(run.stdout == b'', f'stdout: {run.stdout!r}')
    check(run.stderr == '', f'stderr should be empty: {tail(run.stderr)}')
    run.expect_nothing_left()
    check_report(run.report)
    limit = run.report['ram']['limit']
    with open('/proc/meminfo') as f:
        total = int(f.readline().split()[1]) * 1024
    check(64 * MIB < limit < total, f'default budget {limit}')
    check(run.report['exit'] == 0, f'report says exit {run.report["exit"]}')


@case(timeout=120)
def default_devices(t):
    """No --swap: compressed memory first, then a file in /var/tmp that is gone afterwards."""
    before = set(os.listdir('/var/tmp'))
    run = t.under_uswap([t.program('fill'), '-m', '192M', '-p', '2'], ram=64 * MIB, swap=[])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    devices = sorted(run.report['devices'], key=lambda d: -d['prio'])
    check([d['type'] for d in devices] == ['zram', 'file'], f'devices {devices}')
    check([d['prio'] for d in devices] == [100, 10], f'priorities {devices}')
    check('/var/tmp' in devices[1]['name'], f'the file is {devices[1]["name"]}')
    run.expect_swapped(10000)
    left = [f for f in set(os.listdir('/var/tmp')) - before if 'uswap' in f and 'e2e' not in f]
    check(not left, f'left in /var/tmp: {left}')


@case()
def exit_status(t):
    for want in (0, 1, 2, 7, 42, 63, 124, 125, 126, 127, 128, 200, 254, 255):
        run = t.start(['sh', '-c', f'exit {want}']).wait(20).expect_status(want)
        check(run.stderr == '', f'exit {want}: stderr {tail(run.stderr)}')
        check(run.report['exit'] == want, f'report says {run.report["exit"]}, want {want}')
    run.expect_nothing_left()


@case()
def killed_by_signal(t):
    for name in ('HUP', 'INT', 'QUIT', 'ILL', 'ABRT', 'FPE', 'KILL', 'USR1', 'SEGV', 'PIPE',
                 'ALRM', 'TERM', 'BUS', 'SYS'):
        number = getattr(signal, 'SIG' + name)
        run = t.start(['python3', '-c', f'import os, signal\n'
                       f'signal.signal({int(number)}, signal.SIG_DFL)\n'
                       f'os.kill(os.getpid(), {int(number)})\nimport time; time.sleep(5)']
                      if name not in ('KILL',) else ['sh', '-c', 'kill -KILL $$'])
        run.wait(20).expect_status(128 + number)
    run.expect_nothing_left()


@case()
def command_not_found(t):
    for command in ('no-such-command-here', './no-such-file', '/no/such/dir/x'):
        run = t.start([command]).wait(20).expect_status(127)
        lines = run.stderr.splitlines()
        check(len(lines) == 1 and command in lines[0], f'{command}: stderr {run.stderr!r}')
        run.expect_nothing_left()


@case()
def command_not_executable(t):
    plain = t.write('plain', 'no program\n')
    os.chmod(plain, 0o644)
    for command in (plain, t.dir):
        run = t.start([command]).wait(20).expect_status(126)
        lines = run.stderr.splitlines()
        check(len(lines) == 1 and command in lines[0], f'{command}: stderr {run.stderr!r}')
        run.expect_nothing_left()


@case()
def streams_are_binary_exact(t):
    data = os.urandom(3 * MIB + 12345) + bytes(range(256)) * 10
    path = t.write('input', data)
    run = t.under_uswap(['cat'], stdin=path)
    check(run.stdout == data, 'stdin to stdout changed')
    run = t.under_uswap(['sh', '-c', 'cat >&2'], stdin=path)
    check(read_bytes(run.err_path) == data, 'stdin to stderr changed')


@case()
def streams_through_pipes(t):
    """A pipe in, a pipe out, both ends slow: nothing is lost, and the end is seen."""
    data = os.urandom(MIB)
    proc = subprocess.Popen([t.uswap, 'run', '--', 'cat'], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.own_pids.add(proc.pid)
    out, err = proc.communicate(data, timeout=30)
    check(proc.returncode == 0 and err == b'', f'status {proc.returncode}, stderr {err!r}')
    check(out == data, 'a pipe changed the data')


@case()
def closed_descriptors(t):
    """A program started with closed standard descriptors keeps them closed, and gets no others."""
    script = ('import os\n'
              'fds = sorted(int(f) for f in os.listdir("/proc/self/fd"))\n'
              'print(fds, os.open("/dev/null", 0))\n')
    native = t.native(['python3', '-c', script])
    run = t.under_uswap(['python3', '-c', script])
    check(run.stdout == native.stdout, f'descriptors {run.stdout!r}, natively {native.stdout!r}')
    run = t.under_uswap(['sh', '-c', 'exec 0<&- 2<&-; exec "$@"', 'sh', t.program('fill'), '-m',
                         '1M'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')


@case()
def arguments_and_environment(t):
    """Passed on as they are; what uswap adds is its own, the preload, and one word for ASan."""
    odd = ['a b', '', "'", '"', '$HOME', '\n', '--', '-x', 'ü', '*']
    show = 'import sys; print(sys.argv[1:])'
    native = t.native(['python3', '-c', show, *odd])
    run = t.under_uswap(['python3', '-c', show, *odd])
    check(run.stdout == native.stdout, f'{run.stdout!r}')
    names = ('import os\n'
             'asan = os.environ.pop("ASAN_OPTIONS", "none")\n'
             'print(sorted((k, v) for k, v in os.environ.items()\n'
             '             if not k.startswith(("USWAP", "LD_"))))\n'
             'print(asan)\n')
    native = t.native(['python3', '-c', names])
    run = t.under_uswap(['python3', '-c', names])
    # A program under ASan would refuse a library that comes before its runtime.
    want = native.stdout.replace(b'\nnone\n', b'\nverify_asan_link_order=0\n')
    check(run.stdout.replace(run.tag.encode(), b'') == want.replace(native.tag.encode(), b''),
          f'{run.stdout!r}, natively {native.stdout!r}')
    mine = {'ASAN_OPTIONS': 'detect_leaks=0:halt_on_error=1'}
    run = t.under_uswap(['sh', '-c', 'echo "$ASAN_OPTIONS"'], env=mine)
    check(run.stdout == b'verify_asan_link_order=0:detect_leaks=0:halt_on_error=1\n',
          f'{run.stdout!r}')


@case()
def working_directory(t):
    """The helper is found from wherever the program is started."""
    run = t.under_uswap(['sh', '-c', f'cd / && exec {t.program("fill")} -m 96M'], ram=48 * MIB)
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    run.expect_swapped(5000)


def ready_then(t, script, **kw):
    run = t.start(['sh', '-c', script], **kw)
    run.wait_for_output('ready')
    return run


@case()
def signals_are_passed_on(t):
    for name in ('TERM', 'INT', 'HUP'):
        run = ready_then(t, f'trap "echo got {name}; exit 37" {name}; echo ready; '
                            'while :; do sleep 0.05; done')
        os.kill(run.pid, getattr(signal, 'SIG' + name))
        run.wait(10).expect_status(37)
        check(f'got {name}'.encode() in run.stdout, f'{name}: {run.stdout!r}')
        run.expect_nothing_left()


@case()
def sigterm_ends_a_plain_command(t):
    run = ready_then(t, 'echo ready; exec sleep 30')
    os.kill(run.pid, signal.SIGTERM)
    run.wait(10).expect_status(128 + signal.SIGTERM)
    run.expect_nothing_left()


@case(timeout=90)
def report_schema(t):
    run = t.under_uswap([t.program('fill'), '-m', '128M', '-p', '2'], ram=48 * MIB)
    report = check_report(run.report)
    check(report['command'] == [t.program('fill'), '-m', '128M', '-p', '2'],
          f'command {report["command"]}')
    check(report['ram']['limit'] == 48 * MIB, f'limit {report["ram"]["limit"]}')
    check(report['exit'] == 0 and report['elapsed'] > 0, 'exit or elapsed')
    mine = [p for p in report['processes'] if p['comm'] == 'fill']
    check(len(mine) == 1 and mine[0]['managed'] and mine[0]['ended'] and mine[0]['faults'] > 0
          and mine[0]['reason'] is None, f'processes {report["processes"]}')
    check(report['faults']['count'] > 0 and report['faults']['p50_ns'] > 0, 'faults')
    peak = report['ram']['peak']
    check(30 * MIB < peak <= 64 * MIB, f'peak {peak}')
    v = report['vmstat']
    check(sum(o['swpout'] << o['order'] for o in report['orders']) +
          sum(o['zswpout'] << o['order'] for o in report['orders']) > 0, 'orders are all zero')
    check(v['exec_managed'] >= 1, 'exec_managed is 0')


@case()
def report_cannot_be_written(t):
    """Refused before the command starts; a place that goes away meanwhile is told at the end."""
    os.mkdir(t.path('r.json'))
    for where in ('no/such/dir/r.json', 'r.json'):
        run = t.start(['touch', t.path('started')], args=['--report', t.path(where)], swap=[]).wait(20)
        lines = run.stderr.splitlines()
        check(run.status == 125 and len(lines) == 1 and where in lines[0],
              f'status {run.status}, stderr {run.stderr!r}')
        check(not os.path.exists(t.path('started')), 'the command was started')
        run.expect_nothing_left()
    os.mkdir(t.path('gone'))
    run = t.start(['rmdir', t.path('gone')], args=['--report', t.path('gone/r.json')], swap=[]).wait(20)
    lines = run.stderr.splitlines()
    check(run.status == 125 and len(lines) == 1 and 'gone/r.json' in lines[0],
          f'status {run.status}, stderr {run.stderr!r}')
    run.expect_nothing_left()


@case()
def check_verb(t):
    status, out, err = t.cli('check')
    check(status == 0, f'status {status}: {tail(out + err)}')
    check('userfaultfd' in out.lower(), f'no word of userfaultfd: {out!r}')
    status, out, err = t.cli('check', '--json')
    check(status == 0, f'--json: status {status}')
    try:
        json.loads(out)
    except ValueError as e:
        raise Failure(f'--json: {e}: {out[:200]!r}')


@case()
def check_notes_overcommit(t):
    """Strict overcommit accounting makes large mappings fail whatever uswap does."""
    fake = t.write('overcommit', '2\n')
    target = '/proc/sys/vm/overcommit_memory'
    if os.environ.get('USWAP_E2E_PRIVATE') is None:
        raise Skip('needs a mount namespace of its own')
    subprocess.run(['mount', '--bind', fake, target], check=True)
    try:
        status, out, err = t.cli('check')
    finally:
        subprocess.run(['umount', target], check=True)
    check('overcommit' in out + err, f'no note: {out!r} {err!r}')


@case()
def version_and_help(t):
    status, out, err = t.cli('--version')
    check(status == 0 and 'uswap' in out and err == '', f'--version: {status} {out!r} {err!r}')
    status, out, err = t.cli('--help')
    check(status == 0 and 'run' in out and 'swaps' in out, f'--help: {status} {out!r}')
    check(err == '', f'--help: stderr {err!r}')
    check(t.cli('help') == (0, out, ''), 'help and --help differ')
    check(t.cli('help', 'run') == t.cli('run', '--help'), 'help run and run --help differ')
    status, out, err = t.cli('help', 'nonsense')
    check(status == 125 and 'nonsense' in err, f'help nonsense: {status} {err!r}')


@case()
def stopped_neighbour(t):
    """
    What ends in a process group that nobody controls does not hang it up, though another one of it
    is stopped: the kernel does that when the parent is in another group of the same session.
    """
    script = f'''
import os, signal, subprocess, sys, time
os.setsid()
signal.signal(signal.SIGHUP, lambda *_: os.write(1, b"hung up\\n"))
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
os.waitpid(pid, os.WUNTRACED)
subprocess.run(sys.argv[1:], check=True)
os.kill(pid, signal.SIGCONT)
print("ended", os.waitpid(pid, 0)[1] >> 8)
'''
    words = ['true']
    for argv in (words, [t.uswap, 'run', '--ram', '64M', '--swap', 'zram:64M', '--', *words]):
        # As a child: only who leads no group can begin a session.
        run = t.native(['sh', '-c', '"$@"; exit $?', 'sh', 'python3', '-c', script, *argv])
        check(run.status == 0 and run.stdout == b'ended 7\n', f'{argv[0]}: {run.stdout!r} {run.stderr!r}')


@case()
def process_one_of_a_namespace(t):
    """As process 1 uswap must reap the orphans of the job, as init does."""
    need('unshare')
    script = '''
import os, time
for _ in range(40):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(0)
        os._exit(0)
    os.wait()
time.sleep(1)
zombies = []
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            with open(f"/proc/{name}/stat") as f:
                text = f.read()
        except OSError:
            continue
        if text.rpartition(")")[2].split()[0] == "Z":
            zombies.append(name)
print("zombies", len(zombies), "pid1", open("/proc/1/comm").read().strip())
'''
    run = t.start(['python3', '-c', script], ram=64 * MIB,
                  prefix=['unshare', '-pf', '--mount-proc'])
    run.wait(40).expect_status(0)
    check(run.stdout.strip() == b'zombies 0 pid1 uswap', f'{run.stdout!r}')
    run.expect_nothing_left()
    # And it works there.
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2'], ram=48 * MIB,
                        prefix=['unshare', '-pf', '--mount-proc'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    run.expect_swapped(5000)


@case()
def background_children(t):
    """A daemon that the command leaves behind goes on, is served, and ends on its own."""
    result = t.path('daemon.out')
    script = (f'({t.program("fill")} -m 96M -p 4 > {result} 2>&1; echo status $? >> {result}) & '
              'echo started; exit 5')
    run = t.start(['sh', '-c', script], ram=48 * MIB)
    run.wait(60).expect_status(5)
    end = time.monotonic() + 40
    while b'status' not in read_bytes(result) and time.monotonic() < end:
        time.sleep(0.1)
    check(read_bytes(result) == b'fill: pages=24576 wrong=0\nstatus 0\n',
          f'the daemon wrote {read_bytes(result)!r}')
    run.expect_nothing_left(timeout=5)
