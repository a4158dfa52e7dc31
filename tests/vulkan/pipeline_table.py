# SPDX-License-Identifier: Apache-2.0
"""What the drivers of GPUs that are not there tell of our pipelines, held to limits, as a table.

Usage: python3 tests/vulkan/pipeline_table.py [--drivers rdna3,nvk] [--only NAME] [--jax-python PYTHON]
                                              [--table FILE] [--json FILE]

Compiles programs with `hekla compile --emit pipeline-stats` in the root of Debian sid
(tools/install.sh --sid; the stage absent-gpus copies the build into it): the real ones, those of
gpu_kernels.py, and, with a Python that has JAX, those of benchmarks/zoo.py and zoo_large.py. It fails
where a pipeline takes more than two seconds of the processor, a kernel of a product or of attention on matrix units spills registers,
or, but in benchmarks' programs, a driver that tells so has fewer than two subgroups a SIMD for one. Each driver and program counts as one;
the last line is "N passed, N failed".
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "vulkan")]
import drivers  # noqa: E402
import gpu_kernels  # noqa: E402

MOST_SECONDS = 2.0
LEAST_SUBGROUPS = 2
TEXTS = ROOT / "build" / "gpu-kernels"
REAL_PROGRAMS = sorted(path.parent for path in (ROOT / "tests" / "programs").glob("*/case.json"))
# Drivers' own caches would hide what a pipeline costs.
UNCACHED = {"MESA_SHADER_CACHE_DISABLE": "true"}

# What drivers call it (RADV, Turnip, Honeykrisp, NVK), by what it means, and by what it is divided: the
# first name that a driver has is taken, of spills all of them are added.
NAMES = {
    "registers": {"VGPRs": 1, "Registers used": 1, "GPRs": 1, "Number of GPRs": 1},
    "spills": {"Spilled VGPRs": 1, "Spilled SGPRs": 1, "Scratch size": 1, "STP Count": 1, "LDP Count": 1,
               "Spills": 1, "Fills": 1, "Scratch": 1, "Spills to memory": 1, "Fills from memory": 1, "SLM size": 1},
    # Subgroups a SIMD: an SM and a core of Apple's have four SIMDs, a core of Adreno's two of 64 lanes, which
    # a subgroup of 128 takes together.
    "subgroups": {"Subgroups per SIMD": 1, "Max warps/SM": 4, "Threads": 4 * 32, "Max Waves Per Core": 2},
    "instructions": {"Instructions": 1, "Instruction Count": 1, "Instruction count": 1},
    "cycles": {"Inverse Throughput": 1, "Static cycle count": 1, "ALU": 1},
}


def numbers(kernel: dict) -> dict:
    """Statistics of a kernel by what they mean, as far as the driver tells."""
    found = {}
    for executable in kernel["executables"]:
        values = {one["name"]: one["value"] for one in executable["statistics"]}
        for meaning, names in NAMES.items():
            told = [float(values[name]) / divisor for name, divisor in names.items() if name in values]
            if meaning == "subgroups" and "Max Waves Per Core" in values:
                told[0] *= executable["subgroup_size"] / 64
            if told:
                found[meaning] = sum(told) if meaning == "spills" else told[0]
    return found


def problems(kernel: dict, has_occupancy: bool) -> list:
    """`has_occupancy`: whether it is held to that limit too."""
    told = numbers(kernel)
    found = []
    if kernel["seconds"] > MOST_SECONDS:
        found.append(f"took {kernel['seconds']:.1f} s")
    if kernel["family"] in ("product", "attention_matrix"):
        if told.get("spills", 0) > 0:
            found.append(f"spills ({told['spills']:.0f})")
        if has_occupancy and told.get("subgroups", LEAST_SUBGROUPS) < LEAST_SUBGROUPS:
            found.append(f"has {told['subgroups']:.0f} subgroups a SIMD")
    return found


def benchmark_texts(python: str) -> dict:
    """{name: file} of benchmarks' programs, by JAX."""
    # As JAX sends them to a platform without lowerings of its own.
    script = ("import sys, pathlib, jax; sys.path.insert(0, 'benchmarks'); import zoo, zoo_large\n"
              "from jaxlib import _jax\n"
              "from jaxlib.mlir.dialects import stablehlo\n"
              "for m in zoo.all() + zoo_large.all():\n"
              "    args = m.make()\n"
              "    traced = jax.jit(m.function).trace(*(args if isinstance(args, tuple) else (args,)))\n"
              "    module = traced.lower(lowering_platforms=('vulkan',)).compiler_ir('stablehlo')\n"
              "    artifact = _jax.mlir.serialize_portable_artifact(module, stablehlo.get_current_version(), True)\n"
              "    pathlib.Path(sys.argv[1], m.name + '.mlirbc').write_bytes(artifact)\n")
    folder = TEXTS / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, "-c", script, folder], cwd=ROOT, check=True,
                   env={"JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"})
    return {path.stem: path for path in sorted(folder.glob("*.mlirbc"))}


