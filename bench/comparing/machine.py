# SPDX-License-Identifier: MIT
"""What it was measured on, and with which source."""
import datetime
import os
import platform
import subprocess

from . import ROOT, settings
from .system import selected


def cpu_model(system):
    for line in (system.read('/proc/cpuinfo') or '').splitlines():
        if line.startswith('model name'):
            return line.partition(':')[2].strip()
    return platform.machine()


def git(*words):
    """None where there is no git, or no repository."""
    try:
        done = subprocess.run(['git', '-C', ROOT, *words], capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def describe(system, groups):
    return {'cpus': os.cpu_count(), 'cpu_model': cpu_model(system),
            'memory_bytes': system.counters('/proc/meminfo', 1024).get('MemTotal'),
            'kernel': platform.release(), 'cgroup': groups.name if groups else None,
            'thp': selected(system.read(settings.THP) or '') or None}


def head(system, groups):
    """The top of the document."""
    commit = git('rev-parse', 'HEAD')
    return {'date': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
            'machine': describe(system, groups), 'commit': commit,
            'dirty': bool(git('status', '--porcelain')) if commit else None}
