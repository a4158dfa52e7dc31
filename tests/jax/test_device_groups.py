# SPDX-License-Identifier: Apache-2.0
"""`hekla.process_group` with arrays on the device under test, by processes: NumPy's results on the device, without a
copy of what the host reads in place, and an array that is consumed or deleted meanwhile."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from plugin_session import build_dir

pytestmark = pytest.mark.any_plugin
RANKS = pathlib.Path(__file__).with_name('device_group_ranks.py')


@pytest.fixture(scope='module', params=(2, 3))
def ranks(request, tmp_path_factory):
    """What each rank has seen."""
    store = tmp_path_factory.mktemp('store')
    environment = {**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'WORLD_SIZE': str(request.param),
                   'HEKLA_STORE': f'file:{store}'}
    processes = [subprocess.Popen([sys.executable, str(RANKS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**environment, 'RANK': str(rank)})
                 for rank in range(request.param)]
    found = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-4000:]
            found.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
    return found


def test_results_are_numpys_and_on_the_device(ranks, platform):
    for own in ranks:
        assert own['platform'] == platform and not own['wrong'], own


def test_what_the_host_reads_in_place_is_not_copied(ranks, platform):
    for own in ranks:
        if platform == 'tbb':
            assert own['has address'] and own['reads in place'] and own['consumed in place'], own
        elif platform == 'vulkan' and own['has address']:
            assert own['reads in place'], own


def test_an_array_may_go_while_its_call_is_under_way(ranks):
    for rank, own in enumerate(ranks):
        assert own['sums'] == [[sum(range(1, len(ranks) + 1))]] * 2, own
        assert own['doubled'] == 2 * (rank + 1), own


def test_a_deleted_array_is_said_on_all(ranks):
    for rank, own in enumerate(ranks):
        assert 'deleted' in own['deleted'] and 'float32[3]' in own['deleted'], own
        if rank != 1:
            assert 'rank 1 has refused it' in own['deleted'], own
