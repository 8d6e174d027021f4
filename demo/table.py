# SPDX-License-Identifier: MIT
"""The demo's program: it builds a table in memory, changes it, and checks every row.

usage: table.py MIB

It knows nothing of uswap. Rows are 4 KiB, each with its number, a running text and a checksum, so
that a single wrong byte would be found. Prints a line a phase on stdout.
"""
import sys
import time
import zlib

ROW = 4096
HEAD = 16  # number of the row and how often it was changed, 8 bytes each


def content(number, version):
    """About half text, half noise: what real tables are like to a compressor."""
    head = number.to_bytes(8, 'little') + version.to_bytes(8, 'little')
    noise = zlib.crc32(head)
    words = b''.join((noise * k & 0xffffffffffffffff).to_bytes(8, 'little')
                     for k in range(1, 129))
    text = (b'row %d, version %d; ' % (number, version)) * 200
    body = head + words + text
    body = body[:ROW - 4]
    return body + zlib.crc32(body).to_bytes(4, 'little')


def check(row, number, version):
    return row == content(number, version)


def main():
    rows = int(sys.argv[1]) * (1 << 20) // ROW
    start = time.monotonic()
    table = bytearray(rows * ROW)
    version = bytearray(rows)

    print(f'building {rows:,} rows', flush=True)
    for i in range(rows):
        table[i * ROW:(i + 1) * ROW] = content(i, 0)

    changed = range(0, rows, 7)
    print(f'changing {len(changed):,} rows here and there', flush=True)
    for i in changed:
        i = i * 31 % rows
        version[i] += 1
        table[i * ROW:(i + 1) * ROW] = content(i, version[i])

    print(f'checking {rows:,} rows, every byte', flush=True)
    wrong = sum(not check(table[i * ROW:(i + 1) * ROW], i, version[i]) for i in range(rows))
    print(f'done: {rows:,} rows, {wrong} wrong, {time.monotonic() - start:.1f} s', flush=True)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
