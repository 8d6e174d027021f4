# SPDX-License-Identifier: MIT
"""HTML and SVG as a tree. Text and attributes are escaped here and nowhere else.

What comes out is both HTML and well-formed XML, so no element may be left open, and `<style>` may
not hold characters that need escaping.
"""
import re

# Characters that XML has no way to write, lone surrogates among them.
UNWRITABLE = re.compile('[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]')
VOID = ('meta', 'br')
ESCAPES = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'}


def escape(text):
    return re.sub('[&<>"]', lambda m: ESCAPES[m.group()], UNWRITABLE.sub('\ufffd', str(text)))


class Node:
    def __init__(self, tag, attributes, children):
        self.tag = tag
        self.attributes = attributes
        self.children = children

    def add(self, *children):
        self.children.extend(children)
        return self

    def write(self, out):
        words = ''.join(f' {k}="{escape(shorten(v))}"' for k, v in self.attributes.items()
                        if v is not None)
        if self.tag in VOID:
            out.append(f'<{self.tag}{words} />')
            return
        out.append(f'<{self.tag}{words}>')
        for child in self.children:
            write(child, out)
        out.append(f'</{self.tag}>')


def shorten(value):
    """A coordinate to two digits."""
    return f'{value:.2f}'.rstrip('0').rstrip('.') if isinstance(value, float) else value


def write(item, out):
    if isinstance(item, Node):
        item.write(out)
    elif isinstance(item, (list, tuple)):
        for child in item:
            write(child, out)
    elif item is not None:
        out.append(escape(item))


def node(tag, *children, **attributes):
    """class_ is class; text_anchor is text-anchor; None, as child or attribute, is left out."""
    return Node(tag, {k.rstrip('_').replace('_', '-'): v for k, v in attributes.items()},
                list(children))


def document(root):
    out = ['<!DOCTYPE html>\n']
    root.write(out)
    return ''.join(out) + '\n'
