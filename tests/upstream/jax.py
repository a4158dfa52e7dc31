#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's own unit tests on a platform of ours and on jaxlib's CPU, and compares case by case.

    .venv/jax-0.10.2/bin/python tests/upstream/jax.py --platform tbb --tier 1
        [--files lax_test,nn_test] [-k REGEX] [--share N --seed S] [--failed] [--x64] [--gspmd] [-j N]

The tests come from JAX's public repository at the tag of the installed jax: from --checkout, or
cloned once. jaxlib's CPU runs a case once and its outcome is kept; ours are kept too, for --failed
and --report. Only cases that jaxlib's CPU passes count. Failures that jax_known.txt explains are
told apart from new ones. Status 1: a new failure, or an entry of jax_known.txt that no case needs
any more although its whole file ran.
"""
import argparse
import collections
import functools
import importlib.metadata
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'support'))
import upstream_cases  # noqa: E402
from upstream_cases import explains, stale  # noqa: E402

KNOWN = HERE / 'jax_known.txt'
REPOSITORY = 'https://github.com/jax-ml/jax'
read_known = functools.partial(upstream_cases.read_known, name=KNOWN.name)

# By value for a plugin. Of tier 4 what one device can show; pallas runs there in its interpreter.
TIERS = {
    1: 'xla_bridge_test jax_jit_test array_test lax_vmap_test dtypes_test',
    2: 'lax_test lax_numpy_test lax_numpy_operators_test lax_numpy_reducers_test '
       'lax_numpy_indexing_test lax_numpy_einsum_test lax_numpy_setops_test lax_numpy_ufuncs_test '
       'lax_autodiff_test lax_control_flow_test nn_test fft_test image_test ann_test '
       'unary_ops_accuracy_test',
    3: 'linalg_test svd_test eigh_test qdwh_test random_test random_lax_test lax_scipy_test '
       'lax_scipy_special_functions_test scipy_stats_test scipy_signal_test scipy_fft_test '
       'sparse_bcoo_bcsr_test x64_context_test',
    4: 'api_test mutable_array_test memories_test export_test aot_test python_callback_test '
       'debugging_primitives_test checkify_test layout_test compilation_cache_test '
       'array_interoperability_test pallas/pallas_test pallas/ops_test pallas/indexing_test '
       'pallas/pallas_vmap_test pallas/pallas_shape_poly_test',
}

# A file's counts. cpu: passed by jaxlib's CPU; new and known: ids that fail on ours among those.
Row = collections.namedtuple('Row', 'cpu passed skipped known new')


def compare(cpu, ours, known, platform):
    """(Row, entries of known that explained a failure). cpu, ours: {id: [outcome, seconds, message]}"""
    counted = [case for case in ours if cpu.get(case, ['none'])[0] == 'passed']
    failed = [case for case in counted if ours[case][0] == 'failed']
    used = {case: entry for case in failed for entry in known if explains(entry, case, platform)}
    return Row(cpu=len(counted),
               passed=sum(ours[case][0] == 'passed' for case in counted),
               skipped=sum(ours[case][0] == 'skipped' for case in counted),
               known=[case for case in failed if case in used],
               new=[case for case in failed if case not in used]), set(used.values())


def read_log(path):
    """{id: [outcome, seconds, message]}: the worst outcome of each case's reports."""
    rank = {'passed': 0, 'skipped': 1, 'failed': 2}
    cases = {}
    if not path.exists():
        return cases
    for line in path.read_text(encoding='utf-8').splitlines():
        report = json.loads(line)
        case = report['id'].removeprefix('tests/')
        new = [report['outcome'], report['seconds'], report['message']]
        old = cases.get(case)
        if old is None or rank[new[0]] >= rank[old[0]]:
            cases[case] = [new[0], new[1] + (old[1] if old else 0), new[2]]
    return cases


