#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on Hekla's devices against a peer: the real ones and those of zoo.py, with --large those of
zoo_large.py.

The peer is jaxlib's CPU, or with --peer another platform of JAX: `--platform vulkan --peer cuda` compares
two ways to one GPU. Both run in one process, interleaved, so that a busy machine slows both. Each program has
two processes of its own for each platform: the first compiles with an empty cache on disk (cold), the
second finds the first one's (warm) and takes the times. Prints medians with quartiles and ratios peer /
Hekla (above 1: Hekla is faster), their geometric mean and the worst. --json keeps all of it, --svg draws
the ratios.

  .venv/jax-0.10.2/bin/python benchmarks/programs.py
  .venv/jax-0.10.2/bin/python benchmarks/programs.py --platform tbb,vulkan --json out.json --svg out.svg
  .venv/jax-0.10.2/bin/python benchmarks/programs.py --programs wave_equation,attention --seconds 3
  .venv/jax-0.10.2/bin/python benchmarks/programs.py --large

Needs a Python with jax and jaxlib (tests/requirements.txt) and a build (HEKLA_BUILD_DIR names another
build tree). Exit status: 0, or 1 when a program failed.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import platform as machine
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("HEKLA_BUILD_DIR", ROOT / "build"))
PROGRAMS = ROOT / "tests" / "programs"
HERE = pathlib.Path(__file__).resolve().parent


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


# --- in the child: one program on one platform ---

def stored_program(name):
    """-> (bytecode for either platform, flat inputs, bytes that a launch must move or None)."""
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib.mlir.dialects import stablehlo
    from rules import load_inputs
    with jax_mlir.make_ir_context() as context:
        artifact = (PROGRAMS / name / "program.mlirbc").read_bytes()
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        text = jax_mlir.module_to_bytecode(module)
    return (lambda platform: text), load_inputs(PROGRAMS / name), None


def zoo_program(name):
    import jax
    import numpy as np
    from jax._src.interpreters import mlir as jax_mlir
    import zoo
    import zoo_large
    model = {m.name: m for m in [*zoo.all(), *zoo_large.all()]}[name]
    arguments = model.make()

    def lower(platform):
        # As jax.jit does it there; both sides get what JAX makes for them.
        specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
        traced = jax.jit(model.function, keep_unused=True).trace(*specs)
        module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
        return jax_mlir.module_to_bytecode(module)

    moved = None
    if model.memory_bound:
        results = jax.tree.leaves(jax.eval_shape(model.function, *arguments))
        moved = sum(np.asarray(x).nbytes for x in jax.tree.leaves(arguments))
        moved += sum(math.prod(x.shape) * x.dtype.itemsize for x in results)
    return lower, jax.tree.leaves(arguments), moved


class Side:
    """One program compiled on one platform of JAX."""

    def __init__(self, platform, lower, inputs):
        import jax
        from jaxlib import xla_client
        self.device = jax.devices(platform)[0]
        code = lower(platform)
        devices = xla_client.DeviceList((self.device,))
        self.compile_s, self.executable = seconds(
            lambda: self.device.client.compile_and_load(code, devices,
                                                        xla_client.CompileOptions()))
        self.inputs = inputs
        self.runs = []
        self.first_s = self.run()
        self.runs.clear()

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
        return self.runs[-1]

    def peak_bytes(self):
        """Of arguments, results and temporary memory together; None where nobody says."""
        try:
            stats = self.executable.get_compiled_memory_stats()
            return (stats.argument_size_in_bytes + stats.output_size_in_bytes
                    + stats.temp_size_in_bytes)
        except Exception:
            return None

    def summary(self):
        low, middle, high = statistics.quantiles(self.runs, n=4)
        return {"compile_s": self.compile_s, "first_launch_s": self.first_s, "median_s": middle,
                "low_s": low, "high_s": high, "best_s": min(self.runs),
                "launches": len(self.runs), "peak_bytes": self.peak_bytes()}


