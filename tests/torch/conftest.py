# SPDX-License-Identifier: Apache-2.0
"""Starts PyTorch/XLA with the plugin under test, before anything imports torch_xla."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'support')]

import plugin_session  # noqa: E402
from plugin_session import build_dir, platform  # noqa: E402,F401

# Platform: what PJRT_DEVICE calls it. cpu is torch_xla's own device: tries the suite, tests no plugin.
DEVICES = {'vulkan': 'VULKAN', 'tbb': 'HEKLA_CPU', 'reference': 'HEKLA_REFERENCE', 'cpu': 'CPU'}


def pytest_addoption(parser):
    group = parser.getgroup('hekla')
    group.addoption('--platform', choices=DEVICES, default='tbb', help='platform under test')
    plugin_session.add_options(group)
    group.addoption('--share', type=int, default=0,
                    help='of the sweep over operations one sample of so many (1: all; 0: none)')


def environment(platform):
    """{name: value}: what a process needs to run torch_xla with the plugin under test."""
    values = {'PJRT_DEVICE': DEVICES[platform]}
    if platform != 'cpu':
        values['PYTHONPATH'] = str(build_dir() / 'python')
    return {**values, **plugin_session.checks(platform)}


def pytest_configure(config):
    plugin_session.configure(config, 'torch_xla', first_platform='tbb',
                             values=environment(config.getoption('--platform')),
                             removed=('HEKLA_PLUGIN_PATH', 'PJRT_LIBRARY_PATH'))


def pytest_collection_modifyitems(config, items):
    if config.getoption('--platform') != 'tbb':
        plugin_session.deselect(config, items, 'any_platform')
    plugin_session.draw(config, items)


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
    return plugin_session.child_runner(environment(platform), timeout=240)
