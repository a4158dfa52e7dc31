#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps over several logical devices: Hekla's beside jaxlib's CPU with as many, in one process.

A row is a program of benchmarks/sharded_programs.py. Steps of the two sides are taken in turns; what
is printed is the median of each, the ratio jaxlib / Hekla (above 1 Hekla is faster), the same ratio
over one device, and how far the losses of the first steps lie from those of jaxlib's CPU on one
device. --check runs the small sizes for the losses alone and fails where one is off by 1e-4.

  .venv/jax-0.10.2/bin/python benchmarks/sharded_steps.py
  .venv/jax-0.10.2/bin/python benchmarks/sharded_steps.py --devices 8 --check --platform vulkan
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOSSES = 5
TOLERANCE = 1e-4


class Side:
    """A program on some devices of one platform."""

    def __init__(self, jax, program):
        self.jax = jax
        self.state, self.data = program.place(jax)
        begin = time.perf_counter()
        self.step = program.compiled(jax).lower(self.state, self.data).compile()
        self.compile_s = time.perf_counter() - begin
        self.losses, self.seconds = [], []

    def run(self):
        begin = time.perf_counter()
        self.state, loss = self.step(self.state, self.data)
        self.jax.block_until_ready(self.state)
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(float(loss))

    def median(self):
        return statistics.median(self.seconds[1:] or self.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--platform', default='tbb', help='tbb, vulkan or reference (default: tbb)')
    parser.add_argument('--devices', type=int, default=2, help='(default: 2)')
    parser.add_argument('--seconds', type=float, default=5, help='of steps, a row and number of devices (default: 5)')
    parser.add_argument('--check', action='store_true', help='small sizes, losses alone')
    parser.add_argument('--only', default='', metavar='TEXT', help='programs whose name contains this')
    parser.add_argument('--json', metavar='FILE', help='writes the rows to this file')
    options = parser.parse_args()
    os.environ['JAX_PLATFORMS'] = f'{options.platform},cpu'
    os.environ['HEKLA_NUM_DEVICES'] = str(options.devices)
    flags = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{flags} --xla_force_host_platform_device_count={options.devices}'
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    import sharded_programs

    size = 'small' if options.check else 'large'
    rows = []
    print(f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.devices} devices')
    print(f'{"program":18} {"hekla ms":>9} {"jaxlib ms":>10} {"ratio":>6} {"one device":>11} '
          f'{"compile":>8} {"loss off by":>12}')
    for name, make in sharded_programs.PROGRAMS.items():
        if options.only not in name:
            continue
        ours, peers = jax.devices(options.platform), jax.devices('cpu')
        oracle = Side(jax, make(jax, peers[:1], size))
        row = {'program': name, 'devices': options.devices}
        pairs = {}
        counts = [options.devices] if options.check else [options.devices, 1]
        for count in counts:
            sides = [Side(jax, make(jax, ours[:count], size))]
            if not options.check:
                sides.append(oracle if count == 1 else Side(jax, make(jax, peers[:count], size)))
            end = time.perf_counter() + options.seconds
            while len(sides[0].losses) < LOSSES or (not options.check and time.perf_counter() < end):
                for side in sides:
                    side.run()
            pairs[count] = sides
        while len(oracle.losses) < LOSSES:
            oracle.run()
        sides = pairs[options.devices]
        row['loss_error'] = max(abs(a - b) / max(1, abs(b)) for a, b in
                                zip(sides[0].losses[:LOSSES], oracle.losses[:LOSSES]))
        line = f'{name:18}'
        if options.check:
            line += f'{"":48} {row["loss_error"]:12.1e}'
        else:
            row['hekla_ms'], row['jaxlib_ms'] = (1e3 * side.median() for side in sides)
            row['ratio'] = row['jaxlib_ms'] / row['hekla_ms']
            row['ratio_one_device'] = pairs[1][1].median() / pairs[1][0].median()
            row['compile_ratio'] = sides[1].compile_s / sides[0].compile_s
            line += (f' {row["hekla_ms"]:9.2f} {row["jaxlib_ms"]:10.2f} {row["ratio"]:6.2f} '
                     f'{row["ratio_one_device"]:11.2f} {row["compile_ratio"]:8.2f} {row["loss_error"]:12.1e}')
        print(line, flush=True)
        rows.append(row)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + '\n', encoding='utf-8')
    return any(row['loss_error'] > TOLERANCE for row in rows)


if __name__ == '__main__':
    sys.exit(main())