def child(name, platform, peer, mode, limit_s, fewest):
    sys.path[:0] = [str(BUILD / "python"), str(PROGRAMS), str(HERE)]
    import jax
    jax.devices(platform)
    lower, inputs, moved = (stored_program if (PROGRAMS / name / "case.json").exists()
                            else zoo_program)(name)
    ours = Side(platform, lower, inputs)
    if mode == "cold":
        return {"compile_s": ours.compile_s, "first_launch_s": ours.first_s}
    return run_pair([ours, Side(peer, lower, inputs)], moved, limit_s, fewest)


def run_pair(pair, moved, limit_s, fewest):
    sides = [*pair, Copy(moved)] if moved else pair
    start = time.perf_counter()
    iteration = 0
    while iteration < fewest or (time.perf_counter() - start < limit_s and iteration < 300):
        for side in sides if iteration % 2 == 0 else reversed(sides):
            side.run()
        iteration += 1
    row = {"hekla": pair[0].summary(), "peer": pair[1].summary()}
    if moved:
        row["moved_bytes"] = moved
        row["copy_bytes_per_s"] = moved / min(sides[-1].runs)
    return row


def together_child(names, platform, peer, limit_s, fewest):
    """Prints a row for each program, compiled side by side in this process, then run one by one."""
    sys.path[:0] = [str(BUILD / "python"), str(PROGRAMS), str(HERE)]
    import jax
    jax.devices(platform)
    prepared = []
    for name in names:
        lower, inputs, moved = (stored_program if (PROGRAMS / name / "case.json").exists()
                                else zoo_program)(name)
        prepared.append(([(side, lower(side)) for side in (platform, peer)], inputs, moved))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = [[pool.submit(Side, side, lambda _, code=code: code, inputs) for side, code in codes]
                for codes, inputs, _ in prepared]
        pairs = [[side.result() for side in pair] for pair in made]
    for name, pair, (_, _, moved) in zip(names, pairs, prepared):
        for side in pair:  # no launch of another program's compilation among them
            side.run()
            side.runs.clear()
        print(json.dumps({"program": name, **run_pair(pair, moved, limit_s, fewest)}), flush=True)


class Copy:
    """Plain copies of as many bytes as a launch moves, on all cores."""

    def __init__(self, moved):
        import numpy as np
        cores = len(os.sched_getaffinity(0))
        self.pool = concurrent.futures.ThreadPoolExecutor(cores)
        size = moved // 2 // cores
        self.parts = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(cores)]
        self.runs = []

    def run(self):
        import numpy as np

        def copy():
            list(self.pool.map(lambda part: np.copyto(part[1], part[0]), self.parts))
        self.runs.append(seconds(copy)[0])


def launch_child(platform, peer):
    """The cost of a launch from Python: four numbers plus one, seconds per call, interleaved."""
    sys.path[:0] = [str(BUILD / "python")]
    import jax
    import jax.numpy as jnp
    calls = {}
    for name in (platform, peer):
        x = jax.device_put(jnp.arange(4.0), jax.devices(name)[0])
        function = jax.jit(lambda x: x + 1)
        function(x).block_until_ready()
        calls[name] = (function, x)
    best = {name: math.inf for name in calls}
    every = {name: [] for name in calls}
    for _ in range(30):
        for name, (function, x) in calls.items():
            def many():
                for _ in range(200):
                    function(x).block_until_ready()
            every[name].append(seconds(many)[0] / 200)
            best[name] = min(best[name], every[name][-1])
    return {"hekla": {"best_s": best[platform], "median_s": statistics.median(every[platform])},
            "peer": {"best_s": best[peer], "median_s": statistics.median(every[peer])}}


# --- in the parent ---

def platforms(platform, peer):
    """JAX_PLATFORMS for one process; jaxlib's CPU is where JAX itself computes constants."""
    return ",".join(dict.fromkeys((platform, peer, "cpu")))


