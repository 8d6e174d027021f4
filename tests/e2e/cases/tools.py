# SPDX-License-Identifier: MIT
"""Tools around a program and places to run it in: preloads, debuggers, sandboxes, containers.

What a tool is run in costs it nothing that it would not cost without uswap: same output, same end.
"""
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import time

from harness import MIB, ROOT, Skip, case, check, in_time, need, read_bytes, read_text, rollup, tail

sys.path.insert(0, os.path.join(ROOT, 'bench'))
from comparing import Trouble, cgroup  # noqa: E402
from comparing.system import System  # noqa: E402

NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']


def build(t, name, source, *options, compiler='cc'):
    path = t.path(name)
    done = subprocess.run([need(compiler), '-O1', *options, t.write(name + '.c', source), '-o', path],
                          capture_output=True, text=True)
    check(done.returncode == 0, f'{name} does not compile: {done.stderr[-400:]}')
    return path


def uswap_lines(run):
    return [x for x in run.stderr.splitlines() if x.startswith('uswap: ')]


# ---- preloads of the user ----

# Blocks of all sizes, freed, grown and checked, by three threads. ARGV[1]: a library that must be there.
MALLOCS = '''
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { THREADS = 3, BLOCKS = 10000 };
struct block { unsigned char *p; size_t n; unsigned char tag; };
static struct block blocks[THREADS][BLOCKS];
static unsigned long wrong[THREADS], sum[THREADS];
static uint64_t next(uint64_t *x) { return (*x = *x * 6364136223846793005u + 1442695040888963407u) >> 33; }
static void verify(struct block *b, int t)
{
	for (size_t i = 0; i < b->n; i++)
		wrong[t] += b->p[i] != (unsigned char)(b->tag + i / 64);
	sum[t] += b->n * b->tag;
}
static void fill(struct block *b, size_t from)
{
	for (size_t i = from; i < b->n; i++)
		b->p[i] = b->tag + i / 64;
}
static void *work(void *arg)
{
	int t = (int)(intptr_t)arg;
	uint64_t x = t + 1;
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &blocks[t][i];
		b->n = next(&x) % 256 ? 16 + next(&x) % 4096 : 16 + next(&x) % 200000;
		b->tag = next(&x);
		b->p = malloc(b->n);
		fill(b, 0);
	}
	for (int i = 0; i < BLOCKS / 3; i++) {
		struct block *b = &blocks[t][next(&x) % BLOCKS];
		size_t old = b->n;
		switch (i % 3) {
		case 0:
			verify(b, t);
			free(b->p);
			b->n = 16 + next(&x) % 6000;
			b->p = calloc(1, b->n);
			for (size_t k = 0; k < b->n; k++)
				wrong[t] += b->p[k];
			fill(b, 0);
			break;
		case 1:
			b->n = 16 + next(&x) % 8000;
			b->p = realloc(b->p, b->n);
			if (b->n > old)
				fill(b, old);
			break;
		}
	}
	for (int i = 0; i < BLOCKS; i++)
		verify(&blocks[t][i], t);
	return NULL;
}
int main(int argc, char **argv)
{
	pthread_t th[THREADS];
	char line[4096];
	int seen = argc < 2;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), f))
		seen |= argc > 1 && strstr(line, argv[1]);
	fclose(f);
	for (intptr_t t = 0; t < THREADS; t++)
		pthread_create(&th[t], NULL, work, (void *)t);
	for (int t = 0; t < THREADS; t++)
		pthread_join(th[t], NULL);
	for (int t = 0; t < THREADS; t++)
		printf("%lu wrong, sum %lu\\n", wrong[t], sum[t]);
	puts(seen ? "preloaded" : "not preloaded");
	return wrong[0] || wrong[1] || wrong[2] || !seen;
}
'''


def library(*patterns):
    for pattern in patterns:
        for place in ('/usr/lib/x86_64-linux-gnu', '/usr/lib64', '/usr/lib', '/usr/local/lib'):
            found = sorted(glob.glob(os.path.join(place, pattern)))
            if found:
                return found[0]
    raise Skip(f'{patterns[0]} is not installed')


