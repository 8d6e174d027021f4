# SPDX-License-Identifier: MIT
"""A native run of a program, watched: how much memory it takes, and how well that compresses.

The ratio is that of lz4, as the system has it, on pages of 4 KiB that are drawn at random from the
resident anonymous memory of all its processes, near its peak.
"""
import ctypes
import ctypes.util
import os
import random
import signal
import subprocess
import sys
import threading
import time

from .base import HERE, WorkloadError

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), 'tests', 'e2e'))
import harness  # noqa: E402

PAGE = 4096
PRESENT = 1 << 63
SAMPLE = 256           # pages at a time
STEP = 1.3             # looked at again when memory has grown so much


def lz4():
    name = ctypes.util.find_library('lz4') or 'liblz4.so.1'
    try:
        return ctypes.CDLL(name)
    except OSError as e:
        raise WorkloadError(f'liblz4: {e}; make deps installs it') from e


def anonymous_ranges(pid):
    """(start, end) of mappings of no file, and of the private writable part of files."""
    for line in harness.read_text(f'/proc/{pid}/maps').splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[1].startswith('rw') and fields[1].endswith('p') and (
                fields[4] == '0'):
            start, end = (int(x, 16) for x in fields[0].split('-'))
            yield start, end


def present_pages(pid):
    """Addresses of the resident pages of these."""
    found = []
    try:
        with open(f'/proc/{pid}/pagemap', 'rb', buffering=0) as f:
            for start, end in anonymous_ranges(pid):
                f.seek(start // PAGE * 8)
                words = memoryview(f.read((end - start) // PAGE * 8)).cast('Q')
                found += [start + i * PAGE for i, w in enumerate(words) if w & PRESENT]
    except OSError:
        pass           # it has ended
    return found


class Compressibility(threading.Thread):
    """Looks at the pages of what a sampler watches, each time that has grown by so much."""
    PERIOD = 0.05

    def __init__(self, sampler):
        super().__init__(daemon=True)
        self.sampler = sampler
        self.lz4 = lz4()
        self.packed = ctypes.create_string_buffer(2 * PAGE)
        self.random = random.Random(1)
        self.sampled_at = 0
        self.stored = None

    def run(self):
        while not self.sampler.ending.wait(self.PERIOD):
            now = self.sampler.current
            if now > self.sampled_at * STEP:
                self.sample_pages(now)

    def packed_bytes(self, page):
        n = self.lz4.LZ4_compress_default(page, self.packed, len(page), len(self.packed))
        return min(n, PAGE) or PAGE

    def sample_pages(self, now):
        pids = [p.pid for p in list(self.sampler.members.values())]
        pages = [(pid, a) for pid in pids for a in present_pages(pid)]
        total = count = 0
        for pid, address in self.random.sample(pages, min(SAMPLE, len(pages))):
            try:
                with open(f'/proc/{pid}/mem', 'rb', buffering=0) as f:
                    f.seek(address)
                    page = f.read(PAGE)
            except OSError:
                continue
            if len(page) == PAGE:
                total += self.packed_bytes(page)
                count += 1
        if count:
            self.sampled_at = now
            self.stored = round(total / (count * PAGE), 3)


def observe(name, argv, env):
    """Runs argv to its end. {'peak_bytes', 'stored', 'native_s'}; its output goes nowhere."""
    start = time.monotonic()
    proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, env={**os.environ, **env},
                            start_new_session=True)
    sampler = harness.Sampler(proc.pid)
    compressibility = Compressibility(sampler)
    sampler.start()
    compressibility.start()
    try:
        _, err = proc.communicate()
        took = time.monotonic() - start
    except BaseException:
        os.killpg(proc.pid, signal.SIGKILL)
        proc.wait()
        raise
    finally:
        sampler.ending.set()
        sampler.join()
        compressibility.join()
    if proc.returncode:
        raise WorkloadError(f'{name}: its native run ended with {proc.returncode}: '
                            f'{harness.tail(err.decode("utf-8", "replace"))}')
    return {'peak_bytes': sampler.peak, 'stored': compressibility.stored,
            'native_s': round(took, 3)}
