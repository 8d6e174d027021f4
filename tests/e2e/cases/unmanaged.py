# SPDX-License-Identifier: MIT
"""Programs that cannot be managed: they run unchanged and are named, once."""
import os
import re
import shutil
import subprocess
import time

from harness import MIB, Skip, case, check, need, read_bytes


def expect_named(t, run, words, times=1):
    """Exactly `times` lines of uswap's on stderr, each with all the words."""
    lines = [x for x in run.stderr.splitlines() if x.startswith('uswap: ')]
    check(len(lines) == times, f'{len(lines)} lines of uswap on stderr, want {times}: '
                               f'{run.stderr!r}')
    for line in lines:
        for word in words:
            check(re.search(word, line, re.I), f'no {word!r} in {line!r}')


def unmanaged_entry(run, comm, reason):
    found = [p for p in run.report['processes'] if p['comm'] == comm[:15]]
    check(found and all(not p['managed'] and re.search(reason, p['reason'] or '', re.I)
                        for p in found), f'{comm} in the report: {found}')


@case()
def static_program(t):
    fill = t.program('fill-static')
    run = t.under_uswap([fill, '-m', '16M'], ram=64 * MIB)
    check(run.stdout == b'fill: pages=4096 wrong=0\n', f'{run.stdout!r}')
    expect_named(t, run, ['fill-static', 'static'])
    unmanaged_entry(run, 'fill-static', 'static')
    check(run.vmstat('exec_unmanaged') >= 1, 'exec_unmanaged is 0')


@case()
def static_program_named_once(t):
    fill = t.program('fill-static')
    run = t.under_uswap(['sh', '-c', 'for i in 1 2 3; do '
                         f'{fill} -m 1M -L & pid=$!; sleep 0.4; kill $pid; wait $pid; done; true'],
                        ram=64 * MIB)
    expect_named(t, run, ['fill-static', 'static'])


@case(timeout=60)
def many_unmanaged_children(t):
    """More children of one process than one read of its list holds: each is seen."""
    script = '''
import subprocess
kids = [subprocess.Popen(["sleep", "100"], env={}) for _ in range(700)]
print("up", flush=True)
input()
for kid in kids:
    kid.kill()
for kid in kids:
    kid.wait()
'''
    source, stop = os.pipe()
    run = t.start(['python3', '-c', script], ram=512 * MIB, stdin=os.fdopen(source, 'rb'))
    run.wait_for_output('up', 40)
    end = time.monotonic() + 15
    while True:
        listed = t.cli('ps')[1].count('sleep')
        if listed == 700 or time.monotonic() > end:
            break
        time.sleep(0.2)
    os.write(stop, b'\n')
    os.close(stop)
    run.wait(30).expect_status(0)
    run.expect_nothing_left()
    check(listed == 700, f'{listed} of 700 children are listed')


@case()
def static_program_quiet(t):
    run = t.under_uswap([t.program('fill-static'), '-m', '1M'], ram=64 * MIB, args=['-q'])
    check(run.stderr == '', f'-q, but {run.stderr!r}')


@case()
def static_program_strict(t):
    """As the command itself it is not started; started by a managed one, it is ended alone."""
    fill = t.program('fill-static')
    run = t.start([fill, '-m', '256M', '-L'], ram=64 * MIB, args=['--strict'])
    run.wait(15).expect_status(125)
    expect_named(t, run, ['fill-static', 'static'])
    run.expect_nothing_left()
    run = t.start(['sh', '-c', f'{fill} -m 1M -L; echo status $?'], ram=64 * MIB,
                  args=['--strict'])
    run.wait(15).expect_status(0)
    check(run.stdout in (b'status 137\n', b'ready\nstatus 137\n'), f'{run.stdout!r}')
    expect_named(t, run, ['fill-static', 'static'])
    run.expect_nothing_left()


@case()
def strict_with_managed_programs(t):
    run = t.under_uswap(['sh', '-c', f'{t.program("fill")} -m 96M && /bin/true'], ram=48 * MIB,
                        args=['--strict'])
    check(run.stderr == '', f'{run.stderr!r}')
    run.expect_swapped(5000)


@case()
def cleared_environment(t):
    """env -i loses the helper: managed all the same, or named."""
    fill = t.program('fill')
    # Long enough to be seen.
    run = t.under_uswap(['env', '-i', fill, '-m', '32M', '-p', '100'], ram=64 * MIB)
    check(run.stdout == b'fill: pages=8192 wrong=0\n', f'{run.stdout!r}')
    entry = [p for p in run.report['processes'] if p['comm'] == 'fill']
    check(len(entry) == 1, f'processes {run.report["processes"]}')
    if entry[0]['managed']:
        check(run.stderr == '', f'managed, but {run.stderr!r}')
    else:
        expect_named(t, run, ['fill', 'environment|preload'])
        # The command is env, which is managed: what it becomes is ended.
        run = t.start(['env', '-i', fill, '-m', '1M', '-L'], args=['--strict']).wait(15)
        run.expect_status(137)
        expect_named(t, run, ['fill', 'environment|preload', 'strict'])