class Store:
    """Outcomes per file and platform, as JSON in the cache folder."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, platform, file):
        return self.folder / platform / f'{file.replace("/", "-")}.json'

    def read(self, platform, file):
        """({id: [outcome, seconds, message]}, selections whose cases are all there)"""
        path = self.path(platform, file)
        if not path.exists():
            return {}, []
        content = json.loads(path.read_text(encoding='utf-8'))
        return content['cases'], content['selections']

    def add(self, platform, file, cases, selection=None):
        old, selections = self.read(platform, file)
        if selection is not None and selection not in selections:
            selections.append(selection)
        upstream_cases.write_json(self.path(platform, file),
                                  {'selections': selections, 'cases': {**old, **cases}})


class Suite:
    """A checkout of JAX's tests and how to run a file of it."""

    def __init__(self, options, cache):
        self.options = options
        self.cache = cache
        self.checkout = options.checkout or cache / 'checkout'
        self.packages = cache / 'packages'

    def prepare(self):
        if not (self.checkout / 'tests').is_dir():
            if self.options.checkout:
                raise SystemExit(f'{self.checkout} has no folder tests')
            upstream_cases.clone(self.options.repository, f'jax-v{importlib.metadata.version("jax")}',
                                 self.checkout, ['tests', 'jax/_src'])
        upstream_cases.install(self.packages, HERE / 'jax_requirements.txt')

    def environment(self, platform):
        # The checkout has a folder jax of its own, which must not be imported.
        values = {**os.environ, 'PYTHONSAFEPATH': '1', 'JAX_NUM_GENERATED_CASES': '10',
                  'JAX_SKIP_SLOW_TESTS': '1', 'PYTHONHASHSEED': '0',
                  'CASE_JAX_DUT': self.options.device_under_test,
                  'CASE_JAX_SOURCE': str(self.checkout / 'jax' / '_src'),
                  'CASE_TIMEOUT': str(self.options.timeout),
                  'JAX_ENABLE_X64': '1' if self.options.x64 else '0'}
        if self.options.gspmd:
            values['JAX_USE_SHARDY_PARTITIONER'] = '0'
        for name in ('PJRT_NAMES_AND_LIBRARY_PATHS', 'JAX_COMPILATION_CACHE_DIR'):
            values.pop(name, None)
        path = [str(ROOT / 'tests' / 'support'), str(self.packages)]
        if platform == 'cpu':
            values['JAX_PLATFORMS'] = 'cpu'
        else:
            build, library = upstream_cases.build_with('cpu' if platform == 'tbb' else platform)
            values.update({'JAX_PLATFORMS': f'{platform},cpu', 'HEKLA_PLUGIN_PATH': str(library)})
            path.insert(0, str(build / 'python'))
        values['PYTHONPATH'] = os.pathsep.join(path)
        return values

    def run(self, platform, file, skip=(), only=None, note=''):
        """Runs a file's cases; {id: [outcome, seconds, message]} of those that ran."""
        folder = self.cache / 'logs' / platform
        folder.mkdir(parents=True, exist_ok=True)
        base = folder / file.replace('/', '-')
        log = base.with_suffix('.jsonl')
        log.unlink(missing_ok=True)
        values = self.environment(platform)
        values['CASE_LOG'] = str(log)
        values['CASE_SHARE'] = f'{self.options.share}:{self.options.seed}'
        for variable, ids in (('CASE_SKIP_IDS', skip), ('CASE_ONLY_IDS', only)):
            if ids:
                listed = base.with_suffix(f'.{variable.lower()}')
                listed.write_text('\n'.join(f'tests/{case}' for case in ids), encoding='utf-8')
                values[variable] = str(listed)
        # Tests that read what a program prints redirect stdout, which pytest's capture would undo.
        command = [sys.executable, '-m', 'pytest', '-p', 'case_log', '-p', 'no:cacheprovider',
                   '-q', '--tb=short', '--capture=no', '-n', str(self.options.j), '--max-worker-restart', '1000',
                   f'--rootdir={self.checkout}', str(self.checkout / 'tests' / f'{file}.py')]
        if self.options.k:
            command += ['-k', self.options.k]
        upstream_cases.run_pytest(command, self.checkout, values, base.with_suffix('.out'),
                                  f'{platform} {file}{note}',
                                  lambda: upstream_cases.failures(read_log(log)))
        return read_log(log)


