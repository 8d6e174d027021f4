# SPDX-License-Identifier: MIT
"""Medians, spread and ratios of what was run, and the JSON document (version 1)."""
import statistics

VERSION = 1
FLAT = ('wall_s', 'measured_s', 'cpu_s', 'others_cpu_s', 'peak_bytes', 'pool_bytes',
        'faults', 'major_faults', 'pages_in', 'pages_out', 'folios_in', 'device_bytes')
NESTED = {'cpu': ('job_s', 'supervisor_s', 'kernel_s'), 'touch': ('p50_ns', 'p99_ns', 'max_ns')}
ZRAM = ('kernel-zram', 'kernel-zram-mthp')
BEST_ZRAM = 'best-zram'


def good(runs):
    return [r for r in runs if r['outcome'] == 'ok']


def numbers(dictionaries, key):
    return [d[key] for d in dictionaries if d and d.get(key) is not None]


def medians(runs):
    """Of the runs that ended well."""
    runs = good(runs)
    found = {key: statistics.median(v) for key in FLAT if (v := numbers(runs, key))}
    for outer, keys in NESTED.items():
        inner = [r.get(outer) for r in runs]
        values = {key: statistics.median(v) for key in keys if (v := numbers(inner, key))}
        if values:
            found[outer] = values
    return found


def spread(runs):
    runs = good(runs)
    return {key: [min(v), max(v)] for key in FLAT if (v := numbers(runs, key))}


def describe_arm(comparison, arm):
    runs = comparison.records[arm.name]
    c = comparison.bench.calibration
    skipped = comparison.skipped.get(arm.name)
    return {
        'name': arm.name, 'what': arm.about if skipped else arm.what(), 'skipped': skipped,
        'memory': {'limit': None if skipped else c.limit(arm),
                   'ram': c.budget(arm) if arm.limited and not arm.kernel else None},
        'runs': runs, 'killed': sum(r['outcome'] == 'killed' for r in runs),
        'median': medians(runs), 'spread': spread(runs),
    }


def best_zram(arms):
    """The name of the faster of the two by median, if one has a run that ended well."""
    timed = [(a['median']['measured_s'], a['name']) for a in arms
             if a['name'] in ZRAM and 'measured_s' in a['median']]
    return min(timed)[1] if timed else None


def ratio(arm, other):
    """How many times as fast as the other, round by round; None without a common round."""
    mine = {r['round']: r['measured_s'] for r in good(arm['runs'])}
    values = [r['measured_s'] / mine[r['round']] for r in good(other['runs'])
              if mine.get(r['round'])]
    if not values:
        return None
    return {'measured': statistics.median(values), 'low': min(values), 'high': max(values),
            'rounds': len(values)}


def ratios(arms, kernel_names):
    by_name = {a['name']: a for a in arms}
    best = best_zram(arms)
    found = []
    for arm in arms:
        if arm['name'] in kernel_names or not arm['memory']['ram']:
            continue
        targets = [(name, name) for name in by_name if name in kernel_names]
        if best:
            targets.append((BEST_ZRAM, best))
        for label, name in targets:
            values = ratio(arm, by_name[name])
            if values:
                found.append({'arm': arm['name'], 'to': label, **values})
    return found


def describe(comparison):
    bench = comparison.bench
    arms = [describe_arm(comparison, arm) for arm in comparison.arms]
    kernel_names = {arm.name for arm in comparison.arms if arm.kernel}
    return {
        'workload': bench.workload.name, 'summary': bench.workload.summary,
        'settings': comparison.settings, 'runs': comparison.runs,
        'all_orders': bench.all_orders, 'ram': bench.calibration.ram, 'calibration': bench.calibration.document(),
        'arms': arms, 'ratios': ratios(arms, kernel_names),
    }


def bad(document):
    """Is there a run that says something is broken? One that was killed for memory does not."""
    return any(r['outcome'] in ('wrong', 'failed', 'timeout')
               for c in document['comparisons'] for a in c['arms'] for r in a['runs'])


def empty(document):
    """The workloads of which no arm could be run."""
    return [c['workload'] for c in document['comparisons'] if all(a['skipped'] for a in c['arms'])]
