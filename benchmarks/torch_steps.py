#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps through torch_xla on our CPU beside torch_xla's own CPU device (XLA's).

    PYTHONPATH=build/python .venv/torch-2.9.0/bin/python benchmarks/torch_steps.py [--seconds S] [--rounds N]

Both sides trace the same models with the same torch_xla. One process for each side holds its model; the
two are interleaved, S seconds each, one running while the other waits. Prints per model the median time of a
step of either (spread: quartiles), their ratio, and what was compiled in the first steps: seconds of all
compilations cold, and in a second process that finds what the first has left on disk. HEKLA_CACHE_DIR
is a fresh folder. Above 1 Hekla is faster.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIDES = {'hekla': 'HEKLA_CPU', 'upstream': 'CPU'}
MODELS = {
    'MNIST CNN, batch 8': ('digits_cnn', {}),
    'ResNet-18, width 64, 8 of 64 x 64': ('resnet18', {'width': 64, 'size': 64}),
    'GPT, 4 layers of 128, 8 x 64 tokens': ('gpt', {'words': 256, 'length': 64, 'width': 128, 'layers': 4,
                                                    'batch': 8}),
}


def worker(name, sizes):
    """Reads seconds from stdin, trains that long, writes the times of its steps."""
    sys.path.insert(0, str(ROOT / 'tests' / 'torch'))
    import models
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as metrics
    device = torch_xla.device()
    start = time.perf_counter()
    model, batches, loss_of, optimizer_of = models.case(name, **sizes)
    model = model.to(device)
    if hasattr(model, 'tie'):
        model.tie()
    optimizer = optimizer_of(model.parameters())
    batch = tuple(x.to(device) for x in batches[0])

    def step():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        return loss
    first = [step().item() for _ in range(3)]
    count, total = metrics.metric_data('CompileTime')[:2]
    print(json.dumps({'programs': count, 'compile': total * 1e-9, 'start': time.perf_counter() - start,
                      'losses': first}), flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        while time.perf_counter() < end:
            begun = time.perf_counter()
            step()
            xm.wait_device_ops()
            times.append(time.perf_counter() - begun)
        print(json.dumps(times), flush=True)


class Side:
    def __init__(self, platform, name, sizes, cache):
        self.process = subprocess.Popen(
            [sys.executable, __file__, '--worker', name, '--sizes', json.dumps(sizes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, 'PJRT_DEVICE': platform, 'HEKLA_CACHE_DIR': cache})
        self.start = self.read()
        self.times = []

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f'the process ended with status {self.process.wait()}')
        return json.loads(line)

    def run(self, seconds):
        self.process.stdin.write(f'{seconds}\n')
        self.process.stdin.flush()
        self.times += self.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def milliseconds(times):
    low, middle, high = statistics.quantiles(times, n=4)
    return f'{middle * 1e3:.2f} ({low * 1e3:.2f} - {high * 1e3:.2f})'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=2.0)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    parser.add_argument('--sizes', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker, json.loads(arguments.sizes))
    print('| model | Hekla, ms | upstream, ms | ratio | compile cold, s: Hekla / upstream | ratio '
          '| second process, s |')
    print('|---|---|---|---|---|---|---|')
    speed, compiling = [], []
    for title, (name, sizes) in MODELS.items():
        with tempfile.TemporaryDirectory() as cache:
            sides = {}
            for side, platform in SIDES.items():
                sides[side] = Side(platform, name, sizes, cache)
            warm = {}
            for side, platform in SIDES.items():
                second = Side(platform, name, sizes, cache)
                warm[side] = second.start['compile']
                second.end()
            for _ in range(arguments.rounds):
                for side in sides.values():
                    side.run(arguments.seconds)
            for side in sides.values():
                side.end()
        ours, theirs = sides['hekla'], sides['upstream']
        assert all(math.isclose(a, b, rel_tol=1e-3) for a, b in
                   zip(ours.start['losses'], theirs.start['losses'])), (ours.start, theirs.start)
        speed.append(statistics.median(theirs.times) / statistics.median(ours.times))
        compiling.append(theirs.start['compile'] / ours.start['compile'])
        print(f"| {title} | {milliseconds(ours.times)} | {milliseconds(theirs.times)} | {speed[-1]:.2f} | "
              f"{ours.start['compile']:.2f} / {theirs.start['compile']:.2f} | {compiling[-1]:.1f} | "
              f"{warm['hekla']:.2f} / {warm['upstream']:.2f} |", flush=True)
    print(f'geomean: steps {statistics.geometric_mean(speed):.2f}, '
          f'compile {statistics.geometric_mean(compiling):.1f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
