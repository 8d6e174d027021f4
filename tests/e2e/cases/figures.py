# SPDX-License-Identifier: MIT
"""The promised figures, with their bounds. bench/measure.py measures them.

A shared machine is noisy: a figure that misses its bound is measured again, three times in all, and
every value is printed; times that miss it even then count as too slow (harness.TooSlow), memory
does not. Sizes are smaller than those of bench/figures, for the sake of time.
"""
import json
import os
import subprocess
import sys

from harness import MIB, ROOT, Skip, Test, case, check, in_time, need

sys.path.insert(0, os.path.join(ROOT, 'bench'))
import measure  # noqa: E402


def bounded(t, what, bound, unit, scale, once):
    """once: measures, returns the value. At most bound, at the third try at the latest."""
    tried = []
    for _ in range(3):
        tried.append(once())
        if tried[-1] <= bound:
            break
    text = ', then '.join(f'{v * scale:.3f}' for v in tried)
    t.note(f'{what} {text} {unit}, bound {bound * scale:.3f}')
    in_time(tried[-1] <= bound, 'over the bound each time')


@case(timeout=120)
def fits_memory(t):
    """A program that fits its budget runs as fast as natively."""
    bounded(t, 'fill and walk 512 MiB:', 1.03, 'x native', 1,
            lambda: measure.fits_memory(t.uswap, t.program('fill'), 5)['ratio'])


@case(timeout=200)
def fits_compile(t):
    from cases.programs import large_source
    need('gcc')
    source = large_source(t, 110)
    bounded(t, 'compile:', 1.03, 'x native', 1,
            lambda: measure.fits_compile(t.uswap, source, t.dir, 3)['ratio'])


@case(timeout=60)
def start_cost(t):
    bounded(t, 'start', 0.050, 'ms', 1e3, lambda: measure.start_cost(t.uswap, 15)['extra'])


@case(timeout=60)
def exec_cost(t):
    bounded(t, 'each exec', 0.003, 'ms', 1e3,
            lambda: measure.exec_cost(t.uswap, 150, 3)['extra'])


