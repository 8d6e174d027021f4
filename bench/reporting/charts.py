# SPDX-License-Identifier: MIT
"""The plots of one workload."""
from . import text
from .markup import node
from .results import BEST_ZRAM
from .rows import LEFT, RIGHT, RowChart, bar, cross, crosses, dot, line, run_title, whisker
from .scales import Linear, Log, Ratio, time_scale

# What the ratios are shown to: by the better zram arm, and by the kernel's arms over a file.
COMPARED_TO = (BEST_ZRAM, 'kernel-zswap', 'kernel-file')
PARTS = (('job_s', 'job'), ('supervisor_s', 'supervisor'), ('kernel_s', 'kernel threads'))


def on_axis(scale):
    return ' Logarithmic axis.' if scale.is_log else ''


def times(comparison):
    values = [v for a in comparison.arms for v in a.values('measured_s')]
    scale = time_scale(values, LEFT, RIGHT)

    def draw(arm, y, scale):
        values = arm.values('measured_s')
        if not values:
            return [], '', None
        x = scale.at(arm.median('measured_s'))
        marks = [line(scale.at(min(values)), y, scale.at(max(values)), y, 'stroke')]
        marks += [dot(scale.at(r['measured_s']), y, 'dot',
                      run_title(r, text.seconds(r['measured_s']))) for r in arm.good]
        marks.append(line(x, y - 9, x, y + 9, 'median'))
        return marks, text.seconds(arm.median('measured_s')), \
            (crosses(arm), 'bad') if arm.lost() else None

    return RowChart(f'{comparison.id}-time', 'Measured time', 'A dot is a run, the upright stroke '
                    'their median. Left is faster.' + on_axis(scale), comparison.arms, scale, draw,
                    text.seconds).figure()


def ratios(comparison):
    """None where no arm has any."""
    compared = [a for a in comparison.arms if a.name.startswith('uswap')
                or any(arm == a.name for arm, _ in comparison.ratios)]
    to = [t for t in COMPARED_TO if any(other == t for _, other in comparison.ratios)]
    if not to:
        return None
    entries = [e for a in compared for t in to if (e := comparison.ratio(a.name, t))]
    scale = Ratio([e[k] for e in entries for k in ('low', 'measured', 'high')], LEFT, RIGHT)

    def draw(arm, y, scale, to):
        entry = comparison.ratio(arm.name, to)
        if not entry:
            return [], 'no common round' if arm.good else '', None
        one, x = scale.at(1), scale.at(entry['measured'])
        marks = [bar(one, x, y, 12 if to == BEST_ZRAM else 6, 'fill',
                     f'{text.ratio(entry["measured"])}, {text.ratio_range(entry)}'),
                 *whisker(scale.at(entry['low']), scale.at(entry['high']), y)]
        return marks, f'{text.ratio(entry["measured"])}  ({text.ratio_range(entry)})', None

    best = comparison.best_zram()
    named = f' The best zram arm is {best.name}.' if best else ''
    return RowChart(f'{comparison.id}-ratio', 'Times as fast as the kernel',
                    'Time of the other arm / time of this one in the same round: median, whiskers '
                    f'from lowest to highest. Right of 1 is faster. Logarithmic axis.{named}',
                    [(a, t) for a in compared for t in to], scale, draw, text.ratio,
                    base=1).figure()


def cpu(comparison):
    totals = [sum(arm.median('cpu', key) or 0 for key, _ in PARTS) for arm in comparison.arms]
    scale = Linear(totals, LEFT, RIGHT)

    def draw(arm, y, scale):
        parts = [(name, arm.median('cpu', key)) for key, name in PARTS]
        if all(v is None for _, v in parts):
            return [], '', None
        marks, at = [], 0
        for i, (name, value) in enumerate(parts):
            if value:
                marks.append(bar(scale.at(at), scale.at(at + value), y, 14, f'part-{i}',
                                 f'{name}: {text.seconds(value)}'))
                at += value
        split = ' + '.join(text.three(v) for _, v in parts if v)
        return (marks or [bar(scale.at(0), scale.at(0), y, 14, 'part-0')], text.seconds(at),
                (split, 'muted') if len(marks) > 1 else None)

    key = [[node('i', class_=f'part-{i}'), name + ('. ' if i == 2 else ', ')]
           for i, (_, name) in enumerate(PARTS)]
    return RowChart(f'{comparison.id}-cpu', 'CPU seconds', [key, 'Medians of each part.'],
                    comparison.arms, scale, draw, text.seconds).figure()


