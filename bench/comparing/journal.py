# SPDX-License-Identifier: MIT
"""What was changed, and how to put it back.

A step is on disk before its change is made, so that the next start can put back what a compare
that was killed has left. Undoing a step that was never carried out does nothing. Steps are undone
in reverse order; one that fails stays in the record and does not keep the others from it.

The folder of the record belongs to root alone: what it says is done with root's rights.
"""
import fcntl
import json
import os
import shutil

from . import Trouble, cgroup
from .system import selected

FOLDER = '/var/lib/uswap-compare'
BOOT_ID = '/proc/sys/kernel/random/boot_id'
SCRATCH = 'uswap-compare-'   # what a scratch folder's name begins with


def undo_write(system, step):
    system.write(step['path'], step['value'])
    now = system.read(step['path'])
    # "-memory" is written into a list of words, and is not what is read.
    if not step['value'].startswith('-') and selected(now or '') != step['value']:
        raise Trouble(f'{step["path"]} is {now}, not {step["value"]}')


def undo_swapon(system, step):
    if step['path'] in system.swaps():
        system.swapoff(step['path'])


def undo_zram(system, step):
    if system.exists(f'/sys/block/zram{step["number"]}'):
        system.remove_zram(step['number'])


def undo_cgroup(system, step):
    cgroup.remove(system, step['folders'])


def undo_folder(system, step):
    path = system.path(step['path'])
    if not os.path.basename(path).startswith(SCRATCH):
        raise Trouble(f'{path} is not a scratch folder')
    if os.path.lexists(path):
        shutil.rmtree(path)


UNDO = {'write': undo_write, 'swapon': undo_swapon, 'zram': undo_zram, 'cgroup': undo_cgroup,
        'folder': undo_folder}
SURVIVES_BOOT = ('folder',)


def in_words(step):
    return {'write': lambda: f'{step["path"]} back to {step["value"]}',
            'swapon': lambda: f'swapoff {step["path"]}',
            'zram': lambda: f'remove zram{step["number"]}',
            'cgroup': lambda: f'remove cgroup {step["folders"][0]}',
            'folder': lambda: f'remove {step["path"]}'}[step['undo']]()


class Journal:
    def __init__(self, system, folder=FOLDER):
        self.system = system
        self.folder = system.path(folder)
        self.record = os.path.join(self.folder, 'record.json')
        self.steps = []
        self.lock = None

    def open(self):
        """Takes the lock, and reads what an earlier run has left: self.steps."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            owner = os.stat(self.folder)
            if owner.st_uid != os.geteuid() or owner.st_mode & 0o022:
                raise Trouble(f'{self.folder}: must belong to this user alone')
            self.lock = os.open(os.path.join(self.folder, 'lock'), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            raise Trouble(f'{self.folder}: {e.strerror}') from None
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self.lock).st_nlink:   # its owner was just removing it
                raise BlockingIOError
        except BlockingIOError:
            raise Trouble('another bench/compare is running: they would change the same '
                          'settings') from None
        self.steps = self.load()

    def load(self):
        try:
            with open(self.record, encoding='utf-8') as f:
                data = json.load(f)
        except FileNotFoundError:
            return []
        except ValueError as e:
            raise Trouble(f'{self.record} is damaged ({e}): look at it, and remove it') from None
        if data['boot'] == self.system.read(BOOT_ID):
            return data['steps']
        return [s for s in data['steps'] if s['undo'] in SURVIVES_BOOT]

    def save(self):
        if not self.steps:
            if os.path.exists(self.record):
                os.unlink(self.record)
            return
        new = self.record + '.new'
        with open(new, 'w', encoding='utf-8') as f:
            json.dump({'boot': self.system.read(BOOT_ID), 'pid': os.getpid(),
                       'steps': self.steps}, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        os.rename(new, self.record)

    def note(self, undo, **what):
        """Before the change: how it will be undone."""
        self.steps.append({'undo': undo, **what})
        self.save()

    def set(self, path, value):
        """A kernel setting, unless it has that value."""
        now = self.system.read(path)
        if now is None:
            raise Trouble(f'{path} is not there')
        if selected(now) != value:
            self.note('write', path=path, value=selected(now))
            self.system.write(path, value)

    def mark(self):
        return len(self.steps)

    def restore(self, mark=0):
        """Undoes the steps since the mark. Returns what failed, one line each."""
        failed, left = [], self.steps[:mark]
        for step in reversed(self.steps[mark:]):
            try:
                UNDO[step['undo']](self.system, step)
            except (Trouble, OSError) as e:
                failed.append(f'{in_words(step)}: {e}')
                left.insert(mark, step)
        self.steps = left
        self.save()
        return failed

    def close(self):
        if self.lock is not None:
            if not self.steps:
                shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self.lock)
            self.lock = None