def preloaded_allocator(t, *patterns):
    lib = library(*patterns)
    mallocs = build(t, 'mallocs', MALLOCS, '-pthread')
    t.compare([mallocs, os.path.basename(lib).split('.')[0]], fraction=0.34, pages_out=10000,
              env={'LD_PRELOAD': lib})


@case(timeout=90)
def jemalloc(t):
    preloaded_allocator(t, 'libjemalloc.so.2')


@case(timeout=90)
def tcmalloc(t):
    preloaded_allocator(t, 'libtcmalloc_minimal.so.4')


@case(timeout=90)
def mimalloc(t):
    preloaded_allocator(t, 'libmimalloc.so.2', 'libmimalloc.so*')


@case(timeout=90, soak=True)
def fakeroot(t):
    """A library and a daemon of its own: owners are what they were said to be."""
    need('fakeroot')
    need('setpriv')
    mallocs = build(t, 'mallocs', MALLOCS, '-pthread')
    work = t.path('work')
    os.mkdir(work)
    os.chown(work, 65534, 65534)
    script = f'''
cd {work} && rm -f a && echo x >a && id -u && chown 12:34 a && stat -c %u:%g a && {mallocs} libfakeroot &&
stat -c %u:%g a'''
    words = [*NOBODY, 'fakeroot', 'sh', '-c', script]
    native, run = t.compare(words, fraction=0.34, pages_out=10000)
    check(run.stdout.startswith(b'0\n12:34\n') and run.stdout.endswith(b'preloaded\n12:34\n'),
          f'{run.stdout!r}')


@case(timeout=90, soak=True)
def faketime(t):
    """Inside, and around all of uswap: its clock may be a lie, too."""
    need('faketime')
    mallocs = build(t, 'mallocs', MALLOCS, '-pthread')
    inner = ['sh', '-c', f'date +%Y-%m-%d && {mallocs} libfaketime']
    words = ['faketime', '2001-02-03 04:05:06', *inner]
    native, run = t.compare(words, fraction=0.34, pages_out=10000)
    check(run.stdout.startswith(b'2001-02-03\n'), f'{run.stdout!r}')
    around = t.under_uswap(inner, ram=run.job['ram'], prefix=words[:2])
    check(around.stdout == native.stdout, f'around uswap: {around.stdout!r}')
    around.expect_swapped(10000)
    around.expect_right_content()


# ---- debuggers ----

# Says "ready", waits for a byte, then goes over its table as often as it is told.
DEBUGGED = '''
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
unsigned long small = 4711, nr = 48ul << 17, *table;
int main(int argc, char **argv)
{
	unsigned long bad = 0;
	int passes = argc > 1 ? atoi(argv[1]) : 2;
	char c;
	table = mmap(0, nr * 8, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned long i = 0; i < nr; i++)
		table[i] = i * 1000003;
	puts("ready");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 2;
	for (int k = 0; k < passes; k++)
		for (unsigned long i = 0; i < nr; i++)
			bad += table[i] != i * 1000003 + k, table[i]++;
	printf("bad %lu\\n", bad);
	return bad != 0;
}
'''


class Debugged:
    """DEBUGGED under uswap with everything evicted, ready and waiting."""

    def __init__(self, t):
        self.t = t
        program = build(t, 'debugged', DEBUGGED, '-g')
        reader, self.writer = os.pipe()
        t.cleanups.append(self.close)
        with open(reader, 'rb') as stdin:
            self.run = t.start([program], ram=400 * MIB, binary=t.hooks,
                               env={'USWAP_TEST': 'evict-all'}, stdin=stdin)
        self.run.wait_for_output('ready')
        end = time.monotonic() + 20
        while True:
            found = self.run.find('debugged')
            self.pid = found[0].pid if found else 0
            if self.pid and rollup(self.pid).get('Anonymous', 1 << 40) < 4 * MIB:
                break
            in_time(time.monotonic() < end, f'not evicted: {rollup(self.pid)}')
            time.sleep(0.05)

    def finish(self):
        os.write(self.writer, b'x')
        self.run.wait(40).expect_status(0)
        check(self.run.stdout == b'ready\nbad 0\n', f'{self.run.stdout!r} {self.run.stderr!r}')
        self.run.expect_nothing_left()
        self.run.expect_swapped(8000)
        self.run.expect_right_content()
        check(not uswap_lines(self.run), f'{self.run.stderr!r}')

    def close(self):
        os.close(self.writer)


