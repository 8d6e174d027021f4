# SPDX-License-Identifier: MIT
"""More real programs: interpreters, collectors, compressors, compilers, servers, stress-ng.

As in `programs`: what streams gets a quarter to a third of its native peak, what hops 60 to 70 %.
"""
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import threading
import time

from harness import (MIB, Skip, all_processes, case, check, in_time, need, read_bytes, read_text,
                     tail)


# ---- runtimes that collect garbage ----

HEAP = '''
import java.util.*;
public class Heap {
    public static void main(String[] a) {
        Map<Integer, byte[]> m = new HashMap<>();
        Random r = new Random(3);
        long sum = 0;
        int bad = 0;
        for (int i = 0; i < 100000; i++) {
            byte[] b = new byte[400];
            int k = r.nextInt(80000);
            Arrays.fill(b, (byte) k);
            m.put(k, b);
        }
        for (Map.Entry<Integer, byte[]> e : new TreeMap<>(m).entrySet()) {
            sum = sum * 31 + e.getKey() + e.getValue()[200];
            for (byte x : e.getValue())
                if (x != (byte) (int) e.getKey())
                    bad++;
        }
        System.out.println(m.size() + " " + sum + " " + bad);
    }
}
'''


def java(t, collector):
    need('java')
    t.write('Heap.java', HEAP)
    subprocess.run([need('javac'), 'Heap.java'], cwd=t.dir, check=True)
    _, run = t.compare(['java', collector, '-Xms128m', '-Xmx128m', '-XX:-UsePerfData', '-cp', t.dir,
                        'Heap'], fraction=0.6, pages_out=4000)
    check(run.stdout.endswith(b' 0\n'), f'{run.stdout!r}')


@case(timeout=120)
def java_g1(t):
    java(t, '-XX:+UseG1GC')


@case(timeout=120, soak=True)
def java_parallel(t):
    java(t, '-XX:+UseParallelGC')


NODE = '''
const crypto = require('crypto');
const m = new Map();
for (let i = 0; i < 220000; i++)
  m.set('key-' + i, { n: i, text: 'value ' + (i * 7919 % 1000003), list: [i, i + 1, i + 2] });
for (let i = 0; i < 220000; i += 3)
  m.delete('key-' + i);
let bad = 0, buffers = [];
for (let i = 0; i < 40; i++)
  buffers.push(Buffer.alloc(1 << 20, i + 1));
for (const [k, v] of m)
  bad += k !== 'key-' + v.n || v.list[2] !== v.n + 2 || v.text !== 'value ' + (v.n * 7919 % 1000003);
const h = crypto.createHash('sha256');
for (const b of buffers)
  h.update(b);
const o = JSON.parse(JSON.stringify([...m.values()].slice(0, 50000)));
console.log(m.size, bad, o.length, o[777].text, h.digest('hex'));
'''


@case(timeout=120)
def node(t):
    _, run = t.compare([need('node'), t.write('work.js', NODE)], fraction=0.7, pages_out=5000)
    check(b' 0 50000 ' in run.stdout, f'{run.stdout!r}')


PERL = '''
use strict; use Digest::SHA qw(sha256_hex);
my (%d, $hits); my @a;
$d{sprintf "key-%07d", $_} = sprintf "value-%010d", $_ * 7919 % 1000003 for 0 .. 119999;
push @a, { n => $_, t => "t" x ($_ % 90) } for 0 .. 39999;
delete $d{sprintf "key-%07d", $_ * 3} for 0 .. 39999;
$hits += $d{$_} eq sprintf("value-%010d", substr($_, 4) * 7919 % 1000003) for keys %d;
my $bad = grep { length($a[$_]{t}) != $a[$_]{n} % 90 } 0 .. $#a;
print scalar(keys %d), " $hits $bad ", sha256_hex(join "", map { $d{$_} } sort keys %d), "\\n";
'''


@case(timeout=120, soak=True)
def perl(t):
    _, run = t.compare([need('perl'), t.write('work.pl', PERL)], fraction=0.65, pages_out=5000)
    check(run.stdout.startswith(b'80000 80000 0 '), f'{run.stdout!r}')