def print_table(rows, platform):
    print(f'\n| file | jaxlib\'s CPU passes | {platform} passes | ratio | skipped | known | new |')
    print('|---|---|---|---|---|---|---|')
    total = Row(0, 0, 0, [], [])
    for file, row in [*rows.items(), ('all', None)]:
        row = row or total
        counted = row.cpu - row.skipped
        ratio = f'{100 * row.passed / counted:.2f} %' if counted else '-'
        print(f'| {file} | {counted} | {row.passed} | {ratio} | {row.skipped} | {len(row.known)} '
              f'| {len(row.new)} |')
        total = Row(*(a + b for a, b in zip(total, row)))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb', choices=('tbb', 'vulkan', 'reference'))
    parser.add_argument('--tier', type=int, action='append', choices=sorted(TIERS),
                        help='may be given several times; default: all')
    parser.add_argument('--files', help='comma-separated, without .py, instead of tiers')
    parser.add_argument('-k', help="pytest's expression of names")
    parser.add_argument('--share', type=int, default=1, help='one of so many cases')
    parser.add_argument('--seed', type=int, default=0, help='which share')
    parser.add_argument('--failed', action='store_true',
                        help='only cases that jaxlib passes and ours failed when last run')
    parser.add_argument('--report', action='store_true', help='run nothing, show what is kept')
    parser.add_argument('--x64', action='store_true', help='with JAX_ENABLE_X64')
    parser.add_argument('--gspmd', action='store_true',
                        help="with JAX_USE_SHARDY_PARTITIONER=0: shardings in GSPMD's words")
    parser.add_argument('-j', type=int, default=2, help='processes')
    parser.add_argument('--timeout', type=float, default=300, help='seconds a case may take')
    parser.add_argument('--device-under-test', default='cpu',
                        help="what JAX's tests take our device for. By our own names they leave out "
                             'what they have no word on (default: %(default)s)')
    parser.add_argument('--checkout', type=lambda p: pathlib.Path(p).resolve(),
                        help="an existing checkout of JAX's repository")
    parser.add_argument('--repository', default=REPOSITORY, help='what to clone (%(default)s)')
    parser.add_argument('--json', type=pathlib.Path, help='file for the counts and failures')
    return parser.parse_args()


def main():
    options = parse_arguments()
    names = options.files.split(',') if options.files else ' '.join(
        TIERS[tier] for tier in options.tier or sorted(TIERS)).split()
    files = [name.removesuffix('.py') for name in names]
    cache = ROOT / '.cache' / 'upstream' / f'jax-{importlib.metadata.version("jax")}'
    suffix = ('-x64' if options.x64 else '') + ('-gspmd' if options.gspmd else '')
    suite, store = Suite(options, cache), Store(cache / 'results')
    known = read_known(KNOWN.read_text(encoding='utf-8'))
    cpu_key, our_key = f'cpu{suffix}', f'{options.platform}{suffix}'
    selection = f'{options.share}:{options.seed if options.share > 1 else 0}:{options.k or ""}'
    if not options.report:
        suite.prepare()

    rows, used = {}, set()
    for file in files:
        cpu, selections = store.read(cpu_key, file)
        is_kept = '1:0:' in selections or selection in selections
        if not (options.report or options.failed or is_kept):
            store.add(cpu_key, file, suite.run('cpu', file, skip=cpu), selection)
            cpu, _ = store.read(cpu_key, file)
        ours, _ = store.read(our_key, file)
        if not options.report:
            failed = [case for case in ours if ours[case][0] == 'failed'
                      and cpu.get(case, ['none'])[0] == 'passed']
            if options.failed and not failed:
                continue
            ours = suite.run(options.platform, file, only=failed if options.failed else None)
            store.add(our_key, file, ours)
        rows[file], explained = compare(cpu, ours, known, options.platform)
        used |= explained
        for case in rows[file].new:
            print(f'FAILED {case}: {" ".join(ours[case][2].split())[:300]}', flush=True)
        row = rows[file]
        print(f'{file}: {row.passed} of {row.cpu - row.skipped} passed, {row.skipped} skipped, '
              f'{len(row.known)} known, {len(row.new)} new failures', flush=True)

    whole = options.share == 1 and not (options.k or options.failed or options.report)
    stale_entries = stale(known, used, options.platform, files) if whole else []
    print_table(rows, our_key)
    for entry in stale_entries:
        print(f'STALE {entry.pattern}: no failure needs this entry any more ({entry.reason})')
    if options.json:
        content = {'platform': our_key, 'files': {file: row._asdict() for file, row in rows.items()},
                   'stale': [entry._asdict() for entry in stale_entries]}
        options.json.write_text(json.dumps(content, indent=1), encoding='utf-8')
    return 1 if stale_entries or any(row.new for row in rows.values()) else 0


if __name__ == '__main__':
    sys.exit(main())
