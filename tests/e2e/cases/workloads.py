# SPDX-License-Identifier: MIT
"""bench/workloads: that each finds wrong content, is what it says it is, and runs under uswap."""
import json
import os
import sys

from harness import MIB, ROOT, Skip, case, check, read_text, tail

sys.path.insert(0, os.path.join(ROOT, 'bench'))
import workloads  # noqa: E402
from workloads import observe, synthetic  # noqa: E402

SIZE = 8 * MIB


def make(t, name, **settings):
    w = workloads.WORKLOADS[name](os.path.dirname(t.suite.uswap), t.path(name), **settings)
    if w.missing():
        raise Skip(w.missing())
    return w


def result(t, argv, status, run=None, **kw):
    """What the job wrote, after it has ended as it should."""
    path = t.path('result.json')
    env = {'USWAP_BENCH_RESULT': path}
    done = (run or t.native)(argv, env=env, **kw)
    done.expect_status(status)
    text = read_text(path)
    if os.path.exists(path):
        os.unlink(path)
    if not text:
        check(status, f'no result; stderr: {tail(done.stderr)}')
        return None, done
    r = json.loads(text)
    check(r['measured_s'] > 0 and r['phases'], f'no times in {r}')
    check(bool(r['wrong']) == bool(status), f'exit status {status}, and {r["wrong"]} wrong')
    if status:
        check('wrong' in done.stderr, f'not a word of it: {tail(done.stderr)}')
    return r, done


@case(timeout=60)
def synthetic_finds_planted_page(t):
    """Each pattern, each kind of wrong page; and none where none was planted."""
    for c in synthetic.CLASSES:
        w = make(t, c.name, size=SIZE, threads=1 + len(c.name) % 4)
        r, _ = result(t, w.command(), 0)
        pages = SIZE // 4096
        check(r['touch']['count'] >= pages and r['checked'] >= pages, f'{c.name}: too few: {r}')
        for kind in ('bit', 'zero', 'stale', 'other'):
            w.plant = kind
            result(t, w.command(), 1)


