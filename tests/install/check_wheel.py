#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel, looks into it, and runs the quickstarts of JAX and PyTorch with it in bare roots of
Debian 12 and sid, which have Python and nothing of what Hekla is built with.

Needs root (chroot, mounts) and, until .cache has it all, the network. PyTorch is that of
.venv/torch-*, mounted; torch_xla has no wheel for sid's Python, so it runs on Debian 12 alone. The
last line is "N passed, N failed".
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / 'tests' / 'docs'), str(ROOT / 'tools')]

import drivers  # noqa: E402

WHEELS = ROOT / '.cache' / 'wheels'
REQUIREMENTS = ROOT / 'tests' / 'requirements.txt'
MAX_BYTES = 60_000_000
# What JAX's page and the test of h5py install, at the versions of the other tests.
PACKAGES = [line for line in REQUIREMENTS.read_text().split() if re.match('(jax|jaxlib|h5py|numpy)==', line)]
EXPORTED = {'pjrt_': r'GetPjrtApi', 'libhekla_checkpoint': r'hekla_\w+', 'libhekla_lapack': r'hekla_lapack_table',
            'libhekla_process_group': r'hekla_group_\w+',
            'libhekla_gloo': r'hekla_carrier_table|_ZN4gloo9transport3tcp\w+',
            'libhekla_hdf5_zstd': r'H5PLget_plugin_(type|info)'}
BOTH_HDF5 = '''
import sys
if sys.argv[1] == 'before': import h5py
import numpy, os, tempfile
from hekla.checkpoint import CheckpointManager
if sys.argv[1] == 'after': import h5py
with tempfile.TemporaryDirectory() as folder:
    with CheckpointManager(folder + '/run') as manager:
        manager.save(1, {'a': numpy.arange(5.0)})
        assert manager.restore(like={'a': numpy.zeros(5)})['a'].sum() == 10
    with h5py.File(folder + '/plain.h5', 'w') as file:
        file['x'] = numpy.arange(3)
    assert h5py.File(folder + '/plain.h5')['x'][2] == 2
copies = {line.split()[-1] for line in open('/proc/self/maps') if 'libhdf5' in line}
print(sorted(os.path.basename(copy).split('-')[0] for copy in copies))
'''