def debugger(t, words, cwd=None):
    started = time.monotonic()
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=40, cwd=cwd or t.dir)
    except subprocess.TimeoutExpired:
        check(False, f'{words[0]} hangs')
    t.log(f'{words} -> {done.returncode} {done.stdout!r} {done.stderr!r}')
    return done, time.monotonic() - started


@case(timeout=100)
def gdb(t):
    """Attached to a program that is swapped out: a right value or an error, and no harm."""
    need('gdb')
    d = Debugged(t)
    done, took = debugger(t, ['gdb', '-nx', '-batch', '-p', str(d.pid), '-ex', 'print small',
                              '-ex', 'print table[1234567]', '-ex', 'print small + 1', '-ex', 'detach'])
    text = done.stdout + done.stderr
    check('$1 = 4711' in text, f'gdb cannot read a variable of the program: {tail(text)}')
    right = f'= {1234567 * 1000003}' in text
    check(right or 'Cannot access memory' in text, f'neither the value nor an error: {tail(text, 8)}')
    check('= 4712' in text, f'gdb did not go on: {tail(text)}')
    t.note(f'the swapped page: {"its value" if right else "an error"}; gdb took {took:.1f} s')
    d.finish()


@case(timeout=100)
def gcore(t):
    """A core of a program that is swapped out may have holes; the program goes on."""
    need('gcore')
    d = Debugged(t)
    done, took = debugger(t, ['gcore', '-o', t.path('core'), str(d.pid)])
    t.note(f'gcore: status {done.returncode}, {took:.1f} s')
    path = t.path(f'core.{d.pid}')
    if done.returncode == 0:
        check(read_bytes(path)[:4] == b'\x7fELF', 'no core')
        os.unlink(path)
    d.finish()


@case(timeout=100)
def gdb_starts_the_program(t):
    """A debugger inside of the job, with a breakpoint, reading what is swapped in and out."""
    need('gdb')
    program = build(t, 'debugged', DEBUGGED, '-g')
    t.write('in', 'x')
    words = ['gdb', '-nx', '-batch', '-ex', 'break puts', '-ex',
             f'run 6 < {t.path("in")} > {t.path("out")}', '-ex', 'print small', '-ex', 'continue',
             program]
    run = t.under_uswap(words, ram=48 * MIB)
    check(b'$1 = 4711' in run.stdout and b'exited normally' in run.stdout,
          f'{tail(run.stdout.decode(), 6)} {tail(run.stderr)}')
    check(read_bytes(t.path('out')) == b'ready\nbad 0\n', f'{read_bytes(t.path("out"))!r}')
    out, back = run.expect_swapped(20000)
    run.expect_right_content()
    t.note(f'{out} pages out, {back} in')
    found = [p for p in run.report['processes'] if p['comm'] == 'debugged']
    check(found and all(p['managed'] for p in found), f'debugged in the report: {found}')


@case(timeout=100)
def strace_inside(t):
    """A tracer within the job, following forks."""
    need('strace')
    log = t.path('trace')
    words = ['strace', '-f', '-o', log, 'sh', '-c',
             f'{t.program("fill")} -m 96M && {t.program("fill")} -m 80M; exit 3']
    native, run = t.compare(words, fraction=0.34, pages_out=20000, status=3)
    trace = read_text(log)
    check(trace.count('+++ exited with 0 +++') >= 2 and 'exited with 3' in trace,
          f'trace: {tail(trace)}')


@case(timeout=100, soak=True)
def strace_around(t):
    """A tracer of uswap itself and of all that it starts."""
    need('strace')
    log = t.path('trace')
    native = t.native([t.program('fill'), '-m', '64M', '-p', '12'])
    run = t.under_uswap([t.program('fill'), '-m', '64M', '-p', '12'], ram=32 * MIB,
                        prefix=['strace', '-f', '-e', 'trace=execve,userfaultfd', '-o', log])
    check(run.stdout == native.stdout, f'{run.stdout!r}')
    check('execve' in read_text(log), 'no trace')
    run.expect_swapped(5000)
    run.expect_right_content()


