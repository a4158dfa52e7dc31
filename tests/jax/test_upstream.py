# SPDX-License-Identifier: Apache-2.0
"""How tests/upstream/jax.py tells new failures of JAX's own tests from known ones and stale entries."""
import importlib.util

import pytest

from plugin_session import ROOT

pytestmark = [pytest.mark.quick, pytest.mark.any_platform]


@pytest.fixture(scope='module')
def upstream():
    # By its path: as a module of that name it would hide JAX.
    spec = importlib.util.spec_from_file_location('upstream_jax', ROOT / 'tests/upstream/jax.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KNOWN = """
# a comment
a_test.py::T::test1* [tbb,vulkan]: one
a_test.py::T::test2: two
b_test.py::*: three
"""


def cases(**outcomes):
    return {f'a_test.py::T::{name}': [outcome, 0.1, ''] for name, outcome in outcomes.items()}


def test_known_failures_count_as_failures_and_do_not_need_a_word(upstream):
    known = upstream.read_known(KNOWN)
    cpu = cases(test1a='passed', test1b='passed', test2='passed', test3='failed', test4='passed',
                test5='passed')
    ours = cases(test1a='failed', test1b='passed', test2='failed', test3='failed', test4='failed',
                 test5='skipped', test6='failed')
    row, used = upstream.compare(cpu, ours, known, 'tbb')
    assert (row.cpu, row.passed, row.skipped) == (5, 1, 1)
    assert row.known == ['a_test.py::T::test1a', 'a_test.py::T::test2']
    assert row.new == ['a_test.py::T::test4']
    assert used == {known[0], known[1]}


def test_an_entry_of_other_platforms_explains_nothing(upstream):
    known = upstream.read_known(KNOWN)
    outcomes = cases(test1a='failed')
    row, used = upstream.compare(cases(test1a='passed'), outcomes, known, 'reference')
    assert row.new == ['a_test.py::T::test1a'] and not used


def test_an_entry_is_stale_when_its_whole_file_ran_and_nothing_needed_it(upstream):
    known = upstream.read_known(KNOWN)
    assert upstream.stale(known, {known[0]}, 'tbb', ['a_test']) == [known[1]]
    assert upstream.stale(known, set(), 'reference', ['a_test']) == [known[1]]
    assert upstream.stale(known, set(), 'tbb', ['a_test', 'b_test']) == known


def test_an_entry_has_a_reason(upstream):
    with pytest.raises(SystemExit, match='reason'):
        upstream.read_known('a_test.py::T::test1\n')


def test_a_case_has_the_worst_outcome_of_its_reports(upstream, tmp_path):
    log = tmp_path / 'log'
    line = '{"id": "tests/a_test.py::T::test1", "when": "%s", "outcome": "%s", "seconds": 1, "message": ""}\n'
    log.write_text(line % ('call', 'failed') + line % ('teardown', 'passed'), encoding='utf-8')
    assert {case: value[0] for case, value in upstream.read_log(log).items()} == {
        'a_test.py::T::test1': 'failed'}
