# SPDX-License-Identifier: MIT
"""Block devices: loop devices that real programs swap to; headers that stay; each refusal."""
import os
import signal
import subprocess

from harness import MIB, Skip, case, check, need
from cases.errors import GO, expect_refusal

SIZE = 256


def loop(t, megabytes=SIZE):
    """A loop device over a file of zeros."""
    need('losetup')
    image = t.path(f'image{t.counter}')
    t.counter += 1
    with open(image, 'wb') as f:
        f.truncate(megabytes * MIB)
    done = subprocess.run(['losetup', '-f', '--show', image], capture_output=True, text=True)
    if done.returncode:
        raise Skip(f'no loop devices: {done.stderr.strip()}')
    path = done.stdout.strip()
    t.cleanups.append(lambda: subprocess.run(['losetup', '-d', path]))
    return path


def make(t, *words):
    """Runs a program that prepares a device."""
    done = subprocess.run([need(words[0]), *words[1:]], capture_output=True, text=True)
    check(done.returncode == 0, f'{words}: {done.stderr}')


def write_at(path, at, data):
    with open(path, 'r+b', buffering=0) as f:
        f.seek(at)
        f.write(data)
        os.fsync(f.fileno())


def page0(path):
    with open(path, 'rb', buffering=0) as f:
        return f.read(4096)


def swap_to(t, path, keys='', megabytes=96, **kw):
    """A program in less RAM than it needs, on this device alone; every page is checked."""
    before = page0(path)
    run = t.under_uswap([t.program('fill'), '-m', f'{megabytes}M', '-p', '2', '-t', '2'],
                        ram=48 * MIB, swap=[f'dev:{path}{keys}'], **kw)
    check(run.stdout == f'fill: pages={megabytes * 256} wrong=0\n'.encode(), f'{run.stdout!r}')
    run.expect_swapped(10000)
    run.expect_right_content()
    run.expect_within_budget()
    check(page0(path) == before, 'page 0 of the device has changed')
    device, = run.report['devices']
    check((device['type'], device['name']) == ('dev', path), f'{device}')
    return run, device


@case()
def blank(t):
    path = loop(t)
    _, device = swap_to(t, path)
    check(device['size'] == SIZE * MIB - 4096 or device['size'] == SIZE * MIB, f'{device}')
    check(device['peak'] > 40 * MIB, f'{device}')


@case(timeout=120)
def made_by_mkswap(t):
    """The header is there afterwards as it was, and the kernel still takes the device."""
    path = loop(t)
    make(t, 'mkswap', '-L', 'uswap-test', path)
    check(page0(path)[4086:] == b'SWAPSPACE2', 'mkswap made no header')
    swap_to(t, path)
    swap_to(t, path, ',no-io-uring')
    swap_to(t, path, ',discard=once')
    done = subprocess.run([need('swapon'), path], capture_output=True, text=True)
    if done.returncode == 0:
        subprocess.run(['swapoff', path], check=True)
    else:
        t.note(f'swapon not possible: {done.stderr.strip()}')


@case(timeout=120, soak=True)
def smaller_than_the_device(t):
    """Nothing behind SIZE, or behind the last page of the header, is written."""
    path = loop(t)
    mark = os.urandom(4096)
    write_at(path, 160 * MIB, mark)
    _, device = swap_to(t, f'{path}', ':160M')
    check(device['size'] <= 160 * MIB, f'{device}')
    with open(path, 'rb', buffering=0) as f:
        f.seek(160 * MIB)
        check(f.read(4096) == mark, 'written behind SIZE')
        check(not any(f.read(1 << 20)), 'written behind SIZE')
    expect_refusal(t, ['run', '--swap', f'dev:{path}:1G', *GO], [path, 'SIZE', 'smaller'])
    make(t, 'mkswap', path, str(160 * 1024))
    write_at(path, 160 * MIB, mark)
    _, device = swap_to(t, path)
    check(device['size'] <= 160 * MIB, f'{device}')
    with open(path, 'rb', buffering=0) as f:
        f.seek(160 * MIB)
        check(f.read(4096) == mark, 'written behind the last page of the header')


@case(soak=True)
def beside_other_devices(t):
    """Below zram, as most would use it."""
    path = loop(t)
    run = t.under_uswap([t.program('fill'), '-m', '192M', '-p', '2', '-r'], ram=64 * MIB,
                        swap=['zram:256M,prio=10', f'dev:{path},prio=5'])
    check(b'wrong=0' in run.stdout, f'{run.stdout!r}')
    run.expect_right_content()
    check(run.report['devices'][-1]['peak'] > 0, 'the block device was not used')


@case()
def errors_cost_no_wrong_data(t):
    """The layers that fail and delay, above a block device."""
    path = loop(t)
    run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2'], ram=48 * MIB,
                        swap=[f'dev:{path},prio=20,fault-write=0.1,fault-seed=7,delay-write=200',
                              f'file:{t.swap_dir}/b:512M,prio=10'])
    check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{run.stdout!r}')
    check(run.vmstat('swap_io_error') > 0, 'no write failed: the case shows nothing')


