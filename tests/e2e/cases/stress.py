# SPDX-License-Identifier: MIT
"""The stress of tests/stress, against everything being evicted as fast as it can be."""
from harness import MIB, case, check


def run_stress(t, seconds, *, threads=3, seed=1, ops=None, hooks=True, ram=400, modes='evict-all',
               out=10000, swap=None):
    words = [t.program('stress'), '-s', str(seconds), '-t', str(threads), '-S', str(seed)]
    if ops:
        words += ['-o', ops]
    run = t.start(words, ram=ram * MIB, binary=t.hooks if hooks else None, swap=swap,
                  env={'USWAP_TEST': modes} if hooks else None)
    run.wait(seconds + 60)
    line = run.stdout.decode().strip().splitlines()[-1] if run.stdout.strip() else ''
    values = dict(f.split('=') for f in line.split() if '=' in f)
    check(values, f'no summary; status {run.status}, stderr {run.stderr[-600:]!r}')
    check(values['stuck'] == '0', f'{line}; {run.stderr[-300:]!r}')
    check(all(values[k] == '0' for k in ('wrong', 'children_died', 'failed_calls')),
          f'{line}; {run.stderr[:600]!r}')
    run.expect_status(0)
    run.expect_nothing_left()
    run.expect_right_content()
    v = run.report['vmstat']
    went = v['pswpout'] + v['zswpout'] + v['swpout_zero'] + v['swpout_shared'] + \
        v['swpout_unchanged']
    came = v['pswpin'] + v['zswpin'] + v['swpin_zero']
    check(went > out and came > out, f'only {went} pages out and {came} in, want {out}')
    check(sum(d['used'] for d in run.report['devices']) == 0, 'the devices still hold pages')
    t.note(f'{values["checks"]} checks, 0 wrong, {went} pages out, {came} in, '
           f'{values["forks"]} forks, longest visit {int(values["max_visit_us"]) / 1000:.0f} ms')
    return run, values


@case(timeout=150)
def all_operations(t):
    run, values = run_stress(t, 60)
    v = run.report['vmstat']
    for name in ('uffd_unmap', 'uffd_remove', 'uffd_remap', 'uffd_fork', 'uffd_register'):
        check(v[name] > 20, f'{name} is {v[name]}: the stress does not reach it')
    check(int(values['forks']) >= 5, f'only {values["forks"]} forks')


@case(timeout=60)
def events_only(t):
    """Without forks, at a much higher rate of events."""
    run_stress(t, 8, ops='unodmwvhgs', seed=2, threads=4)


@case(timeout=60)
def forks_only(t):
    run_stress(t, 6, ops='fffFyd', seed=3)


@case(timeout=60)
def as_users_run_it(t):
    """The product as it is shipped, in a small budget."""
    run_stress(t, 8, hooks=False, ram=40, seed=4, out=3000)


@case(timeout=60)
def on_a_file_only(t):
    run_stress(t, 8, hooks=False, ram=40, seed=6, out=3000, swap=[f'file:{t.swap_dir}/s:1G'])


for seed in range(10, 16):
    def soak(t, seed=seed):
        run_stress(t, 600, threads=2 + seed % 4, seed=seed)
    case(timeout=800, soak=True, name=f'stress.soak_seed_{seed}')(soak)
