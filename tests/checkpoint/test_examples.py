# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say: a training that is killed ends with the bits of one that is not."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / 'examples' / 'train_with_checkpoints.py'


def start(build, folder, processes, store):
    running = []
    for rank in range(processes):
        env = {**os.environ, 'PYTHONPATH': str(build / 'python'), 'JAX_PLATFORMS': 'tbb,cpu'}
        if processes > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(processes), HEKLA_STORE=f'file:{store}')
        running.append(subprocess.Popen([sys.executable, EXAMPLE, folder], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    return running


def finish(running):
    outputs = [process.communicate(timeout=240)[0] for process in running]
    assert all(process.returncode == 0 for process in running), outputs
    lines = {output.splitlines()[-1] for output in outputs}
    assert len(lines) == 1, lines
    assert float(re.match(r'([0-9.]+) %', next(iter(lines)))[1]) > 94
    return outputs, lines.pop()


@pytest.mark.parametrize('processes', [1, 4])
def test_killed_and_started_again(build, tmp_path, processes):
    _, whole = finish(start(build, tmp_path / 'whole', 1, None))
    killed = start(build, tmp_path / 'run', processes, tmp_path / 'store-1')
    deadline = time.monotonic() + 120
    while not list((tmp_path / 'run').glob('step-*/COMMIT')):
        assert time.monotonic() < deadline and all(p.poll() is None for p in killed)
        time.sleep(0.01)
    for process in killed:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    outputs, resumed = finish(start(build, tmp_path / 'run', processes, tmp_path / 'store-2'))
    assert all('going on at step' in output for output in outputs)
    assert resumed == whole
