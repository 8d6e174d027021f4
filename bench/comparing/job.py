# SPDX-License-Identifier: MIT
"""One run of the workload in one arm: started in its group, watched, judged."""
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import time

from harness import read_text, tail

from . import Trouble, orders, sample

RESULT = 'USWAP_BENCH_RESULT'
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def enter(group):
    """In the child. If compare dies, the job does too: nobody would put its swap back."""
    def call():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if group:
            group.join()
    return call


def load(path):
    """A JSON object, or None."""
    try:
        with open(path, encoding='utf-8') as f:
            data = json.load(f)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def not_run(detail):
    """The record of a run that could not even start."""
    return {'outcome': 'failed', 'detail': detail, 'phases': {}, 'touch': None,
            'cpu': dict.fromkeys(('job_s', 'supervisor_s', 'kernel_s')),
            **dict.fromkeys(('wall_s', 'measured_s', 'cpu_s', 'others_cpu_s', 'peak_bytes',
                             'pool_bytes', 'file_bytes', 'faults', 'major_faults', 'pages_in',
                             'pages_out', 'folios_in', 'device_bytes', 'device_used',
                             'orders'))}


class Job:
    def __init__(self, bench, arm, group, folder):
        self.bench = bench
        self.arm = arm
        self.group = group
        self.folder = folder
        self.result_path = os.path.join(folder, 'result.json')
        self.err_path = os.path.join(folder, 'stderr')

    def environ(self):
        full = {**os.environ, 'LC_ALL': 'C', **self.bench.workload.environ()}
        full.pop('USWAP_TEST', None)
        full[RESULT] = self.result_path
        return full

    def run(self, timeout):
        """The record of the run, as in the JSON document but for the round."""
        argv = self.arm.command(self.bench.workload.command(), self.folder)
        sampler = sample.Sampler(self.bench.system, self.group, self.arm)
        start = time.monotonic()
        with open(os.path.join(self.folder, 'stdout'), 'wb') as out, \
                open(self.err_path, 'wb') as err:
            try:
                proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                        env=self.environ(), cwd=self.folder,
                                        start_new_session=True, preexec_fn=enter(self.group))
            except (OSError, subprocess.SubprocessError) as e:
                raise Trouble(f'{argv[0]} cannot be started: {e}') from None
        ended = self.watch(proc, sampler, start + timeout)
        wall = time.monotonic() - start
        if not ended:
            self.end(proc)
        _, status, usage = os.wait4(proc.pid, 0)
        proc.returncode = os.waitstatus_to_exitcode(status)
        return self.record(proc.returncode, None if ended else timeout, wall, usage, sampler)

    def watch(self, proc, sampler, deadline):
        """False: it was not over at the deadline."""
        fd = os.pidfd_open(proc.pid)
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            while not poller.poll(sample.PERIOD * 1000):
                self.bench.stopping.check()
                sampler.look()
                if time.monotonic() > deadline:
                    return False
            return True
        finally:
            os.close(fd)

    def end(self, proc):
        if self.group:
            self.group.kill()
        else:
            os.killpg(proc.pid, signal.SIGKILL)

    def record(self, status, timeout, wall, usage, sampler):
        report = load(self.arm.report(self.folder)) if hasattr(self.arm, 'report') else None
        result = load(self.result_path)
        outcome, detail = self.judge(status, timeout, result, report)
        others_s = sample.busy_seconds() - sampler.busy
        kernel_s = sampler.threads.seconds()
        total = self.group.cpu_seconds() if self.group else None
        if total is None:   # only of processes that somebody has waited for
            total = usage.ru_utime + usage.ru_stime
        own = sampler.supervisors.seconds() if sampler.supervisors else 0
        stat = self.group.stat() if self.group else {}
        pages_in, pages_out, major, device = self.paging(sampler, stat, report)
        return {
            'outcome': outcome, 'detail': detail, 'wall_s': wall,
            'measured_s': (result or {}).get('measured_s'),
            'phases': (result or {}).get('phases', {}),
            'cpu_s': total + kernel_s,
            'others_cpu_s': max(others_s - total - kernel_s, 0),
            'cpu': {'job_s': max(total - own, 0), 'supervisor_s': own, 'kernel_s': kernel_s},
            'peak_bytes': self.group.peak_bytes() if self.group else usage.ru_maxrss * 1024,
            'pool_bytes': max(sampler.pool, self.arm.final_pool_bytes()),
            'file_bytes': sampler.file_bytes,
            'faults': stat.get('pgfault', usage.ru_minflt + usage.ru_majflt),
            'major_faults': major, 'pages_in': pages_in, 'pages_out': pages_out,
            'folios_in': sampler.read_folios() - sampler.folios, 'device_bytes': device,
            'touch': (result or {}).get('touch'),
            'orders': orders.of_report(report), 'device_used': orders.used_share(report),
        }

    def paging(self, sampler, stat, report):
        """(pages in, pages out, faults that waited for one, most bytes on devices)"""
        if self.arm.kernel or not hasattr(self.arm, 'report'):
            return (*sampler.kernel_pages(), stat.get('pgmajfault', 0), sampler.swap_bytes)
        if not report:
            return None, None, None, None
        v = report['vmstat']
        return (v['pswpin'] + v['zswpin'], v['pswpout'] + v['zswpout'], v['pgmajfault'],
                sum(d['peak'] for d in report['devices']))

    def judge(self, status, timeout, result, report):
        """(outcome, why)"""
        if timeout:
            return 'timeout', f'not over after {timeout:g} s'
        killed = self.group.oom_kills() if self.group else 0
        if killed:
            return 'killed', f'the kernel killed {killed} of its processes: out of memory'
        if report and report['vmstat'].get('oom_kill'):
            return 'killed', 'uswap ended a process: out of memory'
        said = tail(read_text(self.err_path), 2)
        if result and result.get('wrong'):
            return 'wrong', f'{result["wrong"]} pages or records are wrong: {said}'
        if status == 1 and 'wrong' in said:
            return 'wrong', said
        if status:
            how = f'signal {-status}' if status < 0 else f'exit status {status}'
            return 'failed', f'{how}: {said}'
        if not result or not isinstance(result.get('measured_s'), (int, float)):
            return 'failed', f'it wrote no result: {said}'
        if report and report['vmstat'].get('exec_unmanaged'):
            return 'ok', f'{report["vmstat"]["exec_unmanaged"]} programs were not managed'
        return 'ok', None


def clean(folder):
    """A run's own files, once they are judged."""
    shutil.rmtree(folder, ignore_errors=True)
