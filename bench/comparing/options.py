# SPDX-License-Identifier: MIT
"""The command line of bench/compare."""
import argparse
import math
import os
import re

from . import ROOT, arms
from .calibrate import SMALLEST_RAM

DESCRIPTION = 'Runs a workload natively, under the kernel\'s swap and under uswap, side by side.'


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(125, f'{self.prog}: {message}\nTry {self.prog} --help\n')


def size(text):
    """Bytes; powers of 1024, as in uswap run."""
    match = re.fullmatch(r'(\d+(?:\.\d)?)([kKmMgGtT]?)(?:iB)?', text)
    if not match:
        raise argparse.ArgumentTypeError(f'{text} is no size: 64M, 1.5G')
    power = ' kmgt'.index(match.group(2).lower() or ' ')
    found = int(float(match.group(1)) * 1024 ** power)
    if not found:
        raise argparse.ArgumentTypeError('zero is no size')
    return found


def ram(text):
    found = size(text)
    if found < SMALLEST_RAM:
        raise argparse.ArgumentTypeError('the smallest is 16M')
    return found


def named_or_size(text):
    """A name of the workload's sizes, or bytes."""
    return size(text) if text[:1].isdigit() else text


def whole(low):
    def parse(text):
        if not text.isdigit() or int(text) < low:
            raise argparse.ArgumentTypeError(f'{text} is no whole number from {low} up')
        return int(text)
    return parse


def number(low, high=math.inf):
    def parse(text):
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not low < found <= high:
            raise argparse.ArgumentTypeError(
                f'{text} is not above {low:g}' + (f', up to {high:g}' if high < math.inf else ''))
        return found
    return parse


def names_of(known, what):
    def parse(text):
        names = list(dict.fromkeys(text.split(',')))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f'there is no {what} {name or "without a name"}: {", ".join(known)}')
        return names
    return parse


def parser(workloads):
    p = Parser(prog='bench/compare', description=DESCRIPTION)
    p.add_argument('--workload', type=names_of(workloads, 'workload'), metavar='NAME[,NAME...]',
                   help='what to run; see --list')
    p.add_argument('--arms', type=names_of(arms.ARMS, 'arm'), metavar='NAME[,NAME...]',
                   help='default: all that leave no trace; see --list')
    p.add_argument('--runs', type=whole(1), default=5, metavar='N', help='of each arm; default 5')
    p.add_argument('--ram', type=ram, metavar='SIZE', help='default: the workload\'s size / factor')
    p.add_argument('--size', type=named_or_size, default='medium', metavar='NAME|SIZE',
                   help='small, medium, large, or bytes that the workload touches')
    p.add_argument('--factor', type=number(0), metavar='X', help='size / ram')
    p.add_argument('--compress', type=number(0, 1), metavar='X',
                   help='stored / plain size of its contents')
    p.add_argument('--threads', type=whole(1), default=1, metavar='N')
    p.add_argument('--seed', type=whole(0), default=1, metavar='N')
    p.add_argument('--orders', action='store_true',
                   help='uswap in folios of all sizes (--order 9), and how many of each size found '
                        'room whole; the arm is uswap-zram, unless --arms names others')
    p.add_argument('--area', type=number(0), default=2.0, metavar='X',
                   help='size of each swap area / what the workload takes; default 2. For --orders '
                        'one that leaves a tenth free')
    p.add_argument('--timeout', type=number(0), default=600.0, metavar='SECONDS',
                   help='of one run; default 600')
    p.add_argument('--json', nargs='?', const='-', metavar='FILE',
                   help='the results as JSON, to FILE, or instead of the table')
    p.add_argument('--dir', default='/var/tmp', metavar='DIR',
                   help='for swap files and inputs; default /var/tmp')
    p.add_argument('--build', default=os.path.join(ROOT, 'build'), metavar='DIR',
                   help='meson build folder; default build')
    p.add_argument('--list', action='store_true', help='print workloads and arms, and stop')
    p.add_argument('--restore', action='store_true',
                   help='only put back what a compare that was killed has left')
    return p
