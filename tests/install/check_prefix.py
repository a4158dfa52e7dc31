#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a prefix, follows docs/quickstart_cpp.md with it, moves it, and checks what is there.

Needs the build of `cmake --preset default`. The last line is "N passed, N failed".
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'docs'))

import quickstart  # noqa: E402

WORK = ROOT / 'build' / 'install-test'
FIRST, PREFIX = WORK / 'hekla', WORK / 'moved'
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(('HEKLA_', 'PJRT_'))} | {'HOME': str(WORK), 'CMAKE_GENERATOR': 'Ninja'}


def run(*command, **variables):
    done = subprocess.run([*map(str, command)], cwd=WORK, env={**ENVIRONMENT, **variables}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, f'{" ".join(map(str, command))}: status {done.returncode}\n{done.stdout[-4000:]}'
    return done.stdout


def headers():
    folder = PREFIX / 'include' / 'hekla'
    return {str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file()}


def check_quickstart():
    """Installs, builds against the prefix and runs: a device, a program, a checkpoint."""
    quickstart.follow(ROOT / 'docs' / 'quickstart_cpp.md', WORK, ENVIRONMENT)
    # From here on nothing is found under the name that it was installed by.
    FIRST.rename(PREFIX)


def check_moved_program():
    """The tool finds the plugins beside it."""
    for name in ('vulkan', 'cpu', 'reference'):
        assert f'{PREFIX}/lib/hekla/pjrt_{name}.so' in run(PREFIX / 'bin' / 'hekla', 'plugins'), name


def check_plugin():
    """A plugin of somebody else's, built against the moved prefix, is found in a folder by its name."""
    run('cmake', '-S', ROOT / 'examples' / 'cpp_plugin', '-B', 'trace', f'-DCMAKE_PREFIX_PATH={PREFIX}')
    run('cmake', '--build', 'trace')
    told = run('roots/build/roots', 'traced.ckpt', PJRT_DEVICE='trace', HEKLA_PLUGIN_PATH=str(WORK / 'trace'),
               TRACED_PLUGIN=str(PREFIX / 'lib/hekla/pjrt_cpu.so'))
    assert '1.41421' in told and told.count('trace: launch') == 6, told


def check_paths():
    """Nothing names this tree, the build or the prefix that was."""
    for path in PREFIX.rglob('*.cmake'):
        for place in (ROOT, FIRST):
            assert str(place) not in path.read_text(), f'{path} names {place}'
    for path in [PREFIX / 'bin' / 'hekla', *PREFIX.rglob('*.so')]:
        for entry in re.findall(r'R(?:UN)?PATH.*\[(.*)\]', run('readelf', '-d', path)):
            assert all(part.startswith('$ORIGIN') for part in entry.split(':')), f'{path}: {entry}'


def check_public_headers():
    """The public ones of cmake/install.cmake, and those that they include."""
    text = (ROOT / 'cmake' / 'install.cmake').read_text()
    reached, remaining = set(), re.search(r'HEKLA_PUBLIC_HEADERS\n(.*?)\)', text, re.S)[1].split()
    while remaining:
        header = remaining.pop()
        if header not in reached:
            reached.add(header)
            remaining += INCLUDE.findall((ROOT / header).read_text())
    assert headers() == reached, sorted(headers() ^ reached)
    assert not [name for name in reached if 'testing' in name or 'conformance' in name]


def check_headers_alone():
    """Each header compiles by itself; C headers as C too."""
    include = PREFIX / 'include' / 'hekla'
    commands = [('g++', '-std=c++20', '-x', 'c++', name) for name in headers()]
    commands += [('gcc', '-std=c11', '-x', 'c', name) for name in headers()
                 if name.startswith('plugin_api/') or name.endswith(('checkpoint_c.h', 'process_group_c.h'))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: run(command[0], '-fsyntax-only', '-Wall', '-Wextra', '-Werror', f'-I{include}',
                                          *command[1:-1], '-include', include / command[-1], '/dev/null'), commands))


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    passed = failed = 0
    for check in (check_quickstart, check_moved_program, check_plugin, check_paths, check_public_headers,
                  check_headers_alone):
        try:
            check()
            passed += 1
            print(f'ok      {check.__name__}', flush=True)
        except (AssertionError, quickstart.Departure, OSError) as error:
            failed += 1
            print(f'FAILED  {check.__name__}: {error}', flush=True)
    if not failed:
        shutil.rmtree(WORK)
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