def add_overshoot(arm, name):
    @case(timeout=90, name=f'figures.overshoot_{name}')
    def run(t):
        tries = []
        for attempt in range(3):
            inner = Test(t.suite, f'{t.name}.{attempt}')
            try:
                r = measure.overshoot(inner, arm)
            finally:
                inner.finish()
            worst = max(r['sampled'], r['reported'])
            tries.append(f'sampled {(r["sampled"] - r["ram"]) / MIB:+.1f}, reported '
                         f'{(r["reported"] - r["ram"]) / MIB:+.1f} MiB')
            if worst <= r['bound']:
                break
        t.note(f'{arm}: {", then ".join(tries)}; bound +{(r["bound"] - r["ram"]) // MIB} MiB')
        check(worst <= r['bound'], f'over the bound each time: {r["detail"]}')
        check(r['sampled'] > r['ram'] // 2, 'the budget was not even used')


for arm_name, slug in (('one thread', 'one_thread'), ('two threads', 'two_threads'),
                       ('one thread, huge pages', 'one_thread_huge'),
                       ('two threads, huge pages', 'two_threads_huge')):
    add_overshoot(arm_name, slug)


def expect_metadata(t, order, bound):
    r = measure.metadata(t, order, ram=192 * MIB, size=768 * MIB)
    t.note(f'order {order}: {r["metadata"] / MIB:.2f} MiB for {r["managed"] / MIB:.0f} MiB, '
           f'{r["ratio"] * 100:.3f} %, bound {bound * 100} %')
    check(r['managed'] > 700 * MIB, f'only {r["managed"] // MIB} MiB are managed')
    check(0 < r['ratio'] <= bound, 'more than that')


@case(timeout=150)
def metadata_order_0(t):
    expect_metadata(t, 0, 0.015)


@case(timeout=100)
def metadata_order_4(t):
    expect_metadata(t, 4, 0.005)


def bench(t, *words):
    """The document of `uswap bench`, whose exit status says that content was right."""
    done = subprocess.run([t.uswap, 'bench', *words, '--json'], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100)
    check(done.returncode == 0, f'{words}: {done.returncode}, {done.stderr}')
    return json.loads(done.stdout)


def add_thp(words, name, bound):
    @case(timeout=120, name=f'figures.thp_{name}')
    def run(t):
        """Folios of 64 KiB find room on a device that is 94 % full, or to the last slot."""
        d = bench(t, 'thp', *words, '--iterations', '20')
        t.note(f'worst of 20: {d["worst_percent"]:.2f} % fallback, bound {bound} %; '
               f'{100 * d["relocated_pages"] / d["written_pages"]:.1f} % more copies')
        check(d['used_min'] >= 60 * MIB, f'only {d["used_min"]} bytes were stored')
        check(d['worst_percent'] <= bound, 'more than that')
        check(d['relocated_pages'] <= d['written_pages'] / 4, 'more than a quarter')


for thp_words, thp_name, thp_bound in (([], 'unaligned', 1), (['--small'], 'small', 1),
                                       (['--aligned'], 'aligned', 0),
                                       (['--aligned', '--small'], 'aligned_small', 0)):
    add_thp(thp_words, thp_name, thp_bound)


@case(timeout=100)
def allocation_is_flat(t):
    """A slot on a device that is 99 % full costs at most three times what it costs at 10 %."""
    def worst():
        by = {(r['order'], r['full']): r['alloc_ns_a_slot']['median']
              for r in bench(t, 'alloc', '--rounds', '5', '--pairs', '5000')['results']}
        return max(by[o, 99] / by[o, 10] for o in range(10))
    bounded(t, 'worst order:', 3, 'x', 1, worst)


@case(timeout=60)
def usemem_keeps_all_devices_at_work(t):
    """Four equal disks: in turns, all of them serve at one time; one after the other, one does."""
    ratios = []

    def slower():
        d = bench(t, 'usemem', '--queue-policy', 'fill,queue', '--runs', '1', '--size', '24M',
                  '--ram', '24M', '--write', '3000', '--dir', t.dir)
        fill, queue = d['arms']
        check(fill['peaks'][0][0] > 0 and not any(fill['peaks'][0][2:]), f'fill: {fill["peaks"]}')
        ratios.append(queue['most_to_least']['median'])
        return fill['throughput']['median'] / queue['throughput']['median']
    bounded(t, 'fill to queue, throughput:', 1 / 1.9, 'x', 1, slower)
    t.note(f'peak use of the devices, largest to smallest: {max(ratios):.3f}, bound 1.05')
    check(max(ratios) <= 1.05, f'{ratios}')


@case(timeout=60)
def usemem_finds_wrong_content(t):
    done = subprocess.run([t.uswap, 'bench', 'usemem', '--queue-policy', 'queue', '--runs', '1',
                           '--size', '12M', '--ram', '24M', '--write', '500', '--read', '100',
                           '--plant', '--dir', t.dir], capture_output=True, text=True, timeout=50)
    check(done.returncode == 125 and '1 pages had wrong content' in done.stderr,
          f'{done.returncode}, {done.stderr}')
    check(not [n for n in os.listdir(t.dir) if n.startswith('uswap-bench')], 'files are left')


@case(timeout=60)
def usemem_fills_the_devices_of_each_node(t):
    """Half of the programs are on the CPUs of each node, and so are two of the four devices."""
    if os.cpu_count() < 2:
        raise Skip('one CPU is one node')
    d = bench(t, 'usemem', '--queue-policy', 'node', '--runs', '1', '--size', '16M', '--ram', '24M',
              '--write', '500', '--read', '100', '--dir', t.dir)
    peaks, = d['arms'][0]['peaks']
    t.note(f'peak use: {", ".join(f"{p / MIB:.1f}" for p in peaks)} MiB')
    check(min(peaks[:2]) > 8 * MIB and not any(peaks[2:]), f'{peaks}')