@case(timeout=100)
def valgrind(t):
    """Its tools are static programs: named, and they find what they find natively."""
    need('valgrind')
    source = '''
#include <stdlib.h>
#include <stdio.h>
int main(void)
{
	char *p = malloc(1000), *q = malloc(1 << 20);
	for (int i = 0; i < 1 << 20; i++)
		q[i] = i;
	puts(q[12345] == (char)12345 ? "right" : "wrong");
	p[1000] = 1;
	free(q);
	return 0;
}
'''
    program = build(t, 'flawed', source, '-g', '-O0')
    words = ['valgrind', '--leak-check=full', '--error-exitcode=9', program]
    native = t.native(words).expect_status(9)
    run = t.under_uswap(words, ram=256 * MIB, status=9)
    check(run.stdout == native.stdout, f'{run.stdout!r}')
    for text in ('Invalid write of size 1', '1,000 bytes in 1 blocks are definitely lost'):
        check(text in native.stderr and text in run.stderr, f'no "{text}" in {tail(run.stderr, 20)}')
    named = uswap_lines(run)
    check(len(named) == 1 and 'static' in named[0], f'{named}')


# ---- programs that are not managed, among others that are ----

@case(timeout=90)
def cleared_environment_in_a_pipeline(t):
    """The parts that lost their environment run as ever; the others swap."""
    script = f'''
env -i PATH=/usr/bin:/bin sh -c 'seq 1 200000 | sort -R --random-source=/bin/sh | sort -n | tail -1' &&
{t.program("fill")} -m 96M && env -i {t.program("fill")} -m 8M | tr f F'''
    native = t.native(['sh', '-c', script])
    run = t.under_uswap(['sh', '-c', script], ram=48 * MIB)
    check(run.stdout == native.stdout and b'200000\n' in run.stdout, f'{run.stdout!r}')
    run.expect_swapped(10000)
    run.expect_right_content()
    for line in uswap_lines(run):
        check(re.search('environment|preload', line), f'{line!r}')
    check(len(set(uswap_lines(run))) == len(uswap_lines(run)), f'named twice: {run.stderr!r}')


MUSL = '''
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
	unsigned long bad = 0;
	static unsigned char *p[64];
	for (int i = 0; i < 64; i++)
		memset(p[i] = malloc(1 << 20), i + 1, 1 << 20);
	for (int i = 0; i < 64; i++)
		for (int k = 0; k < 1 << 20; k++)
			bad += p[i][k] != i + 1;
	printf("bad %lu\\n", bad);
	return 0;
}
'''


@case(timeout=60)
def musl(t):
    """Another loader: named and listed with the reason, or managed; never wrong."""
    need('musl-gcc')
    program = build(t, 'musl', MUSL, compiler='musl-gcc')
    check(t.native([program]).stdout == b'bad 0\n', 'natively')
    run = t.under_uswap([program], ram=48 * MIB)
    check(run.stdout == b'bad 0\n', f'{run.stdout!r} {run.stderr!r}')
    entry = [p for p in run.report['processes'] if p['comm'] == 'musl']
    check(len(entry) == 1, f'{run.report["processes"]}')
    if entry[0]['managed']:
        check(not run.stderr, f'{run.stderr!r}')
        run.expect_swapped(3000)
    else:
        check(len(uswap_lines(run)) == 1 and 'musl' in run.stderr, f'{run.stderr!r}')
        check(entry[0]['reason'], f'no reason: {entry}')
        t.note(entry[0]['reason'])


