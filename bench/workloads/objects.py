# SPDX-License-Identifier: MIT
"""The python workload: objects.py RECORDS SEED [PLANT]. Writes its result as the C programs do.

A list and a dict of small objects of several kinds, then lookups at random, a sort by another key,
and changes. Each value that is read is compared with what its key says it must be.
PLANT, for tests: the number of a record that is made wrong.
Exit status: 0; 1 if a value was wrong.
"""
import json
import os
import sys
import time

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    return x ^ x >> 31


class Record:
    __slots__ = ('key', 'text', 'numbers', 'changes')

    def __init__(self, i, seed):
        self.key = mix(i ^ seed << 40)
        self.text = f'{i:x} of {self.key:x}'
        self.numbers = [self.key >> 40, self.key & 0xffffff]
        self.changes = 0

    def is_right(self, i, seed):
        key = mix(i ^ seed << 40)
        return (self.key == key and self.text == f'{i:x} of {key:x}' and
                self.numbers == [(key >> 40) + self.changes, key & 0xffffff])


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    clock = time.clock_gettime
    marks = [clock(time.CLOCK_MONOTONIC)]
    wrong = checked = 0

    records = [Record(i, seed) for i in range(count)]
    index = {r.text: i for i, r in enumerate(records)}
    if len(sys.argv) > 3:
        records[int(sys.argv[3])].numbers[1] ^= 1
    marks.append(clock(time.CLOCK_MONOTONIC))

    for step in range(count):
        i = mix(step ^ seed) % count
        record = records[index[records[i].text]]
        checked += 1
        if not record.is_right(i, seed):
            wrong += 1
        if step % 4 == 0:
            record.changes += 1
            record.numbers[0] += 1
    order = sorted(range(count), key=lambda i: records[i].key)
    wrong += sum(records[a].key > records[b].key for a, b in zip(order, order[1:]))
    marks.append(clock(time.CLOCK_MONOTONIC))

    for i, record in enumerate(records):
        checked += 1
        if not record.is_right(i, seed) or index[record.text] != i:
            wrong += 1
    marks.append(clock(time.CLOCK_MONOTONIC))

    build, use, check = (b - a for a, b in zip(marks, marks[1:]))
    with open(os.environ.get('USWAP_BENCH_RESULT', '/dev/stdout'), 'w', encoding='ascii') as f:
        json.dump({'measured_s': build + use,
                   'phases': {'build': build, 'use': use, 'check': check},
                   'checked': checked, 'wrong': wrong}, f)
    if wrong:
        print(f'objects: {wrong} of {checked} values were wrong', file=sys.stderr)
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
