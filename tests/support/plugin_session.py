# SPDX-License-Identifier: Apache-2.0
"""What the suites of JAX and PyTorch/XLA share: a pytest session with one plugin under test.

A conftest of such a suite says which variables a process needs (`environment`) and calls the rest.
"""
import os
import pathlib
import subprocess
import sys
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_dir():
    return pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()


def add_options(group):
    group.addoption('--drawn', default='1:0', metavar='SHARE:SEED',
                    help='of the tests outside the quick set one in SHARE, of those in it six times as '
                    'many; SEED decides which ones')


def checks(platform):
    """{name: value}: what a device proves of itself while the suite runs."""
    # Each recorded program is proved to have its barriers.
    return {'HEKLA_CHECK_BARRIERS': '1'} if platform == 'vulkan' else {}


def configure(config, framework, first_platform, values, removed):
    """Prepares this process, before anything imports `framework`: sets `values`, unsets `removed`."""
    config.addinivalue_line('markers', 'quick: part of the quick set (pytest -m quick)')
    config.addinivalue_line('markers', 'any_platform: says nothing about a device; part of the runs '
                            f'with --platform {first_platform} alone')
    if framework in sys.modules:
        raise pytest.UsageError(f'{framework} is imported already; run this folder on its own')
    for name in removed:
        os.environ.pop(name, None)
    os.environ.update(values)
    if 'PYTHONPATH' in values:
        sys.path.insert(0, values['PYTHONPATH'])


def keep(config, items, is_kept):
    """Leaves out the tests for which `is_kept` is false."""
    config.hook.pytest_deselected(items=[item for item in items if not is_kept(item)])
    items[:] = filter(is_kept, items)


def deselect(config, items, marker):
    """Leaves out the tests that have the marker."""
    keep(config, items, lambda item: item.get_closest_marker(marker) is None)


def draw(config, items):
    """Leaves out what --drawn does; together all seeds from 0 to SHARE - 1 leave out nothing."""
    share, seed = map(int, config.getoption('--drawn').split(':'))
    of_quick = max(1, share // 6)
    keep(config, items, lambda item: (zlib.crc32(item.nodeid.encode()) + seed) % (
        share if item.get_closest_marker('quick') is None else of_quick) == 0)


def child_runner(values, timeout):
    """function(code, **environment) -> subprocess.CompletedProcess of Python running code."""
    def run(code, timeout=timeout, **changes):
        merged = {**os.environ, **values, **changes}
        return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                              timeout=timeout, check=False,
                              env={k: v for k, v in merged.items() if v is not None})
    return run


@pytest.fixture(scope='session')
def platform(pytestconfig):
    return pytestconfig.getoption('--platform')
