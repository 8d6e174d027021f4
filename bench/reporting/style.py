# SPDX-License-Identifier: MIT
"""One colour for each arm on the whole page, and the style sheet.

native is grey, the kernel's arms are oranges, uswap's are blues; within a family lighter and
darker, which the labels at the rows never leave to the eye alone.
"""
# name: (on light, on dark); each at 3 : 1 or better against the ground
COLOURS = {
    'native': ('#6b7280', '#a3aab5'),
    'kernel-zram': ('#c2570c', '#fb923c'),
    'kernel-zram-mthp': ('#86330f', '#f0702a'),
    'kernel-zswap': ('#d9752a', '#fdbb7a'),
    'kernel-file': ('#9a6a12', '#d4a24e'),
    'uswap': ('#1d4ed8', '#5b9dfa'),
    'uswap-zram': ('#4a86ee', '#9cc6fd'),
    'uswap-file': ('#0b7391', '#3fbcd8'),
}
FAMILIES = (('kernel', 'kernel-zram'), ('uswap', 'uswap'))


def arm_class(name):
    """The class of an arm's colour; one that is not known has that of its family, or grey."""
    if name not in COLOURS:
        name = next((first for start, first in FAMILIES if name.startswith(start)), 'native')
    return f'arm a-{name}'


def variables(which):
    return ''.join(f'--{name}:{pair[which]};' for name, pair in COLOURS.items())


LIGHT = ('--ground:#fff;--sheet:#f6f7f9;--text:#1a1d21;--muted:#596069;--line:#d5d9df;'
         '--strong:#2b3037;--bad:#b0123f;' + variables(0))
DARK = ('--ground:#14171b;--sheet:#1c2026;--text:#e8eaed;--muted:#a2a9b3;--line:#363c45;'
        '--strong:#d5d9df;--bad:#ff7d93;' + variables(1))

SHEET = '''
:root{color-scheme:light dark;LIGHT}
@media (prefers-color-scheme:dark){:root{DARK}}
@media print{:root{LIGHT}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:1200px;background:var(--ground);
 color:var(--text);font:15px/1.45 Segoe UI,Roboto,Helvetica Neue,Arial,sans-serif;
 -webkit-print-color-adjust:exact;print-color-adjust:exact}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .4rem}
h2{font-size:1.35rem;margin:0 0 .2rem;line-height:1.25}
p{margin:.3rem 0 .7rem;max-width:80ch}
a{color:inherit}
section{margin-top:2.6rem;padding-top:1.4rem;border-top:1px solid var(--line)}
.lead,.muted{color:var(--muted)}
.facts{display:flex;flex-wrap:wrap;gap:.35rem 1.6rem;margin:.6rem 0 1rem;padding:0}
.facts div{min-width:0}
.facts dt{color:var(--muted);font-size:.78rem;line-height:1.3}
.facts dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:1rem}
figure{display:flex;flex-direction:column;margin:0;padding:.9rem 1rem .6rem;min-width:0;
 background:var(--sheet);border-radius:8px;break-inside:avoid}
figcaption{margin-bottom:.4rem}
figcaption strong{display:block}
figcaption span{color:var(--muted);font-size:.85rem}
figcaption i{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .1em;
 background:var(--muted);border:1px solid var(--muted);vertical-align:-.05em}
figcaption i.part-1{background:color-mix(in srgb,var(--muted) 50%,transparent)}
figcaption i.part-2{background:color-mix(in srgb,var(--muted) 12%,transparent)}
figure svg{display:block;width:100%;height:auto;margin-top:auto}
.scroll{overflow-x:auto}
.wide svg{min-width:760px;max-width:1000px}
svg text{fill:var(--text);font-size:12px;font-variant-numeric:tabular-nums;paint-order:stroke;
 stroke:var(--sheet);stroke-width:4px;stroke-linejoin:round}
svg .small{font-size:10.5px}
svg .muted,svg .tick{fill:var(--muted)}
svg .tick{font-size:11px}
svg .bad{fill:var(--bad)}
svg .strong{font-weight:600}
svg .grid{stroke:var(--line);stroke-width:1}
svg .base{stroke:var(--strong);stroke-width:1.25}
svg .limit{stroke:var(--text);stroke-width:2}
.arm{--c:var(--native)}
ARMS
svg .fill{fill:var(--c)}
svg .part-0{fill:var(--c);stroke:var(--c)}
svg .part-1{fill:var(--c);stroke:var(--c);fill-opacity:.5}
svg .part-2{fill:var(--c);stroke:var(--c);fill-opacity:.12}
svg .dot{fill:var(--c);fill-opacity:.45;stroke:var(--c)}
svg .hollow{fill:var(--sheet);stroke:var(--c);stroke-width:1.75}
svg .stem{stroke:var(--c);stroke-width:5;stroke-opacity:.28}
svg .stroke{stroke:var(--c);stroke-width:1.5;fill:none}
svg .median{stroke:var(--c);stroke-width:3}
svg .whisker{stroke:var(--text);stroke-width:1.25;fill:none}
svg .cross{stroke:var(--bad);stroke-width:1.75;fill:none}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th{white-space:nowrap}
caption{text-align:left;font-weight:600;font-size:1rem;padding:1.4rem 0 .4rem;white-space:nowrap}
th,td{padding:.32rem .7rem .32rem 0;text-align:right;vertical-align:top;
 border-bottom:1px solid var(--line)}
td{white-space:nowrap}
th{font-weight:600}
thead th{color:var(--muted);font-weight:400;vertical-align:bottom}
th:first-child,.text{text-align:left}
td.text{white-space:normal;min-width:14ch}
th small,td small{display:block;font-weight:400;color:var(--muted);font-size:.92em}
td small.bad{color:var(--bad)}
tbody th small{max-width:30ch;white-space:normal}
.bad{color:var(--bad)}
.swatch{display:inline-block;width:.65em;height:.65em;border-radius:50%;margin-right:.45em;
 background:var(--c)}
summary{cursor:pointer;margin:1rem 0 .2rem}
@media print{body{max-width:none;padding:0;font-size:10pt}.scroll{overflow:visible}
 .plots{grid-template-columns:1fr 1fr;gap:.5rem}figure{padding:.4rem}
 figcaption strong{font-size:9pt}figcaption span{font-size:7.5pt;line-height:1.3}
 details::details-content{content-visibility:visible}
 table{font-size:7pt}th,td{padding-right:.4rem}td{white-space:normal}
 thead{display:table-header-group}tr,h2,.facts{break-inside:avoid}h2,caption{break-after:avoid}
 .wide svg{min-width:0}section{margin-top:1.2rem}section.workload{break-before:page}}
'''


def sheet():
    arms = '\n'.join(f'.a-{name}{{--c:var(--{name})}}' for name in COLOURS)
    return SHEET.replace('LIGHT', LIGHT).replace('DARK', DARK).replace('ARMS', arms)