RUBY = '''
require 'digest'
d = {}
120000.times { |i| d["key-%07d" % i] = ["value-#{i * 7919 % 1000003}", i] }
(0...120000).step(3) { |i| d.delete("key-%07d" % i) }
GC.start
bad = d.count { |k, v| k != "key-%07d" % v[1] || v[0] != "value-#{v[1] * 7919 % 1000003}" }
child = fork { d.each_value { |v| v[1] += 1 }; exit!(d.all? { |k, v| k.sub("key-", "").to_i + 1 == v[1] }) }
Process.wait(child)
puts "#{d.size} #{bad} #{$?.success?} #{Digest::SHA256.hexdigest(d.values.map(&:first).join)}"
'''


@case(timeout=120, soak=True)
def ruby(t):
    """A table of strings, two collections, and a child that changes its copy."""
    _, run = t.compare([need('ruby'), t.write('work.rb', RUBY)], fraction=0.65, pages_out=5000,
                       extra=24 * MIB)
    check(b' 0 true ' in run.stdout, f'{run.stdout!r}')


# Of python's own tests: those that end soon, and see neither the network nor how fast time goes.
PYTHON_TESTS = ('test_dict', 'test_list', 'test_zlib', 'test_struct', 'test_heapq', 'test_bisect',
                'test_memoryview', 'test_binascii', 'test_mmap', 'test_frozen', 'test_array',
                'test_memoryio', 'test_deque', 'test_lzma')
# With everything evicted: children, threads, collectors, files, and much that is made and dropped.
PYTHON_TESTS_EVICTED = (
    'test_set', 'test_unicode', 'test_bytes', 'test_tuple', 'test_re', 'test_json', 'test_pickle',
    'test_copy', 'test_collections', 'test_functools', 'test_long', 'test_fractions', 'test_base64',
    'test_csv', 'test_difflib', 'test_ast', 'test_grammar', 'test_generators', 'test_weakref',
    'test_gc', 'test_thread', 'test_fork1', 'test_shelve', 'test_sqlite3', 'test_minidom',
    'test_descr', 'test_exceptions', 'test_dataclasses', 'test_enum', 'test_queue')


def python_words(names):
    python = need('python3')
    script = 'import test, os; print(os.path.dirname(test.__file__))'
    done = subprocess.run([python, '-c', script], capture_output=True, text=True)
    there = [n for n in names
             if os.path.exists(f'{done.stdout.strip()}/{n}.py')
             or os.path.isdir(f'{done.stdout.strip()}/{n}')]
    if len(there) < 12:
        raise Skip("python3's own tests are not installed")
    return [python, '-m', 'test', '-q', *there], len(there)


@case(timeout=120, soak=True)
def python_tests(t):
    """Its own tests in two thirds of the memory."""
    words, nr = python_words(PYTHON_TESTS)
    native = t.native(words)
    if native.status:
        raise Skip(f'they fail natively: {tail(native.stdout.decode())}')
    native.sampler.finish()
    run = t.under_uswap(words, ram=max(32 * MIB, int(native.peak * 0.66)))
    check(b'SUCCESS' in run.stdout, f'{tail(run.stdout.decode(), 8)}')
    run.expect_swapped(5000)
    run.expect_right_content()
    t.note(f'{nr} modules: native {native.elapsed:.1f} s {native.peak // MIB} MiB, '
           f'in {run.job["ram"] // MIB} MiB {run.elapsed:.1f} s')


@case(timeout=900, soak=True)
def python_tests_evicted(t):
    """Each module by itself, so that what fails has a name: as natively, or it is left out."""
    words, nr = python_words(PYTHON_TESTS_EVICTED)
    left_out, pages = [], 0
    for module in words[4:]:
        one = [*words[:4], module]
        if t.native(one).status:
            left_out.append(module)
            continue
        run = t.under_uswap(one, ram=600 * MIB, binary=t.hooks, env={'USWAP_TEST': 'evict-all'},
                            timeout=240)
        check(b'SUCCESS' in run.stdout, f'{module}: {tail(run.stdout.decode(), 8)}')
        run.expect_right_content()
        pages += run.vmstat('pgsteal_kswapd')
    check(nr - len(left_out) >= 12, f'they fail natively: {left_out}')
    check(pages > 100000, f'only {pages} pages were evicted: it shows nothing')
    t.note(f'{nr - len(left_out)} modules, {pages} pages evicted; natively wrong: {left_out}')


