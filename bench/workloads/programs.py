# SPDX-License-Identifier: MIT
"""Programs with inputs that are made here: redis, sort, python, pagerank."""
import os
import re
import subprocess
import sys

from .base import HERE, MIB, WorkloadError
from .program import Program

# Of programs that follow pointers: a page at a time, as the scattered patterns.
SCATTERED = {'small': 64 * MIB, 'medium': 256 * MIB, 'large': 1024 * MIB}


class Redis(Program):
    name = 'redis'
    summary = 'GET of values of 1000 bytes over a unix socket, keys at random; values checked'
    programs = ('redis-server',)
    packages = 'redis-server'
    built = ('redis_get',)
    compress = 0.4
    VALUE = 1000
    KEY_BYTES = 1144           # of memory for each key, as measured

    def command(self):
        return [self.program('redis_get'), '-k', str(self.size // self.KEY_BYTES), '-v',
                str(self.VALUE), '-g', str(self.size // 8192), '-S', self.path('socket'),
                '-s', str(self.seed), '-c', str(self.compress), '--',
                'redis-server', '--port', '0', '--unixsocket', self.path('socket'), '--save', '',
                '--appendonly', 'no', '--dir', self.work, '--logfile', self.path('redis.log')]

    def describe(self):
        return {**super().describe(), 'stored_wanted': self.compress, 'value_bytes': self.VALUE}


class Sort(Program):
    name = 'sort'
    summary = 'GNU sort of a file of lines, all in memory; checked with sort -c and a checksum'
    programs = ('sort', 'cksum')
    packages = 'coreutils'
    built = ('steps',)
    # Comparing lines in an order that is not that of memory: at 2 it does little but page.
    factor = 1.5
    sizes = SCATTERED
    LINE = 100
    LINE_BYTES = 148           # of memory for each line, as measured

    def make_inputs(self):
        """Lines in no order: a key, a number, words that a compressor can do something with."""
        state, mask = self.seed * 2 + 1, (1 << 64) - 1
        words = ['page', 'folio', 'slot', 'cluster', 'entry', 'cache', 'zone', 'memory']
        with open(self.path('lines'), 'w', encoding='ascii') as f:
            for i in range(self.size // self.LINE_BYTES):
                state = (state * 6364136223846793005 + 1442695040888963407) & mask
                text = ' '.join(words[state >> s & 7] for s in range(40, 61, 3))
                f.write(f'{state >> 24:010x} {i:08x} {state:016x} {text}'[:self.LINE - 1]
                        .ljust(self.LINE - 1, '.') + '\n')

    def sort(self):
        return (f'LC_ALL=C sort -S {self.size * 2} --parallel=2 -T {self.quoted("")} '
                f'{self.quoted("lines")}')

    def expect(self):
        script = (f'{self.sort()} >{self.quoted("sorted")} && '
                  f'LC_ALL=C sort -c {self.quoted("sorted")} && '
                  f'cksum <{self.quoted("sorted")} >{self.quoted("expected")}; '
                  f's=$?; rm -f {self.quoted("sorted")}; exit $s')
        done = subprocess.run(['sh', '-c', script], capture_output=True, text=True)
        if done.returncode:
            raise WorkloadError(f'sort: {done.stderr.strip()}')

    def command(self):
        """Through a pipe: the checksum is that of output which sort -c found sorted, and a file
        would add its own pages to what is measured."""
        return self.steps(sort=f'{self.sort()} | cksum >{self.quoted("found")}',
                          _check=f'cmp {self.quoted("found")} {self.quoted("expected")}')


class Python(Program):
    name = 'python'
    summary = 'dicts and lists of python objects: made, looked up, sorted; checked'
    OBJECT_BYTES = 472         # of memory for each record, as measured
    factor = 1.5
    sizes = SCATTERED

    def command(self):
        return [sys.executable, '-S', '-E', os.path.join(HERE, 'objects.py'),
                str(self.size // self.OBJECT_BYTES), str(self.seed)]


class PageRank(Program):
    name = 'pagerank'
    summary = 'PageRank of a graph in compressed sparse rows, five rounds; checksum of all of it'
    built = ('pagerank',)
    VERTEX_BYTES = 92          # 16 links of 4, an end, two ranks, a degree

    checksum = None

    def graph(self):
        return [self.program('pagerank'), '-n', str(self.size // self.VERTEX_BYTES), '-s',
                str(self.seed)]

    def expect(self):
        done = subprocess.run(self.graph(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True,
                              env={**os.environ, 'USWAP_BENCH_RESULT': self.path('first.json')})
        found = re.match(r'checksum ([0-9a-f]{16}),', done.stdout)
        if done.returncode or not found:
            raise WorkloadError(f'pagerank: {done.stderr.strip()}')
        with open(self.path('expected'), 'w', encoding='ascii') as f:
            f.write(found.group(1))

    def command(self):
        with open(self.path('expected'), encoding='ascii') as f:
            return [*self.graph(), '-x', f.read()]


CLASSES = [Redis, Sort, Python, PageRank]
