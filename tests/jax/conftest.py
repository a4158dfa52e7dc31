# SPDX-License-Identifier: Apache-2.0
"""Starts JAX with the plugin under test, before anything imports JAX."""
import importlib.metadata
import importlib.util
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / 'support'), str(TESTS / 'programs')]

import plugin_session  # noqa: E402
from plugin_session import ROOT, build_dir, platform  # noqa: E402,F401


def pytest_addoption(parser):
    group = parser.getgroup('hekla')
    group.addoption('--plugin', choices=('shim', 'names'), default='shim',
                    help='how JAX finds the library: the package hekla from the build tree, or '
                         'PJRT_NAMES_AND_LIBRARY_PATHS without it')
    group.addoption('--platform', default='reference', help='platform under test')
    group.addoption('--library', type=pathlib.Path,
                    help='plugin library; default HEKLA_BUILD_DIR/lib/hekla/pjrt_PLATFORM.so, of tbb pjrt_cpu.so')
    plugin_session.add_options(group)
    group.addoption('--harness-share', type=int, default=24,
                    help="run one of so many programs of JAX's own harness (1: all)")
    group.addoption('--harness-x64', action='store_true',
                    help="JAX's harness with types of 64 bits, 7,526 programs; for test_harness.py alone")


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
    if config.getoption('--harness-x64'):
        values['JAX_ENABLE_X64'] = '1'
    return {**values, **plugin_session.checks(platform)}


def pytest_configure(config):
    config.addinivalue_line('markers', 'sizes: what a device decides by sizes; part of the runs with '
                            'all platforms but reference, which decides nothing')
    config.addinivalue_line('markers', 'any_plugin: says nothing about how JAX finds the library; part '
                            'of the runs with --plugin shim alone')
    plugin_session.configure(
        config, 'jax', first_platform='reference', values=environment(config),
        removed=('PJRT_NAMES_AND_LIBRARY_PATHS', 'HEKLA_PLUGIN_PATH', 'JAX_ENABLE_X64'))


def pytest_collection_modifyitems(config, items):
    is_reference = config.getoption('--platform') == 'reference'
    plugin_session.deselect(config, items, 'sizes' if is_reference else 'any_platform')
    if config.getoption('--plugin') == 'names' and config.getoption('--library') is None:
        plugin_session.deselect(config, items, 'any_plugin')
    plugin_session.draw(config, items)


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
def run_example(capsys):
    """function(folder in examples/) -> what its run.py prints."""
    def run(folder):
        path = ROOT / 'examples' / folder / 'run.py'
        spec = importlib.util.spec_from_file_location(f'{folder}_example', path)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        example.main()
        return capsys.readouterr().out
    return run


@pytest.fixture
def child(pytestconfig):
    """function(code, **environment) -> subprocess.CompletedProcess of Python running code."""
    return plugin_session.child_runner(environment(pytestconfig), timeout=120)
