# SPDX-License-Identifier: MIT
"""make -j2 under a tight limit: a generated project, and the kernel's tinyconfig."""
import glob
import os
import shlex
import shutil
import subprocess

from .base import MIB, WorkloadError
from .program import Program


def run_shell(name, script, env=None):
    done = subprocess.run(['sh', '-ec', script], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env={**os.environ, **(env or {})})
    if done.returncode:
        text = (done.stderr or done.stdout).strip()
        raise WorkloadError(f'{name}: preparing it failed: {text[-400:]}')


class Gcc(Program):
    name = 'gcc'
    summary = 'make -j2 of a generated project with large units; objects equal to the bit'
    programs = ('gcc', 'make', 'sha256sum')
    packages = 'build-essential'
    built = ('steps',)
    UNITS = 4
    sizes = {'small': 96 * MIB, 'medium': 256 * MIB, 'large': 768 * MIB}
    # Memory of two compilers at once, as measured: without a function, and for each.
    BASE_BYTES = 58 * MIB
    FUNCTION_BYTES = 1180000
    LOOPS = 12

    def function(self, unit, k):
        """Nested control flow over distinct types, so that no pass sees the same twice."""
        name = f'{unit}_{k}'
        yield (f'struct s{k} {{ u a, b, c; char d[{k % 61 + 3}]; }};\n'
               f'u f{name}(struct s{k} *p, u x, u n)\n{{\n\tu r = x + {k + self.seed};\n')
        for i in range(self.LOOPS):
            yield (f'\tfor (u i{i} = 0; i{i} < n; i{i}++)\n'
                   f'\t\tr = (r ^ p[i{i}].{"abc"[i % 3]}) * {2 * (k * 31 + i) + 1}u + '
                   f'(r >> {i + 1}) + p[i{i}].d[{i % 3}];\n'
                   f'\tif (r % {i + 3} == 0)\n\t\tr += sink(r, {k * 17 + i});\n')
        yield '\treturn r;\n}\n'

    def make_inputs(self):
        functions = max((self.size - self.BASE_BYTES) // self.FUNCTION_BYTES, 1)
        for unit in range(self.UNITS):
            with open(self.path(f'unit{unit}.c'), 'w', encoding='ascii') as f:
                f.write('typedef unsigned long u;\nu sink(u, u);\n')
                for k in range(functions):
                    f.writelines(self.function(unit, k))
        objects = ' '.join(f'unit{i}.o' for i in range(self.UNITS))
        with open(self.path('Makefile'), 'w', encoding='ascii') as f:
            f.write(f'units.a: {objects}\n\trm -f $@ && ar Drc $@ $^\n'
                    '%.o: %.c\n\tgcc -O1 -c $< -o $@\n')

    def make(self):
        return 'rm -f *.o units.a; make -s -j2 units.a'

    def expect(self):
        run_shell(self.name, f'cd {shlex.quote(self.work)}; {self.make()}; '
                             'sha256sum units.a >expected')

    def command(self):
        there = f'cd {shlex.quote(self.work)} && '
        return self.steps(make=there + self.make(),
                          _check=there + 'sha256sum --quiet -c expected')


class Build(Program):
    name = 'build'
    summary = "the kernel's tinyconfig, make -j2; objects equal to the bit"
    # Near to what two compilers take; the parts of the tree are what differs.
    sizes = {'small': 96 * MIB, 'medium': 128 * MIB, 'large': 160 * MIB}
    PARTS = {'small': 'lib/zlib_inflate/ security/ init/', 'medium': 'mm/',
             'large': 'vmlinux'}
    programs = ('gcc', 'make', 'flex', 'bison', 'bc', 'xz', 'tar', 'sha256sum')
    packages = 'build-essential flex bison bc xz-utils'
    built = ('steps',)
    ARCHIVES = '/usr/src/linux-source-*.tar.xz'

    def bytes_of(self, size):
        if size not in self.PARTS:
            raise WorkloadError(f'{self.name}: no size {size}; there are {", ".join(self.PARTS)}')
        return super().bytes_of(size)

    @property
    def archive(self):
        found = sorted(glob.glob(self.ARCHIVES))
        return found[-1] if found else None

    def missing(self):
        if not self.archive:
            return f'no {self.ARCHIVES} (apt-get install linux-source)'
        if not os.path.exists('/usr/include/libelf.h'):
            return 'no libelf.h (apt-get install libelf-dev)'
        return super().missing()

    def settings(self):
        return {**super().settings(), 'archive': self.archive}

    @property
    def source(self):
        """Unpacked once for this user: 1.5 GB."""
        cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
        return os.path.join(cache, 'uswap-bench',
                            os.path.basename(self.archive).removesuffix('.tar.xz'))

    def unpack(self):
        if os.path.isdir(self.source):
            return
        fresh = self.source + '.new'
        shutil.rmtree(fresh, ignore_errors=True)
        os.makedirs(fresh)
        run_shell(self.name, f'tar -xf {shlex.quote(self.archive)} -C {shlex.quote(fresh)} '
                             '--strip-components=1')
        # Whole or not there.
        os.rename(fresh, self.source)

    @property
    def tree(self):
        return self.path('tree')

    def environ(self):
        """All that a build takes from its surroundings."""
        return {'KBUILD_BUILD_TIMESTAMP': '2024-01-01', 'KBUILD_BUILD_USER': 'bench',
                'KBUILD_BUILD_HOST': 'bench', 'KBUILD_BUILD_VERSION': '1', 'LC_ALL': 'C',
                'MAKEFLAGS': ''}

    def make(self, target):
        return f'make -s -j2 O={shlex.quote(self.tree)} -C {shlex.quote(self.source)} {target}'

    def make_inputs(self):
        self.unpack()
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.tree)
        run_shell(self.name, f'{self.make("tinyconfig")}; {self.make("prepare")}', self.environ())

    def results(self):
        """What the build makes, as arguments of find."""
        if self.size_name == 'large':
            return 'vmlinux'
        return f'{self.PARTS[self.size_name]} -name "*.o"'

    def clean(self):
        """What prepare built, for scripts and checks of the build, stays."""
        parts = '. -path ./scripts -prune -o -path ./tools -prune -o' \
            if self.size_name == 'large' else self.PARTS[self.size_name]
        return (f'cd {shlex.quote(self.tree)} && rm -f vmlinux && find {parts} '
                '"(" -name "*.o" -o -name "*.a" -o -name ".*.cmd" ")" -exec rm -f "{}" +')

    def expect(self):
        run_shell(self.name, f'{self.make(self.PARTS[self.size_name])}; '
                             f'cd {shlex.quote(self.tree)}; find {self.results()} -type f | sort | '
                             'xargs sha256sum >expected', self.environ())

    def command(self):
        return self.steps(_clean=self.clean(), make=self.make(self.PARTS[self.size_name]),
                          _check=f'cd {shlex.quote(self.tree)} && sha256sum --quiet -c expected')


CLASSES = [Gcc, Build]
