#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch's own tests of torch.distributed with the backend `hekla`, and those that fail with gloo.

    .venv/torch-2.9.0/bin/python tests/upstream/torch_c10d.py [--world 4] [-k PART] [--share N --seed S] [--json FILE]

The tests are those that the installed torch brings along (torch/testing/_internal/distributed/distributed_test.py),
which its repository runs once for each backend; nothing is fetched. Their ranks are forked from one process. To have
the cases of gloo, of which many are for it alone, the tests take the backend for gloo. A case counts where gloo
passes it too. Failures that torch_c10d_known.txt explains are told apart from new ones.
Status 1: a new failure, or an entry of torch_c10d_known.txt that nothing needs although all cases ran.
"""
import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zlib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'support'))
import upstream_cases  # noqa: E402
from upstream_cases import explains, stale  # noqa: E402

KNOWN = HERE / 'torch_c10d_known.txt'
FILE = 'distributed_test'
BACKENDS = ('hekla', 'gloo')


def case_class(backend):
    """Torch's cases for gloo, whose ranks are forked and have the backend."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test
    torch.set_num_threads(1)
    common_distributed.TIMEOUT_DEFAULT = int(os.environ['CASE_TIMEOUT'])
    common_distributed.TIMEOUT_OVERRIDE.clear()
    if backend == 'hekla':
        import hekla.torch_distributed  # noqa: F401  # registers it
        made = dist.init_process_group

        @functools.wraps(made)
        def init_process_group(backend=None, *arguments, **named):
            return made('hekla' if backend == 'gloo' else backend, *arguments, **named)
        dist.init_process_group = init_process_group

    class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context('fork').Process)
    return Cases


class Log(unittest.TextTestResult):
    """A line of JSON for each case."""

    def __init__(self, path):
        super().__init__(unittest.runner._WritelnDecorator(sys.stderr), True, 2)
        self._path = path

    def _note(self, test, outcome, message=''):
        with open(self._path, 'a', encoding='utf-8') as log:
            log.write(json.dumps([test.id().split('.')[-1], outcome, message[-3000:]]) + '\n')

    def addSuccess(self, test):  # pylint: disable=invalid-name
        super().addSuccess(test)
        self._note(test, 'passed')

    def addSkip(self, test, reason):  # pylint: disable=invalid-name
        super().addSkip(test, reason)
        self._note(test, 'skipped', reason)

    def addFailure(self, test, err):  # pylint: disable=invalid-name
        super().addFailure(test, err)
        self._note(test, 'failed', str(err[1]))

    addError = addFailure  # noqa: N815


def run_cases(backend, log, listed):
    """In the process that forks the ranks."""
    cases = case_class(backend)
    names = pathlib.Path(listed).read_text(encoding='utf-8').split('\n')
    unittest.TestSuite(cases(name) for name in names if name).run(Log(log))


def environment(options):
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()
    return {**os.environ, 'PYTHONPATH': str(build / 'python'), 'OMP_NUM_THREADS': '1', 'BACKEND': 'gloo',
            'WORLD_SIZE': str(options.world), 'CASE_TIMEOUT': str(options.timeout), 'PYTHONSAFEPATH': '1'}


def child(options, backend, names, folder):
    """{name: [outcome, message]}"""
    log, listed = folder / f'{backend}.jsonl', folder / f'{backend}.txt'
    log.unlink(missing_ok=True)
    listed.write_text('\n'.join(names), encoding='utf-8')
    with open(folder / f'{backend}.out', 'w', encoding='utf-8') as out, tempfile.TemporaryDirectory() as scratch:
        values = {**environment(options), 'TEMP_DIR': scratch}
        done = subprocess.run([sys.executable, __file__, '--run', backend, str(log), str(listed)], env=values,
                              stdout=out, stderr=subprocess.STDOUT, check=False, cwd=scratch)
    lines = log.read_text(encoding='utf-8').splitlines() if log.exists() else []
    cases = {name: [outcome, message] for name, outcome, message in map(json.loads, lines)}
    for name in names:
        if name not in cases:
            cases[name] = ['failed', f'the process of the cases ended with status {done.returncode} before this case']
    return cases


def names_of_cases(options):
    text = subprocess.run([sys.executable, __file__, '--list'], env={**environment(options), 'TEMP_DIR': '/tmp'},
                          stdout=subprocess.PIPE, check=True, text=True).stdout
    names = [name for name in text.split() if name.startswith('test_')]
    return [name for name in names if (not options.k or options.k in name)
            and zlib.crc32(name.encode()) % options.share == options.seed % options.share]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--world', type=int, default=4, help='ranks (%(default)s): with fewer, cases of groups skip themselves')
    parser.add_argument('-k', help='only cases whose names contain this')
    parser.add_argument('--share', type=int, default=1, help='one of so many cases')
    parser.add_argument('--seed', type=int, default=0, help='which share')
    parser.add_argument('--timeout', type=int, default=90, help='seconds a case may take')
    parser.add_argument('--json', type=pathlib.Path, help='file for the counts and failures')
    parser.add_argument('--list', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--run', nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.run:
        return run_cases(*options.run)
    if options.list:
        os.environ.setdefault('CASE_TIMEOUT', '1')
        print('\n'.join(unittest.defaultTestLoader.getTestCaseNames(case_class('gloo'))))
        return 0
    known = upstream_cases.read_known(KNOWN.read_text(encoding='utf-8'), name=KNOWN.name)
    folder = ROOT / '.cache' / 'upstream' / 'torch_c10d'
    folder.mkdir(parents=True, exist_ok=True)
    names = names_of_cases(options)
    ours = child(options, 'hekla', names, folder)
    failed = [name for name in names if ours[name][0] == 'failed']
    gloo = child(options, 'gloo', failed, folder) if failed else {}
    counted = [name for name in failed if gloo[name][0] == 'passed']
    used = {entry for name in counted for entry in known if explains(entry, f'{FILE}.py::{name}', 'hekla')}
    new = [name for name in counted if not any(explains(entry, f'{FILE}.py::{name}', 'hekla') for entry in used)]
    passed = sum(ours[name][0] == 'passed' for name in names)
    skipped = sum(ours[name][0] == 'skipped' for name in names)
    for name in new:
        print(f'FAILED {name}: {" ".join(ours[name][1].split())[-400:]}')
    is_whole = options.share == 1 and not options.k
    closed = stale(known, used, 'hekla', [FILE]) if is_whole else []
    for entry in closed:
        print(f'STALE {entry.pattern}: no failure needs this entry any more ({entry.reason})')
    print(f'{len(names)} cases with {options.world} ranks: {passed} passed, {skipped} are not for CPUs or gloo, '
          f'{len(failed) - len(counted)} fail with gloo too, {len(counted) - len(new)} known, {len(new)} new failures')
    if options.json:
        options.json.write_text(json.dumps({'cases': ours, 'gloo': gloo, 'new': new}, indent=1), encoding='utf-8')
    return 1 if new or closed else 0


if __name__ == '__main__':
    sys.exit(main())