@case()
def program_of_32_bits(t):
    fill = t.program('fill-32')
    run = t.under_uswap([fill, '-m', '16M'], ram=64 * MIB)
    check(run.stdout == b'fill: pages=4096 wrong=0\n', f'{run.stdout!r}')
    expect_named(t, run, ['fill-32', '32.bit'])
    unmanaged_entry(run, 'fill-32', '32.bit')


@case()
def set_id_program(t):
    """The loader ignores the preload in set-id programs."""
    fill = t.path('fill-setid')
    shutil.copy(t.program('fill'), fill)
    os.chown(fill, 65534, 65534)
    os.chmod(fill, 0o6755)
    run = t.under_uswap([fill, '-m', '16M'], ram=64 * MIB)
    check(run.stdout == b'fill: pages=4096 wrong=0\n', f'{run.stdout!r}')
    expect_named(t, run, ['fill-setid', 'set-?(u|g)?id'])
    unmanaged_entry(run, 'fill-setid', 'set-?(u|g)?id')


@case()
def preload_of_the_user(t):
    """An LD_PRELOAD that is already there keeps its place and its effect."""
    compiler = need('cc')
    # Speaks in the program only: uswap itself starts with this environment too.
    source = t.write('mine.c', '''
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
__attribute__((constructor)) static void f(void)
{
	if (!strcmp(program_invocation_short_name, "fill")) {
		fputs("mine\\n", stdout);
		fflush(stdout);
	}
}
''')
    library = t.path('mine.so')
    subprocess.run([compiler, '-shared', '-fPIC', source, '-o', library], check=True)
    run = t.under_uswap([t.program('fill'), '-m', '96M'], ram=48 * MIB,
                        env={'LD_PRELOAD': library})
    check(run.stdout == b'mine\nfill: pages=24576 wrong=0\n', f'{run.stdout!r} {run.stderr!r}')
    run.expect_swapped(5000)


@case()
def address_sanitizer(t):
    """Its runtime insists on being first among the libraries, and maps terabytes."""
    source = t.write('asan.c', '''
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
	unsigned long bad = 0;
	static unsigned char *p[96];
	for (int i = 0; i < 96; i++) {
		p[i] = malloc(1 << 20);
		memset(p[i], i + 1, 1 << 20);
	}
	for (int i = 0; i < 96; i++)
		for (int k = 0; k < 1 << 20; k++)
			bad += p[i][k] != i + 1;
	printf("bad %lu\\n", bad);
	return 0;
}
''')
    program = t.path('asan')
    done = subprocess.run([need('cc'), '-O1', '-fsanitize=address', source, '-o', program],
                          capture_output=True, text=True)
    if done.returncode:
        raise Skip('no address sanitizer here')
    env = {'ASAN_OPTIONS': 'detect_leaks=0'}
    t.native([program], env=env).expect_status(0)
    run = t.under_uswap([program], ram=64 * MIB, env=env)
    check(run.stdout == b'bad 0\n', f'{run.stdout!r} {run.stderr[-300:]!r}')
    run.expect_swapped(2000)


@case()
def seccomp_filtered_program(t):
    """A strict filter after the start: paging needs no call by the program."""
    source = t.write('strict.c', '''
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
	unsigned long n = 12ul << 20, bad = 0;
	unsigned long *p = mmap(0, n * 8, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 2;
	for (unsigned long i = 0; i < n; i++)
		p[i] = i * 7;
	for (unsigned long i = 0; i < n; i++)
		bad += p[i] != i * 7;
	if (write(1, bad ? "bad\\n" : "good\\n", bad ? 4 : 5) < 0)
		bad++;
	syscall(SYS_exit, bad != 0);
	return 0;
}
''')
    program = t.path('strict')
    subprocess.run([need('cc'), '-O1', source, '-o', program], check=True)
    check(t.native([program]).stdout == b'good\n', 'natively')
    run = t.under_uswap([program], ram=48 * MIB)
    check(run.stdout == b'good\n', f'{run.stdout!r} {run.stderr!r}')
    run.expect_swapped(5000)


