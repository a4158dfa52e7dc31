# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with the backend `hekla`, on CPU tensors.

What the ranks do is in group_ranks.py; a launch runs all of its scenarios, a test looks at one.
"""
import json
import os
import subprocess
import sys

import pytest

import group_ranks
from conftest import build_dir
from test_launch import free_port

pytestmark = pytest.mark.any_platform
RANKS = group_ranks.__file__
WORLDS = (2, 4)


def start(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'OMP_NUM_THREADS': '1'})


def finish(process):
    try:
        said, _ = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, said[-4000:]


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """{world: what each rank found wrong, by scenario}."""
    folder = tmp_path_factory.mktemp('ranks')
    for world in WORLDS:
        (folder / str(world)).mkdir()
    finish(start([sys.executable, RANKS, 'scenarios', str(folder), *map(str, WORLDS)]))
    return {world: [json.loads((folder / str(world) / f'{rank}.json').read_text(encoding='utf-8'))
                    for rank in range(world)] for world in WORLDS}


@pytest.mark.quick
@pytest.mark.parametrize('world', WORLDS)
@pytest.mark.parametrize('scenario', [scenario.__name__ for scenario in group_ranks.SCENARIOS])
def test_scenario(found, world, scenario):
    wrong = {rank: outcome[scenario] for rank, outcome in enumerate(found[world]) if outcome[scenario]}
    assert not wrong, '\n'.join(f'rank {rank}: {line}' for rank, lines in wrong.items() for line in lines)


def test_launchers(tmp_path):
    """torchrun's and our launcher's processes, and spawned ones with a store in a file."""
    torchrun = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--master-port', free_port(), RANKS, 'sum']
    ours = [build_dir() / 'bin' / 'hekla', 'launch', '--nproc', '2', sys.executable, RANKS, 'sum']
    launchers = {'torchrun': torchrun, 'hekla launch': ours, 'spawn': [sys.executable, RANKS, 'spawn']}
    for name in launchers:
        (tmp_path / name).mkdir()
    for process in [start([*command, tmp_path / name]) for name, command in launchers.items()]:
        finish(process)
    for name in launchers:
        sums = [(tmp_path / name / f'sum {rank}').read_text(encoding='utf-8') for rank in range(2)]
        assert sums == ['[1.0, 1.0, 1.0] hekla'] * 2, name


def test_flight_records_say_who_died(tmp_path):
    """A rank is killed in the midst of a run: the launcher says in which call the others wait for it."""
    ours = [build_dir() / 'bin' / 'hekla', 'launch', '--nproc', '3', '--flight-dir', tmp_path / 'flight',
            sys.executable, RANKS, 'killed', tmp_path]
    process = start(ours)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 128 + 9, said[-4000:]
    why = subprocess.run([build_dir() / 'bin' / 'hekla', 'launch', '--why', tmp_path / 'flight'], check=True,
                         capture_output=True, text=True).stdout.split('\n')
    assert why[0].startswith('rank 1 died of signal 9 (Killed), after call '), why
    assert ', all_reduce(sum) of f32[3]: ranks 0, 2 wait' in why[1], why
    assert 'for rank 1, whose last there is call ' in why[1] and why[1].endswith(', which has died'), why
    for line in why[:2]:
        assert f'flight records: {line}\n' in said, said


def test_refused_calls_keep_no_memory():
    """Of a call that never reaches the library, of one that it refuses, and of one that is done."""
    code = """
import ctypes, gc, time
from hekla import _process_group as native
class Store(dict):
    def get(self, key, seconds):
        return dict.get(self, key)
    def put(self, key, value):
        return self.setdefault(key, value) is value
group = native.Group(Store(), 0, 1, 'alone', 'auto', 10000)
memory = (ctypes.c_float * 4)()
f32 = native.library().hekla_group_dtype(b'f32')
x = native.Array(ctypes.addressof(memory), 4, f32)
for wrong in (['no array', x, 0, 1.0, -1], [x, x, 'no number', 1.0, -1], [x]):
    try:
        group.start('all_reduce', *wrong, keeps=[memory])
        raise SystemExit('accepted')
    except (ctypes.ArgumentError, TypeError):
        pass
assert not native._kept, native._kept
try:
    group.start('all_reduce', native.Array(0, 4, 12345), x, 0, 1.0, -1, keeps=[memory])
    raise SystemExit('accepted')
except native.GroupError:
    pass
group.start('all_reduce', x, x, 0, 1.0, -1, keeps=[memory]).wait()
end = time.monotonic() + 10
while native._kept and time.monotonic() < end:
    native._forget_finished(native.library())
assert not native._kept, native._kept
"""
    finish(start([sys.executable, '-c', code]))
