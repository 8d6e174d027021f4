# SPDX-License-Identifier: MIT
"""The form that all plots of a workload share: a row for each arm, one axis, values in words.

Every arm has its row, in the same place in each plot: one that was skipped, or of which no run
ended well, says so in the row.
"""
from . import text
from .markup import node
from .style import arm_class

WIDTH, LEFT, RIGHT = 560, 128, 392      # of the picture; of the axis
NOTES = RIGHT + 14                      # where the values in words begin
ROW, TOP = 30, 6
CHARACTER = 6.1                         # width of one, nearly, at 12 pixels


def fit(words, width, character=CHARACTER):
    room = int(width / character)
    return words if len(words) <= room else words[:room - 1].rstrip() + '\u2026'


def label(x, y, words, width=None, class_=None, anchor=None):
    """A text that is cut where it has no room, and then whole in its title."""
    small = class_ and 'small' in class_
    shown = words if width is None else fit(words, width, CHARACTER * (0.88 if small else 1))
    return node('text', None if shown == words else node('title', words), shown, x=x, y=y,
                class_=class_, text_anchor=anchor)


def line(x1, y1, x2, y2, class_, **more):
    return node('line', x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_,
                **more)


def bar(x1, x2, y, height, class_, title=None):
    return node('rect', title and node('title', title), x=float(min(x1, x2)), y=y - height / 2,
                width=max(abs(x2 - x1), 0.5), height=float(height), class_=class_)


def dot(x, y, class_, title, radius=4.0):
    return node('circle', node('title', title), cx=float(x), cy=float(y), r=radius, class_=class_)


def cross(x, y, title, reach=4.0):
    left, right, up, down = (f'{v:.1f}' for v in (x - reach, x + reach, y - reach, y + reach))
    d = f'M{left} {up}L{right} {down}M{left} {down}L{right} {up}'
    return node('path', node('title', title), d=d, class_='cross')


def whisker(x1, x2, y, class_='whisker', cap=3.5):
    if x1 == x2:
        return []
    return [line(x1, y, x2, y, class_), line(x1, y - cap, x1, y + cap, class_),
            line(x2, y - cap, x2, y + cap, class_)]


def picture(ident, width, height, title, described, children):
    return node('svg', node('title', title, id=f'{ident}-title'),
                node('desc', described, id=f'{ident}-desc'), children, role='img',
                xmlns='http://www.w3.org/2000/svg', viewBox=f'0 0 {width} {height}',
                aria_labelledby=f'{ident}-title {ident}-desc')


def axis(scale, top, bottom, words, base=None):
    """Lines from top to bottom, and the values below; base: a value whose line stands out."""
    parts = []
    for value in scale.ticks():
        x = float(scale.at(value))
        parts.append(line(x, top, x, bottom, 'base' if value == base else 'grid'))
        parts.append(node('text', words(value, text.plain), x=x, y=bottom + 15, class_='tick',
                          text_anchor='middle'))
    return parts


def crosses(arm):
    """What became of the runs that did not end well, a cross for each."""
    return '\u2715' * min(len(arm.runs) - len(arm.good), 8) + ' ' + arm.lost()


def no_marks(arm):
    """What a row without marks says, and its class."""
    if arm.skipped is not None:
        return f'skipped: {arm.skipped}', 'muted'
    if not arm.runs:
        return 'not run', 'muted'
    return (crosses(arm), 'bad') if not arm.good else ('not measured', 'muted')


class RowChart:
    """arms: arms, or pairs of an arm and the name of the one that it is compared with.

    draw(arm, y, scale), or draw(arm, y, scale, other) of a pair, returns marks, words, and None or
    a second line with its class. Without marks the row says why there are none. tick: one of the
    functions of text.
    """

    def __init__(self, ident, title, caption, arms, scale, draw, tick, base=None):
        self.ident, self.title, self.caption = ident, title, caption
        self.rows = [a if isinstance(a, tuple) else (a, None) for a in arms]
        self.scale, self.draw, self.tick, self.base = scale, draw, tick, base
        self.described = []

    def row(self, arm, other, y):
        parts = [label(0, y - 2 if other else y + 4, arm.name, LEFT - 8)]
        if other:
            parts.append(label(0, y + 11, f'to {other}', LEFT - 8, 'small muted'))
        marks, words, second = ([], '', None) if arm.skipped is not None else \
            self.draw(arm, y, self.scale, *([other] if other else []))
        if not marks:
            if not words:
                words, class_ = no_marks(arm)
                parts.append(label(LEFT + 6, y + 4, words, WIDTH - LEFT - 6, class_))
            else:
                parts.append(label(NOTES, y + 4, words, WIDTH - NOTES, 'muted'))
        else:
            parts.append(label(NOTES, y - 2 if second else y + 4, words, WIDTH - NOTES))
            if second:
                parts.append(label(NOTES, y + 11, second[0], WIDTH - NOTES, f'small {second[1]}'))
        name = f'{arm.name} to {other}' if other else arm.name
        self.described.append(f'{name}: {words}' + (f', {second[0]}' if second else ''))
        return node('g', marks, parts, class_=arm_class(arm.name))

    def figure(self):
        bottom = TOP + ROW * len(self.rows)
        rows = [self.row(*row, TOP + ROW * i + ROW / 2) for i, row in enumerate(self.rows)]
        lines = axis(self.scale, TOP, bottom, self.tick, self.base)
        drawn = picture(self.ident, WIDTH, bottom + 22, self.title,
                        '; '.join(self.described) + '.', [lines, rows])
        return node('figure', node('figcaption', node('strong', self.title),
                                   node('span', self.caption)), drawn)


def run_title(run, value):
    return f'round {run["round"] + 1:g}: {value}'