# Goroutines that each fill a table and check it, and garbage for the collector beside it; with an
# argument, the size, also children, whose memory is the program's until they exec.
GO = '''
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
)

const workers = 4

var each = 16000

func text(i int) []byte {
	b := make([]byte, 1200)
	for k := range b {
		b[k] = byte(i + k)
	}
	return b
}

func work(w int, out chan<- int) {
	bad := 0
	m := map[int][]byte{}
	for i := 0; i < each; i++ {
		m[i] = text(w + i)
		_ = text(i)
		if len(os.Args) > 1 && i%(each/4) == 0 && exec.Command("sh", "-c", "exit 3").Run().Error() != "exit status 3" {
			bad++
		}
	}
	runtime.GC()
	for i, b := range m {
		for k := range b {
			if b[k] != byte(w+i+k) {
				bad++
			}
		}
		delete(m, i)
	}
	out <- bad
}

func main() {
	if len(os.Args) > 1 {
		each, _ = strconv.Atoi(os.Args[1])
	}
	out := make(chan int)
	var group sync.WaitGroup
	for w := 0; w < workers; w++ {
		group.Add(1)
		go func(w int) { defer group.Done(); work(w, out) }(w)
	}
	go func() { group.Wait(); close(out) }()
	bad, done := 0, 0
	for n := range out {
		bad += n
		done++
	}
	debug.FreeOSMemory()
	fmt.Println(done, bad, len(text(0)))
}
'''
GO_SAYS = b'4 0 1200\n'


def go_program(t, name, cgo):
    # Nothing is fetched, and the packages that it imports come compiled with the compiler.
    env = dict(os.environ, CGO_ENABLED='1' if cgo else '0', GOCACHE=t.path('cache'), HOME=t.dir,
               GO111MODULE='off', GOFLAGS='')
    source = t.write(f'{name}.go', GO.replace('import (', 'import "C"\nimport (') if cgo else GO)
    done = subprocess.run([need('go'), 'build', '-o', name, source], cwd=t.dir, env=env,
                          capture_output=True, text=True)
    check(done.returncode == 0, f'go build: {tail(done.stderr)}')
    return t.path(name)


@case(timeout=60)
def go_static(t):
    """As Go links by itself: named as not managed, once; its children are managed."""
    run = t.under_uswap([go_program(t, 'gostatic', False), '16000'], ram=256 * MIB)
    check(run.stdout == GO_SAYS, f'{run.stdout!r}')
    lines = uswap_lines(run)
    check(len(lines) == 1 and 'gostatic' in lines[0] and 'static' in lines[0], f'{run.stderr!r}')
    managed = {p['comm']: p['managed'] for p in run.report['processes']}
    check(managed == {'gostatic': False, 'sh': True}, f'{managed}')


@case(timeout=120)
def go_dynamic(t):
    """With cgo it has the loader of glibc: managed. The collector gives memory back in both ways."""
    need('cc')
    program = go_program(t, 'godynamic', True)
    _, run = t.compare([program], fraction=0.65, pages_out=5000)
    check(run.stdout == GO_SAYS and not run.stderr, f'{run.stdout!r} {run.stderr!r}')
    for how in ('madvdontneed=1', 'madvdontneed=0'):
        run = t.under_uswap([program, '4000'], ram=400 * MIB, binary=t.hooks,
                            env={'USWAP_TEST': 'evict-all', 'GODEBUG': how, 'GOGC': '10'})
        check(run.stdout == GO_SAYS, f'{how}: {run.stdout!r} {run.stderr!r}')
        run.expect_swapped(2000)
        run.expect_right_content()
    check(all(p['managed'] for p in run.report['processes']), f'{run.report["processes"]}')


@case(timeout=60)
def bubblewrap(t):
    """A program that makes a user namespace, mounts and a session of its own: managed in there."""
    words = [need('bwrap'), '--unshare-user', '--unshare-pid', '--unshare-ipc', '--ro-bind', '/', '/',
             '--proc', '/proc', '--dev', '/dev', '--die-with-parent', '--new-session']
    fill = [t.program('fill'), '-m', '96M', '-p', '6']
    if t.native([*words, 'true']).status:
        raise Skip('bwrap cannot make its namespaces here')
    native, run = t.compare([*words, *fill], fraction=0.34, pages_out=15000)
    check(not uswap_lines(run), f'{run.stderr!r}')
    found = [p for p in run.report['processes'] if p['comm'] == 'fill']
    check(found and all(p['managed'] for p in found), f'fill in the report: {found}')


# ---- other places, other rights ----

