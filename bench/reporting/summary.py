# SPDX-License-Identifier: MIT
"""The table of all workloads, as plain cells: the page and the README show the same one."""
from . import text
from .results import BEST_ZRAM

# In the order of the columns; further arms stay out of it, the page has them.
COLUMNS = ('native', 'kernel-zram', 'kernel-zram-mthp', 'kernel-zswap', 'kernel-file', 'uswap',
           'uswap-zram', 'uswap-file')
# What each of uswap's arms is held against: the kernel's of the same kind.
RATIOS = (('uswap', BEST_ZRAM), ('uswap-file', 'kernel-file'))


def columns(comparisons):
    return [c for c in COLUMNS if any(item.arm(c) for item in comparisons)]


def ratio_columns(comparisons):
    return [pair for pair in RATIOS if any(item.ratio(*pair) for item in comparisons)]


def head(comparisons):
    return ['workload', 'memory', *columns(comparisons),
            *(f'{arm} to {to}' for arm, to in ratio_columns(comparisons))]


def memory(comparison):
    """'1 GiB in 256 MiB', as far as it is stated."""
    words = []
    size = comparison.settings.get('size_bytes')
    if isinstance(size, int):
        words.append(text.size(size))
    if comparison.ram is not None:
        words.append(f'in {text.size(comparison.ram)}')
    return ' '.join(words) or text.DASH


def time_cell(arm):
    """The median, and what became of the other runs: none of them is left out."""
    if arm is None:
        return text.DASH, ''
    if arm.skipped is not None:
        return 'skipped', ''
    if not arm.good and arm.runs:
        return '', arm.lost()
    return text.seconds(arm.median('measured_s')), arm.lost()


def ratio_cell(entry):
    return (text.ratio(entry['measured']), text.ratio_range(entry)) if entry else (text.DASH, '')


def row(comparison, comparisons):
    """Behind the workload and its memory: pairs of a value and what is to be said with it."""
    return [comparison.workload, memory(comparison),
            *(time_cell(comparison.arm(c)) for c in columns(comparisons)),
            *(ratio_cell(comparison.ratio(*pair)) for pair in ratio_columns(comparisons))]