@case()
def few_descriptors(t):
    """With no descriptor to spare the helper may fail to load; the program must not."""
    run = t.start(['sh', '-c', f'ulimit -n 4; exec {t.program("fill")} -m 8M'], ram=64 * MIB)
    run.wait(30).expect_status(0)
    check(b'fill: pages=2048 wrong=0\n' in run.stdout, f'{run.stdout!r} {run.stderr!r}')
    run.expect_nothing_left()


@case()
def locked_memory(t):
    """mlock'ed pages stay; the others pay for it."""
    source = t.write('locked.c', '''
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	unsigned long n = 24ul << 20, m = 96ul << 20, out = 0, bad = 0;
	static unsigned char vec[24 << 8];
	unsigned char *l = mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long *p = mmap(0, m, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(l, 5, n);
	if (mlock(l, n))
		return 2;
	for (int k = 0; k < 3; k++)
		for (unsigned long i = 0; i < m / 8; i += 8)
			p[i] = i * 3 + k;
	mincore(l, n, vec);
	for (unsigned long i = 0; i < n / 4096; i++)
		out += !(vec[i] & 1);
	for (unsigned long i = 0; i < n; i++)
		bad += l[i] != 5;
	for (unsigned long i = 0; i < m / 8; i += 8)
		bad += p[i] != i * 3 + 2;
	printf("out %lu bad %lu\\n", out, bad);
	return 0;
}
''')
    program = t.path('locked')
    subprocess.run([need('cc'), '-O1', source, '-o', program], check=True)
    run = t.under_uswap([program], ram=64 * MIB)
    check(run.stdout == b'out 0 bad 0\n', f'{run.stdout!r} {run.stderr!r}')
    run.expect_swapped(5000)


@case()
def huge_reservation(t):
    """Terabytes reserved and hardly touched cost next to nothing.

    A page alone in its 2 MiB and its GiB takes a table of each level, 8 KiB, here as in the kernel;
    a thousand of them are 8 MiB that come at once, when the memory is first registered.
    """
    script = '''
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
n = 4 << 40
p = libc.mmap(None, n, 3, 0x4022, -1, 0)   # NORESERVE
assert p != 2 ** 64 - 1
step = n // 1024
for i in range(1024):
    ctypes.memset(p + i * step, i % 251, 4096)
m = mmap.mmap(-1, 96 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block = bytes(range(256)) * 4096
for at in range(0, len(m), len(block)):
    m[at:at + len(block)] = block
bad = sum(ctypes.string_at(p + i * step, 4096) != bytes([i % 251]) * 4096 for i in range(1024))
print("bad", bad)
'''
    run = t.under_uswap([need('python3'), '-c', script], ram=64 * MIB)
    check(run.stdout == b'bad 0\n', f'{run.stdout!r} {run.stderr!r}')
    run.expect_within_budget()


@case()
def many_mappings(t):
    """At the limit of mappings no call may fail that works natively."""
    source = t.write('maps.c', '''
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	enum { N = 30000 };
	static char *p[N];
	unsigned long bad = 0, done = 0;
	for (int i = 0; i < N; i++) {
		p[i] = mmap(0, 8192, i & 1 ? 3 : 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p[i] == MAP_FAILED)
			break;
		p[i][0] = i;
		p[i][4096] = i + 1;
		done++;
	}
	char *m = mmap(0, 96 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* Slowly at first: to read a list of so many mappings takes tenths of a second. */
	for (long i = 0; i < 96 << 20; i += 4096) {
		*(long *)(m + i) = i >> 12;
		if (i % (1 << 20) == 0)
			usleep(25000);
	}
	for (long i = 0; i < 96 << 20; i += 4096)
		*(long *)(m + i) = i >> 12;
	for (int i = 0; i < 96; i += 8)
		if (mprotect(m + (i << 20), 1 << 20, PROT_READ))
			bad++;
	for (long i = 0; i < 96 << 20; i += 4096)
		bad += *(long *)(m + i) != i >> 12;
	for (unsigned long i = 0; i < done; i++)
		bad += p[i][0] != (char)i || p[i][4096] != (char)(i + 1);
	printf("mapped %lu bad %lu\\n", done, bad);
	return 0;
}
''')
    program = t.path('maps')
    subprocess.run([need('cc'), '-O1', source, '-o', program], check=True)
    native = t.native([program])
    # The small mappings are not managed: 234 MiB that stay; so do the 12 MiB made read-only.
    run = t.under_uswap([program], ram=290 * MIB)
    check(run.stdout == native.stdout, f'{run.stdout!r}, natively {native.stdout!r}')
    run.expect_within_budget()
    run.expect_swapped(3000)


