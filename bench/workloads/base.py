# SPDX-License-Identifier: MIT
"""What every workload has. bench/compare runs the command in its arms; see README.md."""
import os

MIB = 1 << 20
GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))


class WorkloadError(Exception):
    """A setting that makes no sense, or inputs that could not be made. The text says what to do."""


class Workload:
    name = None
    summary = None
    sizes = {}                 # name -> bytes of the working set
    factor = 2                 # working set / budget
    compress = None            # None: the content is what the program makes it, not settable
    max_threads = 1

    def __init__(self, build, work, size='medium', factor=None, compress=None, threads=1, seed=1):
        """build: the meson build; work: a scratch folder; size: a name of sizes, or bytes."""
        self.build = os.path.abspath(build)
        self.work = os.path.abspath(work)
        self.size_name = size if isinstance(size, str) else None
        self.size = self.bytes_of(size)
        self.factor = self.factor if factor is None else float(factor)
        if not self.factor > 0:
            raise WorkloadError(f'{self.name}: factor {factor}: must be more than 0')
        if compress is not None and self.compress is None:
            raise WorkloadError(f'{self.name}: its compressibility is that of its data; '
                                'it cannot be set')
        if compress is not None and not 0.05 <= compress <= 1:
            raise WorkloadError(f'{self.name}: compressibility {compress}: 0.05 to 1')
        self.compress = self.compress if compress is None else compress
        if not 1 <= threads <= self.max_threads:
            raise WorkloadError(f'{self.name}: {threads} threads: 1 to {self.max_threads}')
        self.threads = threads
        self.seed = seed

    def bytes_of(self, size):
        if not isinstance(size, str):
            return int(size)
        if size not in self.sizes:
            raise WorkloadError(f'{self.name}: no size {size}; there are {", ".join(self.sizes)}')
        return self.sizes[size]

    def missing(self):
        """Why this machine cannot run it, or None. After the build; before prepare()."""
        return None

    def prepare(self):
        """Inputs and expected results, once before all runs, outside any limit."""
        os.makedirs(self.work, exist_ok=True)

    def budget(self):
        """The default --ram, in whole MiB."""
        return max(int(self.size / self.factor) // MIB, 1) * MIB

    def command(self):
        """argv of the job. Wrong content: exit status 1, and a word on standard error."""
        raise NotImplementedError

    def environ(self):
        return {}

    def devices(self):
        """None: those of the arm. Else a list of (type, bytes, priority), the type of each arm's
        compressed device being 'zram'."""
        return None

    def describe(self):
        """The settings, for the record. stored: by lz4, as a part of the plain size, in pages of
        4 KiB; measured, not claimed."""
        return {'size_bytes': self.size, 'size': self.size_name, 'factor': self.factor,
                'stored': None, 'threads': self.threads, 'seed': self.seed}

    # -- for the classes --

    def path(self, name):
        return os.path.join(self.work, name)

    def program(self, name):
        return os.path.join(self.build, 'bench', 'workloads', name)

    def missing_program(self, name):
        if os.access(self.program(name), os.X_OK):
            return None
        return f'{self.program(name)} is not built: make build'
