# SPDX-License-Identifier: MIT
"""What programs do with memory, one tiny self-checking program each (tests/e2e/behaviour).

Each runs natively, then under uswap with everything evicted as fast as it can be, as root and, where
it needs no privilege, as an unprivileged user; it must print the same and end alike.
"""
import os
import shutil
import time

from harness import MIB, ROOT, Failure, Skip, case, check, read_text

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']

# name: options. args: of the program. user: also as nobody. evicts: pages must have gone out.
# status: how it ends. program: if it is not called as the case. stderr: what may stand there under uswap.
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
    'touch_in_order': {},
    'advise_pages': {},
    'advise_free': {},
    # Advice that comes after the registration is a stated limit, and on a busy machine it may.
    'advise_fork': {'at_random': False},
    # So is a guard that is installed on a page that is just coming back.
    'guard_region': {'at_random': False},
    'protect_jit': {},
    'protect_race': {},
    'lock_memory': {},
    'lock_all': {'user': False},
    'heap_break': {},
    'deep_recursion': {},
    'sparse_reserve': {},
    'many_mappings': {'user': False}, # as nobody it would only take the time once more
    'collapse_race': {},
    'shared_beside': {},
    'one_page_two_threads': {},
    'thread_churn': {},
    'signal_timer': {},
    'signal_recover': {},
    'brief_children': {},
}

# processes and signals
BEHAVIOURS |= {
    'fork_three_deep': {},
    'fork_200_children': {},
    'fork_timer_storm': {},
    'clone_ways': {},
    'exec_chain': {'args': ['20']},
    'exec_chain_threads': {'program': 'exec_chain', 'args': ['6', 'threads']},
    'close_all_daemon': {},
    'descriptors': {},
    'stop_and_continue': {},
    'change_user': {'user': False},
    'not_dumpable': {},
    'user_namespace': {},
    'change_root': {'user': False},
    'seccomp_filter_thread': {'program': 'seccomp_filter', 'args': ['thread']},
    'seccomp_filter_all': {'program': 'seccomp_filter', 'args': ['all']},
    'seccomp_strict': {'program': 'seccomp_filter', 'args': ['strict']},
    # What uswap has registered first the program cannot: a stated limit, so not on a busy machine.
    'own_userfaultfd': {'user': False, 'at_random': False},
    'kill_during_fork': {},
    'process_vm': {},
    'main_thread_ends': {},
}


def behave(t, name, args=(), user=True, evicts=True, status=0, ram=400, timeout=40, modes='evict-all',
           program=None, at_random=True):
    argv = [t.program(program or name), *args]
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


AT_RANDOM = '''
import os, random, subprocess, sys, time
seconds, seed, *programs = sys.argv[1:]
random.seed(int(seed))
end, running, runs = time.monotonic() + float(seconds), [], 0
while time.monotonic() < end:
    for p in [p for p in running if p[1].poll() is not None]:
        running.remove(p)
        if p[1].returncode not in (0, 77):
            sys.exit(f"{p[0]} ended with {p[1].returncode}")
    if len(running) < 3 and time.monotonic() < end - 3:  # the last ones may come to their end
        words = random.choice(programs).split()
        running.append((words, subprocess.Popen(words, stdout=subprocess.DEVNULL)))
        runs += 1
    time.sleep(0.01)
for p in running:
    p[1].kill()
print(runs, flush=True)
os._exit(0)  # to take Python apart would cost seconds
'''


def at_random(t, sanitizers, seconds, seed):
    """
    All behaviours at random in one job, under supervisors built with sanitizers, side by side.
    They run for so many seconds; then those that still run are killed, and their orphans go on to
    their end.
    """
    jobs = []
    programs = [' '.join([t.program(o.get('program', name)), *o.get('args', ())])
                for name, o in BEHAVIOURS.items() if not o.get('status') and o.get('at_random', True)]
    for sanitizer in sanitizers:
        binary = os.path.join(ROOT, f'build-{sanitizer}', 'src', 'cli', 'uswap-testhooks')
        if not os.access(binary, os.X_OK):
            raise Skip(f'no build-{sanitizer}: tests/run makes it')
        log = t.path(f'{sanitizer}.log')
        env = {'USWAP_TEST': 'evict-all',
               'ASAN_OPTIONS': f'log_path={log}:detect_leaks=0', 'UBSAN_OPTIONS': f'log_path={log}',
               'TSAN_OPTIONS': f'log_path={log}:history_size=4'}
        jobs.append((sanitizer, log, t.start(
            ['python3', '-c', AT_RANDOM, str(seconds), str(seed), *programs], ram=1024 * MIB,
            binary=binary, env=env, swap=[f'file:{t.swap_dir}/{sanitizer}:2G'])))
    for sanitizer, log, run in jobs:
        run.wait(seconds + 120)
        logs = [os.path.join(t.dir, f) for f in os.listdir(t.dir) if f.startswith(f'{sanitizer}.log')]
        for path in logs:
            raise Failure(f'{sanitizer}: {read_text(path)[:1500]}')
        check(run.status == 0, f'{sanitizer}: {run.status}: {run.stderr[-800:]!r}')
        t.note(f'{sanitizer}: {int(run.stdout)} programs, '
               f'{run.vmstat("pgsteal_kswapd")} pages out')
    for _, _, run in jobs:
        run.expect_nothing_left()


@case(timeout=240)
def all_at_random(t):
    at_random(t, ('asan', 'tsan'), 60, 1)


@case(timeout=600, soak=True)
def all_at_random_for_long(t):
    at_random(t, ('asan', 'tsan'), 300, int(time.time()))
