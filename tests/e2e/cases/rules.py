# SPDX-License-Identifier: MIT
"""Each rule of getting a page out safely is needed: without it, pages go wrong.

The build with test hooks can leave a rule out. The same program that finds the mistake then must
find none with all rules in force; both are looked at here, so the cases cannot pass by accident.
The numbers and the reasons are those of docs/fault-states.md; the programs say how each race works.
"""
import time

from harness import MIB, TooSlow, case, check

EVICT_ALL = 'evict-all'
LIMIT = 40  # seconds in which a missing rule must show; mostly it is one or two
SLICE = 2   # seconds of one run: where a race does not come about in one it may in the next
CLEAN = 2   # seconds without a wrong page when it is in force

# Events read late, in both arms: the races get the time that they have on a busy machine.
SLOW = 'slow-reader'

# rule: (name of the hook, programs that find it, with their arguments)
RULES = {
    1: ('no-gate', (['contend'],)),
    2: ('no-permit', (['contend'], ['stress', '-o', 'unodmwvh', '-t', '4'])),
    3: ('no-order', (['reorder', '-m', 'remap'], ['reorder', '-m', 'unmap'],
                     ['stress', '-o', 'uunmwvh', '-t', '4'])),
    4: ('no-filled-only', (['dontneed'], ['stress', '-o', 'ddoy', '-t', '4'])),
    5: ('no-whole-vma', (['stress', '-o', 'mgk', '-t', '3'], ['halves'])),
    7: ('no-populate', ()),
    'staging': ('own-staging', (['freed'],)),
}


def run_program(t, words, seconds, modes):
    """Wrong pages found, or -1 if the program died of them; and how long it took."""
    start = time.monotonic()
    run = t.start([t.program(words[0]), *words[1:], '-s', str(seconds), '-u'], ram=96 * MIB,
                  binary=t.hooks, env={'USWAP_TEST': ','.join(modes)},
                  swap=[f'file:{t.swap_dir}/swap:1G'])
    try:
        run.wait(seconds + 25)
    finally:
        run.kill()
    if 'wrong page' in run.stderr and run.status not in (0, 1):
        return 1, time.monotonic() - start, run  # found before it died of them
    # A call that fails only under uswap is as wrong as a page (stress counts them).
    found = [int(w.split('=')[1]) for w in run.stdout.decode('utf-8', 'replace').split()
             if w.startswith(('wrong=', 'failed_calls='))]
    if found:
        return sum(found), time.monotonic() - start, run
    return -1, time.monotonic() - start, run


def expect_needed(t, rule, modes=(EVICT_ALL, SLOW), limit=LIMIT, rare=''):
    """rare: why it may stay unseen here, and where it is seen always."""
    hook, programs = RULES[rule]
    # In force: nothing, in every program.
    for words in programs:
        wrong, _, run = run_program(t, words, CLEAN, [EVICT_ALL, SLOW])
        check(wrong == 0 and run.status == 0,
              f'with all rules {" ".join(words)} finds {wrong} wrong pages, status {run.status}: '
              f'{run.stdout[-300:]!r} {run.stderr[-300:]!r}')
        out = sum(run.report['vmstat'][n] for n in ('pswpout', 'zswpout', 'swpout_zero'))
        check(out > 1000, f'{" ".join(words)}: only {out} pages out: it shows nothing')
    # Left out: found by one of them in the time that there is.
    end = time.monotonic() + limit
    tried = []
    while time.monotonic() < end:
        for i, words in enumerate(programs):
            left = end - time.monotonic()
            if left < 0.5:
                break
            seconds = max(1, int(min(left, SLICE)))
            wrong, took, run = run_program(t, words, seconds, [*modes, hook])
            tried.append(f'{" ".join(words)}: {wrong} in {took:.1f} s')
            # A program may die of its own wrong pages (its stack is memory too).
            if wrong > 0 or (wrong < 0 and run.status in (134, 135, 136, 139)):
                t.note(f'{hook}: ' + '; '.join(tried))
                return
            check(wrong == 0, f'{hook}: {" ".join(words)} ended with {run.status}: '
                              f'{run.stderr[-300:]!r}')
    text = f'{hook}: no wrong page in {limit} s ({"; ".join(tried)})'
    if not rare:
        raise TooSlow(text)
    t.note(f'{text}; {rare}')


@case(timeout=120)
def rule_1_gate(t):
    """No page may move while an event is unread."""
    expect_needed(t, 1)


@case(timeout=120)
def rule_2_permit(t):
    """No page may move between the reading of an event and the update of the tables."""
    expect_needed(t, 2)


@case(timeout=120)
def rule_3_order(t):
    """Events must be applied in the order of what happened, not of their arrival."""
    expect_needed(t, 3)


@case(timeout=120)
def rule_4_filled_only(t):
    """A page that is seen present after its removal was told is not evictable for that."""
    # The gate stays closed until the thread in madvise() runs again; from then on it is
    # microseconds to the end of the call unless it is preempted just there.
    expect_needed(t, 4, modes=[EVICT_ALL], limit=5, rare='test_mm_pages makes it always')


@case(timeout=120)
def rule_4_own_staging(t):
    """Present and registered, but uswap's own: what lies in staging is not the program's."""
    expect_needed(t, 'staging', modes=[EVICT_ALL])


@case(timeout=120)
def rule_5_whole_vma(t):
    """A mapping must be registered whole: split, the program's own mremap() of it fails."""
    expect_needed(t, 5)


@case(timeout=90)
def rule_7_populate(t):
    """Pages that were shared with a child stay unmovable until they are made exclusive."""
    hook, _ = RULES[7]
    out = {}
    for modes in ('', hook):
        run = t.under_uswap([t.program('oncefork'), '-a', '48M', '-b', '96M'], ram=80 * MIB,
                            binary=t.hooks, env={'USWAP_TEST': modes} if modes else None,
                            swap=[f'file:{t.swap_dir}/swap:1G'])
        fields = dict(f.split(b'=') for f in run.stdout.split() if b'=' in f)
        check(int(fields[b'wrong']) == 0, f'{run.stdout!r}')
        out[modes] = int(fields[b'out'])
    t.note(f'pages out of 12288: {out[""]} with the rule, {out[hook]} without')
    check(out[''] > 6000, f'with the rule only {out[""]} pages get out')
    check(out[hook] < 600, f'without the rule {out[hook]} pages get out: it is not needed here')