def program_files(arguments) -> dict:
    """{name: file} of all that is compiled, those of gpu_kernels.py first."""
    TEXTS.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, text in gpu_kernels.programs().items():
        files[name] = TEXTS / f"{name}.mlir"
        files[name].write_text(text)
    files.update({path.name: path / "program.mlirbc" for path in REAL_PROGRAMS})
    files["matrix_products"] = ROOT / "tests" / "random" / "regressions" / "matrix_products.mlir"
    if arguments.jax_python:
        files.update(benchmark_texts(arguments.jax_python))
    if arguments.only:
        files = {name: file for name, file in files.items() if arguments.only in name}
    return files


def compile_program(driver: str, file: pathlib.Path) -> tuple:
    """The kernels of a program as a driver sees them, and what went wrong."""
    command = ["timeout", "300", "build/bin/hekla", "compile", file.relative_to(ROOT), "--device", "vulkan",
               "--emit", "pipeline-stats", "--json"]
    if file.stem.startswith("attention_"):  # of gpu_kernels
        command += ["--option", "hekla_attention=matrix"]
    if file.stem.startswith("pieces_"):
        command += ["--option", "hekla_matrix_pieces=all"]
    ran = subprocess.run(drivers.in_sid(command, {**drivers.absent_gpu(driver), **UNCACHED,
                                                  "HEKLA_CACHE_DIR": ""}),
                         capture_output=True, text=True, check=False)
    if ran.returncode:
        return [], [f"status {ran.returncode}: {ran.stderr.strip()[-300:]}"]
    return json.loads(ran.stdout)["kernels"], []


def cell(told: dict, seconds: float) -> str:
    """Registers; subgroups a SIMD; instructions; cycles, as far as the driver tells: "120; 12; 1669; 4843"."""
    text = "; ".join(f"{told[name]:.0f}" if name in told else "?"
                     for name in ("registers", "subgroups", "instructions", "cycles"))
    if told.get("spills", 0) > 0:
        text += f"; spills {told['spills']:.0f}"
    return text + (f"; {seconds:.1f} s" if seconds >= 0.5 else "")


def table(everything: dict) -> str:
    """Of gpu_kernels.py's programs, a line for each family of kernels; of several the one that takes the
    driver longest. `everything`: {driver: {program: kernels}}."""
    rows = {}
    for driver, programs in everything.items():
        for program in gpu_kernels.programs():
            for kernel in sorted(programs.get(program, []), key=lambda kernel: kernel["seconds"]):
                rows.setdefault((program, kernel["family"]), {})[driver] = cell(numbers(kernel), kernel["seconds"])
    lines = ["| program, kernel | " + " | ".join(everything) + " |", "|---" * (1 + len(everything)) + "|"]
    for (program, family), cells in rows.items():
        lines.append(f"| {program}, {family} | " + " | ".join(cells.get(name, "") for name in everything) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drivers", default=",".join(drivers.ABSENT_GPUS))
    parser.add_argument("--only", help="programs whose names have this in them")
    parser.add_argument("--jax-python", help="a Python with JAX: benchmarks' programs too")
    parser.add_argument("--table", type=pathlib.Path, help="write the table of gpu_kernels.py's programs there")
    parser.add_argument("--json", type=pathlib.Path, help="write all statistics there")
    arguments = parser.parse_args()
    names = arguments.drivers.split(",")
    files = program_files(arguments)
    drivers.copy_into_sid([], [TEXTS])
    passed = failed = 0
    everything = {}
    limited = {*gpu_kernels.programs(), "matrix_products", *(path.name for path in REAL_PROGRAMS)}
    for driver in names:
        for program, file in files.items():
            kernels, wrong = compile_program(driver, file)
            everything.setdefault(driver, {})[program] = kernels
            for kernel in kernels:
                wrong += [f"{kernel['name']} ({kernel['schedule']}) {problem}" for problem in problems(kernel, program in limited)]
            passed += not wrong
            failed += bool(wrong)
            slowest = max((kernel["seconds"] for kernel in kernels), default=0)
            print(f"{driver} {program}: {len(kernels)} pipelines, slowest {slowest:.2f} s"
                  f"{'' if not wrong else ': ' + '; '.join(wrong)}", flush=True)
    text = table(everything)
    print(text)
    if arguments.table:
        arguments.table.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(everything))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
