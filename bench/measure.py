# SPDX-License-Identifier: MIT
"""The figures that uswap promises, measured. Nothing here judges: see tests/e2e for the bounds.

Arms are interleaved (one run of each, then again), so that a machine that gets slower meanwhile
slows all alike. Every result is a dictionary with the median, the spread of the middle half, and
the single values.
"""
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))

MIB = 1 << 20


def summary(values):
    values = sorted(values)
    quarter = len(values) // 4
    return {'median': statistics.median(values), 'low': values[quarter],
            'high': values[-1 - quarter], 'values': values}


def interleave(arms, repeat):
    """arms: name -> function that returns a number. One warm-up each, not counted."""
    values = {name: [] for name in arms}
    for arm in arms.values():
        arm()
    for i in range(repeat):
        # Every other time in reverse: no arm always runs after the same neighbour.
        names = list(arms) if i % 2 == 0 else list(arms)[::-1]
        for name in names:
            values[name].append(arms[name]())
    return {name: summary(v) for name, v in values.items()}


def timed(argv, cwd='/'):
    start = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, cwd=cwd)
    if done.returncode:
        raise RuntimeError(f'{argv} ended with {done.returncode}: {done.stderr[-300:]!r}')
    return time.perf_counter() - start


def inner_seconds(argv):
    """What `fill -T` says of itself: without the start of uswap, which is measured apart."""
    out = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    fields = dict(f.split(b'=') for f in out.split() if b'=' in f)
    return (int(fields[b'fill_ns']) + int(fields[b'walk_ns'])) / 1e9


def fits_memory(uswap, fill, repeat=7):
    """(a) A program that fits its budget: fill 512 MiB and walk it four times; ratio to native."""
    program = [fill, '-m', '512M', '-p', '4', '-T']
    result = interleave({
        'native': lambda: inner_seconds(program),
        'uswap': lambda: inner_seconds([uswap, 'run', '--ram', '1G', '--', *program]),
    }, repeat)
    result['ratio'] = result['uswap']['median'] / result['native']['median']
    return result


def fits_compile(uswap, source, cwd, repeat=5):
    """(a) A compilation in a budget that is large enough; ratio of the whole time to native."""
    program = ['gcc', '-O1', '-c', source, '-o', os.path.join(cwd, 'figure.o')]
    result = interleave({
        'native': lambda: timed(program, cwd),
        'uswap': lambda: timed([uswap, 'run', '--ram', '2G', '--', *program], cwd),
    }, repeat)
    result['ratio'] = result['uswap']['median'] / result['native']['median']
    return result


def start_cost(uswap, repeat=25):
    """(b) Seconds that `uswap run -- true` takes more than `true`."""
    result = interleave({
        'native': lambda: timed(['true']),
        'uswap': lambda: timed([uswap, 'run', '--', 'true']),
    }, repeat)
    result['extra'] = result['uswap']['median'] - result['native']['median']
    return result


def exec_cost(uswap, count=200, repeat=5):
    """(c) Seconds that each further exec in a job takes more than natively."""
    loop = f'i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done'
    # The shell's own clock, so that the start of the job is not part of it.
    script = f's=$(date +%s%N); {loop}; e=$(date +%s%N); echo $((e-s))'

    def run(prefix):
        out = subprocess.run([*prefix, 'sh', '-c', script], stdin=subprocess.DEVNULL,
                             capture_output=True, check=True).stdout
        return int(out) / 1e9

    result = interleave({
        'native': lambda: run([]),
        'uswap': lambda: run([uswap, 'run', '--']),
    }, repeat)
    result['extra'] = (result['uswap']['median'] - result['native']['median']) / count
    return result


OVERSHOOT_ARMS = {
    'one thread': ['-t', '1'],
    'two threads': ['-t', '2'],
    'one thread, huge pages': ['-t', '1', '-H'],
    'two threads, huge pages': ['-t', '2', '-H'],
}


def overshoot(test, arm, ram=128 * MIB, size=384 * MIB, swap=None):
    """(d) Peak of the whole job over the budget, in bytes, while filling as fast as it can.

    test: a harness.Test, whose sampler looks from outside. Returns peak by the sampler, by the
    report, and the bound.
    """
    run = test.under_uswap([test.program('fill'), '-m', str(size), *OVERSHOOT_ARMS[arm]], ram=ram,
                           swap=swap)
    return {'ram': ram, 'bound': ram + max(ram // 20, 16 * MIB), 'sampled': run.peak,
            'reported': run.report['ram']['peak'], 'detail': run.sampler.peak_detail,
            'samples': run.sampler.samples}


def metadata(test, order, ram=256 * MIB, size=1024 * MIB):
    """(e) The engine's own tables as a part of the memory it manages, while the program lives."""
    r, w = os.pipe()
    run = test.start([test.program('fill'), '-m', str(size), '-w'], ram=ram,
                     args=['--order', str(order)], stdin=os.fdopen(r, 'rb'),
                     swap=['zram:2G,prio=100', f'file:{test.swap_dir}/swap:2G,prio=10'])
    run.wait_for_output('ready', timeout=150)
    status, out, err = test.cli('stat', '--json')
    if status:
        raise RuntimeError(f'stat: {err}')
    data = json.loads(out)
    os.close(w)
    run.wait(60).expect_status(0)
    run.expect_nothing_left()
    managed = sum(p['resident'] + p['swapped'] for p in data['processes'])
    return {'order': order, 'managed': managed, 'metadata': data['ram']['metadata'],
            'ratio': data['ram']['metadata'] / managed if managed else None}


def paging(test, arm, ram=128 * MIB, size=384 * MIB):
    """For the record: nanoseconds a page of a walk that does not fit."""
    run = test.under_uswap([test.program('fill'), '-m', str(size), '-T', *arm], ram=ram)
    fields = dict(f.split(b'=') for f in run.stdout.split() if b'=' in f)
    pages = size // 4096
    faults = run.report['faults']
    return {'fill_ns_a_page': int(fields[b'fill_ns']) / pages,
            'walk_ns_a_page': int(fields[b'walk_ns']) / pages,
            'p50_us': faults['p50_ns'] / 1e3, 'p99_us': faults['p99_ns'] / 1e3,
            'max_ms': faults['max_ns'] / 1e6, 'faults': faults['count']}
