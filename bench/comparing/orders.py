# SPDX-License-Identifier: MIT
"""How many folios of each size went out whole, and how many found no run of free slots.

"All sizes" is what uswap run --order 9 does: each eviction takes the largest naturally aligned run
of pages that are all resident and old enough, up to 2 MiB. So sizes mix on the device as they do
under a kernel with all of its folio sizes enabled, and the smaller ones leave the holes that the
larger ones do not fit.
"""
MAX_ORDER = 9
# The kernel's allocator series of 2024, a kernel build on 4 GiB of zram with 1 GiB of memory, all
# sizes enabled: % fallback before and after it.
SEED = {2: (97.9, 0.26), 3: (98.1, 0.89), 4: (98.4, 10.2), 5: (98.7, 29.0), 6: (98.7, 34.6),
        7: (99.1, 71.1), 8: (99.7, 97.2), 9: (99.7, 99.3)}


def percent(out, fallback):
    """None: there was none of that size."""
    return 100 * fallback / (out + fallback) if out + fallback else None


def of_report(report):
    """Of one run; whole, wherever to."""
    if not report:
        return None
    return [{'order': o['order'], 'swpout': o['swpout'] + o['zswpout'],
             'swpout_fallback': o['swpout_fallback']} for o in report['orders']]


def used_share(report):
    """The most that was in use of the areas that did not grow."""
    areas = [d for d in (report or {}).get('devices', ()) if d['size']]
    return max((d['peak'] / d['size'] for d in areas), default=None)


def total(runs):
    """Of all runs that have it: {order: (out, fallback)}."""
    found = {}
    for run in runs:
        for o in run.get('orders') or ():
            out, fallback = found.get(o['order'], (0, 0))
            found[o['order']] = out + o['swpout'], fallback + o['swpout_fallback']
    return found


def rows(runs):
    """For a table, by size from 16 KiB: folios out, fallback, %, the series before and after."""
    by = total(runs)
    for order, (before, after) in SEED.items():
        out, fallback = by.get(order, (0, 0))
        part = percent(out, fallback)
        size = 4 << order
        yield [f'{size} KiB' if size < 1024 else f'{size // 1024} MiB', str(out), str(fallback),
               '-' if part is None else f'{part:.2f}', f'{before:g}', f'{after:g}']
