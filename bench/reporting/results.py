# SPDX-License-Identifier: MIT
"""Reads what `bench/compare --json` writes, checks every field, and answers questions about it.

Nothing is left out here: a killed run and a skipped arm stay in the lists. Medians are of the runs
that ended well, and only of them.
"""
import json
import os
import statistics

VERSION = 1
BEST_ZRAM = 'best-zram'
ZRAM_ARMS = ('kernel-zram', 'kernel-zram-mthp')
OUTCOMES = ('ok', 'killed', 'wrong', 'failed', 'timeout')


class BadInput(Exception):
    """Names the file, the field, and what is wrong with it."""


# ---- the schema: further keys are allowed, a key that ends in '?' may be missing, '*' is any ----

class OrNull:
    def __init__(self, schema):
        self.schema = schema


class OneOf:
    def __init__(self, *words):
        self.words = words


class Measure:
    """A number that is not negative."""


TEXT, FLAG = str, bool
MAYBE = OrNull(Measure)
SCHEMA = {
    'date': TEXT,
    'machine': {'cpus': MAYBE, 'cpu_model': TEXT, 'memory_bytes': MAYBE, 'kernel': TEXT,
                'cgroup': OrNull(TEXT), 'thp': OrNull(TEXT)},
    'commit': OrNull(TEXT),
    'dirty': OrNull(FLAG),
    'comparisons': [{
        'workload': TEXT, 'summary': TEXT, 'settings': {}, 'runs': Measure, 'ram': MAYBE,
        'calibration?': OrNull({}),
        'arms': [{
            'name': TEXT, 'what': TEXT, 'skipped': OrNull(TEXT),
            'memory': OrNull({'limit': MAYBE, 'ram': MAYBE}),
            'runs': [{'round': Measure, 'outcome': OneOf(*OUTCOMES), 'detail': OrNull(TEXT)}],
        }],
        'ratios': [{'arm': TEXT, 'to': TEXT, 'measured': Measure, 'low': Measure, 'high': Measure,
                    'rounds?': MAYBE}],
    }],
}
# A run that did not end well has of these what could be had.
MEASURES = {
    'wall_s': MAYBE, 'measured_s': MAYBE, 'phases': OrNull({'*': MAYBE}), 'cpu_s': MAYBE,
    'cpu': OrNull({'job_s': MAYBE, 'supervisor_s': MAYBE, 'kernel_s': MAYBE}),
    'peak_bytes': MAYBE, 'pool_bytes': MAYBE, 'faults': MAYBE, 'pages_in': MAYBE,
    'pages_out': MAYBE, 'folios_in?': MAYBE, 'device_bytes': MAYBE, 'others_cpu_s?': MAYBE,
    'touch': OrNull({'p50_ns': Measure, 'p99_ns': Measure, 'max_ns': Measure}),
}
OF_LOST_RUN = {key.rstrip('?') + '?': schema for key, schema in MEASURES.items()}
NOTHING_KNOWN = dict.fromkeys(key.rstrip('?') for key in MEASURES)
KINDS = {TEXT: 'a text', FLAG: 'true or false'}


def wrong(value, expected):
    shown = json.dumps(value)
    return f'is {shown if len(shown) <= 40 else shown[:37] + "..."}, not {expected}'


def check(value, schema, where):
    """Raises ValueError(field, what is wrong) at the first field that is not as it must be."""
    if isinstance(schema, OrNull):
        if value is not None:
            check(value, schema.schema, where)
    elif isinstance(schema, OneOf):
        if value not in schema.words:
            raise ValueError(where, wrong(value, 'one of ' + ', '.join(schema.words)))
    elif schema is Measure:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < 2 ** 63:
            raise ValueError(where, wrong(value, 'a number from 0 up'))
    elif isinstance(schema, dict):
        check_object(value, schema, where)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise ValueError(where, wrong(value, 'a list'))
        for i, item in enumerate(value):
            check(item, schema[0], f'{where}[{i}]')
    elif not isinstance(value, schema):
        raise ValueError(where, wrong(value, KINDS[schema]))


def check_object(value, schema, where):
    if not isinstance(value, dict):
        raise ValueError(where, wrong(value, 'an object'))
    for key, inner in schema.items():
        name = key.rstrip('?')
        field = f'{where}.{name}' if where else name
        if name in value:
            check(value[name], inner, field)
        elif key == '*':
            for other, found in value.items():
                check(found, inner, f'{where}.{other}')
        elif key == name:
            raise ValueError(field, 'is missing')


def check_sense(data):
    """What the types do not say."""
    if not data['comparisons']:
        raise ValueError('comparisons', 'is empty: there is nothing to report')
    for i, comparison in enumerate(data['comparisons']):
        where = f'comparisons[{i}].arms'
        if not comparison['arms']:
            raise ValueError(where, 'is empty: there is nothing to report')
        names = [a['name'] for a in comparison['arms']]
        for k, arm in enumerate(comparison['arms']):
            if names.index(arm['name']) != k:
                raise ValueError(f'{where}[{k}].name', f'{json.dumps(arm["name"])} is there twice')
            for n, run in enumerate(arm['runs']):
                check_run(run, f'{where}[{k}].runs[{n}]')
        for k, ratio in enumerate(comparison['ratios']):
            check_ratio(ratio, names, f'comparisons[{i}].ratios[{k}]')


