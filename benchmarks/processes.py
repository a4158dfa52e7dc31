#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces between processes: a platform of ours beside jaxlib's CPU with Gloo.

    .venv/jax-0.10.2/bin/python benchmarks/processes.py [--platform tbb] [--processes 2] [--transport gloo] [--hosts]

With --hosts each process is on a host of its own, namespaces of this machine (tests/support/hosts.py; needs
root), and a last line says what a plain stream of bytes carries from one to the other, and both ways at once.
Each process has one device. A row is a size of the f32 array that each process brings: median time of
a launch that sums it, and bus bandwidth, 2 (n - 1) / n of the bytes in that time. Sizes of a side follow each
other in one run; the sides run one after the other, twice, and the better median of both counts.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'support'))

import hosts as host_namespaces  # noqa: E402

SIZES = [4, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]

PROCESS = '''
import json, statistics, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
coordinator, count, process, sizes = json.loads(sys.argv[1])
jax.distributed.initialize(coordinator, count, process)
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


# Sends and receives a gigabyte, both or one of them; prints bytes a second.
STREAM = '''
import json, socket, sys, threading, time
address, listens, sends, receives = json.loads(sys.argv[1])
if listens:
    with socket.create_server((address, 4712)) as server:
        print('listens', flush=True)
        other = server.accept()[0]
else:
    other = socket.create_connection((address, 4712))
piece, total = bytearray(1 << 20), 1 << 30
def send():
    for _ in range(total // len(piece)):
        other.sendall(piece)
def receive():
    room, left = bytearray(1 << 20), total
    while left:
        left -= other.recv_into(room, min(len(room), left))
threads = [threading.Thread(target=run) for run, wanted in ((send, sends), (receive, receives)) if wanted]
begin = time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(total / (time.perf_counter() - begin))
'''


def stream_rate(all_hosts, both_ways):
    """Bytes a second from one host to the other, or each way."""
    def start(host, arguments):
        return host.start([sys.executable, '-c', STREAM, json.dumps([all_hosts[0].address, *arguments])],
                          stdout=subprocess.PIPE, text=True)
    server = start(all_hosts[0], [True, both_ways, True])
    assert server.stdout.readline() == 'listens\n'
    client = start(all_hosts[1], [False, True, both_ways])
    client.communicate()
    return float(server.communicate()[0])


def measure(platform, count, transport, all_hosts):
    """Seconds by size."""
    values = {**os.environ, 'JAX_PLATFORMS': platform if platform == 'cpu' else f'{platform},cpu'}
    if platform == 'cpu':
        values['JAX_CPU_COLLECTIVES_IMPLEMENTATION'] = 'gloo'
    else:
        values['PYTHONPATH'] = str(ROOT / 'build' / 'python')
        values['HEKLA_PROCESS_TRANSPORT'] = transport
    with socket.socket() as free:
        free.bind(('localhost', 0))
        coordinator = f'{all_hosts[0].address if all_hosts else "localhost"}:{free.getsockname()[1]}'
    processes = []
    for p in range(count):
        start = all_hosts[p].start if all_hosts else subprocess.Popen
        processes.append(start([sys.executable, '-c', PROCESS, json.dumps([coordinator, count, p, SIZES])],
                               env=values, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f'a process of {platform} failed')
    return json.loads(outputs[0].strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb')
    parser.add_argument('--processes', type=int, default=2)
    parser.add_argument('--transport', choices=('auto', 'shm', 'gloo'), default='auto')
    parser.add_argument('--hosts', action='store_true')
    arguments = parser.parse_args()
    if arguments.hosts and (why := host_namespaces.why_not()):
        sys.exit(why)
    count = arguments.processes
    sides = {arguments.platform: [], 'cpu': []}
    rates = {False: [], True: []}
    with host_namespaces.Hosts(count) if arguments.hosts else contextlib.nullcontext() as all_hosts:
        for _ in range(2):
            for platform, runs in sides.items():
                runs.append(measure(platform, count, arguments.transport, all_hosts))
            for both_ways, seen in rates.items() if all_hosts else ():
                seen.append(stream_rate(all_hosts, both_ways))
    best = {platform: [min(times) for times in zip(*runs)] for platform, runs in sides.items()}
    print(f'{"bytes":>10} {arguments.platform:>12} {"":>10} {"Gloo":>12} {"":>10} {"ratio":>6}')
    for size, ours, gloo in zip(SIZES, best[arguments.platform], best['cpu']):
        moved = 2 * (count - 1) / count * size / 1e9
        print(f'{size:>10} {ours * 1e6:>9.0f} us {moved / ours:>5.2f} GB/s {gloo * 1e6:>9.0f} us '
              f'{moved / gloo:>5.2f} GB/s {gloo / ours:>6.2f}')
    if arguments.hosts:
        print(f'a plain stream: {max(rates[False]) / 1e9:.2f} GB/s, both ways at once {max(rates[True]) / 1e9:.2f} GB/s each')


if __name__ == '__main__':
    main()
