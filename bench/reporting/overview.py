# SPDX-License-Identifier: MIT
"""All workloads in one picture: how many times as fast as the better zram arm uswap's arms are."""
from . import summary, text
from .markup import node
from .rows import axis, crosses, dot, label, line, no_marks, picture, whisker
from .scales import Ratio
from .style import arm_class

WIDTH, ARM, LEFT, RIGHT, NOTES = 900, 190, 272, 644, 662
ROW, GAP, TOP = 19, 13, 24


def shown_arms(comparison):
    """uswap's arms; of a comparison that has none, all that have a ratio."""
    own = [a for a in comparison.arms if a.name.startswith('uswap')]
    return own or [a for a in comparison.arms if comparison.ratio(a.name)]


def remarks(comparison):
    """What became of the kernel's arms, in a line: it is a result as well."""
    return '; '.join(f'{a.name}: {a.lost()}' for a in comparison.arms
                     if a not in shown_arms(comparison) and a.lost())


def arm_row(comparison, arm, y, scale):
    """The row, and what it shows in words."""
    entry = comparison.ratio(arm.name)
    bad = arm.lost()
    parts = [label(ARM, y + 4, arm.name, LEFT - ARM - 6)]
    if entry:
        marks = [line(scale.at(1), y, scale.at(entry['measured']), y, 'stem'),
                 *whisker(scale.at(entry['low']), scale.at(entry['high']), y, 'stroke'),
                 dot(scale.at(entry['measured']), y, 'fill', text.ratio(entry['measured']), 5.0)]
        words = f'{text.ratio(entry["measured"])}  ({text.ratio_range(entry)})'
        parts.append(label(NOTES, y + 4, words))
        if bad:
            parts.append(label(NOTES + 128, y + 4, crosses(arm), WIDTH - NOTES - 128, 'small bad'))
    else:
        marks = []
        words, class_ = no_marks(arm)
        if arm.good:
            words, class_ = 'no round in common with a zram arm', 'muted'
        parts.append(label(LEFT + 6, y + 4, words, WIDTH - LEFT - 6, class_))
    return (node('g', marks, parts, class_=arm_class(arm.name)),
            f'{arm.name} {words}{", " + bad if bad and entry else ""}')


def group(comparison, y, scale, many_sources):
    """Rows of a workload from y downwards; returns them, their words, and where they end."""
    best = comparison.best_zram()
    reference = f'1 \u00d7 is {best.name}, {text.seconds(best.median("measured_s"))}' if best else \
        'no zram arm ended well'
    where = summary.memory(comparison)
    if many_sources:
        where += f' [{comparison.source.number}]'
    first = y + ROW / 2 + 4
    parts = [label(0, first, comparison.workload, ARM - 10, 'strong'),
             label(0, first + 15, where, ARM - 10, 'small muted'),
             label(0, first + 29, reference, ARM - 10, 'small muted')]
    words = [reference]
    least = y + 3 * ROW
    for arm in shown_arms(comparison):
        row, said = arm_row(comparison, arm, y + ROW / 2, scale)
        parts.append(row)
        words.append(said)
        y += ROW
    note = remarks(comparison)
    if note:
        y = max(y, least)
        parts.append(label(ARM, y + ROW / 2 + 4, note, WIDTH - ARM, 'small bad'))
        words.append(note)
        y += ROW
    return parts, f'{comparison.workload}: {", ".join(words)}', max(y, least)


def figure(comparisons, many_sources):
    entries = [c.ratio(a.name) for c in comparisons for a in shown_arms(c)]
    scale = Ratio([e[k] for e in entries if e for k in ('low', 'measured', 'high')], LEFT, RIGHT)
    groups, described, y = [], [], TOP
    for comparison in comparisons:
        parts, words, end = group(comparison, y, scale, many_sources)
        groups.append(parts)
        described.append(words)
        y = end + GAP
    bottom = y - GAP / 2
    one = scale.at(1)
    heads = [node('text', '\u2190 slower', x=one - 8, y=12, class_='tick', text_anchor='end'),
             node('text', 'faster \u2192', x=one + 8, y=12, class_='tick')]
    title = 'Speed of uswap as a multiple of the better zram arm'
    drawn = picture('overview', WIDTH, round(bottom + 24), title, '; '.join(described) + '.',
                    [axis(scale, TOP - 6, bottom, text.ratio, 1), heads, groups])
    caption = node('figcaption', node('strong', title), node(
        'span', 'Time of the better of kernel-zram and kernel-zram-mthp / time of the arm, in the '
        'same round: median, and from the lowest to the highest round. Logarithmic axis.'))
    return node('figure', caption, node('div', drawn, class_='scroll'), class_='wide')
