# SPDX-License-Identifier: MIT
"""Numbers as people read them: three digits, and a unit. None is a dash."""
DASH = '\u2013'


def three(value):
    """Three significant digits, zeros kept: 6.20, 62.0, 620."""
    for digits, below in ((2, 9.995), (1, 99.95)):
        if abs(value) < below:
            return f'{value:.{digits}f}'
    return f'{value:.0f}'


def scaled(value, units, step):
    """The largest unit in which the value is at least 1."""
    for unit in units[:-1]:
        if value < step * 0.9995:
            return value, unit
        value /= step
    return value, units[-1]


def plain(value):
    """For the round values of an axis."""
    return f'{value:.10g}'


def seconds(value, digits=three):
    if value is None:
        return DASH
    if value >= 0.9995 or value == 0:
        return f'{digits(value)} s'
    return nanoseconds(value * 1e9, digits)


def nanoseconds(value, digits=three):
    if value is None:
        return DASH
    value, unit = scaled(value, ('ns', '\u00b5s', 'ms', 's'), 1000)
    return f'{value:.0f} ns' if unit == 'ns' else f'{digits(value)} {unit}'


def size(value, digits=three):
    if value is None:
        return DASH
    value, unit = scaled(value, ('B', 'KiB', 'MiB', 'GiB', 'TiB'), 1024)
    return f'{value:.0f} {unit}' if value == int(value) else f'{digits(value)} {unit}'


def count(value, digits=three):
    if value is None:
        return DASH
    value, unit = scaled(value, ('', ' k', ' M', ' G'), 1000)
    return plain(value) if not unit else digits(value) + unit


def ratio(value, digits=three):
    return DASH if value is None else f'{digits(value)} \u00d7'


def ratio_range(entry):
    """Of the rounds that have a ratio; of one there is no range."""
    if entry.get('rounds') == 1:
        return 'one round'
    return f'{three(entry["low"])} to {three(entry["high"])}'


def setting(key, value):
    """One of the settings that a workload states about itself."""
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, int) and key.endswith('_bytes'):
        return size(value)
    if isinstance(value, (int, float)) and key.endswith('_s'):
        return seconds(value)
    if isinstance(value, float):
        return f'{value:g}'
    if isinstance(value, dict):
        return ', '.join(f'{k} {setting(k, v)}' for k, v in value.items())
    if isinstance(value, list):
        return ', '.join(setting(key, v) for v in value)
    return DASH if value is None else str(value)


def named(key):
    return key.removesuffix('_bytes').removesuffix('_s').replace('_', ' ')


def settings(comparison):
    """Pairs of name and value, the memory last. size is the name that size_bytes has there."""
    stated = dict(comparison.settings)
    name = stated.pop('size', None) if 'size_bytes' in stated else None
    pairs = [(named(k), setting(k, v) + (f' ({name})' if name and k == 'size_bytes' else ''))
             for k, v in stated.items() if v is not None]
    pairs.append(('runs of each arm', count(comparison.runs)))
    pairs.append(('--ram', size(comparison.ram)))
    pairs += [(f'calibration: {named(k)}', setting(k, v))
              for k, v in comparison.calibration.items() if v not in (None, [])]
    return pairs


def machine(source):
    m = source.machine
    return (f'{count(m["cpus"])} CPUs ({m["cpu_model"]}), {size(m["memory_bytes"])}, '
            f'Linux {m["kernel"]}, cgroup {m["cgroup"]}')


def commit(source):
    return (source.commit or 'unknown')[:12] + (' with changes' if source.dirty else '')
