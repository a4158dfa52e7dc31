# SPDX-License-Identifier: Apache-2.0
"""Starts PyTorch/XLA with the plugin under test, before anything imports torch_xla."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

# Platform: what PJRT_DEVICE calls it. cpu is torch_xla's own device: tries the suite, tests no plugin.
DEVICES = {'vulkan': 'VULKAN', 'tbb': 'HEKLA_CPU', 'reference': 'HEKLA_REFERENCE', 'cpu': 'CPU'}


def pytest_addoption(parser):
    group = parser.getgroup('hekla')
    group.addoption('--platform', choices=DEVICES, default='tbb', help='platform under test')
    group.addoption('--share', type=int, default=0,
                    help='of the sweep over operations one sample of so many (1: all; 0: none)')


def build_dir():
    return pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()


def environment(platform):
    """{name: value}: what a process needs to run torch_xla with the plugin under test."""
    values = {'PJRT_DEVICE': DEVICES[platform]}
    if platform != 'cpu':
        values['PYTHONPATH'] = str(build_dir() / 'python')
    if platform == 'vulkan':  # each recorded program is proved to have its barriers
        values['HEKLA_CHECK_BARRIERS'] = '1'
    return values


def pytest_configure(config):
    config.addinivalue_line('markers', 'quick: part of the quick set (pytest -m quick)')
    config.addinivalue_line('markers', 'any_platform: says nothing about a device; part of the runs '
                            'with --platform tbb alone')
    if 'torch_xla' in sys.modules:
        raise pytest.UsageError('torch_xla is imported already; run this folder on its own')
    platform = config.getoption('--platform')
    values = environment(platform)
    for name in ('HEKLA_PLUGIN_PATH', 'PJRT_LIBRARY_PATH'):
        os.environ.pop(name, None)
    os.environ.update(values)
    if 'PYTHONPATH' in values:
        sys.path.insert(0, values['PYTHONPATH'])


def pytest_collection_modifyitems(config, items):
    if config.getoption('--platform') != 'tbb':
        elsewhere = [item for item in items if item.get_closest_marker('any_platform')]
        items[:] = [item for item in items if not item.get_closest_marker('any_platform')]
        config.hook.pytest_deselected(items=elsewhere)


@pytest.fixture(scope='session')
def platform(pytestconfig):
    return pytestconfig.getoption('--platform')


@pytest.fixture
def device():
    import torch_xla
    return torch_xla.device()


@pytest.fixture(autouse=True)
def clean_step(request):
    """Each test starts with nothing pending and counters at 0."""
    import torch_xla
    import torch_xla.debug.metrics as metrics
    torch_xla.sync()
    metrics.clear_all()
    yield
    torch_xla.sync()


@pytest.fixture
def child(platform):
    """function(code, **environment) -> subprocess.CompletedProcess of Python running code."""
    def run(code, timeout=240, **changes):
        merged = {**os.environ, **environment(platform), **changes}
        return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                              timeout=timeout, check=False,
                              env={k: v for k, v in merged.items() if v is not None})
    return run