def install(t, name='prefix'):
    """uswap as `make install` lays it out, where everybody can read it."""
    real = os.path.realpath(t.uswap)
    agent = next((p for p in (os.path.join(os.path.dirname(real), d, 'libuswap-agent.so')
                              for d in ('.', '../agent', '../src/agent', '../libexec/uswap'))
                  if os.path.exists(p)), None)
    if not agent:
        raise Skip('the agent of this binary is not found')
    prefix = t.path(name)
    os.makedirs(os.path.join(prefix, 'bin'))
    os.makedirs(os.path.join(prefix, 'libexec', 'uswap'))
    binary = os.path.join(prefix, 'bin', 'uswap')
    shutil.copy(real, binary)
    shutil.copy(agent, os.path.join(prefix, 'libexec', 'uswap'))
    for place, folders, files in os.walk(prefix):
        os.chmod(place, 0o755)
        for f in files:
            os.chmod(os.path.join(place, f), 0o755)
    return binary


def as_user(t, mode):
    """A command in front: a mount namespace in which /dev/userfaultfd has this mode and group
    nobody, then nobody. The device of the machine is left alone."""
    number = os.stat('/dev/userfaultfd').st_rdev
    node = t.path('node')
    os.makedirs(node, exist_ok=True)
    script = (f'mount -t tmpfs uswap-e2e {node} && mknod {node}/u c {os.major(number)} '
              f'{os.minor(number)} && chgrp 65534 {node}/u && chmod {mode} {node}/u && '
              f'mount --bind {node}/u /dev/userfaultfd && exec "$@"')
    return ['unshare', '--mount', 'sh', '-c', script, 'sh', *NOBODY]


@case(timeout=90)
def unprivileged_user(t):
    """setcap on the binary, a group on the device, as `uswap check` says; then a plain user can."""
    for name in ('setcap', 'setpriv', 'unshare', 'mknod'):
        need(name)
    if not os.path.exists('/dev/userfaultfd'):
        raise Skip('no /dev/userfaultfd')
    binary = install(t)
    env = {'XDG_RUNTIME_DIR': t.path('runtime'), 'HOME': '/'}
    # That user writes the report, too.
    for place in (t.dir, t.swap_dir, t.path('runtime')):
        os.makedirs(place, exist_ok=True)
        os.chown(place, 65534, 65534)

    def probe(mode, device, capability):
        """Says of these two, each, whether it is there, and how to get it."""
        run = t.native([*as_user(t, mode), binary, 'check'], env=env, timeout=30)
        text = run.stdout.decode()
        # With the capability userfaultfd(2) works without the device; but not in the job's programs.
        check(run.status == (0 if device and capability else 125), f'{run.status}: {text}')
        for there, name, remedy in ((device, '/dev/userfaultfd', 'chgrp 65534 /dev/userfaultfd'),
                                    (capability, 'CAP_SYS_PTRACE', f"cap_sys_ptrace+ep '{binary}'")):
            lines = text.splitlines()
            at = next(i for i, x in enumerate(lines) if re.match(rf'(ok|missing) +{name} ', x))
            check(lines[at].startswith('ok' if there else 'missing'), f'{lines[at]}')
            # Where the whole machine is a container, that is what has to be started otherwise.
            check(there or remedy in lines[at + 1] or 'docker run' in lines[at + 1], lines[at + 1])

    probe('600', False, False)
    probe('660', True, False)
    if subprocess.run(['setcap', 'cap_sys_ptrace+ep', binary], capture_output=True).returncode:
        raise Skip('this file system keeps no capabilities')
    if 'nosuid' in subprocess.run(['findmnt', '-no', 'OPTIONS', '-T', binary], capture_output=True,
                                  text=True).stdout:
        raise Skip('this file system is mounted nosuid')
    probe('600', False, True)
    probe('660', True, True)

    words = ['sh', '-c', f'id -u; grep CapEff /proc/self/status; {t.program("fill")} -m 120M & '
             f'{t.program("fill")} -m 120M; wait']
    native = t.native([*as_user(t, '660'), *words], env=env)
    run = t.under_uswap(words, ram=64 * MIB, binary=binary, prefix=as_user(t, '660'), env=env)
    check(run.stdout == native.stdout and b'CapEff:\t0000000000000000' in run.stdout,
          f'{run.stdout!r}, natively {native.stdout!r}')
    check(not run.stderr, f'{run.stderr!r}')
    run.expect_swapped(10000)
    # No real-time priority for a plain user: two programs that take both CPUs can be seen late.
    run.expect_within_budget(extra=48 * MIB)
    run.expect_right_content()
    check(os.listdir(t.path('runtime')) in ([], ['uswap']), f'{os.listdir(t.path("runtime"))}')

    # Its sockets would have an address that is cut off.
    long = t.path('x' * 60)
    os.makedirs(long)
    os.chown(long, 65534, 65534)
    run = t.start(words, ram=64 * MIB, binary=binary, prefix=as_user(t, '660'),
                  env=dict(env, XDG_RUNTIME_DIR=long)).wait(30)
    check(run.status == 125 and 'XDG_RUNTIME_DIR' in run.stderr and 'too long' in run.stderr and
          not run.stdout and not os.listdir(long), f'{run.status} {run.stderr!r} {run.stdout!r}')


