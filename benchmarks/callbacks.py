#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a host callback costs a launch: Hekla's device against jaxlib's CPU, interleaved in one process.

Each program is launched and waited for many times in a row, and so is the same program without its
callback. What is printed is the difference of the two, in microseconds a launch, the best of all
rounds (a busy machine only adds to a time), and the ratio jaxlib / Hekla: above 1 Hekla is faster.
jaxlib's CPU calls back on the thread that launches, before the launch returns; Hekla never lets a
callback hold up its caller, so there another thread is woken.

  .venv/jax-0.10.2/bin/python benchmarks/callbacks.py
  .venv/jax-0.10.2/bin/python benchmarks/callbacks.py --platform vulkan --launches 1000 --json out.json
"""
import argparse
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def programs(jax, np):
    """{name: (function, the same without its callback, arguments)}."""
    def same(*shape):
        return jax.ShapeDtypeStruct(shape, np.float32)

    def one(x):
        return jax.pure_callback(lambda a: a, same(4), x) + 1

    def five_operands(*x):
        return jax.pure_callback(lambda *a: a[0], same(4), *x) + 1

    def two_in_a_row(x):
        y = jax.pure_callback(lambda a: a, same(4), x)
        return jax.pure_callback(lambda a: a, same(4), y * 2) + 1

    def effect(x):
        jax.experimental.io_callback(lambda a: None, None, x, ordered=False)
        return x + 1

    small = np.ones(4, np.float32)
    large = np.ones(1 << 20, np.float32)
    return {
        'pure_callback of f32[4]': (one, lambda x: x + 1, [small]),
        'of five operands': (five_operands, lambda *x: x[0] + 1, [small] * 5),
        'two, one after the other': (two_in_a_row, lambda x: x * 2 + 1, [small]),
        'io_callback': (effect, lambda x: x + 1, [small]),
        'pure_callback of 4 MiB': (
            lambda x: jax.pure_callback(lambda a: a, same(1 << 20), x) + 1, lambda x: x + 1, [large]),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb', help='tbb, vulkan or reference (default: tbb)')
    parser.add_argument('--launches', type=int, default=1000,
                        help='of each program, in a row, a round; a tenth of large arrays (default: 1000)')
    parser.add_argument('--rounds', type=int, default=5, help='of which the best counts (default: 5)')
    parser.add_argument('--only', default='', metavar='TEXT', help='programs whose name contains this')
    parser.add_argument('--json', metavar='FILE', help='writes the figures to this file')
    options = parser.parse_args()
    os.environ['JAX_PLATFORMS'] = f'{options.platform},cpu'
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    import jax.experimental
    import numpy as np
    ours, peer = jax.devices(options.platform)[0], jax.devices('cpu')[0]
    print(f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores')
    print(f'{"program":26} {"hekla us":>9} {"jaxlib us":>9} {"ratio":>6}')
    figures = {}
    for name, (function, plain, host) in programs(jax, np).items():
        if options.only not in name:
            continue
        best = {}
        calls = []
        for device in (ours, peer):
            arguments = jax.device_put(host, device)
            for kind, program in (('with', function), ('without', plain)):
                call = jax.jit(program)
                jax.block_until_ready(call(*arguments))
                calls.append(((device, kind), call, arguments))
        for _ in range(options.rounds):
            for key, call, arguments in calls:
                count = options.launches if arguments[0].size < 1000 else options.launches // 10 + 1
                start = time.perf_counter()
                for _ in range(count):
                    call(*arguments).block_until_ready()
                took = (time.perf_counter() - start) / count
                best[key] = min(best.get(key, took), took)
        cost = {device: (best[device, 'with'] - best[device, 'without']) * 1e6
                for device in (ours, peer)}
        figures[name] = {'hekla_us': cost[ours], 'jaxlib_us': cost[peer],
                         'ratio': cost[peer] / cost[ours]}
        print(f'{name:26} {cost[ours]:9.1f} {cost[peer]:9.1f} {cost[peer] / cost[ours]:6.2f}',
              flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + '\n')


if __name__ == '__main__':
    main()
