# SPDX-License-Identifier: MIT
"""The figures behind the plots: every arm, every ratio, every run."""
from . import summary, text
from .markup import node
from .results import BEST_ZRAM
from .style import arm_class


def table(title, head, rows, *, class_=None):
    """rows: lists of cells, the first of which names its row."""
    return node('div', node(
        'table', node('caption', title),
        node('thead', node('tr', [h if is_cell(h) else node('th', h, scope='col') for h in head])),
        node('tbody', [node('tr', [cell(c, i) for i, c in enumerate(row)]) for row in rows])),
        class_='scroll')


def is_cell(content):
    return getattr(content, 'tag', None) in ('th', 'td')


def left(words):
    """A head of a column of text."""
    return node('th', words, scope='col', class_='text')


def cell(content, column):
    if is_cell(content):
        return content
    return node('td', content) if column else node('th', content, scope='row')


def pair_cell(pair, class_=None):
    value, more = pair
    return node('td', value, node('small', more, class_=class_) if more else None)


def arm_name(arm, with_what=False):
    return node('th', node('span', class_=f'swatch {arm_class(arm.name)}'), arm.name,
                node('small', arm.what) if with_what else None, scope='row')


def spread(arm, form, *path):
    """The median, and below it the range."""
    values = arm.values(*path)
    if not values:
        return node('td', text.DASH)
    words = [form(v) for v in (arm.median(*path), min(values), max(values))]
    return node('td', words[0], None if len(set(words)) == 1 else
                node('small', f'{words[1]} to {words[2]}'))


def outcome(arm):
    if arm.skipped is not None:
        return node('td', f'skipped: {arm.skipped}', class_='text')
    lost = arm.lost()
    well = f'{len(arm.good)} of {len(arm.runs)} ok'
    return node('td', well, node('small', lost, class_='bad') if lost else None,
                [node('small', d) for d in arm.details()], class_='text')


CPU = (('job_s', 'of the job'), ('supervisor_s', 'supervisor'), ('kernel_s', 'kernel threads'))
TOUCH = (('p50_ns', 'touch p50'), ('p99_ns', 'p99'), ('max_ns', 'longest'))


def times(comparison):
    head = ['arm', left('runs'), 'measured', 'whole run', 'CPU', *(words for _, words in CPU),
            'CPU of others']
    rows = [[arm_name(a, True), outcome(a), spread(a, text.seconds, 'measured_s'),
             spread(a, text.seconds, 'wall_s'), spread(a, text.seconds, 'cpu_s'),
             *(spread(a, text.seconds, 'cpu', key) for key, _ in CPU),
             spread(a, text.seconds, 'others_cpu_s')] for a in comparison.arms]
    return table('Time: medians, and the range of the runs', head, rows)


def memory(comparison):
    head = ['arm', '--ram', 'limit', 'peak', 'uncharged pool', 'faults', 'pages in', 'pages out',
            'folios in', 'on the device', *(words for _, words in TOUCH)]
    rows = [[arm_name(a), text.size(a.ram), text.size(a.limit), spread(a, text.size, 'peak_bytes'),
             spread(a, text.size, 'pool_bytes'), spread(a, text.count, 'faults'),
             spread(a, text.count, 'pages_in'), spread(a, text.count, 'pages_out'),
             spread(a, text.count, 'folios_in'),
             spread(a, text.size, 'device_bytes'),
             *(spread(a, text.nanoseconds, 'touch', key) for key, _ in TOUCH)]
            for a in comparison.arms]
    return table('Memory and paging: medians, and the range of the runs', head, rows)


def ratios(comparison):
    """None where there are none."""
    names = [a for a in comparison.arms if any(arm == a.name for arm, _ in comparison.ratios)]
    to = [BEST_ZRAM] + [a.name for a in comparison.arms]
    to = [t for t in to if any(other == t for _, other in comparison.ratios)]
    if not names:
        return None
    rows = [[arm_name(a), *(pair_cell(summary.ratio_cell(comparison.ratio(a.name, t))) for t in to)]
            for a in names]
    return table('Times as fast as each arm: median of the rounds, lowest to highest',
                 ['arm', *to], rows)


RUN_COLUMNS = (('measured', 'measured_s', text.seconds), ('whole', 'wall_s', text.seconds),
               ('CPU', 'cpu_s', text.seconds), ('of others', 'others_cpu_s', text.seconds),
               ('peak', 'peak_bytes', text.size),
               ('faults', 'faults', text.count), ('in', 'pages_in', text.count),
               ('out', 'pages_out', text.count), ('device', 'device_bytes', text.size))


def phases(run):
    return ', '.join(f'{k} {text.seconds(v)}' for k, v in (run['phases'] or {}).items())


def outcome_of(run):
    return node('td', run['outcome'] + (f': {run["detail"]}' if run['detail'] else ''),
                class_='text' if run['outcome'] == 'ok' else 'text bad')


def runs(comparison):
    rows = []
    for arm in comparison.arms:
        for run in arm.runs:
            rows.append([arm_name(arm), f'{run["round"] + 1:g}', outcome_of(run),
                         *(form(run[key]) for _, key, form in RUN_COLUMNS),
                         node('td', phases(run), class_='text')])
    head = ['arm', 'round', left('outcome'), *(h for h, _, _ in RUN_COLUMNS), left('phases')]
    return node('details', node('summary', f'All {len(rows)} runs'), table(
        'Every run', head, rows))


def overview(comparisons):
    rows = []
    for comparison in comparisons:
        name, memory, *pairs = summary.row(comparison, comparisons)
        link = node('th', node('a', name, href=f'#{comparison.id}'), scope='row')
        bad = len(summary.columns(comparisons))
        rows.append([link, memory, *(pair_cell(p, 'bad' if i < bad else None)
                                     for i, p in enumerate(pairs))])
    return table('Medians of the measured time; in the last columns: times as fast as',
                 summary.head(comparisons), rows)
