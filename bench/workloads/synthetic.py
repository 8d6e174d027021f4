# SPDX-License-Identifier: MIT
"""The workloads of pattern.c: memory filled, then visited in an order."""
import functools
import json
import subprocess

from .base import GIB, MIB, Workload, WorkloadError


class Pattern(Workload):
    sizes = {'small': 128 * MIB, 'medium': 1 * GIB, 'large': 4 * GIB}
    compress = 0.4
    max_threads = 4
    pattern = None                   # the name of pattern.c, where it is another
    write_percent = None             # None: pattern.c's own
    plant = None                     # for tests: one page is made wrong, in this way

    def missing(self):
        return self.missing_program('pattern')

    def command(self):
        words = [self.program('pattern'), self.pattern or self.name, '-m', str(self.size), '-c',
                 str(self.compress), '-t', str(self.threads), '-s', str(self.seed)]
        if self.write_percent is not None:
            words += ['-w', str(self.write_percent)]
        if self.plant:
            words += ['--plant', self.plant]
        return words

    @functools.cached_property
    def measured(self):
        """What the program says of its settings, the ratio of lz4 on its own pages among them."""
        done = subprocess.run([*self.command(), '--describe'], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise WorkloadError(f'{self.name}: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def describe(self):
        m = self.measured
        return {**super().describe(), 'stored_wanted': self.compress,
                **{k: m[k] for k in ('stored', 'stored_64k', 'passes', 'write_percent',
                                     'stride_pages')}}


class Fill(Pattern):
    name = 'fill'
    summary = 'every page written once, in order'
    sizes = {'small': 256 * MIB, 'medium': 2 * GIB, 'large': 8 * GIB}
    factor = 4


class SeqWrite(Pattern):
    name = 'seq-write'
    summary = 'every page rewritten, in order, several times'
    factor = 4


class SeqRead(Pattern):
    name = 'seq-read'
    summary = 'every page read, in order, several times'
    factor = 4


class Backward(Pattern):
    name = 'backward'
    summary = 'every page read, from the last to the first, several times'
    factor = 4


class Scattered(Pattern):
    """Brings back a page at a time, so less of it takes as long."""
    sizes = {'small': 64 * MIB, 'medium': 512 * MIB, 'large': 2 * GIB}


class Stride(Scattered):
    name = 'stride'
    summary = 'a matrix stored by rows of 33 pages, read by columns'


class Random(Scattered):
    name = 'random'
    summary = 'pages read at random, each as likely'


class Zipf(Scattered):
    name = 'zipf'
    summary = "pages by Zipf's law (exponent 0.99), scattered; a tenth of the visits write"


class HotScan(Scattered):
    name = 'hot+scan'
    summary = 'a hot quarter read at random, while a scan goes round the rest'


class Phase(Scattered):
    name = 'phase'
    summary = 'random within a quarter of the memory, then within the next; half of it writes'


CLASSES = [Fill, SeqWrite, SeqRead, Backward, Stride, Random, Zipf, HotScan, Phase]
