# SPDX-License-Identifier: Apache-2.0
"""`hekla.process_group` and `hekla.data_parallel` by processes with JAX's CPU: the curve of one process that has the
whole batch, the same bits whatever buckets and times, what one rank does wrong said on all."""
import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from plugin_session import build_dir

pytestmark = pytest.mark.any_platform
RANKS = pathlib.Path(__file__).with_name('data_parallel_ranks.py')


def start(command, size, folder):
    """What each rank prints."""
    processes = [subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'JAX_PLATFORMS': 'cpu', 'RANK': str(rank),
             'WORLD_SIZE': str(size), 'HEKLA_STORE': f'file:{folder}'}) for rank in range(size)]
    said = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-4000:]
            said.append(out)
    finally:
        for process in processes:
            process.kill()
    return said


# A launch for each number of ranks.
SCENARIOS = {2: ('buckets', 'shards', 'again', 'errors'), 3: ('calls',), 4: ('buckets', 'shards')}


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """What each rank has, of a scenario with so many."""
    @functools.cache
    def ranks(size):
        said = start([str(RANKS), *SCENARIOS[size]], size, tmp_path_factory.mktemp('ranks') / 'store')
        return [json.loads(out.splitlines()[-1]) for out in said]
    return lambda scenario, size: [rank[scenario] for rank in ranks(size)]


@pytest.mark.parametrize('size', (2, 4))
def test_buckets_give_the_curve_of_one_process(size, found):
    ranks = found('buckets', size)
    for own in ranks:
        assert own['buckets of 1'] == 4 and own[f'buckets of {1 << 20}'] == 1
        assert set(own['digests']) == {ranks[0]['wanted']}, ranks
        for losses in own['losses']:
            np.testing.assert_allclose(losses, ranks[0]['wanted losses'], rtol=1e-6)
            np.testing.assert_allclose(losses, ranks[0]['one losses'], rtol=1e-5)
        assert own['losses'][0][-1] < own['losses'][0][0]


@pytest.mark.parametrize('size', (2, 4))
def test_shards_give_the_parameters_of_one_process(size, found):
    ranks = found('shards', size)
    for own in ranks:
        assert set(own['digests']) == {ranks[0]['wanted']}, ranks
        assert own['state'] == 2 * 4 * (5 * 7 + 7 + 7 * 3 + 3)
        np.testing.assert_allclose(own['momentum'], [-0.1] * 3, rtol=1e-5)


@pytest.mark.parametrize('mode', ('', '--shards'))
def test_the_example_prints_the_same_losses_on_all_numbers_of_ranks(mode, tmp_path):
    example = pathlib.Path(__file__).parents[2] / 'examples' / 'data_parallel' / 'train.py'

    def printed(size):
        said = start([str(example), *filter(None, [mode])], size, tmp_path / str(size))[0]
        return [float(line.split()[-1]) for line in said.splitlines() if line.startswith('step ')]
    one, two = printed(1), printed(2)
    assert len(one) == 6 and one[-1] < one[0]
    np.testing.assert_allclose(two, one, atol=2e-4)


def test_calls_are_numpys(found):
    for own in found('calls', 3):
        assert not own['wrong']


def test_what_one_rank_does_wrong_is_said_on_all(found):
    wanted = {'other_shape': 'differ: parameter 4: "f32[0] none" and "f32[3] none"',
              'missing': 'no gradient has come of 3 of 5 parameters',
              'wrong_shape': 'the gradient of last/0 is float32(3,), not float32(7, 3)',
              'update': 'a wrong number', 'rows': 'the first dimension of (3,) in 2 equal parts',
              'root': 'argument 3', 'sizes': 'int', 'no_leaf': 'last/0', 'other_root': 'NoneType',
              'other_leaf': 'none', 'no_state': 'last/0', 'other_state': 'none', 'left': 'of the program',
              'in_block': 'the first dimension of (3,) in 2 equal parts', 'too_early': 'have not gone yet'}
    ranks = found('errors', 2)
    for name, text in wanted.items():
        for rank, said in enumerate(ranks):
            assert text in said[name], (rank, said)
        if name not in ('other_shape', 'too_early'):    # which are wrong on both
            assert 'rank 1 has refused it' in ranks[0][name], ranks[0]
    assert ranks[1]['update'].startswith('ArithmeticError')
    assert ranks[1]['rows'].startswith('ValueError')


def test_a_step_that_all_refuse_is_followed_by_another(found):
    for own in found('again', 2):
        twice = 'the gradient of parameter 3, last/1, has come twice in a step'
        assert own['said'][:4] == own['said'][5:9] == ['first/w', 'more'] * 2, own
        assert all(twice in said for said in own['said'][4::5]), own
        assert own['averages'] == own['first'] == [1, 1], own
        np.testing.assert_allclose(own['moved'], -np.ones((2, 3)), rtol=1e-5)


def test_a_library_of_another_version_is_named(tmp_path):
    code = """
from hekla import _process_group as native
class Other:
    def __init__(self, path):
        self.hekla_group_version = lambda: 1
native.ctypes.CDLL = Other
try:
    native.library()
except ImportError as error:
    print(error)
"""
    assert 'has version 1, not ' in start(['-c', code], 1, tmp_path)[0]
