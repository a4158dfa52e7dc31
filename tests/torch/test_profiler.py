# SPDX-License-Identifier: Apache-2.0
"""The profiler's server, sessions and scopes."""
import pathlib
import socket

import pytest
import torch
import torch_xla
import torch_xla.debug.profiler as profiler
import xspace

pytestmark = pytest.mark.quick


def work(device):
    x = torch.ones(32, 32, device=device)
    for step in range(3):
        with profiler.StepTrace('train', step_num=step):
            with profiler.Trace('multiply'):
                x = x @ x / 32
    return x


def test_scopes_change_nothing(device):
    assert work(device).cpu()[3, 5].item() == 1.0


def test_session_writes_a_trace(device, platform, tmp_path):
    profiler.start_trace(str(tmp_path))
    work(device).cpu()
    profiler.stop_trace()
    found = list(pathlib.Path(tmp_path).rglob('*.xplane.pb'))
    assert found and found[0].stat().st_size > 0
    if platform != 'cpu':
        lines = xspace.ours(tmp_path, platform)[f'{platform}:0']
        assert lines['Launches'] and lines['Steps'] and lines['Transfers']


def test_server_answers(device, platform, tmp_path):
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        port = probe.getsockname()[1]
    server = profiler.start_server(port)
    assert server is not None
    import threading
    done = threading.Event()

    def loop():
        while not done.is_set():
            work(device).cpu()
    worker = threading.Thread(target=loop)
    worker.start()
    try:
        profiler.trace(f'localhost:{port}', str(tmp_path), duration_ms=500, num_tracing_attempts=3)
    finally:
        done.set()
        worker.join()
    found = list(pathlib.Path(tmp_path).rglob('*.xplane.pb'))
    assert found and found[0].stat().st_size > 0
    if platform != 'cpu':
        assert xspace.ours(tmp_path, platform)[f'{platform}:0']['Launches']