# ---- compressors ----

def mixed_data(t, megabytes):
    """Compresses, but not well."""
    path = t.path('data')
    with open(path, 'wb') as f:
        for i in range(megabytes * 8):
            random = b''.join(hashlib.sha256(b'%d %d' % (i, k)).digest() for k in range(1024))
            f.write((random + random.hex().encode() + bytes(32768))[:131072])
    return path


@case(timeout=120, soak=True)
def xz(t):
    """-9 and back. Its dictionary is hopped over at random."""
    data = mixed_data(t, 2)
    script = (f'xz -9 -T1 -c {data} >{t.path("x")} && sha256sum <{t.path("x")} && '
              f'xz -dc {t.path("x")} | cmp - {data}')
    need('xz')
    t.compare(['sh', '-c', script], fraction=0.7, pages_out=4000)


@case(timeout=120)
def zstd(t):
    """-19 with a window as large as the data, and back. Its tables are made small: what they find
    is far back in the window, not all over them."""
    path = t.path('data')
    blocks = [os.urandom(65536) for _ in range(40)]
    with open(path, 'wb') as f:
        for i in range(400):
            if i % 4 == 0:
                blocks[i // 4 % 40] = os.urandom(2048) * 8 + blocks[i // 4 % 40][16384:]
            f.write(blocks[i * 7 % 40])
    need('zstd')
    out = t.path('x')
    script = (f'zstd -q -19 --zstd=wlog=25,hlog=17,clog=17,slog=3,tlen=64 -T1 -c {path} >{out} && '
              f'sha256sum <{out} && zstd -q --long=25 -dc {out} | cmp - {path}')
    t.compare(['sh', '-c', script], fraction=0.6, pages_out=4000)


# ---- compilers ----

TEMPLATES = '''
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct fib { static constexpr long v = fib<N - 1>::v + fib<N - 2>::v; };
template <> struct fib<0> { static constexpr long v = 0; };
template <> struct fib<1> { static constexpr long v = 1; };
template <int N> struct item { std::string s[N % 5 + 1]; long n = fib<N>::v; };
'''


def template_source(t, kinds=2):
    text = TEMPLATES
    for k in range(2, kinds + 2):
        text += (f'long f{k}(int n)\n{{\n\tstd::map<int, std::vector<item<{k}>>> m;\n'
                 f'\tstd::unordered_map<std::string, std::variant<int, item<{k}>, std::string>> u;\n'
                 f'\tstd::vector<std::shared_ptr<item<{k}>>> v;\n'
                 f'\tfor (int i = 0; i < n; i++) {{\n\t\tm[i].emplace_back();\n'
                 f'\t\tu[std::to_string(i)] = item<{k}>{{}};\n'
                 f'\t\tv.push_back(std::make_shared<item<{k}>>());\n\t}}\n'
                 f'\tstd::sort(v.begin(), v.end(), [](auto &a, auto &b) {{ return a->n < b->n; }});\n'
                 f'\tstd::function<long(long)> g = [&](long x) {{ return x + (long)m.size() + {k}; }};\n'
                 f'\treturn g((long)u.size()) + v.front()->n;\n}}\n')
    return t.write('templates.cc', text)


@case(timeout=150, soak=True)
def gxx(t):
    """Templates: the object must be the same to the byte."""
    obj = t.path('templates.o')

    def digest():
        data = read_bytes(obj)
        check(len(data) > 100000, 'no object file')
        os.unlink(obj)
        return hashlib.sha256(data).hexdigest()

    t.compare([need('g++'), '-std=c++17', '-O0', '-c', template_source(t), '-o', obj], fraction=0.65,
              pages_out=4000, after=digest)


@case(timeout=150, soak=True)
def make_parallel(t):
    """A C project built by two jobs at a time: the program must run and be the same."""
    need('make')
    need('cc')
    os.mkdir(t.path('src'))
    names = [f'm{i}' for i in range(4)]
    for n in names:
        body = ''.join(f'struct s{k} {{ long a[{k % 7 + 1}]; char c[{k % 13 + 1}]; }};\n'
                       f'static long f{k}(struct s{k} *p, long x) {{ long r = x;\n'
                       + ''.join(f'for (int i = 0; i < {j + 2}; i++) r = r * {k + j + 3} + p->a[0] + (r >> {j + 1});\n'
                                 for j in range(8))
                       + 'return r; }\n' for k in range(60))
        calls = ''.join(f'{{ struct s{k} s = {{{{{k}}}, {{1}}}}; r += f{k}(&s, r); }}\n'
                        for k in range(60))
        t.write(f'src/{n}.c', f'{body}long {n}(long r)\n{{\n{calls}return r;\n}}\n')
    t.write('src/main.c', '#include <stdio.h>\n' + ''.join(f'long {n}(long);\n' for n in names)
            + 'int main(void) { long r = 1;\n' + ''.join(f'r = {n}(r);\n' for n in names)
            + 'printf("%lx\\n", r); return 0; }\n')
    objects = ' '.join(f'{n}.o' for n in [*names, 'main'])
    t.write('src/Makefile', f'program: {objects}\n\tcc -o $@ {objects}\n'
                            '%.o: %.c\n\tcc -O1 -g -fwrapv -c -o $@ $<\n')

    def result():
        done = subprocess.run([t.path('src/program')], capture_output=True)
        check(done.returncode == 0 and len(done.stdout) > 3, f'{done}')
        data = hashlib.sha256(read_bytes(t.path('src/program'))).hexdigest()
        for f in os.listdir(t.path('src')):
            if f.endswith('.o') or f == 'program':
                os.unlink(t.path(f'src/{f}'))
        return done.stdout, data

    # The order of the lines of two jobs is of no matter.
    t.compare(['make', '-s', '-j2', '-C', t.path('src')], fraction=0.6, pages_out=3000, after=result)


@case(timeout=150, soak=True)
def git_repack(t):
    """Deltas among many objects, by two threads; then every object is checked."""
    git = need('git')
    repo = t.path('repo')
    env = {'GIT_AUTHOR_NAME': 'a', 'GIT_AUTHOR_EMAIL': 'a@example.org', 'GIT_COMMITTER_NAME': 'a',
           'GIT_COMMITTER_EMAIL': 'a@example.org', 'GIT_CONFIG_GLOBAL': '/dev/null', 'HOME': t.dir,
           'GIT_CONFIG_NOSYSTEM': '1'}
    subprocess.run([git, 'init', '-q', repo], check=True, env=dict(os.environ, **env))
    stream = bytearray()
    for c in range(10):
        stream += (f'commit refs/heads/main\ncommitter a <a@example.org> {1700000000 + c} +0000\n'
                   f'data 1\nx\n').encode()
        for f in range(2):
            seed = hashlib.sha256(f'{f}'.encode()).hexdigest()
            lines = [hashlib.sha256(f'{seed} {k} {c if k % 40 == c else 0}'.encode()).hexdigest()
                     for k in range(28000)]
            text = '\n'.join(lines).encode()
            stream += f'M 644 inline file{f}\ndata {len(text)}\n'.encode() + text + b'\n'
    subprocess.run([git, '-C', repo, 'fast-import', '--quiet', '--depth=0'], check=True,
                   input=bytes(stream), env=dict(os.environ, **env))
    script = (f'cd {repo} && git -c pack.threads=2 -c pack.windowMemory=0 repack -q -a -d -f --window=16 '
              '--depth=10 && git fsck --full --strict && git rev-parse main && '
              'git cat-file --batch-check --batch-all-objects | sha256sum')
    t.compare(['sh', '-c', script], fraction=0.65, pages_out=3000, env=env)


# ---- servers ----

def free_port():
    import socket
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


SERVER = '''
import hashlib, http.server, sys
pages = {f"/{i}": hashlib.sha256(b"%d" % i).digest() * (1200 + i % 700) for i in range(1500)}
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = pages.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")
    def log_message(self, *a):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("ready", flush=True)
s.serve_forever()
'''


def http_load(port, clients, requests, right, pages):
    """How many right answers each client got, each on one connection."""
    results = []

    def client(k):
        try:
            c = http.client.HTTPConnection('127.0.0.1', port, timeout=30)
            x, good = k + 1, 0
            for _ in range(requests):
                x = (x * 1103515245 + 12345) % 2 ** 31
                i = (x >> 8) % pages
                c.request('GET', f'/{i}')
                r = c.getresponse()
                good += r.status == 200 and r.read() == right(i)
            results.append(good)
        except OSError as e:
            results.append(str(e))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    return results


@case(timeout=120, soak=True)
def http_server(t):
    """A threaded server with its pages in memory, and six clients at once."""
    def right(i):
        return hashlib.sha256(b'%d' % i).digest() * (1200 + i % 700)

    server = t.write('server.py', SERVER)
    port = free_port()
    words = [need('python3'), server, str(port)]
    native = t.native(words, wait=False)
    native.wait_for_output('ready')
    check(http_load(port, 6, 60, right, 1500) == [60] * 6, 'natively')
    native.proc.terminate()
    native.wait(10)
    native.sampler.finish()
    run = t.start(words, ram=int(native.peak * 0.4) // MIB * MIB)
    run.wait_for_output('ready')
    started = time.monotonic()
    got = http_load(port, 6, 60, right, 1500)
    took = time.monotonic() - started
    check(got == [60] * 6, f'right answers of 60 for each client: {got}')
    run.proc.terminate()
    run.wait(10)
    run.expect_nothing_left()
    out, back = run.expect_swapped(10000)
    run.expect_within_budget()
    run.expect_right_content()
    t.note(f'native {native.peak // MIB} MiB, in {run.job["ram"] // MIB} MiB 360 answers in {took:.1f} s, '
           f'{out} pages out, {back} in')


NGINX_PAGES = 6000


def children(pid):
    return {p.pid for p in all_processes().values() if p.ppid == pid}


@case(timeout=120)
def nginx(t):
    """A master and workers of another user, reloaded under load, with everything evicted.

    Answers are files, and texts of the configuration: 14 MiB that the workers share after the fork.
    """
    binary = shutil.which('nginx') or '/usr/sbin/nginx'
    if not os.path.exists(binary):
        raise Skip('nginx is not installed')
    port = free_port()
    os.mkdir(t.path('www'))

    def right(i):
        if i % 3:
            return hashlib.sha256(b'%d' % i).hexdigest().encode() * 55
        return hashlib.sha256(b'%d' % i).digest() * (1200 + i % 700)

    texts = ''
    for i in range(NGINX_PAGES):
        if i % 3:
            texts += f'/{i} {right(i).decode()};\n'
        else:
            t.write(f'www/{i}', right(i))
    conf = t.write('nginx.conf', f'''
daemon off; worker_processes 2; pid {t.path("pid")}; error_log {t.path("error.log")};
events {{ worker_connections 64; }}
http {{ access_log off; sendfile off; output_buffers 2 64k; gzip off;
  client_body_temp_path {t.path("tmp")}; proxy_temp_path {t.path("tmp")}; fastcgi_temp_path {t.path("tmp")};
  uwsgi_temp_path {t.path("tmp")}; scgi_temp_path {t.path("tmp")};
  map_hash_bucket_size 128; map_hash_max_size 16384;
  map $uri $text {{
{texts}  }}
  server {{ listen 127.0.0.1:{port}; root {t.path("www")};
    location / {{ if ($text) {{ return 200 $text; }} }} }} }}
''')
    run = t.start([binary, '-p', t.dir, '-c', conf], ram=400 * MIB, binary=t.hooks,
                  env={'USWAP_TEST': 'evict-all'})
    end = time.monotonic() + 20
    while not read_text(t.path('pid')).strip():
        in_time(run.proc.poll() is None and time.monotonic() < end,
                f'nginx does not start: {tail(run.stderr)}')
        time.sleep(0.05)
    time.sleep(0.3)
    got = http_load(port, 4, 200, right, NGINX_PAGES)
    check(got == [200] * 4, f'before the reload: {got}')
    master = int(read_text(t.path('pid')))
    old = children(master)
    os.kill(master, 1)
    # An old worker closes the connections that it still took.
    end = time.monotonic() + 20
    while children(master) & old or not children(master):
        in_time(time.monotonic() < end, 'the old workers do not end')
        time.sleep(0.05)
    got = http_load(port, 4, 200, right, NGINX_PAGES)
    check(got == [200] * 4, f'after the reload: {got}')
    run.proc.send_signal(3)
    run.wait(20).expect_status(0)
    run.expect_nothing_left()
    out, back = run.expect_swapped(10000)
    run.expect_right_content()
    check('uswap: ' not in run.stderr and not re.search('alert|emerg', read_text(t.path('error.log'))),
          f'{run.stderr!r} {tail(read_text(t.path("error.log")))}')
    t.note(f'{out} pages out, {back} in')


SQL = '''
SET work_mem = '400MB'; SET enable_sort = off; SET jit = off; SET max_parallel_workers_per_gather = 0;
CREATE TEMP TABLE t AS SELECT i, i % 100003 AS k, md5(i::text) AS h FROM generate_series(1, 200000) i;
SELECT count(*), sum(n), max(m), md5(string_agg(m, '' ORDER BY m)) FROM (SELECT k, count(*) n, max(h) m FROM t GROUP BY k) q;
SELECT count(*), sum(a.i - b.i) FROM t a JOIN t b ON a.h = b.h AND a.k = b.k;
'''


@case(timeout=150)
def postgres(t):
    """A hash aggregate and a hash join in memory; without its server, which shares its memory."""
    need('postgres')
    need('setpriv')
    place = os.path.dirname(os.path.realpath(shutil.which('postgres')))
    initdb = os.path.join(place, 'initdb')
    if not os.path.exists(initdb):
        raise Skip('no initdb beside postgres')
    os.mkdir(t.path('work'))
    os.chown(t.path('work'), 65534, 65534)
    user = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
    data = t.path('work/data')
    done = subprocess.run([*user, initdb, '-N', '-E', 'UTF8', '--locale=C', '-A', 'trust', '-U', 'me',
                           '-D', data], capture_output=True, text=True, cwd='/')
    if done.returncode:
        raise Skip(f'initdb: {tail(done.stderr)}')
    sql = t.write('in.sql', re.sub(r'\s*\n', ' ', SQL).replace('; ', ';\n').lstrip())
    _, run = t.compare([*user, os.path.join(place, 'postgres'), '--single', '-D', data, '-c', 'shared_buffers=16MB',
                        '-c', 'log_min_messages=fatal', '-c', 'fsync=off', 'postgres'],
                       stdin=sql, fraction=0.7, pages_out=4000)
    check(b'count = "100003"' in run.stdout and b'count = "200000"' in run.stdout,
          f'{run.stdout[-900:]!r}')


# A check warns of deleted rows that are not purged yet, so it waits for that.
MARIADB_SQL = '''
SET NAMES latin1; CREATE DATABASE d; USE d;
CREATE TABLE t (i INT PRIMARY KEY, k INT, h CHAR(32), pad CHAR(255), more CHAR(255), KEY(k))
  CHARSET latin1;
INSERT INTO t SELECT seq, seq % 10007, md5(seq), repeat(char(65 + seq % 26), 250),
  repeat(md5(seq), 7) FROM seq_1_to_100000;
UPDATE t SET k = k + 1, more = reverse(more) WHERE i % 3 = 0;
DELETE FROM t WHERE i % 5 = 0;
SELECT COUNT(*), SUM(k), BIT_XOR(CRC32(CONCAT(i, k, h, pad, more))) FROM t;
SELECT SUM(pad <> repeat(char(65 + i % 26), 250) OR h <> md5(i)) FROM t;
SELECT COUNT(*), SUM(a.k - b.k) FROM t a JOIN t b ON a.i = b.k WHERE a.i < 5000;
SET GLOBAL innodb_max_purge_lag_wait = 0;
CHECK TABLE t EXTENDED;
'''


class Mariadb:
    """A server of its own in t.dir, without the tables of a full installation, and its client."""
    USER = ('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups')

    def __init__(self, t):
        self.t = t
        server = shutil.which('mariadbd') or '/usr/sbin/mariadbd'
        if not os.path.exists(server):
            raise Skip('mariadb-server-core is not installed')
        self.client = [need('mariadb'), '--no-defaults', '-u', 'root', '-S', t.path('maria/socket')]
        need('setpriv')
        self.words = [
            *self.USER, server, '--no-defaults', f'--datadir={t.path("maria/data")}',
            f'--socket={t.path("maria/socket")}', f'--pid-file={t.path("maria/pid")}',
            '--skip-networking', '--skip-grant-tables', '--innodb-flush-method=O_DIRECT',
            '--innodb-buffer-pool-size=64M', '--innodb-log-file-size=8M',
            '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0',
            '--performance-schema=0', '--key-buffer-size=1M', '--aria-pagecache-buffer-size=1M']

    def work(self, run):
        """What the client prints for MARIADB_SQL; the server is ended then."""
        end = time.monotonic() + 20
        while 'ready for connections' not in run.stderr:
            in_time(run.proc.poll() is None and time.monotonic() < end,
                    f'{run.label}: mariadbd does not start: {tail(run.stderr)}')
            time.sleep(0.05)
        done = subprocess.run([*self.client, '-N'], input=MARIADB_SQL, capture_output=True,
                              text=True, timeout=60)
        check(done.returncode == 0, f'{run.label}: {done.stderr} {tail(run.stderr)}')
        check(self.opened_direct(), f'{run.label}: no table is open with O_DIRECT')
        run.proc.terminate()
        run.wait(30).expect_status(0)
        return done.stdout

    def opened_direct(self):
        pid = read_text(self.t.path('maria/pid')).strip()
        for fd in os.listdir(f'/proc/{pid}/fd'):
            flags = re.search(r'^flags:\s+(\d+)', read_text(f'/proc/{pid}/fdinfo/{fd}'), re.M)
            if os.readlink(f'/proc/{pid}/fd/{fd}').endswith('/t.ibd'):
                return int(flags.group(1), 8) & os.O_DIRECT
        return False

    def fresh(self):
        shutil.rmtree(self.t.path('maria'), ignore_errors=True)
        for name in ('maria', 'maria/data'):
            os.mkdir(self.t.path(name))
            os.chown(self.t.path(name), 65534, 65534)


@case(timeout=120)
def mariadb_direct(t):
    """Tables read and written with O_DIRECT, out of and into a buffer pool that is larger than RAM.

    The table is larger than the pool, so the kernel reads into pages that were moved out.
    """
    maria = Mariadb(t)
    maria.fresh()
    native = t.native(maria.words, wait=False)
    wanted = maria.work(native)
    check('\n0\n' in wanted and 'status\tOK' in wanted, f'natively: {wanted!r}')
    native.sampler.finish()
    maria.fresh()
    run = t.start(maria.words, ram=56 * MIB)
    got = maria.work(run)
    check(got == wanted, f'{got!r}, natively {wanted!r}')
    run.expect_nothing_left()
    out, back = run.expect_swapped(10000)
    run.expect_within_budget()
    run.expect_right_content()
    t.note(f'native {native.elapsed:.1f} s {native.peak // MIB} MiB, in 56 MiB {run.elapsed:.1f} s, '
           f'{out} pages out, {back} in')


# ---- stress-ng ----

# Its options, and in how much memory; None: with everything evicted.
STRESSORS = {
    'mmap': (['--mmap-bytes', '96M'], 48),
    'mremap': (['--mremap-bytes', '32M'], None),
    'malloc': (['--malloc-bytes', '128M'], 48),
    'fork': ([], None),
    'vfork': ([], None),
    'madvise': ([], None),
    'mlock': ([], None),
    'userfaultfd': (['--userfaultfd-bytes', '16M'], None),
}


def stressor(t, name):
    options, ram = STRESSORS[name]
    words = [need('stress-ng'), f'--{name}', '1', *options, '--verify', '--timeout', '1',
             '--temp-path', t.dir]
    native = t.native(words)
    if native.status:
        raise Skip(f'fails natively: {tail(native.stdout.decode() + native.stderr)}')
    if ram:
        run = t.under_uswap(words, ram=ram * MIB)
    else:
        run = t.under_uswap(words, ram=400 * MIB, binary=t.hooks, env={'USWAP_TEST': 'evict-all'})
    text = (run.stderr + run.stdout.decode()).lower().replace('failed: 0', '')
    check('fail' not in text and 'skipped: 1' not in text, tail(text, 8))
    run.expect_right_content()
    out = run.vmstat('pgsteal_kswapd')
    # What mlock holds stays, and that is most of it.
    check(out > (5 if name == 'mlock' else 100), f'only {out} pages were evicted: it shows nothing')
    t.note(f'{out} pages evicted')


for each in STRESSORS:
    def run_stressor(t, each=each):
        stressor(t, each)
    case(timeout=60, name=f'more_programs.stress_ng_{each}')(run_stressor)
