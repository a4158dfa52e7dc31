# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with the backend `hekla`, on CPU tensors.

What the ranks do is in group_ranks.py; a launch runs all of its scenarios, a test looks at one.
"""
import functools
import json
import os
import subprocess
import sys

import pytest

import group_ranks
from conftest import build_dir
from test_launch import free_port

pytestmark = [pytest.mark.any_platform, pytest.mark.quick]
RANKS = group_ranks.__file__


def run(command, **values):
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240,
                          env={**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'OMP_NUM_THREADS': '1', **values})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


LAUNCHES = {
    2: lambda: [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '2', '--master-port', free_port()],
    4: lambda: [str(build_dir() / 'bin' / 'hekla'), 'launch', '--nproc', '4', sys.executable],
}


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """function(world) -> what each rank of a launch found wrong, by scenario."""
    @functools.cache
    def launch(world):
        folder = tmp_path_factory.mktemp('ranks')
        run([*LAUNCHES[world](), RANKS, str(folder)])
        return [json.loads((folder / f'{rank}.json').read_text(encoding='utf-8')) for rank in range(world)]
    return launch


@pytest.mark.parametrize('world', LAUNCHES)
@pytest.mark.parametrize('scenario', [scenario.__name__ for scenario in group_ranks.SCENARIOS])
def test_scenario(found, world, scenario):
    wrong = {rank: outcome[scenario] for rank, outcome in enumerate(found(world)) if outcome[scenario]}
    assert not wrong, '\n'.join(f'rank {rank}: {line}' for rank, lines in wrong.items() for line in lines)


def test_spawn(tmp_path):
    """multiprocessing's processes, a store in a file, ends without destroy_process_group; without gloo."""
    run([sys.executable, '-c', f'import torch.multiprocessing as mp, group_ranks\n'
         f'if __name__ == "__main__": mp.spawn(group_ranks.spawned, (2, {str(tmp_path)!r}), 2)'],
        PYTHONPATH=os.pathsep.join([str(build_dir() / 'python'), os.path.dirname(RANKS)]))
    assert [(tmp_path / f'spawned {rank}').read_text(encoding='utf-8') for rank in range(2)] == ['[1.0, 1.0, 1.0] hekla'] * 2
