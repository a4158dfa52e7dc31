# SPDX-License-Identifier: Apache-2.0
"""Starts JAX with the plugin under test, before anything imports JAX."""
import importlib.metadata
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / 'programs'))


def pytest_addoption(parser):
    group = parser.getgroup('hekla')
    group.addoption('--plugin', choices=('shim', 'names'), default='shim',
                    help='how JAX finds the library: the package hekla from the build tree, or '
                         'PJRT_NAMES_AND_LIBRARY_PATHS without it')
    group.addoption('--platform', default='reference', help='platform under test')
    group.addoption('--library', type=pathlib.Path,
                    help='plugin library; default HEKLA_BUILD_DIR/lib/hekla/pjrt_PLATFORM.so, of tbb pjrt_cpu.so')
    group.addoption('--harness-share', type=int, default=24,
                    help="run one of so many programs of JAX's own harness (1: all)")


def build_dir():
    return pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()


def environment(config):
    """{name: value}: what a process needs to run JAX with the plugin under test."""
    platform = config.getoption('--platform')
    library = config.getoption('--library')
    name = 'cpu' if platform == 'tbb' else platform
    path = library or build_dir() / 'lib' / 'hekla' / f'pjrt_{name}.so'
    values = {'JAX_PLATFORMS': f'{platform},cpu'}
    if platform == 'cpu':     # JAX against itself: tries the suite, tests no plugin
        values['JAX_PLATFORMS'] = 'cpu'
    elif not path.exists():
        raise pytest.UsageError(f'no plugin library {path}: build it, or set HEKLA_BUILD_DIR')
    elif config.getoption('--plugin') == 'names':
        values['PJRT_NAMES_AND_LIBRARY_PATHS'] = f'{platform}:{path}'
    else:
        values['PYTHONPATH'] = str(build_dir() / 'python')
        values['HEKLA_PLUGIN_PATH'] = str(path)
    # Every program of the suite runs in kernels alone. Releases before 0.9 send some functions as
    # custom calls (mhlo.cosh, mhlo.asinh), which the evaluator runs on the host.
    if platform == 'tbb' and not importlib.metadata.version('jaxlib').startswith('0.8.'):
        values['HEKLA_FAIL_ON_FALLBACK'] = '1'
    if platform == 'vulkan':  # each recorded program is proved to have its barriers
        values['HEKLA_CHECK_BARRIERS'] = '1'
    return values


def pytest_configure(config):
    config.addinivalue_line('markers', 'quick: part of the quick set (pytest -m quick)')
    config.addinivalue_line('markers', 'any_platform: says nothing about a device; part of the runs '
                            'with --platform reference alone')
    config.addinivalue_line('markers', 'sizes: what a device decides by sizes; part of the runs with '
                            'all platforms but reference, which decides nothing')
    if 'jax' in sys.modules:
        raise pytest.UsageError('JAX is imported already; run this folder on its own')
    for name in ('PJRT_NAMES_AND_LIBRARY_PATHS', 'HEKLA_PLUGIN_PATH', 'JAX_ENABLE_X64'):
        os.environ.pop(name, None)
    os.environ.update(environment(config))
    if 'PYTHONPATH' in environment(config):
        sys.path.insert(0, environment(config)['PYTHONPATH'])


def pytest_collection_modifyitems(config, items):
    is_reference = config.getoption('--platform') == 'reference'
    marker = 'sizes' if is_reference else 'any_platform'
    elsewhere = [item for item in items if item.get_closest_marker(marker)]
    items[:] = [item for item in items if not item.get_closest_marker(marker)]
    config.hook.pytest_deselected(items=elsewhere)


@pytest.fixture(scope='session')
def platform(pytestconfig):
    return pytestconfig.getoption('--platform')


@pytest.fixture(scope='session')
def shim(pytestconfig, platform):
    """Whether the package hekla serves this run."""
    return pytestconfig.getoption('--plugin') == 'shim' and platform != 'cpu'


@pytest.fixture(scope='session')
def device(platform):
    import jax
    return jax.devices(platform)[0]


@pytest.fixture(scope='session')
def cpu():
    import jax
    return jax.devices('cpu')[0]


@pytest.fixture(scope='session')
def ours(device, platform):
    """Whether the library is Hekla's, not a foreign one that stands in for it."""
    return device.client.platform == platform and platform != 'cpu'


@pytest.fixture(autouse=True)
def on_device(request):
    """Runs each test with the device under test as JAX's default device."""
    import jax
    with jax.default_device(request.getfixturevalue('device')):
        yield


@pytest.fixture
def child(pytestconfig):
    """function(code, **environment) -> subprocess.CompletedProcess of Python running code."""
    import subprocess
    values = environment(pytestconfig)

    def run(code, timeout=120, **changes):
        merged = {**os.environ, **values, **changes}
        return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                              timeout=timeout, check=False,
                              env={k: v for k, v in merged.items() if v is not None})
    return run