# Refuses system calls with EPERM, as the default profile of a container does. ARGV[1]: their numbers.
REFUSE = '''
import ctypes, os, struct, sys
lib = ctypes.CDLL(None, use_errno=True)
numbers = [int(n) for n in sys.argv[1].split(",")]
code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]
for i, n in enumerate(numbers):
    code.append(struct.pack("=HBBI", 0x15, len(numbers) - i, 0, n))
code += [struct.pack("=HBBI", 6, 0, 0, 0x7fff0000), struct.pack("=HBBI", 6, 0, 0, 0x00050001)]
text = ctypes.create_string_buffer(b"".join(code))
prog = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code), ctypes.addressof(text)))
if lib.prctl(22, 2, prog, 0, 0):
    sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
'''
IO_URING = (425, 426, 427)
USERFAULTFD = 323
DOCKER_CAPS = ('chown', 'dac_override', 'fowner', 'fsetid', 'kill', 'setgid', 'setuid', 'setpcap',
               'net_bind_service', 'net_raw', 'sys_chroot', 'mknod', 'audit_write', 'setfcap',
               'sys_ptrace')
DOCKER_DEV = ('null', 'zero', 'full', 'random', 'urandom', 'tty')


def container(t, devices=DOCKER_DEV + ('userfaultfd',), refuse=IO_URING + (USERFAULTFD,)):
    """A command in front: namespaces and a root of its own, devices, rights and refused system
    calls as in `docker run --device /dev/userfaultfd --cap-add SYS_PTRACE`."""
    for name in ('unshare', 'setpriv', 'chroot', 'mknod'):
        need(name)
    root = t.path('root')
    os.makedirs(root, exist_ok=True)
    lines = [f'mount --rbind / {root}', f'mount -t proc proc {root}/proc',
             f'mount -t tmpfs -o mode=755 dev {root}/dev', f'mount -t tmpfs -o mode=755 run {root}/run',
             f'mkdir -m 1777 {root}/dev/shm']
    for name in devices:
        st = os.stat('/dev/' + name)
        lines.append(f'mknod -m {stat.S_IMODE(st.st_mode):o} {root}/dev/{name} c '
                     f'{os.major(st.st_rdev)} {os.minor(st.st_rdev)}')
    runner = t.write('refuse.py', REFUSE)
    caps = ','.join('+' + c for c in DOCKER_CAPS)
    lines.append(f'exec chroot {root} {sys.executable} {runner} {",".join(map(str, refuse))} '
                 f'setpriv --bounding-set=-all,{caps} --inh-caps=-all "$@"')
    return ['unshare', '--mount', '--pid', '--ipc', '--net', '--uts', '--fork', 'sh', '-c',
            ' && '.join(lines), 'sh', 'env', 'container=docker']