def run(command, status=0, **options):
    done = subprocess.run([*map(str, command)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    assert done.returncode == status, f'{" ".join(map(str, command))}: status {done.returncode}\n{done.stdout[-6000:]}'
    return done.stdout


class Root:
    """A root of a distribution in which this checkout, read-only, /dev and /proc are there."""

    def __init__(self, suite, mounts=()):
        self.path = ROOT / '.cache' / 'roots' / suite
        # .cache may be a link to another checkout's.
        outside = [] if WHEELS.resolve().is_relative_to(ROOT) else [WHEELS.resolve()]
        self.mounts = [ROOT, *outside, *mounts]

    def run(self, *command, status=0, **environment):
        variables = {'PATH': '/usr/bin:/bin', 'HOME': '/tmp', 'PIP_NO_INDEX': '1', 'PIP_FIND_LINKS': WHEELS.resolve(),
                     'PIP_DISABLE_PIP_VERSION_CHECK': '1', 'PIP_ROOT_USER_ACTION': 'ignore', **environment}
        lines = ['set -e', f'root={self.path}', 'mount -t proc proc "$root/proc"', 'mount --bind /dev "$root/dev"']
        for mount in self.mounts:
            lines += [f'mkdir -p "$root{mount}"', f'mount --bind "{mount}" "$root{mount}"',
                      f'mount -o remount,bind,ro "$root{mount}"']
        lines.append('exec chroot "$root" /usr/bin/env -i --chdir=/tmp "$@"')
        return run([*drivers.as_root(), 'unshare', '--mount', 'sh', '-c', '\n'.join(lines), 'sh',
                    *(f'{name}={value}' for name, value in variables.items()), *command], status)

    def python_version(self):
        return self.run('python3', '-c', 'import sys; print("%d.%d" % sys.version_info[:2])').strip()

    def quickstart(self, page, *arguments, **environment):
        return self.run('python3', ROOT / 'tests/docs/quickstart.py', ROOT / 'docs' / page, *arguments, **environment)


def check_build():
    """The first command of the pages."""
    run(['tools/wheel.sh'], cwd=ROOT)


def wheel():
    wheels = list((ROOT / 'dist').glob('hekla-*.whl'))
    assert len(wheels) == 1, wheels
    return wheels[0]


def check_contents():
    """Name, size, what comes along, what is exported; stripped."""
    assert wheel().name.endswith('-py3-none-manylinux_2_36_x86_64.whl'), wheel().name
    assert wheel().stat().st_size <= MAX_BYTES, f'{wheel().stat().st_size} bytes'
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel()) as archive:
        archive.extractall(folder)
        names = archive.namelist()
        absent = re.compile(r'/lib(vulkan|curl|crypto|ssl|stdc\+\+|LLVM)|\.(a|h|cmake)$')
        assert not [name for name in names if absent.search(name)], names
        for name in ('hekla/bin/hekla', *(name for name in names if '.so' in name)):
            sections = run(['readelf', '--sections', '--wide', pathlib.Path(folder, name)])
            assert '.debug_' not in sections and '.symtab' not in sections, f'{name} is not stripped'
        for name in (name for name in names if name.startswith('hekla/lib/') and name.endswith('.so')):
            pattern = next(value for key, value in EXPORTED.items() if key in name)
            symbols = run(['nm', '-D', '--defined-only', '--format=just-symbols', pathlib.Path(folder, name)]).split()
            assert symbols and all(re.fullmatch(pattern, symbol) for symbol in symbols), f'{name}: {symbols[:9]}'


def readme_program(variables):
    """The Python of the README's command that sets these variables."""
    return re.search(f'{variables} python -c "\n(.*?)"\n', (ROOT / 'README.md').read_text(), re.S)[1]


def fetch_packages(root):
    """Wheels of PACKAGES and what they need, for the root's Python, into WHEELS."""
    version = root.python_version()
    wanted, marker = '\n'.join(PACKAGES), WHEELS / f'complete-{version}'
    if marker.exists() and marker.read_text() == wanted:
        return
    platforms = [f'--platform=manylinux_{minor}_x86_64' for minor in ('2_17', '2_24', '2_27', '2_28')]
    abi = 'cp' + version.replace('.', '')
    run([ROOT / '.venv/wheel/bin/pip', 'download', '--quiet', '--only-binary=:all:', '-d', WHEELS,
         '--python-version', version, '--abi', abi, '--abi', 'abi3', '--abi', 'none', '--platform=manylinux2014_x86_64',
         *platforms, *PACKAGES])
    marker.write_text(wanted)


def jax_checks(suite):
    """The JAX page word for word; the README's line; the tool; HDF5 twice in a process; no Vulkan loader."""
    root = Root(suite)

    def check_jax():
        fetch_packages(root)
        root.quickstart('quickstart_jax.md', '--without', 'build')

    def check_package():
        root.run('rm', '-rf', '/tmp/venv')
        root.run('python3', '-m', 'venv', '/tmp/venv')
        root.run('/tmp/venv/bin/pip', 'install', '-q', '--find-links', ROOT / 'dist', 'hekla[jax,checkpoint]', 'h5py')
        told = root.run('/tmp/venv/bin/python', '-c', readme_program('JAX_PLATFORMS=tbb,cpu'), JAX_PLATFORMS='tbb,cpu')
        assert '[ 0.  3. 12. 27.]' in told, told
        for when in ('before', 'after'):
            told = root.run('/tmp/venv/bin/python', '-c', BOTH_HDF5, when)
            assert "'libhdf5'" in told and "'libhdf5_serial'" in told, told
        for tool in (['/tmp/venv/bin/python', '-m', 'hekla'], ['/tmp/venv/bin/hekla']):
            assert re.match(r'hekla \d+\.\d+\.\d+', root.run(*tool, '--version'))
        told = root.run('/tmp/venv/bin/hekla', 'doctor', status=1)  # of what is in the way, the loader is all
        assert 'install libvulkan1' in told and re.search('pjrt_cpu.so: works', told), told
    check_jax.__name__ = f'check_jax_{suite}'
    check_package.__name__ = f'check_package_{suite}'
    return check_jax, check_package


def check_torch_bookworm():
    """The PyTorch page's program with the installed wheel and the mounted torch."""
    venvs = list((ROOT / '.venv').glob('torch-*/lib/python3.11/site-packages'))
    assert venvs, 'tools/install.sh --torch makes .venv/torch-2.9.0'
    packages = venvs[0].resolve()
    root = Root('bookworm', [packages])
    root.run('sh', '-c', f'rm -rf /tmp/venv && python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -q '
             f'--find-links {ROOT}/dist hekla && echo {packages} > /tmp/venv/lib/python3.11/site-packages/torch.pth')
    told = root.run('/tmp/venv/bin/python', '-c', readme_program('PJRT_DEVICE=VULKAN'), PJRT_DEVICE='HEKLA_CPU')
    assert re.search(r"\['TBB:0'\] tensor\(", told), told
    root.quickstart('quickstart_pytorch.md', '--without', 'build', '--without', 'install', '--venv', '/tmp/venv')


def main():
    checks = {check.__name__.removeprefix('check_'): check for check in
              (check_build, check_contents, *jax_checks('bookworm'), check_torch_bookworm, *jax_checks('sid'))}
    parser = argparse.ArgumentParser(description='Makes the wheel and uses it in bare roots of Debian 12 and sid.')
    parser.add_argument('checks', nargs='*', metavar='CHECK', help=f'all if none is named: {", ".join(checks)}')
    names = parser.parse_args().checks or list(checks)
    if unknown := set(names) - set(checks):
        parser.error(f'there is no {", ".join(sorted(unknown))}; there are {", ".join(checks)}')
    WHEELS.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    for name in names:
        try:
            checks[name]()
            passed += 1
            print(f'ok      check_{name}', flush=True)
        except (AssertionError, OSError) as error:
            failed += 1
            print(f'FAILED  check_{name}: {error}', flush=True)
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