def memory(comparison):
    def whole(run):
        return run['peak_bytes'] + (run['pool_bytes'] or 0)

    known = {a.name: [r for r in a.runs if r['peak_bytes'] is not None] for a in comparison.arms}
    values = [whole(r) for runs in known.values() for r in runs]
    scale = Linear(values + [a.limit for a in comparison.arms], LEFT, RIGHT, 1024)

    def draw(arm, y, scale):
        if not known[arm.name]:
            return [], '', None
        highest = max(known[arm.name], key=whole)
        at, pool = highest['peak_bytes'], highest['pool_bytes'] or 0
        marks = [bar(scale.at(0), scale.at(at), y, 12, 'part-1', 'peak')]
        if pool:
            marks.append(bar(scale.at(at), scale.at(at + pool), y, 12, 'part-2', 'uncharged pool'))
        if arm.limit is not None:
            marks.append(line(scale.at(arm.limit), y - 12, scale.at(arm.limit), y + 12, 'limit'))
        for run in known[arm.name]:
            ok = run['outcome'] == 'ok'
            x, peak = scale.at(run['peak_bytes']), text.size(run['peak_bytes'])
            title = run_title(run, peak if ok else f'{peak}, {run["outcome"]}')
            marks.append(dot(x, y, 'dot', title, 3.0) if ok else cross(x, y, title, 3.5))
        limit = ', no limit' if arm.limit is None else f' of {text.size(arm.limit)}'
        return (marks, text.size(at) + limit,
                (f'+ {text.size(pool)} uncharged', 'muted') if pool else None)

    key = [node('i', class_='part-1'), 'highest peak, ', node('i', class_='part-2'),
           'pool that the kernel charges to nobody. ']
    return RowChart(f'{comparison.id}-memory', 'Peak memory', [
        key, 'A dot is a run, a cross one that did not end well, the upright stroke the limit.'],
        comparison.arms, scale, draw, text.size).figure()


def latency(comparison):
    """None where the workload cannot tell."""
    keys = ('p50_ns', 'p99_ns', 'max_ns')
    values = [v for a in comparison.arms for k in keys for v in a.values('touch', k)]
    if not values:
        return None
    scale = Log(values, LEFT, RIGHT)

    def draw(arm, y, scale):
        if not arm.values('touch', 'p50_ns'):
            return [], '', None
        p50, p99 = (arm.median('touch', k) for k in keys[:2])
        top = max(arm.values('touch', 'max_ns'))
        a, b, c = (scale.at(v) for v in (p50, p99, top))
        words = [text.nanoseconds(v) for v in (p50, p99, top)]
        marks = [line(a, y, c, y, 'stroke'), line(c, y - 7, c, y + 7, 'median'),
                 dot(b, y, 'hollow', f'p99 {words[1]}'), dot(a, y, 'fill', f'p50 {words[0]}')]
        return marks, ' / '.join(words[:2]), (f'longest {words[2]}', 'muted')

    return RowChart(f'{comparison.id}-touch', 'One touch of a page', 'p50 (full dot) / p99 (ring), '
                    'medians of the runs / longest of all (stroke). Logarithmic axis.',
                    comparison.arms, scale, draw, text.nanoseconds).figure()


def pages(comparison):
    values = [a.median(k) for a in comparison.arms for k in ('pages_in', 'pages_out')]
    scale = Linear(values, LEFT, RIGHT)

    def draw(arm, y, scale):
        both = [arm.median(k) for k in ('pages_in', 'pages_out')]
        if None in both:
            return [], '', None
        marks = [bar(scale.at(0), scale.at(both[0]), y - 5, 8, 'part-0', 'in'),
                 bar(scale.at(0), scale.at(both[1]), y + 5, 8, 'part-2', 'out')]
        return marks, f'{text.count(both[0])} in, {text.count(both[1])} out', None

    key = [node('i', class_='part-0'), 'in, ', node('i', class_='part-2'), 'out. ']
    return RowChart(f'{comparison.id}-pages', 'Pages in and out', [key, 'Pages of 4 KiB, medians.'],
                    comparison.arms, scale, draw, text.count).figure()


def all_of(comparison):
    return [c(comparison) for c in (times, ratios, cpu, memory, latency, pages)]
