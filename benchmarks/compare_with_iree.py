#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on Hekla's devices against IREE, on the CPU and on the same Vulkan device.

Both take the same StableHLO program (as jax.jit lowers it for Hekla) and run interleaved, each in a process
of its own that stands still (SIGSTOP) while the other runs: on lavapipe the driver's queue threads of
IREE's device poll without a pause as long as it is open. IREE compiles for this machine's processor, or
for Vulkan with --vulkan-target; a launch of either side ends when its results are there. What IREE cannot
compile or run is listed with its reason and left out of the mean. Needs a Python with jax, jaxlib,
iree-base-compiler and iree-base-runtime, and a build.

  python benchmarks/compare_with_iree.py
  python benchmarks/compare_with_iree.py --device vulkan --programs matmul_1024,attention --json out.json
"""

import argparse
import json
import math
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("HEKLA_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"
PLATFORMS = {"cpu": "tbb", "vulkan": "vulkan"}


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def program(name, platform):
    """-> (StableHLO text without locations, flat inputs)."""
    import jax
    import numpy as np
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib.mlir.dialects import stablehlo
    if (PROGRAMS / name / "case.json").exists():
        from rules import load_inputs
        with jax_mlir.make_ir_context() as context:
            artifact = (PROGRAMS / name / "program.mlirbc").read_bytes()
            module = stablehlo.deserialize_portable_artifact(context, artifact)
            return module.operation.get_asm(enable_debug_info=False), load_inputs(PROGRAMS / name)
    if name == "matmul_1024":
        rng = np.random.default_rng(1)
        inputs = tuple(rng.standard_normal((1024, 1024)).astype(np.float32) for _ in range(2))
        function = lambda a, b: a @ b
    else:
        import zoo
        model = {m.name: m for m in zoo.all()}[name]
        function, inputs = model.function, model.make()
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), inputs)
    lowered = jax.jit(function, keep_unused=True).trace(*specs).lower(
        lowering_platforms=(platform,))
    return str(lowered.compiler_ir("stablehlo")), jax.tree.leaves(inputs)


class Ours:
    def __init__(self, platform, text, inputs):
        import jax
        from jaxlib import xla_client
        self.device = jax.devices(platform)[0]
        devices = xla_client.DeviceList((self.device,))
        self.compile_s, self.executable = seconds(
            lambda: self.device.client.compile_and_load(text.encode(), devices,
                                                        xla_client.CompileOptions()))
        self.inputs = inputs

    def run(self):
        import jax
        arguments = [jax.device_put(x, self.device) for x in self.inputs]
        for x in arguments:
            x.block_until_ready()

        def launch():
            results = self.executable.execute(arguments)
            for x in results:
                x.block_until_ready()
            return results
        return seconds(launch)

    @staticmethod
    def arrays(results):
        import numpy as np
        return [np.asarray(x) for x in results]


class Iree:
    def __init__(self, device, text, inputs, vulkan_target):
        import iree.compiler
        import iree.runtime
        if device == "cpu":
            backend, driver = "llvm-cpu", "local-task"
            flags = ["--iree-llvmcpu-target-cpu=host"]
        else:
            backend, driver = "vulkan-spirv", "vulkan"
            flags = [f"--iree-vulkan-target={vulkan_target}"] if vulkan_target else []
        self.compile_s, code = seconds(lambda: iree.compiler.compile_str(
            text, input_type="stablehlo", target_backends=[backend], extra_args=flags))
        config = iree.runtime.Config(driver)
        self.device = config.device
        module = iree.runtime.VmModule.copy_buffer(config.vm_instance, code)
        self.module = iree.runtime.load_vm_module(module, config)
        self.inputs = inputs

    def run(self):
        import iree.runtime
        arguments = [iree.runtime.asdevicearray(self.device, x) for x in self.inputs]
        return seconds(lambda: self.module.main(*arguments))

    @staticmethod
    def arrays(results):
        """None where the runtime cannot bring them back: on Vulkan it wants memory that numpy's is not
        (an allocation at a multiple of 4,096 bytes)."""
        results = results if isinstance(results, (tuple, list)) else [results]
        try:
            return [x.to_host() for x in results]
        except ValueError:
            return None


def child(name, device, side, vulkan_target, results):
    """One side of one program: a line on stdout when it is compiled, then one for each line on stdin."""
    sys.path[:0] = [str(BUILD / "python"), str(PROGRAMS), str(HERE)]
    import numpy as np
    platform = PLATFORMS[device]
    text, inputs = program(name, platform)
    try:
        one = (Ours(platform, text, inputs) if side == "hekla" else
               Iree(device, text, inputs, vulkan_target))
        arrays = one.arrays(one.run()[1])
    except Exception as error:  # the compiler's and the runtime's own exceptions
        words = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
        print(json.dumps({"error": words[0].strip()[:300]}), flush=True)
        return
    if arrays is not None:
        # Of bfloat16 and the like NumPy knows no more than the bytes.
        np.savez(results, *(np.asarray(a).astype(np.float64) for a in arrays))
    print(json.dumps({"compile_s": one.compile_s}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(one.run()[0]), flush=True)


class Side:
    """A child process, which stands still but while it is asked for something."""

    def __init__(self, name, device, side, vulkan_target, folder, deadline):
        environment = {**os.environ, "JAX_PLATFORMS": f"{PLATFORMS[device]},cpu",
                       "HEKLA_CACHE_DIR": folder}
        self.results = pathlib.Path(folder) / f"{side}.npz"
        self.log = open(pathlib.Path(folder) / f"{side}.log", "w+", encoding="utf-8")
        self.deadline = deadline
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", name, device, side, vulkan_target,
             str(self.results)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True)

    def answer(self):
        """The next line; then the process stands still."""
        left = self.deadline - time.monotonic()
        if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
            raise TimeoutError
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            lines = self.log.read().strip().splitlines() or [f"exit status {self.process.wait()}"]
            raise RuntimeError(lines[-1][:200])
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def run(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return self.answer()

    def arrays(self):
        import numpy as np
        return list(np.load(self.results).values()) if self.results.exists() else None

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def agree(first, second):
    """A peer that computes something else would be no peer; the tests say who is right."""
    import numpy as np
    if first is None or second is None:
        return None
    return all(np.allclose(a, b, rtol=1e-2, atol=1e-2 * float(np.abs(a).max(initial=0)) + 1e-6)
               for a, b in zip(first, second))


def interleave(sides, limit_s, fewest):
    runs = {side: [] for side in sides}
    start = time.perf_counter()
    iteration = 0
    while iteration < fewest or (time.perf_counter() - start < limit_s and iteration < 200):
        for side in list(sides) if iteration % 2 == 0 else reversed(list(sides)):
            runs[side].append(sides[side].run())
        iteration += 1
    return runs


def measure(name, device, arguments):
    sides = {}
    row = {"program": name}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for side in ("hekla", "iree"):
                sides[side] = Side(name, device, side, arguments.vulkan_target, folder,
                                   time.monotonic() + arguments.timeout)
                row[side] = sides[side].answer()
                if "error" in row[side]:
                    return {"program": name,
                            "error" if side == "hekla" else "iree_error": row[side]["error"]}
            row["agree"] = agree(sides["hekla"].arrays(), sides["iree"].arrays())
            runs = interleave(sides, arguments.seconds, arguments.repeat)
        except TimeoutError:
            return {"program": name, "error": f"no result within {arguments.timeout:.0f} s"}
        except RuntimeError as error:
            return {"program": name, "error": str(error)}
        finally:
            for side in sides.values():
                side.close()
    for side, times in runs.items():
        low, middle, high = statistics.quantiles(times, n=4)
        row[side].update(median_s=middle, low_s=low, high_s=high, best_s=min(times),
                         launches=len(times))
    row["run_ratio"] = row["iree"]["median_s"] / row["hekla"]["median_s"]
    row["best_ratio"] = row["iree"]["best_s"] / row["hekla"]["best_s"]
    return row


def print_row(device, row):
    name = f"{row['program']:18} {device:7}"
    if "error" in row or "iree_error" in row:
        print(f"{name} {'IREE: ' + row['iree_error'][:110] if 'iree_error' in row else row['error']}",
              flush=True)
        return

    def times(side):
        return (f"{row[side]['median_s'] * 1e3:.2f} ({row[side]['low_s'] * 1e3:.2f} - "
                f"{row[side]['high_s'] * 1e3:.2f})")
    print(f"{name} {times('hekla'):>28} {times('iree'):>28} {row['run_ratio']:6.2f} "
          f"{row['best_ratio']:6.2f} {row['hekla']['compile_s']:6.2f} / "
          f"{row['iree']['compile_s']:.2f}{'  results differ' if row['agree'] is False else ''}", flush=True)


def main():
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu,vulkan", help="comma-separated: cpu, vulkan")
    parser.add_argument("--programs", help="comma-separated; default: all of programs.py --list "
                        "and matmul_1024")
    parser.add_argument("--repeat", type=int, default=5, help="fewest measured launches")
    parser.add_argument("--seconds", type=float, default=1.0, help="per program, where --repeat allows")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    parser.add_argument("--vulkan-target", default="", help="IREE's --iree-vulkan-target")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path[:0] = [str(PROGRAMS), str(HERE)]
    import zoo
    names = (arguments.programs.split(",") if arguments.programs else
             ["matmul_1024", *sorted(p.parent.name for p in PROGRAMS.glob("*/case.json")),
              *(m.name for m in zoo.all())])
    print(f"{'program':26} {'Hekla ms (quartiles)':>28} {'IREE ms (quartiles)':>28} {'ratio':>6} "
          f"{'best':>6} compile s")
    document = {}
    for device in arguments.device.split(","):
        rows = []
        for name in names:
            rows.append(measure(name, device, arguments))
            print_row(device, rows[-1])
        ratios = [row["run_ratio"] for row in rows if "run_ratio" in row]
        document[device] = {"rows": rows}
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            worst = min((row for row in rows if "run_ratio" in row), key=lambda r: r["run_ratio"])
            document[device]["geomean"] = mean
            print(f"{device}: {len(ratios)} of {len(rows)} programs on both; geomean {mean:.2f} "
                  f"(above 1: Hekla is faster), worst {worst['program']} "
                  f"{worst['run_ratio']:.2f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any("error" in row for table in document.values() for row in table["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
