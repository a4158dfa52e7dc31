# SPDX-License-Identifier: Apache-2.0
"""`hekla.process_group` and `hekla.data_parallel` by processes with JAX's CPU: the curve of one process that has the
whole batch, the same bits whatever buckets and times, what one rank does wrong said on all."""
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


def run(scenario, size, folder):
    return [json.loads(out.splitlines()[-1]) for out in start([str(RANKS), scenario], size, folder)]


@pytest.mark.parametrize('size', (2, 4))
def test_buckets_give_the_curve_of_one_process(size, tmp_path):
    for found in run('buckets', size, tmp_path):
        assert found['buckets of 1'] == 4 and found[f'buckets of {1 << 20}'] == 1
        assert set(found['digests']) == {found['wanted']}, found
        for losses in found['losses']:
            np.testing.assert_allclose(losses, found['wanted losses'], rtol=1e-6)
            np.testing.assert_allclose(losses, found['one losses'], rtol=1e-5)
        assert found['losses'][0][-1] < found['losses'][0][0]


@pytest.mark.parametrize('size', (2, 4))
def test_shards_give_the_parameters_of_one_process(size, tmp_path):
    for found in run('shards', size, tmp_path):
        assert set(found['digests']) == {found['wanted']}, found
        assert found['state'] == 2 * 4 * (5 * 7 + 7 + 7 * 3 + 3)
        np.testing.assert_allclose(found['momentum'], [-0.1] * 3, rtol=1e-5)


@pytest.mark.parametrize('mode', ('', '--shards'))
def test_the_example_prints_the_same_losses_on_all_numbers_of_ranks(mode, tmp_path):
    example = pathlib.Path(__file__).parents[2] / 'examples' / 'data_parallel' / 'train.py'

    def printed(size):
        said = start([str(example), *filter(None, [mode])], size, tmp_path / str(size))[0]
        return [float(line.split()[-1]) for line in said.splitlines() if line.startswith('step ')]
    one, two = printed(1), printed(2)
    assert len(one) == 6 and one[-1] < one[0]
    np.testing.assert_allclose(two, one, atol=2e-4)


def test_calls_are_numpys(tmp_path):
    for found in run('calls', 3, tmp_path):
        assert not found['wrong']


def test_what_one_rank_does_wrong_is_said_on_all(tmp_path):
    wanted = {'other_shape': 'differ: parameter 4: "f32[0] none" and "f32[3] none"',
              'missing': 'no gradient has come of 3 of 5 parameters',
              'wrong_shape': 'the gradient of last/0 is float32(3,), not float32(7, 3)',
              'update': 'a wrong number', 'rows': 'the first dimension of (3,) in 2 equal parts'}
    found = run('errors', 2, tmp_path)
    for name, text in wanted.items():
        for rank, said in enumerate(found):
            assert text in said[name], (rank, said)
        if name != 'other_shape':
            assert 'rank 1 has refused it' in found[0][name], found[0]
    assert found[1]['update'].startswith('ArithmeticError')
    assert found[1]['rows'].startswith('ValueError')
