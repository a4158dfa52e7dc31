#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run time and compile time of the real programs: Hekla's devices against jaxlib's CPU.

Both run in one process, in turns, on the same bytecode and inputs, so that a busy machine slows both.
Prints medians with the quartiles around them, and the ratio jaxlib / Hekla (above 1: Hekla is faster).
Needs a Python with jax and jaxlib (tests/requirements.txt) and a build.

  .venv/jax-0.10.2/bin/python benchmarks/programs.py
  .venv/jax-0.10.2/bin/python benchmarks/programs.py --platform vulkan --programs wave_equation --json
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


class Device:
    """One program compiled on one platform of JAX."""

    def __init__(self, platform, text, inputs):
        import jax
        from jaxlib import xla_client
        self.device = jax.devices(platform)[0]
        devices = xla_client.DeviceList((self.device,))
        self.compile_s, self.executable = seconds(
            lambda: self.device.client.compile_and_load(text, devices,
                                                        xla_client.CompileOptions()))
        self.inputs = inputs
        self.runs = []

    def run(self):
        import jax
        # Fresh inputs each time: programs may be given them for good.
        arguments = [jax.device_put(x, self.device) for x in self.inputs]
        for x in arguments:
            x.block_until_ready()

        def launch():
            for x in self.executable.execute(arguments):
                x.block_until_ready()
        self.runs.append(seconds(launch)[0])

    def summary(self):
        low, middle, high = statistics.quantiles(self.runs, n=4)
        return {"compile_s": self.compile_s, "median_s": middle, "low_s": low, "high_s": high}


def measure(folder, platform, repeat):
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib.mlir.dialects import stablehlo
    from rules import load_inputs
    with jax_mlir.make_ir_context() as context:
        artifact = (folder / "program.mlirbc").read_bytes()
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        text = jax_mlir.module_to_bytecode(module)
    inputs = load_inputs(folder)
    pair = [Device(platform, text, inputs), Device("cpu", text, inputs)]
    for device in pair:
        device.run()  # the first launch is not measured
        device.runs.clear()
    for turn in range(repeat):
        for device in pair if turn % 2 == 0 else reversed(pair):
            device.run()
    ours, theirs = (device.summary() for device in pair)
    return {"program": folder.name, "platform": platform, "hekla": ours, "jaxlib_cpu": theirs,
            "run_ratio": theirs["median_s"] / ours["median_s"],
            "compile_ratio": theirs["compile_s"] / ours["compile_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="tbb", help="tbb, vulkan or reference")
    parser.add_argument("--programs", help="comma-separated folders of tests/programs; default: all")
    parser.add_argument("--repeat", type=int, default=15, help="measured launches per device")
    parser.add_argument("--json", action="store_true", help="one JSON object per program")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = f"{arguments.platform},cpu"
    sys.path[:0] = [str(ROOT / "build" / "python"), str(PROGRAMS)]
    names = (arguments.programs.split(",") if arguments.programs else
             sorted(path.parent.name for path in PROGRAMS.glob("*/case.json")))
    if not arguments.json:
        print(f"{'program':18} {'':8} {'Hekla ms (quartiles)':>28} {'jaxlib ms (quartiles)':>28} "
              f"{'ratio':>6} {'compile s':>16} {'ratio':>6}")
    for name in names:
        row = measure(PROGRAMS / name, arguments.platform, arguments.repeat)
        if arguments.json:
            print(json.dumps(row), flush=True)
            continue

        def times(side):
            return (f"{row[side]['median_s'] * 1e3:.2f} ({row[side]['low_s'] * 1e3:.2f} - "
                    f"{row[side]['high_s'] * 1e3:.2f})")
        compiles = f"{row['hekla']['compile_s']:.2f} / {row['jaxlib_cpu']['compile_s']:.2f}"
        print(f"{name:18} {arguments.platform:8} {times('hekla'):>28} {times('jaxlib_cpu'):>28} "
              f"{row['run_ratio']:6.2f} {compiles:>16} {row['compile_ratio']:6.1f}", flush=True)


if __name__ == "__main__":
    main()
