#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch_xla's own tests on a device of ours and on its CPU device, and compares case by case.

    .venv/torch-2.9.0/bin/python tests/upstream/torch_xla.py --device HEKLA_CPU
        [--files test_operations,test_ops] [-k EXPRESSION] [--share N] [--seed S] [--json FILE]

The tests come from torch_xla's public repository at the tag of the installed version: from --checkout,
or cloned once. Without --files: those that one device can run, of test_ops a tenth that the seed chooses.
What upstream's CPU device said of a case is kept in .cache. A case counts where that device passes it
and ours does not skip it. Failures that torch_xla_known.txt explains are told apart from new ones.
Status 1: a new failure, or an entry of torch_xla_known.txt that nothing needs although its files ran
whole.
"""
import argparse
import collections
import functools
import importlib.metadata
import json
import os
import pathlib
import random
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'support'))
import upstream_cases  # noqa: E402
from upstream_cases import explains, stale  # noqa: E402

KNOWN = HERE / 'torch_xla_known.txt'
REPOSITORY = 'https://github.com/pytorch/xla'
DEVICES = {'HEKLA_CPU': 'cpu', 'VULKAN': 'vulkan', 'HEKLA_REFERENCE': 'reference'}
UPSTREAM = 'CPU'
read_known = functools.partial(upstream_cases.read_known, name=KNOWN.name)

# File: variables that upstream's own script sets for it. The other files of dynamo/ start processes of
# several devices or need more than one.
FILES = {
    'test_operations': {}, 'test_ops': {}, 'test_autocast': {}, 'test_autocast_xla': {}, 'test_metrics': {},
    'dynamo/test_bridge': {}, 'dynamo/test_dynamo': {}, 'dynamo/test_dynamo_aliasing': {},
    'dynamo/test_dynamo_config': {}, 'dynamo/test_dynamo_dynamic_shape': {},
    'dynamo/test_dynamo_graph_dump': {'XLA_SAVE_TENSORS_FMT': 'text'},
    'dynamo/test_dynamo_integrations_util': {}, 'dynamo/test_graph_input_matcher': {},
    'dynamo/test_none_remover': {}, 'dynamo/test_num_output': {},
    'ds/test_dynamic_shapes': {'XLA_EXPERIMENTAL': 'nonzero:masked_select:masked_scatter'},
}
SHARES = {'test_ops': 10}  # without --share; of the other files every case

# A file's counts. upstream: cases that count; ahead: ids that fail upstream and pass on ours.
Row = collections.namedtuple('Row', 'upstream passed skipped failed_upstream ahead known new')


def compare(theirs, ours, known, device):
    """(Row, entries of known that explain a failure). theirs, ours: {id: [outcome, message]}"""
    def outcome(case):
        return theirs.get(case, ['none'])[0]
    passed = [case for case in ours if outcome(case) == 'passed']
    failed = [case for case in passed if ours[case][0] == 'failed']
    used = {entry for case in failed for entry in known if explains(entry, case, device)}
    new = [case for case in failed if not any(explains(entry, case, device) for entry in used)]
    skipped = sum(ours[case][0] == 'skipped' for case in passed)
    return Row(upstream=len(passed) - skipped, passed=len(passed) - skipped - len(failed), skipped=skipped,
               failed_upstream=sum(outcome(case) == 'failed' for case in ours),
               ahead=[case for case in ours if outcome(case) == 'failed' and ours[case][0] == 'passed'],
               known=[case for case in failed if case not in new], new=new), used


def read_log(path):
    """{id: [outcome, message]}: the worst outcome of each case's reports."""
    rank = {'passed': 0, 'skipped': 1, 'failed': 2}
    cases = {}
    lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
    for report in map(json.loads, lines):
        old = cases.get(report['id'])
        if old is None or rank[report['outcome']] > rank[old[0]]:
            cases[report['id']] = [report['outcome'], report['message']]
    return cases