@case(timeout=30)
def synthetic_visits_what_it_says(t):
    """Orders that come to every page do so once a pass."""
    for name in ('seq-read', 'backward', 'stride'):
        # The last: fewer pages for a thread than a row of the stride has.
        for size, threads in ((SIZE, 3), (SIZE + 4096, 3), (SIZE + 31 * 4096, 2), (129 * 4096, 4)):
            w = make(t, name, size=size, threads=threads)
            w.plant = 'bit'
            r, _ = result(t, w.command(), 1)
            passes = w.describe()['passes']
            check(r['wrong'] == passes, f'{name}: page visited {r["wrong"]} times, not {passes}')
            check(r['checked'] == passes * (size // 4096), f'{name}: {r["checked"]} visits')


@case(timeout=30)
def compressibility(t):
    """As stated by the program; and as found in its memory from outside."""
    for wanted in (0.1, 0.4, 0.75, 1):
        stated = make(t, 'random', size=SIZE, compress=wanted).describe()
        for key in ('stored', 'stored_64k'):
            check(abs(stated[key] - wanted) < 0.02, f'{key} is {stated[key]}, wanted {wanted}')
    w = make(t, 'seq-read', size=32 * MIB, compress=0.3)
    seen = observe.observe('seq-read', [*w.command(), '-p', '150'],
                           {'USWAP_BENCH_RESULT': t.path('result.json')})
    t.note(f'wanted 0.3, in its memory {seen["stored"]}')
    check(abs(seen['stored'] - 0.3) < 0.03, f'in its memory {seen["stored"]}')
    check(32 * MIB < seen['peak_bytes'] < 40 * MIB, f'{seen["peak_bytes"]} bytes at peak')


@case(timeout=60)
def programs_find_wrong_content(t):
    """Right as they are; wrong once a value, or what the output must be, is another."""
    w = make(t, 'python', size=SIZE)
    result(t, w.command(), 0)
    result(t, [*w.command(), '7'], 1)

    w = make(t, 'pagerank', size=SIZE)
    w.prepare()
    result(t, w.command(), 0)
    result(t, [*w.command()[:-1], '0123456789abcdef'], 1)

    for name, expected in (('sort', 'expected'), ('gcc', 'expected')):
        w = make(t, name, size=SIZE)
        w.prepare()
        result(t, w.command(), 0)
        with open(w.path(expected), 'r+b') as f:
            f.write(b'1234567')
        r, done = result(t, w.command(), 1)
        check(r is None and 'check: exit status' in done.stderr, f'{name}: {tail(done.stderr)}')


@case(timeout=30)
def redis_finds_wrong_value(t):
    w = make(t, 'redis', size=SIZE)
    w.prepare()
    argv = w.command()
    argv[argv.index('-g') + 1] = '30000'
    r, _ = result(t, argv, 0)
    check(r['checked'] == 30000 == r['touch']['count'], f'{r}')
    result(t, [argv[0], '-P', *argv[1:]], 1)


@case(timeout=60)
def under_uswap(t):
    """Two of them paged: right, and a wrong page is still found."""
    ram = 32 * MIB
    for name, plant in (('seq-read', None), ('random', None), ('random', 'stale')):
        w = make(t, name, size=64 * MIB)
        w.plant = plant
        status = 1 if plant else 0
        r, run = result(t, [*w.command(), '-p', '1'], status, ram=ram,
                        run=lambda argv, **kw: t.under_uswap(argv, status=None, **kw))
        run.expect_swapped(8000)
        run.expect_right_content()
        t.note(f'{name}: {r["measured_s"]:.1f} s, touch p99 {r["touch"]["p99_ns"] / 1e3:.0f} us'
               + (', planted page found' if plant else ''))


@case(timeout=1200, soak=True)
def every_one_paged(t):
    """All of them in their small size and their budget; room for what is compressed where no file
    is below it."""
    for name in workloads.WORKLOADS:
        w = make_or_note(t, name)
        if not w:
            continue
        w.prepare()
        stated = w.describe()
        check(0 < stated['stored'] <= 1, f'{name}: stored is {stated["stored"]}')
        swap = [f'{kind}:{size},prio={prio}' for kind, size, prio in w.devices() or []]
        pool = int(stated['stored'] * w.size) if swap else 0
        run = result(t, w.command(), 0, run=lambda argv, env: t.under_uswap(
            argv, ram=w.budget() + pool, swap=swap or None, env={**env, **w.environ()},
            timeout=300))[1]
        run.expect_swapped(500, 0)
        run.expect_right_content()


def make_or_note(t, name):
    try:
        return make(t, name, size='small')
    except Skip as e:
        t.note(f'{name} left out: {e}')
        return None


@case(timeout=20)
def bad_settings(t):
    """Refused before anything runs, with the reason."""
    for name, settings, word in (('seq-read', {'size': 'huge'}, 'medium'),
                                 ('seq-read', {'compress': 1.5}, '0.05 to 1'),
                                 ('seq-read', {'threads': 5}, '1 to 4'),
                                 ('seq-read', {'factor': 0}, 'more than 0'),
                                 ('sort', {'compress': 0.5}, 'cannot be set'),
                                 ('build', {'size': 1 << 20}, 'medium')):
        try:
            make(t, name, **settings)
        except workloads.WorkloadError as e:
            check(name in str(e) and word in str(e), f'{settings}: {e}')
        else:
            check(False, f'{name} {settings} was taken')
    for argv in (['nothing'], ['random', '-m', '0'], ['random', '-m', '8M', '-t', '9'],
                 ['random', '-m', '8M', '-c', '0'], ['fill', '-m', '8M', '-w', '5'],
                 ['random', '-m', '8M', '--plant', 'x'], ['random', '-m', '8M', 'more']):
        t.native([make(t, 'random').program('pattern'), *argv]).expect_status(2)
