# SPDX-License-Identifier: MIT
"""SIGINT, SIGTERM, SIGHUP: remembered, and acted on where nothing is half done.

An exception out of a signal handler could come between a change and its record. So the handler
only takes a note, and check() raises. A long wait for somebody else's program may be broken off:
that is what interruptible() is for.
"""
import contextlib
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    def __init__(self, signum):
        super().__init__(f'stopped by {signal.Signals(signum).name}')
        self.signum = signum


class Stopping:
    def __init__(self):
        self.signum = None
        self.at_once = False

    def install(self):
        for s in SIGNALS:
            # nohup's choice stands; a shell's background job may still be stopped by SIGINT.
            if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN:
                signal.signal(s, self.on_signal)

    def on_signal(self, signum, frame):
        self.signum = self.signum or signum
        if self.at_once:
            self.at_once = False
            raise Stopped(self.signum)

    def check(self):
        if self.signum:
            raise Stopped(self.signum)

    @contextlib.contextmanager
    def interruptible(self):
        self.check()
        self.at_once = True
        try:
            yield
        finally:
            self.at_once = False
        self.check()
