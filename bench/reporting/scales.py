# SPDX-License-Identifier: MIT
"""From a value to a place on an axis, and the round values to write below it."""
import math

# Where the largest value is so many times the smallest, a linear axis shows only the largest.
WIDE = 12


class Linear:
    """From 0."""
    is_log = False

    def __init__(self, values, left, right, base=1000):
        self.left, self.right = left, right
        top = max([v for v in values if v is not None], default=0) or 1
        self.step = round_step(top / 4, base)
        self.high = math.ceil(top / self.step - 1e-9) * self.step

    def at(self, value):
        return self.left + (self.right - self.left) * value / self.high

    def ticks(self):
        return [i * self.step for i in range(round(self.high / self.step) + 1)]


class Log:
    """Whole decades, or 1-2-5 steps where there are few."""
    is_log = True

    def __init__(self, values, left, right):
        self.left, self.right = left, right
        # Nothing that is measured lies outside; a file that says so is shown at the edge.
        positive = [min(max(v, 1e-12), 1e15) for v in values if v]
        low, high = min(positive, default=1), max(positive, default=10)
        steps = (1, 2, 5) if high / low < 300 else (1,)
        marks = [s * 10.0 ** e for e in range(-12, 16) for s in steps]
        first = max(i for i, m in enumerate(marks) if m <= low * 1.0001)
        last = next(i for i, m in enumerate(marks) if m >= high * 0.9999 and i > first)
        self.marks = marks[first:last + 1]

    def at(self, value):
        low, high = self.marks[0], self.marks[-1]
        part = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return self.left + (self.right - self.left) * part

    def ticks(self):
        if len(self.marks) <= 6:
            return self.marks
        decades = [m for m in self.marks if abs(math.log10(m) - round(math.log10(m))) < 1e-9]
        return decades[::math.ceil(len(decades) / 6)]


class Ratio:
    """Around 1: twice as fast is as far from it as half as fast. Powers of two."""
    is_log = True

    def __init__(self, values, left, right):
        self.left, self.right = left, right
        powers = [math.log2(v) for v in values if v]
        # Never less than from half to double: small differences are to look small.
        self.low = math.floor(min(powers + [-1]) + 1e-9)
        self.high = math.ceil(max(powers + [1]) - 1e-9)

    def at(self, value):
        part = (math.log2(value) - self.low) / (self.high - self.low)
        return self.left + (self.right - self.left) * part

    def ticks(self):
        every = math.ceil((self.high - self.low) / 8)
        return [2.0 ** p for p in range(self.low, self.high + 1) if p % every == 0]


def round_step(step, base):
    """The next round step: 1, 2, 5 times a power of ten; for bytes 1, 2, 4 ... to 512."""
    if base == 1024:
        return 2.0 ** math.ceil(math.log2(step) - 1e-9)
    power = 10.0 ** math.floor(math.log10(step))
    return next(s * power for s in (1, 2, 5, 10) if s * power >= step * 0.9999)


def time_scale(values, left, right):
    values = [v for v in values if v]
    wide = values and max(values) / min(values) > WIDE
    return (Log if wide else Linear)(values, left, right)
