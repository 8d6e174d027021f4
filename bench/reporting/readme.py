# SPDX-License-Identifier: MIT
"""The Markdown table for the README, and its place there."""
import re

from . import summary, text
from .markup import UNWRITABLE
from .output import write_whole
from .results import BadInput, sources

BEGIN, END = '<!-- bench:begin -->', '<!-- bench:end -->'
SPECIAL = re.compile(r'([\\`*_\[\]|~])')


def escape(words):
    """Text that Markdown shows as it is, on one line."""
    words = ' '.join(UNWRITABLE.sub('\ufffd', words).split())
    words = words.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
    return SPECIAL.sub(r'\\\1', words)


def line(cells):
    return '| ' + ' | '.join(cells) + ' |'


def origin(comparisons):
    """Where the figures come from, a sentence for each file, or for several that are alike."""
    sentences = []
    for source in sources(comparisons):
        runs = sorted({c.runs for c in comparisons if c.source is source})
        sentences.append(escape(
            f'{source.date[:10]}, commit {text.commit(source)}, {text.machine(source)}; '
            f'runs of each arm: {" or ".join(text.count(r) for r in runs)}.'))
    return list(dict.fromkeys(sentences))


def cells(item, comparisons):
    name, memory, *pairs = summary.row(item, comparisons)
    return [name, memory, *(f'{value} ({more})' if value and more else value or more
                            for value, more in pairs)]


def table(comparisons):
    head = [escape(h) for h in summary.head(comparisons)]
    lines = [line(head), line(['---'] + ['---:'] * (len(head) - 1))]
    lines += [line([escape(c) for c in cells(item, comparisons)]) for item in comparisons]
    return '\n'.join([*lines, '', *origin(comparisons)]) + '\n'


def update(path, new):
    """Puts the table between the markers of the file."""
    try:
        with open(path, encoding='utf-8', newline='') as f:
            old = f.read()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f'{path}: {getattr(e, "strerror", None) or "not UTF-8"}') from None
    for marker in (BEGIN, END):
        if old.count(marker) != 1:
            raise BadInput(f'{path}: {marker} is there {old.count(marker)} times, not once; put '
                           f'{BEGIN} and {END} on lines of their own where the table shall go')
    start, stop = old.index(BEGIN) + len(BEGIN), old.index(END)
    if start > stop:
        raise BadInput(f'{path}: {END} comes before {BEGIN}')
    write_whole(path, f'{old[:start]}\n{new}{old[stop:]}')
