# SPDX-License-Identifier: MIT
"""Writes a file whole or not at all."""
import os
import stat
import tempfile


def new_mode():
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_whole(path, content):
    """The file is the old one or the new one, also when this is interrupted."""
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode if os.path.exists(path) else stat.S_IFREG | new_mode()
    if not stat.S_ISREG(mode):      # a device, a pipe: nothing to replace
        with open(path, 'w', encoding='utf-8') as f:
            f.write(content)
        return
    with tempfile.NamedTemporaryFile('w', dir=os.path.dirname(path), encoding='utf-8', newline='',
                                     prefix='.report-', delete=False) as f:
        try:
            f.write(content)
            f.flush()
            os.fchmod(f.fileno(), stat.S_IMODE(mode))
            os.rename(f.name, path)
        except BaseException:
            os.unlink(f.name)
            raise
