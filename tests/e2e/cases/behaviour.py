# SPDX-License-Identifier: MIT
"""What programs do with memory, one tiny self-checking program each (tests/e2e/behaviour).

Each runs natively, then under uswap with everything evicted as fast as it can be, as root and, where
it needs no privilege, as an unprivileged user; it must print the same and end alike.
"""
import shutil

from harness import MIB, Skip, case, check

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']

# name: options. args: of the program. user: also as nobody. evicts: pages must have gone out.
# status: how it ends. stderr: what may stand there under uswap.
BEHAVIOURS = {
    'fork_both_write': {},
    'read_write': {},

    # memory calls and I/O
    'direct_sync': {'user': False},
    'direct_aio': {'user': False},
    'direct_uring': {'user': False},
    'direct_uring_fixed': {'user': False},
    'splice_pipe': {},
    'remap_memory': {},
    'map_again': {},
    'advise_pages': {},
    'advise_free': {},
    'advise_fork': {},
    'guard_region': {},
    'protect_jit': {},
    'protect_race': {},
    'lock_memory': {},
    'lock_all': {'user': False},
    'heap_break': {},
    'deep_recursion': {},
    'sparse_reserve': {},
    'many_mappings': {},
    'collapse_race': {},
    'shared_beside': {},
    'one_page_two_threads': {},
    'thread_churn': {},
    'signal_timer': {},
    'signal_recover': {},
    'brief_children': {},
}


def behave(t, name, args=(), user=True, evicts=True, status=0, ram=400, timeout=40, modes='evict-all'):
    argv = [t.program(name), *args]
    native = t.native(argv, timeout=timeout)
    if native.status == 77:
        raise Skip(native.stdout.decode().strip())
    check(native.status == status, f'natively {native.status}, want {status}: {native.stderr!r}')
    for prefix in ([], NOBODY) if user and shutil.which('setpriv') else ([],):
        run = t.under_uswap([*prefix, *argv], ram=ram * MIB, binary=t.hooks, timeout=timeout,
                            env={'USWAP_TEST': modes}, status=None)
        who = 'as nobody' if prefix else 'as root'
        check(run.status == native.status,
              f'{who}: exit status {run.status}, natively {native.status}: {run.stderr[-600:]!r}')
        check(run.stdout == native.stdout, f'{who}: {run.stdout[-300:]!r}, natively '
                                           f'{native.stdout[-300:]!r}')
        check('uswap:' not in run.stderr, f'{who}: {run.stderr!r}')
        run.expect_right_content()
        if evicts:
            out = run.vmstat('pgsteal_kswapd')
            check(out > 100, f'{who}: only {out} pages were evicted: it shows nothing')


for name, options in BEHAVIOURS.items():
    def run_one(t, name=name, options=options):
        behave(t, name, **options)
    case(timeout=120, name=f'behaviour.{name}')(run_one)
