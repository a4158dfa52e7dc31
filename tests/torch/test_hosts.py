# SPDX-License-Identifier: Apache-2.0
"""A training on two hosts, which are namespaces of this machine, under `hekla launch --nnodes 1:2`: one is
cut off, the run starts again without it from the last committed checkpoint, and the curve goes on."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import hosts
import pytest

from conftest import build_dir

pytestmark = pytest.mark.any_platform
TRAINING = pathlib.Path(__file__).with_name('host_training.py')
STEPS = 40


def command(*options):
    return [build_dir() / 'bin' / 'hekla', 'launch', *options, sys.executable, TRAINING]


def environment():
    return {**os.environ, 'PYTHONPATH': str(build_dir() / 'python'), 'OMP_NUM_THREADS': '1'}


def curve(folder):
    """[(step, loss, ranks)] as they were computed."""
    lines = (folder / 'curve').read_text(encoding='utf-8').split('\n')[:-1]
    return [(int(step), float(loss), int(ranks)) for step, loss, ranks in map(str.split, lines)]


def wait_for(what, processes, seconds=120):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline and all(p.poll() is None for p in processes)
        time.sleep(0.02)


def test_a_host_is_cut_off_and_the_curve_goes_on(tmp_path):
    if not (build_dir() / 'lib' / 'hekla' / 'libhekla_gloo.so').exists():
        pytest.skip('built without Gloo')
    if why := hosts.why_not():
        pytest.skip(why)
    whole, cut = tmp_path / 'whole', tmp_path / 'cut'
    whole.mkdir()
    cut.mkdir()
    subprocess.run([*command('--nproc', '1'), whole, str(STEPS), '0'], check=True, env=environment(), timeout=240)
    with hosts.Hosts(2) as both:
        options = ['--nproc', '2', '--nnodes', '1:2', '--rdzv', f'{both[0].address}:4712', '--run-id', 'cut',
                   '--last-call', '60', '--silence', '3', '--grace', '1', '--max-restarts', '1',
                   '--join-timeout', '60']
        logs = [open(tmp_path / f'host{index}', 'w+', encoding='utf-8') for index in range(2)]
        launchers = [host.start([*command(*options), cut, str(STEPS), '0.1'], env=environment(), stdout=log,
                                stderr=subprocess.STDOUT) for host, log in zip(both, logs)]
        try:
            wait_for(lambda: (cut / 'curve').exists() and len(curve(cut)) >= 12, launchers)
            both[1].cut_off()
            code = launchers[0].wait(timeout=120)
            assert launchers[1].poll() is None     # it tries to come back
            launchers[1].send_signal(signal.SIGTERM)
            launchers[1].wait(timeout=60)
        finally:
            for launcher in launchers:
                launcher.kill()
                launcher.wait()
            said = []
            for log in logs:
                log.seek(0)
                said.append(log.read())
                log.close()
    assert code == 0, said
    assert ('machine host1 (ranks 2-3) is lost: nothing has been heard of it for 3.0 s\n'
            'hekla launch: all ranks start again, restart 1 of 1\n') in said[0], said[0]
    assert 'attempt 1 on 1 machine: ranks 0-1 on host0' in said[0]
    assert 'this machine was cut off from the run' in said[1]
    resumed = int(re.search(r'going on at step (\d+)', said[0])[1])
    assert resumed > 5

    reference = {step: loss for step, loss, _ in curve(whole)}
    steps = curve(cut)
    before = [one for one in steps if one[2] == 4]
    after = [one for one in steps if one[2] == 2]
    assert [step for step, _, _ in before] == list(range(len(before)))
    assert [step for step, _, _ in after] == list(range(resumed, STEPS))
    # From the last checkpoint that was committed: one is made every five steps.
    assert len(before) - 6 <= resumed <= len(before)
    for step, loss, ranks in steps:
        assert loss == pytest.approx(reference[step], rel=1e-4), (step, ranks)
    assert sum(loss for _, loss, _ in after[-5:]) < sum(loss for _, loss, _ in before[:5])
