#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests and measures Hekla on a machine that has a GPU, its Vulkan driver and Python, and nothing else.

`pack` makes a folder of a finished build, stripped, with the libraries that a bare machine lacks:
less than 60 MB. Carry it over together with the source tree and run parts there, all or by name. The
correctness parts run side by side, since nothing in them is timed; each measurement runs alone, beside
another platform of JAX where it is installed (--peer cuda, rocm, or cpu, which always is). Every part
ends within --minutes. Output and JSON of each go to --out; the last lines are a table of all of them.

  benchmarks/on_gpu.sh pack .gpu                     here
  benchmarks/on_gpu.sh run --bundle .gpu             there: everything
  benchmarks/on_gpu.sh run --bundle .gpu --parts devices,jax,kernels --peer cuda --out results
  benchmarks/on_gpu.sh list

The other machine needs Python 3.11 or newer; parts that use JAX need jax and jaxlib, `jax` also pytest
and pytest-xdist. Exit status: 0; 1 when a part failed or ran out of time; 2 for wrong usage.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What is packed: of the build tree.
PROGRAMS = ["bin/hekla", "lib/hekla/pjrt_vulkan.so", "lib/hekla/libhekla_checkpoint.so",
            "tests/random_programs", "tests/vulkan_codegen_device_test",
            "tests/kernel_math_vulkan_test"]
# glibc's and the compiler's libraries are those of the machine that runs it.
SYSTEM_LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so|ld-linux")
CASES = sorted(path.parent.name for path in (ROOT / "tests" / "programs").glob("*/case.json"))


@dataclasses.dataclass(frozen=True)
class Part:
    what: str
    # function(Machine) -> commands, run one after the other.
    commands: object
    is_timed: bool = False


class Machine:
    """The bundle on the machine that runs it."""

    def __init__(self, bundle, out, peer, jobs):
        self.build = bundle / "build"
        self.out = out
        self.peer = peer
        self.jobs = str(jobs)
        self.hekla = str(self.build / "bin" / "hekla")
        self.plugin = str(self.build / "lib" / "hekla" / "pjrt_vulkan.so")
        self.libraries = bundle / "libraries"

    def environment(self, command):
        """Python gets the plugin's libraries alone: it has others of its own, of other releases."""
        is_packed = command[0].startswith(str(self.build))
        libraries = [self.libraries / "plugin", *([self.libraries] if is_packed else []),
                     *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {**os.environ, "HEKLA_BUILD_DIR": str(self.build),
                "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}

    def test(self, name):
        return str(self.build / "tests" / name)

    def json(self, name):
        return str(self.out / f"{name}.json")

    def benchmark(self, script, name, *arguments):
        return [sys.executable, f"benchmarks/{script}.py", "--platform", "vulkan", "--peer",
                self.peer, "--json", self.json(name), *arguments]


def programs_at(precision, name):
    """programs.py with JAX's default precision of products; "": JAX's own."""
    def commands(m):
        setting = [f"JAX_DEFAULT_MATMUL_PRECISION={precision}"] if precision else []
        return [["env", *setting, *m.benchmark("programs", name, "--together", "--seconds", "0.3")]]
    return commands


PARTS = {
    "devices": Part("every fact of the device; the doctor's findings",
                    lambda m: [[m.hekla, "devices"], [m.hekla, "devices", "--json"],
                               [m.hekla, "doctor"]]),
    "plugin": Part("the conformance suite of the C API",
                   lambda m: [[m.hekla, "plugin-check", m.plugin]]),
    "cases": Part("the real programs: jaxlib's results, validation where it is installed",
                  lambda m: [[m.hekla, "run", "--device", "vulkan", "--case",
                              f"tests/programs/{case}"] for case in CASES]),
    "codegen": Part("every operation, schedule and random kernel, bit for bit as the interpreter",
                    lambda m: [[m.test("vulkan_codegen_device_test")],
                               [m.test("kernel_math_vulkan_test")]]),
    "random": Part("random programs against the evaluator",
                   lambda m: [[m.test("random_programs"), "--devices", "vulkan", "--seed",
                               str(1000 * k), "--seconds", "45", "--count", "100000"]
                              for k in range(1, 3)]),
    "jax": Part("the tests of tests/jax",
                lambda m: [[sys.executable, "-m", "pytest", "-q", "-n", m.jobs, "--dist",
                            "worksteal", "-p", "no:cacheprovider", "tests/jax",
                            "--platform=vulkan"]]),
    "kernels": Part("single kernels of sizes that fill a GPU, f32 products as f32",
                    lambda m: [["env", "JAX_DEFAULT_MATMUL_PRECISION=highest",
                                *m.benchmark("kernels", "kernels", "--large", "--seconds", "0.4")]],
                    is_timed=True),
    "programs": Part("the real programs and those of zoo.py at the highest precision",
                     programs_at("highest", "programs"), is_timed=True),
    "programs-default": Part("the same at JAX's own precision",
                             programs_at("", "programs-default"), is_timed=True),
    "decoder": Part("a decoder of a billion parameters, a training step of a GPT", lambda m: [
        m.benchmark("decoder", f"decoder-{part}", "--parts", part, "--rounds", "5")
        for part in ("decode", "train")], is_timed=True),
    "large": Part("the programs of zoo_large.py", lambda m: [
        m.benchmark("programs", "large", "--large", "--together", "--repeat", "5", "--seconds",
                    "0.5")],
        is_timed=True),
}


def pack(folder, build):
    """Copies what PARTS need of `build`, stripped, with libraries that are not everywhere."""
    shutil.rmtree(folder, ignore_errors=True)
    libraries = {}  # by path in the folder
    for name in PROGRAMS:
        target = folder / "build" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-s", "-o", target, build / name], check=True)
        text = subprocess.run(["ldd", build / name], capture_output=True, text=True,
                              check=True).stdout
        place = "libraries/plugin" if name.endswith(".so") else "libraries"
        for library, path in re.findall(r"^\s*(\S+) => (/\S+)", text, re.MULTILINE):
            if not SYSTEM_LIBRARIES.match(library):
                libraries[f"{place}/{library}"] = path
    shutil.copytree(build / "python", folder / "build" / "python",
                    ignore=shutil.ignore_patterns("CMakeFiles", "*.cmake", "__pycache__"))
    for name, path in libraries.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB, {len(libraries)} libraries")
    return 0 if size < 60e6 else 1


@dataclasses.dataclass
class Running:
    """A part under way: its commands one after the other, until time is up."""
    name: str
    commands: list
    log: object
    started: float
    limit_s: float
    process: subprocess.Popen | None = None
    failed: int = 0
    seconds: float = 0

    def step(self, machine):
        """-> whether the part is still under way."""
        self.seconds = time.monotonic() - self.started
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                if self.seconds < self.limit_s:
                    return True
                os.killpg(self.process.pid, signal.SIGKILL)  # its own children too
                self.process.wait()
                self.log.write(f"stopped after {self.seconds:.0f} s\n")
                self.commands.clear()
                code = 124
            self.failed += code != 0
            self.process = None
        if not self.commands:
            return False
        command = self.commands.pop(0)
        self.log.write(f"$ {' '.join(command)}\n")
        self.log.flush()
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        start_new_session=True,
                                        env=machine.environment(command))
        return True


def last_line(path):
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:110] if lines else ""