@case(timeout=90)
def in_a_container(t):
    """Without io_uring and userfaultfd(2), as process 1: the thread pool does the I/O."""
    if not os.path.exists('/dev/userfaultfd'):
        raise Skip('no /dev/userfaultfd')
    place = container(t)
    native = t.native([*place, t.program('fill'), '-m', '128M'])
    if 'unshare' in native.stderr or 'mount' in native.stderr:
        raise Skip(tail(native.stderr))
    native.expect_status(0)
    done = t.native([*place, t.uswap, 'check'])
    check(done.status == 0, f'check: {done.status} {tail(done.stdout.decode(), 30)}')
    check(re.search(r'missing +io_uring', done.stdout.decode()), f'{tail(done.stdout.decode(), 30)}')
    file_only = [f'file:{t.swap_dir}/swap:1G']
    for swap in (None, file_only):
        run = t.under_uswap([t.program('fill'), '-m', '128M'], ram=48 * MIB, prefix=place, swap=swap)
        check(run.stdout == native.stdout, f'{run.stdout!r}')
        run.expect_swapped(15000)
        run.expect_within_budget()
        run.expect_right_content()
        check(not run.stderr, f'{run.stderr!r}')
    check(run.vmstat('pswpout') >= 15000, f'pswpout {run.vmstat("pswpout")}')


@case(timeout=60)
def in_a_container_without_the_device(t):
    """One line that says what to do, status 125, nothing started."""
    marker = t.path('started')
    # userfaultfd(2) is no substitute: programs of the job have no right to it.
    for refused in (IO_URING + (USERFAULTFD,), IO_URING):
        place = container(t, devices=DOCKER_DEV, refuse=refused)
        probe = t.native([*place, 'true'])
        if probe.status:
            raise Skip(tail(probe.stderr))
        run = t.native([*place, t.uswap, 'run', '--', 'touch', marker])
        run.expect_status(125)
        lines = run.stderr.splitlines()
        check(len(lines) == 1 and lines[0].startswith('uswap: ') and 'userfaultfd' in lines[0],
              f'{run.stderr!r}')
        check('--device /dev/userfaultfd' in lines[0], f'{lines[0]!r}')
        check(not os.path.exists(marker), 'the command was started')
        run = t.native([*place, t.uswap, 'check']).expect_status(125)
        text = run.stdout.decode()
        check('docker run --device /dev/userfaultfd --cap-add SYS_PTRACE' in text, tail(text, 30))


class Record:
    """For comparing.cgroup, which writes down what it is about to make."""
    folders = ()

    def note(self, kind, folders):
        self.folders = folders


def memory_cgroup(t, limit):
    """A group with this limit; it is gone after the case."""
    groups = cgroup.find(System())
    # To turn the controller on is the machine's affair.
    if not groups or groups.name == 'v2' and 'memory' not in read_text(
            f'{groups.point}/cgroup.subtree_control').split():
        raise Skip('no memory controller that can be used here')
    record = Record()
    t.cleanups.append(lambda: cgroup.remove(System(), record.folders))
    try:
        return groups.make(record, limit)
    except Trouble as e:
        raise Skip(str(e)) from None


@case(timeout=90)
def in_a_memory_cgroup(t):
    """Without --ram: what the limit of the group leaves, and the group's own killer stays quiet."""
    limit = 200 * MIB
    group = memory_cgroup(t, limit)
    join = ' && '.join(f'echo $$ >{folder}/cgroup.procs' for folder in group.folders)
    inside = ['sh', '-c', f'{join} && exec "$@"', 'sh']
    text = t.native([*inside, t.uswap, 'check']).stdout.decode()
    check('200 MiB' in text, f'check does not see the limit: {tail(text, 30)}')
    words = [t.program('fill'), '-m', '384M', '-r']
    native = t.native(words)
    run = t.under_uswap(words, prefix=inside, swap=[f'file:{t.swap_dir}/swap:1G'])
    check(run.stdout == native.stdout, f'{run.stdout!r}')
    budget = run.report['ram']['limit']
    check(100 * MIB < budget <= limit * 85 // 100, f'the budget is {budget / MIB:.0f} MiB')
    run.expect_within_budget(budget)
    run.expect_swapped(50000)
    run.expect_right_content()
    check(group.oom_kills() == 0, f'{group.oom_kills()} were killed')
    t.note(f'budget {budget // MIB} MiB of {limit // MIB} MiB, peak {run.peak // MIB} MiB')
