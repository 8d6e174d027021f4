# SPDX-License-Identifier: MIT
"""Real programs, natively and in a part of the memory they want: same output, bounded memory.

A program that streams gets a quarter to a third of its native peak, one that hops at random 60 to
70 %: less would measure the disk's patience and nothing else.
"""
import hashlib
import os
import random
import socket
import subprocess
import time

from harness import MIB, Failure, case, check, in_time, need, read_bytes, read_text, tail

PYTHON_DICT = '''
import hashlib
d = {f"key-{i:07d}": f"value-{i * 7919 % 1000003:010d}" for i in range(700000)}
h = hashlib.sha256()
for k, v in d.items():
    h.update(v.encode())
x, hits = 1, 0
for i in range(100000):
    x = (x * 6364136223846793005 + 1442695040888963407) % 2 ** 64
    k = x >> 44
    if k < 700000:
        hits += d[f"key-{k:07d}"] == f"value-{k * 7919 % 1000003:010d}"
for i in range(0, 700000, 3):
    del d[f"key-{i:07d}"]
print(len(d), hits, h.hexdigest(), sum(len(v) for v in d.values()))
'''


@case(timeout=150, soak=True)
def python_dict(t):
    """Hundreds of thousands of strings in a dictionary."""
    t.compare([need('python3'), '-c', PYTHON_DICT], fraction=0.65, pages_out=15000)


PYTHON_FORK = '''
import hashlib, multiprocessing, random
random.seed(5)
blocks = [bytearray(random.randbytes(1 << 20) * 16) for _ in range(12)]

def work(k):
    before = hashlib.sha256(blocks[k]).hexdigest()
    blocks[k][::4096] = bytes([k]) * len(blocks[k][::4096])    # a copy of its own
    mine = bytes(blocks[k])
    return before, hashlib.sha256(mine).hexdigest()

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3) as pool:
        for line in pool.map(work, range(12), chunksize=1):
            print(*line)
    for b in blocks:
        print(hashlib.sha256(b).hexdigest())
'''


@case(timeout=150, soak=True)
def python_multiprocessing(t):
    """Workers made by fork read what they inherited and write their own copies."""
    # README, limits: pages that become private after a fork send no fault that could wait, and
    # three workers make them so as fast as memory is copied.
    _, run = t.compare([need('python3'), t.write('work.py', PYTHON_FORK)], fraction=0.45,
                       pages_out=8000, extra=24 * MIB)
    check(run.vmstat('uffd_fork') >= 3, f'uffd_fork {run.vmstat("uffd_fork")}')


