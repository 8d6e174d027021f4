#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program that needs several hundred MB in a third of that, and shows where its memory is.

usage: demo.py USWAP
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
TABLE_MIB = 480
RAM_MIB = 160


class Watcher(threading.Thread):
    """Asks `uswap stat --json` a few times a second, and keeps a line of the screen up to date."""

    def __init__(self, uswap, job):
        super().__init__(daemon=True)
        self.uswap, self.job = uswap, job
        self.last = None
        self.stop = threading.Event()
        self.live = sys.stdout.isatty()
        self.lock = threading.Lock()
        self.shown = 0.0

    def ask(self):
        done = subprocess.run([self.uswap, 'stat', '--json', '--job', str(self.job)],
                              capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def line(self, doc):
        devices = doc['devices']
        packed = sum(d['used'] for d in devices if d['type'] == 'zram')
        disk = sum(d['used'] for d in devices if d['type'] != 'zram')
        return (f'  {doc["elapsed"]:5.1f} s  in RAM {doc["ram"]["resident"] / MIB:4.0f} MiB'
                f' | compressed {packed / MIB:4.0f} MiB in {doc["ram"]["pool"] / MIB:.0f}'
                f' | on disk {disk / MIB:4.0f} MiB')

    def show(self, doc):
        with self.lock:
            if self.live:
                print('\r' + self.line(doc), end='\033[K', flush=True)
            elif time.monotonic() - self.shown >= 2:
                self.shown = time.monotonic()
                print(self.line(doc), flush=True)

    def say(self, text):
        """A line of the program, above the live one."""
        with self.lock:
            print(('\r\033[K' if self.live else '') + text, flush=True)

    def run(self):
        while not self.stop.wait(0.25):
            doc = self.ask()
            if doc:
                self.last = doc
                self.show(doc)

    def finish(self):
        self.stop.set()
        self.join(5)
        if self.live:
            print('\r\033[K', end='')


def summary(report):
    ram, vmstat = report['ram'], report['vmstat']
    peaks = {d['type']: d['peak'] for d in report['devices']}
    print(f'The program had a table of {TABLE_MIB} MiB and was given {RAM_MIB} MiB of RAM.')
    print(f'At most {ram["peak"] / MIB:.0f} MiB were in use, of {ram["limit"] / MIB:.0f} allowed: '
          'its pages in RAM, the compressed ones, and the tables of uswap.')
    print(f'At the peak {peaks.get("zram", 0) / MIB:.0f} MiB of pages were held compressed and '
          f'{peaks.get("file", 0) / MIB:.0f} MiB in a swap file.')
    print(f'It waited for {report["faults"]["count"]:,} faults, half of them for less than '
          f'{report["faults"]["p50_ns"] / 1000:.0f} us and 99 % for less than '
          f'{report["faults"]["p99_ns"] / 1000:.0f} us.')
    print(f'{vmstat.get("swap_corrupt", 0)} pages came back wrong. Every row was checked.')


def main():
    uswap = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, 'report.json')
        words = ['run', '--ram', f'{RAM_MIB}M', '--report', report, '--', 'python3',
                 os.path.join(HERE, 'table.py'), str(TABLE_MIB)]
        print(f'uswap {" ".join(words[:3])} -- python3 demo/table.py {TABLE_MIB}', flush=True)
        job = subprocess.Popen([uswap, *words], stdout=subprocess.PIPE, text=True)
        watcher = Watcher(uswap, job.pid)
        watcher.start()
        for line in job.stdout:
            watcher.say(line.rstrip())
        status = job.wait()
        watcher.finish()
        if status:
            print(f'The program ended with status {status}.')
            return status if status > 0 else 128 - status
        with open(report, encoding='utf-8') as f:
            print()
            summary(json.load(f))
    return 0


if __name__ == '__main__':
    sys.exit(main())
