# SPDX-License-Identifier: MIT
"""Job control, as a person at a shell sees it."""
import os
import time

from harness import Terminal, case, need


def shell(t):
    need('bash')
    term = Terminal(t, ['bash', '--norc', '--noprofile', '-i'])
    term.expect(r'prompt> ')
    return term


@case()
def stop_and_continue(t):
    """Ctrl-Z stops the job and gives the shell back; fg goes on; Ctrl-C ends it with 130."""
    term = shell(t)
    term.send(f'{t.uswap} run -- cat\n')
    time.sleep(1)
    term.send('first\n')
    term.expect(r'first\r\n.*first\r\n')
    term.send(b'\x1a')
    term.expect(r'Stopped.*prompt> ')
    term.send('echo shell-$((20+3))\n')
    term.expect(r'shell-23\r\n')
    term.send('fg\n')
    term.expect(r'run -- cat\r\n')
    time.sleep(0.5)
    term.send('second\n')
    term.expect(r'second\r\n.*second\r\n')
    term.send(b'\x03')
    term.expect(r'prompt> ')
    term.send('echo status=$?\n')
    term.expect(r'status=130\r\n')
    term.leave()


@case()
def stop_while_swapped(t):
    """The same while pages are out: a stopped program loses nothing."""
    term = shell(t)
    swap = os.path.join(t.swap_dir, 'swap')
    term.send(f'{t.uswap} run --ram 48M --swap file:{swap}:1G -- {t.program("fill")} -m 128M -w\n')
    term.expect(r'ready\r\n', timeout=40)
    term.send('\n')
    term.expect(r'pass wrong=0', timeout=40)
    term.send(b'\x1a')
    term.expect(r'Stopped.*prompt> ')
    time.sleep(0.5)
    term.send('fg\n')
    time.sleep(0.5)
    term.send('\n')
    term.expect(r'pass wrong=0', timeout=40)
    term.send(b'\x04')
    term.expect(r'pages=32768 wrong=0.*prompt> ')
    term.send('echo status=$?\n')
    term.expect(r'status=0\r\n')
    term.leave()


@case()
def interrupt(t):
    term = shell(t)
    term.send(f'{t.uswap} run -- sh -c \'trap "echo cleaned up; exit 3" INT; '
              'echo up; while :; do sleep 0.1; done\'\n')
    term.expect(r'\nup\r\n')
    term.send(b'\x03')
    term.expect(r'cleaned up\r\n.*prompt> ')
    term.send('echo status=$?\n')
    term.expect(r'status=3\r\n')
    term.leave()


@case()
def in_a_pipeline(t):
    """As a part of a shell's pipeline, where uswap does not lead the foreground group."""
    term = shell(t)
    term.send(f'echo abc | {t.uswap} run -- tr a-z A-Z | {t.uswap} run -- rev\n')
    term.expect(r'CBA\r\n')
    term.leave()


@case()
def in_the_background(t):
    term = shell(t)
    term.send(f'{t.uswap} run -- sh -c "sleep 0.3; echo from-behind" &\n')
    term.expect(r'from-behind\r\n')
    term.send(f'{t.uswap} run -- cat &\n')
    term.expect(r'prompt> ')
    time.sleep(1)
    term.send('jobs\n')
    term.expect(r'Stopped.*run -- cat')   # reads from the terminal: SIGTTIN
    term.send('kill %%; fg\n')
    term.expect(r'prompt> ')
    term.send('echo alive\n')
    term.expect(r'alive\r\n')
    term.leave()