def start_child(words, platform, peer, cache, timeout):
    """The finished process, or in words why there is none."""
    environment = {**os.environ, "JAX_PLATFORMS": platforms(platform, peer),
                   "HEKLA_CACHE_DIR": cache}
    # A peer that takes most of a GPU's memory when it starts would leave none for the other side.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # A driver's own cache would make the second process's work look smaller than it is for a user
    # who starts cold; it has its place in the same folder, so that cold is cold.
    environment["MESA_SHADER_CACHE_DIR"] = str(pathlib.Path(cache) / "mesa")
    environment["__GL_SHADER_DISK_CACHE_PATH"] = cache
    try:
        done = subprocess.run([sys.executable, __file__, "--child", *words], env=environment,
                              capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no result within {timeout} s"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit status {done.returncode}"
    return done


def run_child(words, platform, peer, cache, timeout):
    done = start_child(words, platform, peer, cache, timeout)
    return ({"error": done} if isinstance(done, str)
            else json.loads(done.stdout.strip().splitlines()[-1]))


def with_ratios(row):
    ours, theirs = row["hekla"], row["peer"]
    row["run_ratio"] = theirs["median_s"] / ours["median_s"]
    row["best_ratio"] = theirs["best_s"] / ours["best_s"]
    if "moved_bytes" in row:
        row["bandwidth_share"] = row["moved_bytes"] / ours["best_s"] / row["copy_bytes_per_s"]
    return row


def measure_together(names, platform, arguments):
    with tempfile.TemporaryDirectory() as cache:
        words = ["together", ",".join(names), platform, arguments.peer, str(arguments.seconds),
                 str(arguments.repeat)]
        done = start_child(words, platform, arguments.peer, cache, arguments.timeout)
    if isinstance(done, str):
        return [{"program": name, "platform": platform, "error": done} for name in names]
    return [with_ratios({"platform": platform, **json.loads(line)})
            for line in done.stdout.splitlines() if line.startswith("{")]


def measure(name, platform, arguments):
    with tempfile.TemporaryDirectory() as cache:
        words = [name, platform, arguments.peer, str(arguments.seconds), str(arguments.repeat)]
        cold = run_child([*words, "cold"], platform, arguments.peer, cache, arguments.timeout)
        if "error" in cold:
            return {"program": name, "platform": platform, **cold}
        row = run_child([*words, "warm"], platform, arguments.peer, cache, arguments.timeout)
    row = {"program": name, "platform": platform, **row}
    if "error" in row:
        return row
    row["cold"] = cold
    row["cold_compile_ratio"] = row["peer"]["compile_s"] / cold["compile_s"]
    row["warm_start_s"] = row["hekla"]["compile_s"] + row["hekla"]["first_launch_s"]
    return with_ratios(row)


def mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else float("nan")


def summary(rows):
    good = [row for row in rows if "error" not in row]
    if not good:
        return {"programs": len(rows), "failed": len(rows)}
    worst = min(good, key=lambda row: row["run_ratio"])
    result = {"programs": len(rows), "failed": len(rows) - len(good),
            "geomean": mean([row["run_ratio"] for row in good]),
            "geomean_of_best": mean([row["best_ratio"] for row in good]),
            "worst": [worst["program"], worst["run_ratio"]],
            "below_0.8": [row["program"] for row in good if row["run_ratio"] < 0.8]}
    if "cold" in good[0]:
        slowest = max(good, key=lambda row: row["warm_start_s"])
        result["cold_compile_geomean"] = mean([row["cold_compile_ratio"] for row in good])
        result["slowest_warm_start"] = [slowest["program"], slowest["warm_start_s"]]
    return result


def svg(tables, peer):
    """Ratios as bars on a logarithmic axis, one group per platform."""
    left, right, line, top = 190, 520, 18, 46
    rows = [(platform, row) for platform, table in tables.items() for row in table["rows"]
            if "error" not in row]
    span = max([2.0, *(abs(math.log2(row["run_ratio"])) for _, row in rows)])
    span = math.ceil(span)

    def place(ratio):
        return left + (math.log2(ratio) + span) / (2 * span) * right
    height = top + line * (len(rows) + len(tables)) + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right + 80}" '
             f'height="{height}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{left}" y="18" font-size="14">Time of {peer} / time of Hekla '
             '(right of 1: Hekla is faster)</text>']
    bottom = height - 22
    for power in range(-span, span + 1):
        x = place(2.0 ** power)
        label = f"{2 ** power}" if power >= 0 else f"1/{2 ** -power}"
        color = "#444" if power == 0 else "#ddd"
        parts.append(f'<line x1="{x:.1f}" y1="{top - 14}" x2="{x:.1f}" y2="{bottom}" '
                     f'stroke="{color}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{label}</text>')
    y = top
    for platform, table in tables.items():
        total = table["summary"]
        text = f"{platform}: geomean {total.get('geomean', float('nan')):.2f}"
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" font-weight="bold">'
                     f'{text}</text>')
        y += line
        for _, row in (pair for pair in rows if pair[0] == platform):
            ratio = row["run_ratio"]
            low, high = sorted((place(1), place(ratio)))
            color = "#2a7f3f" if ratio >= 1 else "#d08a1d" if ratio >= 0.8 else "#b5352b"
            parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">'
                         f'{row["program"]}</text>')
            parts.append(f'<rect x="{low:.1f}" y="{y - 6}" width="{max(high - low, 1):.1f}" '
                         f'height="12" fill="{color}"/>')
            anchor, x = ("start", high + 4) if ratio >= 1 else ("end", low - 4)
            parts.append(f'<text x="{x:.1f}" y="{y + 4}" text-anchor="{anchor}" font-size="11">'
                         f'{ratio:.2f}</text>')
            y += line
    return "\n".join([*parts, "</svg>", ""])


