# SPDX-License-Identifier: Apache-2.0
"""How tests/upstream/torch_xla.py counts."""
import importlib.util
import pathlib

import pytest

pytestmark = pytest.mark.any_platform
SCRIPT = pathlib.Path(__file__).resolve().parents[1] / 'upstream' / 'torch_xla.py'


@pytest.fixture(scope='module')
def upstream():
    # By another name: torch_xla is the package under test.
    spec = importlib.util.spec_from_file_location('hekla_upstream_torch_xla', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cases_count_where_upstream_passes(upstream):
    known = upstream.read_known('# why\na.py::T::slow* [VULKAN]: too slow\na.py::T::gap: a reason\n')
    theirs = {f'a.py::T::{name}': [outcome, ''] for name, outcome in
              dict(ok='passed', gap='passed', new='passed', slow_1='passed', theirs='failed', both='failed',
                   unasked='passed', skipped='skipped').items()}
    ours = {f'a.py::T::{name}': [outcome, ''] for name, outcome in
            dict(ok='passed', gap='failed', new='failed', slow_1='failed', theirs='passed', both='failed',
                 unasked='skipped', skipped='failed').items()}
    row, used = upstream.compare(theirs, ours, known, 'HEKLA_CPU')
    assert (row.upstream, row.passed, row.skipped, row.failed_upstream) == (4, 1, 1, 2)
    assert row.known == ['a.py::T::gap'] and row.ahead == ['a.py::T::theirs']
    assert row.new == ['a.py::T::new', 'a.py::T::slow_1']
    assert upstream.stale(known, used, 'HEKLA_CPU', ['a']) == []
    assert upstream.stale(known, set(), 'HEKLA_CPU', ['a']) == [known[1]]
    assert upstream.stale(known, set(), 'VULKAN', ['b']) == []
    row, _ = upstream.compare(theirs, ours, known, 'VULKAN')
    assert row.new == ['a.py::T::new']


def test_a_file_that_only_ours_cannot_collect_is_a_failure(upstream):
    row, _ = upstream.compare({'a.py': ['passed', '']}, {'a.py': ['failed', 'no such device']}, [], 'VULKAN')
    assert row.new == ['a.py']


def test_the_list_of_known_failures_is_read(upstream):
    upstream.read_known(upstream.KNOWN.read_text(encoding='utf-8'))
    with pytest.raises(SystemExit, match='no "pattern'):
        upstream.read_known('a line without a reason')
