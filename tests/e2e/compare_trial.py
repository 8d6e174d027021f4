#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/compare with workloads that are small, or go wrong in one way each."""
import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'bench'))
from comparing.main import main  # noqa: E402
from workloads import WORKLOADS, Workload  # noqa: E402

MIB = 1 << 20
FINISH = '''
import json, os
with open(os.environ["USWAP_BENCH_RESULT"], "w") as f:
    json.dump({"measured_s": 0.1, "phases": {}, "checked": 1, "wrong": 0}, f)
'''


class Good(WORKLOADS['seq-read']):
    summary = 'what fits no budget here'
    sizes = {'medium': 64 * MIB}


class Wrong(Good):
    summary = 'one bit is flipped'
    plant = 'bit'


class Script(Workload):
    sizes = {'medium': 96 * MIB}
    factor = 4
    script = FINISH

    def command(self):
        return [sys.executable, '-c', self.script]


class Hungry(Script):
    """Takes more than it may have, and locks it: nothing can be swapped."""
    name, summary = 'hungry', 'locked memory'
    script = ('import ctypes, mmap\n'
              f'm = mmap.mmap(-1, {96 * MIB}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n'
              'at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n'
              f'assert not ctypes.CDLL(None).mlock(ctypes.c_void_p(at), {96 * MIB})\n') + FINISH


class Hangs(Script):
    """Where the kernel's swap is on, and with a child that does, too."""
    name, summary = 'hangs', 'never over with swap'
    script = ('import os, time\n'
              'if len(open("/proc/swaps").readlines()) > 1:\n'
              '    os.fork()\n'
              '    time.sleep(1000)\n') + FINISH


class Breaks(Script):
    """A mistake in a workload, at the worst time: when all is set up."""
    name, summary = 'breaks', 'raises an exception'

    def command(self):
        if len(open('/proc/swaps', encoding='utf-8').readlines()) > 1:
            raise RuntimeError('a mistake')
        return super().command()


TRIALS = {'good': Good, 'wrong': Wrong, 'hungry': Hungry, 'hangs': Hangs, 'breaks': Breaks}

if __name__ == '__main__':
    sys.exit(main(sys.argv[1:], TRIALS))
