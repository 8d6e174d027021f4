# SPDX-License-Identifier: MIT
"""The results for people, in at most 120 columns."""
from harness import MIB

from . import orders, results

NOTHING = '-'


def size(n):
    if n is None:
        return NOTHING
    for unit, scale in (('GiB', 1 << 30), ('MiB', 1 << 20), ('KiB', 1 << 10)):
        if n >= scale:
            return f'{n / scale:.4g} {unit}'
    return f'{n} B'


def mib(n):
    return NOTHING if n is None else f'{n / MIB:.1f}'


def seconds(n):
    if n is None:
        return NOTHING
    return f'{n:.3f}' if n < 10 else f'{n:.2f}' if n < 100 else f'{n:.0f}'


def count(n):
    if n is None:
        return NOTHING
    for unit, scale in (('M', 10 ** 6), ('k', 10 ** 3)):
        if n >= 10 * scale:
            return f'{n / scale:.4g}{unit}'
    return f'{n:.0f}'


def micro(ns):
    return NOTHING if ns is None else f'{ns / 1e3:.3g}' if ns < 1e6 else f'{ns / 1e3:.0f}'


def span(pair, show):
    return NOTHING if pair is None else f'{show(pair[0])} to {show(pair[1])}'


def columns(head, rows):
    """The first column to the left, the others to the right."""
    every = [head, *rows]
    width = [max(len(row[i]) for row in every) for i in range(len(head))]
    for row in every:
        cells = [row[0].ljust(width[0])] + [c.rjust(w) for c, w in zip(row[1:], width[1:])]
        print('  ' + '  '.join(cells).rstrip())


def outcomes(arm):
    """"5 ok", "killed 2 of 5, 3 ok"."""
    runs = arm['runs']
    words = [f'{kind} {n} of {len(runs)}' for kind in ('killed', 'wrong', 'failed', 'timeout')
             if (n := sum(r['outcome'] == kind for r in runs))]
    good = len(results.good(runs))
    return ', '.join(words + ([f'{good} ok'] if good or not words else []))


def times(arms):
    rows = []
    for a in arms:
        m, s = a['median'], a['spread']
        cpu = m.get('cpu', {})
        rows.append([a['name'], outcomes(a), seconds(m.get('measured_s')),
                     span(s.get('measured_s'), seconds), seconds(m.get('wall_s')),
                     seconds(m.get('cpu_s')), seconds(cpu.get('job_s')),
                     seconds(cpu.get('supervisor_s')), seconds(cpu.get('kernel_s')),
                     seconds(m.get('others_cpu_s'))])
    columns(['arm', 'runs', 'measured s', 'spread', 'wall s', 'CPU s', 'job', 'uswap', 'kernel',
             'others'], rows)


def paging(arms):
    rows = []
    for a in arms:
        m = a['median']
        touch = m.get('touch', {})
        rows.append([a['name'], mib(a['memory']['limit']), mib(m.get('peak_bytes')),
                     mib(m.get('pool_bytes')), count(m.get('faults')),
                     count(m.get('major_faults')), count(m.get('pages_in')),
                     count(m.get('pages_out')), mib(m.get('device_bytes')),
                     *(micro(touch.get(k)) for k in ('p50_ns', 'p99_ns', 'max_ns'))])
    columns(['arm', 'limit', 'peak', '+ pool', 'faults', 'major', 'pages in', 'out', 'device',
             'touch p50', 'p99', 'max us'], rows)


def ratio_lines(ratios):
    targets = list(dict.fromkeys(r['to'] for r in ratios))
    names = list(dict.fromkeys(r['arm'] for r in ratios))
    by = {(r['arm'], r['to']): r for r in ratios}

    def cell(r):
        return f'{r["measured"]:.2f} ({r["low"]:.2f}-{r["high"]:.2f})' if r else NOTHING
    columns(['times as fast as', *targets],
            [[n, *(cell(by.get((n, t))) for t in targets)] for n in names])


def order_lines(arms):
    for a in arms:
        runs = results.good(a['runs'])
        if not orders.total(runs):
            continue
        shares = [r['device_used'] for r in runs if r.get('device_used') is not None]
        used = f'{100 * min(shares):.1f} to {100 * max(shares):.1f}' if shares else NOTHING
        print(f'\n{a["name"]}: folios that went out, {len(runs)} runs; at most {used} % of the '
              "device in use.\n% before it, after it: the kernel's series of 2024, a kernel build")
        columns(['size', 'whole', 'fallback', '%', '% before it', '% after it'], orders.rows(runs))


def settings_line(settings):
    def shown(name, value):
        if isinstance(value, (list, tuple)):
            return ' + '.join(shown(name, v) for v in value)
        if name.endswith('_bytes'):
            return size(value)
        return f'{value:.4g}' if isinstance(value, float) else str(value)
    return ', '.join(f'{name.removesuffix("_bytes").replace("_", " ")} {shown(name, value)}'
                     for name, value in settings.items() if value is not None)


def wrapped(text, indent='  ', width=116):
    line = ''
    for word in text.split(' '):
        if line and len(line) + 1 + len(word) > width:
            print(indent + line)
            line = word
        else:
            line = f'{line} {word}' if line else word
    print(indent + line)


def memory_words(comparison):
    c, ram = comparison['calibration'], comparison['ram']
    words = (f'memory: {size(ram)}, and for all of the job {size(c["file_bytes"])} of file pages '
             f'that it maps natively, {size(c["overshoot_bytes"])} of overshoot.')
    if c['zram_peak_bytes'] is not None:
        words += (f' zram took {size(c["zram_peak_bytes"])} that the kernel charges to nobody: '
                  'added for uswap and uswap-zram.')
    return words


def show(document, comparison):
    m = document['machine']
    print(f'\n{comparison["workload"]}: {comparison["summary"]}')
    wrapped(settings_line(comparison['settings']))
    wrapped(f'{m["cpus"]} x {m["cpu_model"]}, {size(m["memory_bytes"])}, Linux {m["kernel"]}, '
            f'cgroup {m["cgroup"]}, uswap {(document["commit"] or "of no commit")[:12]}'
            + (' with changes' if document['dirty'] else ''))
    wrapped(memory_words(comparison))
    for remark in comparison['calibration']['remarks']:
        wrapped(remark)
    there = [a for a in comparison['arms'] if not a['skipped']]
    print('\nmedians of the runs that went well, and least to most; others: CPU seconds of everybody '
          'else')
    times(there)
    print('\nmemory in MiB; + pool: what the cgroup is not charged for')
    paging(there)
    if comparison.get('all_orders'):
        order_lines(there)
    if comparison['ratios']:
        print('\nratios of the measured time in the same round, median (least-most)')
        ratio_lines(comparison['ratios'])
    print()
    for a in comparison['arms']:
        wrapped(f'{a["name"]}: ' + (f'skipped, {a["skipped"]}' if a['skipped'] else a['what']))
        for detail in dict.fromkeys(r['detail'] for r in a['runs'] if r['detail']):
            wrapped(detail, indent='    ', width=114)
