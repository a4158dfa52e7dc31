#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Libraries that people use on top of JAX, as they come from the package index, on Hekla's devices.

A training or a solve of each (cases.py) in a process of its own, on jaxlib's CPU and on each platform:
do the results agree, and how long does it take from the first line to the result, compilation included,
and a second time in the same process. Nothing is kept on disk between processes.

  tests/ecosystem/run.py                          # installs into .venv/ecosystem first: minutes
  tests/ecosystem/run.py --platform tbb --only flax_nnx,diffrax --json out.json

The last line is "N passed, N failed". Exit status: 0, or 1 when a case failed that jaxlib's CPU passes.
Cases that jaxlib's CPU fails are told and count as neither: the library does not go with this JAX. Nor do
those of libraries that refuse a platform by its name, which are listed as such.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600   # seconds of one case

CHILD = '''
import json, sys, time
start = time.perf_counter()
sys.path.insert(0, sys.argv[1])
import jax, numpy, cases
function = cases.CASES[sys.argv[2]][0]
imported = time.perf_counter()
def timed():
    start = time.perf_counter()
    leaves = [numpy.asarray(leaf) for leaf in jax.tree.leaves(function())]
    return leaves, time.perf_counter() - start
leaves, first = timed()
again, second = timed()
numpy.savez(sys.argv[3], *leaves)
print(json.dumps({"first": first, "second": second, "platform": jax.default_backend()}))
'''


def python(folder):
    """The environment's interpreter, with what is missing installed."""
    interpreter = folder / 'bin' / 'python'
    wanted = (HERE / 'requirements.txt').read_text(encoding='utf-8')
    stamp = folder / 'ecosystem-requirements.txt'
    if not stamp.exists() or stamp.read_text(encoding='utf-8') != wanted:
        print(f'installing {len(wanted.split())} packages ...', flush=True)
        if not interpreter.exists():
            venv.create(folder, with_pip=True)
        subprocess.run([interpreter, '-m', 'pip', 'install', '-q', '-r', HERE / 'requirements.txt'],
                       check=True)
        stamp.write_text(wanted, encoding='utf-8')
    return interpreter


def run(interpreter, name, platform, build, scratch):
    """-> {'error'} or {'first', 'second', 'values'}"""
    values = scratch / f'{name}.{platform}.npz'
    environment = {**os.environ, 'PYTHONPATH': str(build / 'python'), 'KERAS_BACKEND': 'jax',
                   'JAX_PLATFORMS': platform if platform == 'cpu' else f'{platform},cpu',
                   'HEKLA_CACHE_DIR': '', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    try:
        ran = subprocess.run([interpreter, '-c', CHILD, HERE, name, values], env=environment,
                             capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {'error': f'not done after {LIMIT} s'}
    if ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.strip()] or ['no words']
        return {'error': f'exit status {ran.returncode}: {lines[-1]}', 'stderr': ran.stderr[-4000:]}
    row = json.loads(ran.stdout.splitlines()[-1])
    if row.pop('platform') != platform:
        return {'error': f'ran on another platform than {platform}'}
    return {**row, 'values': values}


def difference(ours, peer, rtol):
    """Why two results are not the same, or None; the tolerance is relative to each array's greatest."""
    import numpy
    ours, peer = numpy.load(ours), numpy.load(peer)
    if ours.files != peer.files:
        return f'{len(ours.files)} arrays instead of {len(peer.files)}'
    for name in peer.files:
        a, b = ours[name], peer[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f'{name}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}'
        scale = numpy.abs(b[numpy.isfinite(b)]).max(initial=0)
        if not numpy.allclose(a, b, rtol=rtol, atol=rtol * scale, equal_nan=True):
            return f'{name}: off by {numpy.abs(a - b).max():.3g}, the greatest element is {scale:.3g}'
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog='tests/ecosystem/run.py',
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb,vulkan', help='JAX platforms of Hekla')
    parser.add_argument('--only', default='', help='cases; unset: all')
    parser.add_argument('--venv', type=pathlib.Path, default=ROOT / '.venv' / 'ecosystem')
    parser.add_argument('--json', metavar='FILE', help='all rows')
    options = parser.parse_args()
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()
    interpreter = python(options.venv)
    if pathlib.Path(sys.prefix) != options.venv.resolve():
        # numpy and the names of the cases are there.
        os.execv(interpreter, [str(interpreter), __file__, *sys.argv[1:], '--venv', str(options.venv)])
    from cases import CASES
    names = [name for name in options.only.split(',') if name] or list(CASES)
    for name in names:
        if name not in CASES:
            parser.error(f"no case '{name}'; there are: {', '.join(CASES)}")
    platforms = options.platform.split(',')
    rows, passed, failed, ratios = [], 0, 0, {platform: [] for platform in platforms}
    print('| library | ' + ' | '.join(f'{p}: first s (ratio), again' for p in platforms) +
          ' | jaxlib CPU: first, again |')
    print('|---' * (len(platforms) + 2) + '|', flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            _, rtol, refused = CASES[name]
            peer = run(interpreter, name, 'cpu', build, pathlib.Path(scratch))
            row = {'case': name, 'cpu': peer}
            cells = []
            for platform in platforms if 'error' not in peer else []:
                ours = row[platform] = run(interpreter, name, platform, build, pathlib.Path(scratch))
                if 'error' not in ours:
                    why = difference(ours['values'], peer['values'], rtol)
                    if why:
                        ours['error'] = why
                if refused and refused in ours.get('error', ''):
                    cells.append('the library refuses platforms that it does not know')
                    continue
                if refused and 'error' not in ours:
                    ours['error'] = f"no longer refused with '{refused}': take that out of cases.py"
                passed += 'error' not in ours
                failed += 'error' in ours
                if 'error' in ours:
                    cells.append(ours['error'])
                else:
                    ratios[platform].append(peer['first'] / ours['first'])
                    cells.append(f"{ours['first']:.1f} ({peer['first'] / ours['first']:.1f}x), "
                                 f"{ours['second']:.2f}")
            cells = cells or ['not run'] * len(platforms)
            cells.append(peer.get('error') or f"{peer['first']:.1f}, {peer['second']:.2f}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            for result in row.values():
                if isinstance(result, dict):
                    result.pop('values', None)
            rows.append(row)
    for platform, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f'{platform}: {mean:.2f} times as fast as jaxlib\'s CPU in the first run, geometric mean')
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1), encoding='utf-8')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