def print_row(row):
    name = f"{row['program']:24} {row['platform']:7}"
    if "error" in row:
        print(f"{name} failed: {row['error'][:150]}", flush=True)
        return

    def times(side):
        return (f"{row[side]['median_s'] * 1e3:.2f} ({row[side]['low_s'] * 1e3:.2f} - "
                f"{row[side]['high_s'] * 1e3:.2f})")

    def megabytes(side):
        size = row[side]["peak_bytes"]
        return "-" if size is None else f"{size / 1e6:.1f}"
    share = f"{row['bandwidth_share'] * 100:.0f} %" if "bandwidth_share" in row else ""
    compiles = (f"{row['cold']['compile_s']:.2f} / {row['peer']['compile_s']:.2f} "
                f"({row['cold_compile_ratio']:.1f})" if "cold" in row else "-")
    warm = f"{row['warm_start_s'] * 1e3:.0f}" if "cold" in row else "-"
    print(f"{name} {times('hekla'):>26} {times('peer'):>26} {row['run_ratio']:6.2f} "
          f"{row['best_ratio']:6.2f} {compiles:>20} {warm:>8} "
          f"{megabytes('hekla'):>7} {megabytes('peer'):>7} {share:>6}", flush=True)


def main():
    if sys.argv[1:2] == ["--child"]:
        if sys.argv[2] == "launch":
            print(json.dumps(launch_child(*sys.argv[3:5])))
            return 0
        if sys.argv[2] == "together":
            together_child(sys.argv[3].split(","), *sys.argv[4:6], float(sys.argv[6]),
                           int(sys.argv[7]))
            return 0
        name, platform, peer, limit, fewest, mode = sys.argv[2:]
        print(json.dumps(child(name, platform, peer, mode, float(limit), int(fewest))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="tbb", help="comma-separated: tbb, vulkan, reference")
    parser.add_argument("--peer", default="cpu", help="platform of JAX to compare with: cpu, cuda, "
                        "rocm or another")
    parser.add_argument("--programs", help="comma-separated names; default: all; see --list")
    parser.add_argument("--large", action="store_true", help="the programs of zoo_large.py")
    parser.add_argument("--list", action="store_true", help="names and what they are")
    parser.add_argument("--repeat", type=int, default=9, help="fewest measured launches")
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="measure a program for about so long, where --repeat allows")
    parser.add_argument("--together", action="store_true", help="one process compiles all programs "
                        "side by side and then runs them: for little time; no figures of compilation")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one process")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    parser.add_argument("--svg", type=pathlib.Path, help="file for the chart")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path[:0] = [str(PROGRAMS), str(HERE)]
    import zoo
    import zoo_large
    real = sorted(path.parent.name for path in PROGRAMS.glob("*/case.json"))
    models = {m.name: m.description for m in zoo.all()}
    large = {m.name: m.description for m in zoo_large.all()}
    if arguments.list:
        for name in real:
            print(f"{name:24} "
                  f"{json.loads((PROGRAMS / name / 'case.json').read_text())['description']}")
        for name, description in {**models, **large}.items():
            print(f"{name:24} {description}")
        return 0
    names = (arguments.programs.split(",") if arguments.programs
             else [*large] if arguments.large else [*real, *models])
    for name in names:
        if name not in real and name not in models and name not in large:
            parser.error(f"there is no program {name}; --list names them")
    tables = {}
    peer = f"jaxlib's {arguments.peer.upper()}"
    print(f"{'program':32} {'Hekla ms (quartiles)':>26} {'peer ms (quartiles)':>26} {'ratio':>6} "
          f"{'best':>6} {'compile s (ratio)':>20} {'warm ms':>8} {'MB':>7} {'MB peer':>7} "
          f"{'of copy':>6}")
    for platform in arguments.platform.split(","):
        rows = measure_together(names, platform, arguments) if arguments.together else []
        for row in rows:
            print_row(row)
        for name in [] if arguments.together else names:
            rows.append(measure(name, platform, arguments))
            print_row(rows[-1])
        with tempfile.TemporaryDirectory() as cache:
            launch = run_child(["launch", platform, arguments.peer], platform, arguments.peer, cache,
                               arguments.timeout)
        tables[platform] = {"rows": rows, "summary": summary(rows), "launch": launch}
        total = tables[platform]["summary"]
        if "geomean" in total:
            print(f"{platform}: {total['programs']} programs, {total['failed']} failed; geomean "
                  f"{total['geomean']:.2f} (of best times {total['geomean_of_best']:.2f}), worst "
                  f"{total['worst'][0]} {total['worst'][1]:.2f}; below 0.8: "
                  f"{', '.join(total['below_0.8']) or 'none'}")
        if "cold_compile_geomean" in total:
            print(f"{platform}: cold compile {total['cold_compile_geomean']:.1f} times as fast; "
                  f"slowest warm start {total['slowest_warm_start'][0]} "
                  f"{total['slowest_warm_start'][1] * 1e3:.0f} ms")
        if "error" not in launch:
            print(f"{platform}: launch of x + 1 on four numbers from Python "
                  f"{launch['hekla']['best_s'] * 1e6:.1f} us (median "
                  f"{launch['hekla']['median_s'] * 1e6:.1f}), {peer} "
                  f"{launch['peer']['best_s'] * 1e6:.1f} us "
                  f"({launch['peer']['median_s'] * 1e6:.1f})", flush=True)
    if arguments.json:
        import jaxlib
        document = {"machine": machine.machine(), "cores": len(os.sched_getaffinity(0)),
                    "jaxlib": jaxlib.version.__version__, "peer": arguments.peer, "platforms": tables}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.svg:
        arguments.svg.write_text(svg(tables, peer))
    return 1 if any("error" in row for table in tables.values() for row in table["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
