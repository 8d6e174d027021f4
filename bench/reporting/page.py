# SPDX-License-Identifier: MIT
"""The whole page: an overview, then each workload, then where the figures come from."""
from . import charts, overview, style, tables, text
from .markup import document, node
from .results import sources

TITLE = 'uswap beside the kernel\u2019s own swap'
LEAD = ('Each workload ran in every arm in turn, round after round, in the same memory. A ratio '
        'compares runs of the same round. A run that the kernel killed, that failed, or that found '
        'wrong content is a result and is shown as one; it has no part in a median.')


def facts(pairs):
    return node('dl', [node('div', node('dt', k), node('dd', v)) for k, v in pairs], class_='facts')


def source_facts(source, many):
    pairs = [('machine', text.machine(source)),
             ('transparent huge pages', source.machine['thp'] or text.DASH),
             ('commit', text.commit(source)), ('date', source.date), ('file', source.name)]
    return facts([('source', f'[{source.number}]')] * many + pairs)


def workload(comparison, many):
    pairs = text.settings(comparison)
    if many:
        pairs.append(('source', f'[{comparison.source.number}]'))
    return node('section', node('h2', comparison.workload), node('p', comparison.summary,
                                                                 class_='lead'),
                facts(pairs), node('div', charts.all_of(comparison), class_='plots'),
                tables.times(comparison), tables.memory(comparison), tables.ratios(comparison),
                tables.runs(comparison),
                id=comparison.id, class_='workload')


def page(comparisons):
    found = sources(comparisons)
    many = len(found) > 1
    head = node('head', node('meta', charset='utf-8'), node('title', TITLE),
                node('meta', name='viewport', content='width=device-width, initial-scale=1'),
                node('style', style.sheet()))
    body = node('body', node(
        'header', node('h1', TITLE), node('p', LEAD, class_='lead'),
        [source_facts(s, many) for s in found]),
        node('main', node('section', node('h2', 'All workloads'),
                          overview.figure(comparisons, many), tables.overview(comparisons),
                          id='overview'),
             [workload(c, many) for c in comparisons]))
    return document(node('html', head, body, lang='en', xmlns='http://www.w3.org/1999/xhtml'))