@case()
def guard_pages(t):
    """Guard markers stay guards: SIGSEGV as natively, also around evicted pages."""
    source = t.write('guard.c', '''
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
static sigjmp_buf back;
static void on_segv(int s) { siglongjmp(back, 1); }
int main(void)
{
	unsigned long n = 96ul << 20, segv = 0, bad = 0, guards = 0;
	char *p = mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	signal(SIGSEGV, on_segv);
	for (unsigned long i = 0; i < n; i += 4096)
		*(unsigned long *)(p + i) = i + 1;
	for (unsigned long i = 0; i < n; i += 64 * 4096, guards++)
		if (madvise(p + i, 4096, 102)) {
			puts("none");
			return 0;
		}
	for (volatile int k = 0; k < 2; k++)
		for (volatile unsigned long i = 0; i < n; i += 4096) {
			if (sigsetjmp(back, 1)) {
				segv++;
				continue;
			}
			unsigned long v = *(volatile unsigned long *)(p + i);
			bad += v != i + 1 || i % (64 * 4096) == 0;
		}
	printf("guards %lu segv %lu bad %lu\\n", guards, segv, bad);
	return 0;
}
''')
    program = t.path('guard')
    subprocess.run([need('cc'), '-O0', source, '-o', program], check=True)
    native = t.native([program])
    if native.stdout == b'none\n':
        raise Skip('no guard regions in this kernel')
    run = t.under_uswap([program], ram=48 * MIB)
    check(run.stdout == native.stdout, f'{run.stdout!r}, natively {native.stdout!r}')
    run.expect_swapped(5000)


@case(timeout=120)
def direct_io_that_pins_nothing(t):
    """A file that is open with O_DIRECT on NFS and the like (here: this file system, taken for one)."""
    fs = subprocess.run(['findmnt', '-no', 'FSTYPE', '-T', t.dir], capture_output=True,
                        text=True).stdout.strip()
    path = t.write('data', os.urandom(MIB))
    script = f'''
import ctypes, mmap, os, sys, time
lib = ctypes.CDLL(None)
m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def resident():
    vec = (ctypes.c_ubyte * 2048)()
    start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))
    assert lib.mincore(start, ctypes.c_size_t(len(m)), vec) == 0
    return sum(v & 1 for v in vec)
fd = os.open({path!r}, os.O_RDONLY | (os.O_DIRECT if sys.argv[1] == "direct" else 0))
for at in range(0, len(m), 4096):
    m[at:at + 8] = (at + 1).to_bytes(8, "big")
time.sleep(1)
during = resident()
os.close(fd)
time.sleep(1)
print(during, resident())
for at in range(0, len(m), 4096):
    assert m[at:at + 8] == (at + 1).to_bytes(8, "big")
'''
    for how in ('direct', 'buffered'):
        run = t.under_uswap(['python3', '-c', script, how], ram=256 * MIB, binary=t.hooks,
                            env={'USWAP_TEST': f'evict-all,direct-fs={fs}'})
        during, after = (int(n) for n in run.stdout.split())
        t.note(f'{how}: of 2048 pages {during} resident while it is open, {after} after')
        check(during == 2048 if how == 'direct' else during < 400, f'{how}: {during} resident')
        check(after < 400, f'{how}: {after} resident after it was closed')
        check(('O_DIRECT' in run.stderr) == (how == 'direct'), f'{how}: {run.stderr!r}')


@case()
def direct_io(t):
    """O_DIRECT reads and writes of pages that are being evicted."""
    data = os.urandom(8 * MIB)
    path = t.write('data', data)
    script = f'''
import hashlib, mmap, os
fd = os.open({path!r}, os.O_RDONLY | os.O_DIRECT)
out = os.open({t.path("copy")!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
bufs = []
for k in range(12):
    m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 8 << 20, 1 << 20):
        assert os.preadv(fd, [memoryview(m)[at:at + (1 << 20)]], at) == 1 << 20
    bufs.append(m)
print([hashlib.sha256(m).hexdigest() for m in bufs])
for at in range(0, 8 << 20, 1 << 20):
    assert os.pwritev(out, [memoryview(bufs[0])[at:at + (1 << 20)]], at) == 1 << 20
'''
    native = t.native(['python3', '-c', script])
    if native.status:
        raise Skip(f'no direct I/O here: {native.stderr[-100:]}')
    os.unlink(t.path('copy'))
    run = t.under_uswap(['python3', '-c', script], ram=48 * MIB)
    check(run.stdout == native.stdout, f'{run.stdout!r}')
    check(read_bytes(t.path('copy')) == data, 'what was written differs')
    run.expect_swapped(5000)