def check_run(run, where):
    good = run['outcome'] == 'ok'
    check(run, MEASURES if good else OF_LOST_RUN, where)
    if good and not run['measured_s']:
        raise ValueError(f'{where}.measured_s', wrong(run['measured_s'],
                                                      'a time, though the run is ok'))


def check_ratio(ratio, names, where):
    for key, known in (('arm', names), ('to', [*names, BEST_ZRAM])):
        if ratio[key] not in known:
            raise ValueError(f'{where}.{key}', f'is {json.dumps(ratio[key])}, which is no arm here')
    values = [ratio[k] for k in ('low', 'measured', 'high')]
    if not 0 < values[0] <= values[1] <= values[2]:
        raise ValueError(where, f'has {values} as low, measured, high: not in order')


# ---- what the report asks ----

class Arm:
    def __init__(self, data):
        self.name = data['name']
        self.what = data['what']
        self.skipped = data['skipped']
        self.limit = (data['memory'] or {}).get('limit')
        self.ram = (data['memory'] or {}).get('ram')
        self.runs = [{**NOTHING_KNOWN, **run} for run in data['runs']]
        self.good = [r for r in self.runs if r['outcome'] == 'ok']

    def values(self, *path):
        """Of the runs that ended well; path: 'wall_s', or 'cpu', 'job_s'."""
        found = []
        for run in self.good:
            value = run
            for key in path:
                value = None if value is None else value[key]
            if value is not None:
                found.append(value)
        return found

    def median(self, *path):
        values = self.values(*path)
        return statistics.median(values) if values else None

    def details(self):
        """What is said of the runs, each once; also of those that ended well."""
        return list(dict.fromkeys(r['detail'] for r in self.runs if r['detail']))

    def lost(self):
        """What became of the other runs: '2 of 5 killed', or ''."""
        count = {o: sum(r['outcome'] == o for r in self.runs) for o in OUTCOMES[1:]}
        return ', '.join(f'{n} of {len(self.runs)} {OUTCOME_WORDS[o]}'
                         for o, n in count.items() if n)


OUTCOME_WORDS = {'killed': 'killed', 'wrong': 'wrong content', 'failed': 'failed',
                 'timeout': 'timed out'}


class Comparison:
    def __init__(self, source, data, number):
        self.source = source
        self.number = number            # over all files, from 1
        self.workload = data['workload']
        self.summary = data['summary']
        self.settings = data['settings']
        self.runs = data['runs']
        self.ram = data['ram']
        self.calibration = data.get('calibration') or {}
        self.arms = [Arm(a) for a in data['arms']]
        self.ratios = {(r['arm'], r['to']): r for r in data['ratios']}

    @property
    def id(self):
        return f'w{self.number}'

    def arm(self, name):
        return next((a for a in self.arms if a.name == name), None)

    def ratio(self, arm, to=BEST_ZRAM):
        return self.ratios.get((arm, to))

    def best_zram(self):
        """The arm that best-zram stands for here, or None."""
        arms = [a for a in self.arms if a.name in ZRAM_ARMS and a.good]
        return min(arms, key=lambda a: a.median('measured_s'), default=None)


class Source:
    """One file."""

    def __init__(self, path, data):
        self.name = os.path.basename(path)
        self.number = 1
        self.date = data['date']
        self.machine = data['machine']
        self.commit = data['commit']
        self.dirty = data['dirty']


def not_a_number(word):
    raise ValueError(f'{word} is no JSON number')


def parse(path):
    try:
        with open(path, encoding='utf-8') as f:
            data = json.load(f, parse_constant=not_a_number)
    except OSError as e:
        raise BadInput(f'{path}: {e.strerror}') from None
    except (ValueError, RecursionError) as e:
        raise BadInput(f'{path}: not JSON: {e}; give what bench/compare --json wrote') from None
    try:
        if not isinstance(data, dict):
            raise ValueError('the document', wrong(data, 'an object'))
        if data.get('version') != VERSION or isinstance(data['version'], bool):
            raise ValueError('version', wrong(data['version'], f'{VERSION}') if 'version' in data
                             else 'is missing')
        check(data, SCHEMA, '')
        check_sense(data)
    except ValueError as e:
        field, what = e.args
        raise BadInput(f'{path}: {field} {what}') from None
    return data


def load(paths):
    """All comparisons of the files, in their order."""
    comparisons = []
    for i, path in enumerate(paths):
        data = parse(path)
        source = Source(path, data)
        source.number = i + 1
        for item in data['comparisons']:
            comparisons.append(Comparison(source, item, len(comparisons) + 1))
    return comparisons


def sources(comparisons):
    return list(dict.fromkeys(c.source for c in comparisons))
