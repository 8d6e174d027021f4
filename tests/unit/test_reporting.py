#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/report on made-up results: nothing is dropped, nothing is taken for markup.

In reporting_sample.json every outcome is there at least once, an arm of which no run ended well,
and arms that were skipped.
"""
import copy
import html.parser
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REPORT = os.path.join(ROOT, 'bench', 'report')
SAMPLE = os.path.join(HERE, 'reporting_sample.json')
sys.path.insert(0, os.path.join(ROOT, 'bench'))
from reporting import page, readme, results, scales, style, text  # noqa: E402

SVG = '{http://www.w3.org/2000/svg}'
HTML = '{http://www.w3.org/1999/xhtml}'


def sample():
    with open(SAMPLE, encoding='utf-8') as f:
        return json.load(f)


def report(*words):
    return subprocess.run([REPORT, *words], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL)


def words_of(element):
    return ' '.join(''.join(element.itertext()).split())


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def write(self, data, name='results.json'):
        path = os.path.join(self.dir, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(data if isinstance(data, str) else json.dumps(data))
        return path

    def read(self, path):
        with open(path, encoding='utf-8', newline='') as f:
            return f.read()

    def page(self, *documents):
        """The parsed page of documents, and its text."""
        paths = [self.write(d, f'{i}.json') for i, d in enumerate(documents)]
        made = page.page(results.load(paths))
        return ElementTree.fromstring(made), made


class Strict(html.parser.HTMLParser):
    """Complains of elements that are closed in another order than they were opened."""
    VOID = {'meta', 'br'}

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = []
        self.mistakes = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.mistakes.append(f'<{tag} /> is not closed in HTML')

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f'</{tag}> at {self.getpos()}')


def check_markup(test, made):
    parser = Strict()
    parser.feed(made)
    parser.close()
    test.assertEqual(parser.mistakes + parser.open, [])
    return parser.seen


class Form(Base):
    def test_page_is_well_formed_html_and_xml(self):
        _, made = self.page(sample())
        check_markup(self, made)

    def test_page_needs_nothing_from_outside(self):
        _, made = self.page(sample(), sample())
        for tag, attributes in check_markup(self, made):
            self.assertNotIn(tag, ('script', 'link', 'img', 'iframe', 'image', 'use', 'object'))
            self.assertNotIn('src', attributes)
            self.assertTrue(attributes.get('href', '#').startswith('#'), attributes)
            self.assertFalse([a for a in attributes if a.startswith('on')])
        self.assertNotRegex(style.sheet(), r'url\(|@import')

    def test_references_lead_somewhere(self):
        root, _ = self.page(sample(), sample())
        ids = [e.get('id') for e in root.iter() if e.get('id')]
        self.assertEqual(len(ids), len(set(ids)))
        for e in root.iter():
            wanted = (e.get('aria-labelledby') or '').split()
            wanted += [e.get('href')[1:]] if e.get('href') else []
            for name in wanted:
                self.assertIn(name, ids)

    def test_every_picture_has_a_title_and_a_description(self):
        root, _ = self.page(sample())
        pictures = list(root.iter(SVG + 'svg'))
        self.assertGreater(len(pictures), 3 * 5)
        for svg in pictures:
            self.assertEqual(svg.get('role'), 'img')
            self.assertTrue(words_of(svg.find(SVG + 'title')))
            self.assertIn('uswap', words_of(svg.find(SVG + 'desc')))

    def test_style_sheet_needs_no_escaping(self):
        self.assertNotRegex(style.sheet(), '[&<>"]')
        self.assertIn('prefers-color-scheme:dark', style.sheet())
        self.assertIn('@media print', style.sheet())

    def test_colours_stand_out_from_both_grounds(self):
        def luminance(colour):
            parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        for i, variables in enumerate((style.LIGHT, style.DARK)):
            sheet = luminance(re.search('--sheet:(#[0-9a-f]{6})', variables).group(1))
            for name, pair in style.COLOURS.items():
                colour = luminance(pair[i])
                low, high = sorted((sheet, colour))
                self.assertGreaterEqual((high + 0.05) / (low + 0.05), 3, f'{name} {pair[i]}')


class Content(Base):
    def test_head_holds_machine_commit_date_and_file(self):
        root, _ = self.page(sample())
        said = words_of(root.find(f'.//{HTML}header'))
        for words in ('Sample CPU, not measured', '24 GiB', '6.18.0-sample', 'cgroup v1',
                      '0123456789ab', '2001-02-03T04:05:06', '0.json'):
            self.assertIn(words, said)

    def test_changed_source_is_said(self):
        root, _ = self.page({**sample(), 'dirty': True})
        self.assertIn('0123456789ab with changes', words_of(root.find(f'.//{HTML}header')))

    def sections(self, root):
        """Section of each comparison; the first is the overview."""
        return root.findall(f'.//{HTML}section')[1:]

    def test_every_arm_and_run_is_in_its_section(self):
        data = sample()
        root, _ = self.page(data)
        sections = self.sections(root)
        self.assertEqual(len(sections), len(data['comparisons']))
        for section, comparison in zip(sections, data['comparisons']):
            said = words_of(section)
            self.assertIn(comparison['summary'], said)
            details = section.find(f'{HTML}details')
            self.assertEqual(len(details.findall(f'.//{HTML}tbody/{HTML}tr')),
                             sum(len(a['runs']) for a in comparison['arms']))
            for arm in comparison['arms']:
                self.assertIn(arm['name'], said)
                self.assertIn(arm['what'], said)
                if arm['skipped']:
                    self.assertIn(f'skipped: {arm["skipped"]}', said)
                for run in arm['runs']:
                    self.assertIn(run['detail'] or '', said)

    def test_runs_that_did_not_end_well_show_in_the_overview_and_the_plot_of_times(self):
        root, _ = self.page(sample())
        overview = root.find(f'.//{HTML}section')
        picture, table = next(overview.iter(SVG + 'svg')), next(overview.iter(HTML + 'table'))
        for words in ('1 of 3 killed', '3 of 3 killed', '1 of 3 failed', '1 of 3 timed out',
                      '1 of 3 wrong content', 'skipped'):
            self.assertIn(words, ' '.join(words_of(t) for t in picture.iter(SVG + 'text')))
            self.assertIn(words, words_of(table))
        rows = self.rows(root, 'w2-time')
        self.assertIn('\u2715 1 of 3 killed', words_of(rows['kernel-zram']))
        self.assertIn('\u2715\u2715\u2715 3 of 3 killed', words_of(rows['kernel-zswap']))

    def rows(self, root, ident):
        """The group of each arm in a plot, by its class."""
        svg = next(e for e in root.iter(SVG + 'svg')
                   if e.get('aria-labelledby').startswith(ident + '-title'))
        return {g.get('class').split('a-')[1]: g for g in svg.iter(SVG + 'g')}

    def test_plot_of_times_has_a_dot_for_each_run_in_the_order_of_the_times(self):
        data = sample()
        root, _ = self.page(data)
        for i, comparison in enumerate(data['comparisons']):
            rows = self.rows(root, f'w{i + 1}-time')
            dots = []
            for arm in comparison['arms']:
                good = [r for r in arm['runs'] if r['outcome'] == 'ok']
                found = [c for c in rows[arm['name']].iter(SVG + 'circle')
                         if c.get('class') == 'dot']
                self.assertEqual(len(found), len(good), arm['name'])
                dots += [(r['measured_s'], float(c.get('cx'))) for r, c in zip(good, found)]
            dots.sort()
            self.assertEqual([x for _, x in dots], sorted(x for _, x in dots))
            self.assertGreater(dots[-1][1], dots[0][1] + 50)

    def test_ratio_bars_begin_at_one(self):
        root, _ = self.page(sample())
        svg = next(e for e in root.iter(SVG + 'svg')
                   if e.get('aria-labelledby').startswith('w2-ratio-title'))
        one = float(next(e for e in svg.iter(SVG + 'line') if e.get('class') == 'base').get('x1'))
        bars = {words_of(g.findall(SVG + 'text')[0]): g.find(SVG + 'rect')
                for g in reversed(list(svg.iter(SVG + 'g')))}
        faster, slower = bars['uswap'], bars['uswap-file']
        self.assertAlmostEqual(float(faster.get('x')), one, places=1)
        self.assertAlmostEqual(float(slower.get('x')) + float(slower.get('width')), one, places=1)

    def test_limit_and_uncharged_pool_show_beside_the_peak(self):
        root, _ = self.page(sample())
        rows = self.rows(root, 'w1-memory')
        self.assertIn('of 256 MiB', words_of(rows['kernel-zram']))
        self.assertIn('uncharged', words_of(rows['kernel-zram']))
        self.assertIn('no limit', words_of(rows['native']))
        limits = [e for e in rows['uswap'].iter(SVG + 'line') if e.get('class') == 'limit']
        self.assertEqual(len(limits), 1)

    def test_an_arm_has_one_colour_in_all_plots_and_its_family_s_if_it_is_new(self):
        self.assertEqual(len({style.arm_class(n) for n in style.COLOURS}), len(style.COLOURS))
        self.assertEqual(style.arm_class('uswap-new'), style.arm_class('uswap'))
        self.assertEqual(style.arm_class('kernel-new'), style.arm_class('kernel-zram'))

    def test_cpu_of_others_shows_where_it_is_known(self):
        root, _ = self.page(sample())
        self.assertIn('370 ms', words_of(self.sections(root)[0]))
        data = sample()
        for run in (r for c in data['comparisons'] for a in c['arms'] for r in a['runs']):
            run.pop('others_cpu_s', None)
        root, _ = self.page(data)
        self.assertNotIn('370 ms', words_of(root))

    def test_two_files_keep_their_sources_apart(self):
        later = {**sample(), 'commit': 'fedcba9876543210', 'date': '2002-02-02T02:02:02+00:00'}
        root, _ = self.page(sample(), later)
        said = words_of(root)
        for words in ('[1]', '[2]', '0123456789ab', 'fedcba987654', '2002-02-02'):
            self.assertIn(words, said)
        self.assertEqual(len(self.sections(root)), 6)

    def test_arm_without_any_run_is_no_ratio_and_no_failure(self):
        data = sample()
        for arm in data['comparisons'][0]['arms']:
            arm.update(runs=[], skipped='no root')
        data['comparisons'] = data['comparisons'][:1]
        data['comparisons'][0]['ratios'] = []
        _, made = self.page(data)
        check_markup(self, made)
        self.assertIn('skipped: no root', made)


class Escaping(Base):
    HOSTILE = '</title><script>alert(1)</script>"\'><img src=x onerror=alert(1)> & \x00\ud800 |`*'

    def hostile(self):
        """The sample with its texts made hostile wherever they may be anything."""
        data = sample()
        data.update(date=self.HOSTILE, commit=self.HOSTILE)
        data['machine'] = {k: self.HOSTILE if isinstance(v, str) else v
                           for k, v in data['machine'].items()}
        for comparison in data['comparisons']:
            comparison.update(workload=self.HOSTILE, summary=self.HOSTILE)
            comparison['settings'][self.HOSTILE] = [self.HOSTILE, {self.HOSTILE: self.HOSTILE}]
            for arm in comparison['arms']:
                arm['what'] = self.HOSTILE
                arm['skipped'] = arm['skipped'] and self.HOSTILE
                if arm['name'] == 'uswap-zram':
                    arm['name'] = self.HOSTILE
                for run in arm['runs']:
                    run['detail'] = self.HOSTILE
                    if 'phases' in run:
                        run['phases'] = {self.HOSTILE: 1.5}
            for ratio in comparison['ratios']:
                ratio['arm'] = ratio['arm'].replace('uswap-zram', self.HOSTILE)
        return data

    def test_text_of_the_file_is_never_markup(self):
        root, made = self.page(self.hostile())
        tags = {tag for tag, _ in check_markup(self, made)}
        plain = {tag for tag, _ in check_markup(self, self.page(sample())[1])}
        self.assertEqual(tags, plain)
        shown = self.HOSTILE.replace('\x00', '\ufffd').replace('\ud800', '\ufffd')
        self.assertIn(shown, ''.join(root.itertext()))
        made.encode('utf-8')

    def test_text_of_the_file_is_no_markdown(self):
        made = readme.table(results.load([self.write(self.hostile())]))
        self.assertNotIn('<', made)
        widths = {len(re.findall(r'(?<!\\)\|', row)) for row in made.splitlines()
                  if row.startswith('|')}
        self.assertEqual(len(widths), 1)
        ends = readme.table(results.load([self.write({**sample(), 'commit': readme.END})]))
        self.assertNotIn(readme.END, ends)


class Table(Base):
    def test_row_holds_medians_losses_and_ratios(self):
        done = report('--table', SAMPLE)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        rows = {r.split('|')[1].strip(): r for r in done.stdout.splitlines() if r.startswith('|')}
        data = sample()
        for comparison in data['comparisons']:
            row = rows[comparison['workload']]
            self.assertIn('1 GiB in 256 MiB', row)
            ratio = next(r for r in comparison['ratios']
                         if (r['arm'], r['to']) == ('uswap', 'best-zram'))
            self.assertIn(f'{ratio["measured"]:.2f} \u00d7', row)
        self.assertIn('3 of 3 killed', rows['random'])
        self.assertIn('(1 of 3 wrong content)', rows['seq-read'])
        self.assertIn('skipped', rows['overflow'])
        self.assertIn('0123456789ab', done.stdout)

    def test_update_replaces_what_is_between_the_markers_and_nothing_else(self):
        path = self.write(f'# A\r\n{readme.BEGIN}\nold\n{readme.END}\nafter\n', 'README.md')
        os.chmod(path, 0o640)
        for _ in range(2):      # the second time nothing changes
            done = report('--table', '--update', path, SAMPLE)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))
            made = self.read(path)
            self.assertTrue(made.startswith(f'# A\r\n{readme.BEGIN}\n| workload |'), made[:80])
            self.assertTrue(made.endswith(f'\n{readme.END}\nafter\n'))
            self.assertNotIn('old', made)
            self.assertEqual(made.count('| seq-read |'), 1)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)
        self.assertEqual(sorted(os.listdir(self.dir)), ['README.md'])

    def test_update_without_markers_is_refused_and_changes_nothing(self):
        for content, pattern in (
                ('# A\n', 'bench:begin.* 0 times'), (readme.BEGIN, 'bench:end.* 0 times'),
                (f'{readme.BEGIN}{readme.BEGIN}{readme.END}', 'bench:begin.* 2 times'),
                (f'{readme.END}\n{readme.BEGIN}', 'comes before')):
            path = self.write(content, 'README.md')
            with self.assertRaisesRegex(results.BadInput, f'README.md: .*{pattern}'):
                readme.update(path, 'new\n')
            self.assertEqual(self.read(path), content)
        done = report('--table', '--update', self.write('# A\n', 'README.md'), SAMPLE)
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r'^bench/report: .*README.md: .*bench:begin.*\n$')


class BadInput(Base):
    # What is done to the sample, and what the error must name.
    CHANGES = (
        (lambda d: d.pop('version'), 'version is missing'),
        (lambda d: d.update(version=2), 'version is 2, not 1'),
        (lambda d: d.update(comparisons=[]), 'comparisons is empty'),
        (lambda d: d.pop('comparisons'), 'comparisons is missing'),
        (lambda d: d['machine'].pop('kernel'), r'machine\.kernel is missing'),
        (lambda d: d.update(machine=None), 'machine is null, not an object'),
        (lambda d: d['comparisons'][1].pop('ratios'), r'comparisons\[1\]\.ratios is missing'),
        (lambda d: d['comparisons'][0].update(arms=[]), r'comparisons\[0\]\.arms is empty'),
        (lambda d: d['comparisons'][0]['arms'][2].update(name=7),
         r'comparisons\[0\]\.arms\[2\]\.name is 7, not a text'),
        (lambda d: d['comparisons'][0]['arms'][2].update(name='native'),
         r'arms\[2\]\.name "native" is there twice'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].pop('cpu_s'),
         r'comparisons\[0\]\.arms\[1\]\.runs\[2\]\.cpu_s is missing'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2]['cpu'].pop('job_s'),
         r'runs\[2\]\.cpu\.job_s is missing'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(outcome='good'),
         r'runs\[2\]\.outcome is "good", not one of ok, killed'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(measured_s=None),
         r'runs\[2\]\.measured_s is null, not a time'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(wall_s=-1),
         r'runs\[2\]\.wall_s is -1'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(faults=True),
         r'runs\[2\]\.faults is true'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(faults=10 ** 400),
         r'runs\[2\]\.faults is 1000'),
        (lambda d: d['comparisons'][0]['arms'][1]['runs'][2].update(phases={'fill': 'x'}),
         r'runs\[2\]\.phases\.fill is "x"'),
        (lambda d: d['comparisons'][0]['ratios'][0].update(to='kernel-none'),
         r'ratios\[0\]\.to is "kernel-none"'),
        (lambda d: d['comparisons'][0]['ratios'][0].update(low=9),
         r'ratios\[0\] has .* not in order'),
    )

    def test_error_names_the_file_and_the_field(self):
        for change, pattern in self.CHANGES:
            data = copy.deepcopy(sample())
            change(data)
            with self.subTest(pattern), \
                    self.assertRaisesRegex(results.BadInput, rf'results\.json: .*{pattern}'):
                results.load([self.write(data)])

    def test_what_is_no_json_is_refused(self):
        for content in ('', '{', 'NaN', '{"version": NaN}', '[' * 100000):
            with self.subTest(content[:9]), \
                    self.assertRaisesRegex(results.BadInput, r'results\.json: not JSON'):
                results.load([self.write(content)])
        with self.assertRaisesRegex(results.BadInput, r'the document is \[\], not an object'):
            results.load([self.write('[]')])
        with open(os.path.join(self.dir, 'bytes'), 'wb') as f:
            f.write(b'\xff\xfe{}')
        with self.assertRaisesRegex(results.BadInput, 'bytes: not JSON'):
            results.load([os.path.join(self.dir, 'bytes')])

    def expect_refusal(self, words, pattern):
        done = report(*words)
        self.assertEqual((done.returncode, done.stdout), (125, ''), done.stderr)
        self.assertRegex(done.stderr, rf'\Abench/report: .*{pattern}.*\n\Z')

    def test_status_is_125_and_nothing_is_written(self):
        out = os.path.join(self.dir, 'page.html')
        bad = self.write({**sample(), 'version': 2})
        self.expect_refusal(['-o', out, bad], 'results.json: version is 2, not 1')
        self.expect_refusal(['-o', out, SAMPLE, bad], 'results.json: version')
        self.assertFalse(os.path.exists(out))
        self.expect_refusal([os.path.join(self.dir, 'none')], 'none: No such file')
        self.expect_refusal([], 'FILE.json')
        self.expect_refusal(['--update', 'README.md', SAMPLE], '--update needs --table')
        self.expect_refusal(['-o', os.path.join(self.dir, 'no', 'p'), SAMPLE], 'No such file')
        kept = self.write(sample(), 'kept.json')
        self.expect_refusal(['-o', kept, kept], 'kept.json: would be overwritten')
        self.assertTrue(self.read(kept).startswith('{'))

    def test_output_replaces_a_file_but_no_pipe_or_device(self):
        out = self.write('old', 'page.html')
        self.assertEqual(report('-o', out, SAMPLE).returncode, 0)
        self.assertTrue(self.read(out).startswith('<!DOCTYPE html>'))
        pipe = os.path.join(self.dir, 'pipe')
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertEqual(report('--table', '-o', pipe, SAMPLE).returncode, 0)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        self.assertTrue(os.read(reader, 65536).startswith(b'| workload |'))


class Numbers(unittest.TestCase):
    def test_three_digits_and_a_unit(self):
        for words, shown in (
                (text.seconds(0.0009996), '1.00 ms'), (text.seconds(0.9996), '1.00 s'),
                (text.seconds(9.996), '10.0 s'), (text.seconds(99.96), '100 s'),
                (text.seconds(1234.5), '1234 s'), (text.seconds(0), '0.00 s'),
                (text.nanoseconds(850), '850 ns'), (text.nanoseconds(31.5e6), '31.5 ms'),
                (text.size(1 << 30), '1 GiB'), (text.size(1023.9 * 1024), '1.00 MiB'),
                (text.size(0), '0 B'), (text.count(999), '999'), (text.count(1234567), '1.23 M'),
                (text.ratio(None), text.DASH), (text.seconds(None), text.DASH)):
            self.assertEqual(words, shown)

    def test_axes_hold_all_values_between_their_ends(self):
        for values in ([0.2, 3], [7], [0], [], [1e-9, 1e9], [999, 1001], [3e-5, 4e-5],
                       [1e-300, 5], [2, 1e200]):
            for kind in (scales.Linear, scales.Log, scales.Ratio):
                scale = kind(values, 100, 200)
                ticks = scale.ticks()
                self.assertGreaterEqual(len(ticks), 2, (kind, values))
                self.assertLessEqual(len(ticks), 12, (kind, values))
                self.assertEqual(ticks, sorted(ticks))
                for value in values:
                    if value or kind is scales.Linear:
                        self.assertGreaterEqual(scale.at(value), 100 - 1e-6, (kind, values))
                        self.assertLessEqual(scale.at(value), 200 + 1e-6, (kind, values))

    def test_ratio_axis_is_even(self):
        scale = scales.Ratio([2.5], 0, 100)
        self.assertAlmostEqual(scale.at(2) - scale.at(1), scale.at(1) - scale.at(0.5))


if __name__ == '__main__':
    unittest.main()
