#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a profiler costs a launch: none, none watching, one that records.

Two programs are launched in a row and waited for: x + 1 on four numbers, and forty dependent kernels
on 64 x 64. Each line is a library, in a process of its own a round, rounds interleaved; the best of
all rounds counts, in microseconds a launch. `--against` adds another build of the library, such as
one without a profiler, whose column "off" is what ours is compared with.

  .venv/jax-0.10.2/bin/python benchmarks/profiling.py
  .venv/jax-0.10.2/bin/python benchmarks/profiling.py --platform vulkan --against ../other/build/lib/hekla/pjrt_vulkan.so
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ('x + 1', '40 kernels')


def measure(launches):
    """{program: {off, on}}: seconds a launch, in this process."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def many(x, w):
        for _ in range(20):
            x = jnp.tanh(jnp.roll(x @ w, 1, 0))
        return x
    w = np.full((64, 64), 1 / 64, np.float32)
    cases = dict(zip(PROGRAMS, [(jax.jit(lambda x: x + 1), (np.ones(4, np.float32),)), (jax.jit(many), (w, w))]))
    found = {}
    for name, (program, host) in cases.items():
        args = [jax.device_put(a, jax.devices()[0]) for a in host]
        count = launches if name == PROGRAMS[0] else max(launches // 20, 10)

        def seconds():
            program(*args).block_until_ready()
            start = time.perf_counter()
            for _ in range(count):
                out = program(*args)
            out.block_until_ready()
            return (time.perf_counter() - start) / count
        off = min(seconds() for _ in range(3))
        with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
            on = seconds()
        found[name] = {'off': off, 'on': on}
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb', help='tbb, vulkan or reference (default: tbb)')
    parser.add_argument('--against', type=pathlib.Path, metavar='LIBRARY', help='another build of the plugin')
    parser.add_argument('--launches', type=int, default=4000, help='of x + 1 in a row (default: 4000)')
    parser.add_argument('--rounds', type=int, default=5, help='of which the best counts (default: 5)')
    parser.add_argument('--json', metavar='FILE', help='writes the figures to this file')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.launches)))
        return
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    name = 'cpu' if options.platform == 'tbb' else options.platform
    libraries = {'this build': build / 'lib' / 'hekla' / f'pjrt_{name}.so'}
    if options.against:
        libraries['the other'] = options.against
    best = {}
    for _ in range(options.rounds):
        for title, path in libraries.items():
            run = subprocess.run(
                [sys.executable, __file__, '--child', '--launches', str(options.launches)],
                env={**os.environ, 'PYTHONPATH': str(build / 'python'), 'HEKLA_PLUGIN_PATH': str(path.resolve()),
                     'JAX_PLATFORMS': f'{options.platform},cpu'}, capture_output=True, text=True, check=True)
            for program, times in json.loads(run.stdout.splitlines()[-1]).items():
                for state, value in times.items():
                    key = (title, program, state)
                    best[key] = min(best.get(key, value), value)
    print(f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores')
    print(f'{"library":12} {"program":12} {"off us":>8} {"on us":>8}')
    for title in libraries:
        for program in PROGRAMS:
            off, on = (best[title, program, state] * 1e6 for state in ('off', 'on'))
            print(f'{title:12} {program:12} {off:8.2f} {on:8.2f}')
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({' / '.join(k): v for k, v in best.items()}, indent=1))


if __name__ == '__main__':
    main()
