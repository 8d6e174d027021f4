# SPDX-License-Identifier: MIT
"""Files of /proc and /sys, and the programs that change swap. Tests give another root."""
import os
import subprocess
import time

from . import Trouble

ZRAM_CONTROL = '/sys/class/zram-control'


def selected(text):
    """The value in brackets of "always [madvise] never"; any other text whole."""
    left, _, rest = text.partition('[')
    return rest.partition(']')[0] if ']' in rest else left.strip()


class System:
    def __init__(self, root='/'):
        self.root = root

    def path(self, path):
        return os.path.join(self.root, path.lstrip('/'))

    def exists(self, path):
        return os.path.exists(self.path(path))

    def read(self, path):
        """Without surrounding blanks; None if it cannot be read."""
        try:
            with open(self.path(path), encoding='utf-8', errors='replace') as f:
                return f.read().strip()
        except OSError:
            return None

    def write(self, path, value):
        # Unbuffered, so that the kernel's answer belongs to this write.
        try:
            fd = os.open(self.path(path), os.O_WRONLY)
            try:
                os.write(fd, str(value).encode())
            finally:
                os.close(fd)
        except OSError as e:
            raise Trouble(f'{path}: cannot write {value}: {e.strerror}') from None

    def mkdir(self, path):
        os.mkdir(self.path(path))

    def rmdir(self, path):
        os.rmdir(self.path(path))

    def run(self, *argv):
        """In a session of its own: Ctrl-C of the terminal must not end it half way."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, start_new_session=True,
                                  stdin=subprocess.DEVNULL)
        except OSError as e:
            raise Trouble(f'{argv[0]}: {e.strerror}') from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Trouble(f'{" ".join(argv)}: {said[-1] if said else done.returncode}')
        return done.stdout

    # -- swap areas --

    def swaps(self):
        """path -> bytes of it that are in use"""
        found = {}
        for line in (self.read('/proc/swaps') or '').splitlines()[1:]:
            fields = line.split()
            path = fields[0].encode().decode('unicode_escape')   # a blank is written \040
            found[path] = int(fields[3]) * 1024
        return found

    def swapon(self, path, priority):
        self.run('mkswap', path)
        self.run('swapon', '--priority', str(priority), path)

    def swapoff(self, path):
        self.run('swapoff', path)

    # -- zram devices --

    def add_zram(self):
        """The number of a new device: reading the file makes one."""
        number = self.read(f'{ZRAM_CONTROL}/hot_add')
        if number is None:
            raise Trouble(f'{ZRAM_CONTROL}/hot_add: no device can be made')
        return int(number)

    def remove_zram(self, number):
        """udev may have a new device open for a moment."""
        end = time.monotonic() + 5
        while True:
            try:
                self.write(f'/sys/block/zram{number}/reset', 1)
                self.write(f'{ZRAM_CONTROL}/hot_remove', number)
                return
            except Trouble:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    # -- counters --

    def counters(self, path, scale=1):
        """Name -> number, of lines "NAME N" or "NAME: N kB"."""
        found = {}
        for line in (self.read(path) or '').splitlines():
            fields = line.split()
            if len(fields) >= 2 and fields[1].isdigit():
                found[fields[0].rstrip(':')] = int(fields[1]) * scale
        return found
