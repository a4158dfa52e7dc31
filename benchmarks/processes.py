#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces between processes of one machine: a platform of ours beside jaxlib's CPU with Gloo.

    .venv/jax-0.10.2/bin/python benchmarks/processes.py [--platform tbb] [--processes 2]

Each process has one device. A row is a size of the f32 array that each process brings: median time of
a launch that sums it, and bus bandwidth, 2 (n - 1) / n of the bytes in that time. Sizes of a side follow each
other in one run; the sides run one after the other, twice, and the better median of both counts.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]

PROCESS = '''
import json, statistics, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
port, count, process, sizes = json.loads(sys.argv[1])
jax.distributed.initialize(f'localhost:{port}', count, process)
mesh = Mesh(np.array(jax.devices()), ('x',))
total = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, 'x'), mesh=mesh, in_specs=P('x'), out_specs=P()))
medians = []
for size in sizes:
    n = size // 4
    x = jax.make_array_from_callback((count, n), NamedSharding(mesh, P('x')),
                                     lambda at: np.full((1, n), 1 + at[0].start, np.float32))
    times = []
    end = None
    while len(times) < 10 or (len(times) < 60 and sum(times) < 1.5):
        begin = time.perf_counter()
        y = total(x)
        y.block_until_ready()
        times.append(time.perf_counter() - begin)
        if len(times) == 10:      # all processes decide alike
            times = times[3:]
            break
    more = int(total(jax.make_array_from_callback((count, 1), NamedSharding(mesh, P('x')),
               lambda at: np.full((1, 1), min(200, 1 + int(0.7 / statistics.median(times))), np.float32)))[0, 0]) // count
    for _ in range(more):
        begin = time.perf_counter()
        y = total(x)
        y.block_until_ready()
        times.append(time.perf_counter() - begin)
    assert float(y.addressable_data(0).ravel()[-1]) == count * (count + 1) / 2
    medians.append(statistics.median(times))
if process == 0:
    print(json.dumps(medians))
'''


def measure(platform, count):
    """Seconds by size."""
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    values = {**os.environ, 'JAX_PLATFORMS': platform if platform == 'cpu' else f'{platform},cpu'}
    if platform == 'cpu':
        values['JAX_CPU_COLLECTIVES_IMPLEMENTATION'] = 'gloo'
    else:
        values['PYTHONPATH'] = str(ROOT / 'build' / 'python')
    processes = [subprocess.Popen([sys.executable, '-c', PROCESS, json.dumps([port, count, p, SIZES])],
                                  env=values, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                 for p in range(count)]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f'a process of {platform} failed')
    return json.loads(outputs[0].strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb')
    parser.add_argument('--processes', type=int, default=2)
    arguments = parser.parse_args()
    count = arguments.processes
    sides = {arguments.platform: [], 'cpu': []}
    for _ in range(2):
        for platform, runs in sides.items():
            runs.append(measure(platform, count))
    best = {platform: [min(times) for times in zip(*runs)] for platform, runs in sides.items()}
    print(f'{"bytes":>10} {arguments.platform:>12} {"":>10} {"Gloo":>12} {"":>10} {"ratio":>6}')
    for size, ours, gloo in zip(SIZES, best[arguments.platform], best['cpu']):
        moved = 2 * (count - 1) / count * size / 1e9
        print(f'{size:>10} {ours * 1e6:>9.0f} us {moved / ours:>5.2f} GB/s {gloo * 1e6:>9.0f} us '
              f'{moved / gloo:>5.2f} GB/s {gloo / ours:>6.2f}')


if __name__ == '__main__':
    main()