def text_file(t, megabytes, seed=1):
    """Lines of words and numbers, in no order."""
    path = t.path(f'text-{megabytes}')
    rng = random.Random(seed)
    words = [''.join(rng.choice('abcdefghijklmnopqrstuvwxyz') for _ in range(rng.randrange(3, 12)))
             for _ in range(5000)]
    lines = [f'{rng.getrandbits(40):010x} {rng.choice(words)} {rng.choice(words)} '
             f'{rng.choice(words)}\n' for _ in range(60000)]
    block_size = sum(map(len, lines))
    with open(path, 'w') as f:
        for k in range(max(1, megabytes * MIB // block_size)):
            rng.shuffle(lines)
            f.write(''.join(f'{(i * 2654435761 + k * 40503) & 0xffffff:06x} {line}'
                            for i, line in enumerate(lines)))
    return path


@case(timeout=180, soak=True)
def sort_with_a_large_buffer(t):
    """A buffer larger than the budget: sort is told that it has the memory."""
    text = text_file(t, 48)
    native, run = t.compare([need('sort'), '-S', '128M', '--parallel=2', '-T', t.dir, text],
                            fraction=0.66, pages_out=15000)
    check(run.job['ram'] < 128 * MIB, 'the budget is larger than the buffer')


class Redis:
    """A client of redis that knows just enough."""

    def __init__(self, t, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.buffer = b''

    @staticmethod
    def encode(*words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words)

    def line(self):
        while b'\r\n' not in self.buffer:
            data = self.sock.recv(1 << 16)
            if not data:
                raise Failure('redis closed the connection')
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b'\r\n')
        return line

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b'-':
            raise Failure(f'redis: {rest.decode()}')
        if kind in b'+:':
            return rest
        n = int(rest)
        if kind == b'*':
            return [self.reply() for _ in range(n)]
        if n < 0:
            return None
        while len(self.buffer) < n + 2:
            data = self.sock.recv(1 << 20)
            if not data:
                raise Failure('redis closed the connection')
            self.buffer += data
        value, self.buffer = self.buffer[:n], self.buffer[n + 2:]
        return value

    def call(self, *words):
        self.sock.sendall(self.encode(*words))
        return self.reply()

    def pipeline(self, commands, batch=500):
        replies = []
        for at in range(0, len(commands), batch):
            part = commands[at:at + batch]
            self.sock.sendall(b''.join(self.encode(*c) for c in part))
            replies += [self.reply() for _ in part]
        return replies

    def info(self, name):
        for line in self.call('INFO').decode().splitlines():
            if line.startswith(name + ':'):
                return line.split(':', 1)[1]
        return None


REDIS_KEYS = 80000


def redis_value(i):
    return (hashlib.md5(str(i).encode()).hexdigest() * (4 + i % 40)).encode()


def redis_server(t, start, label):
    """start: t.native or t.start. Returns the run and a client."""
    path = t.path(f'{label}.sock')
    words = [need('redis-server'), '--port', '0', '--unixsocket', path, '--save', '',
             '--dir', t.dir, '--dbfilename', 'dump.rdb', '--appendonly', 'no', '--loglevel',
             'warning', '--enable-debug-command', 'yes']
    run = start(words)
    end = time.monotonic() + 90
    while True:
        try:
            client = Redis(t, path)
            if client.call('PING') == b'PONG':
                return run, client, path
        except (OSError, Failure):
            pass
        check(run.proc.poll() is None, f'redis ended: {tail(run.stderr)} {tail(run.stdout.decode())}')
        in_time(time.monotonic() < end, 'redis does not answer')
        time.sleep(0.1)


def redis_fill(client):
    client.pipeline([('SET', f'own:{i}', redis_value(i)) for i in range(REDIS_KEYS)])
    client.pipeline([('RPUSH', f'list:{i % 500}', f'item-{i}') for i in range(50000)])
    client.pipeline([('ZADD', f'set:{i % 100}', i, f'member-{i}') for i in range(50000)])


def resident(pid):
    """Bytes; from the kernel, as a client that is busy may keep the sampler from its samples."""
    for line in read_text(f'/proc/{pid}/status').splitlines():
        if line.startswith('RssAnon:'):
            return int(line.split()[1]) * 1024
    raise Failure(f'{pid} has ended')


def redis_check(client):
    for at in range(0, REDIS_KEYS, 500):
        keys = [f'own:{i}' for i in range(at, at + 500)]
        for i, value in zip(range(at, at + 500), client.call('MGET', *keys)):
            check(value == redis_value(i), f'key own:{i} has {value!r}')


def redis_stop(run, client):
    try:
        client.call('SHUTDOWN', 'NOSAVE')
    except (Failure, OSError):
        pass
    run.wait(30)


@case(timeout=240)
def redis(t):
    """Load, benchmark, save by fork while it is used, and a reload that has every key."""
    benchmark = need('redis-benchmark')
    run, client, path = redis_server(t, lambda w: t.native(w, wait=False), 'native')
    start = time.monotonic()
    redis_fill(client)
    native_time = time.monotonic() - start
    digest = client.call('DEBUG', 'DIGEST')
    ram = int(resident(run.proc.pid) * 0.75) // MIB * MIB
    redis_stop(run, client)

    def managed(words):
        return t.start(words, ram=ram)

    run, client, path = redis_server(t, managed, 'first')
    start = time.monotonic()
    redis_fill(client)
    own_time = time.monotonic() - start
    check(client.call('DEBUG', 'DIGEST') == digest, 'the digest after loading differs')
    done = subprocess.run([benchmark, '-s', path, '-q', '-t', 'set,get,incr,lpush', '-n', '30000',
                           '-r', '20000', '-d', '300', '-P', '16'], capture_output=True, text=True,
                          timeout=100)
    check(done.returncode == 0 and 'SET' in done.stdout and 'rror' not in done.stderr,
          f'redis-benchmark: {done.returncode} {tail(done.stderr)}')
    # Saved while it is written to: the child sees the state at the fork.
    before = client.call('DEBUG', 'DIGEST')
    check(b'started' in client.call('BGSAVE'), 'BGSAVE')
    client.pipeline([('SET', f'late:{i}', redis_value(i)) for i in range(20000)])
    end = time.monotonic() + 60
    while client.info('rdb_bgsave_in_progress') != '0':
        in_time(time.monotonic() < end, 'BGSAVE takes too long')
        time.sleep(0.1)
    check(client.info('rdb_last_bgsave_status') == 'ok', 'BGSAVE failed')
    client.pipeline([('DEL', f'late:{i}') for i in range(20000)])
    check(client.call('DEBUG', 'DIGEST') == before, 'the digest after BGSAVE differs')
    redis_check(client)
    redis_stop(run, client)
    run.expect_nothing_left()
    out, back = run.expect_swapped(15000)
    run.expect_within_budget()
    run.expect_right_content()
    check(run.vmstat('uffd_fork') >= 1, 'no fork was seen')
    peak = run.peak
    # Loaded again, under uswap.
    run, client, path = redis_server(t, managed, 'second')
    check(client.call('DEBUG', 'DIGEST') == before, 'the digest after the reload differs')
    redis_check(client)
    redis_stop(run, client)
    run.expect_nothing_left()
    run.expect_right_content()
    t.note(f'loading: native {native_time:.1f} s, in {ram // MIB} MiB {own_time:.1f} s, '
           f'peak {peak // MIB} MiB, {out} pages out, {back} in')


SQL = '''
PRAGMA cache_size=-2000;
CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v TEXT, n INTEGER);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 350000)
INSERT INTO t SELECT i, printf('%08x', i * 2654435761 % 4294967296),
  printf('row %d of many, with text that makes it longer: %x', i, i * 40503 % 65536),
  i * 7919 % 100003 FROM c;
CREATE INDEX by_k ON t(k);
PRAGMA integrity_check;
SELECT count(*), sum(n), min(k), max(k) FROM t;
SELECT n % 10, count(*), sum(length(v)) FROM t GROUP BY 1 ORDER BY 1;
UPDATE t SET v = v || '!' WHERE id % 7 = 0;
DELETE FROM t WHERE id % 11 = 0;
PRAGMA integrity_check;
SELECT count(*), sum(length(v)) FROM t;
SELECT group_concat(k, ' ') FROM (SELECT k FROM t ORDER BY k LIMIT 50);
'''


@case(timeout=150)
def sqlite_in_memory(t):
    native, run = t.compare([need('sqlite3'), ':memory:'], stdin=t.write('in.sql', SQL),
                            fraction=0.65, pages_out=8000)
    check(run.stdout.count(b'ok\n') == 2, f'integrity_check: {run.stdout[:200]!r}')


def large_source(t, functions=450):
    path = t.path('large.c')
    with open(path, 'w') as f:
        f.write('typedef unsigned long u;\nextern u sink(u, u);\n')
        for k in range(functions):
            f.write(f'struct s{k} {{ u a, b, c; char d[{k % 61 + 3}]; }};\n'
                    f'u f{k}(struct s{k} *p, u x, u n)\n{{\n\tu r = x + {k};\n')
            for i in range(12):
                f.write(f'\tfor (u i{i} = 0; i{i} < n; i{i}++)\n'
                        f'\t\tr = (r ^ p[i{i}].{"abc"[i % 3]}) * {2 * (k * 31 + i) + 1}u + '
                        f'(r >> {i + 1}) + p[i{i}].d[{i % 3}];\n'
                        f'\tif (r % {i + 3} == 0)\n\t\tr += sink(r, {k * 17 + i});\n')
            f.write('\treturn r;\n}\n')
    return path


@case(timeout=200)
def gcc(t):
    """One very large translation unit: the object must be the same to the byte."""
    obj = t.path('large.o')
    source = large_source(t)

    def digest():
        data = read_bytes(obj)
        check(len(data) > 100000, 'no object file')
        os.unlink(obj)
        return hashlib.sha256(data).hexdigest()

    t.compare([need('gcc'), '-O0', '-g', '-c', source, '-o', obj], fraction=0.7, pages_out=4000,
              after=digest)


@case(timeout=200)
def pipeline(t):
    """Several at once, in one pipeline and one budget."""
    for program in ('python3', 'sort', 'sqlite3', 'gzip'):
        need(program)
    t.write('produce.py', '''
import sys
rows = [f"{i * 2654435761 % 4294967296:08x},{i},{'x' * (i % 50)}" for i in range(300000)]
for r in rows:
    print(r)
''')
    t.write('hold.py', '''
import sys
rows = sys.stdin.readlines()
assert rows == sorted(rows)
sys.stdout.writelines(rows)
''')
    script = '''
python3 produce.py | sort -S 120M --parallel=1 | python3 hold.py | gzip -1 | gzip -dc > sorted.csv &&
sha256sum < sorted.csv &&
sqlite3 :memory: 'CREATE TABLE t(k, i, x);' '.mode csv' '.import sorted.csv t' \\
  'CREATE INDEX a ON t(i);' 'PRAGMA integrity_check;' 'SELECT count(*), min(k), max(k) FROM t;' \\
  'SELECT sum(length(x)) FROM t WHERE CAST(i AS INTEGER) % 3 = 0;'
'''
    native, run = t.compare(['sh', '-c', script], fraction=0.6, pages_out=8000)
    check(b'ok\n' in run.stdout and b'300000,' in run.stdout, f'{run.stdout!r}')


NO_POPULATE = '''
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *p, size_t n, int advice)
{
	if (advice == 22 || advice == 23) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_madvise, p, n, advice);
}
'''


@case(timeout=150)
def stress_ng(t):
    """Its own patterns and its own verification, in a third of what it maps.

    It populates its whole mapping again and again (MADV_POPULATE_READ): the kernel brings all of
    it in within one call, which nothing from outside can hold back. So the budget is looked at
    where that advice is unknown, as in kernels before 5.14; the content in both.
    """
    words = [need('stress-ng'), '--vm', '2', '--vm-bytes', '192M', '--vm-keep', '--verify',
             '--timeout', '6', '--metrics-brief']
    library = t.path('no-populate.so')
    subprocess.run([need('cc'), '-shared', '-fPIC', t.write('no-populate.c', NO_POPULATE), '-o',
                    library], check=True)
    for env in ({}, {'LD_PRELOAD': library}):
        run = t.under_uswap(words, ram=72 * MIB, timeout=60, env=env)
        text = run.stderr.lower() + run.stdout.decode().lower().replace('failed: 0', '')
        check('fail' not in text, f'{tail(run.stderr)} {tail(run.stdout.decode())}')
        # Many of its pages are alike, and those are kept once.
        v = run.report['vmstat']
        out = sum(v[n] for n in ('pswpout', 'zswpout', 'swpout_zero', 'swpout_shared',
                                 'swpout_unchanged'))
        check(out >= 15000, f'only {out} pages went out')
        run.expect_right_content()
        t.note(f'{"without populate: " if env else ""}{out} pages out, '
               f'peak {run.peak // MIB} MiB')
    run.expect_within_budget()


@case(timeout=90)
def streaming(t):
    """A walk over four times the budget, by two threads."""
    native, run = t.compare([t.program('fill'), '-m', '384M', '-t', '2', '-p', '2'], fraction=0.25,
                            pages_out=60000)
    t.note(f'{run.elapsed / native.elapsed:.1f} x native')


@case(timeout=90)
def random_order(t):
    native, run = t.compare([t.program('fill'), '-m', '160M', '-R'], fraction=0.65,
                            pages_out=10000)
    t.note(f'{run.elapsed / native.elapsed:.1f} x native')


@case(timeout=90)
def huge_pages(t):
    """MADV_HUGEPAGE: large folios go out and come back."""
    t.compare([t.program('fill'), '-m', '256M', '-H', '-p', '2'], fraction=0.35, pages_out=30000)


@case(timeout=60)
def fits(t):
    """What fits is left alone: nothing is registered, no fault is taken."""
    run = t.under_uswap([t.program('fill'), '-m', '128M', '-p', '3'], ram=512 * MIB)
    check(run.stdout == b'fill: pages=32768 wrong=0\n', f'{run.stdout!r}')
    v = run.report['vmstat']
    check(v['uffd_register'] == 0 and v['pgfault'] == 0 and v['zswpout'] + v['pswpout'] == 0,
          f'registered {v["uffd_register"]}, faults {v["pgfault"]}')


@case(timeout=200, soak=True)
def java(t):
    """A collector that walks its heap."""
    need('java')
    need('javac')
    t.write('Heap.java', '''
import java.util.*;
public class Heap {
    public static void main(String[] a) {
        Map<Integer, byte[]> m = new HashMap<>();
        Random r = new Random(3);
        long sum = 0;
        for (int i = 0; i < 400000; i++) {
            byte[] b = new byte[400];
            Arrays.fill(b, (byte) i);
            m.put(r.nextInt(500000), b);
        }
        for (Map.Entry<Integer, byte[]> e : new TreeMap<>(m).entrySet())
            sum = sum * 31 + e.getKey() + e.getValue()[200];
        System.out.println(m.size() + " " + sum);
    }
}
''')
    subprocess.run(['javac', 'Heap.java'], cwd=t.dir, check=True)
    t.compare(['java', '-XX:+UseSerialGC', '-Xms320m', '-Xmx320m', '-cp', t.dir, 'Heap'],
              fraction=0.65, pages_out=8000)


@case(timeout=900, soak=True)
def stress_ng_methods(t):
    """Every method of its vm stressor, for long, tight."""
    run = t.under_uswap([need('stress-ng'), '--vm', '3', '--vm-bytes', '512M', '--vm-method', 'all',
                         '--verify', '--timeout', '300'], ram=160 * MIB, timeout=800)
    check('fail' not in run.stderr.lower(), tail(run.stderr))
    run.expect_swapped(100000)
    run.expect_within_budget()