class Suite:
    """A checkout of torch_xla's tests and how to run a file of it."""

    def __init__(self, options, cache):
        self.options = options
        self.cache = cache
        self.checkout = options.checkout or cache / 'checkout'
        self.tests = self.checkout / 'test'
        self.packages = cache / 'packages'

    def prepare(self):
        if not self.tests.is_dir():
            if self.options.checkout:
                raise SystemExit(f'{self.checkout} has no folder test')
            upstream_cases.clone(self.options.repository, f'v{importlib.metadata.version("torch_xla")}',
                                 self.checkout, ['test', 'examples'])
        upstream_cases.install(self.packages, HERE / 'torch_xla_requirements.txt', '--no-deps')

    def environment(self, device):
        # TORCH_TEST_DEVICES: torch's own test helpers make their cases for the device xla by it.
        values = {**os.environ, 'PJRT_DEVICE': device, 'CPU_NUM_DEVICES': '1', 'PYTHONSAFEPATH': '1',
                  'PYTORCH_TEST_WITH_SLOW': '1', 'PYTHONHASHSEED': '0', 'CASE_TIMEOUT': str(self.options.timeout),
                  'TORCH_TEST_DEVICES': str(ROOT / 'tests' / 'support' / 'torch_test_device.py')}
        for name in ('PJRT_LIBRARY_PATH', 'XLA_STABLEHLO_COMPILE', 'HEKLA_PLUGIN_PATH'):
            values.pop(name, None)
        # examples: upstream's files find it by the name that they are called by.
        path = [ROOT / 'tests' / 'support', self.tests, self.checkout / 'examples', self.packages]
        if device != UPSTREAM:
            build, _ = upstream_cases.build_with(DEVICES[device])
            path.insert(0, build / 'python')
        values['PYTHONPATH'] = os.pathsep.join(map(str, path))
        return values

    def run(self, device, file, share='1:0', only=None):
        """Runs a file's cases, of a share or those named; {id: [outcome, message]} of those that ran."""
        folder = self.cache / 'logs' / device
        folder.mkdir(parents=True, exist_ok=True)
        base = folder / file.replace('/', '-')
        log = base.with_suffix('.jsonl')
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            values = {**self.environment(device), **FILES.get(file, {}), 'CASE_LOG': str(log), 'CASE_SHARE': share}
            if 'XLA_SAVE_TENSORS_FMT' in values:
                values['XLA_SAVE_TENSORS_FILE'] = str(pathlib.Path(scratch) / 'tensors')
            if only is not None:
                listed = pathlib.Path(scratch) / 'only'
                listed.write_text('\n'.join(only), encoding='utf-8')
                values['CASE_ONLY_IDS'] = str(listed)
            # A worker of xdist that a case ends, or that a case keeps too long, is followed by another.
            command = [sys.executable, '-m', 'pytest', '-p', 'case_log', '-p', 'torch_cases',
                       '-p', 'no:cacheprovider', '-q', '--tb=short', '--import-mode=importlib',
                       '-n', str(self.options.j), '--max-worker-restart', '1000', f'--rootdir={self.tests}',
                       str(self.tests / f'{file}.py')]
            if self.options.k:
                command += ['-k', self.options.k]
            upstream_cases.run_pytest(command, self.tests, values, base.with_suffix('.out'), f'{device} {file}',
                                      lambda: upstream_cases.failures(read_log(log)))
        return read_log(log)

    def upstream(self, file, cases):
        """What upstream's CPU device says of the cases: {id: [outcome, message]}, run where it is not kept."""
        path = self.cache / 'results' / f'{file.replace("/", "-")}.json'
        kept = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
        missing = [case for case in cases if case not in kept]
        if missing:
            ran = self.run(UPSTREAM, file, only=missing)
            # A file that ours could not even collect, and upstream could, has no case that says so.
            kept.update({**{case: ['passed', ''] for case in missing if '::' not in case}, **ran})
            upstream_cases.write_json(path, kept)
        return kept


def print_table(rows, device):
    print(f'\n| file | upstream\'s CPU passes | {device} passes | ratio | known | new | skipped by {device} '
          '| fail upstream | of these pass |')
    print('|---|---|---|---|---|---|---|---|---|')
    total = Row(0, 0, 0, 0, [], [], [])
    for row in rows.values():
        total = Row(*(a + b for a, b in zip(total, row)))
    for file, row in [*rows.items(), ('all', total)]:
        ratio = f'{100 * row.passed / row.upstream:.2f} %' if row.upstream else '-'
        print(f'| {file} | {row.upstream} | {row.passed} | {ratio} | {len(row.known)} | {len(row.new)} '
              f'| {row.skipped} | {row.failed_upstream} | {len(row.ahead)} |')


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='HEKLA_CPU', choices=sorted(DEVICES))
    parser.add_argument('--files', help='comma-separated, without .py, below test/ (default: '
                        + ','.join(FILES) + ')')
    parser.add_argument('-k', help="pytest's expression of names")
    parser.add_argument('--share', type=int, help='one of so many cases of each file')
    parser.add_argument('--seed', type=int, help='which share (default: drawn, and printed)')
    parser.add_argument('-j', type=int, default=1, help='processes')
    parser.add_argument('--timeout', type=float, default=300, help='seconds a case may take')
    parser.add_argument('--checkout', type=lambda p: pathlib.Path(p).resolve(),
                        help="an existing checkout of torch_xla's repository")
    parser.add_argument('--repository', default=REPOSITORY, help='what to clone (%(default)s)')
    parser.add_argument('--json', type=pathlib.Path, help='file for the counts and failures')
    return parser.parse_args()


def main():
    options = parse_arguments()
    files = [name.removesuffix('.py') for name in options.files.split(',')] if options.files else list(FILES)
    cache = ROOT / '.cache' / 'upstream' / f'torch_xla-{importlib.metadata.version("torch_xla")}'
    seed = random.randrange(1 << 16) if options.seed is None else options.seed
    suite, known = Suite(options, cache), read_known(KNOWN.read_text(encoding='utf-8'))
    suite.prepare()
    print(f'device {options.device}, --seed {seed}', flush=True)
    rows, used, whole, messages = {}, set(), [], {}
    for file in files:
        share = options.share or SHARES.get(file, 1)
        ours = suite.run(options.device, file, f'{share}:{seed}')
        rows[file], explained = compare(suite.upstream(file, list(ours)), ours, known, options.device)
        used |= explained
        if share == 1 and not options.k:
            whole.append(file)
        row = rows[file]
        messages.update({case: ours[case][1] for case in row.new + row.known})
        for case in row.new:
            print(f'FAILED {case}: {" ".join(ours[case][1].split())[:300]}', flush=True)
        print(f'{file}: {row.passed} of {row.upstream} passed, {len(row.known)} known, {len(row.new)} new '
              'failures', flush=True)
    closed = stale(known, used, options.device, whole)
    print_table(rows, options.device)
    for entry in closed:
        print(f'STALE {entry.pattern}: no failure needs this entry any more ({entry.reason})')
    if options.json:
        content = {'device': options.device, 'seed': seed, 'messages': messages,
                   'files': {file: row._asdict() for file, row in rows.items()},
                   'stale': [entry._asdict() for entry in closed]}
        options.json.write_text(json.dumps(content, indent=1), encoding='utf-8')
    return 1 if closed or any(row.new for row in rows.values()) else 0


if __name__ == '__main__':
    sys.exit(main())