def run(names, machine, minutes):
    """Runs the parts: those that are not timed together, then the others one by one."""
    machine.out.mkdir(parents=True, exist_ok=True)
    together = [name for name in names if not PARTS[name].is_timed]
    waves = [together] if together else []
    waves += [[name] for name in names if PARTS[name].is_timed]
    results = []
    for wave in waves:
        parts = [Running(name, PARTS[name].commands(machine),
                         (machine.out / f"{name}.log").open("w"), time.monotonic(), 60 * minutes)
                 for name in wave]
        print("running", ", ".join(wave), flush=True)
        under_way = list(parts)
        while under_way:
            for part in list(under_way):
                if not part.step(machine):
                    under_way.remove(part)
                    part.log.close()
                    print(f"  {part.name}: {'failed' if part.failed else 'done'} after "
                          f"{part.seconds:.0f} s", flush=True)
            time.sleep(0.05)
        results += parts
    (machine.out / "summary.json").write_text(json.dumps(
        [{"part": p.name, "failed_commands": p.failed, "seconds": round(p.seconds, 1)}
         for p in results], indent=1) + "\n")
    print(f"{'part':18} {'result':8} {'s':>5}  last line")
    for p in results:
        print(f"{p.name:18} {'failed' if p.failed else 'passed':8} {p.seconds:5.0f}  "
              f"{last_line(machine.out / f'{p.name}.log')}")
    return 1 if any(p.failed for p in results) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the parts and what they are")
    packing = commands.add_parser("pack", help="make the folder to carry over")
    packing.add_argument("folder", type=pathlib.Path)
    packing.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    running = commands.add_parser("run", help="run parts on the machine with the GPU")
    running.add_argument("--bundle", type=pathlib.Path, required=True)
    running.add_argument("--parts", help="comma-separated; default: all")
    running.add_argument("--peer", default="cpu", help="platform of JAX to compare with")
    running.add_argument("--out", type=pathlib.Path, default=pathlib.Path("on_gpu"))
    running.add_argument("--minutes", type=float, default=9, help="the most that a part may take")
    running.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2),
                         help="processes of pytest")
    arguments = parser.parse_args()
    if arguments.command == "list":
        for name, part in PARTS.items():
            print(f"{name:18} {'timed' if part.is_timed else '':6} {part.what}")
        return 0
    if arguments.command == "pack":
        return pack(arguments.folder.resolve(), arguments.build)
    names = arguments.parts.split(",") if arguments.parts else list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"no part is named {', '.join(unknown)}; there are {', '.join(PARTS)}")
    machine = Machine(arguments.bundle.resolve(), arguments.out.resolve(), arguments.peer,
                      arguments.jobs)
    return run(names, machine, arguments.minutes)


if __name__ == "__main__":
    sys.exit(main())
