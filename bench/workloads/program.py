# SPDX-License-Identifier: MIT
"""Workloads that are whole programs: what they need is measured once, natively, in prepare()."""
import json
import os
import shlex
import shutil

from .base import MIB, Workload
from .observe import observe


class Program(Workload):
    sizes = {'small': 96 * MIB, 'medium': 384 * MIB, 'large': 1536 * MIB}
    programs = ()              # what must be installed
    packages = ''              # where from: Debian's names
    built = ()                 # of this folder

    reference = None           # what observe() says

    def missing(self):
        for name in self.built:
            if self.missing_program(name):
                return self.missing_program(name)
        absent = [p for p in self.programs if not shutil.which(p)]
        if absent:
            return f'not installed: {", ".join(absent)} (apt-get install {self.packages})'
        return None

    def make_inputs(self):
        """Files that the command reads. Not called again for the same settings."""

    def expect(self):
        """After a native run of command(): keeps what later runs must match."""

    def settings(self):
        """What inputs and reference depend on."""
        return {'workload': self.name, 'size': self.size, 'seed': self.seed,
                'compress': self.compress, 'threads': self.threads}

    def prepare(self):
        super().prepare()
        path = self.path('reference.json')
        try:
            with open(path, encoding='utf-8') as f:
                kept = json.load(f)
            if kept['settings'] == self.settings():
                self.reference = kept
                return
        except (OSError, ValueError, KeyError):
            pass
        self.make_inputs()
        self.expect()
        seen = observe(self.name, self.command(),
                       {'USWAP_BENCH_RESULT': self.path('reference-result.json'),
                        **self.environ()})
        self.reference = {'settings': self.settings(), **seen}
        # Last, and at once: what was interrupted is made again.
        with open(path + '.new', 'w', encoding='utf-8') as f:
            json.dump(self.reference, f)
        os.rename(path + '.new', path)

    def budget(self):
        """A part of what it takes, as measured: its size is only near to that."""
        if not self.reference:
            return super().budget()
        return max(int(self.reference['peak_bytes'] / self.factor) // MIB, 8) * MIB

    def describe(self):
        r = self.reference or {}
        return {**super().describe(), 'peak_bytes': r.get('peak_bytes'),
                'native_s': r.get('native_s'), 'stored': r.get('stored')}

    def steps(self, **steps):
        """The command of steps.c. Names with a leading _ are not measured."""
        return [self.program('steps')] + [f'{"-" if n[0] == "_" else ""}{n.lstrip("_")}={c}'
                                          for n, c in steps.items()]

    def quoted(self, name):
        return shlex.quote(self.path(name))