@case()
def refuses_what_is_in_use(t):
    path = loop(t)
    need('mkfs.ext4')
    make(t, 'mkfs.ext4', '-qF', path)
    place = t.path('mnt')
    os.mkdir(place)
    subprocess.run(['mount', path, place], check=True)
    t.cleanups.append(lambda: subprocess.run(['umount', '-l', place], capture_output=True))
    for force in ('', ',force'):
        expect_refusal(t, ['run', '--swap', f'dev:{path}{force}', *GO],
                       [path, 'is mounted on', 'mnt', 'end that use'])
    subprocess.run(['umount', place], check=True)
    first = t.start(['sh', '-c', 'echo up; exec sleep 30'], swap=[f'dev:{path},force'])
    first.wait_for_output('up')
    expect_refusal_beside(t, f'dev:{path},force', [path, 'another job'])
    os.kill(first.pid, signal.SIGTERM)
    first.wait(10)
    first.expect_nothing_left()


def expect_refusal_beside(t, spec, words):
    """expect_refusal() without its look for other jobs."""
    marker = t.path('started')
    status, out, err = t.cli('run', '--swap', spec, '--', 'touch', marker)
    check(status == 125 and len(err.splitlines()) == 1 and all(w in err for w in words),
          f'{status} {err!r}')
    check(not os.path.exists(marker), 'the command was started')


@case()
def refuses_kernel_swap(t):
    path = loop(t)
    make(t, 'mkswap', path)
    done = subprocess.run([need('swapon'), path], capture_output=True, text=True)
    if done.returncode:
        raise Skip(f'swapon not possible: {done.stderr.strip()}')
    t.cleanups.append(lambda: subprocess.run(['swapoff', path], capture_output=True))
    for force in ('', ',force'):
        expect_refusal(t, ['run', '--swap', f'dev:{path}{force}', *GO], [path, 'in use as swap'])
    subprocess.run(['swapoff', path], check=True)
    t.under_uswap(['true'], swap=[f'dev:{path}'])


def refused_unless_forced(t, path, patterns):
    before = page0(path)
    expect_refusal(t, ['run', '--swap', f'dev:{path}', *GO], [path, *patterns])
    check(page0(path) == before, 'the device was changed')
    swap_to(t, path, ',force')


@case()
def refuses_a_file_system(t):
    path = loop(t)
    make(t, 'mkfs.ext4', '-qF', path)
    refused_unless_forced(t, path, ['bears ext4', 'force'])


@case()
def refuses_a_partition_table(t):
    path = loop(t)
    entry = bytes(4) + b'\x83' + bytes(3) + (2048).to_bytes(4, 'little') + (4096).to_bytes(4, 'little')
    write_at(path, 0, bytes(446) + entry + bytes(48) + b'\x55\xaa')
    refused_unless_forced(t, path, ['bears dos partition table', 'force'])


@case()
def refuses_a_hibernation_image(t):
    """With force the image is given up: what is left is the swap area that it lay in."""
    path = loop(t)
    make(t, 'mkswap', path)
    area = page0(path)
    write_at(path, 4086, b'S1SUSPEND\0')
    image = page0(path)
    expect_refusal(t, ['run', '--swap', f'dev:{path}', *GO], [path, 'hibernation', 'resume'])
    check(page0(path) == image, 'the image was changed')
    t.under_uswap(['true'], swap=[f'dev:{path},force'])
    check(page0(path) == area, 'the header is not as it was before the hibernation')
    swap_to(t, path)


@case()
def refuses_a_bad_header(t):
    path = loop(t)
    make(t, 'mkswap', path)
    for at, value, pattern in ((1028, 0, 'last page is 0'), (1028, SIZE * 256, 'the device has'),
                               (1032, 5000, 'bad pages'), (1024, 9, 'version')):
        good = page0(path)
        write_at(path, at // 512 * 512,
                 good[at // 512 * 512:at] + value.to_bytes(4, 'little') +
                 good[at + 4:at // 512 * 512 + 512])
        for force in ('', ',force'):
            expect_refusal(t, ['run', '--swap', f'dev:{path}{force}', *GO],
                           [path, pattern, 'mkswap'])
        write_at(path, 0, good)
    swap_to(t, path)


@case()
def refuses_other_things(t):
    path = loop(t)
    subprocess.run(['blockdev', '--setro', path], check=True)
    expect_refusal(t, ['run', '--swap', f'dev:{path},force', *GO], [path, 'read-only', 'setrw'])
    subprocess.run(['blockdev', '--setrw', path], check=True)
    plain = t.write('plain', 'text')
    expect_refusal(t, ['run', '--swap', f'dev:{plain},force', *GO], [plain, 'file:PATH'])
    expect_refusal(t, ['run', '--swap', 'dev:/dev/null', *GO], ['/dev/null', 'not a block device'])
    expect_refusal(t, ['run', '--swap', 'dev:/dev/none', *GO], ['/dev/none', 'does not exist'])
    expect_refusal(t, ['run', '--swap', 'dev:', *GO], ['path', 'dev:PATH'])
    expect_refusal(t, ['run', '--swap', f'dev:{path},keep', *GO], ['keep', 'file only'])
    expect_refusal(t, ['run', '--swap', 'zram:64M,discard=once', *GO], ['discard', 'zram'])
    expect_refusal(t, ['run', '--swap', f'dev:{path},discard=yes', *GO], ['discard', 'none, once'])


@case(timeout=120)
def files_that_discard(t):
    """Every way of discarding on a file; the job runs as without."""
    for keys in (',discard=once', ',discard=pages', ',discard=pages,fault-discard=0.5,delay-discard=50'):
        run = t.under_uswap([t.program('fill'), '-m', '96M', '-p', '2'], ram=48 * MIB,
                            swap=[f'file:{t.swap_dir}/swap:256M{keys}'])
        check(run.stdout == b'fill: pages=24576 wrong=0\n', f'{keys}: {run.stdout!r}')
        run.expect_swapped(5000)
        run.expect_right_content()
