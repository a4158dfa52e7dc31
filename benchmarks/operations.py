#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One operation of jax.numpy or lax at a time, on arrays of some megabytes, against jaxlib's CPU: what is slow
by neglect, by element type. Best launches of both in one process, by turns; above 1 Hekla is faster.

  .venv/jax-0.10.2/bin/python benchmarks/operations.py
  .venv/jax-0.10.2/bin/python benchmarks/operations.py --groups moved,reduced --dtypes float16 --below 9
"""
import argparse
import json
import math
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What threads of jaxlib's OpenBLAS poll for work after a call, see linalg.py.
PAUSE = 0.15


def best_launches(jax, sides, pause, seconds):
    """Seconds of the best launch of each side: [(call, arguments)]."""
    best = [math.inf] * len(sides)
    for _ in range(2):
        for i, (call, args) in enumerate(sides):
            time.sleep(pause)
            begin, count = time.perf_counter(), 0
            while count < 3 or time.perf_counter() - begin < seconds:
                start = time.perf_counter()
                jax.block_until_ready(call(*args))
                best[i] = min(best[i], time.perf_counter() - start)
                count += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--platform', default='tbb')
    parser.add_argument('--groups', default='', help='elementwise, moved, reduced, integers, batches, transforms, '
                        'convolutions, special, random, library, edits, steps; else all')
    parser.add_argument('--dtypes', default='', help='float32, bfloat16, complex64, int8 ...; else all of a group')
    parser.add_argument('--only', default='', help='operations whose names contain this')
    parser.add_argument('--compiler-options', default='', metavar='NAME=VALUE,...',
                        help="of Hekla's side, such as hekla_persistent_loops=false")
    parser.add_argument('--seconds', type=float, default=0.05, help='of each side, twice')
    parser.add_argument('--below', type=float, default=0.9, help='prints operations with a lower ratio')
    parser.add_argument('--json', metavar='FILE', help='writes all results')
    options = parser.parse_args()
    os.environ['JAX_PLATFORMS'] = f'{options.platform},cpu'
    os.environ.setdefault('JAX_ENABLE_X64', '1')
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    import operations_cases
    devices = jax.devices(options.platform)[0], jax.devices('cpu')[0]
    groups = [name for name in options.groups.split(',') if name] or operations_cases.GROUPS
    wanted = [name for name in options.dtypes.split(',') if name]
    ours = dict(one.split('=') for one in options.compiler_options.split(',') if one)
    print(f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; below {options.below}:')
    rows = []
    for group in groups:
        make, dtypes = operations_cases.GROUPS[group]
        for dtype in (name for name in dtypes if not wanted or name in wanted):
            begin = len(rows)
            for name, function, *args in make(dtype):
                if options.only not in name:
                    continue
                sides, first = [], []
                for device in devices:
                    start = time.perf_counter()
                    with jax.default_device(device):
                        given = ours if device is devices[0] else {}
                        sides.append((jax.jit(function, compiler_options=given), jax.device_put(args, device)))
                        jax.block_until_ready(sides[-1][0](*sides[-1][1]))
                    first.append(time.perf_counter() - start)
                best, peer = best_launches(jax, sides, PAUSE if group == 'batches' else 0, options.seconds)
                rows.append({'group': group, 'dtype': dtype, 'name': name, 'ms': best * 1e3, 'jaxlib_ms': peer * 1e3,
                             'ratio': peer / best, 'first_ratio': first[1] / first[0]})
                if rows[-1]['ratio'] < options.below:
                    print(f'  {group:12} {dtype:10} {name:28} {best * 1e3:9.3f} ms, jaxlib {peer * 1e3:9.3f}: '
                          f'{peer / best:.2f}', flush=True)
            if len(rows) > begin:
                mean = math.exp(sum(math.log(row['ratio']) for row in rows[begin:]) / (len(rows) - begin))
                print(f'{group} {dtype}: {mean:.2f} of {len(rows) - begin}', flush=True)
    if rows:
        mean = math.exp(sum(math.log(row['ratio']) for row in rows) / len(rows))
        few = sum(row['ratio'] < options.below for row in rows)
        print(f'geometric mean {mean:.2f} of {len(rows)}, {few} below {options.below}')
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
